//! From the lines that an exact run followed to all of them.
//!
//! With `--lines 1/N` a line is followed if its hash is low enough. What is counted of it is exact, and
//! nothing is known of the others. So the lines that an object has, and how many of them were
//! followed, tell what its counts are to be multiplied by; of memory whose extent is not known, N.

use linewise_cache::line_hash;
use linewise_recording::{Address, RunInfo};

use super::{Estimate, LineSharing};

/// The tracer chooses by pieces of this size, whatever the simulated line is.
const CHOSEN_BYTES: u64 = 64;
/// Standard errors to each end of a 90 % interval.
pub(crate) const ERRORS: f64 = 1.645;

/// Which lines were followed.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    one_in: u32,
    line_size: u64,
}

impl Followed {
    /// In this run.
    #[must_use]
    pub fn of(info: &RunInfo) -> Self {
        Self {
            one_in: info.exact.as_ref().map_or(1, |run| run.one_line_in.max(1)),
            line_size: info.line_size.max(CHOSEN_BYTES),
        }
    }

    /// Of how many lines one was followed; 1 is all.
    #[must_use]
    pub fn one_in(self) -> u32 {
        self.one_in
    }

    fn holds(self, line: u64) -> bool {
        let threshold = u64::MAX / u64::from(self.one_in);
        let pieces = (line / CHOSEN_BYTES)..(line + self.line_size) / CHOSEN_BYTES;
        pieces
            .into_iter()
            .any(|piece| line_hash(piece) <= threshold)
    }

    /// What counts of `lines` are to be multiplied by to stand for all lines of what they belong to: an
    /// object of `size` bytes at `address`, or, if that is `None`, memory of unknown extent. With a
    /// 90 % interval from the variance of a total of units that were chosen each by itself (Horvitz and
    /// Thompson), which does not go below what was counted.
    #[must_use]
    pub fn scale(self, lines: &[&LineSharing], object: Option<(Address, u64)>) -> Estimate {
        let all = Estimate::exactly(1.0);
        if self.one_in == 1 {
            return all;
        }
        let value = match object {
            Some((Address(address), size)) if size > 0 => {
                let first = address / self.line_size;
                let last = address.saturating_add(size - 1) / self.line_size;
                let chosen = (first..=last)
                    .filter(|line| self.holds(line * self.line_size))
                    .count();
                (last - first + 1) as f64 / chosen.max(lines.len()).max(1) as f64
            }
            _ => f64::from(self.one_in),
        }
        .max(1.0);
        let counts = lines.iter().map(|line| line.transfers.value);
        let total: f64 = counts.clone().sum();
        let squares: f64 = counts.map(|count| count * count).sum();
        if total <= 0.0 {
            return Estimate { value, ..all };
        }
        let error = (squares * value * (value - 1.0)).sqrt() / total;
        Estimate {
            value,
            low: (value - ERRORS * error).max(1.0),
            high: value + ERRORS * error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use linewise_recording::Pid;

    use super::super::Basis;
    use super::*;

    fn followed(one_in: u32) -> Followed {
        Followed {
            one_in,
            line_size: 64,
        }
    }

    fn line(address: u64, count: f64) -> LineSharing {
        LineSharing {
            pid: Pid(1),
            line: Address(address),
            transfers: Estimate::exactly(count),
            cost_ns: Estimate::default(),
            flows: Vec::new(),
            false_share: Estimate::default(),
            cpu_flows: BTreeMap::new(),
            places: Vec::new(),
            basis: Basis::Traced,
        }
    }

    #[test]
    fn the_lines_of_an_object_that_were_not_followed_count_like_those_that_were() {
        let followed = followed(4);
        let object = (Address(0x40_0000), 1000 * 64);
        let lines: Vec<LineSharing> = (0..1000)
            .map(|index| 0x40_0000 + index * 64)
            .filter(|&address| followed.holds(address))
            .map(|address| line(address, 10.0))
            .collect();
        let lines: Vec<&LineSharing> = lines.iter().collect();
        let scale = followed.scale(&lines, Some(object));
        let total = scale.value * 10.0 * lines.len() as f64;
        assert!((total - 10_000.0).abs() < 1e-6, "{total}");
        assert!(scale.low > 0.8 * scale.value && scale.high < 1.2 * scale.value);
    }

    #[test]
    fn an_object_on_one_line_is_known_exactly_and_unknown_memory_is_not() {
        let followed = followed(64);
        let address = (0..).map(|index| index * 64).find(|&a| followed.holds(a));
        let line = line(address.unwrap_or(0), 500.0);
        let one = followed.scale(&[&line], Some((line.line, 16)));
        assert_eq!((one.value, one.low, one.high), (1.0, 1.0, 1.0));
        let unknown = followed.scale(&[&line], None);
        assert_eq!((unknown.value, unknown.low), (64.0, 1.0));
        assert!(unknown.high > 128.0);
    }

    #[test]
    fn where_all_lines_were_followed_nothing_is_scaled() {
        let line = line(0, 5.0);
        assert_eq!(followed(1).scale(&[&line], None).high, 1.0);
    }
}
