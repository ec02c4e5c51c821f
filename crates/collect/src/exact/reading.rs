//! How far one ring is read.

use linewise_tracer::{Ring, RingKind, words};

/// What is read from one ring.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) ring: Ring,
    pub(super) kind: RingKind,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// When the process of this id started, if that could be seen.
    pub(super) started: Option<u64>,
    pub(super) image: u32,
    pub(super) thread: u16,
    pub(super) position: u64,
    pub(super) freed: u64,
    pub(super) head: u64,
    pub(super) closed: bool,
    /// The bank of the last mark.
    pub(super) bank: u32,
    pub(super) stamp: u64,
    /// The time of the accesses handed out last.
    pub(super) time_ns: u64,
    /// The stamp of the last mark lies before what was handed out already.
    pub(super) late: bool,
    pub(super) late_from: u64,
    /// Words that are freed at a time.
    pub(super) quantum: u64,
    /// Number of its address space, in its place in an address.
    pub(super) space: u64,
    /// That of the one that it was forked from, or its own.
    pub(super) parent: u16,
    pub(super) accesses: u64,
    /// Accesses that are not told, since the last that is.
    pub(super) untold: u32,
    /// The last that is told is that its program is replaced by one that will be traced.
    pub(super) replaced: bool,
}

impl Reading {
    /// Notes how far the ring is written. `false` if it is as nobody who follows the rules writes it: what is in it is
    /// passed over.
    pub(super) fn look(&mut self) -> bool {
        let written = self.ring.written(self.freed);
        self.head = written.unwrap_or_else(|head| head);
        if written.is_err() {
            self.position = self.head;
            self.freed = self.head;
            self.ring.free(self.head);
        }
        written.is_ok()
    }

    /// The stamp of what comes next, the last mark's unless it is one. `None` if nothing is
    /// there.
    pub(super) fn next_stamp(&self) -> Option<u64> {
        if self.kind != RingKind::Thread || self.position >= self.head {
            return None;
        }
        let word = self.ring.word(self.position);
        Some(match words::tag(word) {
            words::MARK => words::mark_stamp(word, self.stamp),
            words::FAR_MARK | words::EVENT => self.ring.word(self.position + 1),
            _ => self.stamp,
        })
    }
}
