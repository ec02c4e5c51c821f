//! The timer samplers of a target and the rings they write into: one ring for each CPU, shared by
//! all threads.
//!
//! | samplers of | cost at a switch | new threads | taken by |
//! |---|---|---|---|
//! | each CPU ([`cpus`]) | none | are seen by themselves | root, CAP_PERFMON, `perf_event_paranoid` at 0 or below |
//! | each thread ([`threads`]) | their timer is stopped and started | inherit them | whoever may trace the target |

use std::io;

use linewise_machine::records::Record;

pub(crate) mod cpus;
mod doubles;
mod rings;
pub(crate) mod threads;

use cpus::CpuSamplers;
pub(crate) use rings::order;
use threads::ThreadSamplers;

use crate::kernel::PerfEvents;

/// All samplers of a target.
pub(crate) enum Samplers<K: PerfEvents> {
    /// Of its threads.
    Threads(ThreadSamplers<K>),
    /// Of all CPUs, whoever runs there.
    Cpus(CpuSamplers<K>),
}

impl<K: PerfEvents> Samplers<K> {
    /// What has a sampler of its own, in words.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Threads(_) => "each thread",
            Self::Cpus(_) => "each CPU",
        }
    }

    /// Whether sampling itself costs the target time at each switch, so that it stops in a pause.
    pub(crate) fn stop_in_pauses(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    /// Whether threads are sampled in the kernel, too.
    pub(crate) fn see_the_kernel(&self) -> bool {
        matches!(self, Self::Cpus(_))
    }

    /// Stops all of it.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Threads(samplers) => samplers.disable(),
            Self::Cpus(samplers) => samplers.stop(),
        }
    }

    /// Stops what costs the target time at each switch.
    pub(crate) fn pause(&mut self) {
        match self {
            Self::Threads(samplers) => samplers.disable(),
            Self::Cpus(samplers) => samplers.pass_over_switches(),
        }
    }

    /// Starts what [`Samplers::pause`] stopped.
    ///
    /// # Errors
    /// The kernel's, where switches cannot be recorded again.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        match self {
            Self::Threads(samplers) => {
                // It fails only where no thread is left.
                drop(samplers.enable());
                Ok(())
            }
            Self::Cpus(samplers) => samplers.record_switches(),
        }
    }

    /// Opens samplers anew for these threads, if samplers are of threads; to how many. See
    /// [`ThreadSamplers::reopen`].
    pub(crate) fn reopen(&mut self, tids: impl Iterator<Item = u32>) -> usize {
        match self {
            Self::Threads(samplers) => samplers.reopen(tids),
            Self::Cpus(_) => 0,
        }
    }

    /// Samples with a shorter period from now on, if that can be done for this target and helps; the
    /// period, ns. Starts the samplers.
    pub(crate) fn refine(&mut self) -> Option<u64> {
        match self {
            Self::Threads(samplers) => samplers.refine(),
            Self::Cpus(_) => None,
        }
    }

    /// Samples with a longer period from now on, if samples are taken of CPUs; whether they are.
    pub(crate) fn coarsen(&mut self, period_ns: u64) -> bool {
        match self {
            Self::Threads(_) => false,
            Self::Cpus(samplers) => {
                samplers.coarsen(period_ns);
                true
            }
        }
    }

    /// All new records, in the order of their times; how many switches of others were recorded and
    /// passed over.
    pub(crate) fn drain(&mut self, into: &mut Vec<Record>) -> u64 {
        match self {
            Self::Threads(samplers) => {
                samplers.drain(into);
                0
            }
            Self::Cpus(samplers) => samplers.drain(into),
        }
    }
}
