//! What is shown as sections, in the order of the page.

use super::model::Report;
use super::pairs;
use crate::section::Section;
use crate::views::{threads, timeline};

/// Who shares with whom.
pub(crate) fn of_sharing(report: &Report) -> Section {
    pairs::section(report)
}

/// What stands before the views on the page.
pub(crate) fn of_run(report: &Report) -> Option<Section> {
    timeline::section(&report.timeline)
}

/// The views and what follows them.
pub(crate) fn of(report: &Report) -> Vec<Section> {
    let mut sections = report.views.sections();
    sections.extend(threads::section(&report.run.threads));
    sections
}
