//! What the pictures of an exact run share: scales, axes, and the marks at the caches' sizes.
//!
//! Sizes are in the drawing's own units, which the style sheet makes about one CSS pixel on a wide
//! page; a narrow one scrolls.

use std::fmt::Write as _;

use super::written::Text;

/// Width of a chart.
pub(super) const WIDTH: f64 = 1000.0;
/// Room for the labels of the vertical axis.
pub(super) const LEFT: f64 = 66.0;
/// Room above the plot for the names of the caches.
pub(super) const TOP: f64 = 40.0;
/// Room under the plot for the labels of the horizontal axis.
pub(super) const BOTTOM: f64 = 24.0;

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
    pub(super) fn axis(self, out: &mut String, top: f64, right: f64) {
        for decade in 0..=self.decades {
            let y = top + self.height * f64::from(decade) / f64::from(self.decades);
            let label = match decade {
                0..=2 => format!("{} %", 10_u32.pow(2 - decade)),
                _ => format!("0.{:0>width$} %", 1, width = decade as usize - 2),
            };
            let class = if decade == self.decades {
                "base"
            } else {
                "grid"
            };
            let _ = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>"
            );
            if decade < self.decades {
                let _ = writeln!(
                    out,
                    "<text class=\"label end\" x=\"{}\" y=\"{:.1}\">{label}</text>",
                    LEFT - 6.0,
                    y + 4.0
                );
            }
        }
    }
}

/// Opens a chart of `height` units that is `described` for who cannot see it.
pub(super) fn open(out: &mut String, height: f64, described: &str) {
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">",
        Text(described)
    );
}

/// Closes it.
pub(super) fn close(out: &mut String) {
    out.push_str("</svg></div>\n");
}

/// Vertical lines at `x` with a name above each; names that would overlap take turns in two rows.
pub(super) fn marks(out: &mut String, marks: &[(f64, String)], height: f64, right: f64) {
    // About what a character takes.
    let width_of = |name: &str| name.chars().count() as f64 * 7.0 + 8.0;
    let mut ends = [f64::NEG_INFINITY; 2];
    for (x, name) in marks {
        let width = width_of(name);
        let left = x.min(right - width).max(LEFT);
        let row = usize::from(left < ends[0]);
        ends[row] = left + width;
        let y = TOP - 8.0 - 15.0 * row as f64;
        let _ = writeln!(
            out,
            "<path class=\"mark\" d=\"M{x:.1} {:.1}V{:.1}\"/><text class=\"label\" x=\"{left:.1}\" \
             y=\"{y:.1}\">{}</text>",
            y + 4.0,
            TOP + height,
            Text(name)
        );
    }
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
