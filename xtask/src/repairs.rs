//! `cargo xtask repairs`: does the cost of a finding say what a repair brings? The programs of
//! `fixtures/programs/repairs` do a fixed amount of work, each with a cause and, with `-DREPAIRED`, without.
//!
//! The gain of the repair is measured in CPU time, in pairs that follow each other; the cost is that of the first
//! finding of a recording of the program with the cause. A repaired program must have no finding of that kind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::recorded::{compile, record, report};
use crate::round_trip::median;

/// The programs; the kinds that their cause may be called, and the object that is named (`heap` and `stack` by kind).
const PROGRAMS: [(&str, &[&str], &str); 21] = [
    ("atomics", FALSE, "counters"),
    // No byte goes back and forth so often that it would cost something.
    ("bytes", &[], "progress"),
    // Neighbours in a row: false, but samples cannot tell that they are not visited together.
    ("columns", &["false-sharing", "sharing"], "results"),
    ("counter", TRUE, "counters"),
    ("flag", FALSE, "state"),
    // Bins that an index picks: mostly another one than the other thread's.
    ("histogram", FALSE, "histograms"),
    ("lock_beside", FALSE, "services"),
    ("members", FALSE, "counts"),
    ("members_busy", FALSE, "states"),
    ("mutex", TRUE, "accounts"),
    ("mutexes", FALSE, "accounts"),
    ("on_stack", FALSE, "stack"),
    // Two thirds of the locks that a thread takes the other one took meanwhile.
    ("pool", &["true-sharing", "sharing"], "locks"),
    ("queue", FALSE, "rings"),
    ("readers", TRUE, "locks"),
    ("refcount", FALSE, "documents"),
    ("regression", FALSE, "heap"),
    ("slots", FALSE, "heap"),
    ("stacks", FALSE, "heads"),
    ("sums", FALSE, "sums"),
    ("three", TRUE, "statistics"),
];
const FALSE: &[&str] = &["false-sharing"];
const TRUE: &[&str] = &["true-sharing"];

/// Of the programs so many intervals must hold the gain,
const HELD: usize = 15;
/// and so many first findings be the cause, by kind and object: two less each than on a quiet machine.
const NAMED: usize = 18;
/// What two runs of one program may differ by, and what a finding must cost to speak of it.
const NOISE: f64 = 0.02;
/// Where a repair brings less than this, no finding has to be there.
const SLIGHT: f64 = 0.1;
/// Rounds with which the calibration of a program begins, and the CPU time from which on it is one, s.
const ROUNDS: u64 = 200_000;
const CALIBRATED_SECONDS: f64 = 0.1;

/// What is read of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    run: Run,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Run {
    round_trip_ns: Option<f64>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Finding {
    kind: String,
    cost: Cost,
    object: Object,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Cost {
    share: f64,
    interval: Interval,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Interval {
    low: f64,
    high: f64,
}

#[derive(Clone, Deserialize, Serialize)]
struct Object {
    kind: String,
    name: String,
}

/// One program.
#[derive(Serialize)]
struct Row {
    program: &'static str,
    round_trip_ns: Option<f64>,
    /// Of each pair, the share of the CPU time that the repair saves.
    gains: Vec<f64>,
    finding: Option<Finding>,
    /// The dearest finding of that kind in the repaired program, as a share of its time.
    repaired: f64,
    named: bool,
}

impl Row {
    fn gain(&self) -> f64 {
        median(&self.gains).unwrap_or(0.0)
    }

    fn holds(&self) -> bool {
        match &self.finding {
            None => self.gain() < SLIGHT,
            Some(Finding { cost, .. }) => {
                let Interval { low, high } = cost.interval;
                (low - NOISE..=high + NOISE).contains(&self.gain())
            }
        }
    }
}

/// Measures the programs and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or the compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let threads = arguments.count("--threads", 2)?;
    let pairs = arguments.count("--pairs", 3)?;
    let seconds: f64 = arguments.value("--seconds")?.unwrap_or(2.4);
    let only: Option<String> = arguments.value("--only")?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    let linewise = release_binary(root)?;
    let work = root.join("target/repairs");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let mut rows = Vec::new();
    for (program, kinds, object) in PROGRAMS {
        if only.as_ref().is_some_and(|only| only != program) {
            continue;
        }
        let [broken, repaired] = [false, true].map(|repaired| {
            let binary = work.join(match repaired {
                true => format!("{program}_repaired"),
                false => program.to_owned(),
            });
            let level = if program == "members" { "-O0" } else { "-O2" };
            let mut words = vec!["cc", level, "-g", "-pthread"];
            words.extend(repaired.then_some("-DREPAIRED"));
            let source = format!("../repairs/{program}.c");
            compile(root, &binary, &source, &words).map(|()| binary)
        });
        let (broken, repaired) = (broken?, repaired?);
        let rounds = calibrate(&broken, threads, seconds)?;
        let gains: anyhow::Result<Vec<f64>> = (0..pairs)
            .map(|_| {
                let before = cpu_seconds(&broken, threads, rounds)?;
                Ok(1.0 - cpu_seconds(&repaired, threads, rounds)? / before)
            })
            .collect();
        let recorded = |binary: &Path| -> anyhow::Result<Report> {
            let recording = work.join("repairs.linewise");
            let words = [threads.to_string(), rounds.to_string()];
            let words = words.each_ref().map(String::as_str);
            record(&linewise, &recording, &[], binary, &words, Stdio::null())?;
            report(&linewise, &recording)
        };
        let bad = recorded(&broken)?;
        let good = recorded(&repaired)?;
        let finding = bad.findings.into_iter().next();
        let is_named = |it: &Finding| {
            kinds.contains(&it.kind.as_str())
                && (it.object.name == object || it.object.kind == object)
        };
        let row = Row {
            program,
            round_trip_ns: bad.run.round_trip_ns,
            gains: gains?,
            named: match &finding {
                Some(finding) => is_named(finding),
                None => kinds.is_empty(),
            },
            finding,
            repaired: (good.findings.iter())
                .filter(|finding| kinds.is_empty() || kinds.contains(&finding.kind.as_str()))
                .map(|finding| finding.cost.share)
                .fold(0.0, f64::max),
        };
        if !json {
            print(&row);
        }
        rows.push(row);
    }
    let count = |of: fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let (held, named) = (count(Row::holds), count(|row| row.named));
    let silent = count(|row| row.repaired <= NOISE);
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!(
            "{} programs: {held} intervals hold the gain, {named} first findings are the cause, {silent} repaired ones are silent",
            rows.len()
        );
        println!("bars: {HELD}, {NAMED}, all but one");
    }
    let missing = PROGRAMS.len() - rows.len();
    Ok(held + missing >= HELD && named + missing >= NAMED && silent + 1 >= rows.len())
}

fn print(row: &Row) {
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let spread = row.gains.iter().copied();
    let (least, most) = (
        spread.clone().fold(f64::INFINITY, f64::min),
        spread.fold(f64::NEG_INFINITY, f64::max),
    );
    let cost = match &row.finding {
        Some(Finding {
            kind, cost, object, ..
        }) => format!(
            "{} ({}..{})  {kind} {}",
            percent(cost.share),
            percent(cost.interval.low),
            percent(cost.interval.high),
            object.name
        ),
        None => "no finding".to_owned(),
    };
    println!(
        "{:<14}trip {:>4} ns  gain {:>3} ({}..{})  cost {cost}{}{}{}",
        row.program,
        row.round_trip_ns
            .map_or("?".to_owned(), |ns| format!("{ns:.0}")),
        percent(row.gain()),
        percent(least),
        percent(most),
        if row.holds() { "" } else { "  NOT HELD" },
        if row.named { "" } else { "  NOT NAMED" },
        match row.repaired > NOISE {
            true => format!("  REPAIRED: {}", percent(row.repaired)),
            false => String::new(),
        }
    );
}

/// CPU time of a run, as the program says, s.
fn cpu_seconds(program: &Path, threads: usize, rounds: u64) -> anyhow::Result<f64> {
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
fn calibrate(program: &Path, threads: usize, seconds: f64) -> anyhow::Result<u64> {
    let mut rounds = ROUNDS;
    loop {
        let took = cpu_seconds(program, threads, rounds)?;
        if took >= CALIBRATED_SECONDS {
            return Ok((rounds as f64 * seconds / took) as u64);
        }
        rounds *= 4;
    }
}
