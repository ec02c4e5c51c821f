//! Whether fetching the neighbour of every line that misses will help: the two waits against each
//! other.

use maud::{Markup, html};

use super::super::distances;
use super::super::model::{FunctionPrefetch, Prefetch, Report};
use super::super::text;
use super::chart::{self, WIDTH};
use super::written::{self, Listing, Prose, fact};

/// Height of a bar.
const BAR: f64 = 20.0;
/// Where the bars begin.
const LEFT: f64 = 230.0;
/// Room for the number behind a bar.
const RIGHT: f64 = 130.0;
const BY_FUNCTION: Listing = Listing {
    title: "By function",
    open: false,
    noun: "function",
    most: 10,
};

/// The section, unless the recording does not have what it takes.
pub(super) fn section(report: &Report) -> Markup {
    let Some(prefetch) = &report.prefetch else {
        return html! {};
    };
    let card = html! {
        p.verdict { (distances::prefetch_words(prefetch.verdict)) }
        p { (Prose(&prefetch.doubt)) }
        (waits(prefetch))
        dl.facts { @for (term, value) in facts(prefetch) { (fact(term, &value, "")) } }
        (functions(prefetch))
    };
    written::section("prefetch", "Fetching neighbouring lines", card)
}

fn waits(prefetch: &Prefetch) -> Markup {
    let mut bars = vec![
        ("memory", "waiting for memory", prefetch.memory_wait_ns),
        ("lost", "waiting by false sharing", prefetch.sharing_wait_ns),
    ];
    if let Some(pairs) = &prefetch.neighbours {
        let (name, class) = match pairs.gain_ns < 0.0 {
            true => ("neighbours would cost", "lost"),
            false => ("neighbours would save", "saved"),
        };
        bars.push((class, name, pairs.gain_ns.abs()));
    }
    let longest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    if longest <= 0.0 {
        return html! {};
    }
    let bar = |i: usize, (class, name, ns): (&str, &str, f64)| {
        let y = (BAR + 10.0) * i as f64;
        let width = (ns / longest * (WIDTH - LEFT - RIGHT)).max(1.0);
        let base = y + BAR - 5.5;
        html! {
            (chart::label("label end", (LEFT - 10.0, base), name))
            (chart::rect(class, (LEFT, y), (width, BAR)))
            (chart::label("label", (LEFT + width + 8.0, base), &text::nanoseconds(ns)))
        }
    };
    chart::chart(
        (BAR + 10.0) * bars.len() as f64,
        "Waits in comparison; the figures stand beside the bars",
        html! { @for (i, it) in bars.into_iter().enumerate() { (bar(i, it)) } },
    )
}

fn facts(prefetch: &Prefetch) -> Vec<(&'static str, String)> {
    let gain = &prefetch.gain_band;
    let mut facts = vec![
        (
            "Waits for memory less those by false sharing",
            format!(
                "{} ({} to {})",
                text::nanoseconds(prefetch.gain_ns),
                text::nanoseconds(gain.low),
                text::nanoseconds(gain.high)
            ),
        ),
        (
            "Reuses from memory",
            text::count_band(prefetch.memory_reuses, prefetch.memory_reuses_band),
        ),
        (
            "Transfers by false sharing",
            text::count(prefetch.false_transfers),
        ),
        (
            "Latency of memory",
            text::nanoseconds_band(prefetch.memory_ns),
        ),
        (
            "Latency of a transfer",
            text::nanoseconds_band(prefetch.transfer_ns),
        ),
    ];
    if let Some(pairs) = &prefetch.neighbours {
        let (used, misses) = (
            text::percent(pairs.used_share),
            text::count(pairs.pair_misses),
        );
        let added = text::count(pairs.added_invalidations);
        facts.push(("Neighbours used", format!("{used} of {misses}")));
        facts.push(("Invalidations added", added));
    }
    facts
}

fn functions(prefetch: &Prefetch) -> Markup {
    let heads = html! {
        th { "Function" } th.number { "Reuses from memory" } th.number { "Transfers by false sharing" }
        th.number { "G" }
    };
    let row = |row: &FunctionPrefetch| {
        html! {
            (written::place(&row.function, &row.file, ""))
            td.number { (text::count(row.memory_reuses)) }
            td.number { (text::count(row.false_transfers)) }
            td.number { (text::nanoseconds(row.gain_ns)) }
        }
    };
    let reuses = |row: &FunctionPrefetch| row.memory_reuses;
    BY_FUNCTION.of(heads, &prefetch.by_function, reuses, row)
}
