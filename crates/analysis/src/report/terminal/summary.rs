//! What stands under the findings: the run, its threads, the samples and what they cost.

use super::super::model::{Report, Run, ThreadRow};
use super::super::{cells, contention, sections};
use super::page::{Page, Tone};
use super::section::{self, INDENT};
use super::text;
use crate::section::bounded;
use crate::views::threads::sum_of_work;

/// Threads named in the line about threads.
const THREADS: usize = 6;

/// What was seen too little of, where nothing was found.
pub(super) fn little_seen(page: &mut Page, report: &Report) {
    if report.findings.is_empty() {
        for little in contention::little_seen(report) {
            page.labelled("  because", INDENT, Tone::Warning, &little);
        }
    }
}

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
    section::terms(page, &sections::of_basis(report).terms);
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
