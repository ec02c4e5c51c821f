//! A comparison of two recordings as one self-contained HTML file.

use maud::{Markup, html};

use super::document::document;
use super::section;
use super::written::{self, Name};
use crate::diff::{Change, Diff, Verdict, View};
use crate::report::{difference, sections};

/// Rows that are written out; the JSON has them all.
const ROWS: usize = 2_000;

/// The comparison as an HTML document.
#[must_use]
pub fn render(diff: &Diff) -> String {
    let (noise, real): (Vec<&Change>, Vec<&Change>) = diff
        .changes
        .iter()
        .take(ROWS)
        .partition(|change| change.verdict == Verdict::Noise);
    let body = html! {
        header {
            p.brand { "linewise diff" }
            h1 { (difference::verdict(diff)) }
            (section::terms(&sections::of_diff(diff).terms))
        }
        main {
            (part("changes", "More than noise", &real))
            (part("noise", "Within the noise", &noise))
        }
        footer { p.quiet { (difference::test(diff)) } }
    };
    document(&format!("before and after: {}", diff.after.command), body)
}

fn part(id: &str, title: &str, changes: &[&Change]) -> Markup {
    if changes.is_empty() {
        return html! {};
    }
    let of_view = |changes: &[&Change]| {
        html! { @if let Some(first) = changes.first() { (table(first.view, changes)) } }
    };
    let views = changes.chunk_by(|a, b| a.view == b.view);
    written::section(
        id,
        title,
        html! { @for changes in views { (of_view(changes)) } },
    )
}

fn table(view: View, changes: &[&Change]) -> Markup {
    let heads = html! {
        th {} th { "What" } th.number { "Before" } th.number { "After" } th.number { "z" }
    };
    let row = |change: &Change| {
        let side = |side| {
            let value = difference::value(side, change.unit);
            match difference::interval(side, change.unit) {
                interval if interval.is_empty() => value,
                interval => format!("{value} ({interval})"),
            }
        };
        let word = match change.verdict {
            Verdict::Noise => "",
            other => other.word(),
        };
        html! {
            td { (word) }
            td.name { (Name(&difference::what(change))) }
            td.number { (side(change.before)) }
            td.number { (side(change.after)) }
            td.number { (format_args!("{:.1}", change.z)) }
        }
    };
    html! {
        h3 { (difference::title(view)) }
        (written::table("wide", heads, html! { @for change in changes { tr { (row(change)) } } }))
    }
}
