//! The report for a terminal: what was found first, what it rests on last.

mod diff;
mod finding;
mod flow;
mod grid;
mod groups;
mod line_drawing;
mod locality;
mod page;
mod section;
mod summary;
mod types;

use super::model::Report;
use super::{contention, sections, text};
pub use diff::render as render_diff;
pub use groups::render_groups;
use page::{MIN_WIDTH, Page, Tone};

/// How to print a report on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns of the terminal. At least 80 and at most 120 are used: a line drawn byte by byte
    /// needs the one, and nobody likes to read prose wider than the other.
    pub width: usize,
    /// Whether to send colours.
    pub colour: bool,
    /// How many findings to print in full; the rest are counted.
    pub top: usize,
    /// Whether to print all that is known instead of what a reader acts on.
    pub verbose: bool,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            top: 5,
            verbose: false,
        }
    }
}

/// Columns that are used at most.
const MAX_WIDTH: usize = 120;

/// The report as text. No line is wider than `options.width` (or 80, if that is more), and nothing
/// in a name of the program reaches the terminal as a control character.
#[must_use]
pub fn render(report: &Report, options: &TerminalOptions) -> String {
    let width = options.width.clamp(MIN_WIDTH, MAX_WIDTH);
    let mut page = Page::new(width, options.colour).in_full(options.verbose);
    section::terms(&mut page, &sections::of_head(report).terms);
    if !page.is_empty() {
        page.blank();
    }
    verdict(&mut page, report);
    summary::little_seen(&mut page, report);
    for finding in report.findings.iter().take(options.top) {
        page.blank();
        finding::print(&mut page, finding, report.run.duration_ns);
    }
    let rest = report.findings.iter().skip(options.top);
    if let Some(dearest) = rest.clone().next() {
        page.blank();
        let more = text::plural(rest.count() as u64, "more finding");
        let most = text::percent(dearest.cost.share);
        page.line(&[(
            Tone::Dim,
            &format!("{more}, each at most {most} of thread time: see --top, --html or --json"),
        )]);
    }
    page.blank();
    for shown in &sections::of_views(report) {
        section::print(&mut page, shown);
    }
    if report.findings.is_empty() {
        summary::nothing_found(&mut page, report);
        page.blank();
    }
    types::print(&mut page, report);
    flow::print(&mut page, report);
    locality::print(&mut page, report);
    summary::print(&mut page, report);
    page.finish()
}

/// One line: how many findings, of what.
fn verdict(page: &mut Page, report: &Report) {
    let found = match report.findings.len() as u64 {
        0 => contention::nothing_found(report),
        n => text::plural(n, "finding"),
    };
    let length = text::nanoseconds(report.run.duration_ns as f64);
    let rest = format!(" in {length} of ");
    let command = text::sanitise(&report.run.command);
    let room = page
        .width()
        .saturating_sub(text::width(&found) + text::width(&rest));
    page.line(&[
        (Tone::Strong, &found),
        (Tone::Plain, &rest),
        (Tone::Plain, &text::shorten(&command, room).into_owned()),
    ]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{model::Report, sample};
    use super::*;

    fn plain(report: &Report) -> String {
        render(report, &TerminalOptions::default())
    }

    #[test]
    fn an_everyday_report_reads_like_this() {
        insta::assert_snapshot!(plain(&sample::everyday()));
    }

    #[test]
    fn a_data_profile_reads_like_this() {
        let mut report = sample::profiled();
        report.findings.clear();
        insta::assert_snapshot!(plain(&report));
    }

    #[test]
    fn a_report_without_findings_says_what_was_looked_at() {
        insta::assert_snapshot!(plain(&sample::quiet()));
    }

    #[test]
    fn an_exact_report_has_nothing_that_only_a_timer_knows() {
        insta::assert_snapshot!(plain(&sample::traced()));
    }

    #[test]
    fn sampled_reuse_says_what_it_rests_on_and_what_to_do() {
        let text = plain(&sample::with_reuse_times());
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        assert!(words.contains("480 sampled addresses watched"), "{text}");
        assert!(words.contains("6.0 % ended by a store"), "{text}");
        assert!(words.contains("4.0 % not seen to their end"), "{text}");
        assert!(words.contains("--rate-from"), "{text}");
        check(&sample::with_reuse_times(), 80);
    }

    #[test]
    fn costs_that_are_doubted_are_said_so_before_the_findings() {
        let mut report = sample::everyday();
        report.notes.clear();
        report.coverage.at_once = Some(0.01);
        let text = plain(&report);
        assert!(text.starts_with("note  Threads ran at once for 1.0 % of their time"));
        let before = text.split("2 findings").next().unwrap_or_default();
        assert!(
            before.contains("Costs may be too low") && before.ends_with("\n\n"),
            "{text}"
        );
    }

    #[test]
    fn a_run_that_was_too_short_says_so_first() {
        insta::assert_snapshot!(plain(&sample::too_short()));
    }

    #[test]
    fn a_crowd_of_threads_stays_readable() {
        let options = TerminalOptions {
            top: 1,
            ..TerminalOptions::default()
        };
        insta::assert_snapshot!(render(&sample::crowd(500), &options));
    }

    #[test]
    fn colours_are_the_only_controls_and_only_when_asked_for() {
        let report = sample::hostile();
        assert!(!plain(&report).contains('\u{1b}'));
        let coloured = render(
            &report,
            &TerminalOptions {
                colour: true,
                ..TerminalOptions::default()
            },
        );
        assert!(coloured.contains('\u{1b}'));
        assert_eq!(strip_colours(&coloured), plain(&report));
    }

    #[test]
    fn hostile_names_neither_break_the_width_nor_reach_the_terminal() {
        check(&sample::hostile(), 80);
    }

    #[test]
    fn long_lists_end_with_one_row_for_what_is_next_to_nothing() {
        let report = sample::many_rows(300);
        check(&report, 80);
        let text = plain(&report);
        let text: Vec<&str> = text.split_whitespace().collect();
        let text = text.join(" ");
        assert!(text.contains("and 300 more 300 µs"), "threads: {text}");
        assert!(text.contains("lost and 300 more (300)"), "losses: {text}");
        assert!(text.contains("and 302 more 719"), "reasons: {text}");
        assert!(text.contains("and 300 more 0.03 %"), "types: {text}");
        assert!(
            !text.contains("slight_") && !text.contains("idle-"),
            "{text}"
        );
    }

    /// Removes `ESC [ digits m` and nothing else.
    fn strip_colours(text: &str) -> String {
        let mut parts = text.split("\u{1b}[");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (code, rest) = part.split_once('m').expect("a colour ends with m");
            assert!(code.chars().all(|c| c.is_ascii_digit() || c == ';'));
            out.push_str(rest);
        }
        out
    }

    fn check(report: &Report, width: usize) {
        let options = TerminalOptions {
            width,
            colour: false,
            top: 100,
            verbose: true,
        };
        for line in render(report, &options).lines() {
            assert!(text::width(line) <= width.max(80), "too wide: {line}");
            assert!(
                line.chars().all(linewise_foreign::is_safe),
                "control in {line:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_name_and_no_number_breaks_the_page(
            name in any::<String>(),
            number in any::<f64>(),
            offset in any::<u32>(),
            size in any::<u32>(),
            width in 0usize..200,
        ) {
            let mut report = sample::everyday();
            report.run.command.clone_from(&name);
            report.run.machine.clone_from(&name);
            report.run.source_reason.clone_from(&name);
            report.run.threads[0].name.clone_from(&name);
            report.notes.push(name.clone());
            report.run.round_trip_ns = Some(number);
            report.sharing.matrix.true_sharing[1][2] = number;
            report.sharing.transfers.interval.high = number;
            report.sharing.matrix.false_sharing.pop();
            let finding = &mut report.findings[0];
            finding.object.name.clone_from(&name);
            finding.object.type_name.clone_from(&name);
            finding.cost.share = number;
            finding.transfers = number;
            finding.change_source.clone_from(&name);
            finding.lines[0].size = size;
            finding.lines[0].fields[0].offset = offset;
            finding.lines[0].fields[1].size = size;
            finding.lines[0].fields[1].path.clone_from(&name);
            finding.accesses[0].function.clone_from(&name);
            finding.accesses[0].offset = offset;
            finding.accesses[1].thread_name.clone_from(&name);
            finding.accesses[1].share = number;
            check(&report, width);
            report.findings.clear();
            check(&report, width);
        }
    }
}
