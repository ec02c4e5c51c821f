//! States of the machine, by the round trip of a line between two CPUs: samples of different states have
//! nothing in common.

use linewise_machine::latency::measure_round_trip;
use serde::Serialize;
use std::time::Duration;

/// Round trips further apart than this factor belong to different states; within one they vary by
/// less on every machine seen.
const APART: f64 = 1.5;
/// How long a look at the round trip takes.
const LOOK: Duration = Duration::from_millis(10);
/// How many looks at a busy machine, before a sample has no round trip.
const LOOKS: usize = 3;

/// The round trips of one state of the machine, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// The shortest.
    pub from_ns: f64,
    /// The longest.
    pub to_ns: f64,
}

impl Span {
    fn at(trip_ns: f64) -> Self {
        Self {
            from_ns: trip_ns,
            to_ns: trip_ns,
        }
    }

    fn is_one_state(self) -> bool {
        self.to_ns <= self.from_ns * APART
    }

    fn with(self, trip_ns: f64) -> Self {
        Self {
            from_ns: self.from_ns.min(trip_ns),
            to_ns: self.to_ns.max(trip_ns),
        }
    }

    /// The round trip in words.
    pub(crate) fn words(&self) -> String {
        if self.from_ns.round() < self.to_ns.round() {
            format!("{:.0} to {:.0}", self.from_ns, self.to_ns)
        } else {
            format!("{:.0}", self.from_ns)
        }
    }
}

/// The round trip of a sample: the geometric mean of before and after. `None` if they were measured in
/// different states, or not at all.
pub(crate) fn steady((before, after): (f64, f64)) -> Option<f64> {
    let is_steady = Span::at(before).with(after).is_one_state();
    is_steady.then(|| (before * after).sqrt())
}

/// The states that these round trips tell of: divided at the widest gap until each part is no wider than a
/// state may be.
pub(crate) fn states(mut trips: Vec<f64>) -> Vec<Span> {
    trips.sort_by(f64::total_cmp);
    let mut states = Vec::new();
    divide(&trips, &mut states);
    states
}

fn divide(trips: &[f64], states: &mut Vec<Span>) {
    let (Some(&from_ns), Some(&to_ns)) = (trips.first(), trips.last()) else {
        return;
    };
    let all = Span { from_ns, to_ns };
    let gap = |at: &usize| trips[*at] / trips[*at - 1];
    let widest = (1..trips.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    match widest {
        Some(at) if !all.is_one_state() => {
            divide(&trips[..at], states);
            divide(&trips[at..], states);
        }
        _ => states.push(all),
    }
}

/// Which of `states` a round trip is of.
pub(crate) fn state_of(states: &[Span], trip_ns: f64) -> Option<usize> {
    states
        .iter()
        .position(|state| (state.from_ns..=state.to_ns).contains(&trip_ns))
}

/// The round trip between the first CPU in use and the next other one, in ns; `None` on one CPU, or
/// if the machine is too busy to tell.
pub(crate) fn round_trip_ns(placement: &[u32]) -> Option<f64> {
    let (&first, rest) = placement.split_first()?;
    let other = rest.iter().copied().find(|cpu| *cpu != first)?;
    (0..LOOKS).find_map(|_| {
        let trip = measure_round_trip(first, other, LOOK).ok()?;
        Some(trip.median_ns)
    })
}
