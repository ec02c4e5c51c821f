//! Following objects: what is watched, and what came of it.

use linewise_recording::{Pid, Tid, Time};

use crate::kernel::Kernel;
use crate::options::Wanted;
use crate::sources::timer::flow::{Closed, HeapEvent, ObjectWatch, Sites};
use crate::target::function::Function;

/// Following objects in one recording.
pub(crate) struct FlowRecorder<K: Kernel> {
    pub(super) wanted: Wanted,
    pub(super) function: Option<Function>,
    /// Watchpoints of each thread that are for this.
    pub(super) registers: u32,
    pub(super) sites: Sites,
    pub(super) watch: Option<ObjectWatch<K>>,
    /// With the rounds since it was taken down.
    pub(super) closed: Vec<(Closed, u32)>,
    pub(super) histories: u64,
    pub(super) rows: u64,
    pub(super) whole: u64,
    /// Histories that are not whole: hot, a thread began, unfinished.
    pub(super) others: [u64; 3],
    /// Threads of a process that were not watched, at most.
    pub(super) unwatched: usize,
    /// What it took from the target so far, ns.
    pub(super) spent_ns: f64,
}

impl<K: Kernel> FlowRecorder<K> {
    /// Follows what is `wanted`, with so many watchpoints of each thread.
    pub(crate) fn new(wanted: Wanted, registers: u32) -> Self {
        let function = match &wanted {
            Wanted::Most => None,
            Wanted::Named(name) => Some(Function::named(name)),
        };
        Self {
            wanted,
            function,
            registers,
            sites: Sites::default(),
            watch: None,
            closed: Vec::new(),
            histories: 0,
            rows: 0,
            whole: 0,
            others: [0; 3],
            unwatched: 0,
            spent_ns: 0.0,
        }
    }

    /// What it took from the target so far, ns.
    pub(super) fn spent_ns(&self) -> f64 {
        self.spent_ns
    }

    /// Its part of what watches may take, 0 to 1: who names objects wants to see these.
    pub(super) fn part(&self) -> f64 {
        match self.wanted {
            Wanted::Most => 0.5,
            Wanted::Named(_) => 0.8,
        }
    }

    /// A thread began in a process.
    pub(super) fn thread_began(&mut self, pid: Pid, time: Time) {
        if let Some(watch) = &mut self.watch {
            watch.thread_began(pid, time);
        }
    }

    /// A thread must not be watched any more.
    pub(super) fn forget(&mut self, tid: Tid, now: Time) {
        if let Some(watch) = &mut self.watch {
            watch.forget(tid, now);
        }
    }

    pub(super) fn told(&mut self, event: &HeapEvent) {
        if let Some(watch) = &mut self.watch {
            watch.told(event);
        }
        for (closed, _) in &mut self.closed {
            closed.told(event);
        }
    }
}
