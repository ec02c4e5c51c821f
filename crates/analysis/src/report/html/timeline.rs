//! Charts over the length of the run, one above the other on one axis of time.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::super::{cells, text};
use super::written::{self, Name};
use crate::section::{Bar, Chart, Charts, Lane, Legend, Step, more};

/// Width of the drawing in its own units; it is stretched to the page.
const WIDTH: f64 = 1000.0;
/// Height of bars, likewise.
const HEIGHT: f64 = 100.0;
/// Height of a line.
const LINE_HEIGHT: f64 = 40.0;
/// Lanes that are shown at once.
const LANES: usize = 32;

/// The charts, and the axis below.
pub(super) fn charts(all: &Charts) -> Markup {
    let axis = html! { p.axis { span { "0 s" } span { (text::nanoseconds(all.length_ns)) } } };
    let has_lanes = (all.charts.iter()).any(|chart| matches!(chart, Chart::Lanes(..)));
    html! {
        div #timespan.with-lanes[has_lanes] {
            @for chart in &all.charts {
                @match chart {
                    Chart::Missing(words) => p.quiet { (words) },
                    Chart::Bars(legend, them) => (chart_of(legend, "tall", HEIGHT, bars(them))),
                    Chart::Steps(legend, them) => (chart_of(legend, "low", LINE_HEIGHT, steps(them))),
                    Chart::Lanes(legend, them) => (lanes(legend, them, &axis)),
                }
            }
            @if !has_lanes { (axis) }
            div #timespan-chosen hidden {}
        }
    }
}

/// A lane for each; those that there is no room for behind a click.
fn lanes(legend: &Legend, lanes: &[Lane], axis: &Markup) -> Markup {
    let (shown, rest) = lanes.split_at(lanes.len().min(LANES));
    html! {
        p.plot-title { (legend.title) span { (cells::sentence(&legend.scale)) } }
        @for it in shown { (lane(it)) }
        (axis)
        @if !rest.is_empty() {
            (written::details(&more(rest.len()), false, html! { @for it in rest { (lane(it)) } }))
        }
        p.keys {
            span { svg.key width="12" height="12" aria-hidden="true" { rect.busy width="12" height="12" {} } " thread time" }
            span { svg.key width="12" height="12" aria-hidden="true" { rect.lost width="12" height="12" {} } " of it at contended lines" }
        }
    }
}

fn lane(lane: &Lane) -> Markup {
    let words = cells::sentence(&lane.words);
    html! {
        div.lane {
            p.lane-name {
                span.lane-thread { (Name(&lane.name)) @if let Some(id) = lane.id { " " span.quiet { (id) } } }
                span.quiet { (words) }
            }
            svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label={ (text::shorten(&text::sanitise(&lane.name), 60)) ": " (words) } {
                path.grid d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                path.busy d=(area(&lane.heights)) {}
                path.fill d=(area(&lane.marked)) {}
            }
        }
    }
}

/// What lies below the heights.
fn area(heights: &[f64]) -> String {
    let mut path = format!("M0 {HEIGHT}");
    let slice = WIDTH / heights.len().max(1) as f64;
    let mut before = HEIGHT.round() as i64;
    for (i, height) in heights.iter().enumerate() {
        let y = (HEIGHT * (1.0 - height)).round() as i64;
        if y != before {
            let _ = write!(path, "H{:.0}V{y}", slice * i as f64);
            before = y;
        }
    }
    let _ = write!(path, "H{WIDTH}V{HEIGHT}Z");
    path
}

/// A chart of so much height.
fn chart_of(legend: &Legend, class: &str, height: f64, content: Markup) -> Markup {
    html! {
        p.plot-title { (legend.title) span { (cells::sentence(&legend.scale)) } }
        svg class={ "plot " (class) } viewBox={ "0 0 " (WIDTH) " " (height) } preserveAspectRatio="none" role="img"
            aria-label=(cells::sentence(&legend.described)) { (content) }
    }
}

fn bars(bars: &[Bar]) -> Markup {
    let bar = |bar: &Bar| {
        let height = bar.height * HEIGHT;
        let (x, width) = (bar.from * WIDTH, (bar.length * WIDTH * 0.9).max(0.5));
        let (x, width) = (format!("{x:.2}"), format!("{width:.2}"));
        // The invisible full-height rectangle makes a short bar easy to point at.
        html! {
            g.bin {
                title { (cells::sentence(&bar.words)) }
                rect.catch x=(x) width=(width) height=(HEIGHT) {}
                rect.fill x=(x) y=(format_args!("{:.2}", HEIGHT - height)) width=(width)
                    height=(format_args!("{height:.2}")) {}
            }
        }
    };
    html! {
        path.grid d={ "M0 " (HEIGHT / 2.0) "H" (WIDTH) "M0 0.5H" (WIDTH) } {}
        @for it in bars { (bar(it)) }
    }
}

fn steps(steps: &[Step]) -> Markup {
    let y = |height: f64| LINE_HEIGHT - height * (LINE_HEIGHT - 3.0);
    let mut path = String::new();
    let mut drawing = false;
    for step in steps {
        let Some(height) = step.height else {
            drawing = false;
            continue;
        };
        let command = if drawing { 'L' } else { 'M' };
        let (from, y, to) = (step.from * WIDTH, y(height), step.to * WIDTH);
        let _ = write!(path, "{command}{from:.2} {y:.2}H{to:.2}");
        drawing = true;
    }
    html! {
        path.grid d={ "M0 " (LINE_HEIGHT) "H" (WIDTH) } {}
        path.trip d=(path) {}
    }
}
