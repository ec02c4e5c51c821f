//! Who has how much to do with whom: a heat map for each grid, with three ways to count.
//!
//! Each cell carries its three colour levels (all and the two kinds) as classes; the class of the
//! picture chooses one, so that switching needs no second copy. All three use one scale, so that
//! they can be compared.

use maud::{Markup, html};

use super::super::{cells, text};
use super::written;
use crate::section::{Grid, Grids, Pair, Party};

/// Rows that are drawn; the less busy ones become one row.
const ROWS: usize = 32;
/// Up to here a cell has room for its number.
const NUMBERED: usize = 10;
/// Colour levels above zero, see the style sheet.
const LEVELS: f64 = 9.0;
/// Pairs in the table of figures.
const PAIRS: usize = 100;

/// All grids, of which the script shows one.
pub(super) fn grids(all: &Grids) -> Markup {
    html! {
        (controls(all))
        @for grid in &all.grids {
            div.matrix-panel id={ "matrix-" (grid.id) } {
                h3.matrix-title { (grid.title) }
                @if grid.pairs.is_empty() {
                    p { "No " (all.noun) " between " (grid.title) " was seen." }
                } @else {
                    (panel(all, grid))
                }
            }
        }
    }
}

/// Buttons, which the script shows.
fn controls(all: &Grids) -> Markup {
    let pressed = |first: bool| if first { "true" } else { "false" };
    html! {
        div.controls #matrix-controls hidden {
            @if all.grids.len() > 1 {
                div role="group" aria-label="Rows and columns" {
                    @for (i, grid) in all.grids.iter().enumerate() {
                        button type="button" data-axis=(grid.id) aria-pressed=(pressed(i == 0)) { (grid.title) }
                    }
                }
            }
            div role="group" aria-label=(all.kind) {
                button type="button" data-kind="all" aria-pressed="true" { "All" }
                @for kind in all.kinds {
                    button type="button" data-kind=(kind.to_lowercase()) aria-pressed="false" { (kind) }
                }
            }
        }
    }
}

fn panel(all: &Grids, grid: &Grid) -> Markup {
    let (shown, others) = grid.bounded(ROWS);
    // The row of the others is a sum of many: it would leave no colour for the rest.
    let single = |pair: &&Pair| others == 0 || pair.b + 1 < shown.parties.len();
    let highest = shown
        .pairs
        .iter()
        .filter(single)
        .map(Pair::sum)
        .reduce(f64::max);
    let highest = highest.unwrap_or_else(|| shown.pairs.iter().map(Pair::sum).fold(0.0, f64::max));
    html! {
        div.matrix-body {
            div.scroll { (heat_map(all, &shown, highest)) }
            div.matrix-side {
                (scale(highest, all.unit, others > 0))
                p.readout aria-live="polite" hidden { "Point at a cell for its numbers." }
                @if others > 0 {
                    p.quiet {
                        "The " (ROWS) " busiest of " (grid.parties.len()) "; the other " (others)
                        " are one row."
                    }
                }
            }
        }
        (figures(all, grid))
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

fn heat_map(all: &Grids, grid: &Grid, highest: f64) -> Markup {
    let size = grid.parties.len();
    let numbered = size <= NUMBERED;
    let labels: Vec<String> = grid.parties.iter().map(|it| cells::party(it, 18)).collect();
    let widest = labels.iter().map(|l| text::width(l)).max().unwrap_or(0);
    let layout = Layout {
        cell: if numbered { (64, 36) } else { (18, 18) },
        left: widest * 7 + 10,
        top: if numbered { 22 } else { widest * 7 + 10 },
        numbered,
    };
    let (columns, rows) = (size * layout.cell.0, size * layout.cell.1);
    let (width, height) = (layout.left + columns + 8, layout.top + rows + 2);
    let draw = |pair: &Pair, row: usize, column: usize| {
        let at = (
            layout.left + column * layout.cell.0,
            layout.top + row * layout.cell.1,
        );
        let words = html! {
            (labels[row]) " and " (labels[column]) ": " (text::count(pair.sum())) (all.unit)
            @for (kind, part) in all.kinds.iter().zip(pair.parts) {
                ", " (text::count(part)) " " (kind.to_lowercase())
            }
        };
        cell(all, &layout, at, pair, highest, words)
    };
    html! {
        svg.matrix.show-all width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img"
            aria-label={ (text::capital(all.quantity)) " between " (grid.title) "; the figures are in the table below" } {
            rect.ground x=(layout.left) y=(layout.top) width=(columns) height=(rows) {}
            @for (i, (party, label)) in grid.parties.iter().zip(&labels).enumerate() {
                (axis_labels(&layout, i, party, label))
            }
            @for pair in &grid.pairs {
                (draw(pair, pair.a, pair.b))
                @if pair.a != pair.b { (draw(pair, pair.b, pair.a)) }
            }
        }
    }
}

fn axis_labels(layout: &Layout, i: usize, party: &Party, label: &str) -> Markup {
    let y = layout.top + i * layout.cell.1 + layout.cell.1 / 2 + 4;
    let x = layout.left + i * layout.cell.0 + layout.cell.0 / 2;
    let above = layout.top - 5;
    html! {
        text class="label end" x=(layout.left - 6) y=(y) { (label) }
        @if layout.numbered {
            text class="label middle" x=(x) y=(layout.top - 7) { (cells::short_party(party)) }
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
    all: &Grids,
    layout: &Layout,
    (x, y): (usize, usize),
    pair: &Pair,
    highest: f64,
    words: Markup,
) -> Markup {
    let (width, height) = layout.cell;
    let [first, second] = all.kinds.map(str::to_lowercase);
    let values = [
        ("all", pair.sum()),
        (&first, pair.parts[0]),
        (&second, pair.parts[1]),
    ];
    let levels = values.map(|(_, value)| level(value, highest));
    html! {
        g class=(classes(levels)) {
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

/// A cell's colours, as the style sheet names them: of all, of the first kind, of the second.
fn classes([all, first, second]: [u32; 3]) -> String {
    format!("cell a{all} t{first} f{second}")
}

fn scale(highest: f64, unit: &str, open: bool) -> Markup {
    html! {
        svg.matrix.show-all.scale width="200" height="30" viewBox="0 0 200 30" role="img"
            aria-label="Colour scale" {
            text.label x="0" y="28" { "0" }
            @for level in 0..=LEVELS as u32 {
                g class=(classes([level; 3])) {
                    rect x=(level * 20) y="0" width="19" height="14" {}
                }
            }
            text class="label end" x="199" y="28" {
                (text::count(highest)) (unit) @if open { " or more" }
            }
        }
    }
}

fn figures(all: &Grids, grid: &Grid) -> Markup {
    let (shown, more) = cells::pairs(grid, all.unit, PAIRS);
    let heads = html! {
        th { "Between" } th { "and" } th.number { "All" }
        @for kind in all.kinds { th.number { (kind) } }
    };
    let rows = html! {
        @for pair in shown {
            tr {
                @for at in [pair.a, pair.b] { td.name { (cells::party(&grid.parties[at], 40)) } }
                td.number { (text::count(pair.sum())) }
                @for part in pair.parts { td.number { (text::count(part)) } }
            }
        }
    };
    let content = html! {
        (written::table("", heads, rows))
        @if let Some(more) = more { p.quiet { (more) ", in the JSON report" } }
    };
    written::details(&format!("Figures, {}", all.quantity), false, content)
}
