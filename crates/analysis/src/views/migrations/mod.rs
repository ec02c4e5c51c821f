//! How often threads come to another CPU, whose caches hold nothing of theirs, and whether they crowd on one.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{RunInfo, Switch, Tables, Thread, Tid, Time};
use serde::{Deserialize, Serialize};

use crate::section::{Cell, Column, Section, Table, View};

/// Moves a second from which on they are worth a look: to fill a private cache of 1 MiB anew takes some 300 µs, so that they
/// may cost more than a percent.
const OFTEN: f64 = 50.0;
/// Moves below which a rate is chance.
const FEWEST: u64 = 20;
/// Pairs of CPUs of a thread.
const MOST_PAIRS: usize = 8;
/// A thread with less CPU time than that crowds nothing, ns.
const BUSY_NS: u64 = 10_000_000;
/// The busiest CPU has so many times what it would have if all had the same.
const CROWDED: f64 = 2.0;
/// Or nearly all there is.
const NEARLY_ALL: f64 = 0.9;

/// How often threads came to another CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Migrations {
    /// How often a thread went on on another CPU than it had left, as far as its stays were recorded.
    pub moves: u64,
    /// The time of the stays that were recorded, ns of CPU time.
    pub recorded_ns: u64,
    /// Moves a second from the first recorded stay to the last: at least so many, since who ran where is not recorded all the time.
    pub per_second: f64,
    /// The CPU on which the threads were longest, all together.
    pub busiest_cpu: u32,
    /// Its share of `recorded_ns`, 0 to 1.
    pub busiest_share: f64,
    /// How many threads with at least 10 ms of CPU time were there for more than half of it.
    pub threads_there: u64,
    /// Whether threads crowd there: it has at least twice the time that it would have if all CPUs in use had the same, or 90 % of
    /// all, though others were used.
    pub crowded: bool,
    /// The threads that moved, most moves first.
    pub threads: Vec<ThreadMigrations>,
}

/// How often one thread came to another CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadMigrations {
    /// Its id.
    pub tid: u32,
    /// Its name; empty if unknown.
    pub name: String,
    /// How often it went on on another CPU than it had left.
    pub moves: u64,
    /// The time of its stays that were recorded, ns.
    pub recorded_ns: u64,
    /// Moves a second from its first recorded stay to its last: at least so many.
    pub per_second: f64,
    /// How many CPUs it was on.
    pub cpus: u64,
    /// The CPU on which it was longest.
    pub longest_cpu: u32,
    /// The share of `recorded_ns` that it was there, 0 to 1.
    pub longest_share: f64,
    /// Between which CPUs it moved, most moves first; at most 8.
    pub between: Vec<CpuPair>,
}

/// Moves between two CPUs, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPair {
    /// The one, the lower number.
    pub a: u32,
    /// The other.
    pub b: u32,
    /// Moves.
    pub moves: u64,
}

const COLUMNS: [Column<ThreadMigrations>; 6] = [
    Column {
        head: "threads between CPUs",
        width: 24,
        sums: false,
        cell: |row| match row.name.as_str() {
            "" => Cell::text("thread"),
            name => Cell::text(name),
        },
    },
    Column {
        head: "id",
        width: 9,
        sums: false,
        cell: |row| Cell::Id(u64::from(row.tid)),
    },
    Column {
        head: "moves",
        width: 8,
        sums: true,
        cell: |row| Cell::Count(row.moves as f64),
    },
    Column {
        head: "a second",
        width: 10,
        sums: false,
        cell: |row| Cell::Count(row.per_second),
    },
    Column {
        head: "mostly",
        width: 14,
        sums: false,
        cell: |row| match row.between.first() {
            Some(pair) => Cell::Text(format!("{} and {}", pair.a, pair.b)),
            None => Cell::Empty,
        },
    },
    Column {
        head: "longest on",
        width: 13,
        sums: false,
        cell: |row| Cell::Text(format!("CPU {}", row.longest_cpu)),
    },
];

impl View for Migrations {
    fn of(_info: &RunInfo, tables: &Tables) -> Option<Self> {
        migrations(&tables.switches, &tables.threads)
    }

    /// Where a thread moves often, or threads crowd on a CPU.
    fn section(&self) -> Option<Section> {
        let often = |row: &ThreadMigrations| row.moves >= FEWEST && row.per_second >= OFTEN;
        let often = self.threads.iter().any(often);
        if !often && !self.crowded {
            return None;
        }
        let mut facts = vec![vec![
            Cell::Count(self.moves as f64),
            Cell::text(" moves to another CPU, "),
            Cell::Count(self.per_second),
            Cell::text(" a second"),
        ]];
        if self.crowded {
            facts.push(vec![
                Cell::Text(format!(
                    "{} threads are mostly on CPU {}, which has ",
                    self.threads_there, self.busiest_cpu
                )),
                Cell::Share(self.busiest_share),
                Cell::text(" of all CPU time"),
            ]);
        }
        let mut notes = Vec::new();
        if often {
            notes.push("At each move a thread leaves behind what its CPU's private caches hold of its data, and waits for it again. `taskset` or `sched_setaffinity` keeps a thread where it is; fewer runnable threads than CPUs let it stay by itself.".to_owned());
        }
        if self.crowded {
            notes.push("Threads that crowd on a CPU wait for each other. Unless other programs keep the other CPUs busy (`top` shows it), look for an affinity that they inherit, or for a thread that wakes them all where it runs.".to_owned());
        }
        let weight = |row: &ThreadMigrations| row.moves as f64;
        Some(Section {
            facts,
            table: (!self.threads.is_empty())
                .then(|| Table::of("thread", &COLUMNS, &self.threads, weight)),
            notes,
            ..Section::new("migrations", "CPU migrations")
        })
    }
}

/// What stays say; `None` if no thread moved and none crowd.
fn migrations(stays: &[Switch], threads: &[Thread]) -> Option<Migrations> {
    let mut of_thread: BTreeMap<Tid, Vec<&Switch>> = BTreeMap::new();
    for stay in stays {
        of_thread.entry(stay.tid).or_default().push(stay);
    }
    // Of a thread that executed another program the last name.
    let mut names: HashMap<Tid, &Thread> = HashMap::new();
    for thread in threads {
        let known = names.entry(thread.tid).or_insert(thread);
        if thread.end >= known.end {
            *known = thread;
        }
    }
    let mut all = Migrations::default();
    let mut on_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    for (tid, mut stays) in of_thread {
        stays.sort_by_key(|stay| stay.start);
        for stay in &stays {
            *on_cpu.entry(stay.cpu.0).or_default() += stay.end.since(stay.start);
        }
        let name = names.get(&tid).map_or("", |thread| thread.name.as_str());
        all.threads.push(of_one(tid, name, &stays));
    }
    all.recorded_ns = on_cpu.values().sum();
    all.moves = all.threads.iter().map(|row| row.moves).sum();
    all.per_second = per_second(all.moves, stays);
    (all.busiest_cpu, all.busiest_share) = longest(&on_cpu);
    let busy: Vec<&ThreadMigrations> = (all.threads.iter())
        .filter(|row| row.recorded_ns >= BUSY_NS)
        .collect();
    let there =
        |row: &&&ThreadMigrations| row.longest_cpu == all.busiest_cpu && row.longest_share > 0.5;
    all.threads_there = busy.iter().filter(there).count() as u64;
    let even = 1.0 / on_cpu.len().min(busy.len()).max(1) as f64;
    let much = (CROWDED * even).min(NEARLY_ALL);
    all.crowded = on_cpu.len() > 1 && all.threads_there > 1 && all.busiest_share >= much;
    all.threads.retain(|row| row.moves > 0);
    all.threads
        .sort_by_key(|row| (std::cmp::Reverse(row.moves), row.tid));
    (all.moves > 0 || all.crowded).then_some(all)
}

/// What the stays of one thread say, in their order.
fn of_one(tid: Tid, name: &str, stays: &[&Switch]) -> ThreadMigrations {
    let mut on_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    for stay in stays {
        *on_cpu.entry(stay.cpu.0).or_default() += stay.end.since(stay.start);
    }
    let mut pairs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for two in stays.windows(2) {
        let (from, to) = (two[0].cpu.0, two[1].cpu.0);
        if from != to {
            *pairs.entry((from.min(to), from.max(to))).or_default() += 1;
        }
    }
    let moves = pairs.values().sum();
    let mut between: Vec<CpuPair> = pairs
        .into_iter()
        .map(|((a, b), moves)| CpuPair { a, b, moves })
        .collect();
    between.sort_by_key(|pair| std::cmp::Reverse(pair.moves));
    between.truncate(MOST_PAIRS);
    let recorded_ns = on_cpu.values().sum();
    let (longest_cpu, longest_share) = longest(&on_cpu);
    ThreadMigrations {
        tid: tid.0,
        name: name.to_owned(),
        moves,
        recorded_ns,
        per_second: per_second(moves, stays.iter().copied()),
        cpus: on_cpu.len() as u64,
        longest_cpu,
        longest_share,
        between,
    }
}

/// Moves a second of the time from the first stay to the last. Of a second of recorded stays there would be too many: a
/// move from one that was recorded to the next may be one of a long time.
fn per_second<'a>(moves: u64, stays: impl IntoIterator<Item = &'a Switch>) -> f64 {
    let span = |seen: Option<(Time, Time)>, stay: &Switch| match seen {
        None => Some((stay.start, stay.end)),
        Some((start, end)) => Some((start.min(stay.start), end.max(stay.end))),
    };
    match stays.into_iter().fold(None, span) {
        Some((start, end)) if end > start => moves as f64 * 1e9 / end.since(start) as f64,
        _ => 0.0,
    }
}

/// The CPU with the most time, of several the lowest, and its share.
fn longest(on_cpu: &BTreeMap<u32, u64>) -> (u32, f64) {
    let all: u64 = on_cpu.values().sum();
    let longest = (on_cpu.iter()).max_by_key(|&(&cpu, &ns)| (ns, std::cmp::Reverse(cpu)));
    longest.map_or((0, 0.0), |(&cpu, &ns)| (cpu, ns as f64 / all.max(1) as f64))
}

#[cfg(test)]
mod tests;
