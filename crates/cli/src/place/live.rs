//! What the processor's counters tell of the threads, on machines that have them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use linewise_machine::counting::{CacheEvents, Code, Counters};
use linewise_machine::process;
use linewise_machine::signals::StopSignals;
use linewise_placer::{Activity, Counts, IntelCounts, TaskKey, ZenCounts};

use super::observe::{Loads, Observer, Seen};

/// Threads that are counted at a time, at most; each takes up to eight open files.
const MOST_THREADS: usize = 4_000;
/// Too many open files.
const EMFILE: i32 = 24;

/// Takes looks from counters.
pub(super) struct ByCounters<'a> {
    signals: &'a StopSignals,
    time: Duration,
    events: CacheEvents,
    codes: Vec<Code>,
    counters: BTreeMap<TaskKey, Counters>,
}

impl<'a> ByCounters<'a> {
    /// Finds out whether this machine has counters, by counting this process.
    ///
    /// # Errors
    /// It has none, or whose events are known, or does not let them be used.
    pub(super) fn begin(signals: &'a StopSignals, time: Duration) -> anyhow::Result<Self> {
        let events = CacheEvents::read(Path::new("/")).context(
            "the events of this processor for where lines come from are not known (they are of Intel's servers from Skylake on, and AMD Zen 3 to 5); without --hardware-counters recordings are used, which need none",
        )?;
        let codes = events.codes().iter().copied();
        let codes: Vec<Code> = codes.chain([Code::INSTRUCTIONS]).collect();
        Counters::open(std::process::id(), &codes).context(
            "the processor's counters cannot be used: a virtual machine without a PMU has none, and perf_event_paranoid above 2 or a seccomp filter forbids them (`linewise doctor` says which); without --hardware-counters recordings are used, which need none",
        )?;
        let _limit = process::raise_open_files();
        Ok(Self {
            signals,
            time,
            events,
            codes,
            counters: BTreeMap::new(),
        })
    }

    /// Counts the threads that have begun, and those that have ended no longer.
    fn follow(&mut self, threads: impl Iterator<Item = TaskKey>) -> anyhow::Result<()> {
        let mut before = std::mem::take(&mut self.counters);
        for key in threads.take(MOST_THREADS) {
            let counters = match before.remove(&key) {
                Some(counters) => counters,
                None => match Counters::open(key.tid, &self.codes) {
                    Ok(counters) => counters,
                    Err(error) if error.raw_os_error() == Some(EMFILE) => {
                        return Err(error).context("too many threads to count: raise the limit of open files (`ulimit -n`)");
                    }
                    // It has ended, or is another user's.
                    Err(_) => continue,
                },
            };
            self.counters.insert(key, counters);
        }
        Ok(())
    }

    /// What a thread did, with what its counters tell.
    fn counted(&mut self, key: TaskKey, activity: Activity) -> io::Result<Activity> {
        let Some(counters) = self.counters.get_mut(&key) else {
            return Ok(activity);
        };
        let rates = counters.rates()?;
        let (cache, instructions) = rates.split_at(rates.len() - 1);
        // They are per second of the thread's time already.
        let progress = instructions.first().copied();
        let counted = counts(self.events, cache).activity(activity.load, 1.0, 1.0, progress);
        Ok(Activity {
            executed: activity.executed,
            ..counted
        })
    }
}

/// What was counted, by the order of the events' codes.
fn counts(events: CacheEvents, rates: &[f64]) -> Counts {
    let rate = |at: usize| rates.get(at).copied().unwrap_or(0.0);
    match events {
        CacheEvents::Intel => Counts::Intel(IntelCounts {
            l2_miss: rate(0),
            l3_hit: rate(1),
            l3_miss: rate(2),
            remote_hitm: rate(3),
            remote_fwd: rate(4),
            remote_dram: rate(5),
            llc_misses: rate(6),
        }),
        CacheEvents::Zen => Counts::Zen(ZenCounts {
            local_ccx: rate(0),
            // The cache's own hits are counted by the cache, for all cores.
            local_l3: 0.0,
            near_cache: rate(1),
            far_cache: rate(2),
            dram_near: rate(3),
            dram_far: rate(4),
        }),
    }
}

impl Observer for ByCounters<'_> {
    fn look(&mut self, processes: &[u32]) -> anyhow::Result<Seen> {
        let before = Loads::of(processes);
        self.follow(before.threads())?;
        for counters in self.counters.values_mut() {
            counters.rates().context("cannot read a counter")?;
        }
        process::wait_readable(&[self.signals.raw_fd()], self.time);
        let mut seen = before.seen_since(processes);
        for task in &mut seen.tasks {
            let counted = self.counted(task.key, task.activity);
            task.activity = counted.context("cannot read a counter")?;
        }
        Ok(seen)
    }
}
