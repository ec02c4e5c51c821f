//! Time that threads spend looking at memory until another thread changes it, in loops that do nothing else: what looks like work,
//! and is waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Address, ObjectKind, Operation, Pid, RunInfo, SampleClass, Tables, Tid};
use serde::{Deserialize, Serialize};

use crate::own_code::is_own;
use crate::resolve::SourceFrames;
use crate::section::{Cell, Column, Section, Table, View};
use crate::views::place::{SourcePlace, file_name, line_cell};

/// Polling that takes less of the time is not worth a section.
const WORTH: f64 = 0.01;

/// For so many places it is told who changes what they look at.
const MOST_CHANGES: usize = 3;

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
    /// Where the program's own code changes what is looked at, most often of what watches saw.
    #[serde(default)]
    pub changed: Option<SourcePlace>,
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
        let all = polling_share(self);
        let advice = "Polling is waiting that uses a CPU, and takes it from the thread that is waited for where there are fewer CPUs than threads. Where the waits are long let the thread sleep after some looks (a condition variable, a futex); between looks `pause`, more often each time; or give it other work meanwhile.";
        (all >= WORTH).then(|| Section {
            facts: vec![vec![
                Cell::Share(all),
                Cell::text(
                    " of thread time passes in loops that look at memory until another thread changes it",
                ),
            ]],
            table: Some(Table::of("place", &COLUMNS, self, |row| row.share)),
            notes: changes(self).into_iter().chain([advice.to_owned()]).collect(),
            ..Section::new("polls", "Time spent polling")
        })
    }
}

/// The share of thread time that passes in polling, 0 to 1.
pub(crate) fn polling_share(polls: &[Poll]) -> f64 {
    polls.iter().map(|row| row.share).sum()
}

/// Where the words are changed that take the most time, a sentence each.
fn changes(polls: &[Poll]) -> Vec<String> {
    let told = polls.iter().filter_map(|row| {
        let changed = row.changed.as_ref()?;
        let word = match row.word.as_str() {
            "" => "what is polled",
            word => word,
        };
        let line = match changed.line {
            0 => String::new(),
            line => format!(" ({}:{line})", file_name(&changed.file)),
        };
        Some(format!(
            "{} waits until {} changes {word}{line}.",
            row.function, changed.function
        ))
    });
    told.take(MOST_CHANGES).collect()
}

/// What was seen at a place.
#[derive(Default)]
struct Seen {
    weight: u64,
    threads: BTreeSet<Tid>,
    words: BTreeMap<String, u64>,
    changed: BTreeMap<SourcePlace, u64>,
}

fn polls(tables: &Tables) -> Vec<Poll> {
    let frames = SourceFrames::new(&tables.frames);
    let loads: HashMap<(Pid, Address), Address> = (tables.polls.iter())
        .map(|row| ((row.pid, row.ip), row.load_ip))
        .collect();
    let words = words(tables);
    let writes = writes(tables, &frames);
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
        let looks_at = (sample.pid, sample.address);
        // What a thread writes itself it does not wait for.
        let by_others = writes.get(&looks_at).into_iter().flatten();
        for ((_, place), count) in by_others.filter(|((tid, _), _)| *tid != sample.tid) {
            *seen.changed.entry(place.clone()).or_default() += count;
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
        changed: (seen.changed.into_iter().max_by_key(|(_, count)| *count)).map(|(place, _)| place),
    };
    let mut rows: Vec<Poll> = places.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}

/// Where an instruction stands in the program's own code.
fn place(frames: &SourceFrames<'_>, pid: Pid, ip: Address) -> SourcePlace {
    let frames = frames.at(pid, ip);
    let own = frames.iter().find(|frame| is_own(frame)).or(frames.first());
    own.map_or_else(
        || SourcePlace {
            function: format!("{:#x}", ip.0),
            ..SourcePlace::default()
        },
        |frame| SourcePlace {
            function: frame.function.clone(),
            file: frame.file.clone(),
            line: frame.line,
        },
    )
}

/// Which threads change a word at which places, with how often watches saw that.
type Writes = BTreeMap<(Tid, SourcePlace), u64>;

/// Where words are changed, by process and address.
fn writes(tables: &Tables, frames: &SourceFrames<'_>) -> HashMap<(Pid, Address), Writes> {
    let mut writes: HashMap<_, Writes> = HashMap::new();
    let changing = (tables.traps.iter())
        .filter(|trap| trap.operation != Operation::Load && trap.access_ip != Address(0));
    for trap in changing {
        let place = place(frames, trap.pid, trap.access_ip);
        let of_word = writes.entry((trap.pid, trap.address)).or_default();
        *of_word.entry((trap.tid, place)).or_default() += 1;
    }
    writes
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
