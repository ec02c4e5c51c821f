//! The head of a ring as it lies in the region, and how many rings there are.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Rings that there can be at a time: one for each thread that allocates.
pub const RINGS: usize = 1024;

/// Words of a ring, a power of two.
pub const RING_WORDS: usize = 1 << 15;

/// One ring. The writer's, the reader's and everybody's words are two lines apart, since processors
/// fetch lines in pairs.
#[repr(C, align(128))]
pub(crate) struct RingHeader {
    pub(crate) head: AtomicU64,
    /// Ticks that the writer's thread spent in the recorder.
    pub(crate) spent: AtomicU64,
    /// Records that there was no room for.
    pub(crate) lost: AtomicU64,
    /// Marks that there was no room for, and the stamp of the first since one was written; 0: none.
    pub(crate) lost_marks: AtomicU64,
    pub(crate) lost_marks_since: AtomicU64,
    _writer: [u64; 11],
    pub(crate) tail: AtomicU64,
    _reader: [u64; 15],
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) tid: AtomicU32,
    pub(crate) image: AtomicU32,
    pub(crate) parent: AtomicU32,
    pub(crate) layout: AtomicU32,
    pub(crate) opened: AtomicU64,
}
