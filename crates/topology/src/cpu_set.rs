//! Sets of CPUs in the kernel's notation: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of logical CPU numbers, ordered.
///
/// Parses and prints the list format of the kernel (`Documentation/core-api/printk-formats`,
/// `%*pbl`): numbers and inclusive ranges separated by commas, the empty string for the empty set.
///
/// ```
/// use linewise_topology::CpuSet;
///
/// let set: CpuSet = "0-3,8".parse()?;
/// assert_eq!(set.len(), 5);
/// assert!(set.contains(8) && !set.contains(4));
/// assert_eq!(set.to_string(), "0-3,8");
/// # Ok::<(), linewise_topology::ParseCpuSetError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is not a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseCpuSetError {
    /// This part is neither a number nor a range.
    NotANumber(String),
    /// This range ends before it starts.
    Backward(String),
    /// This number is above [`CpuSet::HIGHEST`]: no kernel has such a CPU.
    TooHigh(String),
}

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(part) => {
                write!(
                    f,
                    "`{part}` is not a CPU number or range; write CPUs like 0-3,8"
                )
            }
            Self::Backward(part) => {
                write!(
                    f,
                    "the range `{part}` ends before it starts; write the lower CPU first"
                )
            }
            Self::TooHigh(part) => write!(
                f,
                "`{part}` is too high for a CPU number; the highest is {}",
                CpuSet::HIGHEST
            ),
        }
    }
}

impl std::error::Error for ParseCpuSetError {}

impl CpuSet {
    /// The highest CPU number that a set can hold. Linux stops at 8191; the bound keeps a hostile
    /// `0-4294967295` from filling the memory.
    pub const HIGHEST: u32 = 65_535;

    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `cpu`; says whether it was not there before.
    pub fn insert(&mut self, cpu: u32) -> bool {
        self.0.insert(cpu)
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// How many CPUs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut cpus = BTreeSet::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(cpus));
        }
        for part in text.split(',') {
            let part = part.trim();
            match part.split_once('-') {
                Some((low, high)) => {
                    let (low, high) = (number(low, part)?, number(high, part)?);
                    if high < low {
                        return Err(ParseCpuSetError::Backward(part.to_owned()));
                    }
                    cpus.extend(low..=high);
                }
                None => {
                    cpus.insert(number(part, part)?);
                }
            }
        }
        Ok(Self(cpus))
    }
}

fn number(digits: &str, part: &str) -> Result<u32, ParseCpuSetError> {
    let digits = digits.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseCpuSetError::NotANumber(part.to_owned()));
    }
    match digits.parse() {
        Ok(cpu) if cpu <= CpuSet::HIGHEST => Ok(cpu),
        _ => Err(ParseCpuSetError::TooHigh(part.to_owned())),
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(low) = cpus.next() {
            let mut high = low;
            while cpus.next_if(|&next| next == high + 1).is_some() {
                high += 1;
            }
            if low == high {
                write!(f, "{separator}{low}")?;
            } else {
                write!(f, "{separator}{low}-{high}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_kernel_is_read_and_printed_unchanged() {
        for list in ["", "0", "0-3,8", "0,2,4,6", "0-9,20-29", "1-2,65535"] {
            let set: CpuSet = list.parse().expect(list);
            assert_eq!(set.to_string(), list);
        }
    }

    #[test]
    fn the_newline_of_a_sysfs_file_and_disorder_are_accepted() {
        let set: CpuSet = "8,3-4, 0-1\n".parse().unwrap();
        assert_eq!(set.to_string(), "0-1,3-4,8");
        assert_eq!(set.first(), Some(0));
    }

    #[test]
    fn text_that_is_no_list_is_refused_with_its_part() {
        let refused = |text: &str| text.parse::<CpuSet>().unwrap_err();
        assert_eq!(refused("0,x"), ParseCpuSetError::NotANumber("x".to_owned()));
        assert_eq!(refused("0,"), ParseCpuSetError::NotANumber(String::new()));
        assert_eq!(refused("-1"), ParseCpuSetError::NotANumber("-1".to_owned()));
        assert_eq!(refused("+1"), ParseCpuSetError::NotANumber("+1".to_owned()));
        assert_eq!(refused("5-2"), ParseCpuSetError::Backward("5-2".to_owned()));
    }

    #[test]
    fn a_range_that_would_fill_the_memory_is_refused() {
        let error = "0-4294967295".parse::<CpuSet>().unwrap_err();
        assert!(matches!(error, ParseCpuSetError::TooHigh(_)));
        let error = "99999999999999999999".parse::<CpuSet>().unwrap_err();
        assert!(error.to_string().contains("65535"));
    }

    #[test]
    fn the_intersection_holds_what_both_hold() {
        let left: CpuSet = "0-3".parse().unwrap();
        let right: CpuSet = "2-9".parse().unwrap();
        assert_eq!(left.intersection(&right).to_string(), "2-3");
    }
}
