//! Who did how much: the threads of a run.

use std::collections::BTreeMap;

use linewise_recording::{CacheCounts, CacheSubject, RunInfo, Tables, Tid};
use serde::{Deserialize, Serialize};

use crate::section::{Cell, Column, Section, Shown, Table};

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadRow {
    /// Its id.
    pub tid: u32,
    /// Its process; 0 in reports that do not tell.
    #[serde(default)]
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPU time while recorded; of an exact run that of the emulator.
    pub cpu_time_ns: u64,
    /// Accesses of an exact run; `null` from samples.
    pub accesses: Option<u64>,
}

impl ThreadRow {
    /// How much it did: its accesses, or where those were not counted its CPU time in ns.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.accesses.unwrap_or(self.cpu_time_ns)
    }

    /// The same as it is shown.
    pub(crate) fn work_cell(&self) -> Cell {
        match self.accesses {
            Some(accesses) => Cell::Count(accesses as f64),
            None => Cell::Time(self.cpu_time_ns as f64),
        }
    }
}

/// What threads did together, as it is shown; `None` of none.
pub(crate) fn sum_of_work(rows: &[&ThreadRow]) -> Option<Cell> {
    let cells = rows.iter().map(|row| row.work_cell());
    cells.reduce(|sum, cell| sum.plus(&cell))
}

/// The columns, the last with the head `work`.
const fn columns(work: &'static str) -> [Column<ThreadRow>; 3] {
    [
        Column {
            head: "thread",
            width: 28,
            sums: false,
            cell: |row| Cell::text(&row.name),
        },
        Column {
            head: "id",
            width: 12,
            sums: false,
            cell: |row| Cell::Id(u64::from(row.tid)),
        },
        Column {
            head: work,
            width: 12,
            sums: true,
            cell: ThreadRow::work_cell,
        },
    ]
}

/// The table of all threads. The terminal has the busiest in a line.
#[must_use]
pub fn section(rows: &[ThreadRow]) -> Option<Section> {
    let columns = columns(match rows.first()?.accesses {
        Some(_) => "accesses",
        None => "CPU time",
    });
    Some(Section {
        shown: Shown::OnPage,
        table: Some(Table::of("thread", &columns, rows, |row| row.work() as f64)),
        ..Section::new("threads", "Threads")
    })
}

/// The threads of a run, those that did most first.
#[must_use]
pub(crate) fn thread_rows(info: &RunInfo, tables: &Tables) -> Vec<ThreadRow> {
    let accesses = accesses_by_thread(&tables.caches);
    // A thread that executes another program has a row for each, and the name that it had last.
    let mut rows: BTreeMap<(u32, u32), ThreadRow> = BTreeMap::new();
    let mut threads: Vec<_> = tables.threads.iter().collect();
    threads.sort_by_key(|thread| thread.end);
    for thread in threads {
        let row = rows.entry((thread.pid.0, thread.tid.0));
        let row = row.or_insert_with(|| ThreadRow {
            tid: thread.tid.0,
            pid: thread.pid.0,
            name: String::new(),
            cpu_time_ns: 0,
            accesses: info
                .exact
                .is_some()
                .then(|| accesses.get(&thread.tid).copied().unwrap_or(0.0) as u64),
        });
        row.name.clone_from(&thread.name);
        // Each program's row of an exact run has what the thread used since it began.
        row.cpu_time_ns = match info.exact {
            Some(_) => thread.cpu_time_ns.max(row.cpu_time_ns),
            None => thread.cpu_time_ns + row.cpu_time_ns,
        };
    }
    let mut rows: Vec<ThreadRow> = rows.into_values().collect();
    // All of a run have accesses or none has.
    rows.sort_by_key(|row| (std::cmp::Reverse((row.accesses, row.cpu_time_ns)), row.tid));
    rows
}

/// The accesses of each thread of an exact run: what it asked the first level for.
fn accesses_by_thread(caches: &[CacheCounts]) -> BTreeMap<Tid, f64> {
    let mut accesses: BTreeMap<Tid, f64> = BTreeMap::new();
    let of_threads = caches
        .iter()
        .filter(|row| row.level.is_first() && row.subject == CacheSubject::Thread);
    for row in of_threads {
        let Some(tid) = row.tid else { continue };
        *accesses.entry(tid).or_default() += row.loads + row.stores + row.updates;
    }
    accesses
}
