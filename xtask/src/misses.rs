//! `cargo xtask misses`: does the classification of misses from samples agree with the exact one, on
//! programs with one known cause each (fixtures/programs/typed/misses.c)?
//!
//! Each program is recorded twice by the real binary, at full speed and exactly. Of the type that the
//! program misses at, the largest class must be the known one in both, and no class may differ by more
//! than the bar. The working set must name the type that crowds one set, and its stride.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::recorded::{compile, record, report};

/// By how much the shares of a class may differ.
const BAR: f64 = 0.15;

/// What the program is told to be, the type that misses, and the class of its misses.
const CAUSES: [(&str, &str, usize); 4] = [
    ("capacity", "struct node", 1),
    ("conflict", "struct slot", 2),
    ("true", "struct tally", 3),
    ("false", "struct pair", 4),
];
/// The type that crowds one set, and how far its objects are apart.
const CROWD: (&str, u64) = ("struct slot", 4096);
const CLASSES: [&str; 5] = ["compulsory", "capacity", "conflict", "true", "false"];

/// What is read of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    misses: Vec<MissRow>,
    #[serde(default)]
    working_set: Vec<LevelSet>,
}

#[derive(Deserialize)]
struct LevelSet {
    crowded: Vec<CrowdedSet>,
}

#[derive(Deserialize)]
struct CrowdedSet {
    types: Vec<CrowdedType>,
}

#[derive(Deserialize)]
struct CrowdedType {
    #[serde(rename = "type")]
    type_name: String,
    stride: u64,
}

#[derive(Deserialize)]
struct MissRow {
    #[serde(rename = "type")]
    type_name: String,
    compulsory: f64,
    capacity: f64,
    conflict: f64,
    true_sharing: f64,
    false_sharing: f64,
}

/// One program: shares by class in the order of [`CLASSES`].
#[derive(Serialize)]
struct Row {
    cause: &'static str,
    type_name: &'static str,
    class: usize,
    sampled: [f64; 5],
    exact: [f64; 5],
}

impl Row {
    fn apart(&self) -> f64 {
        let pairs = self.sampled.iter().zip(&self.exact);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn passed(&self) -> bool {
        let largest = |shares: &[f64; 5]| {
            let numbers = shares.iter().enumerate();
            numbers.max_by(|a, b| a.1.total_cmp(b.1)).map(|it| it.0)
        };
        largest(&self.sampled) == Some(self.class)
            && largest(&self.exact) == Some(self.class)
            && self.apart() <= BAR
    }
}

/// Records the programs and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or the compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let seconds = arguments.count("--seconds", 4)?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    let linewise = release_binary(root)?;
    let work = root.join("target/typed");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let program = work.join("misses");
    let source = root.join("fixtures/programs/typed/misses.c");
    compile(&program, &source, &["cc", "-g", "-O2", "-pthread"])?;
    let classes = |source: &str, cause: &str, type_name: &str, seconds: usize| {
        let recording = work.join(format!("misses_{cause}_{source}.linewise"));
        let words = [cause, &seconds.to_string()];
        let options: &[&str] = match source {
            "exact" => &["--source", "exact", "--caches"],
            // So dear that also a busy machine leaves some watches.
            _ => &["--source", source, "--overhead", "10%"],
        };
        record(
            &linewise,
            &recording,
            options,
            &program,
            &words,
            Stdio::null(),
        )?;
        let report: Report = report(&linewise, &recording)?;
        match report.misses.iter().find(|row| row.type_name == type_name) {
            Some(row) => anyhow::Ok([
                row.compulsory,
                row.capacity,
                row.conflict,
                row.true_sharing,
                row.false_sharing,
            ]),
            None => bail!("{cause}, {source}: no misses of `{type_name}`"),
        }
    };
    let mut rows = Vec::new();
    for (cause, type_name, class) in CAUSES {
        rows.push(Row {
            cause,
            type_name,
            class,
            sampled: classes("timer", cause, type_name, seconds)?,
            // What the emulator runs in a second is plenty.
            exact: classes("exact", cause, type_name, 1)?,
        });
    }
    let conflicts: Report = report(&linewise, &work.join("misses_conflict_timer.linewise"))?;
    let stride = conflicts
        .working_set
        .iter()
        .flat_map(|level| &level.crowded)
        .flat_map(|set| &set.types)
        .find(|row| row.type_name == CROWD.0)
        .map(|row| row.stride);
    let named = stride == Some(CROWD.1);
    if json {
        let all = serde_json::json!({ "programs": rows, "stride": stride });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print_table(&rows);
        match named {
            true => println!("crowded set: {} every {} bytes", CROWD.0, CROWD.1),
            false => println!("crowded set: {} not named with its stride  MISSED", CROWD.0),
        }
    }
    Ok(named && rows.iter().all(Row::passed))
}

fn print_table(rows: &[Row]) {
    let head: String = CLASSES.iter().map(|it| format!("{it:>12}")).collect();
    println!("{:<10}{:<14}{:<8}{head}", "cause", "type", "");
    for row in rows {
        let line = |shares: &[f64; 5]| -> String {
            let shares = shares.iter();
            shares.map(|it| format!("{:>10.1} %", it * 100.0)).collect()
        };
        println!(
            "{:<10}{:<14}{:<8}{}",
            row.cause,
            row.type_name,
            "sampled",
            line(&row.sampled)
        );
        println!(
            "{:<10}{:<14}{:<8}{}  {}",
            "",
            "",
            "exact",
            line(&row.exact),
            if row.passed() { "" } else { "MISSED" }
        );
    }
    println!(
        "bar: the largest class is the cause in both, shares within {:.0} points",
        BAR * 100.0
    );
}
