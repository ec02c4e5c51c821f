//! Accesses on their way to the consumer.

use linewise_cache::Kind;

use super::code::NO_SITE;
use linewise_trace::TracedAccess;

/// Accesses handed out at a time; 16 KiB, so that they stay in the first-level cache.
const BATCH: usize = 512;

/// Accesses on their way to the consumer.
#[derive(Debug)]
pub(super) struct Batch {
    accesses: Box<[TracedAccess; BATCH]>,
    count: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        let none = TracedAccess {
            address: 0,
            time_ns: 0,
            site: NO_SITE,
            before: 0,
            size: 1,
            thread: 0,
            kind: Kind::Load,
            orders: false,
        };
        Self {
            accesses: Box::new([none; BATCH]),
            count: 0,
        }
    }

    /// Only while it is not full.
    #[inline(always)]
    pub(super) fn push(&mut self, access: TracedAccess) {
        // The remainder spares a comparison that could fail.
        self.accesses[self.count % BATCH] = access;
        self.count += 1;
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.count >= BATCH
    }

    pub(super) fn filled(&self) -> &[TracedAccess] {
        &self.accesses[..self.count]
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}
