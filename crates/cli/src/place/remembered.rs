//! Who shares with whom, and where it was then, over looks: one look is short, and misses what an earlier one saw.

use std::collections::BTreeMap;

use linewise_placer::{Sharing, Snapshot, TaskKey};

/// What of the looks before stays in what is known.
const MEMORY: f32 = 0.5;
/// Transfers a second of CPU time below which a pair is forgotten.
const FORGOTTEN: f32 = 1_000.0;

/// A mean over looks, each of which counts twice as much as the one before it.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Transfers a second of CPU time of whoever of the two had less, not yet divided by `weight`.
    rates: BTreeMap<(TaskKey, TaskKey), f32>,
    weight: f32,
    /// By CPU, the share of its time that each task was there, times what it shared then; since it was moved last.
    places: BTreeMap<TaskKey, BTreeMap<u32, f64>>,
}

impl Remembered {
    /// Takes in where a task was in a look, and what it shared, in transfers a second of CPU time; gives where it was over
    /// all, by what it shared there. The kernel puts tasks that share together and apart by turns: that they are
    /// together in one look is no reason to let them go, if it costs more to have them apart.
    pub(super) fn place(
        &mut self,
        key: TaskKey,
        ran_on: &BTreeMap<u32, f64>,
        shared: f64,
    ) -> BTreeMap<u32, f64> {
        let known = self.places.entry(key).or_default();
        for time in known.values_mut() {
            *time *= f64::from(MEMORY);
        }
        let all: f64 = ran_on.values().sum();
        let weight = (shared + f64::from(FORGOTTEN)) / all.max(f64::MIN_POSITIVE);
        for (cpu, time) in ran_on {
            *known.entry(*cpu).or_default() += time * weight;
        }
        known.clone()
    }

    /// A task was moved: where it was before says nothing any more.
    pub(super) fn forget_place(&mut self, key: TaskKey) {
        self.places.remove(&key);
    }

    /// Takes in who shared with whom in a look, and puts into it what is known over all.
    pub(super) fn mix(&mut self, snapshot: &mut Snapshot) {
        let key = |at: u32| snapshot.tasks[at as usize].key;
        self.weight = self.weight * MEMORY + 1.0 - MEMORY;
        for rate in self.rates.values_mut() {
            *rate *= MEMORY;
        }
        for pair in &snapshot.sharing {
            let (one, other) = (key(pair.one), key(pair.other));
            let rate = self.rates.entry((one.min(other), one.max(other)));
            *rate.or_default() += (1.0 - MEMORY) * snapshot.rate(pair);
        }
        let tasks = snapshot.tasks.iter().zip(0..);
        let index: BTreeMap<TaskKey, u32> = tasks.map(|(task, at)| (task.key, at)).collect();
        let weight = self.weight;
        let mut sharing = Vec::with_capacity(self.rates.len());
        self.rates.retain(|(one, other), rate| {
            let known = *rate / weight;
            let (Some(&one), Some(&other)) = (index.get(one), index.get(other)) else {
                return false;
            };
            let least = snapshot.cpu_time(one).min(snapshot.cpu_time(other));
            sharing.push(Sharing {
                one,
                other,
                transfers: known * least,
            });
            known >= FORGOTTEN
        });
        snapshot.sharing = sharing;
        self.places.retain(|key, _| index.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use linewise_placer::{Activity, Task};

    use super::*;

    /// A look at three threads that had so much CPU time, of which some pairs share.
    fn look(executed: f32, pairs: &[(u32, u32, f32)]) -> Snapshot {
        let task = |tid| Task {
            key: TaskKey { tid, start: 1 },
            process: 1,
            cpu: 0,
            strays: [0.0; 2],
            mask: 0,
            activity: Activity {
                executed,
                ..Activity::default()
            },
        };
        let pair = |&(one, other, transfers)| Sharing {
            one,
            other,
            transfers,
        };
        Snapshot {
            tasks: (1..4).map(task).collect(),
            sharing: pairs.iter().map(pair).collect(),
            ..Snapshot::default()
        }
    }

    fn known(remembered: &mut Remembered, mut look: Snapshot) -> Vec<(u32, u32, f32)> {
        remembered.mix(&mut look);
        let pairs = look.sharing.iter();
        pairs.map(|it| (it.one, it.other, it.transfers)).collect()
    }

    #[test]
    fn a_pair_that_one_look_misses_is_still_known_and_the_first_look_counts_in_full() {
        let mut it = Remembered::default();
        assert_eq!(known(&mut it, look(1.0, &[(0, 1, 6e5)])), [(0, 1, 6e5)]);
        let missed = known(&mut it, look(1.0, &[(1, 2, 3e5)]));
        assert_eq!(missed, [(0, 1, 2e5), (1, 2, 2e5)]);
        for _ in 0..10 {
            known(&mut it, look(1.0, &[]));
        }
        assert_eq!(known(&mut it, look(1.0, &[])), []);
    }

    #[test]
    fn what_is_known_is_of_a_second_of_cpu_time() {
        let mut it = Remembered::default();
        known(&mut it, look(1.0, &[(0, 1, 6e5)]));
        // With half of the time they share half as much, and as much by it.
        assert_eq!(known(&mut it, look(0.5, &[(0, 1, 3e5)])), [(0, 1, 3e5)]);
    }

    #[test]
    fn a_task_is_where_it_shared_most_until_it_is_moved() {
        let mut it = Remembered::default();
        let key = TaskKey { tid: 1, start: 1 };
        let on = |cpu| BTreeMap::from([(cpu, 0.4)]);
        it.place(key, &on(0), 999_000.0);
        let known = it.place(key, &on(1), 249_000.0);
        assert_eq!(known, BTreeMap::from([(0, 500_000.0), (1, 250_000.0)]));
        it.forget_place(key);
        let known = it.place(key, &on(1), 249_000.0);
        assert_eq!(known, BTreeMap::from([(1, 250_000.0)]));
        let mut others = look(1.0, &[]);
        others.tasks.remove(0);
        it.mix(&mut others);
        assert!(it.places.is_empty());
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let mut it = Remembered::default();
        known(&mut it, look(1.0, &[(0, 2, 6e5)]));
        let mut fewer = look(1.0, &[]);
        fewer.tasks.pop();
        assert_eq!(known(&mut it, fewer), []);
        assert_eq!(known(&mut it, look(1.0, &[])), []);
    }
}
