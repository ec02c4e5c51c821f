//! Figure 1 of SAM: what it brings to have two threads that share near to each other, by the rate of coherence.

use super::crossing::{Crossing, crossing};
use super::error::CalibrateError;
use super::pairs::{Distance, Pair};
use super::samples::{Beside, Kept, LeftOut, Spread, Trips, kept};
use super::sharing::{Rates, share};
use crate::states::{Span, steady};
use serde::Serialize;

/// One run of two threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharingSample {
    /// How far the threads were apart.
    pub distance: Distance,
    /// Which repeat it belongs to: those of one repeat were made one after the other.
    pub repeat: usize,
    /// Computation between two accesses, ns.
    pub pause_ns: f64,
    /// Iterations of a thread per second of its CPU time.
    pub iterations_per_s: f64,
    /// Coherence events of a thread per second of its CPU time.
    pub events_per_s: f64,
    /// What was beside it.
    #[serde(flatten)]
    pub beside: Beside,
}

/// A distance, as far as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which, and where.
    #[serde(flatten)]
    pub pair: Pair,
    /// The round trip beside its runs, ns; `None` if it could not be measured.
    pub round_trip_ns: Option<Spread>,
    /// The state that its figures were made in, where there are several.
    pub state: Option<Span>,
    /// Its runs that are in no figure.
    pub left_out: LeftOut,
}

/// Two distances, side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The threads consolidated.
    pub near: Distance,
    /// The threads distributed.
    pub far: Distance,
    /// By computation between two accesses, the least first.
    pub points: Vec<SpeedupPoint>,
    /// Where distance costs 5 %; `None` of fewer than two points.
    pub crossing: Option<Crossing>,
    /// Where it is if each point was at its slowest or its fastest run; `None` if not both are.
    pub crossing_between: Option<(f64, f64)>,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedupPoint {
    /// Computation between two accesses, ns.
    pub pause_ns: f64,
    /// Coherence events per second of CPU time while the threads are distributed.
    pub events_per_s: f64,
    /// Iterations of the threads consolidated, by those of the threads distributed.
    pub speedup: Spread,
}

impl SpeedupPoint {
    /// The share of the distributed threads' time that distance costs.
    #[must_use]
    pub fn cost(&self) -> f64 {
        cost(self.speedup.median)
    }
}

fn cost(speedup: f64) -> f64 {
    1.0 - 1.0 / speedup
}

/// Makes runs of each pair in turns, `pause` in the unit of [`SharingSample::pause_ns`].
pub(super) fn take_turns(
    pairs: &[Pair],
    (pause_ns, steps): (f64, u64),
    repeat: usize,
    seconds: f64,
    trips: &mut Trips,
    samples: &mut Vec<SharingSample>,
) -> Result<(), CalibrateError> {
    for turn in 0..pairs.len() {
        // Nobody always comes after the same one.
        let pair = pairs[(turn + repeat) % pairs.len()];
        let run = || share(pair, steps, seconds);
        let (rates, beside): (Rates, Beside) = trips.around(&pair.cpus, run)?;
        samples.push(SharingSample {
            distance: pair.distance,
            repeat,
            pause_ns,
            iterations_per_s: rates.iterations_per_s,
            events_per_s: rates.events_per_s,
            beside,
        });
    }
    Ok(())
}

/// The samples that count, and what is known of each distance.
pub(super) fn select(
    pairs: &[Pair],
    samples: &[SharingSample],
) -> (Vec<Measured>, Vec<SharingSample>) {
    let mut measured = Vec::new();
    let mut counting = Vec::new();
    for &pair in pairs {
        let here = samples.iter().filter(|it| it.distance == pair.distance);
        let here: Vec<&SharingSample> = here.collect();
        let besides: Vec<Beside> = here.iter().map(|it| it.beside).collect();
        let Kept {
            which,
            state,
            left_out,
        } = kept(&besides);
        let of_state = here.iter().zip(which).filter(|(_, counts)| *counts);
        let of_state: Vec<&SharingSample> = of_state.map(|(it, _)| *it).collect();
        let trips = of_state
            .iter()
            .filter_map(|it| it.beside.round_trips_ns.and_then(steady));
        measured.push(Measured {
            pair,
            round_trip_ns: Spread::of(&trips.collect::<Vec<_>>()),
            state,
            left_out,
        });
        counting.extend(of_state.into_iter().copied());
    }
    (measured, counting)
}

/// Which distances are compared: each with the next nearer one, sockets with one LLC where that exists.
pub(super) fn to_compare(pairs: &[Pair]) -> Vec<(Distance, Distance)> {
    let has = |distance| pairs.iter().any(|pair| pair.distance == distance);
    let wanted = [
        (Distance::Unshared, Distance::SameLlc),
        (Distance::SameCore, Distance::SameLlc),
        (Distance::SameLlc, Distance::SameSocket),
        (Distance::SameLlc, Distance::OtherSocket),
        (Distance::SameSocket, Distance::OtherSocket),
        (Distance::Unshared, Distance::OtherSocket),
    ];
    let mut chosen: Vec<(Distance, Distance)> = Vec::new();
    for (near, far) in wanted {
        // Below one LLC and not sharing at all are answers to different questions; for sockets the nearest will do.
        let known = chosen
            .iter()
            .any(|it| it.1 == far && far == Distance::OtherSocket);
        if has(near) && has(far) && !known {
            chosen.push((near, far));
        }
    }
    chosen
}

/// The curve of two distances.
pub(super) fn compare((near, far): (Distance, Distance), counting: &[SharingSample]) -> Comparison {
    let mut pauses: Vec<f64> = counting.iter().map(|it| it.pause_ns).collect();
    pauses.sort_by(f64::total_cmp);
    pauses.dedup();
    let points: Vec<SpeedupPoint> = pauses
        .into_iter()
        .filter_map(|pause_ns| point((near, far), counting, pause_ns))
        .collect();
    let costs = |speedup: fn(&Spread) -> f64| {
        let costs = points
            .iter()
            .map(|point| (point.events_per_s, cost(speedup(&point.speedup))));
        crossing(&costs.collect::<Vec<_>>())
    };
    let at = |found: Option<Crossing>| match found {
        Some(Crossing::At(rate)) => Some(rate),
        _ => None,
    };
    Comparison {
        near,
        far,
        crossing: costs(|spread| spread.median),
        crossing_between: at(costs(|spread| spread.high)).zip(at(costs(|spread| spread.low))),
        points,
    }
}

/// A point of it: repeats of which both runs count.
fn point(
    (near, far): (Distance, Distance),
    counting: &[SharingSample],
    pause_ns: f64,
) -> Option<SpeedupPoint> {
    let of = |distance: Distance, repeat: Option<usize>| {
        counting.iter().filter(move |it| {
            it.distance == distance
                && it.pause_ns == pause_ns
                && repeat.is_none_or(|repeat| it.repeat == repeat)
        })
    };
    let mut speedups = Vec::new();
    let mut events = Vec::new();
    for distributed in of(far, None) {
        if let Some(consolidated) = of(near, Some(distributed.repeat)).next() {
            speedups.push(consolidated.iterations_per_s / distributed.iterations_per_s);
            events.push(distributed.events_per_s);
        }
    }
    Some(SpeedupPoint {
        pause_ns,
        events_per_s: Spread::of(&events)?.median,
        speedup: Spread::of(&speedups)?,
    })
}

/// The computation between two accesses with which a loop has `wanted_per_s` coherence events a second; `None` where no
/// two points surround that.
pub(super) fn pause_for(points: &[SpeedupPoint], wanted_per_s: f64) -> Option<f64> {
    let around = points
        .windows(2)
        .find(|two| two[0].events_per_s >= wanted_per_s && wanted_per_s > two[1].events_per_s)?;
    // The time of an iteration grows with its pause, and what events there are in it stays: linear in the period.
    let period = |per_s: f64| 1.0 / per_s;
    let (from, to) = (
        period(around[0].events_per_s),
        period(around[1].events_per_s),
    );
    let share = (period(wanted_per_s) - from) / (to - from);
    Some(around[0].pause_ns + share * (around[1].pause_ns - around[0].pause_ns))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Samples of a loop in which half of the accesses find a line away, at the given cost of a transfer.
    pub(crate) fn samples(distances: &[(Distance, f64)], pauses: &[f64]) -> Vec<SharingSample> {
        let mut samples = Vec::new();
        for repeat in 0..3 {
            for &pause_ns in pauses {
                for &(distance, transfer_ns) in distances {
                    let iteration_ns = pause_ns + 10.0 + transfer_ns / 2.0;
                    let shares = distance != Distance::Unshared;
                    samples.push(SharingSample {
                        distance,
                        repeat,
                        pause_ns,
                        iterations_per_s: 1e9 / iteration_ns,
                        events_per_s: if shares { 0.5e9 / iteration_ns } else { 0.0 },
                        beside: Beside {
                            waited_percent: 0.0,
                            round_trips_ns: Some((
                                transfer_ns * 2.0 + 10.0,
                                transfer_ns * 2.0 + 11.0,
                            )),
                        },
                    });
                }
            }
        }
        samples
    }

    const PAUSES: [f64; 8] = [0.0, 50.0, 100.0, 200.0, 400.0, 800.0, 3200.0, 12_800.0];

    #[test]
    fn distance_costs_what_the_formula_says() {
        let of = [(Distance::SameLlc, 50.0), (Distance::OtherSocket, 200.0)];
        let comparison = compare(
            (Distance::SameLlc, Distance::OtherSocket),
            &samples(&of, &PAUSES),
        );
        assert_eq!(comparison.points.len(), PAUSES.len());
        let Some(Crossing::At(found)) = comparison.crossing else {
            panic!("{comparison:?}");
        };
        let computed = super::super::crossing::computed_per_s(50.0, 200.0).unwrap();
        assert!((found / computed - 1.0).abs() < 0.01, "{found} {computed}");
        let (from, to) = comparison.crossing_between.unwrap();
        assert!(from <= found && found <= to);
    }

    #[test]
    fn a_repeat_of_which_a_run_is_left_out_is_in_no_point() {
        let of = [(Distance::SameLlc, 50.0), (Distance::OtherSocket, 200.0)];
        let mut all = samples(&of, &PAUSES);
        let pairs = of.map(|(distance, _)| Pair {
            distance,
            cpus: [0, 1],
        });
        all[0].beside.round_trips_ns = Some((50.0, 400.0));
        let (measured, counting) = select(&pairs, &all);
        assert_eq!(measured[0].left_out.state, 1);
        assert_eq!(counting.len(), all.len() - 1);
        let comparison = compare((Distance::SameLlc, Distance::OtherSocket), &counting);
        assert_eq!(comparison.points[0].speedup.runs, 2);
        assert_eq!(comparison.points[1].speedup.runs, 3);
    }

    #[test]
    fn the_pause_for_a_rate_gives_that_rate() {
        let of = [(Distance::SameLlc, 50.0), (Distance::OtherSocket, 200.0)];
        let points = compare((of[0].0, of[1].0), &samples(&of, &PAUSES)).points;
        let pause_ns = pause_for(&points, 400e3).unwrap();
        // Half an event in each iteration of 110 ns and the pause.
        assert!(
            (0.5e9 / (pause_ns + 110.0) / 400e3 - 1.0).abs() < 1e-6,
            "{pause_ns}"
        );
        assert_eq!(pause_for(&points, 1e9), None);
        assert_eq!(pause_for(&points, 1.0), None);
    }

    #[test]
    fn what_is_compared_depends_on_what_there_is() {
        let pairs = |distances: &[Distance]| -> Vec<Pair> {
            let pair = |&distance: &Distance| Pair {
                distance,
                cpus: [0, 1],
            };
            distances.iter().map(pair).collect()
        };
        use Distance::{OtherSocket, SameCore, SameLlc, SameSocket, Unshared};
        assert_eq!(
            to_compare(&pairs(&[Unshared, SameLlc])),
            [(Unshared, SameLlc)]
        );
        assert_eq!(
            to_compare(&pairs(&[
                Unshared,
                SameCore,
                SameLlc,
                SameSocket,
                OtherSocket
            ])),
            [
                (Unshared, SameLlc),
                (SameCore, SameLlc),
                (SameLlc, SameSocket),
                (SameLlc, OtherSocket)
            ]
        );
        assert_eq!(
            to_compare(&pairs(&[Unshared, OtherSocket])),
            [(Unshared, OtherSocket)]
        );
    }
}
