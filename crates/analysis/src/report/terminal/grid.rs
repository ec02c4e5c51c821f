//! Who has how much to do with whom: a matrix of a few, of many the pairs with the most.

use super::super::cells;
use super::page::{Page, Tone};
use super::text;
use crate::section::{Grid, Grids};

/// Parties that a matrix is printed for.
const MATRIX: usize = 8;
/// Pairs that are listed of more.
const PAIRS: usize = 5;
/// Columns of a party: in a matrix, and in a list.
const LABEL: usize = 32;
const LISTED: usize = 24;

/// Prints the first of them.
pub(super) fn print(page: &mut Page, grids: &Grids) {
    let Some(grid) = grids.grids.first() else {
        return;
    };
    let head = format!("{} between {}", grids.quantity, grid.title.to_lowercase());
    page.line(&[(Tone::Dim, &head)]);
    match grid.parties.len() {
        0..=MATRIX => matrix(page, grid),
        _ => list(page, grid, grids.unit),
    }
}

fn list(page: &mut Page, grid: &Grid, unit: &str) {
    let (shown, more) = cells::pairs(grid, unit, PAIRS);
    for pair in shown {
        let [a, b] = [pair.a, pair.b].map(|at| cells::party(&grid.parties[at], LISTED));
        let sum = text::count(pair.sum());
        page.line(&[(Tone::Plain, format!("  {sum:>7}  {a} and {b}"))]);
    }
    if let Some(more) = more {
        page.line(&[(Tone::Plain, "  "), (Tone::Dim, &format!("and {more}"))]);
    }
}

fn matrix(page: &mut Page, grid: &Grid) {
    let size = grid.parties.len();
    let mut cells = vec![vec![String::new(); size]; size];
    for pair in &grid.pairs {
        let value = text::count(pair.sum()).replace(' ', "");
        cells[pair.a][pair.b].clone_from(&value);
        cells[pair.b][pair.a] = value;
    }
    let heads: Vec<String> = grid.parties.iter().map(cells::short_party).collect();
    let widths = heads.iter().chain(cells.iter().flatten()).map(String::len);
    let widest = widths.max().unwrap_or(0);
    let gap = match (widest + 2) * size + 18 <= page.width() {
        true => 2,
        false => 1,
    };
    let column = widest + gap;
    let room = page.width().saturating_sub(2 + column * size).min(LABEL);
    let label = |party| cells::party(party, room);
    let labels: Vec<String> = grid.parties.iter().map(label).collect();
    let label_width = labels.iter().map(|l| text::width(l)).max().unwrap_or(0);
    let heads: Vec<String> = heads.iter().map(|it| format!("{it:>column$}")).collect();
    let head = " ".repeat(2 + label_width) + &heads.concat();
    page.line(&[(Tone::Dim, &head)]);
    for (i, label) in labels.iter().enumerate() {
        let gap = " ".repeat(label_width - text::width(label));
        let mut spans = vec![(Tone::Plain, format!("  {label}{gap}"))];
        for (j, cell) in cells[i].iter().enumerate() {
            spans.push(match (i == j, cell.as_str()) {
                (true, _) => (Tone::Dim, format!("{:>column$}", "-")),
                (_, "") => (Tone::Dim, format!("{:>column$}", "0")),
                (_, value) => (Tone::Plain, format!("{value:>column$}")),
            });
        }
        page.line(&spans);
    }
}
