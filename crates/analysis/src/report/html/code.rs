//! The code of the hottest functions: source lines and instructions, with the time beside each.

use maud::{Markup, html};

use super::super::text;
use super::written::{self, Name};
use crate::details::{Excerpt, ExcerptRow};

/// The functions, each behind a click; nothing where no code was there.
pub(super) fn section(excerpts: &[Excerpt]) -> Markup {
    if excerpts.is_empty() {
        return html! {};
    }
    let card = html! {
        p.quiet {
            "Beside each line and instruction stands its share of all thread time, with what it calls of libraries and the kernel; \
             the time of a call is at the instruction that it returns to. Addresses are those of the file. Sources are as they \
             were on disk when this page was made."
        }
        @for it in excerpts { (excerpt(it)) }
    };
    written::section("code", "Hottest code", card)
}

fn excerpt(it: &Excerpt) -> Markup {
    let most = |rows: &[ExcerptRow]| rows.iter().filter_map(|it| it.share).fold(0.0, f64::max);
    html! {
        details.code {
            summary {
                (text::percent(it.share)) " " code { (Name(&it.function)) }
                @if !it.file.is_empty() { span.file { " " (text::file_name(&text::sanitise(&it.file))) } }
            }
            @if !it.lines.is_empty() {
                (rows(&it.lines, most(&it.lines), |line| line.to_string()))
            }
            @if !it.instructions.is_empty() {
                p.quiet { "Instructions" }
                (rows(&it.instructions, most(&it.instructions), |address| format!("{address:x}")))
            }
        }
    }
}

fn rows(rows: &[ExcerptRow], most: f64, at: impl Fn(u64) -> String) -> Markup {
    let heat = |share: f64| {
        (share / most.max(f64::MIN_POSITIVE) * 4.0)
            .ceil()
            .clamp(1.0, 4.0)
    };
    html! {
        div.scroll {
            table.excerpt {
                tbody {
                    @for it in rows {
                        @if it.gap { tr.gap { td {} td { "⋯" } td {} } }
                        tr class=[it.share.map(|share| format!("heat-{:.0}", heat(share)))] {
                            td.number { @if let Some(share) = it.share { (text::percent(share)) } }
                            td.at { (at(it.at)) }
                            td { code { (it.text) } }
                        }
                    }
                }
            }
        }
    }
}
