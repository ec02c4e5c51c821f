//! `cargo xtask typed --real`: of the sampled accesses of programs that were not written for this
//! (fixtures/real: C, C++ and Rust from the registry, by pinned versions), how many have a type?
//!
//! An access to a struct is typed if its field is known. An element of an array of numbers has no
//! field: its type is all there is, and it is counted apart. Code without debug info is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::arguments::Arguments;
use crate::recorded::record;

/// The share of the accesses that must have a type.
const BAR: f64 = 0.85;
/// Programs of fixtures/real, each with the language of most of its code.
const PROGRAMS: [(&str, &str); 5] = [
    ("sqlite", "C"),
    ("zst", "C"),
    ("sat", "C++"),
    ("script", "Rust"),
    ("tree", "Rust"),
];
/// Flags for the C and C++ that the packages bring along.
const FLAGS: &str = "-g -O2 -fomit-frame-pointer";

/// What the example `typed_shares` prints.
#[derive(Deserialize)]
struct Shares {
    without_debug_info: u64,
    field: u64,
    scalar: u64,
    untyped: BTreeMap<String, u64>,
}

/// Builds the programs, records them with `linewise` and prints the table. `false` if a program misses
/// the bar.
///
/// # Errors
/// If a program cannot be fetched or built, or a run fails.
pub(crate) fn run(root: &Path, linewise: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let seconds = arguments.count("--seconds", 5)?.to_string();
    arguments.finish()?;
    let shares = root.join("target/release/examples/typed_shares");
    ensure!(
        shares.exists(),
        "{} is not there: cargo build --release -p linewise-analysis --examples",
        shares.display()
    );
    let work = root.join("target/real");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let built = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
        ])
        .arg(root.join("fixtures/real/Cargo.toml"))
        .arg("--target-dir")
        .arg(&work)
        .env("CFLAGS", FLAGS)
        .env("CXXFLAGS", FLAGS)
        .status()
        .context("running cargo")?;
    ensure!(built.success(), "the programs do not build");
    println!(
        "{:<6}{:<8}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "program", "accesses", "typed", "field", "number", "left out"
    );
    let mut passed = true;
    for (program, language) in PROGRAMS {
        let recording = work.join(program).with_extension("linewise");
        let options = ["--rate", "2000"];
        let binary = work.join("release").join(program);
        record(
            linewise,
            &recording,
            &options,
            &binary,
            &[&seconds],
            Stdio::null(),
        )?;
        let output = Command::new(&shares)
            .arg(&recording)
            .output()
            .context("running typed_shares")?;
        ensure!(
            output.status.success(),
            "typed_shares: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let found: Shares =
            serde_json::from_slice(&output.stdout).context("what typed_shares printed")?;
        let typed = found.field + found.scalar;
        let all = typed + found.untyped.values().sum::<u64>();
        let share = |count: u64| count as f64 / all.max(1) as f64;
        let enough = share(typed) >= BAR;
        passed &= enough;
        println!(
            "{language:<6}{program:<8}{all:>9}{:>7.1} %{:>7.1} %{:>7.1} %{:>9}  {}",
            share(typed) * 100.0,
            share(found.field) * 100.0,
            share(found.scalar) * 100.0,
            found.without_debug_info,
            if enough { "" } else { "MISSED" }
        );
        for (reason, count) in &found.untyped {
            println!("      {:>6.1} % {reason}", share(*count) * 100.0);
        }
    }
    println!("bar: {:.0} % typed", BAR * 100.0);
    Ok(passed)
}
