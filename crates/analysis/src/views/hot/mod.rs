//! Where the time goes: the program's own functions by the thread time of the samples that fell into them and into what they
//! call of libraries and the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Address, Frame, Pid, RunInfo, Sample, Tables, Tid};
use serde::{Deserialize, Serialize};

use crate::own_code::{is_own, is_recorder};
use crate::quantity::percent;
use crate::section::{Cell, Column, Section, Table, View};
use crate::views::chains::{Chains, KERNEL, PathKey, UNKNOWN};
use crate::views::place::line_cell;

/// Functions that are told; the others are a few samples each.
const MOST_FUNCTIONS: usize = 2_000;
/// Lines, instructions, and functions of others that are told of each.
const MOST_PARTS: usize = 16;
/// What of a function's time is spent in another's code is worth a word from this share on.
const MUCH: f64 = 0.2;

/// A function, with what it calls as far as that is not the program's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotFunction {
    /// Demangled; `program+0xoffset` where it has no name, `code without a name` where not even that is known, and what is left of a library's where no caller of it is known.
    pub function: String,
    /// Source file of its hottest line; empty if unknown.
    pub file: String,
    /// Its hottest line; 0 if unknown.
    pub line: u32,
    /// Share of the sampled thread time, 0 to 1.
    pub share: f64,
    /// How many threads were seen there.
    pub threads: u64,
    /// The path of the program or library.
    pub module: String,
    /// Why its name or lines are not known, and what to install; empty when nothing is missing.
    pub missing: String,
    /// Its lines, the hottest first; at most 16.
    pub lines: Vec<HotLine>,
    /// Its hottest instructions, those of calls among them; at most 16.
    pub instructions: Vec<HotInstruction>,
    /// The innermost functions of libraries and the kernel in which time of its was spent, most first; at most 16.
    pub inside: Vec<HotCallee>,
}

/// A line of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotLine {
    /// Source file: another than the function's where code was inlined by the preprocessor.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Share of the sampled thread time, 0 to 1.
    pub share: f64,
}

/// An instruction of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotInstruction {
    /// Its process.
    pub pid: u32,
    /// Its address there; of a call that of what it returns to.
    pub address: u64,
    /// Share of the sampled thread time, 0 to 1.
    pub share: f64,
}

/// A function of a library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotCallee {
    /// Demangled; `the kernel` for what is done there.
    pub function: String,
    /// The path of its library; empty of the kernel.
    pub module: String,
    /// Share of the sampled thread time, 0 to 1.
    pub share: f64,
}

const COLUMNS: [Column<HotFunction>; 5] = [
    Column {
        head: "where the time goes",
        width: 25,
        sums: false,
        cell: |row| Cell::text(row.function.as_str()),
    },
    Column {
        head: "at",
        width: 17,
        sums: false,
        cell: |row| line_cell(&row.file, row.line),
    },
    Column {
        head: "time",
        width: 8,
        sums: true,
        cell: |row| Cell::Share(row.share),
    },
    Column {
        head: "threads",
        width: 8,
        sums: false,
        cell: |row| Cell::Count(row.threads as f64),
    },
    Column {
        head: "of it in",
        width: 22,
        sums: false,
        cell: |row| match row.inside.first() {
            Some(callee) if callee.share >= MUCH * row.share => {
                Cell::Text(format!("{}: {}", percent(callee.share), callee.function))
            }
            _ => Cell::Empty,
        },
    },
];

/// Functions of the program's own, those with the most time first.
impl View for Vec<HotFunction> {
    fn of(_info: &RunInfo, tables: &Tables) -> Option<Self> {
        hot(tables)
    }

    fn section(&self) -> Option<Section> {
        Some(Section {
            table: Some(Table::of("function", &COLUMNS, self, |row| row.share)),
            notes: missing(self).into_iter().collect(),
            ..Section::new("hot", "Where the time goes")
        })
    }
}

/// What to install for the names and lines of the functions with the most time, if they have none.
fn missing(rows: &[HotFunction]) -> Option<String> {
    /// Less of the time is not worth a sentence.
    const WORTH: f64 = 0.05;

    let nameless = rows.iter().filter(|row| row.line == 0);
    let mut first = nameless.filter(|row| !row.missing.is_empty() && row.share >= WORTH);
    first.next().map(|row| row.missing.clone())
}

/// What was seen of a function.
#[derive(Default)]
struct Seen<'a> {
    weight: u64,
    missing: &'a str,
    threads: BTreeSet<Tid>,
    lines: BTreeMap<(&'a str, u32), u64>,
    instructions: BTreeMap<(Pid, Address), u64>,
    inside: BTreeMap<(&'a str, &'a str), u64>,
}

/// Where a sample counts.
#[derive(Clone, Copy)]
struct Spot<'a> {
    frame: &'a Frame,
    /// The instruction of the program's own, or where its call returns to.
    address: Address,
    /// What it was really in, if that is not the program's own.
    inside: Option<(&'a str, &'a str)>,
}

/// `None` without samples.
fn hot(tables: &Tables) -> Option<Vec<HotFunction>> {
    let chains = Chains::new(tables);
    let mut spots: HashMap<PathKey, Option<Spot<'_>>> = HashMap::new();
    let mut functions: HashMap<(&str, &str), Seen<'_>> = HashMap::new();
    let mut all = 0;
    for sample in &tables.samples {
        all += sample.weight;
        let path = PathKey::of(sample);
        let spot = *spots
            .entry(path)
            .or_insert_with(|| spot(&chains, sample, path.in_kernel));
        let Some(spot) = spot else {
            let unknown = functions.entry(("", "")).or_default();
            unknown.weight += sample.weight;
            unknown.threads.insert(sample.tid);
            continue;
        };
        let frame = spot.frame;
        let seen = functions
            .entry((frame.function.as_str(), frame.module.as_str()))
            .or_default();
        seen.weight += sample.weight;
        if !frame.reason.is_empty() {
            seen.missing = frame.reason.as_str();
        }
        seen.threads.insert(sample.tid);
        *seen
            .instructions
            .entry((sample.pid, spot.address))
            .or_default() += sample.weight;
        if frame.line > 0 {
            let line = (frame.file.as_str(), frame.line);
            *seen.lines.entry(line).or_default() += sample.weight;
        }
        if let Some(inside) = spot.inside {
            *seen.inside.entry(inside).or_default() += sample.weight;
        }
    }
    if all == 0 {
        return None;
    }
    let mut rows: Vec<HotFunction> = functions
        .into_iter()
        .map(|((function, module), seen)| row(function, module, seen, all))
        .collect();
    rows.sort_by(|a, b| {
        let by_name = (&a.function, &a.module).cmp(&(&b.function, &b.module));
        b.share.total_cmp(&a.share).then(by_name)
    });
    rows.truncate(MOST_FUNCTIONS);
    Some(rows)
}

/// Where a sample of a call chain counts: at the innermost frame of the program's own, at code without a name before that,
/// or at the innermost frame of all where none is known to be its own.
fn spot<'a>(chains: &Chains<'a>, sample: &Sample, in_kernel: bool) -> Option<Spot<'a>> {
    // Time in code that nobody knows is not its caller's.
    let (first, ip) = chains.of(sample).next()?;
    let is_told = |frame: &Frame| is_own(frame) || frame.function.is_empty();
    let (frame, address) = chains
        .of(sample)
        .find(|(frame, _)| is_told(frame))
        .unwrap_or((first, ip));
    // What linewise does in an allocation of the program's is a part of that.
    let mut frames = chains.of(sample).map(|(frame, _)| frame);
    let inside = match in_kernel {
        true => Some((KERNEL, "")),
        false => frames
            .find(|it| !is_recorder(&it.module))
            .filter(|it| !std::ptr::eq(frame, *it))
            .map(|it| (it.function.as_str(), it.module.as_str())),
    };
    Some(Spot {
        frame,
        address,
        inside,
    })
}

fn row(function: &str, module: &str, seen: Seen<'_>, all: u64) -> HotFunction {
    let share = |weight: u64| weight as f64 / all as f64;
    let lines = heaviest(seen.lines);
    let (file, line) = lines.first().map_or(("", 0), |(line, _)| *line);
    let lines = lines.iter().map(|&((file, line), weight)| HotLine {
        file: file.to_owned(),
        line,
        share: share(weight),
    });
    let instructions = heaviest(seen.instructions).into_iter();
    let instructions = instructions.map(|((pid, address), weight)| HotInstruction {
        pid: pid.0,
        address: address.0,
        share: share(weight),
    });
    let inside = heaviest(seen.inside).into_iter();
    let inside = inside.map(|((function, module), weight)| HotCallee {
        function: function.to_owned(),
        module: module.to_owned(),
        share: share(weight),
    });
    HotFunction {
        function: match function {
            "" => UNKNOWN.to_owned(),
            name => name.to_owned(),
        },
        file: file.to_owned(),
        line,
        share: share(seen.weight),
        threads: seen.threads.len() as u64,
        module: module.to_owned(),
        missing: seen.missing.to_owned(),
        lines: lines.collect(),
        instructions: instructions.collect(),
        inside: inside.collect(),
    }
}

/// The heaviest parts, the heaviest first.
fn heaviest<K: Ord + Copy>(parts: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut parts: Vec<(K, u64)> = parts.into_iter().collect();
    parts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    parts.truncate(MOST_PARTS);
    parts
}

#[cfg(test)]
mod tests;
