//! What an experiment gave: samples, the states of the machine that they belong to, and the rows
//! that they come to.

use super::spec::{Contender, FetchAddSpec, Operation};
use super::statistics::Statistics;
use crate::states::{self, Span};
use serde::Serialize;

/// One sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Who incremented.
    pub contender: Contender,
    /// What else was done.
    pub operation: Operation,
    /// Among how many variables.
    pub variables: usize,
    /// Threads that only served.
    pub servers: usize,
    /// The other threads.
    pub clients: usize,
    /// Increments, all of them found in the variables afterwards.
    pub operations: u64,
    /// How long they took.
    pub seconds: f64,
    /// Million increments a second.
    pub mops: f64,
    /// What the domain counted, for delegation.
    pub statistics: Option<Statistics>,
    /// The core-to-core round trip before and after, ns; `None` if it could not be measured.
    pub round_trips_ns: Option<(f64, f64)>,
}

impl Sample {
    /// The round trip that it was made at: the geometric mean of before and after. `None` if they
    /// were measured in different states, or not at all.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<f64> {
        states::steady(self.round_trips_ns?)
    }
}

/// A figure: all samples of one contender, operation and number of variables in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who.
    pub contender: Contender,
    /// Its name without servers and knobs.
    pub family: &'static str,
    /// Threads that only served.
    pub servers: usize,
    /// The other threads.
    pub clients: usize,
    /// Request lines between a client and a server, for asynchronous delegation.
    pub request_lines: Option<usize>,
    /// Pending requests that a client keeps for a server, for asynchronous delegation.
    pub queue_length: Option<usize>,
    /// What was done.
    pub operation: Operation,
    /// To one of how many.
    pub variables: usize,
    /// Index of the state in [`Experiment::states`]; `None` where no round trip can be measured.
    pub state: Option<usize>,
    /// How many samples.
    pub samples: usize,
    /// Harmonic mean of the samples, million increments a second.
    pub mops: f64,
    /// The slowest sample.
    pub mops_low: f64,
    /// The fastest.
    pub mops_high: f64,
    /// What the domains counted, for delegation: the mean of the samples.
    pub statistics: Option<Statistics>,
}

/// All that an experiment gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// Threads, servers among them.
    pub threads: usize,
    /// The CPU of each thread.
    pub cpus: Vec<u32>,
    /// Seconds of a sample, as asked for.
    pub seconds: f64,
    /// Samples of each figure, as asked for.
    pub samples_asked: usize,
    /// Seed of the random choices.
    pub seed: u64,
    /// Who took part.
    pub contenders: Vec<Contender>,
    /// The states of the machine that occurred, by round trip.
    pub states: Vec<Span>,
    /// The figures, by operation, state, contender and number of variables.
    pub rows: Vec<Row>,
    /// Samples that are in no row, because the state of the machine changed while they were made
    /// or could not be measured.
    pub left_out: usize,
    /// The samples, in the order in which they were made.
    pub samples: Vec<Sample>,
}

/// The harmonic mean of rates: that of work done in equal parts. `None` of none, 0 if one is 0.
///
/// ```
/// use linewise_bench::fetch_add::harmonic_mean;
///
/// assert_eq!(harmonic_mean(&[1.0, 3.0]), Some(1.5));
/// ```
#[must_use]
pub fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    let inverse: f64 = rates.iter().map(|rate| rate.recip()).sum();
    let low = rates.iter().copied().reduce(f64::min)?;
    let high = rates.iter().copied().reduce(f64::max)?;
    // Two divisions round: the mean of one rate must still be that rate.
    Some((rates.len() as f64 / inverse).max(low).min(high))
}

impl Experiment {
    pub(super) fn new(
        spec: &FetchAddSpec,
        cpus: Vec<u32>,
        contenders: Vec<Contender>,
        samples: Vec<Sample>,
    ) -> Self {
        let trips = samples.iter().filter_map(Sample::round_trip_ns);
        let states = states::states(trips.collect());
        let on_one_cpu = cpus.windows(2).all(|pair| pair[0] == pair[1]);
        // Where there is no round trip there is nothing to tell states by, and none is lost by it.
        let places: Vec<Option<usize>> = if on_one_cpu {
            vec![None]
        } else {
            (0..states.len()).map(Some).collect()
        };
        let mut rows = Vec::new();
        for &operation in &spec.operations {
            for &state in &places {
                for &contender in &contenders {
                    for &variables in &spec.variables {
                        let mine = samples.iter().filter(|sample| {
                            sample.operation == operation
                                && sample.contender == contender
                                && sample.variables == variables
                                && (on_one_cpu
                                    || (state.is_some() && state == state_of(&states, sample)))
                        });
                        rows.extend(row(&mine.collect::<Vec<_>>(), state));
                    }
                }
            }
        }
        let placed: usize = rows.iter().map(|row: &Row| row.samples).sum();
        Self {
            threads: spec.threads,
            cpus,
            seconds: spec.seconds,
            samples_asked: spec.samples,
            seed: spec.seed,
            contenders,
            states,
            rows,
            left_out: samples.len() - placed,
            samples,
        }
    }
}

fn state_of(states: &[Span], sample: &Sample) -> Option<usize> {
    states::state_of(states, sample.round_trip_ns()?)
}

fn row(samples: &[&Sample], state: Option<usize>) -> Option<Row> {
    let first = samples.first()?;
    let rates: Vec<f64> = samples.iter().map(|sample| sample.mops).collect();
    let knobs = first.contender.knobs;
    Some(Row {
        contender: first.contender,
        family: first.contender.method.family(),
        servers: first.servers,
        clients: first.clients,
        request_lines: knobs.map(|knobs| knobs.request_lines),
        queue_length: knobs.map(|knobs| knobs.queue_length),
        operation: first.operation,
        variables: first.variables,
        state,
        samples: samples.len(),
        mops: harmonic_mean(&rates)?,
        mops_low: rates.iter().copied().reduce(f64::min)?,
        mops_high: rates.iter().copied().reduce(f64::max)?,
        statistics: {
            let counted = samples.iter().filter_map(|sample| sample.statistics);
            Statistics::mean(&counted.collect::<Vec<_>>())
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::spec::Method;
    use super::*;

    pub(in super::super) fn sample(
        method: Method,
        variables: usize,
        mops: f64,
        trips: Option<(f64, f64)>,
    ) -> Sample {
        Sample {
            contender: Contender {
                method,
                knobs: None,
            },
            operation: Operation::Add,
            variables,
            servers: 0,
            clients: 2,
            operations: (mops * 3e6) as u64,
            seconds: 3.0,
            mops,
            statistics: None,
            round_trips_ns: trips,
        }
    }

    pub(in super::super) fn experiment(samples: Vec<Sample>, cpus: Vec<u32>) -> Experiment {
        let mut contenders: Vec<Contender> = Vec::new();
        let mut variables: Vec<usize> = Vec::new();
        for sample in &samples {
            if !contenders.contains(&sample.contender) {
                contenders.push(sample.contender);
            }
            if !variables.contains(&sample.variables) {
                variables.push(sample.variables);
            }
        }
        let spec = FetchAddSpec {
            variables,
            threads: 2,
            samples: 2,
            ..FetchAddSpec::default()
        };
        Experiment::new(&spec, cpus, contenders, samples)
    }

    #[test]
    fn the_harmonic_mean_leans_to_the_slow_and_that_of_nothing_is_nothing() {
        assert_eq!(harmonic_mean(&[]), None);
        assert_eq!(harmonic_mean(&[7.0]), Some(7.0));
        let rounds = 215.817_719_426_464_98;
        assert_eq!(harmonic_mean(&[rounds]), Some(rounds));
        assert_eq!(harmonic_mean(&[1.0, 3.0]), Some(1.5));
        assert_eq!(harmonic_mean(&[0.0, 3.0]), Some(0.0));
    }

    #[test]
    fn samples_of_two_states_never_meet_in_a_row() {
        let (near, far) = (Some((60.0, 70.0)), Some((330.0, 340.0)));
        let experiment = experiment(
            vec![
                sample(Method::Atomic, 64, 200.0, near),
                sample(Method::Atomic, 64, 70.0, far),
                sample(Method::Atomic, 64, 210.0, Some((75.0, 60.0))),
            ],
            vec![0, 1],
        );
        assert_eq!(experiment.states.len(), 2);
        let counts: Vec<usize> = experiment.rows.iter().map(|row| row.samples).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(experiment.rows[1].mops, 70.0);
        assert_eq!(experiment.left_out, 0);
    }

    #[test]
    fn a_sample_during_which_the_state_changed_is_left_out_and_counted() {
        let experiment = experiment(
            vec![
                sample(Method::Atomic, 64, 200.0, Some((60.0, 60.0))),
                sample(Method::Atomic, 64, 100.0, Some((60.0, 330.0))),
                sample(Method::Atomic, 64, 100.0, None),
            ],
            vec![0, 1],
        );
        assert_eq!(experiment.rows.len(), 1);
        assert_eq!(experiment.rows[0].mops, 200.0);
        assert_eq!(experiment.left_out, 2);
    }

    #[test]
    fn states_are_told_apart_at_the_widest_gap() {
        let trips = [95.0, 100.0, 104.0, 140.0, 150.0, 330.0];
        let samples = trips.map(|trip| sample(Method::Atomic, 64, 1.0, Some((trip, trip))));
        let experiment = experiment(samples.to_vec(), vec![0, 1]);
        let tops: Vec<f64> = experiment.states.iter().map(|span| span.to_ns).collect();
        assert_eq!(tops, [104.0, 150.0, 330.0]);
        assert_eq!(experiment.left_out, 0);
    }

    #[test]
    fn on_one_cpu_there_is_no_state_and_every_sample_counts() {
        let experiment = experiment(vec![sample(Method::Atomic, 64, 200.0, None)], vec![0, 0]);
        assert_eq!(experiment.rows.len(), 1);
        assert_eq!(experiment.rows[0].state, None);
    }
}
