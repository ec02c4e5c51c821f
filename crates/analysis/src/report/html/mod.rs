//! The report as one self-contained HTML file.
//!
//! It is written whole by this module, so that it can be read without its script, which only adds
//! comfort. Nothing is loaded: the content policy forbids all but the one style sheet and the one
//! script of the file, which it names by their hashes. That also forbids `style` attributes, so
//! sizes are table spans or SVG attributes, and colours are classes. Whatever comes from the
//! measured program is escaped by [`Text`].

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

use std::fmt::Write as _;

use base64::Engine as _;
use linewise_recording::Overhead;
use sha2::Digest as _;

use super::model::{Interval, Report, Samples};
use super::{contention, exact, sections, text};
pub use diff::render as render_diff;
use written::{Prose, Text, capital, fact, percent};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Findings that are written out; the JSON report has them all.
const FINDINGS: usize = 50;

/// The report as an HTML document.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::with_capacity(64 * 1024);
    head(&mut out, &report.run.command);
    out.push_str("<body>\n");
    header(&mut out, report);
    out.push_str("<main>\n");
    findings(&mut out, report);
    matrix::write(&mut out, report);
    if let Some(shown) = sections::of_run(report) {
        section::write(&mut out, &shown);
    }
    types::write(&mut out, report);
    flow::write(&mut out, report);
    caches::write(&mut out, report);
    reuse::write(&mut out, report);
    curve::write(&mut out, report);
    prefetch::write(&mut out, report);
    for shown in sections::of(report) {
        section::write(&mut out, &shown);
    }
    out.push_str("</main>\n");
    footer(&mut out, report);
    let _ = write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

/// The hash by which a content policy allows an inline element.
fn policy_hash(content: &str) -> String {
    let hash = sha2::Sha256::digest(content.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("'sha256-{hash}'")
}

fn head(out: &mut String, title: &str) {
    let (style, script) = (policy_hash(STYLE), policy_hash(SCRIPT));
    let title = text::sanitise(title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>linewise: {}</title>\n<style>{STYLE}</style>\n</head>\n",
        Text(&text::shorten(&title, 80)),
    );
}

fn header(out: &mut String, report: &Report) {
    let run = &report.run;
    let _ = write!(
        out,
        "<header>\n<p class=\"brand\">linewise</p>\n<h1>{}</h1>\n",
        Text(&verdict(report))
    );
    for note in &report.notes {
        let _ = writeln!(out, "<p class=\"note\"><b>Note</b> {}</p>", Prose(note));
    }
    if let Some(ending) = contention::ending(run) {
        let _ = writeln!(
            out,
            "<p class=\"note\"><b>Ended</b> {}</p>",
            Text(&sentence(&ending))
        );
    }
    out.push_str("<dl class=\"facts\">\n");
    fact(out, "Command", &run.command, "wide code");
    fact(
        out,
        "Recorded",
        &text::nanoseconds(run.duration_ns as f64),
        "",
    );
    fact(out, "Threads", &contention::threads_words(run), "");
    fact(out, "Transfers", &transfers(report), "");
    fact(out, "Round trip", &contention::round_trip(run), "");
    fact(out, "Machine", &run.machine, "wide");
    out.push_str("</dl>\n</header>\n");
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

fn sentence(text: &str) -> String {
    capital(text) + "."
}

fn transfers(report: &Report) -> String {
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let falsely = transfers.false_sharing / all;
    let split = (all > 0.0).then(|| contention::split(falsely, Interval::exactly(falsely)));
    let of_what = split.map_or(String::new(), |split| format!(", {split}"));
    contention::all_transfers(report, &of_what)
}

fn findings(out: &mut String, report: &Report) {
    out.push_str("<section id=\"findings\">\n<h2>Findings</h2>\n");
    if report.findings.is_empty() {
        nothing_found(out, report);
    }
    for finding in report.findings.iter().take(FINDINGS) {
        finding::write(out, finding, report);
    }
    let rest = report.findings.len().saturating_sub(FINDINGS) as u64;
    if rest > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">{} in the JSON report.</p>",
            text::plural(rest, "more finding")
        );
    }
    out.push_str("</section>\n");
}

fn nothing_found(out: &mut String, report: &Report) {
    out.push_str("<div class=\"card\">\n<p>");
    let _ = write!(out, "Looked at {}.", Text(&contention::looked_at(report)));
    if let Some(share) = contention::contended_share(report) {
        let _ = write!(
            out,
            " {} of the sampled thread time is at lines that move between threads.",
            percent(share)
        );
    }
    out.push_str("</p>\n<p>Not excluded:</p>\n<ul>\n");
    for doubt in contention::not_excluded(report) {
        let _ = writeln!(out, "<li>{}</li>", Text(&doubt));
    }
    out.push_str("</ul>\n</div>\n");
}

fn footer(out: &mut String, report: &Report) {
    out.push_str("<footer>\n<h2>What this rests on</h2>\n<dl class=\"facts\">\n");
    let source = format!("{}: {}", report.run.source, report.run.source_reason);
    fact(out, "Source", &source, "wide");
    if report.run.source.is_exact() {
        for (term, words) in exact::facts(report) {
            fact(out, &capital(term), &words, "");
        }
    } else {
        samples(out, &report.samples);
    }
    let (losses, more) = contention::losses(report);
    for (what, lost) in losses {
        let words = format!("{what} ({}): {}", text::integer(lost.count), lost.detail);
        fact(out, "Lost", &words, "wide lost");
    }
    if let Some(more) = more {
        fact(out, "Lost", &more, "wide lost");
    }
    if let Some(overhead) = &report.run.overhead {
        price(out, overhead);
    }
    out.push_str(
        "</dl>\n<p class=\"quiet\">A transfer is a line moving from one core's cache to another's. \
         Sharing is false when the accesses do not touch the same bytes. Cost is thread time lost. ",
    );
    out.push_str(if report.run.source.is_exact() {
        "Transfers are those of a model of the caches. Costs are transfers times the latency measured \
         beside the run; ranges reach from its lowest to its highest.</p>\n</footer>\n"
    } else {
        "Ranges are 90 % intervals.</p>\n</footer>\n"
    });
}

/// What became of the samples.
fn samples(out: &mut String, samples: &Samples) {
    fact(out, "Samples", &contention::samples_words(samples), "wide");
    if contention::unknown(samples) > 0 {
        let reasons = contention::unknown_reasons(samples).join(", ");
        fact(out, "Unknown because of", &reasons, "wide");
    }
}

/// What recording cost.
fn price(out: &mut String, overhead: &Overhead) {
    let words = format!(
        "{} estimated of {} allowed",
        text::percent(overhead.estimated),
        text::percent(overhead.budget)
    );
    fact(out, "Overhead", &words, "");
    let words = format!(
        "{} a sample, {} a watch",
        text::nanoseconds(overhead.sample_ns),
        text::nanoseconds(if overhead.watch_ns > 0.0 {
            overhead.watch_ns
        } else {
            overhead.arm_ns + overhead.trap_ns
        })
    );
    fact(out, "Measured cost", &words, "");
    let words = format!(
        "{} samples and {} watches a second",
        text::count(overhead.samples_per_second),
        text::count(overhead.watches_per_second)
    );
    fact(out, "Rates", &words, "");
    let words = format!(
        "{} of CPU time, {} of memory",
        text::nanoseconds(overhead.collector_cpu_ns as f64),
        text::bytes(overhead.collector_rss_bytes)
    );
    fact(out, "Collector", &words, "");
}

#[cfg(test)]
mod tests;
