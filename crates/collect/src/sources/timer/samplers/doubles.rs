//! Threads that are sampled twice, and how it ends.
//!
//! A thread of a running process that begins while samplers are opened on the others may inherit the
//! sampler of the thread that made it, on some CPUs or all, before it is found in `/proc` and given
//! samplers of its own. Nothing tells which: the kernel opens events one by one. But each sample
//! names the opened event that it stems from, inherited or not, so the samples of one thread on one
//! CPU must all name the same:
//!
//! ```text
//! thread 7 on CPU 0:  A  A  B  A        B is dropped; A after B proves that both are alive:
//!                                       the one opened later is closed, here and in all threads
//!                                       that inherited it, which therefore have A as well
//! ```

use std::collections::{HashMap, HashSet};

/// Samples of another event in a row after which the thread must be another one that got the id of
/// a thread whose end was not told.
const ANOTHER_THREAD: u32 = 16;

#[derive(Debug)]
struct Seen {
    event: u64,
    rival: Option<u64>,
    strikes: u32,
}

impl Seen {
    fn new(event: u64) -> Self {
        Self {
            event,
            rival: None,
            strikes: 0,
        }
    }
}

/// What to do with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It counts.
    Keep,
    /// It is the second of two that stand for the same time.
    Drop,
    /// It counts, and the event of this id is superfluous: close it.
    KeepAndClose(u64),
}

/// Which event's samples count, for each thread and CPU.
#[derive(Debug, Default)]
pub(crate) struct Doubles {
    seen: HashMap<(u32, u32), Seen>,
    closed: HashSet<u64>,
}

impl Doubles {
    /// Judges a sample of thread `tid` on `cpu` from the event of the id `event`. Ids grow in the
    /// order of opening.
    pub(crate) fn judge(&mut self, tid: u32, cpu: u32, event: u64) -> Verdict {
        // What was in the ring when it was closed.
        if self.closed.contains(&event) {
            return Verdict::Drop;
        }
        let seen = self
            .seen
            .entry((tid, cpu))
            .or_insert_with(|| Seen::new(event));
        if self.closed.contains(&seen.event) {
            *seen = Seen::new(event);
        }
        if seen.event != event {
            seen.rival = Some(event);
            seen.strikes += 1;
            if seen.strikes < ANOTHER_THREAD {
                return Verdict::Drop;
            }
            *seen = Seen::new(event);
            return Verdict::Keep;
        }
        seen.strikes = 0;
        match seen.rival.take() {
            Some(rival) if !self.closed.contains(&rival) => {
                // A thread inherits only what was opened before it began, and gets its own later.
                let later = event.max(rival);
                self.closed.insert(later);
                Verdict::KeepAndClose(later)
            }
            _ => Verdict::Keep,
        }
    }

    /// A thread of this id began or ended: what was seen of an earlier one is void.
    pub(crate) fn forget(&mut self, tid: u32, cpus: impl IntoIterator<Item = u32>) {
        for cpu in cpus {
            self.seen.remove(&(tid, cpu));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_events_one_counts_and_the_later_is_closed() {
        let mut doubles = Doubles::default();
        assert_eq!(doubles.judge(7, 0, 20), Verdict::Keep);
        assert_eq!(doubles.judge(7, 0, 10), Verdict::Drop);
        assert_eq!(doubles.judge(7, 0, 20), Verdict::KeepAndClose(20));
        // What the ring still held, and what counts from now on.
        assert_eq!(doubles.judge(7, 0, 20), Verdict::Drop);
        assert_eq!(doubles.judge(7, 0, 10), Verdict::Keep);
        assert_eq!(doubles.judge(7, 0, 10), Verdict::Keep);
    }

    #[test]
    fn other_threads_and_cpus_have_events_of_their_own() {
        let mut doubles = Doubles::default();
        for _ in 0..3 {
            assert_eq!(doubles.judge(7, 0, 10), Verdict::Keep);
            assert_eq!(doubles.judge(7, 1, 11), Verdict::Keep);
            assert_eq!(doubles.judge(8, 0, 20), Verdict::Keep);
        }
    }

    #[test]
    fn a_thread_that_got_the_id_of_another_closes_nothing() {
        let mut doubles = Doubles::default();
        assert_eq!(doubles.judge(7, 0, 10), Verdict::Keep);
        doubles.forget(7, 0..2);
        assert_eq!(doubles.judge(7, 0, 20), Verdict::Keep);
        // And when its end was not told.
        for _ in 0..ANOTHER_THREAD - 1 {
            assert_eq!(doubles.judge(7, 0, 30), Verdict::Drop);
        }
        for _ in 0..3 {
            assert_eq!(doubles.judge(7, 0, 30), Verdict::Keep);
        }
    }
}
