//! What was seen of the tasks in one interval.

use linewise_topology::CpuSet;

use crate::Machine;

/// A task that executes for less of an interval than this is not worth a move.
pub const BUSY: f32 = 0.05;

/// A task (thread), told apart from later ones with the same number by its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The kernel's number of the thread.
    pub tid: u32,
    /// When it began, in the kernel's ticks since boot.
    pub start: u64,
}

/// What a task did in an interval. Rates are per second of its CPU time, as SAM normalises by unhalted cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity {
    /// The share of the interval that it was executing or ready to, from 0 to 1.
    pub load: f32,
    /// The share of the interval that it was executing: its CPU time.
    pub executed: f32,
    /// Lines that came from other cores' caches, by [`Crossing`](crate::Crossing).
    pub transfers: [f32; 3],
    /// Loads from the memory of another node.
    pub remote: f32,
    /// Misses of the last-level cache: what it takes of the memory's bandwidth.
    pub misses: f32,
    /// Instructions, or another measure of progress; `None` where none is counted.
    pub progress: Option<f32>,
}

/// A task and where it may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Which.
    pub key: TaskKey,
    /// Its process.
    pub process: u32,
    /// The CPU where it was, most of the interval, as an index of the machine.
    pub cpu: u32,
    /// The share of the interval that it was in another domain than that of `cpu`, by level of the machine: where
    /// threads wander, the place of a moment says nothing.
    pub strays: [f32; 2],
    /// The CPUs where it may run, as an index of [`Snapshot::masks`].
    pub mask: u32,
    /// What it did.
    pub activity: Activity,
}

/// What two tasks share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// One, as an index of [`Snapshot::tasks`].
    pub one: u32,
    /// The other.
    pub other: u32,
    /// Lines that move between them in a second of the interval, both ways: half of them come to each.
    pub transfers: f32,
}

/// A set of CPUs of one machine, by their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask(Box<[u64]>);

impl Mask {
    /// The CPUs of `set` that the machine has.
    #[must_use]
    pub fn new(machine: &Machine, set: &CpuSet) -> Self {
        let mut words = vec![0; machine.len().div_ceil(64)].into_boxed_slice();
        for cpu in set.iter().filter_map(|cpu| machine.index_of(cpu)) {
            words[cpu as usize / 64] |= 1_u64 << (cpu % 64);
        }
        Self(words)
    }

    /// Whether the CPU with this index is in it.
    #[must_use]
    pub fn has(&self, cpu: u32) -> bool {
        let word = self.0.get(cpu as usize / 64);
        word.is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }
}

/// All that was seen in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The tasks, in the order of their keys, each once.
    pub tasks: Vec<Task>,
    /// Sets of CPUs where tasks may run.
    pub masks: Vec<Mask>,
    /// What pairs of tasks share, where it is known; each pair once. Empty: from counters alone.
    pub sharing: Vec<Sharing>,
    /// Load of each CPU by tasks that are not to be moved, by index; may be shorter than the machine.
    pub other_load: Vec<f32>,
}

impl Snapshot {
    /// CPU time of a task, as a share of the interval. Who has next to none is not worth a move for what little it gets.
    #[must_use]
    pub fn cpu_time(&self, task: u32) -> f32 {
        self.tasks[task as usize].activity.executed.max(BUSY)
    }

    /// What a pair shares by the CPU time of whoever of the two has less: what thresholds are for.
    #[must_use]
    pub fn rate(&self, pair: &Sharing) -> f32 {
        pair.transfers / self.cpu_time(pair.one).min(self.cpu_time(pair.other))
    }
}

/// From where on something costs enough to move a task for it. `linewise calibrate` finds those of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Transfers across a level's domains that cost a task 5 %, per second of CPU time.
    pub coherence: f32,
    /// Loads from remote memory, per second of CPU time.
    pub remote: f32,
    /// Misses of the last-level cache, of all tasks of a node in a second, at which its memory is nearly saturated.
    pub misses: f32,
}

impl Thresholds {
    /// Those of the machine of SAM's paper (sections 2.1 and 2.2): 550,000 transfers and 75 million misses a second,
    /// at 2.2 GHz. For remote loads the paper gives none; they cost about what a transfer costs.
    pub const IVY_BRIDGE: Self = Self {
        coherence: 550_000.0,
        remote: 550_000.0,
        misses: 75_000_000.0,
    };

    /// All multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f32) -> Self {
        Self {
            coherence: self.coherence * factor,
            remote: self.remote * factor,
            misses: self.misses * factor,
        }
    }
}
