//! `cargo xtask exact-stability`: does an exact run count the same transfers whatever else the machine does, and as
//! many as threads that take turns would cause?
//!
//! Each program always does the same work and runs under `linewise run --source exact` on one CPU, on two, and on two
//! beside `stress-ng`. What it would move in strict turns is known of those whose accesses do not depend on the order.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::recorded::compile;
use crate::round_trip::median;

/// All counts of a program must lie within this share of their median, lowest to highest.
const SPREAD_BAR: f64 = 0.01;
/// How far the median may lie from what turns cause: threads begin and end alone.
const TURNS_BAR: f64 = 0.01;
/// The most transfers of a program that shares nothing.
const APART_BAR: f64 = 200.0;
/// Other load: name, CPUs of the target and its collector, workers of stress-ng.
const LOADS: [(&str, &str, usize); 3] = [
    ("one CPU", "0", 0),
    ("two CPUs", "0,1", 0),
    ("beside four busy", "0,1", 4),
];

/// Where a program comes from.
enum Origin {
    /// A C file of the tests.
    Source(&'static str),
    /// What the machine has installed; left out where it has not. It gets a file of text as its last argument.
    Installed,
}

/// A program and what it would move.
struct Case {
    name: &'static str,
    origin: Origin,
    words: &'static str,
    /// Transfers if the threads take turns; `None` where that depends on who comes first.
    in_turns: Option<f64>,
}

const fn ours(
    name: &'static str,
    source: &'static str,
    words: &'static str,
    in_turns: Option<f64>,
) -> Case {
    Case {
        name,
        origin: Origin::Source(source),
        words,
        in_turns,
    }
}

const fn installed(name: &'static str, words: &'static str) -> Case {
    Case {
        name,
        origin: Origin::Installed,
        words,
        in_turns: None,
    }
}

const COUNTERS: &str = "crates/tracer/tests/programs/counters.c";
const MEETING: &str = "crates/tracer/tests/programs/meeting.c";
const EQUAL: &str = "crates/tracer/tests/programs/equal.c";
const PROCESSES: &str = "crates/cli/tests/meeting.c";

const CASES: &[Case] = &[
    ours(
        "counters on one line",
        COUNTERS,
        "8 300000",
        Some(600_000.0),
    ),
    ours("counters apart", COUNTERS, "256 300000", Some(0.0)),
    ours("fetch_add", MEETING, "add 100000", Some(200_000.0)),
    ours("mutex", MEETING, "lock 8000", None),
    ours("semaphores", MEETING, "post 8000", None),
    ours("condition variables", MEETING, "turns 8000", None),
    ours("compare and swap", EQUAL, "compare", Some(40_000.0)),
    ours("phases", EQUAL, "phases", Some(40_000.0)),
    ours("table at random", EQUAL, "pick", Some(10_023.0)),
    ours(
        "processes, fetch_add",
        PROCESSES,
        "anonymous counter 2 10",
        Some(200_000.0),
    ),
    ours("processes, mutex", PROCESSES, "memfd mutex 3 8000", None),
    ours("processes, ring", PROCESSES, "segment ring 2 8000", None),
    ours("processes, barrier", PROCESSES, "file barrier 3 1000", None),
    installed("zstd", "-T2 -B262144 -c"),
    installed("pigz", "-p2 -c"),
    installed("sort", "--parallel=2 -S32M"),
];

/// What the check reads of a report (docs/report-json.md).
#[derive(Deserialize)]
struct Report {
    sharing: Sharing,
    losses: BTreeMap<String, Loss>,
}

#[derive(Deserialize)]
struct Sharing {
    transfers: Transfers,
}

#[derive(Deserialize)]
struct Transfers {
    #[serde(rename = "true")]
    true_sharing: f64,
    #[serde(rename = "false")]
    false_sharing: f64,
}

#[derive(Deserialize)]
struct Loss {
    count: u64,
}

/// The counts of the runs of one program.
#[derive(Default, Serialize)]
struct Row {
    name: &'static str,
    in_turns: Option<f64>,
    /// By load.
    transfers: BTreeMap<&'static str, Vec<f64>>,
    /// Waits that the kernel ended, the most of a run: its counts may differ.
    by_the_kernel: u64,
}

impl Row {
    fn all(&self) -> Vec<f64> {
        self.transfers.values().flatten().copied().collect()
    }

    /// Highest less lowest, over the median.
    fn spread(&self) -> f64 {
        let all = self.all();
        let (low, high) = ends(&all);
        (high - low) / median(&all).unwrap_or(0.0).max(1.0)
    }

    /// What is wrong with the counts.
    fn trouble(&self) -> Option<String> {
        let all = self.all();
        let middle = median(&all)?;
        let (_, high) = ends(&all);
        match self.in_turns {
            Some(0.0) => {
                return (high > APART_BAR).then(|| format!("at most {APART_BAR:.0} wanted"));
            }
            Some(turns) if (middle / turns - 1.0).abs() > TURNS_BAR => {
                return Some(format!("{turns:.0} wanted"));
            }
            _ => {}
        }
        (self.by_the_kernel == 0 && self.spread() > SPREAD_BAR)
            .then(|| format!("a spread of at most {:.0} % wanted", SPREAD_BAR * 100.0))
    }
}

/// Runs the programs and prints the table. `false` if a bar is missed.
///
/// # Errors
/// If linewise or a C compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let runs = arguments.count("--runs", 7)?;
    let only: Option<String> = arguments.value("--only")?;
    let json = arguments.switch("--json");
    arguments.finish()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skip: exact-stability: one CPU is to be compared with two");
        return Ok(true);
    }
    let linewise = release_binary(root)?;
    let work = root.join("target/exact-stability");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let chosen = |case: &&Case| only.as_ref().is_none_or(|only| case.name.contains(only));
    let mut programs = Vec::new();
    for case in CASES.iter().filter(chosen) {
        match command_of(root, &work, case)? {
            Some(command) => programs.push((case, command)),
            None => println!("skip: exact-stability: {} is not installed", case.name),
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(programs.iter().map(|(case, _)| Row {
        name: case.name,
        in_turns: case.in_turns,
        ..Row::default()
    }));
    for (load, cpus, busy) in LOADS {
        let Some(_beside) = Beside::new(busy)? else {
            println!("skip: exact-stability: stress-ng is not installed");
            continue;
        };
        for round in 1..=runs {
            eprintln!("{load}: round {round} of {runs}");
            for ((_, command), row) in programs.iter().zip(&mut rows) {
                let report = count(&linewise, &work, cpus, command)?;
                let transfers = report.sharing.transfers;
                let both = transfers.true_sharing + transfers.false_sharing;
                row.transfers.entry(load).or_default().push(both);
                let waits = report.losses.get("order-by-the-kernel");
                row.by_the_kernel = row.by_the_kernel.max(waits.map_or(0, |it| it.count));
            }
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
    }
    Ok(rows.iter().all(|row| row.trouble().is_none()))
}

/// Program and arguments of a case; `None` if the machine does not have it.
fn command_of(root: &Path, work: &Path, case: &Case) -> anyhow::Result<Option<Vec<PathBuf>>> {
    let words = case.words.split_whitespace().map(PathBuf::from);
    Ok(match case.origin {
        Origin::Source(source) => {
            let program = work.join(source.replace(['/', '.'], "_"));
            compile(
                &program,
                &root.join(source),
                &["cc", "-O2", "-g", "-pthread"],
            )?;
            Some([program].into_iter().chain(words).collect())
        }
        Origin::Installed => {
            let found = Path::new("/usr/bin").join(case.name);
            let text = work.join("text");
            fs::write(&text, invented_text())?;
            found
                .exists()
                .then(|| [found].into_iter().chain(words).chain([text]).collect())
        }
    })
}

/// Four megabytes of numbered lines in no order, the same each time.
fn invented_text() -> String {
    let mut state = 1_u64;
    let mut text = String::new();
    while text.len() < 4 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:07} of {}\n", state >> 41, text.len() % 977));
    }
    text
}

/// What keeps the CPUs busy until it is dropped.
struct Beside(Option<Child>);

impl Beside {
    /// `None` if stress-ng is not there.
    fn new(busy: usize) -> anyhow::Result<Option<Self>> {
        if busy == 0 {
            return Ok(Some(Self(None)));
        }
        let spawned = Command::new("stress-ng")
            .args(["--cpu", &busy.to_string(), "--quiet"])
            .stdin(Stdio::null())
            .spawn();
        match spawned {
            Ok(child) => Ok(Some(Self(Some(child)))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("running stress-ng"),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It ends its workers; a killed one would leave them.
            let id = child.id().to_string();
            Command::new("kill").arg(&id).status().ok();
            child.wait().ok();
        }
    }
}

fn count(linewise: &Path, work: &Path, cpus: &str, program: &[PathBuf]) -> anyhow::Result<Report> {
    let report = work.join("report.json");
    // A report left over from the run before must not be counted.
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    let output = Command::new("taskset")
        .args(["--cpu-list", cpus])
        .arg(linewise)
        .args(["run", "--source", "exact", "--quiet", "--json"])
        .arg("--report-to")
        .arg(&report)
        .arg("--")
        .args(program)
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .context("running taskset")?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = fs::read(&report).with_context(|| report.display().to_string())?;
    serde_json::from_slice(&text).context("the report of an exact run")
}

fn ends(counts: &[f64]) -> (f64, f64) {
    counts
        .iter()
        .fold((f64::INFINITY, 0.0), |(low, high), &count| {
            (count.min(low), count.max(high))
        })
}

fn print_table(rows: &[Row]) {
    print!("{:<22} {:>9}", "program", "in turns");
    for (load, _, _) in LOADS {
        print!(" {load:>20}");
    }
    println!(" {:>9} {:>10}", "spread", "by kernel");
    for row in rows {
        let turns = row.in_turns.map_or(String::new(), |it| format!("{it:.0}"));
        print!("{:<22} {turns:>9}", row.name);
        for (load, _, _) in LOADS {
            let counts = row.transfers.get(load).map_or(&[][..], Vec::as_slice);
            let (low, high) = ends(counts);
            let shown = match counts {
                [] => "-".to_owned(),
                _ if low < high => format!("{low:.0}..{high:.0}"),
                _ => format!("{low:.0}"),
            };
            print!(" {shown:>20}");
        }
        println!(
            " {:>7.2} % {:>10} {}",
            row.spread() * 100.0,
            row.by_the_kernel,
            row.trouble().unwrap_or_default()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(in_turns: Option<f64>, transfers: &[f64], by_the_kernel: u64) -> Row {
        Row {
            name: "program",
            in_turns,
            transfers: [("two CPUs", transfers.to_vec())].into(),
            by_the_kernel,
        }
    }

    #[test]
    fn counts_that_agree_pass() {
        assert_eq!(row(Some(1e6), &[0.995e6, 0.995e6], 0).trouble(), None);
        assert_eq!(row(Some(0.0), &[3.0, 190.0], 0).trouble(), None);
        assert_eq!(row(None, &[1e6, 1.009e6], 0).trouble(), None);
    }

    #[test]
    fn counts_that_scatter_lie_elsewhere_or_should_not_be_fail() {
        assert!(row(None, &[1e6, 1.2e6], 0).trouble().is_some());
        assert!(row(Some(1e6), &[0.9e6], 0).trouble().is_some());
        assert!(row(Some(1e6), &[0.9e6], 3).trouble().is_some());
        assert!(row(Some(0.0), &[3.0, 1_100.0], 0).trouble().is_some());
    }

    #[test]
    fn what_the_kernel_ended_may_differ() {
        assert_eq!(row(None, &[1e6, 1.2e6], 1).trouble(), None);
    }
}
