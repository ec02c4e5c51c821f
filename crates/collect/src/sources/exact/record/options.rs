//! What is to be recorded of an exact run.

use std::ffi::OsString;

use linewise_machine::procfs;
use linewise_recording::Order;
use linewise_trace::KeepTrace;
use linewise_trace::measure::{MeasureOptions, ReuseShare, SimulatedMachine};

use super::super::{ExactOptions, HeapLoading};
use crate::options::RecordOptions;

/// How the exact source records, beside [`RecordOptions`]. Objects are followed by telling all accesses, and heap blocks
/// recorded by a library that is loaded into the command, which tells of all of them; where it cannot be loaded, nothing is probed.
#[derive(Clone, Debug)]
pub struct ExactRecordOptions {
    /// See [`ExactOptions::one_line_in`].
    pub one_line_in: u32,
    /// See [`ExactOptions::only`].
    pub only: Option<String>,
    /// See [`ExactOptions::order`].
    pub order: Order,
    /// Keep the trace.
    pub keep_trace: Option<KeepTrace>,
    /// See [`ExactOptions::adopt_orphans`].
    pub adopt_orphans: bool,
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
    /// How many times the command is run, at least once. Of all but the first only what the counts came to is
    /// [kept](linewise_recording::ExactRun::repeats).
    pub repeat: u32,
    /// Why this source was chosen, in a line.
    pub reason: String,
}

/// Records of lines take at most this part of the machine's memory, and may take so many bytes in any case.
const LINES_PART: u64 = 10;
const LEAST_FOR_LINES: u64 = 1 << 28;

/// An exact run of a command.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) command: &'a [OsString],
    pub(super) common: &'a RecordOptions,
    pub(super) source: &'a ExactRecordOptions,
}

impl ExactRecordOptions {
    /// Records all of a command for a simulated `machine`, without its caches.
    #[must_use]
    pub fn new(machine: SimulatedMachine) -> Self {
        Self {
            one_line_in: 1,
            only: None,
            order: Order::default(),
            keep_trace: None,
            adopt_orphans: true,
            machine,
            caches: false,
            reuse: ReuseShare::default(),
            element_bytes: None,
            call_paths: false,
            repeat: 1,
            reason: String::new(),
        }
    }

    pub(super) fn simulates(&self) -> bool {
        self.caches || self.one_line_in > 1
    }

    pub(super) fn follows_calls(&self) -> bool {
        let all = self.one_line_in <= 1 && self.only.is_none();
        self.call_paths && all && self.reuse != ReuseShare::None
    }
}

impl Run<'_> {
    /// What is to be measured.
    pub(super) fn measures(&self) -> MeasureOptions {
        MeasureOptions {
            one_line_in: self.source.one_line_in,
            simulates: self.source.simulates(),
            reuse: self.source.reuse,
            element_bytes: self.source.element_bytes,
            follows_calls: self.source.follows_calls(),
            follows_objects: self.common.flow.is_some(),
            most_bytes: (procfs::memory_bytes() / LINES_PART).max(LEAST_FOR_LINES),
        }
    }

    /// What is to be traced, with lines of so many bytes; whether the trace is to be kept.
    pub(super) fn traced(
        &self,
        line_bytes: u32,
        heap: Option<HeapLoading>,
        keep: bool,
    ) -> ExactOptions {
        ExactOptions {
            command: self.command.to_vec(),
            one_line_in: self.source.one_line_in,
            only: self.source.only.clone(),
            leave_own: self.leaves_own(line_bytes),
            order: self.source.order,
            heap,
            keep_trace: self.source.keep_trace.clone().filter(|_| keep),
            adopt_orphans: self.source.adopt_orphans,
            duration: self.common.duration,
        }
    }

    /// Units that all accesses are told of, where lines that one thread alone touches are left out: those that
    /// trackers of reuse distances follow.
    fn leaves_own(&self, line_bytes: u32) -> Option<Vec<(u32, u32)>> {
        // The tracer's lines are of 64 bytes.
        let everything = self.source.simulates()
            || self.source.follows_calls()
            || self.common.flow.is_some()
            || self.source.keep_trace.is_some()
            || line_bytes != 64;
        match self.source.reuse.one_in() {
            _ if everything => None,
            None => Some(Vec::new()),
            Some(1) => None,
            Some(one_in) => {
                let units = [Some(line_bytes), self.source.element_bytes];
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
}
