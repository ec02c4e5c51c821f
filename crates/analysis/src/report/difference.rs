//! What a comparison of two recordings says, in the words that both renderers use.

use super::model::Interval;
use super::text;
use crate::diff::{BETWEEN_RUNS, CHANCE, Change, Diff, Side, Unit, ValueInterval, Verdict, View};

/// The whole comparison in a sentence.
pub(super) fn verdict(diff: &Diff) -> String {
    let count = |verdicts: &[Verdict]| {
        let real = diff.real();
        real.filter(|change| verdicts.contains(&change.verdict))
            .count()
    };
    let more = count(&[Verdict::New, Verdict::Grew]);
    let less = count(&[Verdict::Gone, Verdict::Shrank]);
    match (more, less) {
        (0, 0) => "Nothing changed by more than noise".to_owned(),
        _ => format!("{} less, {more} more", text::plural(less as u64, "row")),
    }
}

/// A side in one line: how it was recorded.
pub(super) fn facts(side: &Side) -> String {
    let seen = text::plural(side.samples, side.source.observation());
    let trip = side
        .round_trip_ns
        .map(|ns| format!(", round trip {}", text::nanoseconds(ns)))
        .unwrap_or_default();
    format!(
        "{}, {}, {}, {seen}{trip}",
        side.source,
        text::nanoseconds(side.duration_ns as f64),
        text::plural(side.threads, "thread"),
    )
}

/// The title of a view's rows.
pub(super) fn title(view: View) -> &'static str {
    match view {
        View::Findings => "What threads fight over, of thread time",
        View::Totals => "The whole run",
        View::Types => "Types, of the time at their accesses",
        View::Misses => "L1 misses by type and cause, of all",
        View::WorkingSet => "Working set, by type and cache level",
        View::Threads => "Threads, of the time of all",
    }
}

/// What a row is about.
pub(super) fn what(change: &Change) -> String {
    match change.detail.as_str() {
        "" => change.name.clone(),
        detail => format!("{}: {detail}", change.name),
    }
}

/// The value of one side, `-` if it is not there.
pub(super) fn value(side: Option<ValueInterval>, unit: Unit) -> String {
    let Some(ValueInterval { value, .. }) = side else {
        return "-".to_owned();
    };
    match unit {
        Unit::Share => text::percent(value),
        Unit::PerSecond => format!("{} a second", text::count(value)),
        Unit::PerMillion => format!("{} a million", text::count(value)),
        Unit::Bytes => text::bytes(value as u64),
    }
}

/// The interval of one side; empty if it is not there.
pub(super) fn interval(side: Option<ValueInterval>, unit: Unit) -> String {
    let Some(ValueInterval { interval, .. }) = side else {
        return String::new();
    };
    let Interval { low, high } = interval;
    match unit {
        Unit::Share => text::percent_range(Interval {
            low: low.max(0.0),
            high: high.min(1.0),
        }),
        Unit::PerSecond | Unit::PerMillion | Unit::Bytes => text::count_range(interval),
    }
}

/// How rows were tested.
pub(super) fn test(diff: &Diff) -> String {
    format!(
        "Tested: the logarithm of the ratio against the errors of both sides and {} between runs; more than noise beyond \
         {:.1} standard deviations, which {} without a change have one row of (Bonferroni, {}).",
        text::percent(BETWEEN_RUNS),
        diff.limit,
        format_args!("{} of 100 comparisons", CHANCE * 100.0),
        text::plural(diff.changes.len() as u64, "row"),
    )
}
