//! Which instructions each thread was seen to run: where blocks join, that tells which of them it came from.

use std::collections::HashSet;

use linewise_recording::Tid;

use crate::sources::timer::decode::{self, Predecessor, Which};

/// Instructions remembered of all threads; the memory begins anew when there are more.
const REMEMBERED: usize = 1 << 16;

/// What threads were seen to run, and what they were waited for at in vain.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    seen: HashSet<(Tid, u64)>,
    unseen: HashSet<(Tid, u64)>,
}

impl Runs {
    /// A thread was at this instruction.
    pub(crate) fn seen(&mut self, tid: Tid, ip: u64) {
        note(&mut self.seen, tid, ip);
        self.unseen.remove(&(tid, ip));
    }

    /// A thread did not come to this instruction for as long as a breakpoint waited for it.
    pub(crate) fn unseen(&mut self, tid: Tid, ip: u64) {
        note(&mut self.unseen, tid, ip);
    }

    /// Which of several candidates a thread waited at.
    pub(crate) fn which<'a>(&self, tid: Tid, candidates: &[&'a Predecessor]) -> Which<'a> {
        let seen = |ip| self.seen.contains(&(tid, ip));
        decode::which(candidates, seen, |ip| self.unseen.contains(&(tid, ip)))
    }
}

fn note(set: &mut HashSet<(Tid, u64)>, tid: Tid, ip: u64) {
    if set.len() >= REMEMBERED {
        set.clear();
    }
    set.insert((tid, ip));
}
