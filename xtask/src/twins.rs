//! Programs that do a fixed amount of work, with a cause and, with `-DREPAIRED`, without: compiled, measured, recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::recorded::{compile, record, report};

/// Rounds with which the calibration of a program begins, and the CPU time from which on it is one, s.
const ROUNDS: u64 = 200_000;
const CALIBRATED_SECONDS: f64 = 0.1;

/// What is read of a report (docs/report-json.md).
#[derive(Deserialize)]
pub(crate) struct Report {
    pub(crate) run: Run,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) round_trip_ns: Option<f64>,
}

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Finding {
    pub(crate) kind: String,
    pub(crate) cost: Cost,
    pub(crate) false_share_interval: Interval,
    pub(crate) object: Object,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) struct Cost {
    pub(crate) share: f64,
    pub(crate) interval: Interval,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A program in both forms.
pub(crate) struct Twins {
    pub(crate) broken: PathBuf,
    pub(crate) repaired: PathBuf,
}

impl Twins {
    /// Compiles `fixtures/programs/FOLDER/PROGRAM.c` at this level of optimization.
    pub(crate) fn compile(
        root: &Path,
        folder: &str,
        program: &str,
        level: &str,
    ) -> anyhow::Result<Self> {
        let work = root.join("target").join(folder);
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let source = root.join(format!("fixtures/programs/{folder}/{program}.c"));
        let made = |name: String, defined: Option<&'static str>| {
            let binary = work.join(name);
            let mut words = vec!["cc", level, "-g", "-pthread"];
            words.extend(defined);
            compile(&binary, &source, &words).map(|()| binary)
        };
        Ok(Self {
            broken: made(program.to_owned(), None)?,
            repaired: made(format!("{program}_repaired"), Some("-DREPAIRED"))?,
        })
    }
}

/// What linewise says of a program with these threads and rounds, recorded with these options.
pub(crate) fn recorded(
    root: &Path,
    linewise: &Path,
    options: &[&str],
    program: &Path,
    threads: usize,
    rounds: u64,
) -> anyhow::Result<Report> {
    let recording = root.join("target/twins.linewise");
    let words = [threads.to_string(), rounds.to_string()];
    let words = words.each_ref().map(String::as_str);
    record(
        linewise,
        &recording,
        options,
        program,
        &words,
        Stdio::null(),
    )?;
    report(linewise, &recording)
}

/// CPU time of a run, as the program says, s.
pub(crate) fn cpu_seconds(program: &Path, threads: usize, rounds: u64) -> anyhow::Result<f64> {
    let output = Command::new(program)
        .args([threads.to_string(), rounds.to_string()])
        .output()
        .with_context(|| program.display().to_string())?;
    ensure!(
        output.status.success(),
        "{}: {}",
        program.display(),
        output.status
    );
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().context("no CPU time")?;
    let ns: f64 = last.trim().parse().context("CPU time")?;
    Ok(ns * 1e-9)
}

/// The rounds with which a program takes so many seconds of CPU time.
pub(crate) fn calibrate(program: &Path, threads: usize, seconds: f64) -> anyhow::Result<u64> {
    let mut rounds = ROUNDS;
    loop {
        let took = cpu_seconds(program, threads, rounds)?;
        if took >= CALIBRATED_SECONDS {
            return Ok((rounds as f64 * seconds / took) as u64);
        }
        rounds *= 4;
    }
}
