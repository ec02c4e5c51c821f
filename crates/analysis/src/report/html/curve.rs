//! Miss-ratio curves, with the simulated caches on them.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::super::distances;
use super::super::model::{CacheSize, CurvePoint, Report, Reuse, ReuseSource};
use super::super::text;
use super::chart::{self, LEFT, Shares, TOP, WIDTH};
use super::written;

/// Height of the plot.
const HEIGHT: f64 = 220.0;
/// Smallest size on the axis, bytes.
const SMALLEST: f64 = 1024.0;
/// Where the plot ends; right of it is room for half a label.
const RIGHT: f64 = WIDTH - 30.0;

/// The section, unless the recording has no curve.
pub(super) fn section(report: &Report) -> Markup {
    if report.curve.is_empty() {
        return html! {};
    }
    let sampled = |reuse: &Reuse| reuse.source == ReuseSource::Sampled;
    let line = |class| chart::path(class, "M0 6H22");
    let dot = html! { circle.dot cx="6" cy="6" r="4" {} };
    let card = html! {
        p {
            "The share of all touches of a line that would miss in a cache of this size, from the reuse distances. \
             Dots: what the simulated caches with their sets and ways missed."
        }
        @if report.reuse.as_ref().is_some_and(sampled) {
            p {
                "Source: sampled, in units of 8 bytes. What neighbours on a line fetch for each other is not in it, \
                 so that real caches miss less."
            }
        }
        p.keys {
            (chart::key(22, line("private"), "a cache for each thread"))
            @if !report.curve_shared.is_empty() {
                (chart::key(22, line("shared"), "one cache for the threads behind each last level"))
            }
            (chart::key(12, dot, "simulated"))
        }
        (picture(report))
        @if !report.cache_sizes.is_empty() { (figures(&report.cache_sizes)) }
    };
    written::section("curve", "Miss ratio by cache size", card)
}

/// The horizontal scale: sizes by powers of two.
#[derive(Clone, Copy)]
struct Sizes {
    octaves: f64,
}

impl Sizes {
    fn new(report: &Report) -> Self {
        let curves = report.curve.iter().chain(&report.curve_shared);
        let ends = curves
            .map(|point| point.bytes)
            .chain(report.cache_sizes.iter().map(|cache| cache.bytes * 2));
        let largest = ends.max().unwrap_or(0) as f64;
        Self {
            octaves: (largest / SMALLEST).log2().ceil().max(8.0),
        }
    }

    fn x(self, bytes: u64) -> f64 {
        let along = (bytes as f64 / SMALLEST).max(1.0).log2() / self.octaves;
        LEFT + along.min(1.0) * (RIGHT - LEFT)
    }

    /// Sizes that are named on the axis.
    fn named(self) -> impl Iterator<Item = u64> {
        let every = (self.octaves / 12.0).ceil().max(1.0) as usize;
        let octaves = (0..=self.octaves as usize).step_by(every);
        octaves.map(|octave| {
            let bytes = (SMALLEST as u64).checked_shl(octave as u32);
            bytes.unwrap_or(u64::MAX)
        })
    }
}

fn picture(report: &Report) -> Markup {
    let sizes = Sizes::new(report);
    let curves = [("private", &report.curve), ("shared", &report.curve_shared)];
    // Left of the axis nothing is drawn, so it does not count for the scale.
    let on_axis = |point: &&CurvePoint| point.bytes as f64 >= SMALLEST;
    let points = curves.iter().flat_map(|it| it.1.iter().filter(on_axis));
    let simulated = report.cache_sizes.iter().filter_map(|it| it.simulated);
    let ratios = points.map(|point| point.miss_ratio).chain(simulated);
    let scale = Shares::new(ratios, HEIGHT);
    let marks: Vec<(f64, String)> = report
        .cache_sizes
        .iter()
        .map(|cache| (sizes.x(cache.bytes), distances::cache_name(cache)))
        .collect();
    let content = html! {
        (scale.axis(TOP, RIGHT))
        @for bytes in sizes.named() {
            (chart::tick(sizes.x(bytes), HEIGHT, &text::binary_bytes(bytes)))
        }
        (chart::marks(&marks, HEIGHT, WIDTH))
        @for (class, curve) in curves { (line(class, curve, sizes, scale)) }
        @for cache in &report.cache_sizes { (dot(cache, sizes, scale)) }
    };
    chart::chart(
        TOP + HEIGHT + chart::BOTTOM,
        "Miss ratio by size of the cache; the figures at the simulated caches are in the table below",
        content,
    )
}

fn line(class: &str, curve: &[CurvePoint], sizes: Sizes, scale: Shares) -> Markup {
    let mut path = String::new();
    let mut before = None;
    for point in curve {
        let (x, y) = (sizes.x(point.bytes), TOP + scale.y(point.miss_ratio));
        if point.bytes as f64 >= SMALLEST {
            if path.is_empty() {
                // From the axis on, at the height that the curve has there.
                let _ = write!(path, "M{LEFT} {:.1}", before.unwrap_or(y));
            }
            let _ = write!(path, "L{x:.1} {y:.1}");
        }
        before = Some(y);
    }
    let Some(last) = before else {
        return html! {};
    };
    // All of it lies left of the axis: nothing falls any more.
    if path.is_empty() {
        path = format!("M{LEFT} {last:.1}");
    }
    chart::path(class, &format!("{path}H{RIGHT:.1}"))
}

fn dot(cache: &CacheSize, sizes: Sizes, scale: Shares) -> Markup {
    let Some(simulated) = cache.simulated else {
        return html! {};
    };
    let (x, y) = (sizes.x(cache.bytes), TOP + scale.y(simulated));
    html! {
        g.bin {
            title {
                (distances::cache_name(cache)) ": " (text::percent(simulated)) " simulated, "
                (text::percent(cache.miss_ratio)) " by the curve"
            }
            circle.dot cx=(chart::at(x)) cy=(chart::at(y)) r="5" {}
        }
    }
}

fn figures(caches: &[CacheSize]) -> Markup {
    let heads = html! {
        th { "Cache" } th { "Of" } th.number { "Ways" } th.number { "Miss ratio by the curve" }
        th.number { "simulated" }
    };
    let row = |cache: &CacheSize| {
        let of = if cache.shared {
            "several cores"
        } else {
            "a core"
        };
        let ways = match cache.ways {
            0 => "all".to_owned(),
            ways => ways.to_string(),
        };
        let simulated = cache.simulated.map_or("–".to_owned(), text::percent);
        html! {
            td { (distances::cache_name(cache)) }
            td { (of) }
            td.number { (ways) }
            td.number {
                (text::percent(cache.miss_ratio))
                @if let Some(error) = cache.miss_ratio_error { " ± " (text::percent(error)) }
            }
            td.number { (simulated) }
        }
    };
    let rows = html! { @for cache in caches { tr { (row(cache)) } } };
    written::table("wide", heads, rows)
}
