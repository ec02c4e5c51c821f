//! Programs: threads that pass through phases.

/// What a thread does in a phase. Rates are per useful cycle: one in which it computes and waits for nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Seconds of useful cycles of each thread until the next phase begins.
    pub seconds: f64,
    /// Instructions a useful cycle.
    pub ipc: f64,
    /// Lines that other threads had.
    pub transfers: f64,
    /// Lines from memory, whatever the caches hold.
    pub misses: f64,
    /// Lines that the last-level cache is asked for: what can miss beside, if it is too small.
    pub accesses: f64,
    /// Misses that wait at the same time.
    pub parallel: f64,
    /// Bytes that a thread uses alone.
    pub private_bytes: f64,
    /// Bytes that all threads of the program use.
    pub shared_bytes: f64,
    /// Share of its misses that goes to pages that the thread touched first.
    pub own: f64,
    /// Threads that live in this phase only.
    pub extra: usize,
}

impl Phase {
    /// Computes, and does nothing else.
    pub const COMPUTES: Self = Self {
        seconds: f64::INFINITY,
        ipc: 1.5,
        transfers: 0.0,
        misses: 0.0,
        accesses: 2e-3,
        parallel: 4.0,
        private_bytes: 256.0 * 1024.0,
        shared_bytes: 0.0,
        own: 1.0,
        extra: 0,
    };

    /// The same for so long.
    #[must_use]
    pub const fn lasting(mut self, seconds: f64) -> Self {
        self.seconds = seconds;
        self
    }

    /// The same with so many threads more.
    #[must_use]
    pub const fn with_extra(mut self, extra: usize) -> Self {
        self.extra = extra;
        self
    }

    /// The same with so many transfers a useful cycle.
    #[must_use]
    pub const fn sharing(mut self, transfers: f64) -> Self {
        self.transfers = transfers;
        self
    }

    /// The same with these misses a useful cycle, so many at once, and bytes of the thread's own.
    #[must_use]
    pub const fn missing(mut self, misses: f64, parallel: f64, private_bytes: f64) -> Self {
        self.misses = misses;
        self.parallel = parallel;
        self.private_bytes = private_bytes;
        self
    }

    /// The same with common data of so many bytes, which so many accesses a useful cycle look for in the last level.
    #[must_use]
    pub const fn on_common(mut self, shared_bytes: f64, accesses: f64) -> Self {
        self.shared_bytes = shared_bytes;
        self.accesses = accesses;
        self.own = 0.3;
        self
    }
}

/// Who shares with whom in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Nobody.
    Nobody,
    /// Everybody with everybody.
    All,
    /// Thread 0 with 1, 2 with 3, and so on.
    Pairs,
    /// So many groups, whose threads take turns in the order of creation: all within a group.
    Groups(usize),
    /// Each with the next.
    Pipeline,
}

impl Pattern {
    /// With whom thread `one` of `count` shares; equal parts of its transfers with each.
    pub(crate) fn partners(self, one: usize, count: usize) -> Vec<usize> {
        let others = (0..count).filter(|&other| other != one);
        match self {
            Self::Nobody => Vec::new(),
            Self::All => others.collect(),
            Self::Pairs => others.filter(|other| other / 2 == one / 2).collect(),
            Self::Groups(groups) => others
                .filter(|other| other % groups == one % groups)
                .collect(),
            Self::Pipeline => others.filter(|other| other.abs_diff(one) == 1).collect(),
        }
    }
}

/// How a program's threads are divided into processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// All threads are one process.
    One,
    /// Each thread is a process.
    Each,
    /// So many processes, one thread after the other: groups span them.
    Blocks(usize),
}

/// A program with its threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name with the number of threads.
    pub name: String,
    /// Threads without those of bursts.
    pub threads: usize,
    /// What they do, again and again.
    pub phases: Vec<Phase>,
    /// Who shares with whom.
    pub pattern: Pattern,
    /// What is a process.
    pub processes: Processes,
}

impl Program {
    /// One process of that many threads.
    #[must_use]
    pub fn new(name: &str, threads: usize, pattern: Pattern, phases: &[Phase]) -> Self {
        Self {
            name: format!("{name} ({threads}t)"),
            threads,
            phases: phases.to_vec(),
            pattern,
            processes: Processes::One,
        }
    }

    /// The same with other processes.
    #[must_use]
    pub fn in_processes(mut self, processes: Processes) -> Self {
        self.processes = processes;
        self
    }

    /// Threads with those of its largest burst.
    pub(crate) fn slots(&self) -> usize {
        let extra = self.phases.iter().map(|phase| phase.extra).max();
        self.threads + extra.unwrap_or(0)
    }

    /// The process of a thread, counted within the program.
    pub(crate) fn process(&self, thread: usize) -> usize {
        match self.processes {
            Processes::One => 0,
            Processes::Each => thread,
            Processes::Blocks(count) => {
                (thread * count / self.threads.max(1)).min(count.saturating_sub(1))
            }
        }
    }
}
