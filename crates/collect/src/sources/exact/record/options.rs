//! What is to be recorded of an exact run.

use std::path::PathBuf;

use linewise_machine::procfs;
use linewise_trace::measure::{MeasureOptions, ReuseShare, SimulatedMachine};

use super::super::ExactOptions;
use crate::options::HeapWhen;
use crate::options::Wanted;

/// What to record and where.
#[derive(Clone, Debug)]
pub struct ExactRecordOptions {
    /// What to trace.
    pub trace: ExactOptions,
    /// The machine to simulate.
    pub machine: SimulatedMachine,
    /// Whether its caches are simulated with their sizes, all levels of them. Otherwise lines move
    /// between cores that never lose one for want of room, which takes a fraction of the time; with a
    /// share of the lines they are always simulated.
    pub caches: bool,
    /// How reuse distances are measured.
    pub reuse: ReuseShare,
    /// Bytes of an element, to measure the reuse of elements beside that of lines: a power of two below
    /// the size of a line.
    pub element_bytes: Option<u32>,
    /// Whether reuse is told by the calls that led to it. They are known only where all accesses are
    /// followed, not a share of the lines or of the code, and not of programs for aarch64.
    pub call_paths: bool,
    /// Whether heap blocks are recorded: a library is loaded into the command, which tells of all of them; where it cannot
    /// be loaded, nothing is probed. With [`HeapWhen::Loaded`] that is told in the recording only.
    pub heap: HeapWhen,
    /// How many times the command is run, at least once. Of all but the first only what the counts came to is
    /// [kept](linewise_recording::ExactRun::repeats).
    pub repeat: u32,
    /// Whose objects to follow from their allocation to their end, if any: all accesses are told then. Takes
    /// `heap`.
    pub flow: Option<Wanted>,
    /// The recording.
    pub directory: PathBuf,
    /// Whether an older one gives way.
    pub replace: bool,
    /// Why this source was chosen, in a line.
    pub reason: String,
}

/// Records of lines take at most this part of the machine's memory, and may take so many bytes in any case.
const LINES_PART: u64 = 10;
const LEAST_FOR_LINES: u64 = 1 << 28;

impl ExactRecordOptions {
    pub(super) fn one_line_in(&self) -> u32 {
        self.trace.one_line_in.max(1)
    }

    /// What is to be measured.
    pub(super) fn measures(&self) -> MeasureOptions {
        MeasureOptions {
            one_line_in: self.one_line_in(),
            simulates: self.simulates(),
            reuse: self.reuse,
            element_bytes: self.element_bytes,
            follows_calls: self.follows_calls(),
            follows_objects: self.flow.is_some(),
            most_bytes: (procfs::memory_bytes() / LINES_PART).max(LEAST_FOR_LINES),
        }
    }

    pub(super) fn simulates(&self) -> bool {
        self.caches || self.trace.one_line_in > 1
    }

    /// Units that all accesses are told of, where lines that one thread alone touches are left out: those that
    /// trackers of reuse distances follow.
    pub(super) fn leaves_own(&self, line_bytes: u32) -> Option<Vec<(u32, u32)>> {
        // The tracer's lines are of 64 bytes.
        let everything = self.simulates()
            || self.follows_calls()
            || self.flow.is_some()
            || self.trace.keep_trace.is_some()
            || line_bytes != 64;
        match self.reuse.one_in() {
            _ if everything => None,
            None => Some(Vec::new()),
            Some(1) => None,
            Some(one_in) => {
                let units = [Some(line_bytes), self.element_bytes];
                Some(
                    units
                        .into_iter()
                        .flatten()
                        .map(|bytes| (bytes, one_in))
                        .collect(),
                )
            }
        }
    }

    pub(super) fn follows_calls(&self) -> bool {
        let all = self.trace.one_line_in <= 1 && self.trace.only.is_none();
        self.call_paths && all && self.reuse != ReuseShare::None
    }
}
