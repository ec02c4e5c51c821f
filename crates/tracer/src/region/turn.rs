//! A thread in the order that is made, of all processes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::futex::futex_wake;
use super::naming::{pid_namespace, started};

/// Nobody has this place.
pub(super) const NONE: u32 = 0;
/// The thread executes the program.
pub(crate) const RUNS: u32 = 1;
/// It is in a system call that waits for nobody.
pub(crate) const CALLS: u32 = 2;
/// It may wait for others.
pub(crate) const RESTS: u32 = 3;
/// Somebody is about to fill the place.
pub(super) const CLAIMED: u32 = 4;

/// The [group](Turn::group) of all processes that may have memory in common.
pub(crate) const JOINT: u32 = u32::MAX;

/// What the threads of one order have in common.
#[repr(C)]
pub(crate) struct Time {
    /// Threads that came into it so far.
    pub(crate) serial: AtomicU64,
    /// The end of the epoch in which the first of them are, and of the last in which one asked for a line.
    pub(crate) epoch_end: AtomicU64,
    pub(crate) last_request: AtomicU64,
    /// Changes when a thread comes into the order.
    pub(crate) version: AtomicU32,
}

impl Time {
    pub(crate) const fn new() -> Self {
        Self {
            serial: AtomicU64::new(0),
            epoch_end: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
            version: AtomicU32::new(0),
        }
    }
}

/// A thread in the order.
#[repr(C, align(128))]
pub(crate) struct Turn {
    /// The quarters of accesses that it made or let pass.
    pub(crate) clock: AtomicU64,
    /// There it looks up: an epoch ends, or somebody waits for that.
    pub(crate) until: AtomicU64,
    pub(crate) epoch_end: AtomicU64,
    /// Others were seen to have come so far, and so has it without looking.
    pub(crate) limit: AtomicU64,
    /// Threads by the order in which they were made, from 1.
    pub(crate) serial: AtomicU64,
    pub(crate) state: AtomicU32,
    /// Threads with the same number wait for each other: the image of their process, or [`JOINT`].
    pub(crate) group: AtomicU32,
    /// It waits for the end of the epoch to take a line.
    pub(crate) requests: AtomicU32,
    /// The CPU that it was last seen on.
    pub(crate) on: AtomicU32,
    /// Where it last began to wait for that, where that ended, and where it did so before.
    pub(crate) asked_at: AtomicU64,
    pub(crate) asked_until: AtomicU64,
    pub(crate) asked_before: AtomicU64,
    /// Who waits for it waits until its clock has come to this, the least of what they want.
    pub(crate) wake_at: AtomicU64,
    /// Counts what may let somebody go on.
    pub(crate) news: AtomicU32,
    pub(crate) sleepers: AtomicU32,
    /// It sleeps until another gets on.
    pub(crate) dozes: AtomicU32,
    /// The number under which it has lines for itself.
    pub(crate) owner: AtomicU32,
    /// QEMU's own name for it, in its process.
    pub(crate) cpu: AtomicPtr<c_void>,
    pub(crate) image: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) tid: AtomicU32,
    /// See [`crate::plugin`]'s `sleep`: whether it waits on a futex.
    pub(crate) sleep: AtomicU32,
    /// On which, at which address of its process, from which clock on, while the word has which value, for wakes with one of which
    /// bits.
    pub(crate) futex: [AtomicU64; 3],
    pub(crate) address: AtomicU64,
    pub(crate) since: AtomicU64,
    pub(crate) expected: AtomicU32,
    pub(crate) bits: AtomicU32,
    /// The namespace of its process's ids.
    pub(super) namespace: AtomicU64,
}

impl Turn {
    /// Something happened that others may wait for.
    pub(crate) fn tell(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            futex_wake(&self.news);
        }
    }

    /// It is in the order no longer.
    pub(crate) fn leaves(&self) {
        if !matches!(self.state.load(Ordering::SeqCst), NONE | CLAIMED) {
            self.state.store(NONE, Ordering::SeqCst);
            self.tell();
        }
    }

    /// Whether its process is there no longer, as far as that can be seen from here.
    pub(crate) fn is_gone(&self) -> bool {
        self.namespace.load(Ordering::Relaxed) == pid_namespace()
            && started(self.pid.load(Ordering::Relaxed)).is_none()
    }
}
