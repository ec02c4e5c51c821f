//! Time that threads spend looking at memory until another thread changes it, in loops that do nothing else: what looks like work,
//! and is waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Address, ObjectKind, Pid, RunInfo, SampleClass, Tables, Tid};
use serde::{Deserialize, Serialize};

use crate::own_code::is_own;
use crate::resolve::SourceFrames;
use crate::section::{Cell, Column, Section, Table, View};
use crate::views::place::{SourcePlace, line_cell};

/// Polling that takes less of the time is not worth a section.
const WORTH: f64 = 0.01;

/// A place where threads poll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Poll {
    /// What is looked at: a static variable with its field, or a type with its field; empty if unknown.
    pub word: String,
    /// The function of the program's own that looks, or the innermost where none is known.
    pub function: String,
    /// Its source file; empty if unknown.
    pub file: String,
    /// The line of the load; 0 if unknown.
    pub line: u32,
    /// Share of the sampled thread time that passes in the loop, 0 to 1.
    pub share: f64,
    /// How many threads were seen there.
    pub threads: u64,
}

const COLUMNS: [Column<Poll>; 5] = [
    Column {
        head: "polled",
        width: 25,
        sums: false,
        cell: |row| match row.word.as_str() {
            "" => Cell::text("a word without a name"),
            word => Cell::text(word),
        },
    },
    Column {
        head: "in",
        width: 22,
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
];

/// Places where threads poll, those with the most time first.
impl View for Vec<Poll> {
    fn of(_info: &RunInfo, tables: &Tables) -> Option<Self> {
        (!tables.polls.is_empty() && !tables.samples.is_empty()).then(|| polls(tables))
    }

    /// Where that takes a share of the time.
    fn section(&self) -> Option<Section> {
        let all: f64 = self.iter().map(|row| row.share).sum();
        let advice = "Polling is waiting that uses a CPU, and takes it from the thread that is waited for where there are fewer CPUs than threads. Where the waits are long let the thread sleep after some looks (a condition variable, a futex); between looks `pause`, more often each time; or give it other work meanwhile.";
        (all >= WORTH).then(|| Section {
            facts: vec![vec![
                Cell::Share(all),
                Cell::text(
                    " of thread time passes in loops that look at memory until another thread changes it",
                ),
            ]],
            table: Some(Table::of("place", &COLUMNS, self, |row| row.share)),
            notes: vec![advice.to_owned()],
            ..Section::new("polls", "Time spent polling")
        })
    }
}

/// What was seen at a place.
#[derive(Default)]
struct Seen {
    weight: u64,
    threads: BTreeSet<Tid>,
    words: BTreeMap<String, u64>,
}

fn polls(tables: &Tables) -> Vec<Poll> {
    let frames = SourceFrames::new(&tables.frames);
    let loads: HashMap<(Pid, Address), Address> = (tables.polls.iter())
        .map(|row| ((row.pid, row.ip), row.load_ip))
        .collect();
    let words = words(tables);
    let mut places: BTreeMap<SourcePlace, Seen> = BTreeMap::new();
    let mut all = 0;
    for sample in &tables.samples {
        all += sample.weight;
        // In the kernel it is the kernel that takes the time.
        let load = loads.get(&(sample.pid, sample.ip));
        let Some(&load) = load.filter(|_| sample.class != SampleClass::Kernel) else {
            continue;
        };
        let place = place(&frames, sample.pid, load);
        let seen = places.entry(place).or_default();
        seen.weight += sample.weight;
        seen.threads.insert(sample.tid);
        if let Some(word) = words.get(&(sample.pid, load)) {
            *seen.words.entry(word.clone()).or_default() += sample.weight;
        }
    }
    let row = |(place, seen): (SourcePlace, Seen)| Poll {
        word: (seen.words.into_iter().max_by_key(|(_, weight)| *weight))
            .map_or_else(String::new, |(word, _)| word),
        function: place.function,
        file: place.file,
        line: place.line,
        share: seen.weight as f64 / all.max(1) as f64,
        threads: seen.threads.len() as u64,
    };
    let mut rows: Vec<Poll> = places.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}

/// Where a load stands in the program's own code.
fn place(frames: &SourceFrames<'_>, pid: Pid, load: Address) -> SourcePlace {
    let frames = frames.at(pid, load);
    let own = frames.iter().find(|frame| is_own(frame)).or(frames.first());
    own.map_or_else(
        || SourcePlace {
            function: format!("{:#x}", load.0),
            ..SourcePlace::default()
        },
        |frame| SourcePlace {
            function: frame.function.clone(),
            file: frame.file.clone(),
            line: frame.line,
        },
    )
}

/// What the loads look at, as far as it has a name: the static variable at a sampled address, or the type that debug info names.
fn words(tables: &Tables) -> HashMap<(Pid, Address), String> {
    let looked_at: BTreeSet<(Pid, Address)> = (tables.polls.iter())
        .map(|row| (row.pid, row.load_ip))
        .collect();
    let statics: BTreeMap<(Pid, Address), _> = (tables.objects.iter())
        .filter(|object| object.kind == ObjectKind::Static)
        .map(|object| ((object.pid, object.address), object))
        .collect();
    let fields: BTreeMap<(Pid, Address, u64), _> = (tables.fields.iter())
        .map(|field| ((field.pid, field.object, field.offset), field))
        .collect();
    let static_at = |pid: Pid, address: Address| {
        let (_, object) = statics
            .range((pid, Address(0))..=(pid, address))
            .next_back()?;
        let within = address.0 - object.address.0;
        let before = (object.pid, object.address, 0)..=(object.pid, object.address, within);
        let field = fields.range(before).next_back().map(|(_, field)| field);
        let field = field.filter(|field| within - field.offset < field.size);
        let name = field.map_or(&object.name, |field| &field.path);
        (within < object.size).then(|| name.clone())
    };
    let mut words = HashMap::new();
    for sample in tables
        .samples
        .iter()
        .filter(|it| it.class == SampleClass::Access)
    {
        let load = (sample.pid, sample.access_ip);
        if looked_at.contains(&load)
            && let Some(name) = static_at(sample.pid, sample.address)
        {
            words.entry(load).or_insert(name);
        }
    }
    for row in tables
        .typed_accesses
        .iter()
        .filter(|row| row.reason.is_none())
    {
        let load = (row.pid, row.ip);
        let name = match (row.type_name.as_str(), row.path.as_str()) {
            ("", _) => continue,
            (kind, "") => kind.to_owned(),
            (kind, path) => format!("{kind}.{path}"),
        };
        if looked_at.contains(&load) {
            words.entry(load).or_insert(name);
        }
    }
    words
}

#[cfg(test)]
mod tests;
