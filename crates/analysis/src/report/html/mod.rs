//! The report as one self-contained HTML file.
//!
//! It is written whole by this module, so that it can be read without its script, which only adds
//! comfort. Nothing is loaded: the content policy forbids all but the one style sheet and the one
//! script of the file, which it names by their hashes. That also forbids `style` attributes, so
//! sizes are table spans or SVG attributes, and colours are classes.
//!
//! All markup is made by `html!`, which escapes what is put into it. [`document`] then shows what a
//! reader could not see, so that nobody who writes a section needs to think of either.

mod caches;
mod chart;
mod curve;
mod diff;
mod finding;
mod flow;
mod matrix;
mod prefetch;
mod reuse;
mod section;
mod timeline;
mod types;
mod written;

use base64::Engine as _;
use linewise_recording::Overhead;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::Digest as _;

use super::model::{Interval, Report, Samples};
use super::{contention, exact, sections, text};
pub use diff::render as render_diff;
use written::{Prose, capital, fact};

// All that stands in a document without being escaped.
const STYLE: PreEscaped<&str> = PreEscaped(include_str!("report.css"));
const SCRIPT: PreEscaped<&str> = PreEscaped(include_str!("report.js"));
/// The end of a line of source. A plain one would be shown as one in a name is.
const NEW_LINE: PreEscaped<&str> = PreEscaped("&#10;");

/// Findings that are written out; the JSON report has them all.
const FINDINGS: usize = 50;

/// The report as an HTML document.
#[must_use]
pub fn render(report: &Report) -> String {
    let body = html! {
        (header(report))
        main {
            (findings(report))
            (matrix::section(report))
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

/// A document. What strangers named is in `title` and `body`, where characters that nobody can see, or that turn text
/// around, are shown as escapes.
fn document(title: &str, mut body: Markup) -> String {
    let title = text::sanitise(title);
    body.0 = text::sanitise(&body.0).into_owned();
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        policy_hash(STYLE.0),
        policy_hash(SCRIPT.0)
    );
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "linewise: " (text::shorten(&title, 80)) }
                style { (STYLE) }
            }
            body {
                (body)
                script { (SCRIPT) }
            }
        }
    };
    document.into_string()
}

/// The hash by which a content policy allows an inline element.
fn policy_hash(content: &str) -> String {
    let hash = sha2::Sha256::digest(content.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("'sha256-{hash}'")
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
