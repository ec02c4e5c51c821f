//! The report as one self-contained HTML file.
//!
//! It is written whole by this module, so that it can be read without its script, which only adds
//! comfort. Nothing is loaded: the content policy forbids all but the one style sheet and the one
//! script of the file, which it names by their hashes. That also forbids `style` attributes, so
//! sizes are table spans or SVG attributes, and colours are classes.
//!
//! All markup is made by `html!`, which escapes what is put into it. `document` then shows what a
//! reader could not see, so that nobody who writes a section needs to think of either.

mod caches;
mod calls;
mod chart;
mod code;
mod curve;
mod diff;
mod document;
mod finding;
mod flow;
mod grid;
mod groups;
mod prefetch;
mod reuse;
mod section;
mod timeline;
mod types;
mod written;

use maud::{Markup, html};

use super::model::Report;
use super::{contention, sections, text};
use crate::details::Details;
pub use diff::render as render_diff;
use document::document;
pub use groups::render_groups;
use written::{Name, Prose};

/// Findings that are written out; the JSON report has them all.
const FINDINGS: usize = 50;

/// The report as an HTML document.
#[must_use]
pub fn render(report: &Report) -> String {
    render_with(report, &Details::default())
}

/// The same with what only a page has room for.
#[must_use]
pub fn render_with(report: &Report, details: &Details) -> String {
    let calls = details.calls.as_ref();
    let threads = calls.map_or(&[][..], |it| it.threads.as_slice());
    let body = html! {
        (header(report))
        main {
            @if !report.findings.is_empty() { (findings(report)) }
            @for shown in sections::of_views(report) { (section::section(&shown)) }
            @if report.findings.is_empty() { (nothing_found(report)) }
            (section::section(&sections::of_sharing(report)))
            @if let Some(shown) = sections::of_run(report, threads) { (section::section(&shown)) }
            @if let Some(calls) = calls { (calls::section(calls)) }
            (code::section(&details.code))
            (types::section(report))
            (flow::section(report))
            (caches::section(report))
            (reuse::section(report))
            (curve::section(report))
            (prefetch::section(report))
            @if let Some(shown) = sections::of_threads(report) { (section::section(&shown)) }
        }
        (footer(report))
    };
    document(&report.run.command, body)
}

fn header(report: &Report) -> Markup {
    html! {
        header {
            p.brand { "linewise" }
            h1 { (verdict(report)) }
            (section::terms(&sections::of_head(report).terms))
            @if report.findings.is_empty() {
                @let little = contention::little_seen(report);
                @if !little.is_empty() { p.note { b { "Too little" } " " (little.join("; ")) } }
            }
        }
    }
}

/// The whole report in a sentence.
fn verdict(report: &Report) -> Markup {
    let Some(first) = report.findings.first() else {
        return html! { (contention::nothing_found(report)) };
    };
    let title = contention::object_title(first);
    let name = text::sanitise(&title);
    let more = report.findings.len() as u64 - 1;
    html! {
        (finding::kind_words(first.kind)) " of " (text::shorten(&name, 100))
        " costs " (text::percent(first.cost.share)) " of thread time"
        @if more > 0 { ", and " a href="#others" { (text::plural(more, "more finding")) } }
    }
}

fn findings(report: &Report) -> Markup {
    let rest = report.findings.len().saturating_sub(FINDINGS) as u64;
    html! {
        section #findings {
            h2.unseen { "Findings" }
            @for (i, finding) in report.findings.iter().take(FINDINGS).enumerate() {
                @if i == 1 { (others(report)) }
                (finding::card(finding, report))
            }
            @if rest > 0 { p.quiet { (text::plural(rest, "more finding")) " in the JSON report." } }
        }
    }
}

/// The findings behind the first in a line each, to go to.
fn others(report: &Report) -> Markup {
    html! {
        nav #others.contents aria-label="More findings" {
            ol start="2" {
                @for finding in report.findings.iter().take(FINDINGS).skip(1) {
                    li {
                        a href={ "#finding-" (finding.rank) } {
                            (text::percent(finding.cost.share)) " " (finding::kind_words(finding.kind)) " of "
                            code { (Name(&contention::object_title(finding))) }
                        }
                    }
                }
            }
        }
    }
}

fn nothing_found(report: &Report) -> Markup {
    let card = html! {
            p {
                "Looked at " (contention::looked_at(report)) "."
                @if let Some(share) = contention::contended_share(report) {
                    " " (text::percent(share))
                    " of the sampled thread time is at lines that move between threads."
                }
            }
            p { "Transfers: " (contention::all_transfers(report, " in the whole run")) "." }
            p { "Not excluded:" }
            ul { @for doubt in contention::not_excluded(report) { li { (Prose(&doubt)) } } }
    };
    written::section("findings", "What was looked at", card)
}

fn footer(report: &Report) -> Markup {
    let basis = sections::of_basis(report);
    html! {
        footer {
            h2 { (basis.title) }
            (section::terms(&basis.terms))
            p.quiet {
                "Cost is thread time lost. "
                @if report.run.source.is_exact() {
                    "Transfers are those of a model of the caches. Costs are transfers times the latency measured \
                     beside the run; ranges reach from its lowest to its highest."
                } @else {
                    "Ranges are 90 % intervals."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
