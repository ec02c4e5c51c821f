//! The figures for people.

use super::result::{Accesstest, DataPoint, Range, Rate};
use super::spec::Mode;
use crate::drawing::{count, list, short};
use std::fmt::Write as _;

/// The figures as tables, 80 columns wide: one for each state of the machine, a line for each working set and update
/// ratio.
#[must_use]
pub fn accesstest_table(test: &Accesstest) -> String {
    let mut out = String::new();
    for state in states(test) {
        let _ = writeln!(out, "{}", state_name(test, state));
        let _ = write!(out, "{:>8}{:>9}", "bytes", "update %");
        for mode in &test.modes {
            let _ = write!(out, "{:>13}", mode.name());
        }
        let _ = writeln!(out, "{:>7}{:>4}", "gain %", "ns");
        for case in cases(test, state) {
            line(&mut out, test, state, case);
        }
        peaks(&mut out, test, state);
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "Million accesses a second: median of up to {} runs of {} s, ± half of what they\n\
         spread in %; the gain of delegated over synchronous, and the round trip.\n\
         {} sessions on CPUs {}.",
        test.repeats,
        test.seconds,
        test.sessions,
        list(&test.cpus),
    );
    for memory in &test.memory {
        let _ = writeln!(out, "Memory: {}.", memory.words());
    }
    for note in &test.notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    if test.left_out > 0 {
        let _ = writeln!(
            out,
            "{} of {} runs are in no figure: the round trip changed meanwhile, or could not\n\
             be measured, or others took the CPUs (--quiet).",
            test.left_out,
            test.samples.len(),
        );
    }
    out
}

/// The states of which there are points.
pub(super) fn states(test: &Accesstest) -> Vec<Option<usize>> {
    let mut states: Vec<Option<usize>> = test.points.iter().map(|point| point.state).collect();
    states.dedup();
    states
}

/// What a state is, in some words.
pub(super) fn state_name(test: &Accesstest, state: Option<usize>) -> String {
    let span = state.and_then(|state| test.states.get(state));
    span.map_or_else(
        || "one CPU".to_owned(),
        |span| format!("round trip {} ns", span.words()),
    )
}

/// The paths of which there are points in a state, by size and ratio.
pub(super) fn cases(test: &Accesstest, state: Option<usize>) -> Vec<usize> {
    let here = test.points.iter().filter(|point| point.state == state);
    let mut cases: Vec<&DataPoint> = here.collect();
    cases.sort_by(|a, b| {
        let ratio = |point: &DataPoint| point.update_percent.unwrap_or(point.written_percent);
        a.bytes.cmp(&b.bytes).then(ratio(a).total_cmp(&ratio(b)))
    });
    let mut cases: Vec<usize> = cases.into_iter().map(|point| point.case).collect();
    cases.dedup();
    cases
}

pub(super) fn of(
    test: &Accesstest,
    state: Option<usize>,
    case: usize,
    mode: Mode,
) -> Option<&DataPoint> {
    test.points
        .iter()
        .find(|point| (point.state, point.case, point.mode) == (state, case, mode))
}

/// The ratio of a path: as asked for, or as the path has it.
pub(super) fn ratio(point: &DataPoint) -> String {
    let percent = point.update_percent.unwrap_or(point.written_percent);
    let text = format!("{percent:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Million accesses a second.
pub(super) fn millions(rate: &Rate) -> String {
    short(rate.median / 1e6)
}

/// Half of the distance between the slowest and the fastest run, in percent of the median.
pub(super) fn spread_percent(rate: &Rate) -> f64 {
    (rate.high - rate.low) / 2.0 / rate.median.max(f64::MIN_POSITIVE) * 100.0
}

pub(super) fn gain(test: &Accesstest, state: Option<usize>, case: usize) -> Option<f64> {
    let mut gains = test.gains.iter();
    let found =
        gains.find(|gain| (gain.state, gain.case, gain.mode) == (state, case, Mode::Delegated));
    found.map(|gain| gain.percent)
}

fn line(out: &mut String, test: &Accesstest, state: Option<usize>, case: usize) {
    let points = test
        .modes
        .iter()
        .filter_map(|mode| of(test, state, case, *mode));
    let points: Vec<&DataPoint> = points.collect();
    let Some(first) = points.first() else { return };
    let _ = write!(out, "{:>8}{:>9}", count(first.bytes as f64), ratio(first));
    for mode in &test.modes {
        let cell = of(test, state, case, *mode).map_or_else(
            || "-".to_owned(),
            |point| {
                let rate = &point.accesses_per_s;
                format!("{} ±{:<2.0}", millions(rate), spread_percent(rate))
            },
        );
        let _ = write!(out, "{cell:>13}");
    }
    let gain = gain(test, state, case).map_or_else(|| "-".to_owned(), |gain| format!("{gain:+.0}"));
    let trips: Vec<f64> = points
        .iter()
        .filter_map(|point| point.round_trip_ns)
        .collect();
    let trip = crate::compare::median(&trips);
    let trip = trip.map_or_else(|| "-".to_owned(), |trip| format!("{trip:.0}"));
    let _ = writeln!(out, "{gain:>7}{trip:>4}");
}

/// Where delegation gains most, by cache and ratio.
fn peaks(out: &mut String, test: &Accesstest, state: Option<usize>) {
    for range in Range::of(test) {
        for peak in test.peaks(range).iter().filter(|peak| peak.state == state) {
            let around = range.level.map_or("all sizes", |level| level.title());
            let at = count(peak.bytes as f64);
            let update = peak
                .update_percent
                .map_or_else(String::new, |it| format!(" at {it} % updates"));
            let _ = writeln!(
                out,
                "  around {around}{update}: delegated gains at most {:+.0} %, with {at}",
                peak.percent
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::test;
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal_and_every_figure_is_there() {
        let near = Some((330.0, 340.0));
        let mut runs = Vec::new();
        for mode in Mode::ALL {
            runs.push((0, mode, 98.7e6, near));
            runs.push((0, mode, 123.4e6, near));
        }
        runs.push((1, Mode::Synchronous, 5e6, near));
        let table = accesstest_table(&test(&[(98_304, 0.1), (1 << 29, 100.0)], &runs));
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for text in [
            "round trip 335 ns",
            "96 Ki",
            "512 Mi",
            "111 ±11",
            "+0",
            "0.1",
            "100",
        ] {
            assert!(table.contains(text), "{text} is not in\n{table}");
        }
        let alone = table.lines().find(|line| line.contains("512 Mi"));
        assert!(
            alone.is_some_and(|line| line.contains("5.00 ±0") && line.contains('-')),
            "{table}"
        );
    }
}
