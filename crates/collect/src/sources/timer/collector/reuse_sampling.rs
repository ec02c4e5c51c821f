//! Sampling reuse distances by traps.

use linewise_machine::retrap::RetrapTime;
use linewise_recording::{SampledReuse, Tid, Time};
use linewise_topology::CpuSet;

use crate::kernel::Kernel;
use crate::sources::timer::reuse::ReuseWatches;

/// Sampled reuse of one recording.
pub(crate) struct ReuseSampling<K: Kernel> {
    pub(super) watches: ReuseWatches<K>,
    pub(super) time: RetrapTime,
    /// The CPUs behind each last-level cache.
    pub(super) groups: Vec<CpuSet>,
    /// What it took from the target so far, ns.
    pub(super) spent_ns: f64,
}

impl<K: Kernel> ReuseSampling<K> {
    /// As many slots as there are watchpoints for it in each thread.
    pub(crate) fn new(kernel: K, slots: u32, time: RetrapTime, groups: Vec<CpuSet>) -> Self {
        Self {
            watches: ReuseWatches::new(kernel, slots as usize),
            time,
            groups,
            spent_ns: 0.0,
        }
    }

    /// What `run.json` says of it.
    pub(crate) fn describe(&self) -> SampledReuse {
        SampledReuse {
            slots: self.watches.slots() as u32,
            offset_ns: self.time.offset_ns,
            deviation_ns: self.time.deviation_ns,
            offered: self.watches.offered,
        }
    }

    /// A thread has ended or must not be watched.
    pub(crate) fn forget(&mut self, tid: Tid, now: Time) {
        self.watches.forget(tid, now);
    }
}
