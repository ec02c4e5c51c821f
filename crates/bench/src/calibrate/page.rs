//! The figures as one self-contained HTML file: figures 1 and 2 of SAM for this machine, and the numbers below them. All
//! texts are our own, so that none needs escaping.

use super::bandwidth::{Bandwidth, BandwidthPoint};
use super::crossing::Crossing;
use super::lines::Lines;
use super::memory::Pattern;
use super::result::Calibration;
use super::samples::Spread;
use super::sweep::{Comparison, SpeedupPoint};
use super::table::{named, reached, title};
use crate::drawing::{Along, Axes, Curve, Mark, Point, draw, head, list, rate, short};
use std::fmt::Write as _;

/// The calibration as an HTML document.
#[must_use]
pub fn calibration_page(calibration: &Calibration) -> String {
    let mut out = String::with_capacity(64 * 1024);
    head(&mut out, "linewise: calibration");
    header(&mut out, calibration);
    out.push_str("<main>\n");
    thresholds(&mut out, calibration);
    figure_1(&mut out, &calibration.lines);
    if let Some(bandwidth) = &calibration.bandwidth {
        figure_2(&mut out, bandwidth);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn header(out: &mut String, calibration: &Calibration) {
    let _ = writeln!(
        out,
        "<header>\n<p class=\"brand\">linewise calibrate</p>\n\
         <h1>From which rates on it pays to move a thread here</h1>\n\
         <p>A figure is the median of runs that were made in turns and in one state of the machine: the round trip of a \
         line between the CPUs is measured before and after each. Thin lines reach from the least to the most.</p>"
    );
    for note in &calibration.notes {
        let _ = writeln!(out, "<p class=\"quiet\">Note: {note}.</p>");
    }
    out.push_str("</header>\n");
}

fn thresholds(out: &mut String, calibration: &Calibration) {
    out.push_str(
        "<section>\n<h2>Thresholds</h2>\n<div class=\"card scroll\"><table class=\"words\">\n<thead><tr><th></th><th>threshold</th>\
         <th>how it was got</th></tr></thead>\n<tbody>\n",
    );
    for (name, unit, threshold) in named(calibration) {
        let _ = writeln!(
            out,
            "<tr><th>{name}</th><td class=\"best\">{}<small>{unit}</small></td><td>{}: {}</td></tr>",
            rate(threshold.per_s),
            threshold.origin.kind.word(),
            threshold.origin.words
        );
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn figure_1(out: &mut String, lines: &Lines) {
    out.push_str("<section>\n<h2>Figure 1: speedup by coherence events</h2>\n");
    out.push_str(
        "<p>Two threads share 64 lines and compute more or less between two accesses. Each curve has how much faster their \
         loops are near to each other than apart, by the lines that come to a thread per second of its CPU time while \
         they are apart. A line came if another thread wrote what is read.</p>\n",
    );
    let curves: Vec<Curve> = lines.comparisons.iter().enumerate().map(speedups).collect();
    if curves.iter().any(|curve| curve.points.len() > 1) {
        out.push_str("<div class=\"card\">\n");
        draw(
            out,
            &curves,
            &Axes {
                along: "coherence events of a thread per second of its CPU time",
                numbers: Along::Rates,
                unit: "times",
                described: "Speedup by coherence events a second; the figures are in the table below",
                marks: &marks(&lines.comparisons),
            },
        );
        out.push_str("</div>\n");
    }
    for comparison in &lines.comparisons {
        curve_table(out, comparison);
    }
    distances(out, lines);
    out.push_str("</section>\n");
}

fn speedups((number, comparison): (usize, &Comparison)) -> Curve {
    let point = |point: &SpeedupPoint| drawn(point.events_per_s, &point.speedup, 1.0);
    let mut points: Vec<Point> = comparison.points.iter().map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Curve {
        number,
        name: title(comparison),
        points,
    }
}

fn drawn(x: f64, spread: &Spread, unit: f64) -> Point {
    Point {
        x,
        y: spread.median / unit,
        low: spread.low / unit,
        high: spread.high / unit,
        samples: spread.runs,
    }
}

/// Where each curve reaches 5 %.
fn marks(comparisons: &[Comparison]) -> Vec<Mark> {
    let mark = |comparison: &Comparison| match comparison.crossing {
        Some(Crossing::At(x)) => Some(Mark {
            x,
            name: format!("5 %: {}", comparison.far.words()),
        }),
        _ => None,
    };
    comparisons.iter().filter_map(mark).collect()
}

fn curve_table(out: &mut String, comparison: &Comparison) {
    let _ = write!(
        out,
        "<div class=\"card scroll\"><table>\n<caption>Speedup of {}: {}. Cost: the share of the time that distance takes of \
         the threads apart.</caption>\n<thead><tr><th>computing, ns</th><th>events/s</th><th>speedup</th>\
         <th>least</th><th>most</th><th>cost, %</th><th>runs</th></tr></thead>\n<tbody>\n",
        title(comparison),
        reached(comparison)
    );
    for point in &comparison.points {
        let spread = &point.speedup;
        let _ = writeln!(
            out,
            "<tr><th>{:.0}</th><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td><td>{:.1}</td><td>{}</td></tr>",
            point.pause_ns,
            rate(point.events_per_s),
            spread.median,
            spread.low,
            spread.high,
            point.cost() * 100.0,
            spread.runs
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn distances(out: &mut String, lines: &Lines) {
    out.push_str(
        "<h3>Distances</h3>\n<div class=\"card scroll\"><table class=\"words\">\n<thead><tr><th>distance</th><th>CPUs</th>\
         <th>round trip, ns</th></tr></thead>\n<tbody>\n",
    );
    for measured in &lines.measured {
        let trip = measured.round_trip_ns.map_or_else(
            || "not measured".to_owned(),
            |trip| format!("{:.0} ({:.0} to {:.0})", trip.median, trip.low, trip.high),
        );
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{trip}</td></tr>",
            measured.pair.distance.words(),
            list(&measured.pair.cpus)
        );
    }
    for lacking in &lines.lacking {
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>–</td><td>cannot be had: {}</td></tr>",
            lacking.distance.words(),
            lacking.why
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn figure_2(out: &mut String, bandwidth: &Bandwidth) {
    let _ = writeln!(
        out,
        "<section>\n<h2>Figure 2: bandwidth by tasks</h2>\n<p>Tasks on CPUs {} copy {} MiB in {}: one line of 64 bytes of \
         each row of 4 KiB (low row-buffer hit ratio, RBHR), or whole rows (high). A copied line is two misses of the \
         last-level cache: it is read, and the line that it is copied to is read to be owned. The threshold is 20 % \
         below the most at the low ratio.</p>",
        list(&bandwidth.cpus),
        bandwidth.memory_bytes >> 20,
        bandwidth.pages
    );
    let mut curves: Vec<Curve> = Pattern::ALL
        .into_iter()
        .map(|it| tasks(bandwidth, it))
        .collect();
    let most = bandwidth.points.iter().map(|it| it.tasks).max();
    if most.is_some_and(|most| most > 1) {
        curves.extend(threshold(bandwidth, most.unwrap_or(1)));
        out.push_str("<div class=\"card\">\n");
        draw(
            out,
            &curves,
            &Axes {
                along: "tasks that copy",
                numbers: Along::Counts,
                unit: "M misses/s",
                described: "Misses a second by tasks; the figures are in the table below",
                marks: &[],
            },
        );
        out.push_str("</div>\n");
    }
    out.push_str(
        "<div class=\"card scroll\"><table>\n<thead><tr><th>tasks</th><th>row-buffer hit ratio</th><th>M misses/s</th>\
         <th>least</th><th>most</th><th>GB/s copied</th><th>runs</th></tr></thead>\n<tbody>\n",
    );
    for point in &bandwidth.points {
        let spread = &point.misses_per_s;
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            point.tasks,
            point.pattern.words(),
            short(spread.median / 1e6),
            short(spread.low / 1e6),
            short(spread.high / 1e6),
            short(point.copied_bytes_per_s / 1e9),
            spread.runs
        );
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn tasks(bandwidth: &Bandwidth, pattern: Pattern) -> Curve {
    let points = bandwidth.points.iter().filter(|it| it.pattern == pattern);
    let point = |point: &BandwidthPoint| drawn(point.tasks as f64, &point.misses_per_s, 1e6);
    Curve {
        number: pattern as usize,
        name: pattern.words().to_owned(),
        points: points.map(point).collect(),
    }
}

/// A level line from one task to `most`.
fn threshold(bandwidth: &Bandwidth, most: usize) -> Option<Curve> {
    /// Colours of the style sheet: a curve's number over this decides on its dashes.
    const COLOURS: usize = 8;
    let level = Spread::of(&[bandwidth.threshold_per_s?])?;
    Some(Curve {
        number: COLOURS + 7,
        name: "threshold".to_owned(),
        points: [1, most].map(|x| drawn(x as f64, &level, 1e6)).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::bandwidth::tests::bandwidth;
    use super::super::pairs::Distance;
    use super::super::result::tests::calibration;
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_has_a_drawing_with_the_threshold() {
        let of = [(Distance::Unshared, 5.0), (Distance::SameLlc, 60.0)];
        let mut calibration = calibration(&of);
        calibration.bandwidth = Some(bandwidth());
        let page = calibration_page(&calibration);
        for word in ["http:", "https:", "<script", "style=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains(">5 %: same LLC</text>"));
        assert!(page.contains("cannot be had: no socket has several"));
    }

    #[test]
    fn one_cpu_has_a_page_without_curves() {
        let page = calibration_page(&calibration(&[]));
        assert!(!page.contains("<svg"));
        assert!(page.contains("taken is what the paper found"));
    }
}
