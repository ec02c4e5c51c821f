//! `cargo xtask curve`: the miss-ratio curve of an exact run beside the caches that the same run
//! simulated, at the size of each, on real programs.
//!
//! The curve comes from LRU stack distances: a fully associative cache that sees every access. The
//! simulated caches have sets, and the second level and the last see only what the level before
//! misses. So a part of the difference is true; the share of conflict misses, which a fully
//! associative cache of the size would not have, stands beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::cachegrind::{installed, text};
use crate::overhead::build_examples;

/// How far the curve may lie from the simulation, as a share of all touches.
const BAR: f64 = 0.02;
/// Size of the text, as copies of one of a mebibyte.
const COPIES: usize = 4;
/// The programs and their words, run beside the text.
const PROGRAMS: &[&[&str]] = &[
    &["zstd", "-3", "-q", "-T2", "-B1M", "-c", "text"],
    &["pigz", "-1", "-p2", "-c", "text"],
    &["gzip", "-1", "-c", "text"],
    &["sort", "--parallel=2", "text"],
    &["../release/examples/rayon_sort", "1"],
];

/// What is read of a report.
#[derive(Deserialize)]
struct Report {
    cache_sizes: Vec<Size>,
    caches: Vec<Level>,
}

#[derive(Deserialize)]
struct Size {
    level: String,
    bytes: u64,
    ways: u32,
    miss_ratio: f64,
    miss_ratio_error: Option<f64>,
    simulated: Option<f64>,
}

#[derive(Deserialize)]
struct Level {
    level: String,
    accesses: f64,
    conflict: f64,
}

/// A cache on the curve of one program; ratios are of all touches.
#[derive(Serialize)]
struct Row {
    program: String,
    level: String,
    bytes: u64,
    ways: u32,
    curve: f64,
    curve_error: Option<f64>,
    simulated: f64,
    /// Of the simulated misses, those that a fully associative cache of the size would not have.
    conflict: f64,
    passed: bool,
}

/// Compares all programs and prints a line for each level; good if all agree within two points.
///
/// # Errors
/// If something cannot be built, or a program cannot be recorded.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let only: Option<String> = arguments.value("--only")?;
    let reuse: String = arguments
        .value("--reuse")?
        .unwrap_or_else(|| "all".to_owned());
    let machine: Option<String> = arguments.value("--machine")?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    build_examples(root)?;
    let place = Place {
        work: root.join("target/curve"),
        linewise: release_binary(root)?,
        reuse,
        machine,
    };
    fs::create_dir_all(&place.work).with_context(|| place.work.display().to_string())?;
    fs::write(place.work.join("text"), text().repeat(COPIES))?;
    if !json {
        println!(
            "{:<12}{:<5}{:>11}{:>6}{:>10}{:>9}{:>11}{:>13}{:>11}",
            "program",
            "level",
            "KiB",
            "ways",
            "curve",
            "error",
            "simulated",
            "difference",
            "conflict"
        );
    }
    let mut rows = Vec::new();
    for &words in PROGRAMS {
        let name = words[0].rsplit('/').next().unwrap_or(words[0]);
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        if !words[0].contains('/') && !installed(name) {
            eprintln!("skip: {name} is not installed");
            continue;
        }
        for row in place.rows(name, words)? {
            if !json {
                print(&row);
            }
            rows.push(row);
        }
    }
    ensure!(!rows.is_empty(), "no program is left to compare");
    if json {
        println!("{:#}", serde_json::json!({ "rows": rows }));
    }
    Ok(rows.iter().all(|row| row.passed))
}

fn print(row: &Row) {
    let points = |ratio: f64| format!("{:.2}", ratio * 100.0);
    println!(
        "{:<12}{:<5}{:>11}{:>6}{:>9}%{:>9}{:>10}%{:>13}{:>11}{}",
        row.program,
        row.level,
        row.bytes >> 10,
        row.ways,
        points(row.curve),
        row.curve_error.map_or_else(|| "-".to_owned(), points),
        points(row.simulated),
        points(row.curve - row.simulated),
        points(row.conflict),
        if row.passed { "" } else { "  missed" }
    );
}

struct Place {
    work: PathBuf,
    linewise: PathBuf,
    reuse: String,
    machine: Option<String>,
}

impl Place {
    fn rows(&self, name: &str, words: &[&str]) -> anyhow::Result<Vec<Row>> {
        let mut record = Command::new(&self.linewise);
        record.args(["record", "--source", "exact", "--caches", "--force"]);
        record.args(["--reuse", &self.reuse, "--output", name]);
        if let Some(machine) = &self.machine {
            record.args(["--machine", machine]);
        }
        self.finish(record.arg("--").args(words).stdout(Stdio::null()))?;
        let mut report = Command::new(&self.linewise);
        let said = self.finish(
            report
                .arg("report")
                .arg(format!("{name}.linewise"))
                .arg("--json"),
        )?;
        let report: Report = serde_json::from_str(&said).with_context(|| name.to_owned())?;
        let touches = report.caches.first().map_or(0.0, |first| first.accesses);
        let row = |size: Size| {
            let simulated = size.simulated?;
            let level = report.caches.iter().find(|row| row.level == size.level)?;
            Some(Row {
                program: name.to_owned(),
                level: size.level,
                bytes: size.bytes,
                ways: size.ways,
                curve: size.miss_ratio,
                curve_error: size.miss_ratio_error,
                simulated,
                conflict: level.conflict / touches,
                passed: (size.miss_ratio - simulated).abs() <= BAR,
            })
        };
        Ok(report.cache_sizes.into_iter().filter_map(row).collect())
    }

    fn finish(&self, command: &mut Command) -> anyhow::Result<String> {
        let output = command
            .current_dir(&self.work)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .with_context(|| self.linewise.display().to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
