//! The rows of an exact run: reuse distances, and what a simulated cache hierarchy made of all
//! accesses.
//!
//! Counts are numbers with a fraction: where a share of the lines was followed they are scaled
//! back to all.

use serde::{Deserialize, Serialize};

use crate::rows::{Address, Operation, Pid, StackId, Tid, words};

words!(
    /// The order in which the accesses of different threads were taken.
    Order {
        /// Made in the run: threads wait for each other so that all make their accesses at the same rate.
        EqualRate = "equal-rate",
        /// As the emulator happened to run them.
        AsRun = "as-run",
    }
);

#[expect(clippy::derivable_impls, reason = "the macro makes the type")]
impl Default for Order {
    fn default() -> Self {
        Self::EqualRate
    }
}

words!(
    /// Whose uses count as one stream.
    ReuseScope {
        /// Each thread by itself, as in a private cache.
        Private = "private",
        /// The threads behind one last-level cache.
        Shared = "shared",
    }
);

words!(
    /// How the distance between a use and its reuse is counted.
    Measure {
        /// Distinct units in between: the LRU stack distance.
        Stack = "stack",
        /// Accesses in between.
        Time = "time",
    }
);

words!(
    /// What is used and reused.
    Unit {
        /// A line.
        Line = "line",
        /// A byte.
        Byte = "byte",
        /// As many aligned bytes as `element_bytes` of `run.json` says.
        Element = "element",
        /// Two neighbouring lines, of which the first begins at a multiple of both: what an adjacent
        /// line prefetcher fetches together. Distances are in pairs.
        LinePair = "line-pair",
        /// Eight aligned bytes: what one watchpoint covers.
        Chunk = "chunk",
    }
);

words!(
    /// What became of a touch of a unit.
    Touch {
        /// It comes back to a unit, at a distance.
        Reuse = "reuse",
        /// The first one.
        Cold = "cold",
        /// A store from elsewhere had ended the earlier use.
        Invalidated = "invalidated",
        /// Of the reuses, those after a use by another thread of the same cache. They are in the
        /// rows of the reuses already: do not add both.
        OtherThread = "other-thread",
    }
);

words!(
    /// A level of the simulated hierarchy.
    CacheLevel {
        /// The first-level data cache of a core.
        L1d = "L1d",
        /// The second level: of a core, or the last level of a machine that has no third.
        L2 = "L2",
        /// The third level: the last level of most machines.
        L3 = "L3",
        /// The fourth level.
        L4 = "L4",
        /// No level of a machine: a cache of each core that never loses a line for want of room, where
        /// the sizes of caches were not simulated.
        Unbounded = "unbounded",
    }
);

impl CacheLevel {
    /// Whether every access asks it: the first level, or what stands for all of them.
    #[must_use]
    pub fn is_first(self) -> bool {
        matches!(self, Self::L1d | Self::Unbounded)
    }
}

words!(
    /// Whose accesses a row of `caches` counts.
    CacheSubject {
        /// All accesses.
        Total = "total",
        /// Those of one thread.
        Thread = "thread",
        /// Those of one instruction.
        Instruction = "instruction",
        /// Those of all instructions that have no row of their own.
        OtherInstructions = "other-instructions",
    }
);

words!(
    /// Whether two accesses touch the same bytes of a line.
    Sharing {
        /// Their bytes overlap.
        True = "true",
        /// Their bytes do not.
        False = "false",
    }
);

/// Touches of one thread in one bin of a histogram (table `reuse`).
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseBin {
    /// Private or shared.
    pub scope: ReuseScope,
    /// The number of the shared cache behind which the thread runs; `None` in private scope, and
    /// where `tid` is.
    pub cache: Option<u32>,
    /// The thread that comes back; `None` in the rows of [`Touch::OtherThread`], which are sums
    /// over all threads.
    pub tid: Option<Tid>,
    /// The distance.
    pub measure: Measure,
    /// The unit of use.
    pub unit: Unit,
    /// What became of the touches.
    pub touch: Touch,
    /// The smallest distance of the bin; 0 where there is no distance.
    pub from: u64,
    /// The first distance above the bin; 0 where there is no distance.
    pub to: u64,
    /// Touches.
    pub count: f64,
    /// Standard error of the miss ratio of an LRU cache of `from` units, from the sampling of the
    /// units; of all threads together. `None` when nothing was sampled, or `measure` is not
    /// [`Measure::Stack`].
    pub miss_ratio_error: Option<f64>,
}

/// Touches that follow a use by one instruction and are by another or the same, in one octave of
/// distances (table `reuse_pairs`). Cold touches follow none.
#[derive(Clone, Debug, PartialEq)]
pub struct ReusePairBin {
    /// Private or shared.
    pub scope: ReuseScope,
    /// The process of the instructions; `None` in the sum of all pairs that have no rows.
    pub pid: Option<Pid>,
    /// The instruction that used; `None` likewise.
    pub use_ip: Option<Address>,
    /// The calls that led to the use, a [`CallPath`]; `None` where no calls are known: in the thread's
    /// first function, in a sum, or where they were not followed.
    pub use_path: Option<u32>,
    /// The instruction that came back; `None` in a sum.
    pub reuse_ip: Option<Address>,
    /// The calls that led there; `None` as for the use.
    pub reuse_path: Option<u32>,
    /// The distance.
    pub measure: Measure,
    /// The unit of use.
    pub unit: Unit,
    /// [`Touch::Reuse`] or [`Touch::Invalidated`].
    pub touch: Touch,
    /// The smallest distance of the octave; 0 where there is no distance.
    pub from: u64,
    /// The first distance above the octave; 0 where there is no distance.
    pub to: u64,
    /// Touches.
    pub count: f64,
}

/// A function that runs because of a call: a node in the tree of calls of a process (table
/// `call_paths`). The innermost call of a path names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallPath {
    /// A number of its own.
    pub id: u32,
    /// The process.
    pub pid: Pid,
    /// The path of the calling function; `None` if no call of it is known.
    pub caller: Option<u32>,
    /// The instruction that calls.
    pub call_ip: Address,
}

/// What a level of the simulated hierarchy said to the accesses that asked it (table `caches`).
///
/// `loads + stores + updates` = `hits` + the five classes of misses, and the misses = the sum of
/// the `from_` columns. An access that reaches into the next line counts once for each.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheCounts {
    /// The level.
    pub level: CacheLevel,
    /// Whose accesses.
    pub subject: CacheSubject,
    /// Number of the cache that the thread asks: of its core where the level is private, of the
    /// shared cache at the last level; `None` unless the subject is a thread.
    pub cache: Option<u32>,
    /// The thread; `None` unless the subject is one.
    pub tid: Option<Tid>,
    /// The process of the instruction; `None` unless the subject is one.
    pub pid: Option<Pid>,
    /// The instruction; `None` unless the subject is one.
    pub ip: Option<Address>,
    /// Loads that asked this level.
    pub loads: f64,
    /// Stores that asked it.
    pub stores: f64,
    /// Accesses that read and write that asked it.
    pub updates: f64,
    /// Accesses that it served. The last level also counts here what another core's private cache
    /// of its group served (`from_peer` of the levels above).
    pub hits: f64,
    /// Misses: the cache never had the line.
    pub compulsory: f64,
    /// Misses: a fully associative cache of the size would have lost the line too.
    pub capacity: f64,
    /// Misses: such a cache would still have it.
    pub conflict: f64,
    /// Misses: invalidated by a store to bytes that the core goes on to touch.
    pub true_sharing: f64,
    /// Misses: invalidated by stores to other bytes.
    pub false_sharing: f64,
    /// Misses that the core's second level served.
    pub from_l2: f64,
    /// Misses that the last level of the core's group served.
    pub from_llc: f64,
    /// Misses that another core of the group served.
    pub from_peer: f64,
    /// Misses that another group of the socket served.
    pub from_other_group: f64,
    /// Misses that another socket served.
    pub from_other_socket: f64,
    /// Misses that the memory of the core's node served.
    pub from_local_dram: f64,
    /// Misses that the memory of another node served.
    pub from_remote_dram: f64,
    /// Stores to a line that the core had without the right to store; counted at the first level
    /// only. They are hits.
    pub upgrades: f64,
}

/// Transfers of a line from an instruction of one thread to an instruction of another, in the
/// simulated hierarchy (table `transfers`).
#[derive(Clone, Debug, PartialEq)]
pub struct TransferCount {
    /// The process that the memory is of, the first that mapped it if processes share it; `None` in the sum of all transfers that have
    /// no row of their own.
    pub pid: Option<Pid>,
    /// First byte of the line; `None` likewise, as all below but `sharing` and `count`.
    pub line: Option<Address>,
    /// The thread that had the line.
    pub from_tid: Option<Tid>,
    /// The thread that fetched it.
    pub to_tid: Option<Tid>,
    /// The instruction of the access that the line came from.
    pub from_ip: Option<Address>,
    /// What `from_ip` does to memory; `None` likewise, or if it is not known.
    pub from_operation: Option<Operation>,
    /// The instruction that fetched it.
    pub to_ip: Option<Address>,
    /// What `to_ip` does to memory; `None` likewise.
    pub to_operation: Option<Operation>,
    /// Bytes of the line that `from_ip` touched: bit i is byte i, or byte pair i of a line of 128
    /// bytes; 0 where it is not known.
    pub from_bytes: u64,
    /// Bytes of the line that `to_ip` touched.
    pub to_bytes: u64,
    /// The heap block that `from_bytes` lay in, mostly: [`HeapBlock::id`](crate::HeapBlock::id); `None`
    /// where blocks were not recorded or none lay there.
    pub from_block: Option<u64>,
    /// That of `to_bytes`.
    pub to_block: Option<u64>,
    /// Whether the bytes of the two accesses overlap.
    pub sharing: Sharing,
    /// How often. Rows of a line are counts of that line and never scaled; the sum is an estimate
    /// of all that have no rows, if a share of the lines was followed.
    pub count: f64,
}

/// What one instruction of an exact run did to the heap blocks of one call chain (table `block_uses`),
/// estimated from one in so many of the accesses that were told.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockUse {
    /// The process.
    pub pid: Pid,
    /// The call chain that allocated the blocks.
    pub stack: StackId,
    /// The name that the program gave them; empty if none.
    pub label: String,
    /// The instruction.
    pub ip: Address,
    /// Its accesses to them, estimated.
    pub accesses: f64,
    /// Blocks of which the first access that was looked at is one of these.
    pub blocks: u64,
}

/// Lines of one kind that a simulated cache holds on average, or that press each other out of one of its
/// associativity sets (table `cache_contents`). Of one kind are lines whose last access was by one instruction,
/// in heap blocks of one call chain or in none.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheContent {
    /// The level.
    pub level: CacheLevel,
    /// The thread whose private cache it is, the one with the most accesses; `None` at a level that several cores
    /// share, of which the first group's is told.
    pub tid: Option<Tid>,
    /// The associativity set; `None` for the whole cache.
    pub set: Option<u64>,
    /// The process; `None` where neither instruction nor block is known.
    pub pid: Option<Pid>,
    /// The instruction of the last access; `None` if it is not known.
    pub ip: Option<Address>,
    /// The call chain that allocated the blocks; `None` outside of blocks.
    pub stack: Option<StackId>,
    /// The name that the program gave them; empty if none.
    pub label: String,
    /// Of the whole cache its lines, the mean of moments spread over the run; of a set the different lines that
    /// missed there by conflict.
    pub lines: f64,
    /// Heap blocks that these lines are of, likewise.
    pub blocks: f64,
    /// Of a set the misses by conflict; else 0.
    pub misses: f64,
    /// What all distances between the lines of a set are a multiple of, bytes; 0 of a single line and of the
    /// whole cache.
    pub stride: u64,
}
