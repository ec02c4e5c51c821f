//! `cargo xtask structures`: is the sharing of concurrent structures called by its kind? The programs of
//! `fixtures/programs/structures` have their words packed on a line and, with `-DREPAIRED`, the words that different
//! threads use on lines of their own.
//!
//! What kind each is follows from its source: a transfer is true if the thread uses, while it has the line, a word that
//! another used in conflict since it did so itself (see the analysis's views/sharing/kinds.rs).

use std::path::Path;

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::twins::{Finding, Report, Twins, calibrate, recorded};

/// A share of the transfers that is false: between which ends it lies.
type Truth = (f64, f64);

const TRUE: Truth = (0.0, 0.2);
const FALSE: Truth = (0.8, 1.0);
/// Of both kinds, by how threads happen to meet.
const EITHER: Truth = (0.0, 1.0);

/// The programs; of their variables the one that costs most when packed, and the others; their truth when packed.
pub(crate) const PROGRAMS: [(&str, &[(&str, Truth)]); 14] = [
    // Who crosses last wakes the others: all write and read the number and the sense.
    ("barrier", &[("barrier", TRUE), ("local", FALSE)]),
    // Sleeps mostly: no finding has to be there.
    ("condvar", &[("monitor", (0.0, 0.4))]),
    // Thieves read both ends; the owner writes one and reads the other.
    ("deque", &[("deque", (0.0, 0.4))]),
    (
        "hazard",
        &[("hazards", FALSE), ("shared", TRUE), ("objects", EITHER)],
    ),
    // A thread readies its node, which is its own, and hands over at that of another.
    (
        "mcs",
        &[("nodes", EITHER), ("queue", TRUE), ("guarded", TRUE)],
    ),
    // Two threads use one index each.
    ("mpmc", &[("positions", FALSE), ("cells", EITHER)]),
    ("mutex_queue", &[("mutex_queue", (0.0, 0.4))]),
    (
        "rcu",
        &[("readers", FALSE), ("current", TRUE), ("versions", EITHER)],
    ),
    // Of four objects on a line another thread took the same one meanwhile with 1 - (3/4)^4.
    ("refcount", &[("objects", (0.2, 0.45))]),
    ("rwlock", &[("rwlock", TRUE)]),
    ("seqlock", &[("seqlock", TRUE)]),
    ("slots", &[("slots", FALSE)]),
    // Each push reads the index that pops write, and the other way round.
    ("spsc", &[("rings", (0.0, 0.5))]),
    ("ticket", &[("ticket", TRUE)]),
];
/// Findings that cost less are not judged.
const NOISE: f64 = 0.02;
/// Rounds of a program under the emulator.
const EXACT_ROUNDS: u64 = 20_000;
/// Of all runs so many must be right, and so few may say what is wrong.
const RIGHT: f64 = 0.9;
const WRONG: f64 = 0.04;
/// Of the findings at variables of one kind so many must say which (8 of 10 did): that all is open holds always.
const TOLD: f64 = 0.5;

/// What the findings of a run are worth.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Right,
    /// The dearest variable has no finding.
    Missed,
    /// A kind that it is not.
    Wrong,
}

/// Whether a finding says what is true of a variable of which so much is false.
fn holds(finding: &Finding, (low, high): Truth) -> bool {
    let said = finding.false_share_interval;
    match finding.kind.as_str() {
        "false-sharing" => high >= 0.5,
        "true-sharing" => low < 0.5,
        _ => said.low <= high && low <= said.high,
    }
}

/// Findings at variables of one kind, when packed, and those of them that say which.
fn told(report: &Report, variables: &[(&str, Truth)]) -> (usize, usize) {
    let of_one_kind = |finding: &&Finding| {
        let truth = variables.iter().find(|it| it.0 == finding.object.name);
        finding.cost.share >= NOISE && truth.is_some_and(|it| it.1 == TRUE || it.1 == FALSE)
    };
    let findings = || report.findings.iter().filter(of_one_kind);
    let told = findings().filter(|finding| finding.kind != "sharing");
    (findings().count(), told.count())
}

fn verdict(report: &Report, variables: &[(&str, Truth)], packed: bool, sleeps: bool) -> Verdict {
    let dear = || (report.findings.iter()).filter(|finding| finding.cost.share >= NOISE);
    // Apart, what is shared is shared truly, but of nodes that others hand over and of cells.
    let truth = |name: &str| {
        let known = variables.iter().find(|it| it.0 == name).map(|it| it.1);
        match (packed, known) {
            (true, known) => known.unwrap_or(EITHER),
            (false, Some(EITHER)) => EITHER,
            (false, _) => TRUE,
        }
    };
    if dear().any(|finding| !holds(finding, truth(&finding.object.name))) {
        return Verdict::Wrong;
    }
    let found = dear().any(|finding| finding.object.name == variables[0].0);
    match !packed || sleeps || found {
        true => Verdict::Right,
        false => Verdict::Missed,
    }
}

/// Records the programs and prints what was said of them. `false` if a bar is missed.
///
/// # Errors
/// If linewise or the compiler is not there, a run fails, or the arguments are not understood.
pub(crate) fn run(root: &Path, mut arguments: Arguments) -> anyhow::Result<bool> {
    let threads = arguments.count("--threads", 2)?;
    let runs = arguments.count("--runs", 5)?;
    let seconds: f64 = arguments.value("--seconds")?.unwrap_or(2.0);
    let only: Option<String> = arguments.value("--only")?;
    let source: String = arguments.value("--source")?.unwrap_or("timer".to_owned());
    arguments.finish()?;
    let options = ["--source", source.as_str()];
    let linewise = release_binary(root)?;
    let mut all = Vec::new();
    let (mut of_one_kind, mut told_of) = (0, 0);
    for (program, variables) in PROGRAMS {
        if only.as_ref().is_some_and(|only| only != program) {
            continue;
        }
        let twins = Twins::compile(root, "structures", program, "-O2")?;
        for (form, binary) in [("packed", &twins.broken), ("padded", &twins.repaired)] {
            let rounds = match source.as_str() {
                "exact" => EXACT_ROUNDS,
                _ => calibrate(binary, threads, seconds)?,
            };
            let mut said = Vec::new();
            let before = all.len();
            for _ in 0..runs {
                let report = recorded(root, &linewise, &options, binary, threads, rounds)?;
                let verdict = verdict(&report, variables, form == "packed", program == "condvar");
                if verdict != Verdict::Right || said.is_empty() {
                    said.push(words(&report));
                }
                all.push(verdict);
                if form == "packed" {
                    let (found, said_which) = told(&report, variables);
                    of_one_kind += found;
                    told_of += said_which;
                }
            }
            let right = all[before..].iter().filter(|it| **it == Verdict::Right);
            println!(
                "{program:<12} {form}  {} of {runs}  {}",
                right.count(),
                said.join("; ")
            );
        }
    }
    let share = |of: Verdict| {
        let count = all.iter().filter(|it| **it == of).count();
        (count, count as f64 / all.len().max(1) as f64)
    };
    let ((right, most), (wrong, few)) = (share(Verdict::Right), share(Verdict::Wrong));
    println!(
        "{} runs: {right} right, {wrong} wrong; {told_of} of {of_one_kind} findings of one kind say which; bars: {RIGHT}, {WRONG}, {TOLD}",
        all.len()
    );
    Ok(most >= RIGHT && few <= WRONG && told_of as f64 >= TOLD * of_one_kind as f64)
}

/// `true-sharing seqlock 19 % (0..30 % false)` of each finding.
fn words(report: &Report) -> String {
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let of = |finding: &Finding| {
        let said = finding.false_share_interval;
        format!(
            "{} {} {} % ({}..{} % false)",
            finding.kind,
            finding.object.name,
            percent(finding.cost.share),
            percent(said.low),
            percent(said.high)
        )
    };
    let all: Vec<String> = report.findings.iter().map(of).collect();
    match all.is_empty() {
        true => "no finding".to_owned(),
        false => all.join(", "),
    }
}
