//! `cargo xtask exact-stability`: does an exact run count the same transfers however many CPUs the
//! machine has?
//!
//! One program of per-thread counters (crates/tracer/tests/programs/counters.c), which always does
//! the same work, runs under `linewise run --source exact` on one CPU and on two; and so does its
//! repaired twin, whose counters lie on lines of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::round_trip::median;

/// All counts must lie within this share of their median, lowest to highest.
const SPREAD_BAR: f64 = 0.1;
/// The fewest transfers must be so many times the most of the twin.
const RATIO_BAR: f64 = 1_000.0;
/// Bytes between the counters: on one line, and two lines apart.
const DISTANCES: [(&str, &str); 2] = [("bug", "8"), ("twin", "256")];
/// CPUs that program and collector may use.
const CPUS: [(&str, &str); 2] = [("one CPU", "0"), ("two CPUs", "0,1")];

/// What the check reads of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    sharing: Sharing,
}

#[derive(Deserialize)]
struct Sharing {
    transfers: Transfers,
}

#[derive(Deserialize)]
struct Transfers {
    #[serde(rename = "true")]
    true_sharing: f64,
    #[serde(rename = "false")]
    false_sharing: f64,
}

/// The counts of the runs of one variant on so many CPUs.
#[derive(Default, Serialize)]
struct Row {
    variant: &'static str,
    cpus: &'static str,
    transfers: Vec<f64>,
}

/// Runs the program and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or a C compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let runs = arguments.count("--runs", 10)?;
    let times = arguments.count("--times", 1_000_000)?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skip: exact-stability: one CPU is to be compared with two");
        return Ok(true);
    }
    let linewise = release_binary(root)?;
    let work = root.join("target/exact-stability");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let program = compile(root, &work)?;
    let mut rows: BTreeMap<(&str, &str), Row> = BTreeMap::new();
    for round in 1..=runs {
        for (variant, distance) in DISTANCES {
            for (cpus, list) in CPUS {
                eprintln!("round {round} of {runs}: {variant}, {cpus}");
                let report = work.join("report.json");
                let mut command = Command::new("taskset");
                command
                    .args(["--cpu-list", list])
                    .arg(&linewise)
                    .args(["run", "--source", "exact", "--quiet", "--json"])
                    .arg("--report-to")
                    .arg(&report)
                    .arg("--")
                    .arg(&program)
                    .args([distance, &times.to_string()]);
                let transfers = transfers_of(&mut command, &report)?;
                let row = rows.entry((variant, cpus)).or_insert_with(|| Row {
                    variant,
                    cpus,
                    ..Row::default()
                });
                row.transfers.push(transfers);
            }
        }
    }
    let rows: Vec<Row> = rows.into_values().collect();
    let verdict = Verdict::of(&rows);
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
    }
    println!(
        "bug: lowest to highest {:.2} % of the median (bar {:.0} %); at least {:.0} times \
         the twin's most (bar {RATIO_BAR:.0})",
        verdict.spread * 100.0,
        SPREAD_BAR * 100.0,
        verdict.ratio,
    );
    Ok(verdict.passed())
}

fn compile(root: &Path, work: &Path) -> anyhow::Result<PathBuf> {
    let program = work.join("counters");
    let status = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(root.join("crates/tracer/tests/programs/counters.c"))
        .status()
        .context("running cc")?;
    ensure!(status.success(), "counters.c does not compile");
    Ok(program)
}

fn transfers_of(command: &mut Command, report: &Path) -> anyhow::Result<f64> {
    // A report left over from the run before must not be counted.
    if report.exists() {
        fs::remove_file(report).with_context(|| report.display().to_string())?;
    }
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .context("running taskset")?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = fs::read(report).with_context(|| report.display().to_string())?;
    let report: Report = serde_json::from_slice(&text).context("the report of an exact run")?;
    let transfers = report.sharing.transfers;
    Ok(transfers.true_sharing + transfers.false_sharing)
}

/// What the counts of all runs say.
#[derive(Debug, PartialEq)]
struct Verdict {
    /// Of the bug: highest less lowest, over the median.
    spread: f64,
    /// The bug's lowest count over the twin's highest, or over one if the twin has none.
    ratio: f64,
}

impl Verdict {
    fn of(rows: &[Row]) -> Self {
        let counts = |variant: &str| -> Vec<f64> {
            rows.iter()
                .filter(|row| row.variant == variant)
                .flat_map(|row| row.transfers.iter().copied())
                .collect()
        };
        let (bug, twin) = (counts("bug"), counts("twin"));
        let (lowest, highest) = ends(&bug);
        Self {
            spread: (highest - lowest) / median(&bug).unwrap_or(0.0),
            ratio: lowest / ends(&twin).1.max(1.0),
        }
    }

    fn passed(&self) -> bool {
        self.spread <= SPREAD_BAR && self.ratio >= RATIO_BAR
    }
}

fn ends(counts: &[f64]) -> (f64, f64) {
    counts
        .iter()
        .fold((f64::INFINITY, 0.0), |(low, high), &count| {
            (count.min(low), count.max(high))
        })
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<8} {:<10} {:>4}  {:>12} {:>22}",
        "program", "CPUs", "runs", "transfers", "lowest..highest"
    );
    for row in rows {
        let (low, high) = ends(&row.transfers);
        println!(
            "{:<8} {:<10} {:>4}  {:>12.0} {:>22}",
            row.variant,
            row.cpus,
            row.transfers.len(),
            median(&row.transfers).unwrap_or(0.0),
            format!("{low:.0}..{high:.0}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(bug: &[f64], twin: &[f64]) -> Vec<Row> {
        [("bug", bug), ("twin", twin)]
            .map(|(variant, counts)| Row {
                variant,
                cpus: "two CPUs",
                transfers: counts.to_vec(),
            })
            .into()
    }

    #[test]
    fn counts_that_agree_and_tower_over_the_twins_pass() {
        let verdict = Verdict::of(&rows(&[1e6, 0.95e6, 1.04e6], &[3.0, 9.0]));
        assert!((verdict.spread - 0.09).abs() < 1e-9, "{verdict:?}");
        assert!(verdict.passed());
    }

    #[test]
    fn counts_that_scatter_or_a_twin_that_shares_fail() {
        assert!(!Verdict::of(&rows(&[1e6, 1.2e6], &[3.0])).passed());
        assert!(!Verdict::of(&rows(&[1e6, 1e6], &[3.0, 1_100.0])).passed());
        assert!(!Verdict::of(&rows(&[0.0, 0.0], &[0.0])).passed());
    }
}
