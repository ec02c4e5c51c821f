//! How the values of a section are written, in every form.

use super::text;
use crate::section::{Cell, Grid, Pair, Party, Row, bounded};

/// A value as it is written; names as they are, to be made harmless by who prints them.
pub(crate) fn words(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => text::count(*count),
        Cell::Id(id) => id.to_string(),
        Cell::Bytes(bytes) => text::bytes(*bytes as u64),
        Cell::Time(ns) => text::nanoseconds(*ns),
        Cell::Share(share) => text::percent(*share),
    }
}

/// A fact: its words and values one behind the other.
pub(crate) fn sentence(cells: &[Cell]) -> String {
    cells.iter().map(words).collect()
}

/// The cells of a row: its name, and the others.
pub(crate) fn of_row(row: &Row) -> (String, Vec<String>) {
    let mut cells = row.cells.iter().map(words);
    (cells.next().unwrap_or_default(), cells.collect())
}

/// A party of a grid in about so many columns.
pub(crate) fn party(party: &Party, columns: usize) -> String {
    let safe = text::sanitise(&party.name);
    let Some(id) = party.id.map(|id| id.to_string()) else {
        return safe.into_owned();
    };
    let room = columns.saturating_sub(id.len() + 1);
    format!("{} {id}", text::shorten(&safe, room))
}

/// What stands above a column of a grid.
pub(crate) fn short_party(party: &Party) -> String {
    party.id.map_or(party.name.clone(), |id| id.to_string())
}

/// The pairs that are shown where there is room for `most`, and words for the others: `394 more pairs, 1.2 M a second`.
pub(crate) fn pairs<'a>(
    grid: &'a Grid,
    unit: &str,
    most: usize,
) -> (Vec<&'a Pair>, Option<String>) {
    let (shown, rest) = bounded(&grid.pairs, Pair::sum, most);
    let sum: f64 = rest.iter().map(|pair| pair.sum()).sum();
    let pairs = text::plural(rest.len() as u64, "more pair");
    let words = format!("{pairs}, {}{unit}", text::count(sum));
    (shown, (!rest.is_empty()).then_some(words))
}
