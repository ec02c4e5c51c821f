//! From a full line to the next of the same sort: the way that most lines go.
//!
//! What [`close`] and [`open`](crate::exchange::open) do for any line, with the questions that have another
//! answer only now and then asked together. The next line takes the record and the share in the common
//! callback of the line that came back, so nothing is freed and taken again.

use crate::core::{Core, call_back, call_back_by, counters, release, rethrow};
use crate::exchange::{OPENS_PER_PASS, close};
use crate::inside::is_nested;
use crate::lane::{Done, Lane, Sort};
use crate::line::WORDS;
use crate::own::{count_own_calls, run_taken};

/// Sends the line being filled, which is full, and begins the next of the same `sort` where that needs
/// neither a wait nor a queue: the ring is full, and its oldest line came back with plain answers for
/// requests of this sort, whose callbacks run. Otherwise the next line is left to
/// [`open`](crate::exchange::open).
///
/// # Safety
/// `core` is valid and not borrowed, and `lane` is its lane to `shard` with a line of this sort being
/// filled.
#[inline(never)]
pub(crate) unsafe fn turn(core: *mut Core, lane: *mut Lane, shard: usize, sort: &Sort) {
    // SAFETY: the contract; the lane is not borrowed while callbacks run.
    unsafe {
        if (*core).runs_here(shard) {
            return turn_own(core, lane, shard, sort);
        }
        // Whether a pass is due before the next line, in a flat domain.
        let serves = (*core).rules.is_some_and(|rules| {
            rules.bell
                || rules.serve_first && (*core).opens.wrapping_add(1).is_multiple_of(OPENS_PER_PASS)
        });
        let goes_on = !serves && (*lane).is_in_place() && !is_nested();
        close(core, lane, shard);
        if !goes_on || (*lane).has_free_line() {
            return;
        }
        let Some(done) = (*lane).collect(counters(core)) else {
            return;
        };
        if give(core, lane, &done, sort) {
            (*core).opens = (*core).opens.wrapping_add(1);
            (*lane).reopen(&done, sort);
        } else {
            (*lane).settle(&done);
            rethrow(core);
        }
    }
}

/// What [`turn`] does for the own shard, where the line is run here.
///
/// # Safety
/// As for [`turn`], and requests to the shard run here.
#[inline(always)]
unsafe fn turn_own(core: *mut Core, lane: *mut Lane, shard: usize, sort: &Sort) {
    // SAFETY: the contract; the lane is not borrowed while functions and callbacks run.
    unsafe {
        if !(*lane).is_first() || (*lane).is_in_place() {
            return close(core, lane, shard);
        }
        let mut high = [0; WORDS + 1];
        let done = run_taken(core, lane, &mut high);
        if give(core, lane, &done, sort) {
            (*lane).refill(&done, sort);
        } else {
            (*lane).free(&done);
        }
        count_own_calls(core, done.count());
        rethrow(core);
    }
}

/// Gives the answers of a line to their callbacks. True if they were plain and for requests of this
/// `sort`, and callbacks have neither thrown nor asked this shard: no line is being filled or waits for room, and
/// the line still has its share in its callback.
///
/// # Safety
/// As for [`turn`], and this is the line's only time.
#[inline(always)]
unsafe fn give(core: *mut Core, lane: *mut Lane, done: &Done, sort: &Sort) -> bool {
    // SAFETY: the contract; the lane is not borrowed while callbacks run.
    unsafe {
        if !done.is_plain(sort) {
            call_back(core, done);
            return false;
        }
        call_back_by(core, |next| done.give(next));
        // Callbacks may have asked, or thrown.
        let quiet = !(*lane).is_filling() && (*lane).pending() == 0 && (*core).thrown.is_none();
        if !quiet {
            release(core, done);
        }
        quiet
    }
}
