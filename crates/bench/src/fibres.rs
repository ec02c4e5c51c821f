//! What switching, moving and beginning fibres costs, beside the bare switch of corosensei and the round
//! trip of a cache line, in turns.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use corosensei::{Coroutine, CoroutineResult, Yielder};
use linewise_fibres::{Error, Pool, Runtime, migrate, spawn, visit, yield_now};
use serde::Serialize;

use crate::compare::statistics::median;
use crate::waiting::Waiting;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FibreCost {
    /// Into a coroutine of corosensei and back, without a scheduler.
    BareSwitch,
    /// A fibre gives way to another of its worker; so many take turns.
    Yield(usize),
    /// A fibre is begun, runs on a stack that was used before, and is joined.
    SpawnAndJoin,
    /// So many fibres move to the other worker and back; for one such pair of moves.
    MoveThereAndBack(usize),
    /// So many fibres visit the other worker; for one visit.
    Visit(usize),
}

impl FibreCost {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 9] = [
        Self::BareSwitch,
        Self::Yield(1),
        Self::Yield(2),
        Self::Yield(16),
        Self::SpawnAndJoin,
        Self::MoveThereAndBack(1),
        Self::MoveThereAndBack(16),
        Self::Visit(1),
        Self::Visit(16),
    ];

    fn words(self) -> String {
        match self {
            Self::BareSwitch => "bare switch there and back (corosensei)".to_owned(),
            Self::Yield(fibres) => format!("yield, fibres in turns: {fibres}"),
            Self::SpawnAndJoin => "spawn and join".to_owned(),
            Self::MoveThereAndBack(fibres) => format!("move there and back, fibres: {fibres}"),
            Self::Visit(fibres) => format!("visit, fibres: {fibres}"),
        }
    }

    /// Whether it crosses from core to core.
    fn crosses(self) -> bool {
        matches!(self, Self::MoveThereAndBack(_) | Self::Visit(_))
    }
}

/// One cost, measured again and again.
#[derive(Clone, Debug, Serialize)]
pub struct FibreRow {
    /// What it is.
    pub cost: FibreCost,
    /// Each measurement, ns.
    pub ns: Vec<f64>,
    /// Beside each, the round trip of a cache line between the two CPUs, ns.
    pub round_trip_ns: Vec<f64>,
    /// Beside each, the bare switch of the same turn, ns.
    pub bare_ns: Vec<f64>,
    /// Beside each, the share of the CPUs' time that the workers waited for them, because others ran there, percent.
    pub waited_percent: Vec<f64>,
}

/// Operations of one measurement on one core, and across.
const HERE: usize = 400_000;
const ACROSS: usize = 60_000;

/// Measures all costs `repeats` times, in turns, with a worker pinned to each of two CPUs; `round_trip`
/// measures that between them.
///
/// # Errors
/// If the workers cannot be started there, or the round trip cannot be measured.
///
/// # Panics
/// If a fibre of the measurement does.
pub fn measure<E: From<Error>>(
    cpus: [u32; 2],
    repeats: u32,
    mut round_trip: impl FnMut() -> Result<f64, E>,
) -> Result<Vec<FibreRow>, E> {
    let mut rows: Vec<FibreRow> = FibreCost::ALL
        .iter()
        .map(|&cost| FibreRow {
            cost,
            ns: Vec::new(),
            round_trip_ns: Vec::new(),
            bare_ns: Vec::new(),
            waited_percent: Vec::new(),
        })
        .collect();
    for _ in 0..repeats {
        let mut bare = f64::NAN;
        for row in &mut rows {
            let trip = round_trip()?;
            let (ns, waited) = once(row.cost, cpus)?;
            if row.cost == FibreCost::BareSwitch {
                bare = ns;
            }
            row.ns.push(ns);
            row.round_trip_ns.push(trip);
            row.bare_ns.push(bare);
            row.waited_percent.push(waited * 100.0);
        }
    }
    Ok(rows)
}

#[expect(
    unsafe_code,
    reason = "who starts a runtime promises what its fibres hold"
)]
fn start(cpus: [u32; 2]) -> Result<Runtime, Error> {
    let builder = Runtime::builder()
        .pinned_pool("here", &cpus[..1])
        .pinned_pool("there", &cpus[1..]);
    // SAFETY: the fibres of this file hold nothing over a waiting call.
    unsafe { builder.start() }
}

/// One measurement in ns, and the share of the time that the workers waited for the CPUs.
fn once(cost: FibreCost, cpus: [u32; 2]) -> Result<(f64, f64), Error> {
    let runtime = start(cpus)?;
    let waiting = Waiting::begin();
    let there = runtime.pools().remove(1);
    let here = runtime.pools().remove(0);
    let run = |fibres: usize, operations: usize, body: Body| -> Result<f64, Error> {
        let each = operations / fibres;
        let handles: Result<Vec<_>, _> = (0..fibres)
            .map(|_| {
                let (here, there, body) = (here.clone(), there.clone(), body.clone());
                runtime.spawn(move || {
                    body(&here, &there, each / 10);
                    let begun = Instant::now();
                    body(&here, &there, each);
                    begun.elapsed().as_nanos() as f64
                })
            })
            .collect();
        let times = handles?
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|error| error.resume()));
        // They run side by side: all take about as long as each.
        let mean = times.sum::<f64>() / fibres as f64;
        Ok(mean / (each * fibres) as f64)
    };
    let ns = match cost {
        FibreCost::BareSwitch => run(1, HERE, Arc::new(|_, _, count| bare_switches(count))),
        FibreCost::Yield(fibres) => run(fibres, HERE, Arc::new(|_, _, count| yields(count))),
        FibreCost::SpawnAndJoin => run(1, HERE, Arc::new(|_, _, count| spawns(count))),
        FibreCost::MoveThereAndBack(fibres) => run(fibres, ACROSS, Arc::new(moves)),
        FibreCost::Visit(fibres) => run(fibres, ACROSS, Arc::new(visits)),
    };
    let waited = waiting.share(cpus.len());
    Ok((ns?, waited))
}

type Body = Arc<dyn Fn(&Pool, &Pool, usize) + Send + Sync>;

fn bare_switches(count: usize) {
    let body = |yielder: &Yielder<usize, usize>, mut value: usize| {
        while value < usize::MAX {
            value = yielder.suspend(value + 1);
        }
    };
    let mut routine = Coroutine::<usize, usize, ()>::new(body);
    let mut value = 0;
    for _ in 0..count {
        if let CoroutineResult::Yield(next) = routine.resume(value) {
            value = next;
        }
    }
    assert_eq!(value, count);
    routine.resume(usize::MAX);
}

fn yields(count: usize) {
    for _ in 0..count {
        yield_now();
    }
}

fn spawns(count: usize) {
    for index in 0..count {
        let handle = spawn(move || index).unwrap_or_else(|error| panic!("{error}"));
        assert!(handle.join().is_ok_and(|value| value == index));
    }
}

#[expect(
    unsafe_code,
    reason = "a fibre that moves promises that nothing of it stays"
)]
fn moves(here: &Pool, there: &Pool, count: usize) {
    for _ in 0..count {
        // SAFETY: the fibre holds nothing that belongs to its thread, and this function uses no variable of it.
        unsafe {
            migrate(there);
            migrate(here);
        }
    }
}

fn visits(_: &Pool, there: &Pool, count: usize) {
    let mut sum = 0;
    for index in 0..count {
        visit(there, || sum += index);
    }
    assert_eq!(sum, count * count.saturating_sub(1) / 2);
}

/// The costs as a table for people, without measurements in which the workers waited for the CPUs for more than
/// this share of the time.
#[must_use]
pub fn table(rows: &[FibreRow], quiet_percent: f64) -> String {
    let mut out = format!(
        "{:<42}{:>9}{:>9}{:>9}{:>10}{:>15}{:>15}\n",
        "", "median", "lowest", "highest", "trip", "in round trips", "bare switches"
    );
    let is_quiet = |row: &FibreRow, nth: usize| row.waited_percent[nth] <= quiet_percent;
    let (mut all, mut used) = (0, 0);
    for row in rows {
        let quiet: Vec<usize> = (0..row.ns.len())
            .filter(|&nth| is_quiet(row, nth))
            .collect();
        let of = |values: &[f64]| quiet.iter().map(|&nth| values[nth]).collect::<Vec<_>>();
        all += row.ns.len();
        used += quiet.len();
        let ns = of(&row.ns);
        let Some(middle) = median(&ns) else {
            let _ = writeln!(out, "{:<42}{:>9}", row.cost.words(), "none");
            continue;
        };
        let lowest = ns.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = ns.iter().copied().fold(0.0, f64::max);
        let trip = median(&of(&row.round_trip_ns)).unwrap_or(f64::NAN);
        let _ = write!(
            out,
            "{:<42}{middle:>9.1}{lowest:>9.1}{highest:>9.1}{trip:>10.0}",
            row.cost.words()
        );
        let beside = if row.cost.crosses() {
            &row.round_trip_ns
        } else {
            &row.bare_ns
        };
        // The bare switch beside it must have been quiet, too.
        let ratios: Vec<f64> = quiet
            .iter()
            .filter(|&&nth| row.cost.crosses() || is_quiet(&rows[0], nth))
            .map(|&nth| row.ns[nth] / beside[nth])
            .collect();
        let ratio = median(&ratios).unwrap_or(f64::NAN);
        let _ = if row.cost.crosses() {
            writeln!(out, "{ratio:>15.2}")
        } else {
            writeln!(out, "{ratio:>30.2}")
        };
    }
    out.push_str("ns; trip: that of a cache line between the two CPUs, measured before each\n");
    if used < all {
        let _ = writeln!(
            out,
            "{} of {all} measurements are left out: other programs ran on the CPUs (--quiet)",
            all - used
        );
    }
    out
}

/// The costs as JSON.
///
/// # Panics
/// Never: numbers become JSON.
#[must_use]
pub fn json(rows: &[FibreRow]) -> serde_json::Value {
    serde_json::json!({ "schema": 1, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_is_measured_and_stands_beside_its_round_trip() {
        let rows = measure([0, 1], 1, || Ok::<_, Error>(100.0));
        let rows = match rows {
            Ok(rows) => rows,
            Err(Error::System { why, .. }) => return println!("skipped: {why}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(rows.len(), FibreCost::ALL.len());
        assert!(rows.iter().all(|row| row.ns[0] > 0.3), "{rows:?}");
        let all = table(&rows, f64::INFINITY);
        assert_eq!(all.lines().count(), rows.len() + 2);
        assert!(
            rows.iter().all(|row| row.waited_percent[0] >= 0.0),
            "{rows:?}"
        );
        let mut rows = rows;
        rows[2].waited_percent[0] = 7.0;
        for row in rows
            .iter_mut()
            .filter(|row| row.cost != FibreCost::Yield(2))
        {
            row.waited_percent[0] = 1.0;
        }
        let some = table(&rows, 5.0);
        assert!(
            some.contains("\n1 of 9 measurements are left out"),
            "{some}"
        );
        let left_out = some.lines().nth(3).unwrap();
        assert!(left_out.ends_with(" none"), "{some}");
        let json = json(&rows);
        assert_eq!(json["rows"][1]["cost"]["yield"], 1);
        assert_eq!(json["rows"][5]["round_trip_ns"][0], 100.0);
    }
}
