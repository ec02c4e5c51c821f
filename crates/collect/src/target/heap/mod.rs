//! The heap recorder's other end: from records in shared memory to heap blocks.
//!
//! ```text
//! Loaded: rings of all threads ─┬─ sorted by time ─► Ledger: what is allocated now ─► rows of heap_blocks
//! Probed: hits of all CPUs ─────┘
//!         slices of stacks ─► Unwinder ─► rules, back to the target
//! ```
//!
//! Rows are kept of all blocks that a sample or a trap touched, and of a share of the others, which then
//! stand for more than themselves. What each call chain allocates is counted, block by block (`sites`).

mod allocator;
mod cost;
mod launch;
mod ledger;
mod loaded;
mod marks;
mod numbered;
mod observer;
mod operators;
mod probed;
mod rate;
mod recorder;
mod sites;
mod symbols;
mod unwind;

#[cfg(test)]
mod tests;

use linewise_trace::live;

pub(crate) use launch::{Source, attaching, load, loading, probing};
pub(crate) use recorder::HeapRecorder;
pub(crate) use unwind::Unwinder;

/// For `crate::fuzzing`.
#[cfg(fuzzing)]
pub(crate) fn fuzz_unwinding(file: &std::path::Path) {
    unwind::fuzz(file);
}

/// For `crate::fuzzing`.
#[cfg(fuzzing)]
pub(crate) fn fuzz_allocators(file: &std::path::Path) {
    let _ = allocator::functions(file);
    let _ = allocator::linked_in(&crate::kernel::Machine, file);
    let _ = allocator::of_file(file);
}
