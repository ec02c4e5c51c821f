//! What threads spent their time in, as they say themselves: their phases and sessions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use linewise_recording::{
    Address, Mark, MarkKind, Operation, Pid, RunInfo, Sample, SampleClass, Tables, Tid,
};
use serde::{Deserialize, Serialize};

use crate::section::{Cell, Column, Section, Table, View};

/// Names of a kind in the report, at most.
const NAMES: usize = 10;

/// Marks of one kind and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MarkedTime {
    /// The name that the program gave them; empty if none.
    pub name: String,
    /// How often one began.
    pub times: u64,
    /// How many sessions there were, by their numbers; 0 of phases.
    pub sessions: u64,
    /// How many threads were in one.
    pub threads: u64,
    /// Share of the sampled thread time that passes in them, 0 to 1.
    pub share: f64,
    /// Of that the part that passes at accesses to lines which several threads touch and one of them writes, 0 to 1: where
    /// threads wait for each other's lines.
    pub at_shared_lines: f64,
}

/// Where the time goes by phase and by session, those with the most time first; at most ten of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Marked {
    /// Phases by name.
    pub phases: Vec<MarkedTime>,
    /// Sessions by name.
    pub sessions: Vec<MarkedTime>,
    /// Share of the sampled thread time in no phase, 0 to 1.
    pub no_phase: f64,
    /// Share of the sampled thread time in no session, 0 to 1.
    pub no_session: f64,
}

const COLUMNS: [Column<(&'static str, MarkedTime)>; 6] = [
    Column {
        head: "name",
        width: 26,
        sums: false,
        cell: |(_, row)| match row.name.as_str() {
            "" => Cell::text("without a name"),
            name => Cell::text(name),
        },
    },
    Column {
        head: "kind",
        width: 9,
        sums: false,
        cell: |(kind, _)| Cell::text(*kind),
    },
    Column {
        head: "time",
        width: 8,
        sums: false,
        cell: |(_, row)| Cell::Share(row.share),
    },
    Column {
        head: "at shared lines",
        width: 16,
        sums: false,
        cell: |(_, row)| Cell::Share(row.at_shared_lines),
    },
    Column {
        head: "times",
        width: 10,
        sums: false,
        cell: |(_, row)| Cell::Count(row.times as f64),
    },
    Column {
        head: "threads",
        width: 8,
        sums: false,
        cell: |(_, row)| Cell::Count(row.threads as f64),
    },
];

impl View for Marked {
    fn of(info: &RunInfo, tables: &Tables) -> Option<Self> {
        let is_told = !tables.marks.is_empty() && !tables.samples.is_empty();
        is_told.then(|| marked(info, tables))
    }

    /// Phases, and below them sessions.
    fn section(&self) -> Option<Section> {
        let phases = self.phases.iter().map(|row| ("phase", row.clone()));
        let sessions = self.sessions.iter().map(|row| ("session", row.clone()));
        let rows: Vec<_> = phases.chain(sessions).collect();
        let outside = |share, what: &str| {
            vec![
                Cell::Share(share),
                Cell::text(format!(" of thread time passes in no {what}")),
            ]
        };
        let told = [
            (!self.phases.is_empty()).then(|| outside(self.no_phase, "phase")),
            (!self.sessions.is_empty()).then(|| outside(self.no_session, "session")),
        ];
        (!rows.is_empty()).then(|| Section {
            facts: told.into_iter().flatten().collect(),
            table: Some(Table::of("mark", &COLUMNS, &rows, |(_, row)| row.share)),
            ..Section::new("marks", "Where the time goes by phase")
        })
    }
}

/// A moment that is in no mark, or in one.
struct Track<'a>(Vec<&'a Mark>);

impl<'a> Track<'a> {
    /// The mark at the time of a sample. There is one at a time.
    fn at(&self, sample: &Sample) -> Option<&'a Mark> {
        let later = self.0.partition_point(|mark| mark.start <= sample.time);
        let mark = *self.0.get(later.checked_sub(1)?)?;
        (sample.time < mark.end).then_some(mark)
    }
}

/// What was seen of one name.
#[derive(Default)]
struct Seen {
    times: u64,
    ids: HashSet<u64>,
    threads: BTreeSet<(Pid, Tid)>,
    weight: u64,
    shared: u64,
}

fn marked(info: &RunInfo, tables: &Tables) -> Marked {
    let shared = shared_lines(info, tables);
    let is_shared = |sample: &Sample| {
        sample.class == SampleClass::Access && shared.contains(&line(info, sample))
    };
    let of = |kind| times(kind, tables, is_shared);
    let (phases, no_phase) = of(MarkKind::Phase);
    let (sessions, no_session) = of(MarkKind::Session);
    Marked {
        phases,
        sessions,
        no_phase,
        no_session,
    }
}

/// The names of a kind, and the share of the time in none.
fn times(
    kind: MarkKind,
    tables: &Tables,
    is_shared: impl Fn(&Sample) -> bool,
) -> (Vec<MarkedTime>, f64) {
    let mut tracks: HashMap<(Pid, Tid), Track<'_>> = HashMap::new();
    let mut names: BTreeMap<&str, Seen> = BTreeMap::new();
    for mark in tables.marks.iter().filter(|mark| mark.kind == kind) {
        let thread = (mark.pid, mark.tid);
        let track = tracks.entry(thread).or_insert_with(|| Track(Vec::new()));
        track.0.push(mark);
        let seen = names.entry(&mark.name).or_default();
        seen.times += 1;
        seen.threads.insert(thread);
        if kind == MarkKind::Session {
            seen.ids.insert(mark.id);
        }
    }
    for track in tracks.values_mut() {
        track.0.sort_by_key(|mark| mark.start);
    }
    let (mut all, mut outside) = (0, 0);
    for sample in &tables.samples {
        all += sample.weight;
        let track = tracks.get(&(sample.pid, sample.tid));
        let mark = track.and_then(|track| track.at(sample));
        match mark.and_then(|mark| names.get_mut(mark.name.as_str())) {
            Some(seen) => {
                seen.weight += sample.weight;
                seen.shared += if is_shared(sample) { sample.weight } else { 0 };
            }
            None => outside += sample.weight,
        }
    }
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let row = |(name, seen): (&str, Seen)| MarkedTime {
        name: name.to_owned(),
        times: seen.times,
        sessions: seen.ids.len() as u64,
        threads: seen.threads.len() as u64,
        share: share(seen.weight, all),
        at_shared_lines: share(seen.shared, seen.weight),
    };
    let mut rows: Vec<MarkedTime> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows.truncate(NAMES);
    (rows, share(outside, all))
}

fn line(info: &RunInfo, sample: &Sample) -> (Pid, Address) {
    (sample.pid, sample.address.line(info.line_size.max(1)))
}

/// Lines that samples saw several threads touch, and one of them write.
fn shared_lines(info: &RunInfo, tables: &Tables) -> HashSet<(Pid, Address)> {
    let mut lines: HashMap<(Pid, Address), (Tid, bool, bool)> = HashMap::new();
    let accesses = (tables.samples.iter()).filter(|it| it.class == SampleClass::Access);
    for sample in accesses {
        let of_it = lines.entry(line(info, sample));
        let (first, several, written) = of_it.or_insert((sample.tid, false, false));
        *several |= *first != sample.tid;
        *written |= sample.operation != Some(Operation::Load);
    }
    let shared = lines.into_iter().filter(|(_, it)| it.1 && it.2);
    shared.map(|(line, _)| line).collect()
}

#[cfg(test)]
mod tests;
