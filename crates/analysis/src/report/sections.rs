//! What is shown as sections, in the order of the page.

use super::model::Report;
use crate::section::Section;
use crate::views::{threads, timeline};

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
