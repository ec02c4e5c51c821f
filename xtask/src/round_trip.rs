//! The state of the machine that measurements are compared within: how long a line takes there and
//! back between two cores. Virtual machines were seen to change it several times over in minutes.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

/// Round trips further apart than this factor belong to different states; within one they vary by
/// less on every machine seen.
const APART: f64 = 1.5;
/// A measurement that fails is tried again so often, after so long.
const ATTEMPTS: usize = 6;
const PAUSE: Duration = Duration::from_secs(3);

/// The round trips of one state of the machine, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Span {
    /// The shortest.
    pub(crate) from: f64,
    /// The longest.
    pub(crate) to: f64,
}

impl Span {
    /// The round trips of one measurement; `None` of none.
    pub(crate) fn of(round_trips_ns: &[f64]) -> Option<Self> {
        let from = round_trips_ns.iter().copied().reduce(f64::min)?;
        let to = round_trips_ns.iter().copied().reduce(f64::max)?;
        Some(Self { from, to })
    }

    /// Whether all were measured in one state.
    pub(crate) fn is_one_state(self) -> bool {
        self.to <= self.from * APART
    }

    /// Both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&if self.from.round() < self.to.round() {
            format!("{:.0}..{:.0}", self.from, self.to)
        } else {
            format!("{:.0}", self.from)
        })
    }
}

/// The longest median round trip of any two CPUs now, in ns. A machine that is too busy for it is given some
/// time.
///
/// # Errors
/// If `linewise bench rtt` fails, as on a machine with one CPU.
pub(crate) fn measure(linewise: &Path) -> anyhow::Result<f64> {
    #[derive(Deserialize)]
    struct Pair {
        median_ns: f64,
    }
    #[derive(Deserialize)]
    struct RoundTrips {
        pairs: Vec<Pair>,
    }
    let attempt = || {
        Command::new(linewise)
            .args(["bench", "rtt", "--json", "--repeats", "3"])
            .output()
            .with_context(|| format!("running {}", linewise.display()))
    };
    let mut output = attempt()?;
    for _ in 1..ATTEMPTS {
        if output.status.success() {
            break;
        }
        sleep(PAUSE);
        output = attempt()?;
    }
    ensure!(
        output.status.success(),
        "linewise bench rtt failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let measured: RoundTrips = serde_json::from_slice(&output.stdout)
        .context("reading what linewise bench rtt printed")?;
    measured
        .pairs
        .iter()
        .map(|pair| pair.median_ns)
        .reduce(f64::max)
        .context("linewise bench rtt measured no two CPUs")
}

/// The middle of some numbers; `None` of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_state_is_what_varies_by_less_than_half() {
        let near = Span::of(&[120.0, 100.0, 149.0]).unwrap();
        assert!(near.is_one_state());
        assert_eq!(near.to_string(), "100..149");
        let far = Span::of(&[337.2]).unwrap();
        assert!(far.is_one_state());
        assert_eq!(far.to_string(), "337");
        assert!(!near.with(far).is_one_state());
        assert_eq!(Span::of(&[]), None);
    }
}
