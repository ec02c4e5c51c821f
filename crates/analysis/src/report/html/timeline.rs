//! Charts over the length of the run, one above the other on one axis of time.

use std::fmt::Write as _;

use super::super::{cells, text};
use super::written::Text;
use crate::section::{Bar, Chart, Charts, Legend, Step};

/// Width of the drawing in its own units; it is stretched to the page.
const WIDTH: f64 = 1000.0;
/// Height of bars, likewise.
const HEIGHT: f64 = 100.0;
/// Height of a line.
const LINE_HEIGHT: f64 = 40.0;

/// Writes them, and the axis below.
pub(super) fn write(out: &mut String, all: &Charts) {
    for chart in &all.charts {
        match chart {
            Chart::Missing(words) => {
                let _ = writeln!(out, "<p class=\"quiet\">{}</p>", Text(words));
            }
            Chart::Bars(legend, bars) => draw_bars(out, legend, bars),
            Chart::Steps(legend, steps) => draw_steps(out, legend, steps),
        }
    }
    let _ = writeln!(
        out,
        "<p class=\"axis\"><span>0 s</span><span>{}</span></p>",
        text::nanoseconds(all.length_ns)
    );
}

/// Opens a chart of so much height.
fn open(out: &mut String, legend: &Legend, class: &str, height: f64) {
    let _ = write!(
        out,
        "<p class=\"plot-title\">{}<span>{}</span></p>\n\
         <svg class=\"plot {class}\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"{}\">\n",
        Text(legend.title),
        Text(&cells::sentence(&legend.scale)),
        Text(&cells::sentence(&legend.described)),
    );
}

fn draw_bars(out: &mut String, legend: &Legend, bars: &[Bar]) {
    open(out, legend, "tall", HEIGHT);
    let half = HEIGHT / 2.0;
    let _ = writeln!(
        out,
        "<path class=\"grid\" d=\"M0 {half}H{WIDTH}M0 0.5H{WIDTH}\"/>"
    );
    for bar in bars {
        let height = bar.height * HEIGHT;
        let (x, width) = (bar.from * WIDTH, (bar.length * WIDTH * 0.9).max(0.5));
        // The invisible full-height rectangle makes a short bar easy to point at.
        let _ = writeln!(
            out,
            "<g class=\"bin\"><title>{}</title><rect class=\"catch\" x=\"{x:.2}\" \
             width=\"{width:.2}\" height=\"{HEIGHT}\"/><rect class=\"fill\" x=\"{x:.2}\" \
             y=\"{:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"/></g>",
            Text(&cells::sentence(&bar.words)),
            HEIGHT - height,
        );
    }
    out.push_str("</svg>\n");
}

fn draw_steps(out: &mut String, legend: &Legend, steps: &[Step]) {
    open(out, legend, "low", LINE_HEIGHT);
    let y = |height: f64| LINE_HEIGHT - height * (LINE_HEIGHT - 3.0);
    let mut path = String::new();
    let mut drawing = false;
    for step in steps {
        let Some(height) = step.height else {
            drawing = false;
            continue;
        };
        let command = if drawing { 'L' } else { 'M' };
        let _ = write!(
            path,
            "{command}{:.2} {:.2}H{:.2}",
            step.from * WIDTH,
            y(height),
            step.to * WIDTH
        );
        drawing = true;
    }
    let _ = writeln!(
        out,
        "<path class=\"grid\" d=\"M0 {LINE_HEIGHT}H{WIDTH}\"/><path class=\"trip\" d=\"{path}\"/></svg>"
    );
}
