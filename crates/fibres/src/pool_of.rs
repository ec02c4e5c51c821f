//! What workers know of their pool.

use std::sync::atomic::AtomicUsize as Count;

/// Workers among which fibres are stolen.
pub(crate) struct PoolOf {
    pub(crate) name: Box<str>,
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) next: Count,
    /// How many of its workers sleep.
    pub(crate) asleep: Count,
}

impl PoolOf {
    pub(crate) fn new(name: &str, first: usize, count: usize) -> Self {
        Self {
            name: name.into(),
            first,
            count,
            next: Count::new(0),
            asleep: Count::new(0),
        }
    }
}
