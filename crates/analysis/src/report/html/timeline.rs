//! Charts over the length of the run, one above the other on one axis of time.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::super::{cells, text};
use crate::section::{Bar, Chart, Charts, Legend, Step};

/// Width of the drawing in its own units; it is stretched to the page.
const WIDTH: f64 = 1000.0;
/// Height of bars, likewise.
const HEIGHT: f64 = 100.0;
/// Height of a line.
const LINE_HEIGHT: f64 = 40.0;

/// The charts, and the axis below.
pub(super) fn charts(all: &Charts) -> Markup {
    html! {
        @for chart in &all.charts {
            @match chart {
                Chart::Missing(words) => p.quiet { (words) },
                Chart::Bars(legend, them) => (chart_of(legend, "tall", HEIGHT, bars(them))),
                Chart::Steps(legend, them) => (chart_of(legend, "low", LINE_HEIGHT, steps(them))),
            }
        }
        p.axis { span { "0 s" } span { (text::nanoseconds(all.length_ns)) } }
    }
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
