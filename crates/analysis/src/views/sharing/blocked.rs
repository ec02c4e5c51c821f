//! Samples at loads that wait for the stores before them: their time is the stores'.

use std::collections::{HashMap, HashSet};

use linewise_recording::{Address, BlockedLoad, Pid, Sample, Tid, Time};

/// A load of a thread.
type Load = (Tid, Pid, Address);

/// Of each load the samples of its thread at the stores that it waits for, by time.
pub(super) struct BlockedLoads<'a> {
    stores: HashMap<Load, Vec<(Time, &'a Sample)>>,
    /// Those that wait where they read their thread's stack.
    unproven: HashSet<(Pid, Address)>,
}

impl<'a> BlockedLoads<'a> {
    /// Of tables `blocked_loads` and `samples`.
    pub(super) fn new(rows: &[BlockedLoad], samples: &'a [Sample]) -> Self {
        let mut waiting: HashMap<(Pid, Address), HashSet<Address>> = HashMap::new();
        for row in rows {
            let loads = waiting.entry((row.pid, row.store_ip)).or_default();
            loads.insert(row.ip);
        }
        let mut stores: HashMap<Load, Vec<_>> = HashMap::new();
        let stored = samples.iter().filter(|it| it.address != Address(0));
        for sample in stored.filter(|_| !waiting.is_empty()) {
            let loads = waiting.get(&(sample.pid, sample.access_ip));
            for &load in loads.into_iter().flatten() {
                let at = stores.entry((sample.tid, sample.pid, load)).or_default();
                at.push((sample.time, sample));
            }
        }
        for at in stores.values_mut() {
            at.sort_by_key(|(time, _)| *time);
        }
        let unproven = rows.iter().filter(|row| !row.proven);
        Self {
            stores,
            unproven: unproven.map(|row| (row.pid, row.ip)).collect(),
        }
    }

    /// The sample at a store whose time that of `sample` is, which is at a load behind it: the next one of the thread. `None`
    /// where the sample is its own.
    pub(super) fn store_of(&self, sample: &Sample) -> Option<&'a Sample> {
        let at = (self.stores).get(&(sample.tid, sample.pid, sample.access_ip))?;
        let unproven = self.unproven.contains(&(sample.pid, sample.access_ip));
        if unproven && !is_on_stack(sample) {
            return None;
        }
        let after = at.partition_point(|(time, _)| *time < sample.time);
        let (before, after) = at.split_at(after);
        let near = before.last().into_iter().chain(after.first());
        let (_, nearest) = near.min_by_key(|(time, _)| time.0.abs_diff(sample.time.0))?;
        Some(nearest)
    }
}

/// Whether it reads the stack of its thread near the end, which is in the cache: that is no reason to wait.
fn is_on_stack(sample: &Sample) -> bool {
    const NEAR: u64 = 1 << 14;
    let above = sample.address.0.checked_sub(sample.sp.0);
    sample.sp != Address(0) && above.is_some_and(|it| it < NEAR)
}
