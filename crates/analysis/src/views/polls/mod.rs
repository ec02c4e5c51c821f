//! Time that threads spend looking at memory until another thread changes it, in loops that do nothing else: what looks like work,
//! and is waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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
    /// Where the program's own code changes what is looked at, most often of what was seen.
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

/// What was seen of one loop, or of those at one place.
#[derive(Default)]
struct Seen {
    weight: u64,
    threads: BTreeSet<Tid>,
    words: BTreeMap<String, u64>,
    changed: BTreeMap<SourcePlace, u64>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.weight += other.weight;
        self.threads.extend(other.threads);
        for (word, weight) in other.words {
            *self.words.entry(word).or_default() += weight;
        }
        for (place, count) in other.changed {
            *self.changed.entry(place).or_default() += count;
        }
    }
}

/// A loop, by the loads that can end it.
type Loop = (Pid, Vec<Address>);

fn polls(tables: &Tables) -> Vec<Poll> {
    let frames = SourceFrames::new(&tables.frames);
    let mut loads: HashMap<(Pid, Address), Vec<Address>> = HashMap::new();
    for row in &tables.polls {
        let of_loop = loads.entry((row.pid, row.ip)).or_default();
        of_loop.push(row.load_ip);
    }
    let mut loops: BTreeMap<Loop, Seen> = BTreeMap::new();
    let mut all = 0;
    for sample in &tables.samples {
        all += sample.weight;
        // In the kernel it is the kernel that takes the time.
        let loads = loads.get(&(sample.pid, sample.ip));
        let Some(loads) = loads.filter(|_| sample.class != SampleClass::Kernel) else {
            continue;
        };
        let seen = loops.entry((sample.pid, loads.clone())).or_default();
        seen.weight += sample.weight;
        seen.threads.insert(sample.tid);
    }
    let looks = Looks::new(tables, &frames);
    let mut places: BTreeMap<SourcePlace, Seen> = BTreeMap::new();
    for ((pid, loads), mut seen) in loops {
        let waits = looks.waits_at(pid, &loads);
        let mut words: Vec<&str> = waits.iter().filter_map(|it| it.word).collect();
        words.dedup();
        if !words.is_empty() {
            seen.words.insert(words.join(" or "), seen.weight);
        }
        if let [look] = waits.as_slice() {
            seen.changed.clone_from(&look.changed);
        }
        if let Some(first) = waits.first() {
            let place = place(&frames, pid, first.load);
            places.entry(place).or_default().add(seen);
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

/// What one load of a loop looks at.
struct Look<'a> {
    load: Address,
    /// Its name, if it has one.
    word: Option<&'a str>,
    /// Where others than those who look change it, with how often that was seen.
    changed: BTreeMap<SourcePlace, u64>,
}

/// What the loads of loops look at.
struct Looks {
    /// Who looks where.
    addresses: HashMap<(Pid, Address), BTreeSet<(Tid, Address)>>,
    writes: HashMap<(Pid, Address), Writes>,
    words: HashMap<(Pid, Address), String>,
}

impl Looks {
    fn new(tables: &Tables, frames: &SourceFrames<'_>) -> Self {
        let loads: HashSet<(Pid, Address)> = (tables.polls.iter())
            .map(|row| (row.pid, row.load_ip))
            .collect();
        let mut addresses: HashMap<_, BTreeSet<_>> = HashMap::new();
        let mut looked_at: HashSet<(Pid, Address)> = HashSet::new();
        for it in seen_accesses(tables).filter(|it| loads.contains(&(it.pid, it.ip))) {
            let of_load = addresses.entry((it.pid, it.ip)).or_default();
            of_load.insert((it.tid, it.address));
            looked_at.insert((it.pid, it.address));
        }
        // Names are made of places that write these words only: a program writes much else.
        let writing = seen_accesses(tables).filter(|it| it.operation != Operation::Load);
        let mut writes: HashMap<_, Writes> = HashMap::new();
        for it in writing.filter(|it| looked_at.contains(&(it.pid, it.address))) {
            let of_word = writes.entry((it.pid, it.address)).or_default();
            let place = place(frames, it.pid, it.ip);
            *of_word.entry((it.tid, place)).or_default() += 1;
        }
        Self {
            addresses,
            writes,
            words: words(tables, &loads),
        }
    }

    /// For what a loop waits of all that can end it: what others were seen to change most often; all of it where none was.
    fn waits_at(&self, pid: Pid, loads: &[Address]) -> Vec<Look<'_>> {
        let mut looks: Vec<Look<'_>> = loads.iter().map(|&it| self.at(pid, it)).collect();
        let changes = |it: &Look<'_>| it.changed.values().sum::<u64>();
        let most = looks.iter().max_by_key(|it| changes(it));
        if let Some(load) = most.filter(|it| changes(it) > 0).map(|it| it.load) {
            looks.retain(|it| it.load == load);
        }
        looks
    }

    fn at(&self, pid: Pid, load: Address) -> Look<'_> {
        let mut changed: BTreeMap<SourcePlace, u64> = BTreeMap::new();
        let looked_at = self.addresses.get(&(pid, load)).into_iter().flatten();
        for &(tid, address) in looked_at {
            // What a thread writes itself it does not wait for.
            let writes = self.writes.get(&(pid, address)).into_iter().flatten();
            for ((_, place), count) in writes.filter(|((by, _), _)| *by != tid) {
                *changed.entry(place.clone()).or_default() += count;
            }
        }
        Look {
            load,
            word: self.words.get(&(pid, load)).map(String::as_str),
            changed,
        }
    }
}

/// An access that was seen.
struct SeenAccess {
    pid: Pid,
    tid: Tid,
    ip: Address,
    address: Address,
    operation: Operation,
}

/// The accesses of samples and traps.
fn seen_accesses(tables: &Tables) -> impl Iterator<Item = SeenAccess> {
    let sampled = tables.samples.iter().filter_map(|it| {
        let operation = it.operation.filter(|_| it.class == SampleClass::Access)?;
        Some(SeenAccess {
            pid: it.pid,
            tid: it.tid,
            ip: it.access_ip,
            address: it.address,
            operation,
        })
    });
    let trapped = tables.traps.iter().map(|it| SeenAccess {
        pid: it.pid,
        tid: it.tid,
        ip: it.access_ip,
        address: it.address,
        operation: it.operation,
    });
    sampled.chain(trapped).filter(|it| it.ip != Address(0))
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

/// Which threads change a word at which places, with how often that was seen.
type Writes = BTreeMap<(Tid, SourcePlace), u64>;

/// What the loads look at, as far as it has a name: the static variable at an address that was seen, or that the instruction
/// names, or the type that debug info names.
fn words(tables: &Tables, looked_at: &HashSet<(Pid, Address)>) -> HashMap<(Pid, Address), String> {
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
    for it in seen_accesses(tables) {
        let load = (it.pid, it.ip);
        if looked_at.contains(&load)
            && let Some(name) = static_at(it.pid, it.address)
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
        let name = match (row.variable.as_str(), row.type_name.as_str()) {
            ("", "") => continue,
            ("", name) | (name, _) => name,
        };
        let name = match row.path.as_str() {
            "" => name.to_owned(),
            path => format!("{name}.{path}"),
        };
        if looked_at.contains(&load) {
            words.entry(load).or_insert(name);
        }
    }
    words
}

#[cfg(test)]
mod tests;
