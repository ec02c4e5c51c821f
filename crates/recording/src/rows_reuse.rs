//! The rows of sampled reuse: addresses that were watched in threads at full speed, and every access
//! that trapped. Which of them are uses and reuses is the business of the analysis.

use serde::{Deserialize, Serialize};

use crate::rows::{Address, CpuId, Operation, Pid, Tid, Time, words};
use crate::rows_exact::ReuseScope;

words!(
    /// How the watching of a chunk for its reuses ended.
    ReuseOutcome {
        /// The sampled thread (in shared scope: some thread) touched it as often as can be seen.
        Complete = "complete",
        /// The reservoir gave its slot to a later sample.
        Replaced = "replaced",
        /// The recording or the sampled thread ended first.
        Ended = "ended",
    }
);

/// A chunk of 8 bytes under watch in the threads of a process, for its next uses (table
/// `reuse_watches`).
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseWatch {
    /// A number of its own.
    pub id: u64,
    /// Private: accesses of the sampled thread and stores of the others trap. Shared: all accesses of
    /// the threads behind the sampled thread's last-level cache, and stores of the rest.
    pub scope: ReuseScope,
    /// The process.
    pub pid: Pid,
    /// The thread whose sample it began with.
    pub tid: Tid,
    /// First byte of the chunk.
    pub address: Address,
    /// The instruction of the sampled access.
    pub sample_ip: Address,
    /// Nanoseconds of thread time that the sample stands for.
    pub weight_ns: u64,
    /// When it was armed in the sampled thread.
    pub armed: Time,
    /// When it was taken down, or had nothing more to see.
    pub closed: Time,
    /// Why.
    pub outcome: ReuseOutcome,
    /// How many accesses of each thread are seen at most. The time of the last is not to be used: the
    /// kernel takes the breakpoint down first.
    pub shots: u32,
    /// Other threads of the process in which it was armed.
    pub others: u32,
    /// Threads of the process that ran lately and in which it was not armed.
    pub unwatched: u32,
}

/// An access of a chunk under watch (table `reuse_traps`).
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseTrap {
    /// The watch: [`ReuseWatch::id`].
    pub watch: u64,
    /// When.
    pub time: Time,
    /// The thread.
    pub tid: Tid,
    /// The CPU where it ran.
    pub cpu: CpuId,
    /// Nanoseconds that the thread had run since the watch was armed in it.
    pub running_ns: u64,
    /// Whether loads of this thread trap, too, or stores alone.
    pub loads: bool,
    /// The instruction that accessed the chunk; 0 if it could not be named.
    pub access_ip: Address,
    /// What it did, if it could be named.
    pub operation: Option<Operation>,
}

/// How reuse was sampled (part of `run.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledReuse {
    /// Chunks that can be watched at a time.
    pub slots: u32,
    /// Nanoseconds between two traps of a chunk that is touched all the time, measured before the
    /// recording on an idle CPU.
    pub offset_ns: f64,
    /// Its standard deviation from trap to trap, ns: shorter times are not told apart.
    pub deviation_ns: f64,
    /// Samples that were offered to the slots.
    pub offered: u64,
}
