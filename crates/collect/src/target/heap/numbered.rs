//! What number a process that tells of its heap has here: in another namespace of process ids it knows another.

use std::time::{Duration, Instant};

use linewise_machine::{namespace, procfs};

/// So long processes may be looked for at once, and this part of the time since the beginning.
const AT_ONCE: Duration = Duration::from_millis(20);
const PART: u32 = 100;

/// Finds processes by the memory that they share with us.
#[derive(Debug)]
pub(super) struct Numbered {
    /// The inode of that memory.
    inode: u64,
    begin: Instant,
    searched: Duration,
    /// Processes that were not found.
    pub(super) strangers: u64,
}

impl Numbered {
    pub(super) fn new(inode: u64) -> Self {
        Self {
            inode,
            begin: Instant::now(),
            searched: Duration::ZERO,
            strangers: 0,
        }
    }

    /// The numbers here of a thread that knows itself and its process by these; `known` is that of the process, if it was
    /// found before.
    pub(super) fn ids(&mut self, known: Option<u32>, (pid, tid): (u32, u32)) -> (u32, u32) {
        let here = known.unwrap_or_else(|| self.process(pid));
        if here == pid {
            return (pid, tid);
        }
        let thread = match here & namespace::UNKNOWN {
            0 => namespace::thread(here, tid),
            _ => None,
        };
        (here, thread.unwrap_or(namespace::UNKNOWN | tid))
    }

    fn process(&mut self, pid: u32) -> u32 {
        let shares = namespace::has_mapped(pid, self.inode);
        if shares == Some(true) {
            return pid;
        }
        let found = self.search(pid);
        match (found, shares) {
            (Some(here), _) => here,
            // It has executed another program meanwhile. One that was there before us is another that has this number.
            (None, Some(_)) if procfs::started(pid) >= procfs::started(std::process::id()) => pid,
            (None, Some(_)) => {
                self.strangers += 1;
                namespace::UNKNOWN | pid
            }
            // It is gone already.
            (None, None) => pid,
        }
    }

    /// Looks for a process among all that there are, if that has not taken too long so far.
    fn search(&mut self, pid: u32) -> Option<u32> {
        let begin = Instant::now();
        if self.searched > AT_ONCE + (begin - self.begin) / PART {
            return None;
        }
        let shares = |it| namespace::has_mapped(it, self.inode) == Some(true);
        let found = namespace::process(pid, shares);
        self.searched += begin.elapsed();
        found
    }
}
