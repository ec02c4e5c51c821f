//! How much of a run was seen, by each means of seeing it: what a report that finds nothing is worth.

use std::collections::{BTreeSet, HashSet};

use linewise_recording::{
    Address, Pid, RunInfo, SampleClass, SharedMemory, Switch, Tables, Tid, Time,
};
use serde::{Deserialize, Serialize};

/// With fewer samples of a program's own code nothing can be said of it.
pub(crate) const ENOUGH_SAMPLES: u64 = 100;

/// How much of the run was seen. All are shares from 0 to 1, and `null` of an exact run, which sees every access that it follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCoverage {
    /// Of the CPU time of all threads, what samples stand for that are an access with an address or wait for no memory. The
    /// rest had no sample, an unknown access, or passed in the kernel. `null` where threads used no time.
    pub samples: Option<f64>,
    /// Of the same time, what samples in the kernel stand for, where no line is watched; `null` where it was not sampled.
    pub kernel: Option<f64>,
    /// Of the same time, that of which it was recorded on which CPU its thread ran. `null` where threads used no time.
    pub switches: Option<f64>,
    /// Of the sampled time of accesses, that at lines which were watched in another thread at least once. `null` where
    /// nothing can be watched: with one thread, or without such samples.
    pub watches: Option<f64>,
    /// Of the time of which it was recorded on which CPU its thread ran, that while another thread ran on another CPU: only
    /// then lines move. `null` with one thread or CPU, or where it was not recorded.
    #[serde(default)]
    pub at_once: Option<f64>,
}

/// A smaller share of what ran is little.
pub(crate) const HALF: f64 = 0.5;
/// Threads that run at once for a smaller share of what they could hardly ever meet.
pub(crate) const SELDOM: f64 = 0.1;

impl RunCoverage {
    /// Of what threads ran outside the kernel, what samples tell of.
    pub(crate) fn of_own_code(&self) -> Option<f64> {
        let outside_kernel = 1.0 - self.kernel.unwrap_or(0.0);
        self.samples.map(|it| it / outside_kernel.max(0.01))
    }

    /// Whether it says little that something was not seen; `may_meet` as [`may_meet`] has it.
    pub(crate) fn is_little(&self, may_meet: f64) -> bool {
        let below = |share: Option<f64>, least: f64| share.is_some_and(|it| it < least);
        below(self.of_own_code(), HALF)
            || below(self.switches, HALF)
            || below(self.at_once, SELDOM * may_meet)
    }

    /// That of a run; `shared` is the memory that its processes share.
    #[must_use]
    pub fn of(info: &RunInfo, tables: &Tables, shared: &SharedMemory) -> Self {
        if info.source.is_exact() {
            return Self::default();
        }
        let all = thread_ns(tables);
        let sampled = |is: fn(SampleClass) -> bool| {
            let samples = tables.samples.iter().filter(|it| is(it.class));
            samples.map(|it| it.weight as f64).sum::<f64>()
        };
        let usable = sampled(|it| matches!(it, SampleClass::Access | SampleClass::Compute));
        let kernel = sampled(|it| it == SampleClass::Kernel);
        let stays = tables.switches.iter();
        let told: f64 = stays.map(|it| it.end.since(it.start) as f64).sum();
        Self {
            samples: share(usable, all),
            kernel: share(kernel, all).filter(|_| kernel > 0.0),
            switches: share(told, cpu_time_ns(tables) as f64),
            watches: watched(info, tables, shared),
            at_once: at_once(&tables.switches).filter(|_| tables.threads.len() > 1),
        }
    }
}

/// Of the CPU times of threads, that in which they could be on CPUs at once, were there enough: little where one does all the work.
pub(crate) fn may_meet(cpu_times_ns: impl Iterator<Item = u64> + Clone) -> f64 {
    let all: u64 = cpu_times_ns.clone().sum();
    let most = cpu_times_ns.max().unwrap_or(0);
    (2.0 * (all - most) as f64 / all.max(1) as f64).min(1.0)
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).min(1.0))
}

/// Of the sampled time of accesses, that at lines which were watched.
fn watched(info: &RunInfo, tables: &Tables, shared: &SharedMemory) -> Option<f64> {
    let threads: BTreeSet<Tid> = tables.threads.iter().map(|it| it.tid).collect();
    if threads.len() < 2 {
        return None;
    }
    let line = |pid: Pid, address: Address| {
        let (pid, address) = shared.home(pid, address);
        (pid, address.line(info.line_size))
    };
    let watches = tables.watches.iter();
    let lines: HashSet<(Pid, Address)> = watches.map(|it| line(it.pid, it.address)).collect();
    let (mut all, mut seen) = (0.0, 0.0);
    let samples = tables.samples.iter();
    for sample in samples.filter(|it| it.class == SampleClass::Access) {
        all += sample.weight as f64;
        if lines.contains(&line(sample.pid, sample.address)) {
            seen += sample.weight as f64;
        }
    }
    share(seen, all)
}

/// Of the time of these stays, that in which others were on other CPUs; `None` of one CPU.
fn at_once(stays: &[Switch]) -> Option<f64> {
    let first = stays.first()?.cpu;
    if stays.iter().all(|it| it.cpu == first) {
        return None;
    }
    let mut moments: Vec<(Time, bool)> = stays
        .iter()
        .filter(|it| it.start < it.end)
        .flat_map(|it| [(it.start, true), (it.end, false)])
        .collect();
    // Who leaves at the moment at which another comes was not there with it.
    moments.sort_unstable();
    let (mut running, mut since) = (0_u32, Time(0));
    let (mut all, mut together) = (0.0, 0.0);
    for (time, comes) in moments {
        let stayed = time.since(since) as f64 * f64::from(running);
        all += stayed;
        together += if running > 1 { stayed } else { 0.0 };
        since = time;
        running = match comes {
            true => running + 1,
            false => running.saturating_sub(1),
        };
    }
    share(together, all)
}

/// CPU time of all threads, ns: as the switches tell, or as the samples do if there are none.
pub(crate) fn thread_ns(tables: &Tables) -> f64 {
    let sampled: u64 = tables.samples.iter().map(|sample| sample.weight).sum();
    cpu_time_ns(tables).max(sampled) as f64
}

/// CPU time of all threads, ns, as the switches tell.
pub(crate) fn cpu_time_ns(tables: &Tables) -> u64 {
    tables.threads.iter().map(|thread| thread.cpu_time_ns).sum()
}

#[cfg(test)]
mod tests {
    use linewise_recording::{
        CpuId, Map, MapKind, Operation, Sample, Switch, Thread, Time, Watch, WatchOutcome,
    };
    use serde_json::json;

    use super::*;
    use crate::views::sampled_rows::{PID, sample};

    fn info(source: &str) -> RunInfo {
        serde_json::from_value(json!({
            "format_version": 2, "linewise_version": "", "complete": true, "command": [], "pid": 7,
            "launched": true, "source": source, "source_reason": "", "start": 0, "end": 2000,
            "ended_by": "target-exited", "exit_code": 0, "exit_signal": null, "line_size": 64,
            "cpus": 2, "watchpoint_bytes": 32, "cpu_model": "", "hypervisor": "", "kernel": "",
            "skid_rule": "", "overhead": linewise_recording::Overhead::default(),
        }))
        .unwrap()
    }

    fn thread(tid: u32, cpu_time_ns: u64) -> Thread {
        Thread {
            pid: PID,
            tid: Tid(tid),
            name: String::new(),
            start: Time(0),
            end: Time(2000),
            cpu_time_ns,
            stack_low: Address(0),
            stack_high: Address(0),
        }
    }

    /// A sample of 100 ns that is no access.
    fn other(class: SampleClass) -> Sample {
        Sample {
            class,
            ..sample(1, 0x10, 0)
        }
    }

    fn watch(pid: Pid, address: u64) -> Watch {
        Watch {
            id: 1,
            armed: Time(0),
            closed: Time(10),
            pid,
            tid: Tid(2),
            publisher: Tid(1),
            address: Address(address),
            size: 8,
            operation: Operation::Store,
            chunks: 1,
            publisher_cpu: CpuId(0),
            outcome: WatchOutcome::Expired,
            exposure_ns: 10,
        }
    }

    fn of(tables: &Tables) -> RunCoverage {
        RunCoverage::of(&info("timer"), tables, &SharedMemory::of(&tables.maps))
    }

    /// Two threads of 500 ns each: four samples at accesses, of which three at lines that were watched, and one of each other
    /// class. Of 600 ns it was recorded where the threads ran.
    fn tables() -> Tables {
        let stay = |cpu, start, end| Switch {
            tid: Tid(1 + cpu),
            cpu: CpuId(cpu),
            start: Time(start),
            end: Time(end),
        };
        Tables {
            threads: vec![thread(1, 500), thread(2, 500)],
            samples: vec![
                sample(1, 0x10, 0x1000),
                sample(1, 0x10, 0x1038),
                sample(2, 0x10, 0x1008),
                sample(2, 0x10, 0x1040),
                other(SampleClass::Compute),
                other(SampleClass::Kernel),
                other(SampleClass::Unknown),
            ],
            watches: vec![watch(PID, 0x1010)],
            switches: vec![stay(0, 100, 500), stay(1, 300, 500)],
            ..Tables::default()
        }
    }

    #[test]
    fn what_was_seen_is_counted_by_each_means() {
        let expected = RunCoverage {
            samples: Some(0.5),
            kernel: Some(0.1),
            switches: Some(0.6),
            watches: Some(0.75),
            at_once: Some(2.0 / 3.0),
        };
        assert_eq!(of(&tables()), expected);
        // Samples may stand for more than the threads used, and stays overlap what they used by the clock's noise.
        let mut more = tables();
        more.threads = vec![thread(1, 300), thread(2, 50)];
        let expected = RunCoverage {
            samples: Some(5.0 / 7.0),
            kernel: Some(1.0 / 7.0),
            switches: Some(1.0),
            ..expected
        };
        assert_eq!(of(&more), expected);
    }

    #[test]
    fn what_was_not_seen_is_zero_and_what_cannot_be_is_null() {
        let mut tables = tables();
        tables.samples.retain(|it| it.class != SampleClass::Kernel);
        tables.watches.clear();
        tables.switches.clear();
        let coverage = of(&tables);
        assert_eq!(coverage.kernel, None, "it was not sampled");
        assert_eq!(
            (coverage.watches, coverage.switches),
            (Some(0.0), Some(0.0))
        );
        // A program that another followed in the same thread is none that could be watched.
        tables.threads = vec![thread(1, 500), thread(1, 500)];
        assert_eq!(of(&tables).watches, None);
        assert_eq!(of(&Tables::default()), RunCoverage::default());
        let exact = RunCoverage::of(&info("exact"), &tables, &SharedMemory::default());
        assert_eq!(exact, RunCoverage::default());
    }

    #[test]
    fn a_line_that_processes_share_is_watched_in_either() {
        let map = |pid: Pid, start: u64| Map {
            pid,
            time: Time(0),
            start: Address(start),
            end: Address(start + 0x1000),
            offset: 0,
            executable: false,
            writable: true,
            kind: MapKind::File,
            path: "/dev/shm/a".to_owned(),
            build_id: String::new(),
            device: Some(1),
            inode: Some(2),
        };
        let mut tables = tables();
        let there = Pid(9);
        tables.watches = vec![watch(there, 0x5010)];
        assert_eq!(of(&tables).watches, Some(0.0));
        tables.maps = vec![map(PID, 0x1000), map(there, 0x5000)];
        assert_eq!(of(&tables).watches, Some(0.75));
    }

    #[test]
    fn time_at_once_is_that_while_others_run() {
        let stay = |tid, cpu, start, end| Switch {
            tid: Tid(tid),
            cpu: CpuId(cpu),
            start: Time(start),
            end: Time(end),
        };
        // Of 300 ns the first thread has 100 alone, then 100 with the second, which goes on alone, after it 50.
        let overlapping = [stay(1, 0, 0, 200), stay(2, 1, 100, 250)];
        assert_eq!(at_once(&overlapping), Some(200.0 / 350.0));
        let in_turns = [stay(1, 0, 0, 100), stay(2, 1, 100, 200)];
        assert_eq!(at_once(&in_turns), Some(0.0));
        let on_one_cpu = in_turns.map(|it| Switch {
            cpu: CpuId(0),
            ..it
        });
        assert_eq!((at_once(&on_one_cpu), at_once(&[])), (None, None));
    }
}
