//! What is remembered from one interval to the next: hysteresis, homes, and whether moves helped.

use crate::categories::Categories;
use crate::machine::Machine;
use crate::plan::{Freedom, Move, Reason};
use crate::snapshot::{Activity, Snapshot, TaskKey};

/// Intervals for which a task that moved stays where it is.
const REST: u32 = 5;
/// Intervals after a move from which on its result counts: before it caches fill.
const WARM: u32 = 2;
/// The share of its progress before that a move must leave, else it is undone.
const WORSE: f32 = 0.95;
/// The share of its progress before that a move must bring, else the like is not tried again: where nothing helps,
/// nothing is to be shuffled.
const NO_BETTER: f32 = 1.01;

/// Intervals for which a task must be different until what was learnt of it no longer holds: counters flicker.
const CHANGED: u32 = 5;
/// By how much what a task shares for its progress may change between before a move and after it; if by more, it is in
/// another phase, and its progress says nothing of the move.
const SAME_WORK: f32 = 0.3;

/// One task.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    key: TaskKey,
    /// What it was in the interval before.
    was: Categories,
    /// The same by lower thresholds: who is about at one is not to be in a category by turns.
    was_nearly: Categories,
    /// Intervals until it may be moved again.
    rests: u32,
    /// Where it was when it had to make room.
    home: Option<u32>,
    /// A move made it slower when it was like this: it stays while it is.
    barred: Option<Categories>,
    /// For how many intervals it has been different from that.
    differs: u32,
    /// Its progress: a moving average while nothing is tried.
    progress: Option<f32>,
    /// Its transfers, the same.
    transfers: f32,
}

/// Moves of one interval, which are kept if they helped.
#[derive(Clone, Debug)]
struct Trial {
    age: u32,
    tried: Vec<Tried>,
}

/// One move of a trial.
#[derive(Clone, Copy, Debug)]
struct Tried {
    one: Move,
    /// What the task was before. Elsewhere it may look different; once it is back it will be like this again.
    was: Categories,
    /// Its progress before.
    before: Option<f32>,
    /// Its transfers before.
    transfers_before: f32,
    /// The sums since it is warm.
    since: f32,
    transfers_since: f32,
}

/// What is remembered of the tasks and of the moves.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of the keys, as in the snapshot.
    memories: Vec<Memory>,
    trials: Vec<Trial>,
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A task could not be moved: it is left alone from now on while it is as it is.
    pub fn refused(&mut self, task: TaskKey) {
        if let Ok(at) = self
            .memories
            .binary_search_by_key(&task, |memory| memory.key)
        {
            self.memories[at].barred = Some(self.memories[at].was);
        }
        for trial in &mut self.trials {
            trial.tried.retain(|tried| tried.one.task != task);
        }
    }

    /// The domain of memory where a task was when it had to make room.
    pub(crate) fn home(&self, task: u32) -> Option<u32> {
        self.memories.get(task as usize)?.home
    }

    /// Takes over the tasks of a new interval; says of each what it has been in both of the last two intervals, and
    /// whether it may be moved.
    pub(crate) fn follow(
        &mut self,
        snapshot: &Snapshot,
        now: &[Categories],
        nearly: &[Categories],
    ) -> (Vec<Categories>, Vec<Freedom>) {
        let mut old = std::mem::take(&mut self.memories).into_iter().peekable();
        self.memories.reserve(snapshot.tasks.len());
        let mut agreed = Vec::with_capacity(now.len());
        let mut free = Vec::with_capacity(now.len());
        for ((task, &now), &nearly) in snapshot.tasks.iter().zip(now).zip(nearly) {
            while old.next_if(|memory| memory.key < task.key).is_some() {}
            let known = old.next_if(|memory| memory.key == task.key);
            let mut memory = known.unwrap_or(Memory {
                key: task.key,
                ..Memory::default()
            });
            agreed.push(now.common(memory.was_nearly));
            if memory.rests == 0 {
                memory.progress = average(memory.progress, task.activity.progress);
                let transfers = transfers(&task.activity);
                memory.transfers = match memory.transfers {
                    0.0 => transfers,
                    before => (before + transfers) / 2.0,
                };
                // Another phase: what was learnt before does not hold in it.
                let is_different = memory.barred.is_some_and(|was| now != was);
                memory.differs = if is_different { memory.differs + 1 } else { 0 };
                if memory.differs >= CHANGED {
                    memory.barred = None;
                }
            }
            memory.rests = memory.rests.saturating_sub(1);
            free.push(if memory.barred.is_some() {
                Freedom::Stays
            } else if known.is_none() || memory.rests > 0 {
                Freedom::Waits
            } else {
                Freedom::Free
            });
            (memory.was, memory.was_nearly) = (now, nearly);
            self.memories.push(memory);
        }
        (agreed, free)
    }

    /// Looks at the moves whose time has come; gives the moves back that made it worse, with what share of their
    /// progress the tasks kept.
    pub(crate) fn judge(&mut self, snapshot: &Snapshot, coherence: f32) -> Vec<(Move, f32)> {
        let mut undone = Vec::new();
        let activity = |key: TaskKey| {
            let found = snapshot.tasks.binary_search_by_key(&key, |task| task.key);
            found.ok().map(|at| &snapshot.tasks[at].activity)
        };
        for trial in &mut self.trials {
            trial.age += 1;
            if trial.age <= WARM {
                continue;
            }
            for tried in &mut trial.tried {
                if let Some(activity) = activity(tried.one.task) {
                    tried.since += activity.progress.unwrap_or(0.0);
                    tried.transfers_since += transfers(activity);
                }
            }
        }
        let due = |trial: &mut Trial| trial.age >= REST;
        for trial in self.trials.extract_if(.., due) {
            let Some(kept) = trial.kept(coherence, |key| activity(key).is_some()) else {
                continue;
            };
            if kept >= NO_BETTER {
                continue;
            }
            for tried in &trial.tried {
                let key = |memory: &Memory| memory.key;
                if let Ok(at) = self.memories.binary_search_by_key(&tried.one.task, key) {
                    let is_worse = kept < WORSE;
                    let now = self.memories[at].was;
                    self.memories[at].barred = Some(if is_worse { tried.was } else { now });
                }
            }
            if kept < WORSE {
                undone.extend(trial.tried.iter().map(|tried| (tried.one, kept)));
            }
        }
        undone
    }

    /// Remembers what was decided.
    pub(crate) fn decided(&mut self, machine: &Machine, moves: &[Move]) {
        let mut tried = Vec::new();
        for one in moves {
            let found = self
                .memories
                .binary_search_by_key(&one.task, |memory| memory.key);
            let Ok(at) = found else {
                continue;
            };
            let memory = &mut self.memories[at];
            memory.rests = REST;
            let domain = |cpu: u32| machine.memory().of_cpu[cpu as usize];
            match one.reason {
                Reason::Reluctantly(_) if memory.home.is_none() => {
                    memory.home = Some(domain(one.from))
                }
                _ if memory.home == Some(domain(one.to)) => memory.home = None,
                _ => {}
            }
            if !matches!(one.reason, Reason::Undo(_)) {
                tried.push(Tried {
                    one: *one,
                    was: memory.was,
                    before: memory.progress,
                    transfers_before: memory.transfers,
                    since: 0.0,
                    transfers_since: 0.0,
                });
            }
        }
        if !tried.is_empty() {
            self.trials.push(Trial { age: 0, tried });
        }
    }
}

impl Trial {
    /// The geometric mean of what its tasks kept of their progress; `None` where it is not known.
    fn kept(&self, coherence: f32, lives: impl Fn(TaskKey) -> bool) -> Option<f32> {
        let intervals = (self.age - WARM) as f32;
        let ratios = self.tried.iter().filter_map(|tried| {
            if !tried.is_same_work(intervals, coherence) {
                return None;
            }
            let before = tried.before.filter(|&before| before > 0.0);
            let before = before.filter(|_| lives(tried.one.task))?;
            (tried.since > 0.0).then(|| (tried.since / intervals / before).ln())
        });
        let ratios: Vec<f32> = ratios.collect();
        let count = ratios.len();
        (count > 0).then(|| (ratios.into_iter().sum::<f32>() / count as f32).exp())
    }
}

impl Tried {
    /// Whether the task does the same as before, slower or faster: it shares as much for its progress, wherever its
    /// lines come from. Few transfers are about noise.
    fn is_same_work(&self, intervals: f32, coherence: f32) -> bool {
        let Some(before) = self.before.filter(|_| self.since > 0.0) else {
            return false;
        };
        if self.transfers_before.max(self.transfers_since / intervals) < coherence {
            return true;
        }
        let (before, since) = (
            self.transfers_before / before,
            self.transfers_since / self.since,
        );
        (before - since).abs() <= SAME_WORK * before.max(since)
    }
}

/// Lines that a task got from others.
fn transfers(activity: &Activity) -> f32 {
    activity.transfers.iter().sum()
}

fn average(before: Option<f32>, now: Option<f32>) -> Option<f32> {
    match (before, now) {
        (Some(before), Some(now)) => Some((before + now) / 2.0),
        (before, now) => now.or(before),
    }
}
