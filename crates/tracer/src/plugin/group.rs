//! In which order the threads of this process are, and how their clocks go there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::process;
use crate::region::{JOINT, Turn};

/// Whether this process is in the order of all that may have memory in common.
pub(super) static IS_JOINT: AtomicBool = AtomicBool::new(false);

/// From what threads of this process have counted to their clocks, in quarters of accesses, modulo 2^64.
pub(super) static SHIFT: AtomicU64 = AtomicU64::new(0);

/// From the quarters of accesses that a thread of this process has made to its clock.
#[inline(always)]
pub(super) fn shift() -> u64 {
    SHIFT.load(Ordering::Relaxed)
}

/// The order in which the threads of this process are.
pub(super) fn group() -> u32 {
    match IS_JOINT.load(Ordering::SeqCst) {
        true => JOINT,
        false => process::current().map_or(0, |it| it.image.load(Ordering::Relaxed)),
    }
}

/// A thread of this process, which stands still, is in the order in which its process is.
pub(super) fn adopts(turn: &Turn) {
    let (Some(process), JOINT) = (process::current(), group()) else {
        return;
    };
    let mine = turn.image.load(Ordering::Relaxed) == process.image.load(Ordering::Relaxed);
    if !mine || turn.group.swap(JOINT, Ordering::SeqCst) == JOINT {
        return;
    }
    let time = &process.region.header().joint;
    let before = time.serial.fetch_add(1, Ordering::SeqCst);
    turn.serial.store(before + 1, Ordering::Relaxed);
    for clock in [&turn.asked_at, &turn.asked_until, &turn.asked_before] {
        clock.fetch_add(shift(), Ordering::Relaxed);
    }
    turn.set_clock(turn.clock.load(Ordering::Relaxed).wrapping_add(shift()));
    time.version.fetch_add(1, Ordering::SeqCst);
}
