//! What every section is made of: names, prose, facts, tables.

use maud::{Markup, Render, html};

use super::super::text;
use crate::section::bounded;

/// Columns of a name.
const NAME: usize = 100;

/// Prose, in which names in backticks are set as code.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl Render for Prose<'_> {
    fn render(&self) -> Markup {
        let parts: Vec<&str> = self.0.split('`').collect();
        html! {
            @for (i, part) in parts.iter().enumerate() {
                // A last backtick without a partner is only a backtick.
                @match (i % 2 == 1, i + 1 == parts.len()) {
                    (false, _) => (part),
                    (true, false) => code { (part) },
                    (true, true) => { "`" (part) },
                }
            }
        }
    }
}

/// A name that may be endless (C++ has such): shortened, and in full where it is pointed at.
pub(super) struct Name<'a>(pub(super) &'a str);

impl Render for Name<'_> {
    fn render(&self) -> Markup {
        shortened(self.0, |shown| html! { (shown) })
    }
}

/// A name in a column of a table: a line may end behind `::`, a comma and the like, and nowhere else but
/// in what is longer than the column.
pub(super) struct Column<'a>(pub(super) &'a str);

impl Render for Column<'_> {
    fn render(&self) -> Markup {
        let parts = |name: &str| {
            let parts = name.split_inclusive("::");
            html! {
                @for part in parts.flat_map(|part| part.split_inclusive('<')) {
                    (part)
                    @if part.ends_with("::") || part.ends_with('<') { wbr; }
                }
            }
        };
        shortened(self.0, parts)
    }
}

/// `name` as `shown` writes as much of it as there is room for.
fn shortened(name: &str, shown: impl Fn(&str) -> Markup) -> Markup {
    let safe = text::sanitise(name);
    let short = text::shorten(&safe, NAME);
    match short == safe {
        true => shown(&safe),
        false => html! { span title=(safe) { (shown(&short)) } },
    }
}

/// A section of the page.
pub(super) fn section(id: &str, title: &str, card: Markup) -> Markup {
    html! {
        section id=(id) {
            h2 { (title) }
            div.card { (card) }
        }
    }
}

/// A fact of a list of them.
pub(super) fn fact(term: &str, value: &str, class: &str) -> Markup {
    html! { div class=(class) { dt { (term) } dd { (value) } } }
}

/// A table that scrolls by itself where the page is too narrow for it.
pub(super) fn table(class: &str, heads: Markup, rows: Markup) -> Markup {
    html! {
        div.scroll {
            table class=[Some(class).filter(|it| !it.is_empty())] {
                thead { tr { (heads) } }
                tbody { (rows) }
            }
        }
    }
}

/// What stands behind a click, or is `open` at once.
pub(super) fn details(title: &str, open: bool, content: Markup) -> Markup {
    html! {
        details open[open] {
            summary { (title) }
            (content)
        }
    }
}

/// A table of its own, the heaviest rows first.
pub(super) struct Listing {
    pub(super) title: &'static str,
    pub(super) open: bool,
    /// What a row is.
    pub(super) noun: &'static str,
    /// Rows that there is room for.
    pub(super) most: usize,
}

impl Listing {
    /// Such rows, and how many are left out; nothing of none.
    pub(super) fn of<R>(
        &self,
        heads: Markup,
        rows: &[R],
        amount: impl Fn(&R) -> f64,
        row: impl Fn(&R) -> Markup,
    ) -> Markup {
        let (shown, rest) = bounded(rows, &amount, self.most);
        let rows = html! { @for it in &shown { tr { (row(it)) } } };
        let content = html! {
            (table("wide", heads, rows))
            (self.left_out(rest.into_iter().map(amount)))
        };
        match shown.is_empty() {
            true => html! {},
            false => details(self.title, self.open, content),
        }
    }

    /// `60 more places, 1.2 M in all, in the JSON report.`
    fn left_out(&self, rest: impl ExactSizeIterator<Item = f64>) -> Markup {
        let rows = rest.len() as u64;
        html! {
            @if rows > 0 {
                p.quiet {
                    (text::plural(rows, &format!("more {}", self.noun))) ", "
                    (text::count(rest.sum())) " in all, in the JSON report."
                }
            }
        }
    }
}

/// A cell with a function and what is known of its `file`, `line` if it is not empty.
pub(super) fn place(function: &str, file: &str, line: &str) -> Markup {
    html! {
        td.name {
            (Name(function))
            @if !file.is_empty() { span.file { " " (text::file_name(file)) (line) } }
        }
    }
}
