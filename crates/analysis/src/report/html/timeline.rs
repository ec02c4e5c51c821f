//! Contended time and round trip over the run, one above the other on one time axis.

use std::fmt::Write as _;

use super::super::model::{Report, TimelineBin};
use super::super::text;
use super::written::{Text, percent};

/// Bars in the picture; finer bins are merged.
const BARS: usize = 160;
/// Width of the drawing in its own units; it is stretched to the page.
const WIDTH: f64 = 1000.0;
/// Height of the bars, likewise.
const HEIGHT: f64 = 100.0;
/// Height of the round trip's plot.
const TRIP_HEIGHT: f64 = 40.0;

/// Writes the section, unless the report has no timeline.
pub(super) fn write(out: &mut String, report: &Report) {
    let bars = merged(&report.timeline);
    let Some(end) = bars.last().map(|bar| bar.start_ns + bar.length_ns) else {
        return;
    };
    if end <= 0.0 {
        return;
    }
    out.push_str("<section id=\"time\">\n<h2>Over time</h2>\n<div class=\"card\">\n");
    contended(out, &bars, end);
    round_trip(out, &bars, end);
    let _ = writeln!(
        out,
        "<p class=\"axis\"><span>0 s</span><span>{}</span></p>\n</div>\n</section>",
        text::nanoseconds(end)
    );
}

/// A bin as it is drawn.
struct Bar {
    start_ns: f64,
    length_ns: f64,
    thread_ns: f64,
    contended_ns: f64,
    round_trip_ns: Option<f64>,
}

impl Bar {
    fn share(&self) -> f64 {
        match self.thread_ns > 0.0 {
            true => (self.contended_ns / self.thread_ns).clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

fn merged(bins: &[TimelineBin]) -> Vec<Bar> {
    let group = bins.len().div_ceil(BARS).max(1);
    bins.chunks(group)
        .map(|bins| {
            let trips: Vec<f64> = bins
                .iter()
                .map(|bin| bin.round_trip_ns)
                .filter(|ns| ns.is_finite() && *ns > 0.0)
                .collect();
            Bar {
                start_ns: bins[0].start_ns as f64,
                length_ns: bins.iter().map(|bin| bin.length_ns as f64).sum(),
                thread_ns: bins.iter().map(|bin| bin.thread_ns).sum(),
                contended_ns: bins.iter().map(|bin| bin.contended_ns).sum(),
                round_trip_ns: (!trips.is_empty())
                    .then(|| trips.iter().sum::<f64>() / trips.len() as f64),
            }
        })
        .collect()
}

/// The scale's end: the next of 1, 2, 5, 10, 20, 50 or 100 %.
fn top_of(highest: f64) -> f64 {
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
        .into_iter()
        .find(|top| highest <= *top)
        .unwrap_or(1.0)
}

fn contended(out: &mut String, bars: &[Bar], end: f64) {
    let top = top_of(bars.iter().map(Bar::share).fold(0.0, f64::max));
    let _ = writeln!(
        out,
        "<p class=\"plot-title\">Thread time at contended lines<span>top of the scale: {}</span></p>\n\
         <svg class=\"plot tall\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"Share of thread time at contended lines over the run\">\n\
         <path class=\"grid\" d=\"M0 {half}H{WIDTH}M0 0.5H{WIDTH}\"/>",
        percent(top),
        half = HEIGHT / 2.0,
    );
    for bar in bars {
        let height = bar.share() / top * HEIGHT;
        let words = format!(
            "{} to {}: {} of thread time contended{}",
            text::nanoseconds(bar.start_ns),
            text::nanoseconds(bar.start_ns + bar.length_ns),
            text::percent(bar.share()),
            bar.round_trip_ns
                .map(|ns| format!(", round trip {}", text::nanoseconds(ns)))
                .unwrap_or_default(),
        );
        let (x, width) = (
            bar.start_ns / end * WIDTH,
            (bar.length_ns / end * WIDTH * 0.9).max(0.5),
        );
        // The invisible full-height rectangle makes a short bar easy to point at.
        let _ = writeln!(
            out,
            "<g class=\"bin\"><title>{}</title><rect class=\"catch\" x=\"{x:.2}\" \
             width=\"{width:.2}\" height=\"{HEIGHT}\"/><rect class=\"fill\" x=\"{x:.2}\" \
             y=\"{:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"/></g>",
            Text(&words),
            HEIGHT - height,
        );
    }
    out.push_str("</svg>\n");
}

fn round_trip(out: &mut String, bars: &[Bar], end: f64) {
    let trips = bars.iter().filter_map(|bar| bar.round_trip_ns);
    let highest = trips.clone().fold(0.0, f64::max);
    if highest <= 0.0 {
        out.push_str("<p class=\"quiet\">The round trip between cores was not measured.</p>\n");
        return;
    }
    let lowest = trips.fold(f64::INFINITY, f64::min);
    let _ = writeln!(
        out,
        "<p class=\"plot-title\">Round trip between cores<span>{} to {}; the scale starts at \
         0</span></p>\n<svg class=\"plot low\" viewBox=\"0 0 {WIDTH} {TRIP_HEIGHT}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Round trip over the run, {} to {}\">",
        text::nanoseconds(lowest),
        text::nanoseconds(highest),
        text::nanoseconds(lowest),
        text::nanoseconds(highest),
    );
    let y = |ns: f64| TRIP_HEIGHT - ns / highest * (TRIP_HEIGHT - 3.0);
    let x = |ns: f64| ns / end * WIDTH;
    let mut path = String::new();
    let mut drawing = false;
    for bar in bars {
        let Some(ns) = bar.round_trip_ns else {
            drawing = false;
            continue;
        };
        let command = if drawing { 'L' } else { 'M' };
        let _ = write!(
            path,
            "{command}{:.2} {:.2}H{:.2}",
            x(bar.start_ns),
            y(ns),
            x(bar.start_ns + bar.length_ns)
        );
        drawing = true;
    }
    let _ = writeln!(
        out,
        "<path class=\"grid\" d=\"M0 {TRIP_HEIGHT}H{WIDTH}\"/><path class=\"trip\" d=\"{path}\"/></svg>"
    );
}
