//! The state of the machine that measurements are compared within: how long a line takes there and
//! back between two cores. Virtual machines were seen to change it several times over in minutes.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// How far apart the cores are at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// A round trip of up to 130 ns.
    Near,
    /// Neither near nor far.
    Between,
    /// 300 ns and more.
    Far,
}

impl State {
    /// The state that a round trip tells of.
    pub(crate) fn of(round_trip_ns: f64) -> Self {
        if round_trip_ns <= 130.0 {
            Self::Near
        } else if round_trip_ns < 300.0 {
            Self::Between
        } else {
            Self::Far
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Near => "NEAR",
            Self::Between => "between",
            Self::Far => "FAR",
        })
    }
}

/// The longest median round trip of any two CPUs now, in ns.
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
    let output = Command::new(linewise)
        .args(["bench", "rtt", "--json", "--repeats", "3"])
        .output()
        .with_context(|| format!("running {}", linewise.display()))?;
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
    fn states_do_not_overlap() {
        let states = [130.0, 130.1, 299.9, 300.0].map(State::of);
        assert_eq!(
            states,
            [State::Near, State::Between, State::Between, State::Far]
        );
    }
}
