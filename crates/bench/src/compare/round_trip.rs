//! The core-to-core round trips of `bench rtt`.

use super::statistics::{coefficient_of_variation, median};
use serde::Serialize;
use std::fmt::Write as _;

/// Repeated measurements between two CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundTrips {
    /// One CPU.
    pub cpu_a: u32,
    /// The other.
    pub cpu_b: u32,
    /// Each measured round trip, ns.
    pub round_trips_ns: Vec<f64>,
}

/// Beyond this ratio of the longest to the shortest the machine has changed its state meanwhile.
const STATES_DIFFER: f64 = 2.0;

/// Round trips as a table for people, a line for each pair of CPUs.
#[must_use]
pub fn rtt_table(pairs: &[RoundTrips]) -> String {
    let mut out = String::from("   CPUs   runs   median ns   shortest    longest   variation\n");
    for pair in pairs {
        let trips = &pair.round_trips_ns;
        let _ = write!(
            out,
            "{:>3} - {:<3}{:>5}",
            pair.cpu_a,
            pair.cpu_b,
            trips.len()
        );
        let Some((middle, shortest, longest)) = summary(trips) else {
            out.push_str("   not measured\n");
            continue;
        };
        let variation = coefficient_of_variation(trips).map_or_else(
            || "-".to_owned(),
            |variation| format!("{:.1} %", 100.0 * variation),
        );
        let _ = write!(
            out,
            "{middle:>12.1}{shortest:>11.1}{longest:>11.1}{variation:>12}"
        );
        if longest > STATES_DIFFER * shortest {
            out.push_str("   more than one latency state");
        }
        out.push('\n');
    }
    out
}

/// The same as JSON.
#[must_use]
pub fn rtt_json(pairs: &[RoundTrips]) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = pairs
        .iter()
        .map(|pair| {
            let (middle, shortest, longest) = match summary(&pair.round_trips_ns) {
                Some((a, b, c)) => (Some(a), Some(b), Some(c)),
                None => (None, None, None),
            };
            serde_json::json!({
                "cpu_a": pair.cpu_a,
                "cpu_b": pair.cpu_b,
                "median_ns": middle,
                "shortest_ns": shortest,
                "longest_ns": longest,
                "variation": coefficient_of_variation(&pair.round_trips_ns),
                "round_trips_ns": pair.round_trips_ns,
            })
        })
        .collect();
    serde_json::json!({ "schema": 1, "pairs": rows })
}

fn summary(trips: &[f64]) -> Option<(f64, f64, f64)> {
    let shortest = trips.iter().copied().reduce(f64::min)?;
    let longest = trips.iter().copied().reduce(f64::max)?;
    Some((median(trips)?, shortest, longest))
}
