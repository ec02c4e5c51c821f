//! The heap recorder: loaded into the target with LD_PRELOAD, it stands in front of the allocator and
//! tells the collector of blocks.
//!
//! ```text
//! program ─ malloc ─► hooks ─ the real malloc ─► block
//!                       │ one block in so many bytes, or all
//!                       ▼
//!                    recorder: walk the stack, write a record into this thread's ring
//! ```
//!
//! This runs in a stranger's process, wherever that allocates: in signal handlers, after fork, before
//! main, while it ends. So nothing in here allocates, takes a lock or waits for anything but room in its
//! ring, and that only while the collector lives and for a moment. What cannot be told is counted.
//!
//! - What was allocated before the recorder was ready is not told; what the real functions are is found
//!   out by `dlsym`, which may allocate: it is served from a small arena of our own.
//! - A thread's state is in static thread-local storage (initial exec), which exists as soon as the
//!   thread does. A signal handler that allocates while its thread is in the recorder is served and counted
//!   as lost.
//! - A fork is noticed by a page that the kernel wipes in the child: no handler runs at fork.
//! - Freed blocks are told only if they were told when allocated, as a small table of counters knows.

#![expect(unsafe_code, reason = "stands in for C functions")]
#![expect(unreachable_pub, reason = "what is exported is found by its name")]
#![deny(unsafe_op_in_unsafe_fn)]

mod hooks;
mod mappings;
mod naming;
mod operators;
mod real;
mod recorder;
mod stack;
mod thread;
