//! Truth beside what the collector measured, over repeats of one benchmark.

mod round_trip;
pub(crate) mod statistics;
mod table;

pub use round_trip::{RoundTrips, rtt_json, rtt_table};
pub use table::{sharing_json, sharing_table};

use crate::spec::Workload;
use crate::truth::Truth;
use serde::Serialize;
use statistics::coefficient_of_variation;
pub(crate) use statistics::median;

/// Truth above this many transfers a second: the estimate must be near it.
const BUSY_PER_SECOND: f64 = 100_000.0;
/// Truth below this many transfers a second: the estimate must be next to nothing.
const QUIET_PER_SECOND: f64 = 1_000.0;

/// What the collector says of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Estimated transfers.
    pub transfers: f64,
    /// The lower end of their 90 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Of the transfers, the share classified false, 0 to 1; `None` without any.
    pub false_share: Option<f64>,
    /// The thread ids of the matrix's rows and columns, in any order and with any others.
    pub threads: Vec<u32>,
    /// Estimated transfers between each two threads, both kinds.
    pub matrix: Vec<Vec<f64>>,
    /// Findings in the report.
    pub findings: usize,
}

impl Measured {
    /// The matrix in the order of `tids`; threads that the collector did not see have zeros.
    fn matrix_for(&self, tids: &[u32]) -> Vec<Vec<f64>> {
        let row = |tid: u32| self.threads.iter().position(|&known| known == tid);
        let cell =
            |a: u32, b: u32| -> Option<f64> { self.matrix.get(row(a)?)?.get(row(b)?).copied() };
        tids.iter()
            .map(|&a| tids.iter().map(|&b| cell(a, b).unwrap_or(0.0)).collect())
            .collect()
    }
}

/// One run of a benchmark under the collector.
#[derive(Clone, Debug, Serialize)]
pub struct Repeat {
    /// What the benchmark counted.
    pub truth: Truth,
    /// What the collector estimated.
    pub measured: Measured,
    /// The core-to-core round trip beside this run, ns.
    pub round_trip_ns: Option<f64>,
}

impl Repeat {
    /// Estimate ÷ truth; `None` where there was nothing to estimate.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.truth.transfers > 0).then(|| self.measured.transfers / self.truth.transfers as f64)
    }

    /// The share of the transfers, at most, for which words of other threads were looked at to count: a sampled access
    /// looks twice, and each look makes the visit in which it falls one of true sharing.
    #[must_use]
    pub fn looked(&self) -> f64 {
        let looks = 2.0 * self.truth.sampled_accesses.unwrap_or(0) as f64;
        let transfers = self.measured.transfers.max(self.truth.transfers as f64);
        (looks / transfers.max(1.0)).min(1.0)
    }

    /// Whether the interval holds the truth.
    #[must_use]
    pub fn holds(&self) -> bool {
        (self.measured.low..=self.measured.high).contains(&(self.truth.transfers as f64))
    }

    /// The largest difference of a cell between the two matrices, each divided by its largest cell
    /// (as in figure 5.10 of ComDetective).
    #[must_use]
    pub fn matrix_difference(&self) -> f64 {
        let truth: Vec<Vec<f64>> = self
            .truth
            .matrix
            .iter()
            .map(|row| row.iter().map(|&cell| cell as f64).collect())
            .collect();
        let (truth, measured) = (
            normalised(truth),
            normalised(self.measured.matrix_for(&self.truth.tids)),
        );
        let cells = truth.iter().flatten().zip(measured.iter().flatten());
        cells.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }
}

fn normalised(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let largest = matrix.iter().flatten().copied().fold(0.0, f64::max);
    if largest > 0.0 {
        matrix
            .iter_mut()
            .flatten()
            .for_each(|cell| *cell /= largest);
    }
    matrix
}

/// A bar that a benchmark has to clear.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// What is measured.
    pub what: &'static str,
    /// What came out.
    pub value: f64,
    /// What it may be.
    pub limit: f64,
    /// Whether it does.
    pub passed: bool,
    /// Whether the limit is the least that it must be (a share, at most 1), not the most.
    #[serde(skip)]
    least: bool,
}

impl Bar {
    fn at_most(what: &'static str, value: f64, limit: f64) -> Self {
        Self {
            what,
            value,
            limit,
            passed: value <= limit,
            least: false,
        }
    }

    fn at_least(what: &'static str, value: f64, limit: f64) -> Self {
        Self {
            what,
            value,
            limit,
            passed: value >= limit,
            least: true,
        }
    }

    /// Whether it would pass with an error `slack` times as large (1 or more).
    #[must_use]
    pub fn passes_with(&self, slack: f64) -> bool {
        if self.least {
            1.0 - self.value <= (1.0 - self.limit) * slack
        } else {
            self.value <= self.limit * slack
        }
    }
}

/// All repeats of one benchmark and what they come to. Medians are over the repeats.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The benchmark.
    pub workload: Workload,
    /// Its threads.
    pub threads: usize,
    /// Its fraction.
    pub fraction: f64,
    /// Median truth, transfers a second.
    pub truth_per_second: f64,
    /// Median estimate, transfers a second.
    pub estimate_per_second: f64,
    /// Median lower end of the interval, transfers a second.
    pub low_per_second: f64,
    /// Median upper end.
    pub high_per_second: f64,
    /// Median of estimate ÷ truth; `None` without transfers.
    pub ratio: Option<f64>,
    /// Coefficient of variation of estimate ÷ truth; `None` for fewer than two repeats.
    pub ratio_variation: Option<f64>,
    /// Median width of the interval ÷ truth.
    pub relative_width: Option<f64>,
    /// Median estimate ÷ accesses.
    pub estimate_per_access: f64,
    /// Repeats whose interval holds the truth.
    pub held: usize,
    /// Median share of false sharing in truth.
    pub false_share_truth: Option<f64>,
    /// Median share of false sharing as measured.
    pub false_share_measured: Option<f64>,
    /// Median share of the transfers, at most, for which the program looked at words of other threads to count: those
    /// are true, though truth does not say so.
    pub looked: f64,
    /// Median of the largest difference of a cell of the normalised matrices.
    pub matrix_difference: f64,
    /// The most findings that any repeat reported.
    pub findings: usize,
    /// Median round trip beside the runs, ns.
    pub round_trip_ns: Option<f64>,
    /// The shortest and the longest of them.
    pub round_trip_range_ns: Option<(f64, f64)>,
    /// The bars that this benchmark has to clear.
    pub bars: Vec<Bar>,
    /// The runs themselves.
    pub repeats: Vec<Repeat>,
}

impl Comparison {
    /// Sums up the repeats of one benchmark; `None` if there are none.
    #[must_use]
    pub fn new(repeats: Vec<Repeat>) -> Option<Self> {
        let truth = &repeats.first()?.truth;
        let (workload, threads, fraction) = (truth.workload, truth.threads, truth.fraction);
        let over = |value: &dyn Fn(&Repeat) -> f64| {
            median(&repeats.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let over_known = |value: &dyn Fn(&Repeat) -> Option<f64>| {
            median(&repeats.iter().filter_map(value).collect::<Vec<_>>())
        };
        let per_second = |transfers: f64, repeat: &Repeat| {
            transfers / repeat.truth.seconds.max(f64::MIN_POSITIVE)
        };
        let ratios: Vec<f64> = repeats.iter().filter_map(Repeat::ratio).collect();
        let trips: Vec<f64> = repeats
            .iter()
            .filter_map(|repeat| repeat.round_trip_ns)
            .collect();
        let mut comparison = Self {
            workload,
            threads,
            fraction,
            truth_per_second: over(&|r| r.truth.transfers_per_second()),
            estimate_per_second: over(&|r| per_second(r.measured.transfers, r)),
            low_per_second: over(&|r| per_second(r.measured.low, r)),
            high_per_second: over(&|r| per_second(r.measured.high, r)),
            ratio: median(&ratios),
            ratio_variation: coefficient_of_variation(&ratios),
            relative_width: over_known(&|r| {
                let truth = r.truth.transfers as f64;
                (truth > 0.0).then(|| (r.measured.high - r.measured.low) / truth)
            }),
            estimate_per_access: over(&|r| {
                r.measured.transfers / (r.truth.accesses as f64).max(1.0)
            }),
            held: repeats.iter().filter(|repeat| repeat.holds()).count(),
            false_share_truth: over_known(&|r| r.truth.false_share()),
            false_share_measured: over_known(&|r| r.measured.false_share),
            looked: over(&Repeat::looked),
            matrix_difference: over(&Repeat::matrix_difference),
            findings: repeats
                .iter()
                .map(|repeat| repeat.measured.findings)
                .max()
                .unwrap_or(0),
            round_trip_ns: median(&trips),
            round_trip_range_ns: trips
                .iter()
                .copied()
                .map(|trip| (trip, trip))
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            bars: Vec::new(),
            repeats,
        };
        comparison.bars = comparison.bars_to_clear();
        Some(comparison)
    }

    /// Whether every bar is cleared.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.bars.iter().all(|bar| bar.passed)
    }

    fn bars_to_clear(&self) -> Vec<Bar> {
        if self.truth_per_second < QUIET_PER_SECOND {
            return vec![
                Bar::at_most("estimate / accesses", self.estimate_per_access, 0.01),
                Bar::at_most("findings", self.findings as f64, 0.0),
            ];
        }
        let mut bars = Vec::new();
        match self.workload {
            Workload::WriteVolume if self.truth_per_second > BUSY_PER_SECOND => {
                let error = self
                    .ratio
                    .map_or(f64::INFINITY, |ratio| (ratio - 1.0).abs());
                bars.push(Bar::at_most("|estimate / truth - 1|", error, 0.2));
                if let Some(variation) = self.ratio_variation.filter(|_| self.one_latency_state()) {
                    bars.push(Bar::at_most(
                        "variation of estimate / truth",
                        variation,
                        0.1,
                    ));
                }
            }
            Workload::WriteVolumePlain
            | Workload::ReadWrite
            | Workload::Migratory
            | Workload::ProducerConsumer => {
                let held = self.held as f64 / self.repeats.len().max(1) as f64;
                bars.push(Bar::at_least("intervals that hold the truth", held, 0.9));
            }
            Workload::FalseSharing => {
                let difference = match (self.false_share_truth, self.false_share_measured) {
                    (Some(truth), Some(measured)) if measured < truth => {
                        (truth - self.looked - measured).max(0.0)
                    }
                    (Some(truth), Some(measured)) => measured - truth,
                    _ => f64::INFINITY,
                };
                bars.push(Bar::at_most("error of the false share", difference, 0.05));
            }
            Workload::PointToPoint => {
                bars.push(Bar::at_most(
                    "largest cell difference",
                    self.matrix_difference,
                    0.1,
                ));
            }
            _ => {}
        }
        bars
    }

    /// Whether the round trip stayed what it was: only like is compared with like.
    fn one_latency_state(&self) -> bool {
        self.round_trip_range_ns
            .is_some_and(|(low, high)| high < 2.0 * low)
    }
}

#[cfg(test)]
mod tests;
