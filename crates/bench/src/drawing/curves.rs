//! A drawing of curves: rates on a logarithmic scale over powers of two, or over rates.
//!
//! Sizes are in the drawing's own units, which the style sheet makes about one CSS pixel on a wide
//! page; a narrow one scrolls.

use super::figures::{rate, short};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 52.0;
/// Where the curves end, and the room for their names begins.
const RIGHT: f64 = 812.0;
const TOP: f64 = 14.0;
const HEIGHT: f64 = 430.0;
const BOTTOM: f64 = 46.0;
/// Between the names of two curves.
const LINE: f64 = 15.0;
/// Between two numbers of the horizontal axis.
const TICK: f64 = 30.0;
/// A drawing of fewer powers of ten has evenly spaced numbers beside it.
const LOW: f64 = 0.6;
/// Colours in the style sheet.
const COLOURS: usize = 8;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Where it stands on the horizontal axis: a count. 0 stands half an octave left of 1.
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) samples: usize,
}

/// A named curve. The number decides on its colour and dashes, so that it looks the same in every
/// drawing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// What stands on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Along {
    /// Counts, each with its number: 64, `4 Ki`.
    Counts,
    /// Rates between which there is anything, with round numbers: `200 k`, `1.00 M`.
    Rates,
}

impl Along {
    fn named(self, value: f64) -> String {
        match self {
            Self::Counts => count(value),
            Self::Rates => rate(value),
        }
    }

    /// Where numbers stand, ascending.
    fn ticks(self, curves: &[Curve]) -> Vec<f64> {
        let points = curves.iter().flat_map(|curve| &curve.points);
        let mut ticks: Vec<f64> = points.map(|point| point.x).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let (Self::Rates, Some(&first), Some(&last)) = (self, ticks.first(), ticks.last()) else {
            return ticks;
        };
        let decades =
            (0..=12).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade)));
        decades
            .filter(|tick| (first..=last).contains(tick))
            .collect()
    }
}

/// What a drawing shows. All texts are ours, so none needs escaping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes<'a> {
    /// What the horizontal axis counts.
    pub(crate) along: &'a str,
    /// How.
    pub(crate) numbers: Along,
    /// The unit of the vertical axis.
    pub(crate) unit: &'a str,
    /// The drawing in words.
    pub(crate) described: &'a str,
    /// Places on the horizontal axis that have names.
    pub(crate) marks: &'a [Mark],
}

/// A place on the horizontal axis that has a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Where.
    pub(crate) x: f64,
    /// Its name.
    pub(crate) name: String,
}

/// Powers of two along, powers of ten up.
struct Scale {
    first: f64,
    octaves: f64,
    /// Powers of ten.
    bottom: f64,
    top: f64,
}

impl Scale {
    fn of(curves: &[Curve]) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let least = points()
            .map(|point| point.low)
            .fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.high).fold(0.0, f64::max);
        let along = || points().map(|point| octave(point.x));
        let first = along().reduce(f64::min).unwrap_or(0.0);
        let last = along().reduce(f64::max).unwrap_or(0.0);
        let bottom = least.clamp(1e-3, 1e4).log10();
        Self {
            first,
            octaves: (last - first).max(1.0),
            bottom,
            // A little air, and never no height.
            top: most.clamp(1e-3, 1e6).log10().max(bottom + 0.1) + 0.03,
        }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + 10.0 + (octave(x) - self.first) / self.octaves * (RIGHT - LEFT - 20.0)
    }

    fn y(&self, mops: f64) -> f64 {
        let up = (mops.max(1e-6).log10() - self.bottom) / (self.top - self.bottom);
        TOP + HEIGHT * (1.0 - up.clamp(0.0, 1.0))
    }

    /// Where numbers stand on the vertical axis.
    fn heights(&self) -> Vec<f64> {
        let inside = |height: &f64| (self.bottom..=self.top).contains(&height.max(1e-9).log10());
        let round = |height: f64| (height * 1e6).round() / 1e6;
        if self.top - self.bottom < LOW {
            let (from, to) = (10_f64.powf(self.bottom), 10_f64.powf(self.top));
            let wanted = (to - from) / 6.0;
            let decade = 10_f64.powf(wanted.log10().floor());
            let step = [1.0, 2.0, 5.0].map(|it| it * decade);
            let step = step.into_iter().find(|step| *step >= wanted);
            let step = step.unwrap_or(10.0 * decade);
            let first = (from / step).ceil() as u64;
            let heights = (first..).map(|at| round(at as f64 * step));
            return heights.take_while(inside).collect();
        }
        let decades = (-3..=6)
            .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| round(step * 10_f64.powi(decade))));
        decades.filter(inside).collect()
    }
}

/// A count's place on a scale of powers of two.
fn octave(count: f64) -> f64 {
    count.max(0.5_f64.sqrt()).log2()
}

/// Draws the curves.
pub(crate) fn draw(out: &mut String, curves: &[Curve], axes: &Axes<'_>) {
    let scale = Scale::of(curves);
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
         aria-label=\"{}\">",
        TOP + HEIGHT + BOTTOM,
        axes.described
    );
    write_axes(out, &scale, curves, axes);
    write_marks(out, &scale, axes.marks);
    let names = place_names(curves, &scale);
    for (curve, name_y) in curves.iter().zip(names) {
        write_curve(out, curve, &scale, name_y, axes);
    }
    out.push_str("</svg></div>\n");
}

fn write_axes(out: &mut String, scale: &Scale, curves: &[Curve], axes: &Axes<'_>) {
    for height in scale.heights() {
        let y = scale.y(height);
        if y < TOP + LINE {
            continue; // The unit stands there.
        }
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text class=\"label end\" \
             x=\"{}\" y=\"{:.1}\">{height}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    let base = TOP + HEIGHT;
    let _ = writeln!(out, "<path class=\"base\" d=\"M{LEFT} {base}H{RIGHT}\"/>");
    let _ = writeln!(
        out,
        "<text class=\"label\" x=\"0\" y=\"{:.1}\">{}</text>",
        TOP + 2.0,
        axes.unit
    );
    let mut free = f64::NEG_INFINITY;
    for tick in axes.numbers.ticks(curves) {
        let x = scale.x(tick);
        if x < free {
            continue; // Its number would lie over the one before.
        }
        free = x + TICK;
        let _ = writeln!(
            out,
            "<path class=\"base\" d=\"M{x:.1} {base}v4\"/><text class=\"label middle\" \
             x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            base + 18.0,
            axes.numbers.named(tick)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"label middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (LEFT + RIGHT) / 2.0,
        base + 38.0,
        axes.along
    );
}

fn write_marks(out: &mut String, scale: &Scale, marks: &[Mark]) {
    for mark in marks {
        let x = scale.x(mark.x);
        if !(LEFT..=RIGHT).contains(&x) {
            continue;
        }
        let _ = writeln!(
            out,
            "<path class=\"base mark\" d=\"M{x:.1} {TOP}V{}\"/><text class=\"label\" x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            TOP + HEIGHT,
            x + 4.0,
            TOP + 10.0,
            mark.name
        );
    }
}

/// A count as people write it: 65,536 is `64 Ki`.
pub(crate) fn count(value: f64) -> String {
    let value = value as u64;
    match value {
        mega if mega >= 1 << 20 && mega % (1 << 20) == 0 => format!("{} Mi", mega >> 20),
        kilo if kilo >= 1 << 10 && kilo % (1 << 10) == 0 => format!("{} Ki", kilo >> 10),
        small => small.to_string(),
    }
}

/// The height of each curve's name: beside its last point, and none over another.
fn place_names(curves: &[Curve], scale: &Scale) -> Vec<f64> {
    let wanted: Vec<f64> = curves
        .iter()
        .map(|curve| curve.points.last().map_or(0.0, |point| scale.y(point.y)))
        .collect();
    let mut order: Vec<usize> = (0..curves.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut placed = wanted.clone();
    let mut free = TOP;
    for &curve in &order {
        placed[curve] = wanted[curve].max(free);
        free = placed[curve] + LINE;
    }
    // What was pushed below the drawing pushes the others up again.
    let mut bottom = TOP + HEIGHT + BOTTOM - LINE;
    for &curve in order.iter().rev() {
        placed[curve] = placed[curve].min(bottom);
        bottom = placed[curve] - LINE;
    }
    placed
}

fn write_curve(out: &mut String, curve: &Curve, scale: &Scale, name_y: f64, axes: &Axes<'_>) {
    let Some(last) = curve.points.last() else {
        return;
    };
    let _ = writeln!(
        out,
        "<g class=\"curve s{} d{}\">",
        curve.number % COLOURS,
        curve.number / COLOURS % 3
    );
    let mut path = String::new();
    for point in &curve.points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(
            path,
            "{step}{:.1} {:.1}",
            scale.x(point.x),
            scale.y(point.y)
        );
    }
    let _ = writeln!(out, "<path class=\"line\" d=\"{path}\"/>");
    for point in &curve.points {
        let (x, y) = (scale.x(point.x), scale.y(point.y));
        let _ = writeln!(
            out,
            "<path class=\"range\" d=\"M{x:.1} {:.1}V{:.1}\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" \
             r=\"3\"><title>{}, {}: {} {}, {} to {} in {}</title></circle>",
            scale.y(point.low),
            scale.y(point.high),
            curve.name,
            axes.numbers.named(point.x),
            short(point.y),
            axes.unit,
            short(point.low),
            short(point.high),
            point.samples,
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"lead\" d=\"M{:.1} {:.1}L{:.1} {name_y:.1}\"/><text x=\"{:.1}\" \
         y=\"{:.1}\">{}</text>\n</g>",
        scale.x(last.x) + 4.0,
        scale.y(last.y),
        RIGHT + 14.0,
        RIGHT + 18.0,
        name_y + 4.0,
        curve.name,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(number: usize, y: f64) -> Curve {
        Curve {
            number,
            name: format!("c{number}"),
            points: vec![Point {
                x: 4.0,
                y,
                low: y,
                high: y,
                samples: 1,
            }],
        }
    }

    #[test]
    fn names_of_curves_that_end_together_do_not_overlap() {
        let curves: Vec<Curve> = (0..16).map(|number| curve(number, 5.0)).collect();
        let mut names = place_names(&curves, &Scale::of(&curves));
        names.sort_by(f64::total_cmp);
        assert!(
            names
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= LINE - 0.01)
        );
        assert!(
            names
                .iter()
                .all(|y| (0.0..TOP + HEIGHT + BOTTOM).contains(y))
        );
    }

    #[test]
    fn the_faster_curve_lies_higher_and_both_inside() {
        let curves = [curve(0, 2.0), curve(1, 400.0)];
        let scale = Scale::of(&curves);
        assert!(scale.y(400.0) < scale.y(2.0));
        assert!((TOP..=TOP + HEIGHT).contains(&scale.y(2.0)));
        assert!((LEFT..=RIGHT).contains(&scale.x(4.0)));
    }

    #[test]
    fn low_and_high_drawings_have_some_round_numbers_beside_them() {
        for (low, high) in [
            (0.98, 1.6),
            (0.999, 1.04),
            (1.0, 2.9),
            (312.0, 444.0),
            (2.0, 400.0),
        ] {
            let heights = Scale::of(&[curve(0, low), curve(1, high)]).heights();
            assert!((2..=10).contains(&heights.len()), "{heights:?}");
        }
    }

    #[test]
    fn rates_have_round_numbers_below_them() {
        let mut rates = curve(0, 1.0);
        rates.points[0].x = 15_000.0;
        rates.points.push(Point {
            x: 1.2e6,
            ..rates.points[0]
        });
        let ticks = Along::Rates.ticks(&[rates]);
        assert_eq!((ticks[0], ticks[ticks.len() - 1]), (20_000.0, 1e6));
        assert_eq!(Along::Rates.named(ticks[0]), "20.0 k");
        assert_eq!(Along::Counts.ticks(&[curve(0, 1.0)]), [4.0]);
    }

    #[test]
    fn counts_are_written_with_binary_units_where_they_are_whole() {
        assert_eq!(count(64.0), "64");
        assert_eq!(count(65_536.0), "64 Ki");
        assert_eq!(count(4_194_304.0), "4 Mi");
        assert_eq!(count(1_025.0), "1025");
    }
}
