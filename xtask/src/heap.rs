//! `cargo xtask heap`: what the heap recorder costs, and whether it tells the truth.
//!
//! Cost: programs and servers alone, under `linewise record --heap off`, and under `--heap auto`, in turns. A
//! server is started anew each time, since the recorder is loaded when a program begins. The storm of allocations also
//! with probes on its allocator, by `linewise record --pid`. Truth: programs that know what they have left allocated,
//! among them one that allocates five million times a second, where the recorder tells of a sample, and one that makes it
//! as hard as it can, for as long as is asked for (`--only stress --seconds 3600`).

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
pub(crate) const BUILT: &str = "target/heap";
/// How long a program waits for linewise to attach to it, s.
const ATTACHING: &str = "2";
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
    live_bytes: f64,
    sampled_bytes: u64,
    processes: u64,
    probed: Option<Probed>,
}

#[derive(Deserialize)]
struct Probed {
    share: f64,
    slices: u64,
    hits: u64,
}

/// A number that a program printed as `key=number`.
fn number(said: &str, key: &str) -> anyhow::Result<f64> {
    let found = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let found = found.with_context(|| format!("no {key} in `{said}`"))?;
    found.parse().with_context(|| format!("{key}={found}"))
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
    for name in ["storm.c", "many.c", "stress.c"] {
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
    if wanted("stress") {
        passed &= stress(&linewise, &built, seconds)?;
        passed &= stressors(&linewise, &built, seconds)?;
    }
    if wanted("probed") {
        passed &= probed(&linewise, &built, pairs, seconds)?;
    }
    Ok(passed)
}

/// Compiles a program of fixtures/programs/heap into [`BUILT`].
///
/// # Errors
/// If there is no C compiler.
pub(crate) fn compile(root: &Path, name: &str) -> anyhow::Result<()> {
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
    let allocations = number(&said, "iterations")?;
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

/// What is left after threads, forks and signals, each block of which was told of, against what the program
/// says.
fn stress(linewise: &Path, built: &Path, seconds: usize) -> anyhow::Result<bool> {
    // Of each of its threads the C library keeps one block: the vector of its thread-local storage.
    const OTHERS: f64 = 4.0;
    const OTHERS_BYTES: f64 = OTHERS * 1024.0;
    let program = built.join("stress").display().to_string();
    let command = [program.as_str(), &seconds.to_string()];
    let (said, recording) = recorded(linewise, built, &["--heap", "on"], &command)?;
    let heap = info(&recording)?.heap.context("no blocks were recorded")?;
    let (left, bytes) = (number(&said, "left")?, number(&said, "bytes")?);
    println!(
        "stress: {seconds} s, {} blocks in {} processes; alive at the end {:.0} blocks, {:.0} bytes; in truth {left:.0} and \
         {bytes:.0}, and up to {OTHERS:.0} of the C library",
        heap.blocks, heap.processes, heap.live_blocks, heap.live_bytes,
    );
    Ok((0.0..=OTHERS).contains(&(heap.live_blocks - left))
        && (0.0..=OTHERS_BYTES).contains(&(heap.live_bytes - bytes)))
}

/// Programs of others that allocate as hard as they can, under `--heap on`: they end well, and so does the recording.
fn stressors(linewise: &Path, built: &Path, seconds: usize) -> anyhow::Result<bool> {
    let installed = Command::new("stress-ng")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if installed.is_err() {
        println!("skip: stress-ng is not installed");
        return Ok(true);
    }
    let timeout = format!("{seconds}s");
    for stressor in ["--malloc", "--fork", "--mmap"] {
        let command = ["stress-ng", "--quiet", stressor, "2", "--timeout", &timeout];
        let (_, recording) = recorded(linewise, built, &["--heap", "on"], &command)?;
        let heap = info(&recording)?.heap.context("no blocks were recorded")?;
        println!(
            "stress-ng {stressor}: {} blocks in {} processes, {:.0} alive at the end",
            heap.blocks, heap.processes, heap.live_blocks
        );
    }
    Ok(true)
}

/// The storm alone, attached to without and with probes on its allocator, in turns.
fn probed(linewise: &Path, built: &Path, pairs: usize, seconds: usize) -> anyhow::Result<bool> {
    const BAR: f64 = 0.15;
    let mut speeds: [Vec<f64>; 3] = Default::default();
    let mut told = String::new();
    for round in 0..pairs {
        for turn in 0..SIDES.len() {
            let side = (round + turn) % SIDES.len();
            let recording = built.join("probed.linewise");
            speeds[side].push(storm(linewise, built, seconds, SIDES[side].1, &recording)?);
            if side == 2 {
                let heap = info(&recording)?.heap;
                let Some(probed) = heap.and_then(|heap| heap.probed) else {
                    println!("skip: probed: probes cannot be placed here");
                    return Ok(true);
                };
                told = format!(
                    "{:.2} % of the time in {} slices, {} hits",
                    probed.share * 100.0,
                    probed.slices,
                    probed.hits
                );
            }
        }
    }
    let slower = |than: usize, side: usize| -> String {
        let pairs = speeds[than].iter().zip(&speeds[side]);
        let all: Vec<f64> = pairs.map(|(than, it)| (than / it - 1.0) * 100.0).collect();
        let shown: Vec<String> = all.iter().map(|it| format!("{it:.1}")).collect();
        format!(
            "{:.1} % ({})",
            median(&all).unwrap_or(f64::NAN),
            shown.join(", ")
        )
    };
    println!(
        "probed: storm alone {:.0} a second; attached, --heap off {}, --heap auto {}; auto over off {}; the last was probed {told}",
        median(&speeds[0]).unwrap_or(f64::NAN),
        slower(0, 1),
        slower(0, 2),
        slower(1, 2),
    );
    let ratios: Vec<f64> = (speeds[1].iter().zip(&speeds[2]))
        .map(|(off, auto)| off / auto - 1.0)
        .collect();
    Ok(median(&ratios).unwrap_or(f64::NAN) <= BAR)
}

/// Allocations a second of a storm that begins when linewise, with these options, has attached to it.
fn storm(
    linewise: &Path,
    built: &Path,
    seconds: usize,
    options: Option<&[&str]>,
    recording: &Path,
) -> anyhow::Result<f64> {
    let child = Command::new(built.join("storm"))
        .args([&seconds.to_string(), "280", ATTACHING])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running storm")?;
    let collector = options.map(|options| {
        Command::new(linewise)
            .args(["record", "--quiet", "--force", "--pid"])
            .arg(child.id().to_string())
            .args(options)
            .arg("-o")
            .arg(recording)
            .stdin(Stdio::null())
            .spawn()
    });
    let output = child.wait_with_output().context("waiting for storm")?;
    if let Some(collector) = collector {
        let status = collector
            .context("running linewise")?
            .wait()
            .context("waiting for linewise")?;
        ensure!(status.success(), "linewise record --pid: {status}");
    }
    ensure!(output.status.success(), "storm: {}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(number(&said, "iterations")? / number(&said, "seconds")?)
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
