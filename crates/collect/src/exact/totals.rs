//! What a trace says of each thread, and in all.

use linewise_recording::Pid;

/// A thread of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactThread {
    /// Its process.
    pub pid: Pid,
    /// Its id.
    pub tid: u32,
    /// Number of its address space, see [`TracedAccess::address`](super::TracedAccess::address).
    pub space: u16,
    /// When it was first seen, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// When it was last seen.
    pub end_ns: u64,
    /// How many accesses it made.
    pub accesses: u64,
    /// How long it waited for the collector.
    pub waited_ns: u64,
}

/// Sums over a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accesses handed out.
    pub accesses: u64,
    /// Of those, how many were handed out later than their stamp says, see `DESIGN.md`.
    pub late: u64,
    /// Times that a thread waited for the collector.
    pub waits: u64,
    /// Words that made no sense: the target wrote over the shared memory.
    pub malformed: u64,
    /// Accesses of code that was never defined.
    pub unexplained: u64,
    /// Words of threads beyond the 65,535 that have numbers.
    pub unnumbered: u64,
    /// Lines that were taken from a thread whose ring had not been seen yet.
    pub unowned: u64,
}
