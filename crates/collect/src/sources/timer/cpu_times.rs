//! The CPU time of the target as the kernel counts it: in system calls, too, where no sample is taken.

use std::collections::HashMap;

use linewise_recording::Pid;

use crate::kernel::Processes;

/// Adds up the CPU times of processes.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes {
    /// Of each process that is alive, as last read, ns.
    seen: HashMap<Pid, u64>,
    total_ns: u64,
}

impl CpuTimes {
    /// Counts what a process uses from now on.
    pub(crate) fn follow(&mut self, kernel: &impl Processes, pid: Pid) {
        let so_far = kernel.cpu_time_ns(pid.0).unwrap_or(0);
        self.seen.entry(pid).or_insert(so_far);
    }

    /// What all of them have used since they are followed, ns. Of one that ended, until it was last
    /// read.
    pub(crate) fn read(&mut self, kernel: &impl Processes) -> u64 {
        let total_ns = &mut self.total_ns;
        self.seen.retain(|pid, seen| {
            let now = kernel.cpu_time_ns(pid.0);
            if let Some(now) = now {
                *total_ns += now.saturating_sub(*seen);
                *seen = now;
            }
            now.is_some()
        });
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;
    use linewise_machine::process;

    #[test]
    fn what_a_process_uses_is_counted_and_one_that_is_gone_is_forgotten() {
        let mut times = CpuTimes::default();
        times.follow(&Machine, Pid(std::process::id()));
        let before = times.read(&Machine);
        let own = process::own_cpu_time_ns();
        while process::own_cpu_time_ns() < own + 5_000_000 {
            std::hint::spin_loop();
        }
        assert!(times.read(&Machine) >= before + 5_000_000);

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        times.follow(&Machine, pid);
        child.wait().unwrap();
        times.read(&Machine);
        assert!(!times.seen.contains_key(&pid));
    }
}
