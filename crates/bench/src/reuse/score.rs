//! What was measured beside what the program counted.

use std::fmt::Write;

use linewise_cache::reuse::Distances;
use serde::Serialize;

use super::{Counted, ReuseSpec, ReuseTruth};

/// What a distance is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each thread by itself, by element.
    Temporal,
    /// Each thread by itself, by line.
    Spatial,
    /// All threads behind one cache, by element.
    Shared,
}

/// How it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every access.
    Exact,
    /// One unit of 64 aligned ones.
    Stratified,
    /// One unit in 64, each by its own hash.
    Hashed,
}

impl Mode {
    /// What an accuracy must be at least; `None` where it is only told.
    #[must_use]
    pub fn bar(self) -> Option<f64> {
        match self {
            Self::Exact => Some(0.99),
            Self::Stratified => Some(0.95),
            Self::Hashed => None,
        }
    }
}

/// A measurement to be judged.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Of what.
    pub scope: Scope,
    /// How.
    pub mode: Mode,
    /// What came out.
    pub distances: Distances,
}

/// How near a measurement is to the truth; 1 is equal, 0 disjoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Of what.
    pub scope: Scope,
    /// How it was measured.
    pub mode: Mode,
    /// The accuracy S of the distances in accesses, which is that of the seed's table 6.4: 1 less half
    /// the sum of the differences of the fractions in each bin (16 bins an octave). `None` where
    /// nothing is reused.
    pub time: Option<f64>,
    /// S of the LRU stack distances, by octave.
    pub stack: Option<f64>,
    /// The same of the fractions that are reused, cold and invalidated.
    pub kinds: f64,
    /// What time and kinds must be at least.
    pub bar: Option<f64>,
    /// Whether they are.
    pub passed: bool,
}

impl Score {
    fn new(estimate: &Estimate, truth: &Counted) -> Self {
        let expected = truth.distances();
        let measured = &estimate.distances;
        let reused = expected.time.reuses() > 0.0;
        let time = reused.then(|| expected.time.accuracy(&measured.time));
        let kinds = kinds(&expected, measured);
        let bar = estimate.mode.bar();
        Self {
            scope: estimate.scope,
            mode: estimate.mode,
            time,
            stack: reused.then(|| expected.stack.accuracy_by_octave(&measured.stack)),
            kinds,
            bar,
            passed: bar.is_none_or(|bar| time.is_none_or(|time| time >= bar) && kinds >= bar),
        }
    }

    /// What is held against the bar: the lower of S and the accuracy by kind.
    fn lowest(&self) -> f64 {
        self.time.unwrap_or(1.0).min(self.kinds)
    }
}

fn kinds(expected: &Distances, measured: &Distances) -> f64 {
    let fractions = |distances: &Distances| {
        let all = distances.time.mass().max(1.0);
        [
            distances.time.reuses() / all,
            distances.time.cold / all,
            distances.time.invalidated / all,
        ]
    };
    let pairs = fractions(expected).into_iter().zip(fractions(measured));
    1.0 - pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}

/// One program, with all that was measured of it.
#[derive(Clone, Debug, Serialize)]
pub struct ReuseRow {
    /// The program.
    pub name: &'static str,
    /// Its threads.
    pub threads: usize,
    /// What its threads counted.
    pub accesses: u64,
    /// Of those, the share whose elements others had stored to.
    pub invalidated: f64,
    /// The measurements.
    pub scores: Vec<Score>,
}

impl ReuseRow {
    /// A row without measurements.
    #[must_use]
    pub fn new(spec: &ReuseSpec) -> Self {
        Self {
            name: spec.name,
            threads: spec.threads,
            accesses: 0,
            invalidated: 0.0,
            scores: Vec::new(),
        }
    }

    /// Judges the estimates of one run. Those that its truth does not cover, or that another run has
    /// given already, are left out.
    pub fn add(&mut self, truth: &ReuseTruth, estimates: &[Estimate]) {
        if self.accesses == 0 {
            self.accesses = truth.accesses;
            self.invalidated = truth.temporal.invalidated as f64 / truth.accesses.max(1) as f64;
        }
        for estimate in estimates {
            let truth = match estimate.scope {
                Scope::Temporal => Some(&truth.temporal),
                Scope::Spatial => truth.spatial.as_ref(),
                Scope::Shared => truth.behind_one_cache.as_ref(),
            };
            let known = self
                .scores
                .iter()
                .any(|score| (score.scope, score.mode) == (estimate.scope, estimate.mode));
            if let Some(truth) = truth
                && !known
            {
                self.scores.push(Score::new(estimate, truth));
            }
        }
    }

    /// What missed its bar, in words.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let missed = self.scores.iter().filter(|score| !score.passed);
        missed
            .map(|score| {
                format!(
                    "{}, {} threads, {:?} {:?}: S is {:.3}, {:.3} by kind, the bar is {:.2}",
                    self.name,
                    self.threads,
                    score.scope,
                    score.mode,
                    score.time.unwrap_or(f64::NAN),
                    score.kinds,
                    score.bar.unwrap_or_default()
                )
            })
            .collect()
    }

    fn score(&self, scope: Scope, mode: Mode) -> Option<&Score> {
        let wanted = |score: &&Score| (score.scope, score.mode) == (scope, mode);
        self.scores.iter().find(wanted)
    }
}

const SCOPES: [(Scope, &str); 3] = [
    (Scope::Temporal, "temporal"),
    (Scope::Spatial, "spatial"),
    (Scope::Shared, "shared"),
];
const MODES: [(Mode, &str); 3] = [
    (Mode::Exact, "exact"),
    (Mode::Stratified, "1 of each 64"),
    (Mode::Hashed, "hashed 1/64"),
];

/// The rows as a table: the lower of S and the accuracy by kind, then S of the stack distances.
#[must_use]
pub fn reuse_table(rows: &[ReuseRow]) -> String {
    let mut table = format!("{:<28}{:>4}{:>9}{:>6}", "", "", "", "");
    for (_, name) in MODES {
        let _ = write!(table, "  {name:<33}");
    }
    let _ = write!(
        table,
        "\n{:<28}{:>4}{:>9}{:>6}",
        "program", "thr", "accesses", "inv"
    );
    for _ in MODES {
        for (_, name) in SCOPES {
            let _ = write!(table, "{name:>11} ");
        }
    }
    table.push('\n');
    for row in rows {
        let _ = write!(
            table,
            "{:<28}{:>4}{:>8.1}M{:>5.0}%",
            row.name,
            row.threads,
            row.accesses as f64 / 1e6,
            row.invalidated * 100.0
        );
        for (mode, _) in MODES {
            for (scope, _) in SCOPES {
                let cell = row.score(scope, mode).map_or("-".to_owned(), |score| {
                    let mark = if score.passed { "" } else { "!" };
                    let stack = score.stack.map(|stack| format!("/{stack:.2}"));
                    format!("{mark}{:.3}{}", score.lowest(), stack.unwrap_or_default())
                });
                let _ = write!(table, "{cell:>11} ");
            }
        }
        table.push('\n');
    }
    for (mode, name) in MODES {
        let scores = || {
            let all = rows.iter().flat_map(|row| &row.scores);
            all.filter(|score| score.mode == mode)
        };
        let lowest = scores().map(Score::lowest).fold(f64::NAN, f64::min);
        let times = || scores().filter_map(|score| score.time);
        let mean = times().sum::<f64>() / times().count().max(1) as f64;
        let _ = writeln!(table, "{name}: S {mean:.3} on average, lowest {lowest:.3}");
    }
    for missed in rows.iter().flat_map(ReuseRow::missed) {
        let _ = writeln!(table, "missed: {missed}");
    }
    table
}

/// The rows as JSON.
#[must_use]
pub fn reuse_json(rows: &[ReuseRow]) -> serde_json::Value {
    serde_json::json!({ "reuse": rows })
}

#[cfg(test)]
mod tests {
    use super::super::{Size, run_reuse};
    use super::*;

    fn estimate(mode: Mode, distances: Distances) -> Estimate {
        Estimate {
            scope: Scope::Temporal,
            mode,
            distances,
        }
    }

    #[test]
    fn the_truth_itself_passes_and_a_wrong_share_of_invalidations_does_not() {
        let spec = ReuseSpec::new("ring", Size::Small, 2, false).expect("has this name");
        let truth = run_reuse(&spec);
        let right = truth.temporal.distances();
        let mut wrong = right.clone();
        wrong.time.add_invalidated(right.time.invalidated);
        let mut row = ReuseRow::new(&spec);
        row.add(
            &truth,
            &[
                estimate(Mode::Exact, right.clone()),
                estimate(Mode::Stratified, wrong),
            ],
        );
        assert_eq!(row.scores[0].time, Some(1.0));
        assert!(row.scores[0].passed && !row.scores[1].passed);
        assert_eq!(row.missed().len(), 1);
        assert!(reuse_table(std::slice::from_ref(&row)).contains("missed: ring, 2 threads"));
        // The same again is known already.
        row.add(&truth, &[estimate(Mode::Exact, Distances::default())]);
        assert_eq!(row.scores.len(), 2);
    }
}
