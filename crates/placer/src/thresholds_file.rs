//! The file that keeps a machine's thresholds: `linewise calibrate -o FILE` writes it, `linewise place --thresholds FILE`
//! reads it.
//!
//! ```json
//! { "schema": 1, "coherence_per_s": 920000, "remote_per_s": 920000, "misses_per_s_node": 180000000,
//!   "how": { "coherence": { "kind": "measured", "words": "..." }, "remote": ..., "misses": ... },
//!   "machine": "AMD EPYC 9554, 2 CPUs", "date": "2026-11-28" }
//! ```
//!
//! Fields are only ever added, and what is not known is passed over.

use serde::{Deserialize, Serialize};

use crate::Thresholds;

/// The only version so far.
const SCHEMA: u32 = 1;

/// How a threshold was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginKind {
    /// By running programs that reach it.
    Measured,
    /// From latencies that were measured.
    Computed,
    /// Neither: taken from elsewhere.
    Assumed,
}

impl OriginKind {
    /// The word that stands for this value in every output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Computed => "computed",
            Self::Assumed => "assumed",
        }
    }
}

/// How a threshold was got, and from what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// How.
    pub kind: OriginKind,
    /// From what, in a sentence without its full stop.
    pub words: String,
}

/// How each threshold was got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origins {
    /// [`ThresholdsFile::coherence_per_s`].
    pub coherence: Origin,
    /// [`ThresholdsFile::remote_per_s`].
    pub remote: Origin,
    /// [`ThresholdsFile::misses_per_s_node`].
    pub misses: Origin,
}

/// The thresholds of a machine, with where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdsFile {
    /// Version of the file.
    schema: u32,
    /// Transfers of lines per second of CPU time from which on distance costs a task 5 % (SAM, section 2.1).
    pub coherence_per_s: f64,
    /// Loads from remote memory per second of CPU time from which on they cost a task 5 %.
    pub remote_per_s: f64,
    /// Misses of the last-level cache, of all tasks of a node in a second, at which its memory is nearly saturated:
    /// 20 % below what a low row-buffer hit ratio reaches (SAM, section 2.2).
    pub misses_per_s_node: f64,
    /// How each was got.
    pub how: Origins,
    /// The machine, in some words.
    pub machine: String,
    /// The day, as 2026-11-28 (UTC).
    pub date: String,
}

/// Why a text holds no thresholds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdsFileError {
    /// It is something else.
    #[error("it holds no thresholds; make it with `linewise calibrate -o FILE`")]
    Syntax(#[from] serde_json::Error),
    /// It comes from another linewise.
    #[error(
        "it has version {found}, and this linewise reads version {SCHEMA}; make it anew with `linewise calibrate -o FILE`"
    )]
    Schema {
        /// Its version.
        found: u32,
    },
    /// A rate is none.
    #[error("its {field} is {value}, which is no rate: it must be above 0")]
    Rate {
        /// Which one.
        field: &'static str,
        /// What it is.
        value: f64,
    },
}

impl ThresholdsFile {
    /// Thresholds per second, that of coherence and of remote loads of a task and that of misses of a node.
    ///
    /// # Errors
    /// [`ThresholdsFileError::Rate`].
    pub fn new(
        [coherence_per_s, remote_per_s, misses_per_s_node]: [f64; 3],
        how: Origins,
        machine: String,
        date: String,
    ) -> Result<Self, ThresholdsFileError> {
        let file = Self {
            schema: SCHEMA,
            coherence_per_s,
            remote_per_s,
            misses_per_s_node,
            how,
            machine,
            date,
        };
        file.check()?;
        Ok(file)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// [`ThresholdsFileError`].
    pub fn from_json(text: &str) -> Result<Self, ThresholdsFileError> {
        /// Looked at before the rest, which another version may have otherwise.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let found = serde_json::from_str::<Version>(text)?.schema;
        if found != SCHEMA {
            return Err(ThresholdsFileError::Schema { found });
        }
        let file: Self = serde_json::from_str(text)?;
        file.check()?;
        Ok(file)
    }

    /// As JSON, with a newline at its end.
    ///
    /// # Errors
    /// None in practice: every value has a form in JSON.
    pub fn to_json(&self) -> Result<String, ThresholdsFileError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// What [`decide`](crate::decide()) takes.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            coherence: self.coherence_per_s as f32,
            remote: self.remote_per_s as f32,
            misses: self.misses_per_s_node as f32,
        }
    }

    fn check(&self) -> Result<(), ThresholdsFileError> {
        for (field, value) in [
            ("coherence_per_s", self.coherence_per_s),
            ("remote_per_s", self.remote_per_s),
            ("misses_per_s_node", self.misses_per_s_node),
        ] {
            // As the placer has it: what is too large for it is no rate either.
            let rate = value as f32;
            if !rate.is_finite() || rate <= 0.0 {
                return Err(ThresholdsFileError::Rate { field, value });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ThresholdsFile {
        let origin = |kind, words: &str| Origin {
            kind,
            words: words.to_owned(),
        };
        let how = Origins {
            coherence: origin(OriginKind::Measured, "by two threads"),
            remote: origin(OriginKind::Assumed, "as coherence"),
            misses: origin(OriginKind::Measured, "by copying"),
        };
        let machine = "a \"machine\"\n".to_owned();
        ThresholdsFile::new([9e5, 8e5, 7e7], how, machine, "2026-11-28".to_owned()).unwrap()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let text = file().to_json().unwrap();
        assert_eq!(ThresholdsFile::from_json(&text).unwrap(), file());
        assert!(text.contains("\"kind\": \"measured\""), "{text}");
        let thresholds = file().thresholds();
        assert_eq!(thresholds.coherence, 9e5);
        assert_eq!(thresholds.misses, 7e7);
    }

    #[test]
    fn fields_of_later_versions_are_passed_over() {
        let text = file()
            .to_json()
            .unwrap()
            .replacen('{', "{ \"later\": [1],", 1);
        assert_eq!(ThresholdsFile::from_json(&text).unwrap(), file());
    }

    #[test]
    fn what_holds_no_thresholds_is_refused_with_its_reason() {
        let good = file().to_json().unwrap();
        for (text, reason) in [
            (String::new(), "holds no thresholds"),
            ("[1, 2]".to_owned(), "holds no thresholds"),
            (good.replace("remote_per_s", "other"), "holds no thresholds"),
            (good.replace("\"schema\": 1", "\"schema\": 7"), "version 7"),
            (good.replace("900000.0", "0"), "coherence_per_s is 0"),
            (good.replace("900000.0", "-3"), "coherence_per_s is -3"),
            (good.replace("70000000.0", "1e300"), "misses_per_s_node"),
        ] {
            let error = ThresholdsFile::from_json(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
