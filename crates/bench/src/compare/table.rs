//! The comparison for people and for programs.

use super::Comparison;
use std::fmt::Write as _;

/// Truth against measured as a table for people: a line for each benchmark, then the bars that were
/// missed. Transfers are per second; `held` is how many repeats' intervals hold the truth; `width`
/// is the interval's width ÷ truth.
#[must_use]
pub fn sharing_table(rows: &[Comparison]) -> String {
    let mut out = format!(
        "{:<18} {:>3} {:>5} {:>7} {:>7} {:>15} {:>5} {:>5} {:>6} {:>5} {:>11} {:>6} {:>9}\n",
        "workload",
        "thr",
        "frac",
        "truth",
        "est.",
        "90 % interval",
        "ratio",
        "cv %",
        "width",
        "held",
        "false t/m %",
        "cell",
        "rtt ns",
    );
    for row in rows {
        let interval = format!(
            "{}-{}",
            short(row.low_per_second),
            short(row.high_per_second)
        );
        let falsely = match (row.false_share_truth, row.false_share_measured) {
            (Some(truth), Some(measured)) => {
                format!("{:.0}/{:.0}", 100.0 * truth, 100.0 * measured)
            }
            (Some(truth), None) => format!("{:.0}/-", 100.0 * truth),
            (None, Some(measured)) => format!("-/{:.0}", 100.0 * measured),
            (None, None) => "-".to_owned(),
        };
        let trips = match row.round_trip_range_ns {
            Some((low, high)) if (high - low) >= 1.0 => format!("{low:.0}-{high:.0}"),
            Some((low, _)) => format!("{low:.0}"),
            None => "-".to_owned(),
        };
        let held = format!("{}/{}", row.held, row.repeats.len());
        let _ = writeln!(
            out,
            "{:<18} {:>3} {:>5.2} {:>7} {:>7} {:>15} {:>5} {:>5} {:>6} {:>5} {:>11} {:>6.2} {:>9}{}",
            row.workload,
            row.threads,
            row.fraction,
            short(row.truth_per_second),
            short(row.estimate_per_second),
            interval,
            optional(row.ratio, 2, 1.0),
            optional(row.ratio_variation, 0, 100.0),
            optional(row.relative_width, 2, 1.0),
            held,
            falsely,
            row.matrix_difference,
            trips,
            if row.passed() { "" } else { "  missed" },
        );
    }
    for row in rows {
        for bar in row.bars.iter().filter(|bar| !bar.passed) {
            let _ = writeln!(
                out,
                "missed: {}, {} threads, fraction {:.2}: {} is {:.3}, the bar is {}",
                row.workload, row.threads, row.fraction, bar.what, bar.value, bar.limit,
            );
        }
    }
    out
}

/// The same as JSON, with every repeat.
#[must_use]
pub fn sharing_json(rows: &[Comparison]) -> serde_json::Value {
    serde_json::json!({ "schema": 1, "comparisons": rows })
}

fn optional(value: Option<f64>, digits: usize, scale: f64) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("{:.digits$}", value * scale),
    )
}

/// A count in at most six characters: `987`, `12.3k`, `4.56M`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        large if large >= 999.5e6 => (value / 1e9, "G"),
        large if large >= 999.5e3 => (value / 1e6, "M"),
        large if large >= 999.5 => (value / 1e3, "k"),
        _ => return format!("{value:.0}"),
    };
    let digits = if scaled.abs() >= 99.95 {
        0
    } else {
        usize::from(scaled.abs() < 9.995) + 1
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn counts_keep_three_digits_at_every_size() {
        let cases = [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (99_960.0, "100k"),
            (4_560_000.0, "4.56M"),
            (2.5e9, "2.50G"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
