//! `cargo xtask repairs`: does the cost of a finding say what a repair brings? The programs of
//! `fixtures/programs/repairs` do a fixed amount of work, each with a cause and, with `-DREPAIRED`, without.
//!
//! The gain of the repair is measured in CPU time, in pairs that follow each other; the cost is that of the first
//! finding of a recording of the program with the cause. A repaired program must have no finding of that kind.

use std::path::Path;

use serde::Serialize;

use crate::answers::release_binary;
use crate::arguments::Arguments;
use crate::round_trip::median;
use crate::twins::{Finding, Interval, Twins, calibrate, cpu_seconds, recorded};

/// The programs; the kinds that their cause may be called, and the object that is named (`heap` and `stack` by kind).
pub(crate) const PROGRAMS: [(&str, &[&str], &str); 24] = [
    ("atomics", FALSE, "counters"),
    // No byte goes back and forth so often that it would cost something.
    ("bytes", &[], "progress"),
    // Neighbours in a row: false, but samples cannot tell that they are not visited together.
    ("columns", &["false-sharing", "sharing"], "results"),
    // Its time is seen at loads that wait for the stores before them.
    ("copied", FALSE, "results"),
    ("counter", TRUE, "counters"),
    // Thousands of lines, of which hardly one is sampled twice.
    ("counts", TRUE, "counts"),
    ("flag", FALSE, "state"),
    // Two thirds of the bins that a thread takes the other one took meanwhile.
    ("histogram", PICKED, "histograms"),
    ("lock_beside", FALSE, "services"),
    ("members", FALSE, "counts"),
    ("members_busy", FALSE, "states"),
    ("mutex", TRUE, "accounts"),
    ("mutexes", FALSE, "accounts"),
    ("on_stack", FALSE, "stack"),
    ("pool", PICKED, "locks"),
    // Each index is the other thread's now and then.
    ("queue", &["false-sharing", "sharing"], "rings"),
    ("readers", TRUE, "locks"),
    ("records", FALSE, "records"),
    ("refcount", FALSE, "documents"),
    ("regression", FALSE, "heap"),
    ("slots", FALSE, "heap"),
    ("stacks", FALSE, "heads"),
    ("sums", FALSE, "sums"),
    ("three", TRUE, "statistics"),
];
const FALSE: &[&str] = &["false-sharing"];
const TRUE: &[&str] = &["true-sharing"];
const PICKED: &[&str] = &["true-sharing", "sharing"];

/// Of the programs so many intervals must hold the gain,
const HELD: usize = 17;
/// and so many first findings be the cause, by kind and object: two less each than on a quiet machine.
const NAMED: usize = 20;
/// So many intervals are no wider than this factor. Where a round trip is 70 ns they are wider than where it is 330: 9 to 14 were.
const NARROW: usize = 7;
const WIDTH: f64 = 6.0;
/// What two runs of one program may differ by, and what a finding must cost to speak of it.
const NOISE: f64 = 0.02;
/// Where a repair brings less than this, no finding has to be there.
const SLIGHT: f64 = 0.1;
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

    fn is_narrow(&self) -> bool {
        let cost = self.finding.as_ref().map(|finding| finding.cost);
        cost.is_none_or(|cost| cost.interval.high <= WIDTH * cost.interval.low)
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
    let mut rows = Vec::new();
    for (program, kinds, object) in PROGRAMS {
        if only.as_ref().is_some_and(|only| only != program) {
            continue;
        }
        let level = if program == "members" { "-O0" } else { "-O2" };
        let twins = Twins::compile(root, "repairs", program, level)?;
        let rounds = calibrate(&twins.broken, threads, seconds)?;
        let gains: anyhow::Result<Vec<f64>> = (0..pairs)
            .map(|_| {
                let before = cpu_seconds(&twins.broken, threads, rounds)?;
                Ok(1.0 - cpu_seconds(&twins.repaired, threads, rounds)? / before)
            })
            .collect();
        let bad = recorded(root, &linewise, &[], &twins.broken, threads, rounds)?;
        let good = recorded(root, &linewise, &[], &twins.repaired, threads, rounds)?;
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
                // Locks that lie apart are shared all the same.
                .filter(|finding| program != "pool" || finding.kind != "true-sharing")
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
    let (silent, narrow) = (count(|row| row.repaired <= NOISE), count(Row::is_narrow));
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!(
            "{} programs: {held} intervals hold the gain, {named} first findings are the cause, {silent} repaired ones are silent, {narrow} intervals are no wider than {WIDTH} times",
            rows.len()
        );
        println!("bars: {HELD}, {NAMED}, all but one, {NARROW}");
    }
    let missing = PROGRAMS.len() - rows.len();
    let bars = [
        ("hold the gain", held, HELD),
        ("name the cause", named, NAMED),
        ("are narrow", narrow, NARROW),
        ("are silent when repaired", silent, PROGRAMS.len() - 1),
    ];
    let missed = bars.iter().filter(|(_, count, bar)| count + missing < *bar);
    let missed = missed.inspect(|(what, count, bar)| eprintln!("missed: {count} of {bar} {what}"));
    Ok(missed.count() == 0)
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
