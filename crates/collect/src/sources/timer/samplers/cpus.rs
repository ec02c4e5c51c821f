//! Samplers of all CPUs, of whose records those of the target are kept.
//!
//! A thread has no timer of its own then, so a switch between threads costs nothing: memcached, which
//! switches 70,000 times a second and CPU, lost a third of its speed to the timers of its threads. What
//! is left is the recording of the switches themselves, which can be stopped while sampling goes on.
//! Nor is there anything to open for each thread, or to inherit.

use std::collections::HashSet;
use std::io;

use linewise_machine::perf::{SamplerOptions, Whom};
use linewise_machine::records::Record;

use super::rings::{RING_PAGES, at_once, drain, map_ring};
use crate::error::{Error, cpu_sampler};
use crate::kernel::{Denial, PerfEvent, PerfEvents};

struct OfCpu<E: PerfEvent> {
    cpu: u32,
    /// Has the ring, and takes the samples while there is no other.
    sampler: E,
    /// Takes them with a longer period.
    coarse: Option<E>,
    /// Not there in a pause: each switch of the CPU is looked at as long as somebody has it open, on or off
    /// (1.6 % of memcached's speed).
    switches: Option<E>,
    /// Tells of threads and mappings, also while switches are not recorded.
    tracker: E,
    ring: E::Ring,
}

impl<E: PerfEvent> OfCpu<E> {
    /// Samples with a longer period from now on. The kernel would go on to report the old one if that of the
    /// event were changed.
    fn coarsen(
        &mut self,
        kernel: &impl PerfEvents<Event = E>,
        options: SamplerOptions,
    ) -> io::Result<()> {
        let coarse = kernel.sampler(Whom::Everyone, self.cpu, options)?;
        coarse.redirect_to(&self.sampler)?;
        coarse.enable()?;
        self.sampler.disable()?;
        self.coarse = Some(coarse);
        Ok(())
    }

    /// Records switches from now on.
    fn record_switches(&mut self, kernel: &impl PerfEvents<Event = E>) -> io::Result<()> {
        let switches = kernel.switches(self.cpu)?;
        switches.redirect_to(&self.sampler)?;
        switches.enable()?;
        self.switches = Some(switches);
        Ok(())
    }
}

/// The samplers of all CPUs.
pub(crate) struct CpuSamplers<K: PerfEvents> {
    kernel: K,
    cpus: Vec<OfCpu<K::Event>>,
    target: Target,
    options: SamplerOptions,
}

impl<K: PerfEvents> CpuSamplers<K> {
    /// Opens them. Those of a target that waits for its exec (`options.enable_on_exec`) say nothing of
    /// it before.
    ///
    /// # Errors
    /// The kernel's: EACCES without the privilege, with what to try.
    pub(crate) fn open(
        kernel: K,
        pid: u32,
        cpus: &[u32],
        options: SamplerOptions,
    ) -> Result<Self, Error> {
        let mut pages = &RING_PAGES[..];
        let target = Target::new(pid, options.enable_on_exec);
        let options = SamplerOptions {
            inherit: false,
            ..at_once(options)
        };
        let mut of_cpus = Vec::new();
        for &cpu in cpus {
            let sampler_of = match kernel.sampler(Whom::Everyone, cpu, options) {
                Ok(event) => event,
                Err(error) if Denial::of(&error) == Denial::OfflineCpu => continue,
                Err(error) => {
                    return Err(cpu_sampler(
                        "perf_event_open of a CPU's cpu-clock event failed",
                    )(error));
                }
            };
            let ring = map_ring(&sampler_of, &mut pages)?;
            let tracker = kernel.tracker(Whom::Everyone, cpu, options);
            let tracker = tracker.and_then(|event| event.redirect_to(&sampler_of).map(|()| event));
            of_cpus.push(OfCpu {
                cpu,
                tracker: tracker.map_err(cpu_sampler("cannot follow the target's threads"))?,
                switches: None,
                coarse: None,
                sampler: sampler_of,
                ring,
            });
        }
        Ok(Self {
            kernel,
            cpus: of_cpus,
            target,
            options,
        })
    }

    /// Starts all of them.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn started(mut self) -> Result<Self, Error> {
        let kernel = &self.kernel;
        let start = |of_cpu: &mut OfCpu<K::Event>| {
            of_cpu.tracker.enable()?;
            of_cpu.sampler.enable()?;
            of_cpu.record_switches(kernel)
        };
        let started = self.cpus.iter_mut().try_for_each(start);
        started.map_err(cpu_sampler("cannot start a sampler"))?;
        Ok(self)
    }

    /// What these processes do is the target's, too.
    pub(crate) fn follow(&mut self, pids: &[u32]) {
        self.target.pids.extend(pids);
    }

    /// Stops sampling and the recording of switches.
    pub(crate) fn stop(&mut self) {
        for of_cpu in &mut self.cpus {
            // It cannot fail but for an event that no longer counts.
            let _ = of_cpu.sampler.disable();
            of_cpu.coarse = None;
        }
        self.pass_over_switches();
    }

    /// Samples with a longer period from now on; a CPU that went offline or has no events left keeps its own.
    pub(crate) fn coarsen(&mut self, period_ns: u64) {
        let options = SamplerOptions {
            period_ns,
            ..self.options
        };
        for of_cpu in &mut self.cpus {
            let _ = of_cpu.coarsen(&self.kernel, options);
        }
    }

    /// Records no switches from now on.
    pub(crate) fn pass_over_switches(&mut self) {
        for of_cpu in &mut self.cpus {
            of_cpu.switches = None;
        }
    }

    /// Records switches again.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn record_switches(&mut self) -> io::Result<()> {
        let kernel = &self.kernel;
        let mut cpus = self.cpus.iter_mut();
        cpus.try_for_each(|of_cpu| of_cpu.record_switches(kernel))
    }

    /// All new records of the target, in the order of their times; how often others left a CPU.
    pub(crate) fn drain(&mut self, into: &mut Vec<Record>) -> u64 {
        drain(self.cpus.iter_mut().map(|of_cpu| &mut of_cpu.ring), into);
        // A process that was forked while the rings were read, one after the other, may show up in a
        // later one before its fork is told. What it did in those microseconds is lost.
        let mut others = 0;
        into.retain(|record| {
            let is_in = self.target.is_in(record);
            others += u64::from(!is_in && matches!(record, Record::Switch { out: true, .. }));
            is_in
        });
        others
    }
}

/// The processes of the target.
struct Target {
    pids: HashSet<u32>,
    /// It will run the program, but has not yet.
    waiting: Option<u32>,
}

impl Target {
    fn new(pid: u32, waits_for_exec: bool) -> Self {
        Self {
            pids: HashSet::from_iter((!waits_for_exec).then_some(pid)),
            waiting: waits_for_exec.then_some(pid),
        }
    }

    /// Whether a record speaks of the target. New processes are taken note of.
    fn is_in(&mut self, record: &Record) -> bool {
        match record {
            Record::Lost(_) | Record::Throttled => true,
            // In the midst of its end a thread has no number any more.
            Record::Sample(sample) => sample.tid != u32::MAX && self.pids.contains(&sample.pid),
            Record::Exit { pid, .. } | Record::Map { pid, .. } | Record::Switch { pid, .. } => {
                self.pids.contains(pid)
            }
            Record::Name { pid, exec, .. } => {
                if *exec && self.waiting == Some(*pid) {
                    self.waiting = None;
                    self.pids.insert(*pid);
                }
                self.pids.contains(pid)
            }
            Record::Fork {
                pid, parent_pid, ..
            } => {
                let is_ours = self.pids.contains(parent_pid);
                if is_ours {
                    self.pids.insert(*pid);
                } else {
                    // Somebody else got the number of a process that is gone.
                    self.pids.remove(pid);
                }
                is_ours
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(parent_pid: u32, pid: u32) -> Record {
        let (tid, time) = (pid, 0);
        Record::Fork {
            pid,
            parent_pid,
            tid,
            time,
        }
    }

    fn named(pid: u32, exec: bool) -> Record {
        Record::Name {
            pid,
            tid: pid,
            name: "name".to_owned(),
            exec,
            time: 0,
        }
    }

    fn exit(pid: u32) -> Record {
        Record::Exit {
            pid,
            tid: pid,
            time: 0,
        }
    }

    #[test]
    fn descendants_are_of_the_target_and_others_are_not() {
        let mut target = Target::new(7, false);
        assert!(target.is_in(&fork(7, 8)));
        assert!(target.is_in(&fork(8, 9)));
        assert!(target.is_in(&exit(9)));
        assert!(!target.is_in(&fork(1, 10)));
        assert!(!target.is_in(&exit(10)));
    }

    #[test]
    fn a_number_that_another_process_got_is_of_the_target_no_more() {
        let mut target = Target::new(7, false);
        assert!(target.is_in(&fork(7, 8)));
        assert!(target.is_in(&exit(8)));
        assert!(!target.is_in(&fork(1, 8)));
        assert!(!target.is_in(&named(8, true)));
    }

    #[test]
    fn nothing_is_said_of_a_target_before_its_exec() {
        let mut target = Target::new(7, true);
        assert!(!target.is_in(&named(7, false)));
        assert!(!target.is_in(&exit(7)));
        assert!(target.is_in(&named(7, true)));
        assert!(target.is_in(&exit(7)));
    }
}
