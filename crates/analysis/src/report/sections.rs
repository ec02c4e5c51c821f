//! What is shown as sections, in the order of the page.

use super::model::Report;
use crate::section::Section;
use crate::views::threads;

/// The sections of a report.
pub(crate) fn of(report: &Report) -> Vec<Section> {
    let mut sections = report.views.sections();
    sections.extend(threads::section(&report.run.threads));
    sections
}
