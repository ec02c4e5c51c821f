//! Which runs count: those of one state of the machine that had the CPUs to themselves.

use crate::compare::median;
use crate::placement::PlacementError;
use crate::states::{Span, round_trip_ns, state_of, states, steady};
use serde::Serialize;

/// Runs whose threads waited for CPUs for a larger share of their time, in percent, count only where there are too few
/// others.
pub const QUIET_PERCENT: f64 = 5.0;

/// What was beside a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The share of their time that its threads waited for CPUs which others had, in percent.
    pub waited_percent: f64,
    /// The round trip of a line between its CPUs before and after, ns; `None` on one CPU, or if it could not be
    /// measured.
    pub round_trips_ns: Option<(f64, f64)>,
}

/// The middle of some runs, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Runs.
    pub runs: usize,
}

impl Spread {
    /// Of these values; `None` of none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            low: values.iter().copied().reduce(f64::min)?,
            high: values.iter().copied().reduce(f64::max)?,
            runs: values.len(),
        })
    }
}

/// Runs that are in no figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The round trip changed meanwhile, was that of another state, or could not be measured.
    pub state: usize,
    /// Others had the CPUs.
    pub waited: usize,
    /// Runs that were made.
    pub of: usize,
    /// Runs that count although others had the CPUs, because too few had them alone.
    pub busy: usize,
}

impl LeftOut {
    /// Both together.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            state: self.state + other.state,
            waited: self.waited + other.waited,
            of: self.of + other.of,
            busy: self.busy + other.busy,
        }
    }
}

/// Which runs count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// For each run, whether it does.
    pub(super) which: Vec<bool>,
    /// The state that they were made in; `None` on one CPU.
    pub(super) state: Option<Span>,
    pub(super) left_out: LeftOut,
}

/// Which of these runs, all on the same CPUs, count.
pub(super) fn kept(all: &[Beside]) -> Kept {
    let trips: Vec<Option<f64>> = all
        .iter()
        .map(|it| it.round_trips_ns.and_then(steady))
        .collect();
    let known: Vec<f64> = trips.iter().copied().flatten().collect();
    let spans = states(known.clone());
    let runs_in = |at: usize| {
        let here = known.iter().filter(|&&it| state_of(&spans, it) == Some(at));
        here.count()
    };
    let most = (0..spans.len()).max_by_key(|&at| runs_in(at));
    let is_here =
        |trip: &Option<f64>| most.is_none() || trip.and_then(|it| state_of(&spans, it)) == most;
    let here: Vec<bool> = trips.iter().map(is_here).collect();
    let is_quiet = |at: usize| all[at].waited_percent <= QUIET_PERCENT;
    let steady_runs = here.iter().filter(|it| **it).count();
    let quiet_runs = (0..all.len())
        .filter(|&at| here[at] && is_quiet(at))
        .count();
    // Where the machine is never quiet a figure with its doubt is better than none.
    let only_quiet = quiet_runs * 2 >= steady_runs;
    let which = (0..all.len()).map(|at| here[at] && (!only_quiet || is_quiet(at)));
    let noisy_runs = steady_runs - quiet_runs;
    Kept {
        which: which.collect(),
        state: most.map(|at| spans[at]),
        left_out: LeftOut {
            state: all.len() - steady_runs,
            waited: if only_quiet { noisy_runs } else { 0 },
            of: all.len(),
            busy: if only_quiet { 0 } else { noisy_runs },
        },
    }
}

/// The round trip beside runs: what was measured after one is what was measured before the next on the same CPUs.
#[derive(Debug, Default)]
pub(super) struct Trips {
    last: Option<(Vec<u32>, Option<f64>)>,
}

impl Trips {
    /// Makes a run on `cpus`, which tells the share of its time that it waited, with what was beside it.
    pub(super) fn around<T, E: From<PlacementError>>(
        &mut self,
        cpus: &[u32],
        run: impl FnOnce() -> Result<(T, f64), E>,
    ) -> Result<(T, Beside), E> {
        let before = match self.last.take() {
            Some((of, trip)) if of == cpus => trip,
            _ => round_trip_ns(cpus),
        };
        let (made, waited_percent) = run()?;
        let after = round_trip_ns(cpus);
        self.last = Some((cpus.to_vec(), after));
        let beside = Beside {
            waited_percent,
            round_trips_ns: before.zip(after),
        };
        Ok((made, beside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(waited_percent: f64, round_trips_ns: Option<(f64, f64)>) -> Beside {
        Beside {
            waited_percent,
            round_trips_ns,
        }
    }

    #[test]
    fn runs_of_the_state_that_most_were_made_in_count() {
        let near = Some((60.0, 62.0));
        let kept = kept(&[
            beside(0.0, near),
            beside(0.0, Some((330.0, 340.0))),
            beside(0.0, near),
            beside(0.0, Some((60.0, 330.0))),
            beside(0.0, None),
        ]);
        assert_eq!(kept.which, [true, false, true, false, false]);
        assert_eq!(kept.left_out.state, 3);
        assert!(kept.state.is_some_and(|state| state.to_ns < 70.0));
    }

    #[test]
    fn busy_runs_are_left_out_unless_too_few_are_quiet() {
        let near = Some((60.0, 60.0));
        let mostly_quiet = kept(&[beside(40.0, near), beside(0.0, near), beside(1.0, near)]);
        assert_eq!(mostly_quiet.which, [false, true, true]);
        assert_eq!(
            (mostly_quiet.left_out.waited, mostly_quiet.left_out.busy),
            (1, 0)
        );
        let busy = kept(&[beside(40.0, near), beside(30.0, near), beside(1.0, near)]);
        assert_eq!(busy.which, [true; 3]);
        assert_eq!((busy.left_out.waited, busy.left_out.busy), (0, 2));
    }

    #[test]
    fn one_cpu_has_no_states() {
        let kept = kept(&[beside(0.0, None), beside(2.0, None)]);
        assert_eq!((kept.which, kept.state), (vec![true, true], None));
        assert_eq!(Spread::of(&[]), None);
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            (spread.median, spread.low, spread.high, spread.runs),
            (2.0, 1.0, 3.0, 3)
        );
    }
}
