//! The one door to the kernel: perf events, watchpoints, affinity, `/proc` and `/sys`.
//!
//! Everything that needs `unsafe`, a system call or a file of the kernel is here, behind safe
//! functions; the rest of linewise is plain computation on what they return.
#![warn(clippy::too_many_lines)]
#![expect(unsafe_code, reason = "calls the kernel, and shares memory with it")]

pub mod affinity;
pub mod buffer;
mod cgroup;
pub mod counting;
pub mod facts;
pub mod futex;
pub mod guard;
pub mod latency;
pub mod memory;
pub mod memory_latency;
pub mod namespace;
pub mod perf;
pub mod probe;
pub mod process;
pub mod procfs;
pub mod pthread;
pub mod records;
pub mod registers;
pub mod retrap;
pub mod ring;
pub mod signals;
pub mod syscall;
pub mod sysfs;
pub mod uprobe;
