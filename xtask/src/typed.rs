//! `cargo xtask typed`: of the sampled accesses of programs that know their own objects
//! (fixtures/programs/typed), how many does linewise give a type and a field, and how many of these are
//! right?
//!
//! Each program is recorded by the real binary. What it prints says where its objects and their
//! fields are, so that every sampled address names the field that was touched; linewise derives it from
//! the code alone (crates/analysis/examples/typed_truth.rs compares).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;

/// The share of the accesses that must have a type.
const TYPED_BAR: f64 = 0.85;
/// The share of the checked ones that must have the right field.
const RIGHT_BAR: f64 = 0.97;
/// Checked accesses below which nothing is said.
const FEWEST: u64 = 200;

/// The programs: name, source, and how it is compiled.
const PROGRAMS: [(&str, &str, &[&str]); 3] = [
    ("C", "accounts.c", &["cc", "-g", "-O2"]),
    ("C++", "shapes.cpp", &["c++", "-std=c++17", "-g", "-O2"]),
    (
        "Rust",
        "orders.rs",
        &["rustc", "--edition", "2024", "-g", "-C", "opt-level=2"],
    ),
];

/// What the comparison prints.
#[derive(Debug, Deserialize, Serialize)]
struct Truth {
    accesses: u64,
    typed: u64,
    checked: u64,
    right: u64,
    reasons: BTreeMap<String, u64>,
    wrong: Vec<(String, u64)>,
}

#[derive(Debug, Serialize)]
struct Row {
    language: &'static str,
    source: &'static str,
    truth: Truth,
}

impl Row {
    fn typed(&self) -> f64 {
        self.truth.typed as f64 / self.truth.accesses.max(1) as f64
    }

    fn right(&self) -> f64 {
        self.truth.right as f64 / self.truth.checked.max(1) as f64
    }

    fn passed(&self) -> bool {
        self.truth.checked >= FEWEST && self.typed() >= TYPED_BAR && self.right() >= RIGHT_BAR
    }
}

/// Records the programs and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or a compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let seconds = arguments.count("--seconds", 5)?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    let linewise = release_binary(root)?;
    let compare = linewise.with_file_name("examples").join("typed_truth");
    ensure!(
        compare.exists(),
        "{} is not there: cargo build --release -p linewise-analysis --examples",
        compare.display()
    );
    let work = root.join("target/typed");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let mut rows = Vec::new();
    for (language, source, compiler) in PROGRAMS {
        let program = compile(root, &work, source, compiler)?;
        let truth = measure(&linewise, &compare, &program, seconds)?;
        rows.push(Row {
            language,
            source,
            truth,
        });
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
    }
    Ok(rows.iter().all(Row::passed))
}

fn compile(root: &Path, work: &Path, source: &str, compiler: &[&str]) -> anyhow::Result<PathBuf> {
    let program = work.join(source.replace('.', "_"));
    let (tool, flags) = compiler.split_first().context("a compiler")?;
    let status = Command::new(tool)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(root.join("fixtures/programs/typed").join(source))
        .status()
        .with_context(|| format!("running {tool}"))?;
    ensure!(status.success(), "{source} does not compile");
    Ok(program)
}

/// Records `program` and compares what linewise says with what it printed.
fn measure(
    linewise: &Path,
    compare: &Path,
    program: &Path,
    seconds: usize,
) -> anyhow::Result<Truth> {
    let recording = program.with_extension("linewise");
    let printed = program.with_extension("txt");
    if recording.exists() {
        fs::remove_dir_all(&recording).with_context(|| recording.display().to_string())?;
    }
    let output = fs::File::create(&printed).with_context(|| printed.display().to_string())?;
    // Sampled densely: nothing here depends on how fast the program is.
    let status = Command::new(linewise)
        .args(["record", "--quiet", "--rate", "2000", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(program)
        .arg(seconds.to_string())
        .stdin(Stdio::null())
        .stdout(output)
        .status()
        .context("running linewise")?;
    ensure!(status.success(), "linewise record: {status}");
    let compared = Command::new(compare)
        .arg(&recording)
        .arg(&printed)
        .output()
        .context("running typed_truth")?;
    ensure!(
        compared.status.success(),
        "typed_truth: {}",
        String::from_utf8_lossy(&compared.stderr).trim()
    );
    serde_json::from_slice(&compared.stdout).context("what typed_truth printed")
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<6}{:<14}{:>10}{:>9}{:>9}{:>9}",
        "", "program", "accesses", "typed", "checked", "right"
    );
    for row in rows {
        println!(
            "{:<6}{:<14}{:>10}{:>7.1} %{:>9}{:>7.1} %  {}",
            row.language,
            row.source,
            row.truth.accesses,
            row.typed() * 100.0,
            row.truth.checked,
            row.right() * 100.0,
            if row.passed() { "" } else { "MISSED" }
        );
        for (reason, count) in &row.truth.reasons {
            println!("      {count:>8} {reason}");
        }
        for (what, count) in row.truth.wrong.iter().take(5) {
            println!("      {count:>8} wrong: {what}");
        }
    }
    println!(
        "bars: {:.0} % typed, {:.0} % right",
        TYPED_BAR * 100.0,
        RIGHT_BAR * 100.0
    );
}
