//! Who shares with whom: a heat map for threads and one for CPUs, each with three ways to count.
//!
//! Each cell carries its three colour levels (all, true, false) as classes; the class of the
//! picture chooses one, so that switching needs no second copy. All three use one scale, so that
//! they can be compared.

use maud::{Markup, html};

use super::super::contention::{self, Name, Pair, Picture, View};
use super::super::model::Report;
use super::super::text;
use super::written::{self, capital};

/// Rows that are drawn; the less busy ones become one row.
const ROWS: usize = 32;
/// Up to here a cell has room for its number.
const NUMBERED: usize = 10;
/// Colour levels above zero, see the style sheet.
const LEVELS: f64 = 9.0;
/// Pairs in the table of figures.
const PAIRS: usize = 100;

/// The section.
pub(super) fn section(report: &Report) -> Markup {
    let (threads, cpus) = (contention::threads(report), contention::cpus(report));
    // The cores of an emulated run are a model's, not CPUs of the machine.
    let real = !report.run.source.is_emulated();
    let card = html! {
        @if threads.pairs.is_empty() && cpus.pairs.is_empty() {
            p { "No transfer between threads was seen." }
        } @else {
            (controls(real))
            (panel("threads", "Threads", &threads))
            @if real { (panel("cpus", "CPUs", &cpus)) }
        }
    };
    written::section("sharing", "Who shares with whom", card)
}

/// Buttons, which the script shows.
fn controls(axes: bool) -> Markup {
    html! {
        div.controls #matrix-controls hidden {
            @if axes {
                div role="group" aria-label="Rows and columns" {
                    button type="button" data-axis="threads" aria-pressed="true" { "Threads" }
                    button type="button" data-axis="cpus" aria-pressed="false" { "CPUs" }
                }
            }
            div role="group" aria-label="Kind of sharing" {
                button type="button" data-kind="all" aria-pressed="true" { "All" }
                button type="button" data-kind="true" aria-pressed="false" { "True" }
                button type="button" data-kind="false" aria-pressed="false" { "False" }
            }
        }
    }
}

fn panel(id: &str, title: &str, view: &View) -> Markup {
    let content = match view.pairs.is_empty() {
        true => html! { p { "No transfer between " (title) " was seen." } },
        false => shown(title, view),
    };
    html! {
        div.matrix-panel id={ "matrix-" (id) } {
            h3.matrix-title { (title) }
            (content)
        }
    }
}

fn shown(title: &str, view: &View) -> Markup {
    let picture = contention::busiest(view, ROWS);
    // The row of the others is a sum of many: it would leave no colour for the rest.
    let pairs = &picture.view.pairs;
    let single = |pair: &&Pair| picture.others == 0 || pair.b + 1 < picture.view.names.len();
    let highest = pairs.iter().filter(single).map(Pair::all).reduce(f64::max);
    let highest = highest.unwrap_or_else(|| pairs.iter().map(Pair::all).fold(0.0, f64::max));
    html! {
        div.matrix-body {
            div.scroll { (heat_map(title, &picture, highest)) }
            div.matrix-side {
                (scale(highest, view.unit(), picture.others > 0))
                p.readout aria-live="polite" hidden { "Point at a cell for its numbers." }
                @if picture.others > 0 {
                    p.quiet {
                        "The " (ROWS) " busiest of " (view.names.len()) "; the other " (picture.others)
                        " are one row."
                    }
                }
            }
        }
        (figures(view))
    }
}

/// The sizes of a heat map, in CSS pixels.
struct Layout {
    cell: (usize, usize),
    left: usize,
    top: usize,
    /// Whether a cell has room for its number.
    numbered: bool,
}

fn heat_map(title: &str, picture: &Picture, highest: f64) -> Markup {
    let names = &picture.view.names;
    let size = names.len();
    let numbered = size <= NUMBERED;
    let labels: Vec<String> = names.iter().map(|name| label(name, 18)).collect();
    let widest = labels.iter().map(|l| text::width(l)).max().unwrap_or(0);
    let layout = Layout {
        cell: if numbered { (64, 36) } else { (18, 18) },
        left: widest * 7 + 10,
        top: if numbered { 22 } else { widest * 7 + 10 },
        numbered,
    };
    let (columns, rows) = (size * layout.cell.0, size * layout.cell.1);
    let (width, height) = (layout.left + columns + 8, layout.top + rows + 2);
    let quantity = capital(picture.view.quantity());
    let (true_sharing, false_sharing) = picture.among_others;
    let among = (true_sharing + false_sharing > 0.0).then_some(Pair {
        a: size - 1,
        b: size - 1,
        true_sharing,
        false_sharing,
    });
    let draw = |pair: &Pair, row: usize, column: usize| {
        let x = layout.left + column * layout.cell.0;
        let y = layout.top + row * layout.cell.1;
        let words = html! {
            (labels[row]) " and " (labels[column]) ": " (text::count(pair.all())) (picture.view.unit()) ", "
            (text::count(pair.true_sharing)) " true, " (text::count(pair.false_sharing)) " false"
        };
        cell(&layout, (x, y), pair, highest, words)
    };
    html! {
        svg.matrix.show-all width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img"
            aria-label={ (quantity) " between " (title) "; the figures are in the table below" } {
            rect.ground x=(layout.left) y=(layout.top) width=(columns) height=(rows) {}
            @for (i, (name, label)) in names.iter().zip(&labels).enumerate() {
                (axis_labels(&layout, i, name, label))
            }
            @for pair in &picture.view.pairs { (draw(pair, pair.a, pair.b)) (draw(pair, pair.b, pair.a)) }
            @if let Some(pair) = among { (draw(&pair, pair.a, pair.b)) }
        }
    }
}

fn label(name: &Name, columns: usize) -> String {
    if name.id == 0 && name.name != "CPU" {
        return name.name.clone();
    }
    let safe = text::sanitise(&name.name);
    let id = name.id.to_string();
    let room = columns.saturating_sub(id.len() + 1);
    format!("{} {id}", text::shorten(&safe, room))
}

fn axis_labels(layout: &Layout, i: usize, name: &Name, label: &str) -> Markup {
    let y = layout.top + i * layout.cell.1 + layout.cell.1 / 2 + 4;
    let x = layout.left + i * layout.cell.0 + layout.cell.0 / 2;
    let above = layout.top - 5;
    let id = name.id.to_string();
    let short = if name.name == "CPU" { label } else { &id };
    html! {
        text class="label end" x=(layout.left - 6) y=(y) { (label) }
        @if layout.numbered {
            text class="label middle" x=(x) y=(layout.top - 7) { (short) }
        } @else {
            text.label x=(x + 4) y=(above) transform={ "rotate(-90 " (x + 4) " " (above) ")" } { (label) }
        }
    }
}

fn level(value: f64, highest: f64) -> u32 {
    if value <= 0.0 || highest <= 0.0 {
        return 0;
    }
    // The square root keeps a pair with a hundredth of the transfers visible.
    ((value / highest).sqrt() * LEVELS)
        .ceil()
        .clamp(1.0, LEVELS) as u32
}

fn cell(
    layout: &Layout,
    (x, y): (usize, usize),
    pair: &Pair,
    highest: f64,
    words: Markup,
) -> Markup {
    let (width, height) = layout.cell;
    let values = [
        ("all", pair.all()),
        ("true", pair.true_sharing),
        ("false", pair.false_sharing),
    ];
    let [all, truly, falsely] = values.map(|(_, value)| level(value, highest));
    html! {
        g class={ "cell a" (all) " t" (truly) " f" (falsely) } {
            title { (words) }
            rect x=(x + 1) y=(y + 1) width=(width - 2) height=(height - 2) {}
            @if layout.numbered {
                @for (class, value) in values {
                    text class={ "value " (class) } x=(x + width / 2) y=(y + height / 2 + 4) { (text::count(value)) }
                }
            }
        }
    }
}

fn scale(highest: f64, unit: &str, open: bool) -> Markup {
    html! {
        svg.matrix.show-all.scale width="200" height="30" viewBox="0 0 200 30" role="img"
            aria-label="Colour scale" {
            text.label x="0" y="28" { "0" }
            @for level in 0..=LEVELS as u32 {
                g class={ "cell a" (level) " t" (level) " f" (level) } {
                    rect x=(level * 20) y="0" width="19" height="14" {}
                }
            }
            text class="label end" x="199" y="28" {
                (text::count(highest)) (unit) @if open { " or more" }
            }
        }
    }
}

fn figures(view: &View) -> Markup {
    let (shown, more) = contention::shown_pairs(view, PAIRS);
    let heads = html! {
        th { "Between" } th { "and" } th.number { "All" } th.number { "True" } th.number { "False" }
    };
    let rows = html! {
        @for pair in shown {
            tr {
                td.name { (label(&view.names[pair.a], 40)) }
                td.name { (label(&view.names[pair.b], 40)) }
                td.number { (text::count(pair.all())) }
                td.number { (text::count(pair.true_sharing)) }
                td.number { (text::count(pair.false_sharing)) }
            }
        }
    };
    let content = html! {
        (written::table("", heads, rows))
        @if let Some(more) = more { p.quiet { (more) ", in the JSON report" } }
    };
    written::details(&format!("Figures, {}", view.quantity()), false, content)
}
