//! A drawing of bars in groups, with whiskers.

use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 40.0;
const TOP: f64 = 30.0;
const HEIGHT: f64 = 260.0;
/// Room for names, which stand upright below their groups.
const BOTTOM: f64 = 190.0;

/// Bars that stand together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// Ours, so it needs no escaping.
    pub(crate) name: String,
    /// Height, and the ends of its whisker.
    pub(crate) bars: Vec<(f64, f64, f64)>,
}

/// What all groups have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bars<'a> {
    /// The names of the bars of each group.
    pub(crate) names: &'a [&'a str],
    /// The drawing in words.
    pub(crate) described: &'a str,
}

/// Draws groups of bars from 0 up.
pub(crate) fn draw_bars(out: &mut String, groups: &[Group], all: &Bars<'_>) {
    let most = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|&(bar, _, high)| bar.max(high));
    let top = most.fold(1.0, f64::max) * 1.02;
    let y = |value: f64| TOP + HEIGHT * (1.0 - value.clamp(0.0, top) / top);
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        TOP + HEIGHT + BOTTOM,
        all.described
    );
    for step in 0..=(top * 5.0) as u32 {
        let value = f64::from(step) / 5.0;
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {:.1}H{WIDTH}\"/><text class=\"label end\" x=\"{}\" y=\"{:.1}\">\
             {value:.1}</text>",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0
        );
    }
    for (at, name) in all.names.iter().enumerate() {
        let x = LEFT + at as f64 * 110.0;
        let _ = writeln!(
            out,
            "<g class=\"s{at}\"><rect x=\"{x}\" y=\"6\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"16\">{name}\
             </text></g>",
            x + 17.0
        );
    }
    let step = (WIDTH - LEFT) / groups.len().max(1) as f64;
    for (at, group) in groups.iter().enumerate() {
        write_group(
            out,
            group,
            LEFT + at as f64 * step,
            step.min(120.0),
            &y,
            all.names,
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"base\" d=\"M{LEFT} {0}H{WIDTH}\"/></svg></div>",
        TOP + HEIGHT
    );
}

fn write_group(
    out: &mut String,
    group: &Group,
    left: f64,
    width: f64,
    y: &impl Fn(f64) -> f64,
    names: &[&str],
) {
    let bar = width * 0.8 / group.bars.len().max(1) as f64;
    for (at, &(value, low, high)) in group.bars.iter().enumerate() {
        let x = left + width * 0.1 + at as f64 * bar;
        let name = names.get(at).copied().unwrap_or_default();
        let _ = writeln!(
            out,
            "<g class=\"s{at}\"><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}, {name}: \
             {value:.3}, {low:.3} to {high:.3}</title></rect></g>",
            y(value),
            bar * 0.9,
            TOP + HEIGHT - y(value),
            group.name
        );
        if high > low {
            let _ = writeln!(
                out,
                "<path class=\"base\" d=\"M{:.1} {:.1}V{:.1}\"/>",
                x + bar * 0.45,
                y(high),
                y(low)
            );
        }
    }
    let (x, base) = (left + width / 2.0, TOP + HEIGHT + 8.0);
    let _ = writeln!(
        out,
        "<text class=\"label end\" transform=\"translate({x:.1} {base:.1}) rotate(-60)\">{}</text>",
        group.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_figure_is_a_higher_bar_and_none_leaves_the_drawing() {
        let group = |value: f64| Group {
            name: "g".to_owned(),
            bars: vec![(value, value, value)],
        };
        let mut out = String::new();
        let bars = Bars {
            names: &["one"],
            described: "two bars",
        };
        draw_bars(&mut out, &[group(0.5), group(1.5)], &bars);
        let heights = out.split("height=\"").skip(2).filter_map(|part| {
            part.split('"')
                .next()
                .and_then(|height| height.parse::<f64>().ok())
        });
        let heights: Vec<f64> = heights.collect();
        assert_eq!(heights.len(), 2);
        assert!(heights[0] < heights[1] && heights[1] <= HEIGHT);
    }
}
