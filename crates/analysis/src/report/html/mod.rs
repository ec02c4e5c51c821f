//! The report as one self-contained HTML file.
//!
//! It is written whole by this module, so that it can be read without its script, which only adds
//! comfort. Nothing is loaded: the content policy forbids all but the one style sheet and the one
//! script of the file, which it names by their hashes. That also forbids `style` attributes, so
//! sizes are table spans or SVG attributes, and colours are classes.
//!
//! All markup is made by `html!`, which escapes what is put into it. [`document()`] then shows what a
//! reader could not see, so that nobody who writes a section needs to think of either.

mod caches;
mod chart;
mod curve;
mod diff;
mod document;
mod finding;
mod flow;
mod grid;
mod prefetch;
mod reuse;
mod section;
mod timeline;
mod types;
mod written;

use linewise_recording::Overhead;
use maud::{Markup, html};

use super::model::{Interval, Report, Samples};
use super::{contention, exact, sections, text};
pub use diff::render as render_diff;
use document::document;
use written::{Prose, capital, fact};

/// Findings that are written out; the JSON report has them all.
const FINDINGS: usize = 50;

/// The report as an HTML document.
#[must_use]
pub fn render(report: &Report) -> String {
    let body = html! {
        (header(report))
        main {
            (findings(report))
            (section::section(&sections::of_sharing(report)))
            @if let Some(shown) = sections::of_run(report) { (section::section(&shown)) }
            (types::section(report))
            (flow::section(report))
            (caches::section(report))
            (reuse::section(report))
            (curve::section(report))
            (prefetch::section(report))
            @for shown in sections::of(report) { (section::section(&shown)) }
        }
        (footer(report))
    };
    document(&report.run.command, body)
}

fn header(report: &Report) -> Markup {
    let run = &report.run;
    html! {
        header {
            p.brand { "linewise" }
            h1 { (verdict(report)) }
            @for note in &report.notes { p.note { b { "Note" } " " (Prose(note)) } }
            @if let Some(ending) = contention::ending(run) {
                p.note { b { "Ended" } " " (capital(&ending)) "." }
            }
            dl.facts {
                (fact("Command", &run.command, "wide code"))
                (fact("Recorded", &text::nanoseconds(run.duration_ns as f64), ""))
                (fact("Threads", &contention::threads_words(run), ""))
                (fact("Transfers", &transfers(report), ""))
                (fact("Round trip", &contention::round_trip(run), ""))
                (fact("Machine", &run.machine, "wide"))
            }
        }
    }
}

/// The whole report in a sentence.
fn verdict(report: &Report) -> String {
    let Some(first) = report.findings.first() else {
        return "Nothing found that threads fight over".to_owned();
    };
    let name = text::sanitise(finding::object_name(&first.object));
    let more = match report.findings.len() - 1 {
        0 => String::new(),
        n => format!(", and {}", text::plural(n as u64, "more finding")),
    };
    format!(
        "{} of {} costs {} of thread time{more}",
        finding::kind_words(first.kind),
        text::shorten(&name, 48),
        text::percent(first.cost.share),
    )
}

fn transfers(report: &Report) -> String {
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let falsely = transfers.false_sharing / all;
    let split = (all > 0.0).then(|| contention::split(falsely, Interval::exactly(falsely)));
    let of_what = split.map_or(String::new(), |split| format!(", {split}"));
    contention::all_transfers(report, &of_what)
}

fn findings(report: &Report) -> Markup {
    let rest = report.findings.len().saturating_sub(FINDINGS) as u64;
    html! {
        section #findings {
            h2 { "Findings" }
            @if report.findings.is_empty() { (nothing_found(report)) }
            @for finding in report.findings.iter().take(FINDINGS) { (finding::card(finding, report)) }
            @if rest > 0 { p.quiet { (text::plural(rest, "more finding")) " in the JSON report." } }
        }
    }
}

fn nothing_found(report: &Report) -> Markup {
    html! {
        div.card {
            p {
                "Looked at " (contention::looked_at(report)) "."
                @if let Some(share) = contention::contended_share(report) {
                    " " (text::percent(share))
                    " of the sampled thread time is at lines that move between threads."
                }
            }
            p { "Not excluded:" }
            ul { @for doubt in contention::not_excluded(report) { li { (doubt) } } }
        }
    }
}

fn footer(report: &Report) -> Markup {
    let run = &report.run;
    let (losses, more) = contention::losses(report);
    let lost = |words: &str| fact("Lost", words, "wide lost");
    html! {
        footer {
            h2 { "What this rests on" }
            dl.facts {
                (fact("Source", &format!("{}: {}", run.source, run.source_reason), "wide"))
                @if run.source.is_exact() {
                    @for (term, words) in exact::facts(report) { (fact(&capital(term), &words, "")) }
                } @else {
                    (samples(&report.samples))
                }
                @for (what, it) in losses {
                    (lost(&format!("{what} ({}): {}", text::integer(it.count), it.detail)))
                }
                @if let Some(more) = more { (lost(&more)) }
                @if let Some(overhead) = &run.overhead { (price(overhead)) }
            }
            p.quiet {
                "A transfer is a line moving from one core's cache to another's. Sharing is false when the accesses do \
                 not touch the same bytes. Cost is thread time lost. "
                @if run.source.is_exact() {
                    "Transfers are those of a model of the caches. Costs are transfers times the latency measured \
                     beside the run; ranges reach from its lowest to its highest."
                } @else {
                    "Ranges are 90 % intervals."
                }
            }
        }
    }
}

/// What became of the samples.
fn samples(samples: &Samples) -> Markup {
    let reasons = contention::unknown_reasons(samples).join(", ");
    html! {
        (fact("Samples", &contention::samples_words(samples), "wide"))
        @if contention::unknown(samples) > 0 { (fact("Unknown because of", &reasons, "wide")) }
    }
}

/// What recording cost.
fn price(overhead: &Overhead) -> Markup {
    let watch_ns = match overhead.watch_ns > 0.0 {
        true => overhead.watch_ns,
        false => overhead.arm_ns + overhead.trap_ns,
    };
    let budget = format!(
        "{} estimated of {} allowed",
        text::percent(overhead.estimated),
        text::percent(overhead.budget)
    );
    let cost = format!(
        "{} a sample, {} a watch",
        text::nanoseconds(overhead.sample_ns),
        text::nanoseconds(watch_ns)
    );
    let rates = format!(
        "{} samples and {} watches a second",
        text::count(overhead.samples_per_second),
        text::count(overhead.watches_per_second)
    );
    let collector = format!(
        "{} of CPU time, {} of memory",
        text::nanoseconds(overhead.collector_cpu_ns as f64),
        text::bytes(overhead.collector_rss_bytes)
    );
    html! {
        (fact("Overhead", &budget, ""))
        (fact("Measured cost", &cost, ""))
        (fact("Rates", &rates, ""))
        (fact("Collector", &collector, ""))
    }
}

#[cfg(test)]
mod tests;
