//! What is shown as sections, in the order of the page.

use super::model::Report;
use super::{pairs, terms};
use crate::diff::Diff;
use crate::section::Section;
use crate::views::calls::SampledThread;
use crate::views::{threads, timeline};

/// What a reader must know first, and what was recorded.
pub(crate) fn of_head(report: &Report) -> Section {
    terms::head(report)
}

/// The same of a comparison.
pub(crate) fn of_diff(diff: &Diff) -> Section {
    terms::diff_head(diff)
}

/// What the report rests on.
pub(crate) fn of_basis(report: &Report) -> Section {
    terms::basis(report)
}

/// Who shares with whom.
pub(crate) fn of_sharing(report: &Report) -> Section {
    pairs::section(report)
}

/// What stands before the views on the page, with `threads` if those are known.
pub(crate) fn of_run(report: &Report, threads: &[SampledThread]) -> Option<Section> {
    timeline::section(&report.timeline, threads)
}

/// The views, those that say most first.
pub(crate) fn of_views(report: &Report) -> Vec<Section> {
    report.views.sections()
}

/// Who ran for how long.
pub(crate) fn of_threads(report: &Report) -> Option<Section> {
    threads::section(&report.run.threads)
}
