//! The rows of data flow: what was seen of single objects from their allocation to their end, and the
//! paths that objects of a type take, made of that when the recording ended.

use serde::{Deserialize, Serialize};

use crate::rows::{Address, CpuId, Operation, Pid, StackId, Tid, Time, words};

words!(
    /// How the history of an object ended.
    HistoryOutcome {
        /// It was watched from its allocation to its end.
        Whole = "whole",
        /// It was touched more often than a watch can tell.
        Hot = "hot",
        /// A thread began meanwhile that was not watched.
        ThreadBegan = "thread-began",
        /// The watch, the process or the recording ended before the object did.
        Unfinished = "unfinished",
    }
);

/// What was watched of an object from its allocation on: the head of an object access history (table
/// `histories`; Pesterev, 2010, section 5.3). An object that was watched at three places has two rows, with the same
/// address and moment of its allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// A number of its own, from 1.
    pub id: u64,
    /// The process.
    pub pid: Pid,
    /// First byte of the object.
    pub address: Address,
    /// Bytes that were asked for.
    pub size: u64,
    /// The name that the program gave it; empty if none.
    pub label: String,
    /// The call chain of the allocation, return addresses only.
    pub stack: StackId,
    /// When it was allocated.
    pub allocated: Time,
    /// The thread that allocated it.
    pub allocated_by: Tid,
    /// When it ended; `None` if that was not seen.
    pub freed: Option<Time>,
    /// The thread that freed it.
    pub freed_by: Option<Tid>,
    /// First of the 8 bytes that were watched, from the first byte of the object.
    pub offset: u64,
    /// Of the second 8 bytes that were watched at the same time; `None` if there were none.
    pub other_offset: Option<u64>,
    /// How it ended. Only whole histories tell of a path.
    pub outcome: HistoryOutcome,
}

/// An access in the history of an object (table `history_accesses`; table 5.2 there).
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryAccess {
    /// The history: [`History::id`].
    pub history: u64,
    /// When.
    pub time: Time,
    /// The thread.
    pub tid: Tid,
    /// The CPU where it ran.
    pub cpu: CpuId,
    /// First of the watched 8 bytes that it touched, from the first byte of the object.
    pub offset: u64,
    /// The instruction; 0 if it could not be named.
    pub access_ip: Address,
    /// What it did, if it could be named.
    pub operation: Option<Operation>,
}

words!(
    /// What happens to an object in a step of its path.
    PathEvent {
        /// It is allocated.
        Allocated = "allocated",
        /// An instruction touches it.
        Accessed = "accessed",
        /// It is freed.
        Freed = "freed",
    }
);

/// A step of a path that objects of a type take from allocation to end, one or several times in a row
/// (table `path_traces`; table 4.1 there).
///
/// Paths are told apart by the sequence of their instructions and by where the thread changes.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStep {
    /// The type: of a block its label, else what most of its accesses name; empty if unknown.
    pub type_name: String,
    /// Bytes of these objects.
    pub size: u64,
    /// The process.
    pub pid: Pid,
    /// The call chain that allocated them.
    pub stack: StackId,
    /// The path's number among those of the same type, size, process and call chain: 1 is the most frequent.
    pub path: u64,
    /// The share of these objects that take the path, estimated, 0 to 1.
    pub frequency: f64,
    /// Whole histories of which it is the likeliest path.
    pub histories: u64,
    /// Its number in the path, from 0.
    pub step: u64,
    /// What happens.
    pub event: PathEvent,
    /// The instruction; of the allocation the innermost caller; 0 if unknown.
    pub ip: Address,
    /// Whether another thread does this than the step before.
    pub thread_change: bool,
    /// The thread within the path: 0 is the one that allocated the object.
    pub thread: u64,
    /// The share of the objects for which the CPU was another than at the access before of the same history, 0 to 1.
    pub cpu_change: f64,
    /// First of the 8 bytes that are touched, from the first byte of the object.
    pub offset: u64,
    /// What it does to them, if that is known.
    pub operation: Option<Operation>,
    /// How often in a row an object sees it, on average.
    pub times: f64,
    /// Time since the allocation, median over the histories, ns; while the object is watched, which takes time.
    pub time_ns: f64,
    /// Samples of this instruction in objects of the type, as thread time, ns: what waiting for it took.
    pub sampled_ns: f64,
    /// The share of its accesses that the first level served, 0 to 1; `None` where no caches were simulated.
    pub from_l1: Option<f64>,
    /// That the core's second level served.
    pub from_l2: Option<f64>,
    /// That the last level served.
    pub from_llc: Option<f64>,
    /// That another core served, or another group of cores.
    pub from_core: Option<f64>,
    /// That memory served.
    pub from_memory: Option<f64>,
}
