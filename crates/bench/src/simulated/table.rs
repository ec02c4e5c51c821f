//! The figures in the terminal.

use std::fmt::Write as _;

use linewise_placement_model::{PolicyKind, Row, WorkloadKind};

use super::{OURS, Results, bars, mean};

const NAME: usize = 31;
/// The machine that is not named in each row.
const USUAL: &str = "2x10x2";

/// The tables, 80 columns wide.
#[must_use]
pub fn table(results: &Results) -> String {
    let mut out = format!(
        "Progress over the static oracle with the program alone; {} seeds, {} s each.\nOn {USUAL} (sockets, \
         cores, hyperthreads), unless another machine is named.\n",
        results.seeds, results.seconds
    );
    let kinds = [
        ("Table 1 of SAM: programs alone", WorkloadKind::Standalone),
        ("Mixes", WorkloadKind::Mix),
        ("Nothing to gain", WorkloadKind::Losing),
    ];
    for (title, kind) in kinds {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(out, "\n{title:NAME$}");
        for policy in PolicyKind::ALL {
            let _ = write!(out, " {:>5}", short(policy));
        }
        out.push('\n');
        for row in &rows {
            let _ = write!(out, "{:NAME$}", named(row));
            for policy in PolicyKind::ALL {
                let _ = write!(
                    out,
                    " {:5.3}",
                    row.policies
                        .get(&policy)
                        .map_or(f64::NAN, |one| one.speedup)
                );
            }
            out.push('\n');
        }
        let _ = write!(out, "{:NAME$}", "geometric mean");
        for policy in PolicyKind::ALL {
            let speedups = rows.iter().filter_map(|row| row.policies.get(&policy));
            let _ = write!(out, " {:5.3}", mean(speedups.map(|one| one.speedup)));
        }
        out.push('\n');
    }
    moves(&mut out, results);
    sensitivity(&mut out, results);
    write_bars(&mut out, results);
    out
}

/// A workload's name, with its machine if that is not the paper's.
fn named(row: &Row) -> String {
    match row.machine {
        USUAL => row.name.clone(),
        machine => format!("{}, {machine}", row.name),
    }
}

/// A policy's name in five letters.
fn short(policy: PolicyKind) -> &'static str {
    match policy {
        PolicyKind::Balancer => "linux",
        PolicyKind::Random => "rand",
        PolicyKind::Matrix => "matrx",
        PolicyKind::Oracle => "oracl",
        other => other.name(),
    }
}

fn moves(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "\n{:NAME$} {:>9} {:>9} {:>9} {:>9}",
        "Moves of a run", "sam", "matrix", "paper", "late"
    );
    for row in &results.rows {
        let of = |policy: PolicyKind| row.policies.get(&policy);
        let [Some(sam), Some(matrix)] = OURS.map(of) else {
            continue;
        };
        let paper = row
            .paper_moves
            .map_or_else(|| "-".to_owned(), |moves| moves.to_string());
        // Only constant load is to come to rest.
        let late = if row.constant {
            format!("{}/{}", sam.late_moves, matrix.late_moves)
        } else {
            "-".to_owned()
        };
        let _ = writeln!(
            out,
            "{:NAME$} {:9.1} {:9.1} {paper:>9} {late:>9}",
            row.name, sam.moves, matrix.moves
        );
    }
}

fn sensitivity(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "\n{:NAME$} {:>7} {:>7}  worst workload",
        "Thresholds, over those measured", "mean", "worst"
    );
    for one in &results.sensitivity {
        let name = format!("{} x {}", one.policy.name(), one.times);
        let _ = writeln!(
            out,
            "{name:NAME$} {:7.3} {:7.3}  {}",
            one.mean, one.worst, one.worst_name
        );
    }
}

fn write_bars(out: &mut String, results: &Results) {
    let _ = writeln!(out, "\n{:50} {:>6} {:>8}  bar", "Bars", "policy", "is");
    for bar in bars(results) {
        let missed = if bar.is_met { "" } else { ", missed" };
        let worst = bar
            .worst
            .map_or_else(String::new, |name| format!(" ({name})"));
        let _ = writeln!(
            out,
            "{:50} {:>6} {:8.3}  {}{missed}{worst}",
            bar.what,
            bar.policy.name(),
            bar.value,
            bar.bar
        );
    }
}
