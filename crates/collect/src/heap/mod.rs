//! The heap recorder's other end: from records in shared memory to heap blocks.
//!
//! ```text
//! rings of all threads ─ sorted by time ─► Live (what is allocated now) ─► rows of heap_blocks
//!          slices of stacks ─► Unwinder ─► rules, back to the target
//! ```
//!
//! Rows are kept of all blocks that a sample or a trap touched, and of a share of the others, which then
//! stand for more than themselves.

mod launch;
mod live;
mod observer;
mod rate;
mod recorder;
mod unwind;

#[cfg(test)]
mod tests;

pub(crate) use launch::{Loading, loading};
pub(crate) use live::{Block, Live};
pub(crate) use recorder::{HeapRecorder, allocator_of};
pub(crate) use unwind::Unwinder;
