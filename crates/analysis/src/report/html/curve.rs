//! Miss-ratio curves, with the simulated caches on them.

use std::fmt::Write as _;

use super::super::distances;
use super::super::model::{CacheSize, CurvePoint, Report, Reuse, ReuseSource};
use super::super::text;
use super::chart::{self, LEFT, Shares, TOP, WIDTH};
use super::written::{Text, percent};

/// Height of the plot.
const HEIGHT: f64 = 220.0;
/// Smallest size on the axis, bytes.
const SMALLEST: f64 = 1024.0;
/// Room at the right for half a label.
const RIGHT: f64 = 30.0;

/// Writes the section, unless the recording has no curve.
pub(super) fn write(out: &mut String, report: &Report) {
    if report.curve.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"curve\">\n<h2>Miss ratio by cache size</h2>\n<div class=\"card\">\n\
         <p>The share of all touches of a line that would miss in a cache of this size, from the \
         reuse distances. Dots: what the simulated caches with their sets and ways missed.</p>\n",
    );
    let sampled = |reuse: &Reuse| reuse.source == ReuseSource::Sampled;
    if report.reuse.as_ref().is_some_and(sampled) {
        out.push_str(
            "<p>Source: sampled, in units of 8 bytes. What neighbours on a line fetch for each other is \
             not in it, so that real caches miss less.</p>\n",
        );
    }
    out.push_str(
        "<p class=\"keys\"><span><svg class=\"key\" width=\"22\" height=\"12\" \
         aria-hidden=\"true\"><path class=\"private\" d=\"M0 6H22\"/></svg> a cache for each \
         thread</span> ",
    );
    if !report.curve_shared.is_empty() {
        out.push_str(
            "<span><svg class=\"key\" width=\"22\" height=\"12\" aria-hidden=\"true\"><path \
             class=\"shared\" d=\"M0 6H22\"/></svg> one cache for the threads behind each last \
             level</span> ",
        );
    }
    out.push_str(
        "<span><svg class=\"key\" width=\"12\" height=\"12\" aria-hidden=\"true\"><circle \
         class=\"dot\" cx=\"6\" cy=\"6\" r=\"4\"/></svg> simulated</span></p>\n",
    );
    picture(out, report);
    figures(out, &report.cache_sizes);
    out.push_str("</div>\n</section>\n");
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
        LEFT + along.min(1.0) * (WIDTH - RIGHT - LEFT)
    }
}

fn picture(out: &mut String, report: &Report) {
    let sizes = Sizes::new(report);
    let curves = [("private", &report.curve), ("shared", &report.curve_shared)];
    // Left of the axis nothing is drawn, so it does not count for the scale.
    let on_axis = |point: &&CurvePoint| point.bytes as f64 >= SMALLEST;
    let points = curves
        .iter()
        .flat_map(|(_, curve)| curve.iter().filter(on_axis));
    let simulated = report
        .cache_sizes
        .iter()
        .filter_map(|cache| cache.simulated);
    let scale = Shares::new(
        points.map(|point| point.miss_ratio).chain(simulated),
        HEIGHT,
    );
    chart::open(
        out,
        TOP + HEIGHT + chart::BOTTOM,
        "Miss ratio by size of the cache; the figures at the simulated caches are in the table below",
    );
    scale.axis(out, TOP, WIDTH - RIGHT);
    let every = (sizes.octaves / 12.0).ceil().max(1.0) as usize;
    for octave in (0..=sizes.octaves as usize).step_by(every) {
        let bytes = (SMALLEST as u64)
            .checked_shl(octave as u32)
            .unwrap_or(u64::MAX);
        let x = sizes.x(bytes);
        let _ = writeln!(
            out,
            "<path class=\"base\" d=\"M{x:.1} {:.1}v4\"/><text class=\"label middle\" \
             x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            TOP + HEIGHT,
            TOP + HEIGHT + 17.0,
            text::binary_bytes(bytes)
        );
    }
    let marks: Vec<(f64, String)> = report
        .cache_sizes
        .iter()
        .map(|cache| (sizes.x(cache.bytes), distances::cache_name(cache)))
        .collect();
    chart::marks(out, &marks, HEIGHT, WIDTH);
    for (class, curve) in curves {
        line(out, class, curve, sizes, scale);
    }
    for cache in &report.cache_sizes {
        dot(out, cache, sizes, scale);
    }
    chart::close(out);
}

fn line(out: &mut String, class: &str, curve: &[CurvePoint], sizes: Sizes, scale: Shares) {
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
    match (path.is_empty(), before) {
        (true, None) => {}
        // All of it lies left of the axis: nothing falls any more.
        (true, Some(y)) => {
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{LEFT} {y:.1}H{:.1}\"/>",
                WIDTH - RIGHT
            );
        }
        (false, _) => {
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"{path}H{:.1}\"/>",
                WIDTH - RIGHT
            );
        }
    }
}

fn dot(out: &mut String, cache: &CacheSize, sizes: Sizes, scale: Shares) {
    let Some(simulated) = cache.simulated else {
        return;
    };
    let (x, y) = (sizes.x(cache.bytes), TOP + scale.y(simulated));
    let _ = write!(
        out,
        "<g class=\"bin\"><title>{}: {} simulated, {} by the curve</title>",
        Text(&distances::cache_name(cache)),
        percent(simulated),
        percent(cache.miss_ratio),
    );
    let _ = writeln!(
        out,
        "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/></g>"
    );
}

fn figures(out: &mut String, caches: &[CacheSize]) {
    if caches.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"scroll\"><table class=\"wide\"><thead><tr><th>Cache</th><th>Of</th>\
         <th class=\"number\">Ways</th><th class=\"number\">Miss ratio by the curve</th>\
         <th class=\"number\">simulated</th></tr></thead>\n<tbody>\n",
    );
    for cache in caches {
        let error = cache
            .miss_ratio_error
            .map_or_else(String::new, |error| format!(" ± {}", percent(error)));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}{error}\
             </td><td class=\"number\">{}</td></tr>",
            Text(&distances::cache_name(cache)),
            if cache.shared {
                "several cores"
            } else {
                "a core"
            },
            match cache.ways {
                0 => "all".to_owned(),
                ways => ways.to_string(),
            },
            percent(cache.miss_ratio),
            cache.simulated.map_or_else(|| "–".to_owned(), percent),
        );
    }
    out.push_str("</tbody></table></div>\n");
}
