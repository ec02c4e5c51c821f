//! Samples at loads that wait for the stores before them: their time is the stores'.

use std::collections::{HashMap, HashSet};

use linewise_recording::{Address, BlockedLoad, Pid, Sample, Tid, Time};

/// A load of a thread.
type Load = (Tid, Pid, Address);

/// Of each load the samples of its thread at the stores that it waits for, by time.
pub(super) struct BlockedLoads<'a>(HashMap<Load, Vec<(Time, &'a Sample)>>);

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
        Self(stores)
    }

    /// The sample at a store whose time that of `sample` is, which is at a load behind it: the next one of the thread. `None`
    /// where the sample is its own.
    pub(super) fn store_of(&self, sample: &Sample) -> Option<&'a Sample> {
        let at = self.0.get(&(sample.tid, sample.pid, sample.access_ip))?;
        let after = at.partition_point(|(time, _)| *time < sample.time);
        let (before, after) = at.split_at(after);
        let near = before.last().into_iter().chain(after.first());
        let (_, nearest) = near.min_by_key(|(time, _)| time.0.abs_diff(sample.time.0))?;
        Some(nearest)
    }
}
