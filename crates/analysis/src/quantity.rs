//! Quantities: between what a value lies, the middle of several, shares in words.

use serde::{Deserialize, Serialize};

/// Between what a value lies, both ends in its unit: of an estimate 90 %, of several measurements or models the lowest and
/// the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The interval of a value that is known.
    #[must_use]
    pub fn exactly(value: f64) -> Self {
        Self {
            low: value,
            high: value,
        }
    }

    /// The interval that holds this value, too.
    pub(crate) fn with(self, value: f64) -> Self {
        Self {
            low: self.low.min(value),
            high: self.high.max(value),
        }
    }

    /// From the lowest to the highest of some values; `None` of none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let (first, others) = values.split_first()?;
        let first = Self::exactly(*first);
        Some(others.iter().fold(first, |all, value| all.with(*value)))
    }
}

/// A value with its 90 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// A value that is known.
    pub(crate) fn exactly(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    /// Between what it lies.
    pub(crate) fn interval(self) -> Interval {
        Interval {
            low: self.low,
            high: self.high,
        }
    }

    /// The product with a factor that is an estimate, too; none is negative.
    pub(crate) fn times(self, factor: Self) -> Self {
        Self {
            value: self.value * factor.value,
            low: self.low * factor.low,
            high: self.high * factor.high,
        }
    }

    /// Adds another.
    pub(crate) fn add(&mut self, other: Self) {
        self.value += other.value;
        self.low += other.low;
        self.high += other.high;
    }
}

/// The median: of an even number of values the mean of the two in the middle; `None` of none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(lower + (upper - lower) / 2.0)
}

/// A share of 0 to 1 as `38 %`, `3.8 %`, `0.38 %`.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        return "? %".to_owned();
    }
    if value.abs() >= ABSURD {
        return format!("{value:.0e} %");
    }
    if value > 0.0 && value < 0.005 {
        return "<0.01 %".to_owned();
    }
    format!("{:.*} %", percent_decimals(value), value)
}

/// An interval of shares as `31..44 %`.
pub(crate) fn percent_range(interval: Interval) -> String {
    let (low, high) = (interval.low * 100.0, interval.high * 100.0);
    if !low.is_finite() || !high.is_finite() {
        return "?..? %".to_owned();
    }
    if low.abs().max(high.abs()) >= ABSURD {
        return format!("{low:.0e}..{high:.0e} %");
    }
    let decimals = percent_decimals(high);
    let high = format!("{high:.decimals$}");
    // Little is not nothing.
    let low = match low {
        low if low > 0.0 && low < 0.005 => "<0.01".to_owned(),
        low if low > 0.0 && low < 0.5 * 0.1_f64.powi(decimals as i32) => format!("{low:.2}"),
        low => format!("{low:.decimals$}"),
    };
    format!("{low}..{high} %")
}

fn percent_decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 9.95 || v == 0.0 => 0,
        v if v >= 0.995 => 1,
        _ => 2,
    }
}

/// From here on a number is not a measurement but an accident, and is kept short.
pub(crate) const ABSURD: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median([8.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_low_end_that_is_little_is_not_told_as_nothing() {
        let range = |low, high| percent_range(Interval { low, high });
        assert_eq!(range(0.0003, 0.031), "0.03..3.1 %");
        assert_eq!(range(0.000_01, 0.31), "<0.01..31 %");
        assert_eq!(range(0.0, 0.31), "0..31 %");
        assert_eq!(range(0.02, 0.31), "2..31 %");
    }

    #[test]
    fn an_interval_reaches_from_the_lowest_to_the_highest() {
        assert_eq!(Interval::of(&[]), None);
        let found = Interval::of(&[3.0, 1.0, 2.0]);
        assert_eq!(
            found,
            Some(Interval {
                low: 1.0,
                high: 3.0
            })
        );
    }
}
