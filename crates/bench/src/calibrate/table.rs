//! The figures for people.

use super::bandwidth::{Bandwidth, BandwidthPoint};
use super::crossing::Crossing;
use super::lines::{Lines, Named};
use super::memory::Pattern;
use super::result::Calibration;
use super::sweep::Comparison;
use super::thresholds::Threshold;
use crate::drawing::{list, rate, short};
use std::fmt::Write as _;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// The thresholds and what they come from, 80 columns wide.
#[must_use]
pub fn calibration_table(calibration: &Calibration) -> String {
    let mut out = String::new();
    out.push_str("Thresholds\n");
    for (name, unit, threshold) in named(calibration) {
        one_threshold(&mut out, name, unit, threshold);
    }
    lines(&mut out, &calibration.lines);
    if let Some(bandwidth) = &calibration.bandwidth {
        memory(&mut out, bandwidth);
    }
    if let Some(loads) = &calibration.remote_loads {
        let _ = writeln!(
            out,
            "\nA load of memory takes {:.0} ns on its node (CPU {}) and {:.0} ns on another (CPU {}).",
            loads.local_ns.median, loads.local_cpu, loads.remote_ns.median, loads.remote_cpu
        );
    }
    if !calibration.notes.is_empty() {
        out.push('\n');
    }
    for note in &calibration.notes {
        wrapped(&mut out, "Note: ", &format!("{note}."));
    }
    out
}

/// The thresholds with their names and units.
pub(super) fn named(calibration: &Calibration) -> [(&'static str, &'static str, &Threshold); 3] {
    [
        ("coherence", "events/s of CPU time", &calibration.coherence),
        ("remote", "loads/s of CPU time", &calibration.remote),
        ("misses", "misses/s of a node", &calibration.misses),
    ]
}

fn one_threshold(out: &mut String, name: &str, unit: &str, threshold: &Threshold) {
    let (figure, kind) = (rate(threshold.per_s), threshold.origin.kind.word());
    let _ = writeln!(out, "  {name:<10}{figure:>8} {unit:<22}{kind}");
    wrapped(out, "      ", &threshold.origin.words);
}

/// A text in lines that fit, the later ones below the first.
fn wrapped(out: &mut String, before: &str, text: &str) {
    let indent = " ".repeat(before.len());
    let mut line = before.to_owned();
    let mut has_word = false;
    for word in text.split(' ') {
        if has_word && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line.clone_from(&indent);
            has_word = false;
        }
        if has_word {
            line.push(' ');
        }
        line.push_str(word);
        has_word = true;
    }
    let _ = writeln!(out, "{line}");
}

fn lines(out: &mut String, lines: &Lines) {
    if !lines.measured.is_empty() {
        out.push_str("\nDistance        CPUs        round trip, ns\n");
    }
    for measured in &lines.measured {
        let trip = measured.round_trip_ns.map_or_else(
            || "not measured".to_owned(),
            |trip| format!("{:.0} ({:.0} to {:.0})", trip.median, trip.low, trip.high),
        );
        let (words, cpus) = (measured.pair.distance.words(), list(&measured.pair.cpus));
        let _ = writeln!(out, "{words:<16}{cpus:<12}{trip}");
    }
    for lacking in &lines.lacking {
        let (words, why) = (lacking.distance.words(), &lacking.why);
        let before = format!("{words:<16}");
        wrapped(out, &before, &format!("cannot be had: {why}"));
    }
    for comparison in &lines.comparisons {
        curve(out, comparison);
    }
    let hubench = lines.hubench.iter().map(|it| ("Hubench", it));
    let all = hubench.chain(lines.lubench.iter().map(|it| ("Lubench", it)));
    for (name, named) in all {
        point(out, name, named);
    }
}

/// What a comparison compares.
pub(super) fn title(comparison: &Comparison) -> String {
    format!(
        "{} over {}",
        comparison.near.words(),
        comparison.far.words()
    )
}

/// Where it costs 5 %.
pub(super) fn reached(comparison: &Comparison) -> String {
    match comparison.crossing {
        Some(Crossing::At(per_s)) => {
            let between = comparison.crossing_between;
            let between = between.map_or_else(String::new, |(from, to)| {
                format!(" ({} to {} by the runs)", rate(from), rate(to))
            });
            format!("5 % at {} events/s{between}", rate(per_s))
        }
        Some(Crossing::NeverUpTo(per_s)) => format!("under 5 % up to {} events/s", rate(per_s)),
        Some(Crossing::AlwaysFrom(per_s)) => format!("over 5 % from {} events/s on", rate(per_s)),
        None => "too few runs count".to_owned(),
    }
}

fn curve(out: &mut String, comparison: &Comparison) {
    let _ = writeln!(out, "\nSpeedup of {}", title(comparison));
    let _ = writeln!(
        out,
        "  computing, ns   events/s   speedup (runs from to)      cost, %"
    );
    for point in &comparison.points {
        let spread = &point.speedup;
        let speedup = format!(
            "{:.3} ({:.3} to {:.3})",
            spread.median, spread.low, spread.high
        );
        let _ = writeln!(
            out,
            "  {:>13.0}{:>11}   {speedup:<25}{:>8.1}",
            point.pause_ns,
            rate(point.events_per_s),
            point.cost() * 100.0
        );
    }
    let _ = writeln!(out, "  {}", reached(comparison));
}

fn point(out: &mut String, name: &str, named: &Named) {
    let text = format!(
        "{} over {}: {:.2} times as fast at {} events/s",
        named.near.words(),
        named.far.words(),
        named.point.speedup.median,
        rate(named.point.events_per_s)
    );
    wrapped(out, &format!("{name}: "), &text);
}

fn memory(out: &mut String, bandwidth: &Bandwidth) {
    let node = bandwidth
        .node
        .map_or_else(String::new, |node| format!(" of node {node}"));
    let _ = writeln!(
        out,
        "\nMemory bandwidth{node}: million misses/s (GB/s copied)"
    );
    let _ = writeln!(
        out,
        "  tasks   {:<26}{}",
        Pattern::Low.words(),
        Pattern::High.words()
    );
    let mut tasks: Vec<usize> = bandwidth.points.iter().map(|it| it.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    for tasks in tasks {
        let cells = Pattern::ALL.map(|pattern| {
            let mut points = bandwidth.points.iter();
            let point = points.find(|it| (it.pattern, it.tasks) == (pattern, tasks));
            point.map_or_else(|| "-".to_owned(), cell)
        });
        let line = format!("  {tasks:>5}   {:<26}{:<26}", cells[0], cells[1]);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let text = format!(
        "{} MiB of {}, on CPUs {}",
        bandwidth.memory_bytes >> 20,
        bandwidth.pages,
        list(&bandwidth.cpus)
    );
    wrapped(out, "  ", &text);
}

fn cell(point: &BandwidthPoint) -> String {
    let spread = &point.misses_per_s;
    format!(
        "{} ±{:.0} % ({})",
        short(spread.median / 1e6),
        (spread.high - spread.low) / 2.0 / spread.median.max(f64::MIN_POSITIVE) * 100.0,
        short(point.copied_bytes_per_s / 1e9)
    )
}

#[cfg(test)]
mod tests {
    use super::super::bandwidth::tests::bandwidth;
    use super::super::pairs::Distance;
    use super::super::result::tests::calibration;
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal_and_every_figure_is_there() {
        let all = [
            (Distance::Unshared, 5.0),
            (Distance::SameCore, 10.0),
            (Distance::SameLlc, 60.0),
            (Distance::OtherSocket, 240.0),
        ];
        let mut calibration = calibration(&all);
        calibration.bandwidth = Some(bandwidth());
        calibration
            .notes
            .push("a word ".repeat(40).trim_end().to_owned());
        let table = calibration_table(&calibration);
        for line in table.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert_eq!(line.trim_end(), line);
        }
        for text in [
            "measured",
            "assumed",
            "same socket     cannot be had: no socket has several",
            "Speedup of same LLC over other socket",
            "Hubench: ",
            "Lubench: ",
            "5 % at",
            "Note: a note.",
        ] {
            assert!(table.contains(text), "{text} is not in\n{table}");
        }
    }

    #[test]
    fn one_cpu_has_a_table_without_curves() {
        let table = calibration_table(&calibration(&[]));
        assert!(!table.contains("Speedup"), "{table}");
        assert!(table.contains("taken is what the paper found"), "{table}");
    }
}
