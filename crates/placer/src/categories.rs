//! What a task is, by the thresholds of its machine (SAM, figure 3).

use crate::machine::Machine;
use crate::snapshot::{BUSY, Task, Thresholds};

/// The categories of a task: bits, since it may be in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Categories(u8);

impl Categories {
    /// It executes.
    pub(crate) const BUSY: Self = Self(1);
    /// It loads much from memory.
    pub(crate) const MEMORY: Self = Self(2);
    /// It loads much from remote memory.
    pub(crate) const REMOTE: Self = Self(4);

    /// Many of its lines cross the level with this index.
    pub(crate) fn inter(level: usize) -> Self {
        Self(8 << (2 * level))
    }

    /// Few cross the level with this index, and many come from within its domain.
    pub(crate) fn intra(level: usize) -> Self {
        Self(16 << (2 * level))
    }

    /// Those of a task.
    pub(crate) fn of(task: &Task, machine: &Machine, thresholds: &Thresholds) -> Self {
        let activity = &task.activity;
        if activity.load < BUSY {
            return Self::default();
        }
        let mut all = Self::BUSY;
        let memory = machine.memory().of_cpu[task.cpu as usize];
        let fair = thresholds.misses / machine.cores_of_memory(memory).max(1) as f32;
        if activity.misses > fair {
            all = all.and(Self::MEMORY);
        }
        if activity.remote > thresholds.remote {
            all = all.and(Self::REMOTE);
        }
        for (index, level) in machine.levels().iter().enumerate() {
            if level.crosses(&activity.transfers) > thresholds.coherence {
                all = all.and(Self::inter(index));
            } else if level.within(&activity.transfers) >= thresholds.coherence {
                all = all.and(Self::intra(index));
            }
        }
        all
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that both have.
    pub(crate) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Neither in others' way nor in need of memory: whoever is so loses nothing by a move.
    pub(crate) fn is_cpu_bound(self, level: usize) -> bool {
        self.has(Self::BUSY)
            && !self.has(Self::MEMORY)
            && !self.has(Self::inter(level))
            && !self.has(Self::intra(level))
    }
}
