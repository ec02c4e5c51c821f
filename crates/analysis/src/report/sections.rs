//! What is shown as sections, in the order of the page.

use super::model::Report;
use super::{contention, pairs, terms};
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

/// The views, those that say most first: the one that the headline speaks of, if it is of one.
pub(crate) fn of_views(report: &Report) -> Vec<Section> {
    let mut sections = report.views.sections();
    let polls = sections.iter().position(|section| section.id == "polls");
    let polls = polls.filter(|_| contention::is_polling(report).is_some());
    if let Some(before) = polls.and_then(|at| sections.get_mut(..=at)) {
        before.rotate_right(1);
    }
    sections
}

/// Who ran for how long.
pub(crate) fn of_threads(report: &Report) -> Option<Section> {
    threads::section(&report.run.threads)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::views::hot::HotFunction;
    use crate::views::polls::Poll;

    #[test]
    fn polling_comes_first_only_where_the_headline_speaks_of_it() {
        let first = |report: &Report| of_views(report).first().map(|it| it.id);
        let mut report = sample::quiet();
        let share = |share| Poll {
            share,
            ..Poll::default()
        };
        report.views.hot = Some(vec![HotFunction::default()]);
        report.views.polls = Some(vec![share(0.75)]);
        let hot = report.views.sections().first().map(|it| it.id);
        assert_ne!(hot, Some("polls"));
        assert_eq!(first(&report), Some("polls"));
        report.views.polls = Some(vec![share(0.05)]);
        assert_eq!(first(&report), hot);
        report.views.polls = Some(vec![share(0.75)]);
        report.findings = sample::everyday().findings;
        assert_eq!(first(&report), hot);
    }
}
