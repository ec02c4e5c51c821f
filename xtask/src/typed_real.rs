//! `cargo xtask typed --real`: of the sampled accesses of programs that were not written for this
//! (fixtures/real: C, C++ and Rust from the registry, by pinned versions), how many have a type?
//!
//! An access to a struct is typed if its field is known. An element of an array of numbers has no
//! field: it is told apart from others by the member or the variable that holds the pointer through which it
//! is reached, and counted apart, as is what has nothing but a type. Code without debug info is left out.
//!
//! And how many are right? A second recording has the heap's blocks, and the fields that the code says
//! are compared with what else is known of the memory (crates/analysis/examples/typed_agreement.rs): the
//! declaration of the static variable that is touched, or where other instructions saw values begin in
//! the blocks of the same allocation site. Blocks bound what can be right, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::arguments::Arguments;
use crate::recorded::record;

/// The share of the accesses that must have a type.
const BAR: f64 = 0.85;
/// Programs of fixtures/real, each with the language of most of its code.
const PROGRAMS: [(&str, &str); 6] = [
    ("sqlite", "C"),
    ("lua", "C"),
    ("zst", "C"),
    ("sat", "C++"),
    ("script", "Rust"),
    ("tree", "Rust"),
];
/// Disagreements that are shown of each program.
const WRONG: usize = 4;
/// Flags for the C and C++ that the packages bring along.
const FLAGS: &str = "-g -O2 -fomit-frame-pointer";

/// What the example `typed_shares` prints.
#[derive(Deserialize)]
struct Shares {
    without_debug_info: u64,
    field: u64,
    /// Numbers and pointers in arrays that a member leads to.
    through_member: u64,
    /// The same that a variable leads to or is.
    through_variable: u64,
    /// The same of which nothing but the type is known.
    scalar: u64,
    untyped: BTreeMap<String, u64>,
}

/// Accesses that were compared, and those that agree.
#[derive(Deserialize)]
struct Agreement {
    checked: u64,
    right: u64,
}

/// What the example `typed_agreement` prints.
#[derive(Deserialize)]
struct Agreements {
    field: u64,
    #[serde(rename = "static")]
    in_static: Agreement,
    heap: Agreement,
    bounds: Agreement,
    wrong: Vec<(String, u64)>,
}

impl Agreements {
    fn print(&self) {
        let part = |what: &str, it: &Agreement| {
            let share = it.right as f64 / it.checked.max(1) as f64 * 100.0;
            format!("{what} {} of {} ({share:.1} %)", it.right, it.checked)
        };
        println!(
            "      right, of {} with a field: {}, {}, {}",
            self.field,
            part("in heap blocks", &self.heap),
            part("within their bounds", &self.bounds),
            part("in static variables", &self.in_static),
        );
        for (what, count) in self.wrong.iter().take(WRONG) {
            println!("      {count:>6} wrong: {what}");
        }
    }
}

/// Builds the programs, records them with `linewise` and prints the table. `false` if a program misses
/// the bar.
///
/// # Errors
/// If a program cannot be fetched or built, or a run fails.
pub(crate) fn run(root: &Path, linewise: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let seconds = arguments.count("--seconds", 5)?.to_string();
    arguments.finish()?;
    let [shares, agreement] = ["typed_shares", "typed_agreement"]
        .map(|example| root.join("target/release/examples").join(example));
    for example in [&shares, &agreement] {
        ensure!(
            example.exists(),
            "{} is not there: cargo build --release -p linewise-analysis --examples",
            example.display()
        );
    }
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
        "{:<6}{:<8}{:>9}{:>9}{:>9}{:>11}{:>13}{:>9}{:>9}",
        "",
        "program",
        "accesses",
        "typed",
        "field",
        "by member",
        "by variable",
        "number",
        "left out"
    );
    let mut passed = true;
    for (program, language) in PROGRAMS {
        let binary = work.join("release").join(program);
        let recorded = |kind: &str, options: &[&str]| -> anyhow::Result<PathBuf> {
            let recording = work.join(program).with_extension(kind);
            let words = [seconds.as_str()];
            record(
                linewise,
                &recording,
                options,
                &binary,
                &words,
                Stdio::null(),
            )?;
            Ok(recording)
        };
        let recording = recorded("linewise", &["--rate", "2000", "--heap", "off"])?;
        let found: Shares = printed(&shares, &recording)?;
        let numbers = found.through_member + found.through_variable + found.scalar;
        let typed = found.field + numbers;
        let all = typed + found.untyped.values().sum::<u64>();
        let share = |count: u64| count as f64 / all.max(1) as f64;
        let enough = share(typed) >= BAR;
        passed &= enough;
        println!(
            "{language:<6}{program:<8}{all:>9}{:>7.1} %{:>7.1} %{:>9.1} %{:>11.1} %{:>7.1} %{:>9}  {}",
            share(typed) * 100.0,
            share(found.field) * 100.0,
            share(found.through_member) * 100.0,
            share(found.through_variable) * 100.0,
            share(found.scalar) * 100.0,
            found.without_debug_info,
            if enough { "" } else { "MISSED" }
        );
        for (reason, count) in &found.untyped {
            println!("      {:>6.1} % {reason}", share(*count) * 100.0);
        }
        let with_heap = recorded("heap.linewise", &["--rate", "2000", "--heap", "on"])?;
        printed::<Agreements>(&agreement, &with_heap)?.print();
    }
    println!("bar: {:.0} % typed", BAR * 100.0);
    Ok(passed)
}

/// What `example` prints of `recording`.
fn printed<T: DeserializeOwned>(example: &Path, recording: &Path) -> anyhow::Result<T> {
    let output = Command::new(example)
        .arg(recording)
        .output()
        .with_context(|| format!("running {}", example.display()))?;
    ensure!(
        output.status.success(),
        "{}: {}",
        example.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("what {} printed", example.display()))
}
