//! The header of a ring, as it lies in the memory.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// One ring. The writer's, the reader's and everybody's words are on lines of their own, two apart,
/// since processors fetch lines in pairs.
#[repr(C, align(128))]
pub(crate) struct RingHeader {
    pub(crate) head: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// Loads, stores and updates of the thread so far, told or not, in quarters.
    pub(crate) quarters: [AtomicU64; 3],
    /// Lines that it was the first to touch, and had for itself.
    pub(crate) first_touches: AtomicU64,
    /// See [`Ring::owner`](super::Ring::owner).
    pub(crate) owner: AtomicU32,
    _writer: [u32; 17],
    pub(crate) tail: AtomicU64,
    pub(crate) waiting: AtomicU32,
    _reader: [u32; 29],
    pub(crate) state: AtomicU32,
    pub(crate) kind: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) tid: AtomicU32,
    /// The address space: numbered from 0, a new one for each fork and exec.
    pub(crate) image: AtomicU32,
    /// The image that it was forked from, or its own number.
    pub(crate) parent: AtomicU32,
    pub(crate) opened: AtomicU64,
    /// The inode of the writer's namespace of process ids; 0 if it could not tell.
    pub(crate) namespace: AtomicU64,
}

pub(super) const FREE: u32 = 0;
pub(super) const CLAIMED: u32 = 1;
pub(crate) const OPEN: u32 = 2;
pub(super) const CLOSED: u32 = 3;

/// What is in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// The accesses and events of a thread.
    Thread,
    /// The definitions of a process.
    Process,
}
