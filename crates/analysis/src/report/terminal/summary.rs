//! What stands under the findings: the run, its threads, the samples and what they cost.

use super::super::model::{Report, Run, ThreadRow};
use super::super::{cells, contention, exact, sections};
use super::page::{Page, Tone};
use super::section;
use super::text;
use crate::section::bounded;
use crate::views::threads::sum_of_work;

/// Where the text beside the labels begins.
const INDENT: usize = 13;
/// Threads named in the line about threads.
const THREADS: usize = 6;

/// What was looked at when nothing was found, and what may still be there.
pub(super) fn nothing_found(page: &mut Page, report: &Report) {
    let looked = contention::looked_at(report);
    page.labelled("  looked at", INDENT, Tone::Dim, &looked);
    if let Some(share) = contention::contended_share(report) {
        let contended = format!(
            "{} of the sampled thread time is at lines that move between threads",
            text::percent(share)
        );
        page.labelled("  contended", INDENT, Tone::Dim, &contended);
    }
    let moved = contention::all_transfers(report, " in the whole run");
    page.labelled("  transfers", INDENT, Tone::Dim, &moved);
    page.blank();
    page.line(&[(Tone::Plain, "Not excluded:")]);
    for doubt in contention::not_excluded(report) {
        page.labelled("  -", 4, Tone::Dim, &doubt);
    }
}

/// Prints the summary.
pub(super) fn print(page: &mut Page, report: &Report) {
    // Without a finding the matrix holds nothing but noise.
    if !report.findings.is_empty() {
        section::print(page, &sections::of_sharing(report));
    }
    threads(page, &report.run);
    samples(page, report);
    losses(page, report);
    run(page, report);
}

fn threads(page: &mut Page, run: &Run) {
    let work = |thread: &ThreadRow| thread.work() as f64;
    let (shown, rest) = bounded(&run.threads, work, THREADS);
    let mut names: Vec<String> = shown
        .iter()
        .map(|t| {
            let safe = text::sanitise(&t.name);
            let work = cells::words(&t.work_cell());
            format!("{} {} {work}", text::shorten(&safe, 20), t.tid)
        })
        .collect();
    if let Some(sum) = sum_of_work(&rest) {
        names.push(format!("{} more {}", rest.len(), cells::words(&sum)));
    }
    let sum = contention::threads_words(run);
    page.labelled_in("threads", INDENT, Tone::Dim, Tone::Dim, &sum);
    for line in text::wrap_list(&names, page.width() - INDENT) {
        let gap = " ".repeat(INDENT);
        page.line(&[(Tone::Plain, &gap), (Tone::Dim, &line)]);
    }
}

fn samples(page: &mut Page, report: &Report) {
    let samples = &report.samples;
    if report.run.source.is_exact() {
        for (label, text) in exact::facts(report) {
            page.labelled_in(label, INDENT, Tone::Dim, Tone::Dim, &text);
        }
        return;
    }
    let mut text = contention::samples_words(samples);
    if contention::unknown(samples) > 0 {
        let reasons = contention::unknown_reasons(samples);
        text += &format!(" ({})", reasons.join(", "));
    }
    page.labelled_in("samples", INDENT, Tone::Dim, Tone::Dim, &text);
}

fn losses(page: &mut Page, report: &Report) {
    let (losses, more) = contention::losses(report);
    for (what, lost) in losses {
        let text = match lost.detail.as_str() {
            "" => format!("{what}: {}", text::integer(lost.count)),
            detail => format!("{what} ({}): {detail}", text::integer(lost.count)),
        };
        page.labelled("lost", INDENT, Tone::Warning, &text);
    }
    if let Some(more) = more {
        page.labelled("lost", INDENT, Tone::Warning, &more);
    }
}

fn run(page: &mut Page, report: &Report) {
    let run = &report.run;
    if let Some(overhead) = &run.overhead {
        let text = format!(
            "{} estimated of {} allowed",
            text::percent(overhead.estimated),
            text::percent(overhead.budget),
        );
        page.labelled_in("overhead", INDENT, Tone::Dim, Tone::Dim, &text);
    }
    let text = contention::round_trip(run);
    page.labelled_in("round trip", INDENT, Tone::Dim, Tone::Dim, &text);
    let text = format!("{}: {}", run.source, run.source_reason);
    page.labelled_in("source", INDENT, Tone::Dim, Tone::Dim, &text);
    page.labelled_in("machine", INDENT, Tone::Dim, Tone::Dim, &run.machine);
    if let Some(text) = contention::ending(run) {
        page.labelled("ended", INDENT, Tone::Warning, &text);
    }
}
