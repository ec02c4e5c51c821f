//! Two recordings side by side: what grew, what shrank, and whether that is more than noise.
//!
//! As DProf's study of Apache compares its views of two loads (Pesterev, 2010, section 6.2), with a test for
//! each row. Rows of both reports with the same name are paired; the logarithm of the ratio of their values is
//! tested against zero:
//!
//! ```text
//! z = ln(after / before) / sqrt(error before ² + error after ² + between runs ²)
//! ```
//!
//! The errors are those of the values' 90 % intervals, as shares. What two runs of one program differ by, although
//! nothing changed, is [`BETWEEN_RUNS`]; of thread time at lines that move, also the logarithm of the ratio of their
//! round trips. What one side does not have is taken for the least that would have been seen. A row is more than
//! noise beyond the quantile at which, if nothing changed, one comparison in twenty has a row beyond it
//! (Bonferroni's correction for the number of rows).

mod estimate;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

use linewise_recording::Source;
use serde::{Deserialize, Serialize};

use crate::model::Report;
pub use estimate::{Unit, ValueInterval, View};
use rows::{Row, rows};

/// The version of the comparison's JSON.
pub const DIFF_SCHEMA: u32 = 1;

/// Standard deviation of the logarithm of the ratio of two runs in which nothing changed: costs and transfers
/// of single runs varied by 11 to 15 %.
pub const BETWEEN_RUNS: f64 = 0.2;
/// The chance that a comparison in which nothing changed has a row that is called more than noise.
pub const CHANCE: f64 = 0.05;
/// Round trips whose ratio is beyond this are of two states of a machine, or of two machines.
const SAME_STATE: f64 = 1.3;

/// Why two recordings cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incomparable {
    /// One counts what the other samples.
    Sources {
        /// The source of the first.
        before: Source,
        /// The source of the second.
        after: Source,
    },
    /// There is nothing in it.
    Empty {
        /// Its command.
        command: String,
    },
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources { before, after } => write!(
                f,
                "one was recorded with the source `{before}` and the other with `{after}`, whose figures are no \
                 measure of each other; record both with the same `--source`"
            ),
            Self::Empty { command } => write!(
                f,
                "there are no samples in the recording of `{command}`; let it run longer"
            ),
        }
    }
}

impl std::error::Error for Incomparable {}

/// Two recordings side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// [`DIFF_SCHEMA`].
    pub schema: u32,
    /// The first recording.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// What is more than noise first; within that by view, and within a view the largest change first.
    pub changes: Vec<Change>,
    /// The absolute value of `z` from which a change is more than noise.
    pub limit: f64,
    /// What the reader must know before believing the rest.
    pub notes: Vec<String>,
}

/// One of the two recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The command line.
    pub command: String,
    /// The source.
    pub source: Source,
    /// Wall time recorded, ns.
    pub duration_ns: u64,
    /// Its threads.
    pub threads: u64,
    /// Samples, or accesses of an exact run.
    pub samples: u64,
    /// Median round trip, ns; `null` when it could not be measured.
    pub round_trip_ns: Option<f64>,
    /// CPU, hypervisor and kernel.
    pub machine: String,
}

impl Side {
    fn of(report: &Report) -> Self {
        let run = &report.run;
        Self {
            command: run.command.clone(),
            source: run.source,
            duration_ns: run.duration_ns,
            threads: run.threads.len() as u64,
            samples: report.samples.total,
            round_trip_ns: run.round_trip_ns,
            machine: run.machine.clone(),
        }
    }
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Only the second recording has it.
    New,
    /// Only the first has it.
    Gone,
    /// It is more.
    Grew,
    /// It is less.
    Shrank,
    /// The difference is not more than noise.
    Noise,
}

impl Verdict {
    /// Its name in the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::Noise => "noise",
        }
    }
}

/// A row of both reports, or of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Where it is from.
    pub view: View,
    /// The object, type or thread, or what is counted.
    pub name: String,
    /// What about it: the kind of sharing, the cause of misses, the level of the caches; or empty.
    pub detail: String,
    /// What its values count.
    pub unit: Unit,
    /// In the first recording; `null` if it is not there.
    pub before: Option<ValueInterval>,
    /// In the second likewise.
    pub after: Option<ValueInterval>,
    /// How many standard deviations the logarithm of the ratio is from 0, positive where it grew.
    pub z: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// Compares two reports.
///
/// # Errors
/// [`Incomparable`] says why not.
pub fn diff(before: &Report, after: &Report) -> Result<Diff, Incomparable> {
    if before.run.source != after.run.source {
        return Err(Incomparable::Sources {
            before: before.run.source,
            after: after.run.source,
        });
    }
    if let Some(empty) = [before, after].into_iter().find(|it| it.samples.total == 0) {
        return Err(Incomparable::Empty {
            command: empty.run.command.clone(),
        });
    }
    let trips = trips_apart(before, after);
    let rows: Vec<Row> = rows(before, after);
    let limit = quantile(CHANCE / (2.0 * rows.len().max(1) as f64));
    let mut changes: Vec<Change> = rows
        .into_iter()
        .map(|row| {
            let between = BETWEEN_RUNS.hypot(if row.waits { trips } else { 0.0 });
            let z = row.z(between);
            Change {
                verdict: verdict(&row, z, limit),
                view: row.view,
                name: row.name,
                detail: row.detail,
                unit: row.unit,
                before: row.before,
                after: row.after,
                z,
            }
        })
        .collect();
    changes.sort_by(|a, b| {
        let key = |change: &Change| (change.verdict == Verdict::Noise, change.view);
        let moved = |change: &Change| {
            let value = |side: Option<ValueInterval>| side.map_or(0.0, |it| it.value);
            (value(change.after) - value(change.before)).abs()
        };
        key(a)
            .cmp(&key(b))
            .then(moved(b).total_cmp(&moved(a)))
            .then_with(|| (&a.name, &a.detail).cmp(&(&b.name, &b.detail)))
    });
    Ok(Diff {
        schema: DIFF_SCHEMA,
        before: Side::of(before),
        after: Side::of(after),
        changes,
        limit,
        notes: notes(before, after, trips),
    })
}

impl Diff {
    /// The changes that are more than noise.
    pub fn real(&self) -> impl Iterator<Item = &Change> {
        self.changes
            .iter()
            .filter(|change| change.verdict != Verdict::Noise)
    }
}

fn verdict(row: &Row, z: f64, limit: f64) -> Verdict {
    match (&row.before, &row.after) {
        _ if z.abs() < limit => Verdict::Noise,
        (None, _) => Verdict::New,
        (_, None) => Verdict::Gone,
        _ if z > 0.0 => Verdict::Grew,
        _ => Verdict::Shrank,
    }
}

/// The logarithm of the ratio of the two round trips, 0 if they are of one state or one is not known.
fn trips_apart(before: &Report, after: &Report) -> f64 {
    let trips = before.run.round_trip_ns.zip(after.run.round_trip_ns);
    let apart = trips.map_or(0.0, |(before, after)| (after / before).ln().abs());
    if apart.is_finite() && apart > SAME_STATE.ln() {
        apart
    } else {
        0.0
    }
}

/// What the reader must know first.
fn notes(before: &Report, after: &Report, trips: f64) -> Vec<String> {
    let mut notes = Vec::new();
    if before.run.machine != after.run.machine {
        notes.push("The recordings are of two machines.".to_owned());
    }
    if trips > 0.0 {
        notes.push(
            "The round trip between CPUs differs between the recordings, and with it the cost of every transfer: \
             costs are compared with that doubt. Record again until both are alike."
                .to_owned(),
        );
    }
    if before.caches.is_empty() != after.caches.is_empty() {
        notes.push(
            "Only one of the recordings simulated caches (`--caches`): misses are not compared."
                .to_owned(),
        );
    }
    for (report, which) in [(before, "first"), (after, "second")] {
        if !report.run.complete {
            notes.push(format!(
                "The {which} recording was cut short: it holds what was written until then."
            ));
        }
    }
    notes
}

/// The standard normal quantile that is exceeded with chance `p`, 0 < p <= 0.5: Abramowitz and Stegun (1964),
/// formula 26.2.23, good to 5e-4.
fn quantile(p: f64) -> f64 {
    let t = (-2.0 * p.ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}
