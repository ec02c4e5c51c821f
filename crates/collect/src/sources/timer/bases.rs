//! Where the thread-local variables of each thread are: found once, when a sample first asks.

use std::collections::HashMap;

use crate::kernel::Processes;

/// A thread that has just begun has no base yet; one without a C library never gets one.
const TRIES: u32 = 4;

#[derive(Debug, Default)]
struct Known {
    base: Option<u64>,
    tries: u32,
}

/// The bases of the threads seen so far.
#[derive(Debug, Default)]
pub(crate) struct ThreadBases {
    known: HashMap<u32, Known>,
}

impl ThreadBases {
    /// The base of thread `tid` of process `pid`, if it can be found.
    pub(crate) fn of(&mut self, kernel: &impl Processes, pid: u32, tid: u32) -> Option<u64> {
        let known = self.known.entry(tid).or_default();
        if known.base.is_none() && known.tries < TRIES {
            known.tries += 1;
            known.base = kernel.thread_base(pid, tid).ok();
        }
        known.base
    }

    /// A thread of this id began, or runs another program.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.known.remove(&tid);
    }
}
