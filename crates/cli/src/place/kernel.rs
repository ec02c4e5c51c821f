//! What placing asks of the kernel: one seam, behind which tests put an invented one.

use std::io;
use std::path::Path;

use linewise_machine::{affinity, process, procfs};
use linewise_topology::CpuSet;

/// Threads and where they may run.
pub(super) trait Kernel {
    /// When a thread began; `None` if there is none of this number.
    fn start(&self, tid: u32) -> Option<u64>;
    /// The time in which starts are told.
    fn now(&self) -> u64;
    /// Where it may run.
    fn cpus(&self, tid: u32) -> io::Result<CpuSet>;
    /// Lets it run on these alone.
    fn set_cpus(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()>;
    /// The CPUs of its control group, where those are limited.
    fn group_cpus(&self, tid: u32) -> Option<CpuSet>;
    /// The CPUs that are online; none where that is not known.
    fn online(&self) -> CpuSet;
    /// The threads of these processes and of all that descend from them.
    fn threads(&self, processes: &[u32]) -> Vec<u32>;
}

/// This machine's.
pub(super) struct Linux;

impl Kernel for Linux {
    fn start(&self, tid: u32) -> Option<u64> {
        procfs::started(tid)
    }

    fn now(&self) -> u64 {
        process::ticks_since_boot()
    }

    fn cpus(&self, tid: u32) -> io::Result<CpuSet> {
        affinity::of_thread(tid)
    }

    fn set_cpus(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        affinity::set_thread(tid, cpus)
    }

    fn group_cpus(&self, tid: u32) -> Option<CpuSet> {
        affinity::of_control_group(tid)
    }

    fn online(&self) -> CpuSet {
        let text = linewise_foreign::read(Path::new("/sys/devices/system/cpu/online"), 1 << 16);
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        text.parse().unwrap_or_default()
    }

    fn threads(&self, processes: &[u32]) -> Vec<u32> {
        let mut all = processes.to_vec();
        all.extend(procfs::descendants(processes).unwrap_or_default());
        let threads = all
            .iter()
            .map(|&process| procfs::threads(process).unwrap_or_default());
        threads.flatten().collect()
    }
}
