//! Who allocates how much, of a program that allocates a lot and whose every block was told of.

use super::super::model::{HeapTotals, Report};
use super::page::{Page, Tone};
use super::text;
use super::types::pad;

/// Blocks below which nothing is said.
const FEW: f64 = 10_000.0;
/// Rows.
const ROWS: usize = 6;
/// A site below this share of the bytes is not listed.
const SLIGHT: f64 = 0.02;
/// Columns of a name.
const NAME: usize = 28;

/// Prints it.
pub(super) fn print(page: &mut Page, report: &Report) {
    let told = |heap: &&HeapTotals| heap.exact && heap.blocks >= FEW;
    let Some(heap) = report.heap.as_ref().filter(told) else {
        return;
    };
    let cells = |cells: [&str; 4]| {
        let [bytes, blocks, live, peak] = cells;
        format!("{bytes:>12}{blocks:>12}{live:>14}{peak:>12}")
    };
    let head = cells(["allocated", "blocks", "at the end", "peak"]);
    page.line(&[(
        Tone::Dim,
        format!("{}{head}", pad("heap, by who allocates", NAME)),
    )]);
    let bytes = |count: f64| text::bytes(count as u64);
    let sites = heap.sites.iter();
    for row in sites
        .filter(|row| row.bytes >= SLIGHT * heap.bytes)
        .take(ROWS)
    {
        let name = match row.name.as_str() {
            "" => "(an unknown place)",
            name => name,
        };
        let cells = cells([
            &bytes(row.bytes),
            &text::count(row.blocks),
            &bytes(row.live_bytes),
            &bytes(row.peak_bytes),
        ]);
        page.line(&[(Tone::Plain, format!("  {}{cells}", pad(name, NAME - 2)))]);
    }
    let all = format!(
        "{} in {} blocks, {} of them there at the end",
        bytes(heap.bytes),
        text::count(heap.blocks),
        bytes(heap.live_bytes)
    );
    page.line(&[(Tone::Dim, format!("  {all}"))]);
    page.blank();
}

#[cfg(test)]
mod tests {
    use super::super::super::model::{AllocationSite, HeapTotals};
    use super::super::super::sample;
    use super::super::{TerminalOptions, render};

    #[test]
    fn who_allocates_is_told_on_lines_of_80_columns_where_it_was_counted() {
        let mut report = sample::everyday();
        let site = AllocationSite {
            name: "Table::make_node(Node*)".to_owned(),
            blocks: 10e6,
            bytes: 480e6,
            live_bytes: 320e6,
            peak_bytes: 470e6,
            ..AllocationSite::default()
        };
        report.heap = Some(HeapTotals {
            exact: true,
            blocks: 10e6,
            bytes: 480e6,
            sites: vec![site],
            ..HeapTotals::default()
        });
        let options = TerminalOptions {
            width: 80,
            colour: false,
            ..TerminalOptions::default()
        };
        let text = render(&report, &options);
        let line = text.lines().find(|line| line.contains("make_node("));
        let told = "  Table::make_node(Node*)         480 MB        10 M        320 MB      470 MB";
        assert_eq!(line, Some(told));
        report.heap.as_mut().unwrap().exact = false;
        assert!(!render(&report, &options).contains("make_node("));
    }
}
