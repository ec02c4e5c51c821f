//! What a client and its shards exchange: lines begun, sent and collected, waiting for them, and leaving.

use std::sync::Arc;

use linewise_fibres::hosted;

use crate::core::{Core, NONE, call_back, counters, inner, rethrow, serve_own};
use crate::error::Error;
use crate::inside::is_nested;
use crate::lane::{Lane, Sort};
use crate::own::run_own_line;
use crate::sitting;
use crate::sync::Ordering;
use crate::wait::LONGEST_NAP;

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The oldest line of one lane.
    Lane(usize),
    /// A line of any lane.
    Any,
}

/// Own shard passes between two rounds of request lines (policy queue).
pub(crate) const OPENS_PER_PASS: u32 = 8;

/// Closes the line being filled and tells the server if it was sent.
///
/// # Safety
/// `core` is valid, and `lane` is its lane to `shard` with a line being filled.
#[inline(always)]
pub(crate) unsafe fn close(core: *mut Core, lane: *mut Lane, shard: usize) {
    // SAFETY: the contract; nothing here calls back.
    unsafe {
        if (*lane).close() {
            inner(core).shards[shard].parker.wake_if_asleep();
        }
    }
}

/// Gives the answers of the oldest line of `lane` to their callbacks, if it came back.
///
/// # Safety
/// `core` is valid, `lane` is one of its lanes, and the caller holds no reference into either.
unsafe fn collect(core: *mut Core, lane: *mut Lane) -> bool {
    // SAFETY: the contract; the lane is not borrowed while callbacks run.
    unsafe {
        let Some(done) = (*lane).collect(counters(core)) else {
            return false;
        };
        call_back(core, &done);
        (*lane).settle(&done);
    }
    true
}

/// Begins a line to `shard` for requests of this sort, when the one being filled does not take them.
///
/// # Safety
/// `core` is valid and not borrowed.
#[inline(never)]
pub(crate) unsafe fn open(core: *mut Core, shard: usize, sort: &Sort) {
    // SAFETY: the contract; what calls back gets no reference of ours.
    unsafe {
        let lane = (*core).lane(shard);
        let mut served = false;
        let mut settled = false;
        let mut counted = false;
        let mut ran = false;
        // After everything that may run functions or callbacks the lane is looked at anew: they may
        // have begun a line.
        loop {
            // Or have asked another shard. (In a callback nothing runs here, so this is not refused.)
            if (*core).strict && (*core).last_shard != shard {
                let _ = keep_order(core, shard);
            }
            let runs_here = (*core).runs_here(shard);
            if (*lane).is_filling() {
                // Once: callbacks that always ask further would have it go on for ever.
                if !(runs_here && !std::mem::replace(&mut ran, true) && run_own_line(core, lane)) {
                    close(core, lane, shard);
                }
                continue;
            }
            if is_nested() {
                (*lane).open(sort, false);
                return;
            }
            if runs_here && !sort.common.is_null() {
                if (*lane).is_idle() {
                    (*lane).open(sort, false);
                    break;
                }
                // What went through request lines comes first; who answers it is this thread.
                if !settled {
                    settled = true;
                    serve_own(core);
                    exchange(core, shard, false);
                    continue;
                }
            }
            if !served {
                served = true;
                (*core).opens = (*core).opens.wrapping_add(1);
                if let Some(rules) = (*core).rules
                    && ((rules.serve_first && (*core).opens.is_multiple_of(OPENS_PER_PASS))
                        || (rules.bell && inner(core).shards[(*core).seat].bell.is_rung()))
                {
                    serve_own(core);
                    continue;
                }
            }
            let waits = (*lane).pending() > 0;
            if waits && (*lane).send_pending(counters(core)) {
                inner(core).shards[shard].parker.wake_if_asleep();
                continue;
            }
            if !waits && (*lane).has_free_line() {
                (*lane).open(sort, true);
                break;
            }
            if collect(core, lane) {
                continue;
            }
            if (*lane).pending() < (*core).most_pending {
                // Blocked on request lines only: serve, since the answer may wait for us in turn.
                if (*core).seat != NONE && serve_own(core) {
                    continue;
                }
                (*lane).open(sort, false);
                break;
            }
            if !counted {
                counted = true;
                counters(core).blocked.add(1);
            }
            wait(core, Until::Lane(shard));
        }
        (*core).ladder.reset();
        rethrow(core);
    }
}

/// Sends what is in the lanes as far as request lines are free, and takes what has come back. True
/// if something was done.
///
/// # Safety
/// `core` is valid and not borrowed, and the caller may wait.
pub(crate) unsafe fn exchange(core: *mut Core, shard: usize, send_open: bool) -> bool {
    // SAFETY: the contract.
    unsafe {
        let lane = (*core).lane(shard);
        let mut worked = false;
        if send_open && (*lane).is_filling() {
            if !((*core).runs_here(shard) && run_own_line(core, lane)) {
                close(core, lane, shard);
            }
            worked = true;
        }
        loop {
            let sent = (*lane).pending() > 0 && (*lane).send_pending(counters(core));
            if sent {
                inner(core).shards[shard].parker.wake_if_asleep();
            }
            let collected = collect(core, lane);
            worked |= sent | collected;
            if !sent && !collected {
                return worked;
            }
        }
    }
}

/// Sends everything and takes all answers.
///
/// # Safety
/// `core` is valid and not borrowed, and the caller may wait.
pub(crate) unsafe fn drain(core: *mut Core) {
    // SAFETY: the contract.
    unsafe {
        loop {
            let mut worked = false;
            let mut idle = true;
            for shard in 0..(*core).count {
                worked |= exchange(core, shard, true);
                idle &= (*core).is_idle(shard);
            }
            if idle {
                (*core).ladder.reset();
                return;
            }
            if worked {
                (*core).ladder.reset();
            } else {
                wait(core, Until::Any);
            }
        }
    }
}

/// With [`Ordered::Client`]: waits for what was asked of another shard. Then all lanes but that to `shard`
/// are idle, and stay so while that one is not.
///
/// [`Ordered::Client`]: crate::Ordered::Client
///
/// # Safety
/// `core` is valid and not borrowed.
#[cold]
pub(crate) unsafe fn keep_order(core: *mut Core, shard: usize) -> Result<(), Error> {
    // SAFETY: the contract.
    unsafe {
        // What runs meanwhile may ask: until nothing is on its way, the last shard is the one it went to.
        while !(*core).is_next(shard) {
            (*core).may_wait()?;
            let last = (*core).last_shard;
            if exchange(core, last, true) {
                (*core).ladder.reset();
            } else {
                wait(core, Until::Lane(last));
            }
        }
        (*core).last_shard = shard;
        Ok(())
    }
}

/// One step of waiting: serves what this thread may serve, else spins, yields or sleeps, not much longer than
/// the core's `nap`.
///
/// # Safety
/// `core` is valid and not borrowed, and the caller may wait.
pub(crate) unsafe fn wait(core: *mut Core, until: Until) {
    // SAFETY: the contract.
    unsafe {
        if (*core).seat != NONE && serve_own(core) {
            (*core).ladder.reset();
            return;
        }
        if hosted::give_way(core.cast()) {
            return;
        }
        let sleep = (*core).ladder.step();
        let slow = (*core).ladder.is_slow();
        let free = |shard: usize| inner(core).shards[shard].seat.is_free();
        let alone = match until {
            Until::Lane(shard) => free(shard),
            Until::Any => (0..(*core).count).any(|shard| free(shard) && !(*core).is_idle(shard)),
        };
        if slow || alone {
            wait_slowly(core, until, sleep);
        }
    }
}

/// Waits for the oldest line of a lane, outside fibres: a client without a seat spins first, and looks
/// at nothing but the line.
///
/// # Safety
/// As for [`wait`].
#[inline(always)]
pub(crate) unsafe fn wait_for_line(core: *mut Core, lane: *mut Lane, shard: usize) {
    // SAFETY: the contract.
    unsafe {
        while !(*lane).is_answered() {
            if (*core).seat != NONE || !(*core).ladder.spin() {
                wait(core, Until::Lane(shard));
            }
        }
        (*core).ladder.reset();
    }
}

#[cold]
unsafe fn wait_slowly(core: *mut Core, until: Until, sleep: bool) {
    // SAFETY: the contract of `wait`, which alone calls this; the clone of the domain keeps its shards.
    unsafe {
        let domain = inner(core).clone();
        let nap = &raw mut (*core).nap;
        let asked = |shard: usize| match until {
            Until::Lane(one) => one == shard,
            Until::Any => !(*core).is_idle(shard),
        };
        let mut worked = false;
        if sitting::count() > usize::from((*core).seat != NONE) {
            worked |= sitting::serve();
        }
        for (index, shard) in domain.shards.iter().enumerate() {
            if !asked(index) {
                continue;
            }
            if shard.seat.is_free() {
                worked |= shard.serve_if_free();
            } else if (*core).rules.is_some_and(|rules| rules.bell) {
                shard.ring();
            }
        }
        if worked {
            (*core).ladder.reset();
            return;
        }
        // Who holds several seats is woken by one of them only, and must not sleep.
        if !sleep || sitting::count() > usize::from((*core).seat != NONE) {
            return;
        }
        let parker = Arc::clone(&(*core).parker);
        let nap = nap.replace(LONGEST_NAP);
        parker.sleep_at_most(nap, || {
            let own = (*core).seat != NONE && domain.shards[(*core).seat].has_work();
            own || domain.shards.iter().enumerate().any(|(index, shard)| {
                asked(index) && ((*(*core).lane(index)).is_answered() || shard.seat.is_free())
            })
        });
    }
}

/// Gives the client up where it must not wait: sends what request lines are free for. Nobody collects the
/// answers, and callbacks that wait for them are lost with what they captured. The servers forget its channels when
/// all that was sent is answered. Its shard is served where this thread waits, until the thread ends and leaves
/// the seat; true if it has none, so that nothing names the core any more.
///
/// # Safety
/// `core` is valid and not borrowed, and only freed after this.
#[cold]
pub(crate) unsafe fn give_up(core: *mut Core) -> bool {
    // SAFETY: the contract; nothing here calls back.
    unsafe {
        let domain = inner(core);
        if domain.gate.check_process().is_err() {
            return false;
        }
        flush(core);
        for (index, shard) in domain.shards.iter().enumerate() {
            let lane = (*core).lane(index);
            (*lane).forget_pending();
            let channel = &(*lane).channel;
            channel.left.store(true, Ordering::Release);
            shard.ring();
        }
        domain.close_account((*core).number, counters(core).read());
        (*core).seat == NONE
    }
}

/// Sends what is being filled, as far as request lines are free.
///
/// # Safety
/// `core` is valid and not borrowed.
pub(crate) unsafe fn flush(core: *mut Core) {
    // SAFETY: the contract; nothing here calls back.
    unsafe {
        for shard in 0..(*core).count {
            let lane = (*core).lane(shard);
            if (*lane).is_filling() {
                close(core, lane, shard);
            }
            let mut sent = false;
            while (*lane).pending() > 0 && (*lane).send_pending(counters(core)) {
                sent = true;
            }
            if sent {
                inner(core).shards[shard].parker.wake_if_asleep();
            }
        }
    }
}

/// Leaves the domain: all is answered, the channels are forgotten, the seat is free.
///
/// # Safety
/// `core` is valid and not borrowed, and the caller may wait.
pub(crate) unsafe fn leave(core: *mut Core) {
    // SAFETY: the contract.
    unsafe {
        drain(core);
        let domain = inner(core).clone();
        for (index, shard) in domain.shards.iter().enumerate() {
            let channel = &(*(*core).lane(index)).channel;
            channel.left.store(true, Ordering::Release);
            shard.unregister(channel);
        }
        sitting::stand(core.cast());
        leave_seat(core);
        domain.close_account((*core).number, counters(core).read());
    }
}

/// Leaves the seat, if this client has one, after a last pass. It goes on without.
///
/// # Safety
/// `core` is valid and not borrowed, and the caller is inside neither a delegated function nor a callback.
unsafe fn leave_seat(core: *mut Core) {
    // SAFETY: the contract; whoever has a seat number holds the seat.
    unsafe {
        let domain = inner(core).clone();
        let Some(shard) = domain.shards.get((*core).seat) else {
            return;
        };
        if domain.gate.is_open() {
            shard.pass();
        } else {
            shard.seal();
        }
        (*core).seat = NONE;
        (*core).inline_seat = NONE;
        (*core).rules = None;
        shard.leave();
    }
}

/// The thread of a client that did not leave ends: leaves its seat.
///
/// # Safety
/// As for [`leave_seat`].
pub(crate) unsafe fn vacate(core: *mut Core) {
    // SAFETY: the contract.
    unsafe {
        // Another thread of the parent may have held the shard's locks.
        if inner(core).gate.check_process().is_ok() {
            leave_seat(core);
        }
    }
}

/// Runs the line being filled for the own shard, so that a call can run inline after it. False if
/// something is still on its way.
///
/// # Safety
/// As for [`run_own_line`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn settle_own(core: *mut Core, lane: *mut Lane) -> bool {
    // SAFETY: the contract.
    unsafe {
        let mut ran = run_own_line(core, lane);
        // What ran may have asked another shard, which comes first then.
        if ran && (*core).strict {
            ran = keep_order(core, (*core).inline_seat).is_ok();
        }
        rethrow(core);
        ran && (*lane).is_idle()
    }
}
