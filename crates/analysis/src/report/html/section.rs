//! A section: its facts, its rows with a bar each, and its notes.

use maud::{Markup, html};

use super::super::{cells, text};
use super::written::{self, Prose};
use super::{grid, timeline};
use crate::section::{Drawing, Row, Section, Shown, Table, Term, TermKind};

/// Rows that are listed at once; the others are behind a click.
const OPEN: usize = 12;
/// Rows that are listed at all.
const ROWS: usize = 1_000;
/// Columns for which a table needs the whole page.
const WIDE: usize = 4;

/// Any section, unless only the terminal has it.
pub(super) fn section(section: &Section) -> Markup {
    if section.shown == Shown::OnTerminal {
        return html! {};
    }
    let card = html! {
        @if !section.terms.is_empty() { (terms(&section.terms)) }
        @for fact in &section.facts { p { (text::capital(&cells::sentence(fact))) "." } }
        @match &section.drawing {
            Some(Drawing::Charts(charts)) => (timeline::charts(charts)),
            Some(Drawing::Grids(grids)) => (grid::grids(grids)),
            None => {},
        }
        @if let Some(table) = &section.table { (rows(table)) }
        @for note in &section.notes { p.quiet { (Prose(note)) } }
    };
    written::section(section.id, section.title, card)
}

/// The notes, and a list of the other terms, but for those that only the terminal has.
pub(super) fn terms(terms: &[Term]) -> Markup {
    let class = |term: &Term| match term.kind {
        TermKind::Short | TermKind::Note => "",
        TermKind::Long => "wide",
        TermKind::Code => "wide code",
        TermKind::Warning => "wide lost",
    };
    let shown = terms.iter().filter(|it| it.shown != Shown::OnTerminal);
    let (notes, facts): (Vec<&Term>, Vec<&Term>) = shown.partition(|it| it.kind == TermKind::Note);
    html! {
        @for it in notes { p.note { b { (text::capital(it.term)) } " " (Prose(&it.words)) } }
        dl.facts { @for it in facts { (written::fact(&text::capital(it.term), &it.words, class(it))) } }
    }
}

/// The first rows, and the others behind a click.
fn rows(all: &Table) -> Markup {
    let (shown, rest) = all.bounded(ROWS);
    let heaviest = all.rows.iter().map(|row| row.weight).fold(0.0, f64::max);
    let of = |rows: &[&Row]| table(all, rows, heaviest);
    if shown.len() <= OPEN {
        let shown: Vec<&Row> = shown.into_iter().chain(&rest).collect();
        return of(&shown);
    }
    let (first, others) = shown.split_at(OPEN);
    let behind: Vec<&Row> = others.iter().copied().chain(&rest).collect();
    let more = text::plural(
        (all.rows.len() - OPEN) as u64,
        &format!("more {}", all.noun),
    );
    html! {
        (of(first))
        (written::details(&more, false, of(&behind)))
    }
}

fn table(table: &Table, rows: &[&Row], heaviest: f64) -> Markup {
    let heads = html! {
        @for (i, head) in table.heads.iter().enumerate() {
            th class=[(i > 0).then_some("number")] { (text::capital(head.words)) }
        }
        th { span.unseen { "Bar" } }
    };
    let row = |row: &Row| {
        let (name, others) = cells::of_row(row);
        let share = (row.weight / heaviest.max(1.0)).clamp(0.0, 1.0);
        html! {
            td.name { (name) }
            @for cell in &others { td.number { (cell) } }
            td.bar {
                svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
                    rect.fill width=(format_args!("{:.2}", share * 100.0)) height="8" {}
                }
            }
        }
    };
    let rows = html! { @for it in rows { tr { (row(it)) } } };
    match table.heads.len() >= WIDE {
        true => written::table("wide", heads, rows),
        false => html! { table.threads { thead { tr { (heads) } } tbody { (rows) } } },
    }
}
