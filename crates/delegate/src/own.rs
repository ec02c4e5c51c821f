//! Calls on the client's own shard that run here and now, without a request line.

use crate::core::{Core, call_back, counters, inner, serve_own};
use crate::inside::Inside;
use crate::job::{Answers, Run};
use crate::lane::{Done, Lane};
use crate::line::WORDS;
use crate::policy::Rules;

/// Runs the line being filled for the own shard, and its callbacks, if nothing that was asked before
/// is on its way there. False if it has to go through request lines.
///
/// # Safety
/// `core` is valid and not borrowed, and `lane` is its lane to `shard`, where requests run here (see
/// [`Core::runs_here`]).
pub(crate) unsafe fn run_own_line(core: *mut Core, lane: *mut Lane) -> bool {
    // SAFETY: the contract. The lane is not borrowed while functions and callbacks run; this thread
    // holds the seat of the shard that the line's requests name values of, and no pass is running.
    unsafe {
        if !(*lane).is_first() || (*lane).is_in_place() {
            return false;
        }
        let mut high = [0; WORDS + 1];
        let done = run_taken(core, lane, &mut high);
        call_back(core, &done);
        (*lane).free(&done);
        count_own_calls(core, done.count());
    }
    true
}

/// Takes the line being filled for the own shard out and runs it; upper halves of answers go to `high`.
///
/// # Safety
/// As for [`run_own_line`], whose questions are answered.
#[inline(always)]
pub(crate) unsafe fn run_taken(
    core: *mut Core,
    lane: *mut Lane,
    high: &mut [u32; WORDS + 1],
) -> Done {
    // SAFETY: the contract. The lane is not borrowed while functions run; this thread holds the seat of
    // the shard that the line's requests name values of, and no pass is running.
    unsafe {
        let filled = (*lane).take_filled();
        let mut failures = Vec::new();
        let flags = {
            let _inside = Inside::function();
            let mut run = Run {
                base: (*core).own_base,
                operand: filled.operation.operand,
                captured: filled.operation.captured,
                high: high.as_mut_ptr(),
                failures: &mut failures,
            };
            ((*filled.operation.kind).run)(&mut run, filled.words, filled.count)
        };
        (*lane).count_run_here();
        let words = filled.words;
        filled.answered(Answers {
            words,
            high: high.as_ptr(),
            flags,
            failures,
        })
    }
}

/// Counts calls on the own shard that ran here, and looks at what others ask if it is time.
///
/// # Safety
/// `core` is valid and not borrowed.
#[inline(always)]
pub(crate) unsafe fn count_own_calls(core: *mut Core, calls: usize) {
    // SAFETY: the contract.
    unsafe {
        counters(core).local.add(calls as u64);
        after_own_calls(core, calls as u32);
    }
}

/// Called after calls on the own shard that ran here: looks at what others ask, as the policy says.
///
/// # Safety
/// `core` is valid and not borrowed.
#[inline(always)]
pub(crate) unsafe fn after_own_calls(core: *mut Core, calls: u32) {
    // SAFETY: the contract.
    unsafe {
        (*core).own_calls = (*core).own_calls.saturating_sub(calls);
        let rung = (*core).rules.is_some_and(|rules| rules.bell)
            && inner(core).shards[(*core).seat].bell.is_rung();
        if (*core).own_calls == 0 || rung {
            (*core).own_calls = Rules::own_calls((*core).rules.as_ref());
            serve_own(core);
        }
    }
}
