//! The rows of the heap recorder: blocks that the program allocated, and what was recorded of them.

use serde::{Deserialize, Serialize};

use crate::rows::{Address, Pid, StackId, Tid, Time, words};

words!(
    /// What a block of memory was asked from.
    Allocator {
        /// `malloc`.
        Malloc = "malloc",
        /// `calloc`.
        Calloc = "calloc",
        /// `realloc` and `reallocarray`: the block after it.
        Realloc = "realloc",
        /// `posix_memalign`, `aligned_alloc`, `memalign`, `valloc`, `pvalloc`.
        Aligned = "aligned",
        /// `operator new`, where it does not come through `malloc`.
        New = "new",
        /// `mmap` and `mremap`.
        Mmap = "mmap",
        /// jemalloc's or mimalloc's own functions (`mallocx`, `mi_malloc`).
        Other = "other",
        /// The program's own pool, which named the object (`linewise.h`).
        Pool = "pool",
    }
);

/// A block of memory from its allocation to its end (table `heap_blocks`).
///
/// Of blocks that nobody was seen to touch there may be only a sample: each stands for `weight`
/// blocks that are alike. Blocks can lie in one another: an object of a pool lies in the block that the pool
/// asked for. The innermost that was alive is the one that an access belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct HeapBlock {
    /// A number of its own, from 1.
    pub id: u64,
    /// The process.
    pub pid: Pid,
    /// First byte.
    pub address: Address,
    /// Bytes that were asked for.
    pub size: u64,
    /// What it was asked from.
    pub allocator: Allocator,
    /// The name that the program gave it; empty if none.
    pub label: String,
    /// When it was allocated.
    pub allocated: Time,
    /// The thread that allocated it.
    pub allocated_by: Tid,
    /// The call chain of the allocation, return addresses only.
    pub stack: StackId,
    /// When it ended; `None` if it was there when the recording ended.
    pub freed: Option<Time>,
    /// The thread that freed it; `None` also where the end was not seen: another block lay there later,
    /// or the process ran another program.
    pub freed_by: Option<Tid>,
    /// Blocks that this one stands for, itself included.
    pub weight: f64,
}

/// What one call chain allocated, all together (table `heap_sites`).
///
/// Every block that the recorder told of is counted, also where `heap_blocks` has a sample of them: exact where it told
/// of all ([`HeapRun::sampled_bytes`] is 0), else estimated.
#[derive(Clone, Debug, PartialEq)]
pub struct HeapSite {
    /// The process.
    pub pid: Pid,
    /// The call chain, return addresses only.
    pub stack: StackId,
    /// What was asked for memory.
    pub allocator: Allocator,
    /// The name that the program gave the blocks; empty if none.
    pub label: String,
    /// Blocks, from the beginning to the end.
    pub blocks: f64,
    /// Their bytes, as asked for.
    pub bytes: f64,
    /// Those that were there when the recording ended or the process did.
    pub live_blocks: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// The most blocks that were there at once.
    pub peak_blocks: f64,
    /// The most bytes.
    pub peak_bytes: f64,
}

/// What the heap recorder did (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeapRun {
    /// Processes that the recorder was loaded into.
    pub processes: u64,
    /// Blocks of which the recorder told, all together.
    pub blocks: u64,
    /// Blocks alive when the recording ended or their process did, by what the recorder saw: estimated where it sampled.
    pub live_blocks: f64,
    /// Their bytes, likewise.
    pub live_bytes: f64,
    /// Blocks with a row.
    pub rows: u64,
    /// The largest mean distance of sampled blocks, in allocated bytes; 0 when every block was told of.
    pub sampled_bytes: u64,
    /// What the recorder took from the program's threads, ns.
    pub spent_ns: u64,
    /// How the allocator was probed from outside; `None` where a library in the program told of blocks.
    #[serde(default)]
    pub probed: Option<ProbedHeap>,
}

/// Probes on the allocator of a program that no library can be loaded into (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbedHeap {
    /// Share of the recorded time during which they were in place, 0 to 1.
    pub share: f64,
    /// How often they were placed: blocks are known from an allocation to the end of a slice, at most.
    pub slices: u64,
    /// Calls and returns that were told.
    pub hits: u64,
    /// Measured cost of a call to the calling thread, ns.
    pub entry_ns: f64,
    /// The same for functions that the processor must step through, ns.
    pub stepped_ns: f64,
    /// Measured cost of a return, ns.
    pub return_ns: f64,
    /// Frees that were seen.
    pub frees: u64,
    /// Of these the ones of blocks whose allocation had not been seen.
    pub frees_of_unknown: u64,
}
