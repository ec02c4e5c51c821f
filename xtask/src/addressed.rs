//! How many of the samples that wait for memory know which.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Deserialize;

/// The reasons of samples whose waiting instruction is an access, but whose address is unknown
/// (docs/report-json.md, `samples.unknown`).
const WITHOUT_ADDRESS: [&str; 4] = [
    "address-overwritten",
    "breakpoint-expired",
    "address-not-in-registers",
    "no-registers",
];

/// The `samples` of a report.
#[derive(Default, Deserialize)]
pub(crate) struct Samples {
    accesses: u64,
    unknown: BTreeMap<String, u64>,
}

/// Samples whose waiting instruction is a memory access: all, and those with an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addressed {
    pub with: u64,
    pub all: u64,
}

impl Addressed {
    /// 0 to 1; `None` without a sample.
    pub(crate) fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.with as f64 / self.all as f64)
    }
}

impl From<&Samples> for Addressed {
    fn from(samples: &Samples) -> Self {
        let without: u64 = WITHOUT_ADDRESS
            .iter()
            .filter_map(|&reason| samples.unknown.get(reason))
            .sum();
        Self {
            with: samples.accesses,
            all: samples.accesses + without,
        }
    }
}

impl AddAssign for Addressed {
    fn add_assign(&mut self, other: Self) {
        self.with += other.with;
        self.all += other.all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_are_not_known_do_not_count_against_the_addresses() {
        let text =
            r#"{ "accesses": 90, "unknown": { "address-overwritten": 10, "block-start": 50 } }"#;
        let samples: Samples = serde_json::from_str(text).unwrap();
        let addressed = Addressed::from(&samples);
        assert_eq!(addressed, Addressed { with: 90, all: 100 });
        assert_eq!(addressed.share(), Some(0.9));
        assert_eq!(Addressed::default().share(), None);
    }
}
