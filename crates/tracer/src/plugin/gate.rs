//! Where a new thread waits until the one that made it rests.
//!
//! A thread of some hundred thousand accesses may have ended before the machine lets its maker make the next
//! one. Two threads that would work beside each other would be observed one after the other, and since their
//! atomic accesses at beginning and end keep the order observed, at equal rate as well. So a new thread makes
//! its first system call, which is one of the first things that it does, when its maker waits for something,
//! has ended, or has gone on for [`AHEAD`] accesses. Not all that a maker does is seen, so it waits no longer than
//! [`PATIENCE`] of its maker's time on a CPU, and no longer than [`LIMIT`] where that does not come to one.
//!
//! Not at its first access: there QEMU takes it for running, and a maker that wants to be alone for a
//! moment, as after the first thread that it makes, would wait for it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::process;
use crate::region::{OPEN, RingHeader, futex_wait, futex_wake};

/// So far a maker gets ahead of the threads that it makes: enough to make a hundred of them.
const AHEAD: u64 = 1 << 18;
/// So long a thread waits at most, by its maker's CPU time, and in all.
const PATIENCE: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(1);
/// So often it looks how far its maker is.
const LOOK: Duration = Duration::from_millis(2);

/// The ring of the thread that last made another.
static MAKER: AtomicPtr<RingHeader> = AtomicPtr::new(ptr::null_mut());
/// Counts what may let somebody pass.
static NEWS: AtomicU32 = AtomicU32::new(0);
/// Threads at the gate.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Accesses of a ring's thread so far: those that are told have a word, the others are counted.
fn progress(ring: &RingHeader) -> u64 {
    let counted: u64 = ring
        .quarters
        .iter()
        .map(|count| count.load(Ordering::Relaxed) / 4)
        .sum();
    counted.max(ring.head.load(Ordering::Relaxed))
}

/// The CPU time of a ring's thread, ns; `None` if it is gone.
fn cpu_time_ns(ring: &RingHeader) -> Option<u64> {
    // linux/posix-timers.h: CPUCLOCK_SCHED of a thread of this process.
    let clock = !(ring.tid.load(Ordering::Relaxed) as libc::clockid_t) << 3 | 6;
    process::time_ns(clock)
}

/// The thread of this ring makes another.
pub(super) fn makes(ring: *const RingHeader) {
    MAKER.store(ring.cast_mut(), Ordering::Release);
}

/// A new process has made nobody yet.
pub(super) fn forget() {
    MAKER.store(ptr::null_mut(), Ordering::Release);
}

/// Some thread rests or ends.
pub(super) fn rests() {
    if WAITING.load(Ordering::SeqCst) != 0 {
        NEWS.fetch_add(1, Ordering::SeqCst);
        futex_wake(&NEWS);
    }
}

/// Lets the new thread of this ring wait for its maker.
pub(super) fn pass(ring: *const RingHeader) {
    let maker = MAKER.load(Ordering::Acquire);
    // SAFETY: null, or set by `makes` to a header in a mapping that is never taken away.
    let Some(maker) = (unsafe { maker.as_ref() }).filter(|maker| !ptr::eq(*maker, ring)) else {
        return;
    };
    WAITING.fetch_add(1, Ordering::SeqCst);
    let (begin, start) = (progress(maker), process::monotonic_ns());
    let worked = cpu_time_ns(maker);
    loop {
        let news = NEWS.load(Ordering::SeqCst);
        let waited = process::monotonic_ns().saturating_sub(start);
        // Its ring may be another thread's by now, which worked less.
        let works = cpu_time_ns(maker).zip(worked);
        if maker.resting.load(Ordering::SeqCst) != 0
            || maker.state.load(Ordering::Acquire) != OPEN
            || progress(maker).saturating_sub(begin) >= AHEAD
            || works.is_none_or(|(now, before)| {
                now.saturating_sub(before) >= PATIENCE.as_nanos() as u64
            })
            || waited >= LIMIT.as_nanos() as u64
            || process::current().is_none_or(process::Process::detached)
        {
            break;
        }
        futex_wait(&NEWS, news, LOOK);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
}
