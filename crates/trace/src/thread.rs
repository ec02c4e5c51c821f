//! A thread of a trace.

use linewise_recording::Pid;

/// A thread of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactThread {
    /// Its process.
    pub pid: Pid,
    /// Its id.
    pub tid: u32,
    /// Number of its address space, see [`TracedAccess::address`](crate::TracedAccess::address).
    pub space: u16,
    /// When it was first seen, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// When it was last seen.
    pub end_ns: u64,
    /// How many accesses it made.
    pub accesses: u64,
    /// How long it waited for who reads the trace.
    pub waited_ns: u64,
}
