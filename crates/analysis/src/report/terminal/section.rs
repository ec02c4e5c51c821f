//! A section: its head, its heaviest rows, its facts and notes.

use super::super::cells;
use super::grid;
use super::page::{MIN_WIDTH, Page, Tone};
use super::text;
use super::types::pad;
use crate::section::{Drawing, Head, Section, Shown, Table, Term, TermKind};

/// Rows.
const ROWS: usize = 6;
/// Columns that a name takes at most, where there is room.
const LONGEST_NAME: usize = 60;

/// Columns of a term.
pub(super) const INDENT: usize = 13;
/// Columns of what stands before a note.
const NOTE: usize = 6;

/// Prints it, if it is for a terminal.
pub(super) fn print(page: &mut Page, section: &Section) {
    if section.shown == Shown::OnPage {
        return;
    }
    terms(page, &section.terms);
    match (&section.table, &section.drawing) {
        (Some(table), _) => rows(page, table),
        (None, Some(Drawing::Grids(grids))) => grid::print(page, grids),
        (None, _) => page.line(&[(Tone::Dim, text::sanitise(section.title))]),
    }
    for fact in &section.facts {
        for line in text::wrap(&cells::sentence(fact), page.width() - 2) {
            page.line(&[(Tone::Dim, format!("  {line}"))]);
        }
    }
    for note in &section.notes {
        page.labelled_in("", 2, Tone::Dim, Tone::Plain, note);
    }
    page.blank();
}

/// Terms and their words beside them, but for those that only the page has.
pub(super) fn terms(page: &mut Page, terms: &[Term]) {
    let in_full = page.is_in_full();
    let is_shown = |it: &&Term| match it.shown {
        Shown::OnPage => false,
        Shown::InFull => in_full,
        Shown::Everywhere | Shown::OnTerminal => true,
    };
    for it in terms.iter().filter(is_shown) {
        let (indent, label, tone) = match it.kind {
            TermKind::Note => (NOTE, Tone::Warning, Tone::Plain),
            TermKind::Warning => (INDENT, Tone::Warning, Tone::Plain),
            _ => (INDENT, Tone::Dim, Tone::Dim),
        };
        page.labelled_in(it.term, indent, label, tone, &it.words);
    }
}

fn rows(page: &mut Page, table: &Table) {
    let (shown, rest) = table.bounded(ROWS);
    let rows: Vec<(String, Vec<String>)> = (shown.into_iter().chain(&rest))
        .map(cells::of_row)
        .collect();
    let widths = widths(table, &rows, page.width());
    let Some((name_width, widths)) = widths.split_first() else {
        return;
    };
    let line =
        |page: &mut Page, tone: Tone, name: String, cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(widths).map(|(cell, width)| {
                let short = text::sanitise(cell);
                let short = text::shorten(&short, width.saturating_sub(1));
                let gap = width.saturating_sub(text::width(&short));
                format!("{:gap$}{short}", "")
            });
            page.line(&[(tone, name + &cells.collect::<String>())]);
        };
    let mut heads = table.heads.iter().map(|head| head.words);
    let name = pad(heads.next().unwrap_or_default(), *name_width);
    line(page, Tone::Dim, name, &mut heads);
    for (i, (name, others)) in rows.iter().enumerate() {
        let tone = match rest.is_some() && i + 1 == rows.len() {
            true => Tone::Dim,
            false => Tone::Plain,
        };
        let name = format!("  {}", pad(name, name_width - 2));
        line(page, tone, name, &mut others.iter().map(String::as_str));
    }
}

/// Columns of the terminal for each column of a table: what is there beyond the least goes to those that need it, first to
/// the names.
fn widths(table: &Table, rows: &[(String, Vec<String>)], room: usize) -> Vec<usize> {
    let mut spare = room.saturating_sub(MIN_WIDTH);
    let with_gap = |cell: &String| text::width(&text::sanitise(cell)) + 1;
    let needed = |at: usize| match at.checked_sub(1) {
        None => (rows.iter())
            .map(|(name, _)| (with_gap(name) + 2).min(LONGEST_NAME))
            .max(),
        Some(at) => rows
            .iter()
            .filter_map(|(_, others)| others.get(at).map(with_gap))
            .max(),
    };
    let widen = |(at, head): (usize, &Head)| {
        let more = needed(at)
            .unwrap_or(0)
            .saturating_sub(head.width)
            .min(spare);
        spare -= more;
        head.width + more
    };
    table.heads.iter().enumerate().map(widen).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::model::{
        AllocationSite, HeapTotals, Migrations, Poll, Report, ThreadMigrations,
    };
    use super::super::super::{html, json, sample};
    use super::super::{TerminalOptions, render};

    fn site(name: &str, bytes: f64) -> AllocationSite {
        AllocationSite {
            name: name.to_owned(),
            blocks: bytes / 48.0,
            bytes,
            live_bytes: bytes / 1.5,
            peak_bytes: bytes / 1.25,
            ..AllocationSite::default()
        }
    }

    fn heap(sites: Vec<AllocationSite>) -> HeapTotals {
        HeapTotals {
            exact: true,
            blocks: sites.iter().map(|site| site.blocks).sum(),
            bytes: sites.iter().map(|site| site.bytes).sum(),
            sites,
            ..HeapTotals::default()
        }
    }

    #[test]
    fn who_allocates_is_told_on_lines_of_80_columns_where_it_was_counted() {
        let mut report = sample::everyday();
        report.views.heap = Some(heap(vec![site("Table::make_node(Node*)", 480e6)]));
        let plain = |report: &Report| render(report, &TerminalOptions::default());
        let text = plain(&report);
        let line = text.lines().find(|line| line.contains("make_node("));
        let told = "  Table::make_node(Node*)         480 MB        10 M        320 MB      384 MB";
        assert_eq!(line, Some(told));
        assert!(html::render(&report).contains("Table::make_node(Node*)"));
        report.views.heap.as_mut().unwrap().exact = false;
        assert!(!plain(&report).contains("make_node("));
        assert!(!html::render(&report).contains("make_node("));
        assert!(json::render(&report).contains("make_node("));
    }

    #[test]
    fn of_hundreds_of_places_those_that_are_next_to_nothing_are_one_row() {
        let mut sites: Vec<AllocationSite> = (0..40)
            .map(|i| site(&format!("large_{i}"), 100e6))
            .collect();
        sites.extend((0..300).map(|i| site(&format!("small_{i}"), 48e3)));
        let mut report = sample::everyday();
        report.views.heap = Some(heap(sites));
        let text = render(&report, &TerminalOptions::default());
        let more = text.lines().find(|line| line.contains("and 334 more"));
        let told = "  and 334 more                    3.4 GB        71 M        2.3 GB";
        assert_eq!(more, Some(told));
        assert!(text.contains("large_5") && !text.contains("large_6"));
        let page = html::render(&report);
        assert!(
            page.contains("<td class=\"name\">and 300 more</td><td class=\"number\">14 MB</td>")
        );
        assert!(page.contains("large_39") && !page.contains("small_0"));
        assert!(json::render(&report).contains("small_299"));
    }

    #[test]
    fn a_wide_terminal_gives_its_columns_to_what_needs_them() {
        let mut report = sample::everyday();
        report.views.polls = Some(vec![Poll {
            word: "struct connection_pool.waiting_for_a_slot".to_owned(),
            function: "wait_for_a_free_connection".to_owned(),
            file: "pool.c".to_owned(),
            line: 41,
            share: 0.5,
            threads: 2,
            changed: None,
        }]);
        let rows = |width| {
            let options = TerminalOptions {
                width,
                ..TerminalOptions::default()
            };
            let text = render(&report, &options);
            let rows = text.lines().skip_while(|line| !line.starts_with("polled"));
            rows.take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let told = [
            "polled                                                               in               at    time threads",
            "  struct connection_pool.waiting_for_a_slot  wait_for_a_free_connection        pool.c:41    50 %       2",
        ];
        assert_eq!(rows(110), told);
        let narrow = rows(80).concat();
        assert!(
            narrow.contains("threads") && narrow.contains('…'),
            "{narrow}"
        );
    }

    #[test]
    fn migrations_are_in_every_form() {
        let row = ThreadMigrations {
            tid: 41_312,
            name: "worker-0".to_owned(),
            moves: 1_203,
            recorded_ns: 3_000_000_000,
            per_second: 401.0,
            ..ThreadMigrations::default()
        };
        let mut report = sample::everyday();
        report.views.migrations = Some(Migrations {
            moves: 1_203,
            per_second: 401.0,
            threads: vec![row],
            ..Migrations::default()
        });
        let text = render(&report, &TerminalOptions::default());
        let rows: Vec<&str> = (text
            .lines()
            .skip_while(|line| !line.starts_with("threads between")))
        .take(3)
        .collect();
        let told = [
            "threads between CPUs           id   moves  a second        mostly   longest on",
            "  worker-0                  41312   1.2 k       401                      CPU 0",
            "  1.2 k moves to another CPU, 401 a second",
        ];
        assert_eq!(rows, told);
        let page = html::render(&report);
        assert!(page.contains("<h2>CPU migrations</h2>"));
        assert!(page.contains("1.2 k moves to another CPU, 401 a second."));
        assert!(json::render(&report).contains("\"migrations\": {"));
    }
}
