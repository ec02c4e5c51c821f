//! How the values of a section are written, in every form.

use super::text;
use crate::section::{Cell, Row};

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
