//! What the pictures of an exact run share: scales, axes, and the marks at the caches' sizes.
//!
//! Sizes are in the drawing's own units, which the style sheet makes about one CSS pixel on a wide
//! page; a narrow one scrolls.

use maud::{Markup, html};

/// Width of a chart.
pub(super) const WIDTH: f64 = 1000.0;
/// Room for the labels of the vertical axis.
pub(super) const LEFT: f64 = 66.0;
/// Room above the plot for the names of the caches.
pub(super) const TOP: f64 = 40.0;
/// Room under the plot for the labels of the horizontal axis.
pub(super) const BOTTOM: f64 = 24.0;

/// A coordinate, as exactly as it can be seen.
pub(super) fn at(units: f64) -> String {
    format!("{units:.1}")
}

/// A chart of `height` units that is `described` for who cannot see it.
pub(super) fn chart(height: f64, described: &str, content: Markup) -> Markup {
    html! {
        div.scroll {
            svg.chart viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(described) { (content) }
        }
    }
}

/// Words at a point.
pub(super) fn label(class: &str, (x, y): (f64, f64), words: &str) -> Markup {
    html! { text class=(class) x=(at(x)) y=(at(y)) { (words) } }
}

/// A rectangle, from its upper left corner.
pub(super) fn rect(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Markup {
    html! { rect class=(class) x=(at(x)) y=(at(y)) width=(at(width)) height=(at(height)) {} }
}

/// A line, by the commands of an SVG path.
pub(super) fn path(class: &str, commands: &str) -> Markup {
    html! { path class=(class) d=(commands) {} }
}

/// What a colour stands for.
pub(super) fn key(width: u32, colour: Markup, name: &str) -> Markup {
    html! {
        span { svg.key width=(width) height="12" aria-hidden="true" { (colour) } " " (name) } " "
    }
}

/// What the colour of bars stands for.
pub(super) fn bar_key(class: &str, name: &str) -> Markup {
    key(
        12,
        html! { rect class=(class) width="12" height="12" {} },
        name,
    )
}

/// A tick of the horizontal axis of a plot of `height`, with its label.
pub(super) fn tick(x: f64, height: f64, words: &str) -> Markup {
    html! {
        (path("base", &format!("M{x:.1} {:.1}v4", TOP + height)))
        (label("label middle", (x, TOP + height + 17.0), words))
    }
}

/// A vertical scale of shares by powers of ten, down to one that shows the smallest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    decades: u32,
    height: f64,
}

impl Shares {
    /// Shares below are not told apart from nothing.
    const SMALLEST: f64 = 1e-5;

    /// The scale for `shares` on `height` units.
    pub(super) fn new(shares: impl Iterator<Item = f64>, height: f64) -> Self {
        let smallest = shares
            .filter(|share| *share > 0.0)
            .fold(0.1, f64::min)
            .max(Self::SMALLEST);
        Self {
            // A bar of the smallest share still has some height.
            decades: ((-smallest.log10() + 0.3).ceil() as u32).clamp(2, 6),
            height,
        }
    }

    /// How far from the top `share` lies; the whole height for nothing.
    pub(super) fn y(self, share: f64) -> f64 {
        if share.is_nan() || share <= 0.0 {
            return self.height;
        }
        (-share.log10() / f64::from(self.decades) * self.height).clamp(0.0, self.height)
    }

    /// Lines and labels from the left to `right`, the plot beginning at `top`.
    pub(super) fn axis(self, top: f64, right: f64) -> Markup {
        let y = |decade| top + self.height * f64::from(decade) / f64::from(self.decades);
        let words = |decade| match decade {
            0..=2 => format!("{} %", 10_u32.pow(2 - decade)),
            _ => format!("0.{:0>width$} %", 1, width = decade as usize - 2),
        };
        let line = |class, y| path(class, &format!("M{LEFT} {y:.1}H{right:.1}"));
        html! {
            @for decade in 0..self.decades {
                (line("grid", y(decade)))
                (label("label end", (LEFT - 6.0, y(decade) + 4.0), &words(decade)))
            }
            (line("base", y(self.decades)))
        }
    }
}

/// Vertical lines at `x` with a name above each; names that would overlap take turns in two rows.
pub(super) fn marks(marks: &[(f64, String)], height: f64, right: f64) -> Markup {
    // About what a character takes.
    let width_of = |name: &str| name.chars().count() as f64 * 7.0 + 8.0;
    let mut ends = [f64::NEG_INFINITY; 2];
    let mut mark = |x: f64, name: &str| {
        let width = width_of(name);
        let left = x.min(right - width).max(LEFT);
        let row = usize::from(left < ends[0]);
        ends[row] = left + width;
        let y = TOP - 8.0 - 15.0 * row as f64;
        html! {
            (path("mark", &format!("M{x:.1} {:.1}V{:.1}", y + 4.0, TOP + height)))
            (label("label", (left, y), name))
        }
    };
    html! { @for (x, name) in marks { (mark(*x, name)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_reaches_from_everything_to_the_smallest_share() {
        let shares = Shares::new([0.9, 0.002, 0.0].into_iter(), 100.0);
        assert_eq!(shares.y(1.0), 0.0);
        assert_eq!(shares.y(0.0), 100.0);
        assert!(shares.y(0.002) < 100.0 && shares.y(0.002) > shares.y(0.9));
        assert!((0.0..=100.0).contains(&shares.y(f64::NAN)));
        assert_eq!(shares.y(f64::INFINITY), 0.0);
    }
}
