//! Processes that may have memory in common are in one order: those that map what is for all to see, and those that fork when they
//! have any. Whoever else comes into an order is in one of its process's own, so that programs which have nothing to do with each
//! other do not wait for each other.
//!
//! The first process that comes here brings its clock. A later one begins where the last of those that run is, and all its threads
//! with it: what they have counted so far is shifted by that. A child of fork begins at its maker's clock.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::group::{IS_JOINT, SHIFT, adopts, group};
use super::order::{self, ACCESS, CHANGING, SHORTEST, in_group, own_turns};
use super::process;
use super::qemu::{current_cpu, executing, is_not_alone};
use crate::region::{CALLS, JOINT, RUNS, Turn, futex_wake};

thread_local! {
    /// While this thread forks: its virtual CPU, its clock, and the child's thread if that is in the joint order.
    static FORKING: Cell<Option<(u32, u64, Option<&'static Turn>)>> = const { Cell::new(None) };
}

/// The process of a thread with this clock is in the joint order from here on; the clock there.
fn enter_at(clock: u64) -> u64 {
    let Some(process) = process::current() else {
        return clock;
    };
    let time = &process.region.header().joint;
    let clocks = in_group(JOINT).map(|turn| turn.clock.load(Ordering::Acquire));
    let at = match clocks.min() {
        Some(least) => {
            // When it comes is the machine's.
            order::comes_by_the_kernel();
            least
        }
        None => {
            let at = clock.max(time.epoch_end.load(Ordering::SeqCst));
            time.epoch_end.store(at + SHORTEST, Ordering::SeqCst);
            at
        }
    };
    SHIFT.store(at.wrapping_sub(clock), Ordering::Relaxed);
    IS_JOINT.store(true, Ordering::SeqCst);
    at
}

/// The process of this thread may have memory in common with others. In a system call; `turn` is the thread's if that is in an
/// order, `clock` its clock.
pub(super) fn joins(vcpu: u32, turn: Option<&'static Turn>, clock: u64) {
    if IS_JOINT.load(Ordering::SeqCst) {
        return;
    }
    match turn {
        Some(turn) => {
            turn.takes_turn(false);
            turn.changes_order();
        }
        None => {
            order::begin(vcpu, JOINT, enter_at(clock));
            // What is translated does not ask for its turn.
            if order::is_on()
                && let Some(qemu) = executing()
            {
                // SAFETY: QEMU's function with its name for this thread, which executes no block and is the only one.
                unsafe { (qemu.flush)(current_cpu()) };
            }
        }
    }
}

impl Turn {
    /// Has all threads of this process change to the joint order, at this one's turn: at the end of their epoch, where nobody goes on.
    fn changes_order(&self) {
        if CHANGING.swap(true, Ordering::SeqCst) {
            return;
        }
        let end = self.epoch_end.load(Ordering::Relaxed);
        self.clock.store(end, Ordering::SeqCst);
        self.tell();
        self.waits_for_end(end, false);
        enter_at(end);
        let runs = |turn: &&Turn| matches!(turn.state.load(Ordering::SeqCst), RUNS | CALLS);
        let mut running: Vec<_> = own_turns().filter(runs).collect();
        running.sort_by_key(|turn| turn.serial.load(Ordering::Relaxed));
        running.into_iter().for_each(adopts);
        CHANGING.store(false, Ordering::SeqCst);
        own_turns().for_each(|turn| futex_wake(&turn.news));
    }
}

/// A thread with this clock is about to fork, at its turn.
pub(super) fn forks(vcpu: u32, clock: u64) {
    if !order::is_on() {
        return;
    }
    let made = (group() == JOINT).then(|| order::make(JOINT, clock + ACCESS));
    FORKING.set(Some((vcpu, clock, made.flatten())));
}

/// It has, or this is the child, or there is none: the call's result.
pub(super) fn forked(result: i64) {
    if let Some((_, _, Some(turn))) = FORKING.take()
        && result < 0
    {
        turn.leaves();
    }
    if result == 0 {
        is_not_alone();
    }
}

/// In a child of fork, which has one thread.
pub(super) fn forget() {
    order::forget();
    let (Some((vcpu, clock, made)), Some(process)) = (FORKING.take(), process::current()) else {
        return;
    };
    let Some(turn) = made.or_else(|| order::make(group(), clock + ACCESS)) else {
        return;
    };
    let image = process.image.load(Ordering::Relaxed);
    turn.image.store(image, Ordering::Relaxed);
    turn.pid.store(std::process::id(), Ordering::Relaxed);
    order::has_place(vcpu, turn);
}
