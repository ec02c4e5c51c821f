//! `cargo xtask heap`: what the heap recorder costs, and whether it tells the truth.
//!
//! Cost: programs and servers alone, under `linewise record --heap off`, and under `--heap auto`, in turns. A
//! server is started anew each time, since the recorder is loaded when a program begins. Truth: programs that know
//! what they have left allocated, among them one that allocates five million times a second, where the recorder
//! tells of a sample.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::overhead::{Places, Server, Workload, build_examples};
use crate::round_trip::{self, median};

/// What is measured, with the bar for the slowdown by `--heap auto`.
const WORKLOADS: [(Workload, f64); 4] = [
    (Workload::Program(BUILT, "storm"), 0.15),
    (
        Workload::Program("target/release/examples", "rayon_sort"),
        0.03,
    ),
    (Workload::Redis, 0.03),
    (Workload::Memcached, 0.03),
];

/// Where the programs of fixtures/programs/heap are built.
const BUILT: &str = "target/heap";
/// How long a server warms up, s.
const WARM_UP: usize = 1;
/// By how much of what was ever alive the sampled number of live blocks may miss the truth.
const LIVE_BAR: f64 = 0.05;

/// How a program is run.
const SIDES: [(&str, Option<&[&str]>); 3] = [
    ("alone", None),
    ("--heap off", Some(&["--heap", "off"])),
    ("--heap auto", Some(&["--heap", "auto"])),
];

/// The part of a recording's `run.json` that is read.
#[derive(Deserialize)]
struct RunInfo {
    overhead: Overhead,
    heap: Option<HeapRun>,
}

#[derive(Deserialize)]
struct Overhead {
    watches_per_second: f64,
    collector_rss_bytes: u64,
}

#[derive(Deserialize)]
struct HeapRun {
    blocks: u64,
    live_blocks: f64,
    sampled_bytes: u64,
}

/// Measures and checks all, and prints a line for each. `false` if a bar is missed.
///
/// # Errors
/// If linewise or the programs are not there, or a run fails.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let pairs = arguments.count("--pairs", 5)?;
    let seconds = arguments.count("--seconds", 3)?;
    let only: Option<String> = arguments.value("--only")?;
    arguments.finish()?;
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let linewise = release_binary(root)?;
    let built = root.join(BUILT);
    fs::create_dir_all(&built).with_context(|| built.display().to_string())?;
    for name in ["storm.c", "many.c"] {
        compile(root, name)?;
    }
    if wanted("rayon_sort") {
        build_examples(root)?;
    }
    let places = |options: &'static [&'static str]| Places {
        root: root.to_owned(),
        linewise: linewise.clone(),
        work: built.clone(),
        recordings: built.clone(),
        seconds,
        options,
    };
    let mut passed = true;
    println!(
        "{:<14} {:>8} {:>12} {:>12} {:>17} {:>15} {:>13}",
        "program", "trip/ns", "alone/s", "--heap off", "--heap auto", "auto over off", "watches/s"
    );
    for (workload, bar) in &WORKLOADS {
        if !wanted(workload.name()) {
            continue;
        }
        if let Some(missing) = workload.missing() {
            println!("skip: {}: {missing} is not installed", workload.name());
            continue;
        }
        passed &= slowdown(workload, *bar, pairs, &places)?;
    }
    if wanted("live") {
        passed &= live(&linewise, &built)?;
    }
    if wanted("many") {
        passed &= many(&linewise, &built)?;
    }
    Ok(passed)
}

fn compile(root: &Path, name: &str) -> anyhow::Result<()> {
    let source = root.join("fixtures/programs/heap").join(name);
    let binary = root
        .join(BUILT)
        .join(source.file_stem().unwrap_or_default());
    let status = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .args([&binary, &source])
        .status()
        .context("running cc")?;
    ensure!(status.success(), "{name} does not compile");
    Ok(())
}

/// One workload on all sides, in turns.
fn slowdown(
    workload: &Workload,
    bar: f64,
    pairs: usize,
    places: &impl Fn(&'static [&'static str]) -> Places,
) -> anyhow::Result<bool> {
    let mut speeds: [Vec<f64>; 3] = Default::default();
    let mut watches: [Vec<f64>; 3] = Default::default();
    let mut trips = Vec::new();
    for round in 0..pairs {
        for turn in 0..SIDES.len() {
            let side = (round + turn) % SIDES.len();
            let places = places(SIDES[side].1.unwrap_or_default());
            let recording = SIDES[side].1.map(|_| places.work.join("run.linewise"));
            trips.push(round_trip::measure(&places.linewise)?);
            let speed = speed(workload, &places, recording.as_deref())
                .with_context(|| format!("{} {}", workload.name(), SIDES[side].0))?;
            speeds[side].push(speed);
            if let Some(recording) = recording {
                watches[side].push(info(&recording)?.overhead.watches_per_second);
            }
        }
    }
    let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let slower = |than: usize| -> Vec<f64> {
        let pairs = speeds[than].iter().zip(&speeds[2]);
        pairs.map(|(other, auto)| other / auto - 1.0).collect()
    };
    let [over_alone, over_off] = [slower(0), slower(1)];
    let percent = |values: &[f64]| format!("{:.1} %", middle(values) * 100.0);
    let range = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{:.1}..{:.1}", low * 100.0, high * 100.0)
    };
    let off: Vec<f64> = (speeds[0].iter().zip(&speeds[1]))
        .map(|(alone, off)| alone / off - 1.0)
        .collect();
    println!(
        "{:<14} {:>8} {:>12.0} {:>12} {:>17} {:>15} {:>13}",
        workload.name(),
        format!("{:.0}", middle(&trips)),
        middle(&speeds[0]),
        percent(&off),
        format!("{} {}", percent(&over_alone), range(&over_alone)),
        format!("{} {}", percent(&over_off), range(&over_off)),
        format!("{:.0} -> {:.0}", middle(&watches[1]), middle(&watches[2])),
    );
    Ok(middle(&over_off) <= bar)
}

/// Work done a second; of a server that is started for it.
fn speed(workload: &Workload, places: &Places, recording: Option<&Path>) -> anyhow::Result<f64> {
    let Some((command, port)) = workload.server(places)? else {
        return workload.speed(places, recording);
    };
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let server = Server::start(places.command(recording, &words), port)?;
    workload.load(port, WARM_UP)?;
    let speed = workload.load(port, places.seconds)?;
    server.end(workload.farewell())?;
    Ok(speed)
}

fn info(recording: &Path) -> anyhow::Result<RunInfo> {
    let path = recording.join("run.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Runs a program of [`BUILT`] under `linewise record`; what it printed, the recording.
fn recorded(
    linewise: &Path,
    built: &Path,
    options: &[&str],
    command: &[&str],
) -> anyhow::Result<(String, PathBuf)> {
    let recording = built.join("live.linewise");
    let output = Command::new(linewise)
        .args(["record", "--quiet", "--force"])
        .args(options)
        .arg("-o")
        .arg(&recording)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running linewise")?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok((
        String::from_utf8_lossy(&output.stdout).into_owned(),
        recording,
    ))
}

/// The sampled number of live blocks at the end of a program that freed all of its.
fn live(linewise: &Path, built: &Path) -> anyhow::Result<bool> {
    let storm = built.join("storm").display().to_string();
    let (said, recording) = recorded(linewise, built, &["--heap", "auto"], &[&storm, "2"])?;
    let heap = info(&recording)?.heap.context("no blocks were recorded")?;
    let allocations = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix("iterations=")?.parse::<f64>().ok())
        .with_context(|| said.clone())?;
    ensure!(heap.sampled_bytes > 0, "every block was told of");
    // Of the blocks that its two threads kept at a time.
    let share = heap.live_blocks / 8192.0;
    println!(
        "live: {allocations:.0} allocations, {} told of; alive at the end {:.0} of 8192 ({:.1} %), in truth none",
        heap.blocks,
        heap.live_blocks,
        share * 100.0
    );
    Ok(share <= LIVE_BAR)
}

/// Ten million blocks that are alive at once: what the collector needs, and how long the report takes.
fn many(linewise: &Path, built: &Path) -> anyhow::Result<bool> {
    const BLOCKS: f64 = 1e7;
    const MEMORY_BAR: u64 = 1_000_000_000;
    const REPORT_BAR: Duration = Duration::from_secs(10);
    let program = built.join("many").display().to_string();
    let (_, recording) = recorded(linewise, built, &["--heap", "on"], &[&program, "10000000"])?;
    let info = info(&recording)?;
    let heap = info.heap.context("no blocks were recorded")?;
    let start = std::time::Instant::now();
    let report = Command::new(linewise)
        .arg("report")
        .arg(&recording)
        .stdout(Stdio::null())
        .status()
        .context("running linewise")?;
    let took = start.elapsed();
    if !report.success() {
        bail!("linewise report: {report}");
    }
    println!(
        "many: {:.0} blocks alive, collector {:.0} MB, report {:.1} s",
        heap.live_blocks,
        info.overhead.collector_rss_bytes as f64 / 1e6,
        took.as_secs_f64()
    );
    Ok((heap.live_blocks / BLOCKS - 1.0).abs() < 0.01
        && info.overhead.collector_rss_bytes < MEMORY_BAR
        && took < REPORT_BAR)
}
