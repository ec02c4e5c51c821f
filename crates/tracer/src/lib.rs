//! The exact source: a plugin for QEMU user mode that hands every memory access to a collector.
//!
//! ```text
//! target under qemu-user                shared memory            collector
//! translation ─ block definitions ────► a ring per process  ───►  Reader
//! every load and store ─ one word ────► a ring per thread   ───►    │ merged by time
//! system calls ─ events ──────────────►      "                      ▼ accesses in one order
//! ```
//!
//! The library is built twice from one source. As a `cdylib` it is loaded into qemu, which runs a
//! stranger's program: it calls nothing but libc, takes no lock and makes no system call while
//! memory is accessed, unless a ring is full. As an `rlib` it gives the collector the other end of
//! the rings: [`Region`] and [`Ring`], safe to read whatever the target does to the memory.
//!
//! Only facts of QEMU's plugin interface are used (names, types, the order of calls); its functions
//! are looked up at run time, so that the `rlib` links without QEMU.

#![warn(clippy::too_many_lines)]
#![expect(
    unsafe_code,
    reason = "shared memory, and the callbacks of a C program"
)]
#![deny(unsafe_op_in_unsafe_fn)]

mod clock;
mod line;
mod own;
pub mod program;
mod region;
pub mod words;

#[doc(hidden)]
pub mod plugin;

pub use clock::stamp;
pub use line::{kept, threshold};
#[cfg(fuzzing)]
pub use region::RingPlace;
pub use region::{Hold, Region, Ring, RingKind, RingState, pid_namespace, started};
