//! What depends on the interleaving of threads: a count for each order of an exact run.

use serde::{Deserialize, Serialize};

/// The lowest and the highest of several values of one quantity: of its counts in both orders of an
/// exact run, where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The lowest.
    pub low: f64,
    /// The highest; the same where the orders agree, or where only one was simulated.
    pub high: f64,
}

impl Band {
    /// The band of a count that both orders agree on.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self {
            low: value,
            high: value,
        }
    }

    /// The band that holds this count, too.
    #[must_use]
    pub fn with(self, value: f64) -> Self {
        Self {
            low: self.low.min(value),
            high: self.high.max(value),
        }
    }

    /// The products of two positive quantities.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self {
            low: self.low * other.low,
            high: self.high * other.high,
        }
    }

    /// Whether the orders differ by more than `share` of the higher count.
    #[must_use]
    pub fn differs(self, share: f64) -> bool {
        self.high - self.low > share * self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_spans_what_it_was_given() {
        let band = Band::of(4.0).with(10.0).with(6.0);
        assert_eq!(
            band,
            Band {
                low: 4.0,
                high: 10.0
            }
        );
        assert!(band.differs(0.5));
        assert!(!band.differs(0.6));
        assert!(!Band::of(0.0).differs(0.0));
    }
}
