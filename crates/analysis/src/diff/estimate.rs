//! What is compared: which figure of which part of a report, and how sure it is.

use serde::{Deserialize, Serialize};

use crate::model::Interval;

/// Standard deviations from the middle of a 90 % interval to its ends.
pub(super) const NINETY: f64 = 1.645;

/// The part of the report that a row is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// What threads fight over.
    Findings,
    /// The whole run.
    Totals,
    /// Thread time at the accesses of a type; of an exact run its share of all accesses.
    Types,
    /// Misses of the first-level cache at a type, by cause, as a share of all.
    Misses,
    /// Bytes of a type in use, by level of the caches.
    WorkingSet,
    /// CPU time of a thread as a share of that of all; of an exact run its accesses.
    Threads,
}

impl View {
    /// Its name in the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Findings => "findings",
            Self::Totals => "totals",
            Self::Types => "types",
            Self::Misses => "misses",
            Self::WorkingSet => "working-set",
            Self::Threads => "threads",
        }
    }
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A share, 0 to 1.
    Share,
    /// A number a second of the run.
    PerSecond,
    /// A number for each million accesses.
    PerMillion,
    /// Bytes.
    Bytes,
}

/// A value and its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueInterval {
    /// The value.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
}
