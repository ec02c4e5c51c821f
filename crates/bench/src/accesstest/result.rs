//! What a test gave: samples, the states of the machine that they belong to, and the points that they come to.

use super::caches::{CacheSizes, Level};
use super::session::SessionLog;
use super::spec::{AccesstestSpec, Mode, SessionType, Start};
use crate::compare::median;
use crate::states::{self, Span};
use linewise_machine::buffer::Contiguity;
use serde::Serialize;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Index of its path among those asked for.
    pub case: usize,
    /// Bytes of the working set, all sessions' own lines included.
    pub bytes: u64,
    /// The share of accesses that were to write, percent; `None` where it differs from phase to phase.
    pub update_percent: Option<f64>,
    /// The share that the path has, percent.
    pub written_percent: f64,
    /// How the phases were executed.
    pub mode: Mode,
    /// Accesses of an iteration of one session.
    pub iteration: u64,
    /// Accesses that the sessions made, summed.
    pub accesses: u64,
    /// How long it took, from the start until the last session ended.
    pub seconds: f64,
    /// Accesses a second.
    pub accesses_per_s: f64,
    /// The share of the CPUs' time that threads of this process waited for them, percent: others ran there, or there
    /// are more threads than CPUs.
    pub waited_percent: f64,
    /// The core-to-core round trip before and after, ns; `None` if it could not be measured.
    pub round_trips_ns: Option<(f64, f64)>,
}

impl Sample {
    fn round_trip_ns(&self) -> Option<f64> {
        states::steady(self.round_trips_ns?)
    }
}

/// The median of some runs, and what they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// The median.
    pub median: f64,
    /// The slowest.
    pub low: f64,
    /// The fastest.
    pub high: f64,
}

/// A figure: all runs of one path and mode in one state of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataPoint {
    /// Index of its path among those asked for.
    pub case: usize,
    /// Bytes of the working set.
    pub bytes: u64,
    /// The share of accesses that were to write, percent; `None` where it differs from phase to phase.
    pub update_percent: Option<f64>,
    /// The share that the paths have, percent: whole accesses of a short path come only near to what was asked for.
    pub written_percent: f64,
    /// How the phases were executed.
    pub mode: Mode,
    /// How many sessions.
    pub sessions: usize,
    /// Index of the state in [`Accesstest::states`]; `None` on one CPU.
    pub state: Option<usize>,
    /// How many runs.
    pub runs: usize,
    /// Accesses a second.
    pub accesses_per_s: Rate,
    /// The median of the core-to-core round trips beside the runs, ns; `None` on one CPU.
    pub round_trip_ns: Option<f64>,
}

/// What a mode gains over the synchronous one on the same path in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Index of the path.
    pub case: usize,
    /// Bytes of the working set.
    pub bytes: u64,
    /// The share of accesses that were to write, percent.
    pub update_percent: Option<f64>,
    /// Which mode.
    pub mode: Mode,
    /// Index of the state.
    pub state: Option<usize>,
    /// The gain of the medians, percent; negative where it loses.
    pub percent: f64,
}

/// The memory of the paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryUsed {
    /// Bytes of the working set for which it was looked at: the largest of those in such pages.
    pub bytes: u64,
    /// What it consists of.
    pub pages: &'static str,
    /// Physically contiguous pieces; `None` where the kernel hides that.
    pub pieces: Option<usize>,
    /// Bytes of the largest piece.
    pub largest_piece_bytes: Option<usize>,
}

impl MemoryUsed {
    pub(super) fn new(bytes: u64, pages: &'static str, told: Option<Contiguity>) -> Self {
        Self {
            bytes,
            pages,
            pieces: told.map(|told| told.pieces),
            largest_piece_bytes: told.map(|told| told.largest_bytes),
        }
    }

    /// It in words.
    pub(super) fn words(&self) -> String {
        let told = match (self.pieces, self.largest_piece_bytes) {
            (Some(1), _) => "physically contiguous".to_owned(),
            (Some(pieces), Some(largest)) => {
                format!(
                    "{pieces} physical pieces, the largest of {} KiB",
                    largest >> 10
                )
            }
            _ => "the kernel hides whether they are contiguous".to_owned(),
        };
        format!("{} KiB in {}, {told}", self.bytes >> 10, self.pages)
    }
}

/// What was measured besides the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    pub(super) cpus: Vec<u32>,
    pub(super) modes: Vec<Mode>,
    pub(super) caches: CacheSizes,
    pub(super) memory: Vec<MemoryUsed>,
    pub(super) wiped_bytes: u64,
    pub(super) notes: Vec<String>,
    pub(super) sessions: Vec<SessionLog>,
}

/// All that a test gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accesstest {
    /// How many sessions.
    pub sessions: usize,
    /// What they were.
    pub session_type: SessionType,
    /// Where they began.
    pub start: Start,
    /// Whether they allocated their own lines anew in each iteration.
    pub fresh: bool,
    /// The CPUs in the order of the phases.
    pub cpus: Vec<u32>,
    /// The caches of the first CPU, bytes.
    pub caches: CacheSizes,
    /// Seconds of a run, as asked for.
    pub seconds: f64,
    /// Runs of each figure, as asked for.
    pub repeats: usize,
    /// Seed of the first path.
    pub seed: u64,
    /// How the phases were executed.
    pub modes: Vec<Mode>,
    /// The memory of the paths.
    pub memory: Vec<MemoryUsed>,
    /// Bytes that were stored to before each run, to drive paths out of the caches.
    pub wiped_bytes: u64,
    /// What is to be known besides.
    pub notes: Vec<String>,
    /// The states of the machine that occurred, by round trip.
    pub states: Vec<Span>,
    /// The figures, by state, path and mode.
    pub points: Vec<DataPoint>,
    /// What the other modes gain over the synchronous one.
    pub gains: Vec<Gain>,
    /// Runs that are in no point, because the state of the machine changed meanwhile or could not be measured, or
    /// because others took the CPUs.
    pub left_out: usize,
    /// The runs, in the order in which they were made.
    pub samples: Vec<Sample>,
    /// The sessions of the first run, if they were asked for.
    #[serde(skip)]
    pub log: Vec<SessionLog>,
}

/// Where all sessions begin in one phase, the CPUs of the others have nothing to do until the first comes out of it:
/// said where that was more than a twentieth of a run.
fn note_on_start(spec: &AccesstestSpec, samples: &[Sample]) -> Option<String> {
    let short = |sample: &&Sample| sample.accesses < 20 * sample.iteration;
    let is_one =
        spec.start != Start::Spread && samples.iter().any(|one| one.mode != Mode::Synchronous);
    let sample = samples.iter().find(short).filter(|_| is_one)?;
    Some(format!(
        "all sessions begin in one phase, and walking the path of {} KiB once takes more than a twentieth of a run, so \
         that the other phases' CPUs had nothing to do at its beginning; spread the sessions (--start u) or make runs \
         longer (--seconds)",
        sample.bytes >> 10
    ))
}

impl Accesstest {
    pub(super) fn new(spec: &AccesstestSpec, beside: Beside, samples: Vec<Sample>) -> Self {
        let trips = samples.iter().filter_map(Sample::round_trip_ns);
        let states = states::states(trips.collect());
        let on_one_cpu = beside.cpus.len() < 2;
        let places: Vec<Option<usize>> = if on_one_cpu {
            vec![None]
        } else {
            (0..states.len()).map(Some).collect()
        };
        let mut points = Vec::new();
        for &state in &places {
            for case in 0..spec.cases.len() {
                for &mode in &beside.modes {
                    let mine = samples.iter().filter(|sample| {
                        let is_there = || {
                            let trip = sample.round_trip_ns()?;
                            states::state_of(&states, trip)
                        };
                        sample.waited_percent <= spec.quiet_percent
                            && sample.case == case
                            && sample.mode == mode
                            && (on_one_cpu || (state.is_some() && state == is_there()))
                    });
                    let mine: Vec<&Sample> = mine.collect();
                    points.extend(point(&mine, state, spec.sessions));
                }
            }
        }
        let placed: usize = points.iter().map(|point: &DataPoint| point.runs).sum();
        let mut notes = beside.notes;
        notes.extend(note_on_start(spec, &samples));
        Self {
            sessions: spec.sessions,
            session_type: spec.session_type,
            start: spec.start,
            fresh: spec.fresh,
            cpus: beside.cpus,
            caches: beside.caches,
            seconds: spec.seconds,
            repeats: spec.repeats,
            seed: spec.seed,
            modes: beside.modes,
            memory: beside.memory,
            wiped_bytes: beside.wiped_bytes,
            notes,
            states,
            gains: gains(&points),
            points,
            left_out: samples.len() - placed,
            samples,
            log: beside.sessions,
        }
    }

    /// The largest gain of delegation in a range of sizes, for each ratio: in each state.
    pub(super) fn peaks(&self, range: Range) -> Vec<Gain> {
        let mut peaks: Vec<Gain> = Vec::new();
        let here = |gain: &&Gain| gain.mode == Mode::Delegated && range.holds(gain.bytes);
        for gain in self.gains.iter().filter(here) {
            let known = peaks.iter_mut().find(|peak| {
                peak.update_percent == gain.update_percent && peak.state == gain.state
            });
            match known {
                Some(peak) if peak.percent < gain.percent => *peak = *gain,
                Some(_) => {}
                None => peaks.push(*gain),
            }
        }
        peaks
    }
}

fn point(samples: &[&Sample], state: Option<usize>, sessions: usize) -> Option<DataPoint> {
    let first = samples.first()?;
    let rates: Vec<f64> = samples.iter().map(|sample| sample.accesses_per_s).collect();
    let trips: Vec<f64> = samples
        .iter()
        .filter_map(|sample| sample.round_trip_ns())
        .collect();
    let written: f64 = samples.iter().map(|sample| sample.written_percent).sum();
    Some(DataPoint {
        case: first.case,
        bytes: first.bytes,
        update_percent: first.update_percent,
        written_percent: written / samples.len() as f64,
        mode: first.mode,
        sessions,
        state,
        runs: samples.len(),
        accesses_per_s: Rate {
            median: median(&rates)?,
            low: rates.iter().copied().reduce(f64::min)?,
            high: rates.iter().copied().reduce(f64::max)?,
        },
        round_trip_ns: median(&trips),
    })
}

fn gains(points: &[DataPoint]) -> Vec<Gain> {
    let gain = |point: &DataPoint| {
        let base = points.iter().find(|base| {
            base.mode == Mode::Synchronous && base.case == point.case && base.state == point.state
        })?;
        let ratio = point.accesses_per_s.median / base.accesses_per_s.median;
        (point.mode != Mode::Synchronous).then_some(Gain {
            case: point.case,
            bytes: point.bytes,
            update_percent: point.update_percent,
            mode: point.mode,
            state: point.state,
            percent: (ratio - 1.0) * 100.0,
        })
    };
    points.iter().filter_map(gain).collect()
}

/// Sizes that belong together: those at and around a cache, up to where those of the next begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    /// The cache; `None` for all sizes, where the machine tells of none.
    pub(super) level: Option<Level>,
    from: u64,
    below: u64,
}

impl Range {
    pub(super) fn holds(&self, bytes: u64) -> bool {
        (self.from..self.below).contains(&bytes)
    }

    /// The ranges of which there are points.
    pub(super) fn of(test: &Accesstest) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for level in Level::ALL {
            if let Some(size) = test.caches.of(level) {
                // Working sets larger than three times a cache are about the next.
                let below = size.saturating_mul(3).saturating_add(1);
                let from = ranges.last().map_or(0, |range| range.below);
                ranges.push(Self {
                    level: Some(level),
                    from,
                    below,
                });
            }
        }
        match ranges.last_mut() {
            Some(last) => last.below = u64::MAX,
            None => ranges.push(Self {
                level: None,
                from: 0,
                below: u64::MAX,
            }),
        }
        ranges.retain(|range| test.points.iter().any(|point| range.holds(point.bytes)));
        ranges
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::characters::Characteristics;
    use super::super::spec::Case;
    use super::*;

    /// A run: its path, mode, rate and round trips.
    type Made = (usize, Mode, f64, Option<(f64, f64)>);

    /// A test of one path for each size and ratio, of which each mode's rate and round trips are given.
    pub(in super::super) fn test(cases: &[(u64, f64)], runs: &[Made]) -> Accesstest {
        let case = |&(bytes, percent): &(u64, f64)| Case {
            characteristics: Characteristics::even(bytes / 64, 2, percent / 100.0).unwrap(),
            update_percent: Some(percent),
        };
        let spec = AccesstestSpec {
            cases: cases.iter().map(case).collect(),
            ..AccesstestSpec::default()
        };
        let beside = Beside {
            cpus: vec![0, 1],
            modes: Mode::ALL.to_vec(),
            caches: CacheSizes {
                l1d: Some(48 << 10),
                l2: Some(2 << 20),
                l3: None,
            },
            memory: vec![MemoryUsed::new(98_304, "pages of 4 KiB", None)],
            ..Beside::default()
        };
        let sample = |&(case, mode, rate, trips): &Made| Sample {
            case,
            bytes: cases[case].0,
            update_percent: Some(cases[case].1),
            written_percent: cases[case].1,
            mode,
            iteration: 100,
            accesses: rate as u64,
            seconds: 1.0,
            accesses_per_s: rate,
            waited_percent: 0.0,
            round_trips_ns: trips,
        };
        Accesstest::new(&spec, beside, runs.iter().map(sample).collect())
    }

    const NEAR: Option<(f64, f64)> = Some((60.0, 60.0));

    #[test]
    fn points_are_medians_of_one_state_and_gains_are_of_points() {
        let far = Some((330.0, 330.0));
        let test = test(
            &[(98_304, 0.0)],
            &[
                (0, Mode::Synchronous, 100.0, NEAR),
                (0, Mode::Synchronous, 300.0, NEAR),
                (0, Mode::Synchronous, 200.0, NEAR),
                (0, Mode::Delegated, 300.0, NEAR),
                (0, Mode::Delegated, 50.0, far),
                (0, Mode::Synchronous, 1.0, Some((60.0, 330.0))),
                (0, Mode::Synchronous, 1.0, None),
            ],
        );
        assert_eq!(test.states.len(), 2);
        assert_eq!(test.left_out, 2);
        assert_eq!(test.points.len(), 3);
        let rate = test.points[0].accesses_per_s;
        assert_eq!((rate.median, rate.low, rate.high), (200.0, 100.0, 300.0));
        assert_eq!(test.points[0].round_trip_ns, Some(60.0));
        assert_eq!(test.gains.len(), 1);
        assert_eq!(
            (test.gains[0].percent, test.gains[0].state),
            (50.0, Some(0))
        );
    }

    #[test]
    fn sizes_belong_to_the_cache_that_they_are_around() {
        let near = |case, mode, rate| (case, mode, rate, NEAR);
        let test = test(
            &[(24 << 10, 0.0), (96 << 10, 0.0), (4 << 20, 0.0)],
            &[
                near(0, Mode::Synchronous, 100.0),
                near(0, Mode::Delegated, 90.0),
                near(1, Mode::Synchronous, 100.0),
                near(1, Mode::Delegated, 133.0),
                near(2, Mode::Synchronous, 100.0),
                near(2, Mode::Delegated, 254.0),
            ],
        );
        let ranges = Range::of(&test);
        let levels: Vec<_> = ranges.iter().map(|range| range.level).collect();
        assert_eq!(levels, [Some(Level::L1d), Some(Level::L2)]);
        let peak = test.peaks(ranges[0]);
        assert_eq!((peak.len(), peak[0].bytes), (1, 96 << 10));
        assert!((test.peaks(ranges[1])[0].percent - 154.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_too_short_for_its_beginning_is_told() {
        let told = |rate| {
            let one = test(
                &[(6400, 0.0)],
                &[(0, Mode::Delegated, rate, Some((100.0, 100.0)))],
            );
            one.notes.iter().any(|note| note.contains("--start u"))
        };
        assert!(told(1_999.0));
        assert!(!told(2_000.0));
    }
}
