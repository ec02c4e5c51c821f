//! What a trace says in all.

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
