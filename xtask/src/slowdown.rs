//! `cargo xtask slowdown`: how much slower programs are under the exact source than alone, beside
//! cachegrind; and how many accesses a second of CPU time of target and collector together go
//! through each stage.
//!
//! In each round every side runs once, one after the other; a slowdown is by the bare run of the
//! same round, and the median over the rounds is printed, with that of the CPU time of all processes.
//! Speeds are in accesses that the program made; for `lines`, which records one line in 64, they are
//! those of `count` in the same round. `record` is `linewise record --source exact` as users type it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::arguments::Arguments;
use crate::cachegrind::{build, installed, text};
use crate::metadata;
use crate::overhead::build_examples;
use crate::round_trip::median;

/// What a run is under.
const SIDES: &[&str] = &[
    "record",
    "count",
    "lines",
    "shards",
    "exact",
    "caches",
    "all",
    "cachegrind",
];

/// How the speed of a program is told.
enum Speed {
    /// By how long it takes.
    Whole,
    /// It runs for seconds and prints `iterations=` and `seconds=`.
    Told,
}

/// Its name, its words and how its speed is told.
type Program = (&'static str, &'static [&'static str], Speed);
const PROGRAMS: &[Program] = &[
    (
        "zstd",
        &["zstd", "-3", "-q", "-T2", "-B1M", "-c", "text"],
        Speed::Whole,
    ),
    ("pigz", &["pigz", "-1", "-p2", "-c", "text"], Speed::Whole),
    (
        "rayon_sort",
        &["../release/examples/rayon_sort", "1"],
        Speed::Told,
    ),
];

/// What `exact_speed` prints.
#[derive(Clone, Debug, Deserialize)]
struct Stage {
    accesses: u64,
    target_cpu_s: f64,
    collector_cpu_s: f64,
    waited_s: f64,
}

/// One side over the rounds.
#[derive(Default)]
struct Side {
    slowdowns: Vec<f64>,
    /// Seconds.
    wall: Vec<f64>,
    /// Seconds of CPU time, children's included.
    cpu: Vec<f64>,
    /// Million accesses for each second of CPU time.
    speeds: Vec<f64>,
    last: Option<Stage>,
}

/// Measures all programs and prints a line for each side; good unless cachegrind is faster than
/// recording as users do, or than tracing and counting where that is not measured.
///
/// # Errors
/// If something cannot be built or fails to run.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let rounds = arguments.count("--rounds", 3)?;
    // Size of the text, as copies of one of a mebibyte.
    let copies = arguments.count("--copies", 4)?;
    let only: Option<String> = arguments.value("--only")?;
    let sides: Option<String> = arguments.value("--sides")?;
    arguments.finish()?;
    build(root)?;
    build_examples(root)?;
    build_linewise(root)?;
    let places = Places {
        work: root.join("target/slowdown"),
        linewise: root.join("target/release/linewise"),
        example: root.join("target/release/examples/exact_speed"),
    };
    fs::create_dir_all(&places.work).with_context(|| places.work.display().to_string())?;
    fs::write(places.work.join("text"), text().repeat(copies))?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load at the start: {}", load.trim());
    println!(
        "{:<12}{:<12}{:>9}{:>18}{:>10}{:>10}{:>12}{:>15}{:>10}",
        "program",
        "side",
        "slowdown",
        "lowest..highest",
        "wall",
        "CPU",
        "accesses",
        "M/s of CPU",
        "waited"
    );
    let mut good = true;
    for program in PROGRAMS {
        if only.as_deref().is_some_and(|only| only != program.0) {
            continue;
        }
        if !program.1[0].contains('/') && !installed(program.0) {
            println!("skip: {} is not installed", program.0);
            continue;
        }
        let wanted = |side: &&&str| {
            let asked = sides
                .as_deref()
                .is_none_or(|sides| sides.split(',').any(|one| one == **side));
            asked && (**side != "cachegrind" || installed("valgrind"))
        };
        let mut table: Vec<(&str, Side)> = SIDES
            .iter()
            .filter(wanted)
            .map(|&side| (side, Side::default()))
            .collect();
        // Warms the file cache up.
        places.bare(program)?;
        for _ in 0..rounds {
            let bare = places.bare(program)?.seconds;
            // What the program did is known from the side that records all of it.
            let mut all = None;
            for (name, side) in &mut table {
                let (run, stage) = places.under(program, name)?;
                side.slowdowns.push(run.seconds / bare);
                side.wall.push(run.seconds);
                side.cpu.push(run.cpu_seconds);
                if let Some(mut stage) = stage {
                    if *name == "lines" {
                        stage.accesses = all.unwrap_or(stage.accesses);
                    } else {
                        all = Some(stage.accesses);
                    }
                    let spent = stage.target_cpu_s + stage.collector_cpu_s;
                    side.speeds.push(stage.accesses as f64 / spent / 1e6);
                    side.last = Some(stage);
                }
            }
        }
        for (name, side) in &table {
            print_row(program.0, name, side);
        }
        let of = |wanted: &str| {
            let found = table.iter().find(|(name, _)| *name == wanted);
            found.and_then(|(_, side)| median(&side.slowdowns))
        };
        let ours = of("record").or_else(|| of("count"));
        if let (Some(ours), Some(cachegrind)) = (ours, of("cachegrind")) {
            good &= ours < cachegrind;
        }
    }
    Ok(good)
}

fn print_row(program: &str, name: &str, side: &Side) {
    let range = format!(
        "{:.0}..{:.0}",
        side.slowdowns.iter().copied().fold(f64::INFINITY, f64::min),
        side.slowdowns.iter().copied().fold(0.0, f64::max)
    );
    print!(
        "{program:<12}{name:<12}{:>8.1}x{range:>18}{:>8.2} s{:>8.2} s",
        median(&side.slowdowns).unwrap_or(f64::NAN),
        median(&side.wall).unwrap_or(f64::NAN),
        median(&side.cpu).unwrap_or(f64::NAN)
    );
    match &side.last {
        Some(stage) => println!(
            "{:>11.0}M{:>15.1}{:>8.2} s",
            stage.accesses as f64 / 1e6,
            median(&side.speeds).unwrap_or(f64::NAN),
            stage.waited_s
        ),
        None => println!(),
    }
}

fn build_linewise(root: &Path) -> anyhow::Result<()> {
    let status = Command::new(metadata::cargo())
        .args(["build", "--release", "--quiet", "--locked", "--package"])
        .arg("linewise")
        .current_dir(root)
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "linewise does not build");
    Ok(())
}

/// How long something took.
struct Run {
    /// For the work of the program.
    seconds: f64,
    /// Of CPU time, all in all.
    cpu_seconds: f64,
}

/// CPU time of all processes that ended and were waited for, in seconds, by the kernel's ticks of a
/// hundredth of a second: fields 16 and 17 of proc(5).
pub(crate) fn children_cpu_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(13).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

struct Places {
    work: PathBuf,
    linewise: PathBuf,
    example: PathBuf,
}

impl Places {
    /// Seconds for the work of the program, alone.
    fn bare(&self, program: &Program) -> anyhow::Result<Run> {
        let mut command = Command::new(program.1[0]);
        command.args(&program.1[1..]);
        Ok(self.timed(program, command)?.0)
    }

    /// The same under one of the sides, and what `exact_speed` said of it.
    fn under(&self, program: &Program, side: &str) -> anyhow::Result<(Run, Option<Stage>)> {
        let mut command;
        if side == "record" {
            command = Command::new(&self.linewise);
            command.args([
                "record", "--source", "exact", "--output", "run", "--force", "--",
            ]);
        } else if side == "cachegrind" {
            command = Command::new("valgrind");
            command.args(["--tool=cachegrind", "--cachegrind-out-file=/dev/null"]);
            // The defaults for the last level of some machines are refused.
            command.args(["--LL=33554432,16,64", "--D1=32768,8,64", "--I1=32768,8,64"]);
        } else {
            command = Command::new(&self.example);
            command.arg(side);
        }
        command.args(program.1);
        let (run, said) = self.timed(program, command)?;
        let stage = match side {
            "cachegrind" | "record" => None,
            _ => {
                let last = said.lines().next_back().unwrap_or_default();
                Some(serde_json::from_str(last).with_context(|| said.clone())?)
            }
        };
        Ok((run, stage))
    }

    /// Runs it; how long that took, and what it said on its error output.
    fn timed(&self, program: &Program, mut command: Command) -> anyhow::Result<(Run, String)> {
        let cpu_before = children_cpu_seconds()?;
        let start = Instant::now();
        let output = command
            .current_dir(&self.work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("running {}", program.0))?;
        let elapsed = start.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{} failed: {said}", program.0);
        let seconds = match program.2 {
            Speed::Whole => elapsed,
            Speed::Told => {
                let told = String::from_utf8_lossy(&output.stdout);
                let number = |key: &str| -> anyhow::Result<f64> {
                    let mut words = told.split_whitespace();
                    let found = words.find_map(|word| word.strip_prefix(key));
                    let found = found.with_context(|| format!("no {key} in `{told}`"))?;
                    Ok(found.parse()?)
                };
                number("seconds=")? / number("iterations=")?
            }
        };
        let cpu_seconds = children_cpu_seconds()? - cpu_before;
        Ok((
            Run {
                seconds,
                cpu_seconds,
            },
            said,
        ))
    }
}
