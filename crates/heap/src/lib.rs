//! What the heap recorder in the target and the collector share.
//!
//! ```text
//! target (crates/preload)              shared memory                collector (collect::heap)
//! malloc, free, ... ─ records ───────► a ring per thread ────────►  Ring
//! stacks walked by rules ◄──────────── table of rules ◄──────────   from the programs' .eh_frame
//! stacks already told  ◄─────────────► table of known stacks
//! ```
//!
//! Where every access of the program is traced, the tracer stands in the target's place: the library in the
//! program tells it alone ([`tell`]), and it walks the stacks.
//!
//! Programs with pools of their own may link it, too, to name their objects ([`object_begins`]).
//!
//! This library is linked into both. What the target's side calls neither allocates nor takes a lock, calls nothing of
//! the C library, and is built without the standard library (no feature `collector`).
//! The collector's side trusts nothing that it reads.

#![warn(clippy::too_many_lines)]
#![cfg_attr(not(any(feature = "collector", test)), no_std)]
#![expect(
    unsafe_code,
    reason = "shared memory, system calls, and the time stamp counter"
)]
#![deny(unsafe_op_in_unsafe_fn)]

mod environment;
pub mod kernel;
mod naming;
mod program;
mod record;
mod region;
mod ring;
mod ring_header;
mod rules;
mod told;
mod traced;
mod walk;

pub use environment::{Environment, Hidden, Variables, hide, is_ours, preload_of, region_of};
pub use naming::{object_begins, object_ends};
pub use program::{Program, Unloadable};
pub use record::{
    AllocatorCode, MOST_FRAMES, MarkCode, Record, RecordKind, SLICE_WORDS, header, key_of_bytes,
};
pub use region::{Note, Region, VARIABLE};
pub use ring::{Malformed, Ring, RingIds, RingState, Writer};
pub use ring_header::{RING_WORDS, RINGS};
pub use rules::{Cursor, Rule};
pub use told::{Told, block_key, name_key};
pub use traced::{MAGIC, MARKER, TRACED, Traced, TracedKind, tell};
pub use walk::Walked;

/// The processor's time stamp, not before what the program did before the call.
#[inline(always)]
#[must_use]
pub fn stamp_after() -> u64 {
    // SAFETY: lfence and rdtsc exist on every x86-64 processor and touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// The processor's time stamp.
#[inline(always)]
#[must_use]
pub fn stamp() -> u64 {
    // SAFETY: rdtsc exists on every x86-64 processor and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}
