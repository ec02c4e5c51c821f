//! The figures as one self-contained HTML file: curves for each cache as in the thesis's figures, and below them the
//! numbers. All names are our own, so that none needs escaping.

use super::caches::Level;
use super::result::{Accesstest, DataPoint, Range};
use super::spec::{Mode, SessionType};
use super::table::{cases, gain, millions, of, ratio, spread_percent, state_name, states};
use crate::drawing::{Along, Axes, Curve, Mark, Point, count, draw, head, list};
use std::fmt::Write as _;

/// Colours of the style sheet: a curve's number over this decides on its dashes.
const COLOURS: usize = 8;

/// The test as an HTML document.
#[must_use]
pub fn accesstest_page(test: &Accesstest) -> String {
    let mut out = String::with_capacity(64 * 1024);
    head(&mut out, "linewise: access test");
    header(&mut out, test);
    out.push_str("<main>\n");
    for state in states(test) {
        for range in Range::of(test) {
            section(&mut out, test, state, range);
        }
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn header(out: &mut String, test: &Accesstest) {
    let sessions = match test.session_type {
        SessionType::Fibre => "fibres",
        SessionType::Thread => "threads",
    };
    let _ = writeln!(
        out,
        "<header>\n<p class=\"brand\">linewise bench accesstest</p>\n\
         <h1>Accesses by size of the working set, executed in place and delegated</h1>\n\
         <p>{} sessions ({sessions}) on CPUs {} walk a circular pointer chase that is cut into phases. \
         Synchronous: each CPU executes all phases of its part of the sessions. Delegated: each CPU executes its \
         phases of all sessions, which move. Visit and requests: sessions stay on the first CPU and ship the other \
         phases as closures, or as requests to a server. A figure is the median of up to {} runs of {} s, all made \
         in one state of the machine: the round trip of a line between the CPUs is measured before and after each. \
         Thin lines reach from the slowest to the fastest.</p>",
        test.sessions,
        list(&test.cpus),
        test.repeats,
        test.seconds,
    );
    for memory in &test.memory {
        let _ = writeln!(out, "<p class=\"quiet\">Memory: {}.</p>", memory.words());
    }
    for note in &test.notes {
        let _ = writeln!(out, "<p class=\"quiet\">{note}.</p>");
    }
    if test.left_out > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">{} of {} runs are left out: the round trip between the CPUs changed while they were \
             made, or could not be measured, or others took the CPUs.</p>",
            test.left_out,
            test.samples.len(),
        );
    }
    out.push_str("</header>\n");
}

/// The curves and figures around a cache in a state.
fn section(out: &mut String, test: &Accesstest, state: Option<usize>, range: Range) {
    let here: Vec<usize> = cases(test, state)
        .into_iter()
        .filter(|case| {
            let mut points = test.points.iter();
            points.any(|point| point.case == *case && range.holds(point.bytes))
        })
        .collect();
    if here.is_empty() {
        return;
    }
    let around = range.level.map_or("", Level::title);
    let _ = writeln!(
        out,
        "<section>\n<h2>Around {around}, {}</h2>",
        state_name(test, state)
    );
    let pairs: [(&[Mode], &str); 2] = [
        (
            &[Mode::Synchronous, Mode::Delegated],
            "Synchronous and delegated",
        ),
        (
            &[Mode::Delegated, Mode::Visit, Mode::Requests],
            "Three ways to delegate",
        ),
    ];
    let marks = marks(test);
    for (modes, title) in pairs {
        let curves = curves(test, state, &here, modes);
        if curves.iter().all(|curve| curve.points.len() < 2) {
            continue;
        }
        let _ = writeln!(out, "<h3>{title}</h3>\n<div class=\"card\">");
        draw(
            out,
            &curves,
            &Axes {
                along: "bytes of the working set",
                numbers: Along::Counts,
                unit: "M/s",
                described: "Million accesses a second by working set; the figures are in the table below",
                marks: &marks,
            },
        );
        out.push_str("</div>\n");
    }
    table(out, test, state, &here);
    out.push_str("</section>\n");
}

/// Each cache, and twice its size: where one CPU's phases fill it.
fn marks(test: &Accesstest) -> Vec<Mark> {
    let sized = Level::ALL
        .into_iter()
        .filter_map(|level| Some((level, test.caches.of(level)?)));
    let mark = |(level, size): (Level, u64)| {
        [(1, ""), (2, "2 × ")].map(|(times, prefix)| Mark {
            x: (size * times) as f64,
            name: format!("{prefix}{}", level.title()),
        })
    };
    sized.flat_map(mark).collect()
}

/// A curve for each mode and ratio: the ratio decides on its colour, the mode on its dashes.
fn curves(test: &Accesstest, state: Option<usize>, here: &[usize], modes: &[Mode]) -> Vec<Curve> {
    let mut ratios: Vec<String> = Vec::new();
    for case in here {
        let point = test.points.iter().find(|point| point.case == *case);
        if let Some(ratio) = point.map(ratio).filter(|ratio| !ratios.contains(ratio)) {
            ratios.push(ratio);
        }
    }
    let mut curves = Vec::new();
    for (colour, wanted) in ratios.iter().enumerate() {
        for &mode in modes {
            let points = here.iter().filter_map(|case| of(test, state, *case, mode));
            let points = points.filter(|point| ratio(point) == *wanted);
            let points: Vec<Point> = points.map(drawn).collect();
            if !points.is_empty() {
                let dashes = Mode::ALL.iter().position(|one| *one == mode).unwrap_or(0);
                curves.push(Curve {
                    number: dashes * COLOURS + colour % COLOURS,
                    name: format!("{} {wanted} %", mode.name()),
                    points,
                });
            }
        }
    }
    curves
}

fn drawn(point: &DataPoint) -> Point {
    let rate = &point.accesses_per_s;
    Point {
        x: point.bytes as f64,
        y: rate.median / 1e6,
        low: rate.low / 1e6,
        high: rate.high / 1e6,
        samples: point.runs,
    }
}

fn table(out: &mut String, test: &Accesstest, state: Option<usize>, here: &[usize]) {
    out.push_str(
        "<div class=\"card scroll\"><table>\n<caption>Million accesses a second; small: half of what the runs \
         spread, percent. Written: the share of accesses that write in the paths, which have whole accesses. Gain: \
         of delegated over synchronous.</caption>\n<thead><tr><th>bytes</th><th>update, %</th><th>written, %</th>",
    );
    for mode in &test.modes {
        let _ = write!(out, "<th>{}</th>", mode.name());
    }
    out.push_str("<th>gain, %</th><th>round trip, ns</th></tr></thead>\n<tbody>\n");
    for &case in here {
        let points = test
            .modes
            .iter()
            .filter_map(|mode| of(test, state, case, *mode));
        let points: Vec<&DataPoint> = points.collect();
        let Some(first) = points.first() else {
            continue;
        };
        let best = points
            .iter()
            .map(|point| point.accesses_per_s.median)
            .fold(0.0, f64::max);
        let _ = write!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{:.2}</td>",
            count(first.bytes as f64),
            ratio(first),
            first.written_percent
        );
        for mode in &test.modes {
            let Some(point) = of(test, state, case, *mode) else {
                out.push_str("<td>–</td>");
                continue;
            };
            let rate = &point.accesses_per_s;
            let class = if rate.median >= best {
                " class=\"best\""
            } else {
                ""
            };
            let _ = write!(
                out,
                "<td{class}>{}<small>±{:.0}</small></td>",
                millions(rate),
                spread_percent(rate)
            );
        }
        let gain =
            gain(test, state, case).map_or_else(|| "–".to_owned(), |gain| format!("{gain:+.0}"));
        let trip = first
            .round_trip_ns
            .map_or_else(|| "–".to_owned(), |trip| format!("{trip:.0}"));
        let _ = writeln!(out, "<td>{gain}</td><td>{trip}</td></tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::test;
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_has_a_drawing_for_each_cache_and_comparison() {
        let near = Some((60.0, 60.0));
        let sizes = [
            (24 << 10, 0.0),
            (96 << 10, 0.0),
            (1 << 20, 0.0),
            (4 << 20, 0.0),
        ];
        let mut runs = Vec::new();
        for case in 0..sizes.len() {
            for mode in Mode::ALL {
                runs.push((case, mode, 100e6, near));
            }
        }
        let page = accesstest_page(&test(&sizes, &runs));
        for word in ["http:", "https:", "<script", "style=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("Around L1d, round trip 60 ns"));
        assert!(page.contains("2 × L2"));
        assert_eq!(page.matches("<tr><th>").count(), 4 + 2);
    }

    #[test]
    fn a_single_path_is_a_table_without_a_drawing() {
        let page = accesstest_page(&test(&[(4096, 10.0)], &[(0, Mode::Synchronous, 1e6, None)]));
        assert!(!page.contains("<svg"));
        assert!(page.contains("1 of 1 runs are left out"));
    }
}
