//! What is to be moved, and where everything is once it was.

use crate::machine::{Level, LevelKind, Machine};
use crate::snapshot::{Snapshot, Task, TaskKey};

/// A CPU, or its core, with less load than this has room for a task.
const IDLE: f32 = 0.1;

/// A hair of room: loads are shares of a second.
pub(crate) const HAIR: f32 = 0.05;

/// Why a task moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Many of its lines come from another domain of this level, and others there have the same trouble (SAM, figure 4,
    /// first part). With so many a second of CPU time.
    Coherence(LevelKind, f32),
    /// It shares with tasks in that domain of this level; so many transfers a second no longer cross it.
    Group(LevelKind, f32),
    /// It shares with tasks in the domain of this level where it is mostly, and is to stay there; so many transfers a
    /// second crossed it when one of them was elsewhere.
    Stay(LevelKind, f32),
    /// It makes room for this task and loses nothing.
    MakesRoom(TaskKey),
    /// It makes room for this task although it uses much memory, which may become remote: it goes home if it does.
    Reluctantly(TaskKey),
    /// It had to make room, loads from remote memory since, and goes back (second part).
    Home(f32),
    /// The memory where it was is saturated (third part); with so many misses of all tasks there in a second.
    Bandwidth(f32),
    /// An earlier move made it slower: to this share of its progress before.
    Undo(f32),
}

/// A task that is to go from one CPU to another, or to leave it no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Which.
    pub task: TaskKey,
    /// The index of its CPU until now.
    pub from: u32,
    /// The index of the CPU where it is to be.
    pub to: u32,
    /// Why.
    pub reason: Reason,
}

/// Whether a task may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freedom {
    /// Now.
    Free,
    /// Later: it is new, or rests.
    Waits,
    /// Not while it is as it is.
    Stays,
}

/// The placement while it is being decided.
pub(crate) struct Plan<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) snapshot: &'a Snapshot,
    /// Of each task, where it will be.
    pub(crate) cpu_of: Vec<u32>,
    /// Of each task, why it moves.
    reasons: Vec<Option<Reason>>,
    /// Of each task, whether it may be moved in this interval, once.
    free: Vec<Freedom>,
    cpu_load: Vec<f32>,
    core_load: Vec<f32>,
    /// As long as there are cores for all, nobody shares one.
    by_core: bool,
    pub(crate) total_load: f32,
}

impl<'a> Plan<'a> {
    /// Everything as it is. `free` says of each task whether it may be moved.
    pub(crate) fn new(machine: &'a Machine, snapshot: &'a Snapshot, free: Vec<Freedom>) -> Self {
        let mut cpu_load = vec![0.0; machine.len()];
        for (load, other) in cpu_load.iter_mut().zip(&snapshot.other_load) {
            *load = *other;
        }
        let mut core_load = vec![0.0; machine.core_bound()];
        let mut total_load = 0.0;
        for task in &snapshot.tasks {
            cpu_load[task.cpu as usize] += task.activity.load;
        }
        for (cpu, &load) in cpu_load.iter().enumerate() {
            core_load[machine.core(cpu as u32) as usize] += load;
            total_load += load;
        }
        Self {
            machine,
            snapshot,
            cpu_of: snapshot.tasks.iter().map(|task| task.cpu).collect(),
            reasons: vec![None; snapshot.tasks.len()],
            free,
            cpu_load,
            by_core: total_load <= core_load.len() as f32 + IDLE,
            core_load,
            total_load,
        }
    }

    pub(crate) fn task(&self, at: u32) -> &'a Task {
        &self.snapshot.tasks[at as usize]
    }

    /// The domain where a task will be.
    pub(crate) fn domain(&self, level: &Level, at: u32) -> u32 {
        level.of_cpu[self.cpu_of[at as usize] as usize]
    }

    /// Whether a task may still be moved in this interval.
    pub(crate) fn is_free(&self, at: u32) -> bool {
        self.free[at as usize] == Freedom::Free
    }

    /// Whether a task is to be moved neither now nor soon.
    pub(crate) fn stays(&self, at: u32) -> bool {
        self.free[at as usize] == Freedom::Stays
    }

    pub(crate) fn may_run_on(&self, at: u32, cpu: u32) -> bool {
        let mask = self.snapshot.masks.get(self.task(at).mask as usize);
        mask.is_some_and(|mask| mask.has(cpu))
    }

    /// The load that a domain with these CPUs is to have at most: one task a core while the cores suffice for all, one
    /// a CPU while those do, and its share of what there is beyond.
    pub(crate) fn capacity(&self, cpus: &[u32]) -> f32 {
        let threads = cpus.len() as f32;
        if self.by_core {
            let cores = self.core_load.len().max(1) as f32;
            return (threads * cores / self.machine.len() as f32).round();
        }
        threads.max((self.total_load * threads / self.machine.len() as f32).ceil())
    }

    /// An idle CPU of these for the task; the last of them that the caller has not yet seen to be taken is tried first.
    /// `idle` is what [`Plan::idle`] gave, and shrinks.
    pub(crate) fn take_idle(&self, idle: &mut Vec<u32>, at: u32) -> Option<u32> {
        while idle.last().is_some_and(|&cpu| !self.is_idle(cpu)) {
            idle.pop();
        }
        let found = |&cpu: &u32| self.is_idle(cpu) && self.may_run_on(at, cpu);
        let place = idle.iter().rposition(found)?;
        Some(idle.remove(place))
    }

    /// The idle CPUs of these, those on the idlest cores last.
    pub(crate) fn idle(&self, cpus: &[u32]) -> Vec<u32> {
        let mut idle: Vec<u32> = cpus
            .iter()
            .copied()
            .filter(|&cpu| self.is_idle(cpu))
            .collect();
        if !self.by_core {
            let load = |cpu: &u32| self.core_load[self.machine.core(*cpu) as usize];
            idle.sort_by(|a, b| load(b).total_cmp(&load(a)));
        }
        idle
    }

    /// The CPU of these with the least load, where no CPU is idle because tasks share them all: the task takes its turns
    /// there, if these CPUs are to have its load as well.
    pub(crate) fn with_room(&self, cpus: &[u32], at: u32) -> Option<u32> {
        let load: f32 = cpus.iter().map(|&cpu| self.cpu_load[cpu as usize]).sum();
        if load + self.task(at).activity.load > self.capacity(cpus) + HAIR {
            return None;
        }
        let allowed = cpus.iter().copied().filter(|&cpu| self.may_run_on(at, cpu));
        allowed.min_by(|&a, &b| self.cpu_load[a as usize].total_cmp(&self.cpu_load[b as usize]))
    }

    fn is_idle(&self, cpu: u32) -> bool {
        if self.by_core {
            self.core_load[self.machine.core(cpu) as usize] < IDLE
        } else {
            self.cpu_load[cpu as usize] < IDLE
        }
    }

    /// Moves a task.
    pub(crate) fn go(&mut self, at: u32, to: u32, reason: Reason) {
        let index = at as usize;
        let from = self.cpu_of[index];
        let load = self.task(at).activity.load;
        for (cpu, change) in [(from, -load), (to, load)] {
            self.cpu_load[cpu as usize] += change;
            self.core_load[self.machine.core(cpu) as usize] += change;
        }
        self.cpu_of[index] = to;
        self.reasons[index] = Some(reason);
        self.free[index] = Freedom::Waits;
    }

    /// Whether two tasks may change places.
    pub(crate) fn may_swap(&self, at: u32, other: u32) -> bool {
        let (cpu, other_cpu) = (self.cpu_of[at as usize], self.cpu_of[other as usize]);
        self.is_free(at)
            && self.is_free(other)
            && self.may_run_on(at, other_cpu)
            && self.may_run_on(other, cpu)
    }

    /// Lets two tasks change places.
    pub(crate) fn swap(&mut self, at: u32, reason: Reason, other: u32, other_reason: Reason) {
        let (cpu, other_cpu) = (self.cpu_of[at as usize], self.cpu_of[other as usize]);
        self.go(at, other_cpu, reason);
        self.go(other, cpu, other_reason);
    }

    /// What is to be moved, in the order of the tasks.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let tasks = self
            .snapshot
            .tasks
            .iter()
            .zip(&self.reasons)
            .zip(&self.cpu_of);
        let moved = tasks.filter_map(|((task, reason), &to)| {
            let reason = (*reason)?;
            (to != task.cpu || matches!(reason, Reason::Stay(..))).then_some(Move {
                task: task.key,
                from: task.cpu,
                to,
                reason,
            })
        });
        moved.collect()
    }
}
