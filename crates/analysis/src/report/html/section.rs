//! A section: its facts, its rows with a bar each, and its notes.

use std::fmt::Write as _;

use super::super::{cells, text};
use super::timeline;
use super::written::{Prose, Text, capital};
use crate::section::{Row, Section, Table};

/// Rows that are listed at once; the others are behind a click.
const OPEN: usize = 12;
/// Rows that are listed at all.
const ROWS: usize = 1_000;
/// Columns for which a table needs the whole page.
const WIDE: usize = 4;

/// Writes it.
pub(super) fn write(out: &mut String, section: &Section) {
    let _ = writeln!(
        out,
        "<section id=\"{}\">\n<h2>{}</h2>\n<div class=\"card\">",
        section.id,
        Text(section.title)
    );
    for fact in &section.facts {
        let _ = writeln!(out, "<p>{}.</p>", Text(&capital(&cells::sentence(fact))));
    }
    if let Some(charts) = &section.charts {
        timeline::write(out, charts);
    }
    if let Some(table) = &section.table {
        rows(out, table);
    }
    for note in &section.notes {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", Prose(note));
    }
    out.push_str("</div>\n</section>\n");
}

/// The first rows, and the others behind a click.
fn rows(out: &mut String, all: &Table) {
    let (mut shown, rest) = all.bounded(ROWS);
    let behind = match shown.len() > OPEN {
        true => shown.split_off(OPEN),
        false => Vec::new(),
    };
    let heaviest = all.rows.iter().map(|row| row.weight).fold(0.0, f64::max);
    if behind.is_empty() {
        shown.extend(&rest);
        table(out, all, &shown, heaviest);
        return;
    }
    table(out, all, &shown, heaviest);
    let more = all.rows.len() - shown.len();
    let _ = writeln!(
        out,
        "<details><summary>{}</summary>",
        text::plural(more as u64, &format!("more {}", all.noun))
    );
    let behind: Vec<&Row> = behind.into_iter().chain(&rest).collect();
    table(out, all, &behind, heaviest);
    out.push_str("</details>\n");
}

fn table(out: &mut String, table: &Table, rows: &[&Row], heaviest: f64) {
    let wide = table.heads.len() >= WIDE;
    if wide {
        out.push_str("<div class=\"scroll\">");
    }
    let class = if wide { "wide" } else { "threads" };
    let _ = write!(out, "<table class=\"{class}\"><thead><tr>");
    for (i, head) in table.heads.iter().enumerate() {
        let class = if i == 0 { "" } else { " class=\"number\"" };
        let _ = write!(out, "<th{class}>{}</th>", Text(&capital(head.words)));
    }
    out.push_str("<th><span class=\"unseen\">Bar</span></th></tr></thead>\n<tbody>\n");
    for row in rows {
        let (name, others) = cells::of_row(row);
        let _ = write!(out, "<tr><td class=\"name\">{}</td>", Text(&name));
        for cell in &others {
            let _ = write!(out, "<td class=\"number\">{}</td>", Text(cell));
        }
        let share = (row.weight / heaviest.max(1.0)).clamp(0.0, 1.0);
        let _ = writeln!(
            out,
            "<td class=\"bar\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect class=\"fill\" width=\"{:.2}\" height=\"8\"/></svg></td></tr>",
            share * 100.0,
        );
    }
    out.push_str("</tbody></table>");
    out.push_str(if wide { "</div>\n" } else { "\n" });
}
