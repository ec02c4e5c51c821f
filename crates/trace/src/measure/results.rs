//! What was measured, with the names that numbers in the trace have.

use linewise_recording::{HeapRun, Loss, RepeatedLine, SimulationSums, Tables};

use super::measures::Measured;
use super::names::{Names, Trace};
use super::objects::Found;
use super::paths::PathRows;
use super::repeats;
use super::rows;
use crate::heap_event::HeapNames;
use crate::thread::ExactThread;

/// What came of it.
pub struct Results {
    pub(crate) measured: Measured,
    /// The heap, if its recorder was loaded, and what fills simulated caches.
    pub(crate) heap: Option<(Found, HeapNames)>,
}

impl Results {
    /// Accesses that were followed.
    #[must_use]
    pub fn followed(&self) -> u64 {
        self.measured.followed
    }

    /// The share of the lines in the trace whose reuse was tracked at first; 0 if none.
    #[must_use]
    pub fn reuse_rate(&self) -> f64 {
        let first = self.measured.reuse.first();
        first.map_or(0.0, |tracked| tracked.profile.rate)
    }

    /// What the heap recorder did, if it was loaded.
    #[must_use]
    pub fn heap_run(&self) -> Option<HeapRun> {
        let (found, names) = self.heap.as_ref().filter(|it| it.1.recorded)?;
        Some(found.run(names))
    }

    /// The sums for `run.json`.
    #[must_use]
    pub fn sums(&self, trace: &Trace<'_>) -> SimulationSums {
        rows::sums(&self.measured, &self.names(trace))
    }

    /// The rows of what was measured, and what is missing in them.
    #[must_use]
    pub fn tables(&self, trace: &Trace<'_>) -> Tables {
        let mut tables = Tables::default();
        let names = self.names(trace);
        if let Some((found, heap_names)) = &self.heap {
            let rows = found.rows(heap_names, self.busiest_thread(), &names);
            tables.stacks = heap_names.stacks.clone();
            tables.heap_blocks = rows.blocks;
            tables.block_uses = rows.uses;
            tables.path_traces = rows.steps;
            tables.cache_contents = rows.contents;
            tables.losses.extend(rows.losses);
        }
        let mut paths = PathRows::default();
        rows::append(&mut tables, &mut paths, &self.measured, &names);
        tables.call_paths = paths.rows;
        if self.measured.forgotten > 0 {
            tables.losses.push(Loss::new(
                trace.end,
                "lines-forgotten",
                self.measured.forgotten,
                "lines that were given up and begun anew, since records of all that the target touched would have taken more than \
                 a tenth of this machine's memory: who had them before is not known",
            ));
        }
        tables
    }

    /// Accesses, transfers and the transfers of the lines that `first` has rows of, in a further run of the
    /// same command.
    #[must_use]
    pub fn beside(&self, first: &Self, threads: &[ExactThread]) -> (u64, u64, Vec<RepeatedLine>) {
        repeats::beside(&first.measured, &self.measured, threads)
    }

    /// The thread with the most accesses.
    fn busiest_thread(&self) -> u16 {
        let threads = self.measured.report.threads.iter();
        let accesses = (0u16..)
            .zip(threads)
            .map(|(thread, it)| (it.accesses(), thread));
        accesses.max().map_or(0, |(_, thread)| thread)
    }

    fn names<'a>(&'a self, trace: &Trace<'a>) -> Names<'a> {
        Names {
            trace: *trace,
            blocks: self.heap.as_ref().map(|(found, _)| &found.lines),
        }
    }
}
