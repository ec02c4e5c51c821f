//! What a client is made of, behind its safe face: lanes, the seat, and how it waits.
//!
//! Everything here works on a raw pointer to the core: callbacks run in the middle of it and may make
//! further requests of the same client, so no reference to the core or a lane is held across them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::channel::Channel;
use crate::domain::{Inner, Ordered};
use crate::error::Error;
use crate::fibre;
use crate::flat::{self, Rules};
use crate::inside::{Inside, is_nested, is_serving};
use crate::lane::{Done, Lane, Sort};
use crate::own::{own_calls, run_own_line};
use crate::panics::{Payload, discard, keep_first};
use crate::shard::{Shard, token};
use crate::stats::ClientCounters;
use crate::wait::{LONGEST_NAP, Ladder, Parker};

/// No own shard, or none asked yet.
pub(crate) const NONE: usize = usize::MAX;

pub(crate) struct Core {
    pub(crate) inner: Arc<Inner>,
    lanes: *mut Lane,
    count: usize,
    /// The shard whose seat this client holds, or [`NONE`].
    pub(crate) seat: usize,
    /// The shard whose calls run inline, or [`NONE`].
    pub(crate) inline_seat: usize,
    pub(crate) own_base: *mut u8,
    pub(crate) rules: Option<Rules>,
    /// Own calls left until the next look at what others ask.
    pub(crate) own_calls: u32,
    pub(crate) strict: bool,
    last_shard: usize,
    most_pending: usize,
    pub(crate) opens: u32,
    /// Operations that were prepared so far.
    pub(crate) prepared: u64,
    parker: Arc<Parker>,
    pub(crate) counters: Arc<ClientCounters>,
    /// Its place in the domain's accounts.
    number: usize,
    /// How the wait that goes on has waited so far.
    pub(crate) ladder: Ladder,
    /// The longest that the next sleep may take.
    nap: Duration,
    /// What a callback threw, until a call of the user's can throw it on.
    pub(crate) thrown: Option<Payload>,
}

/// The domain of a core.
///
/// # Safety
/// `core` is valid for `'a`; the field is never replaced.
#[inline(always)]
pub(crate) unsafe fn inner<'a>(core: *mut Core) -> &'a Arc<Inner> {
    // SAFETY: the contract.
    unsafe { &(*core).inner }
}

/// The counters of a core.
///
/// # Safety
/// As for [`inner`].
#[inline(always)]
pub(crate) unsafe fn counters<'a>(core: *mut Core) -> &'a ClientCounters {
    // SAFETY: the contract.
    unsafe { &(*core).counters }
}

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

impl Core {
    /// Joins the domain: channels to every shard, and in a flat domain a seat.
    pub(crate) fn join(inner: &Arc<Inner>, wanted: Option<usize>) -> Result<Self, Error> {
        inner.gate.check()?;
        if is_serving() {
            return Err(Error::Nested);
        }
        let rules = inner.settings.flat;
        let seat = match rules {
            Some(_) => take_seat(inner, wanted)?,
            None => NONE,
        };
        let parker = match inner.shards.get(seat) {
            Some(shard) => shard.parker.clone(),
            None => Arc::new(Parker::new()),
        };
        let settings = &inner.settings;
        let lanes: Box<[Lane]> = inner
            .shards
            .iter()
            .map(|shard| {
                let channel = Arc::new(Channel::new(settings.lines, parker.clone()));
                shard.register(channel.clone());
                Lane::new(channel, settings.timed)
            })
            .collect();
        let counters = Arc::new(ClientCounters::default());
        let number = inner.open_account(counters.clone());
        Ok(Self {
            count: lanes.len(),
            lanes: Box::into_raw(lanes).cast(),
            seat,
            inline_seat: if rules.is_some_and(|rules| rules.inline_own) {
                seat
            } else {
                NONE
            },
            own_base: inner
                .shards
                .get(seat)
                .map_or(std::ptr::null_mut(), |shard| shard.base()),
            rules,
            own_calls: own_calls(rules.as_ref()),
            strict: settings.ordered == Ordered::Client,
            last_shard: NONE,
            most_pending: settings.pending,
            opens: 0,
            prepared: 0,
            parker,
            counters,
            number,
            ladder: Ladder::new(),
            nap: LONGEST_NAP,
            thrown: None,
            inner: inner.clone(),
        })
    }

    /// The lane to `shard`, which the domain has.
    #[inline(always)]
    pub(crate) fn lane(&self, shard: usize) -> *mut Lane {
        debug_assert!(shard < self.count);
        self.lanes.wrapping_add(shard)
    }

    #[inline(always)]
    pub(crate) fn lanes(&self) -> *mut Lane {
        self.lanes
    }

    /// Whether requests to this shard are run by this client, here and now: it is the own one, and no
    /// delegated function or callback is running.
    #[inline(always)]
    pub(crate) fn runs_here(&self, shard: usize) -> bool {
        shard == self.inline_seat && !is_nested()
    }

    /// Whether a request to `shard` goes into a line without a wait before.
    pub(crate) fn has_room(&self, shard: usize) -> bool {
        // SAFETY: the lanes live as long as the core, and nobody changes them while this looks.
        let (lane, last) = unsafe {
            let last = self.last_shard;
            let alone = !self.strict || last == shard || last == NONE;
            (&*self.lane(shard), (!alone).then(|| &*self.lane(last)))
        };
        last.is_none_or(Lane::is_quiet) && lane.has_room(self.most_pending)
    }

    /// Refuses a call that would wait where waiting cannot end.
    pub(crate) fn may_wait(&self) -> Result<(), Error> {
        if is_nested() {
            return Err(Error::Nested);
        }
        // Nobody would answer in a child of fork; what was asked before a shutdown is answered.
        self.inner.gate.check_forked()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let lanes = std::ptr::slice_from_raw_parts_mut(self.lanes, self.count);
        // SAFETY: made by `Box::into_raw` in `join`, and the pointers to it end here.
        drop(unsafe { Box::from_raw(lanes) });
        if let Some(payload) = self.thrown.take() {
            discard(payload);
        }
    }
}

fn take_seat(inner: &Inner, wanted: Option<usize>) -> Result<usize, Error> {
    let take = |shard: &usize| {
        // A passer-by who serves for a moment is waited for; a client that sits is not.
        (0..100).any(|attempt| {
            if attempt > 0 {
                std::thread::yield_now();
            }
            inner.shards[*shard].seat.try_take(token())
        })
    };
    match wanted {
        Some(shard) => Some(shard).filter(take),
        None => {
            let free = |shard: &usize| inner.shards[*shard].seat.try_take(token());
            let mut shards = 0..inner.shards.len();
            shards
                .find(free)
                .or_else(|| (0..inner.shards.len()).find(take))
        }
    }
    .ok_or(Error::NoSeat)
}

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

/// Runs the callbacks of a line, and gives its share in a common one back.
///
/// # Safety
/// `core` is valid and not borrowed, and this is the line's only time.
#[inline(always)]
pub(crate) unsafe fn call_back(core: *mut Core, done: &Done) {
    // SAFETY: the contract.
    unsafe {
        call_back_by(core, |next| done.give(next));
        release(core, done);
    }
}

/// Runs callbacks, from the index in the cell on, by `complete`; again where one throws.
///
/// # Safety
/// `core` is valid and not borrowed.
#[inline(always)]
pub(crate) unsafe fn call_back_by(core: *mut Core, complete: impl Fn(&Cell<usize>)) {
    let next = Cell::new(0);
    // SAFETY: the contract.
    unsafe {
        let _inside = Inside::callback();
        loop {
            let Err(payload) = catch_unwind(AssertUnwindSafe(|| complete(&next))) else {
                return;
            };
            keep_first(&mut (*core).thrown, payload);
        }
    }
}

/// Gives a line's share in its common callback back, if it has one. What its destructor throws is
/// thrown on later.
///
/// # Safety
/// `core` is valid and not borrowed, and this is the line's only time.
#[inline(always)]
pub(crate) unsafe fn release(core: *mut Core, done: &Done) {
    if !done.has_share() {
        return;
    }
    let _inside = Inside::callback();
    // SAFETY: the contract.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { done.release() })) {
        // SAFETY: the contract; no other reference to the field is held.
        keep_first(unsafe { &mut (*core).thrown }, payload);
    }
}

/// Throws on what a callback threw.
///
/// # Safety
/// `core` is valid and not borrowed.
pub(crate) unsafe fn rethrow(core: *mut Core) {
    // SAFETY: the contract.
    let thrown = unsafe { (*core).thrown.take() };
    if let Some(payload) = thrown {
        resume_unwind(payload);
    }
}

/// Serves what this client's seat is asked. True if something was done.
///
/// # Safety
/// `core` is valid and not borrowed.
pub(crate) unsafe fn serve_own(core: *mut Core) -> bool {
    // SAFETY: the contract; the client holds the seat, and no pass is running, as the mark of
    // the thread says.
    unsafe {
        if (*core).seat == NONE || is_nested() {
            return false;
        }
        let shard: *const Shard = &*inner(core).shards[(*core).seat];
        (*shard).pass()
    }
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
        // After everything that may run functions or callbacks the lane is looked at anew: they may
        // have begun a line.
        loop {
            let runs_here = (*core).runs_here(shard);
            if (*lane).is_filling() {
                if !(runs_here && run_own_line(core, lane)) {
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

/// Whether nothing is being filled, waits or flies to `shard`.
///
/// # Safety
/// `core` is valid and not borrowed.
pub(crate) unsafe fn is_quiet(core: *mut Core, shard: usize) -> bool {
    // SAFETY: the contract.
    unsafe { (*(*core).lane(shard)).is_quiet() }
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
            let mut quiet = true;
            for shard in 0..(*core).count {
                worked |= exchange(core, shard, true);
                quiet &= is_quiet(core, shard);
            }
            if quiet {
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

/// With [`Ordered::Client`]: waits for what was asked of another shard.
///
/// # Safety
/// `core` is valid and not borrowed.
#[cold]
pub(crate) unsafe fn keep_order(core: *mut Core, shard: usize) -> Result<(), Error> {
    // SAFETY: the contract.
    unsafe {
        let last = std::mem::replace(&mut (*core).last_shard, shard);
        if last == shard || last == NONE || is_quiet(core, last) {
            return Ok(());
        }
        if let Err(error) = (*core).may_wait() {
            (*core).last_shard = last;
            return Err(error);
        }
        while !is_quiet(core, last) {
            if !exchange(core, last, true) {
                wait(core, Until::Lane(last));
            }
        }
        (*core).ladder.reset();
        Ok(())
    }
}

/// One step of waiting: serves what this thread may serve, else spins, yields or sleeps.
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
        if fibre::give_way(core) {
            return;
        }
        let sleep = (*core).ladder.step();
        let slow = (*core).ladder.is_slow();
        let free = |shard: usize| inner(core).shards[shard].seat.is_free();
        let alone = match until {
            Until::Lane(shard) => free(shard),
            Until::Any => (0..(*core).count).any(|shard| free(shard) && !is_quiet(core, shard)),
        };
        if slow || alone {
            wait_slowly(core, until, sleep);
        }
    }
}

/// The same, for not much longer than `nap`. Where other fibres run meanwhile, they come back in that time.
///
/// # Safety
/// As for [`wait`].
pub(crate) unsafe fn wait_at_most(core: *mut Core, until: Until, nap: Duration) {
    // SAFETY: the contract.
    unsafe {
        (*core).nap = (*core).nap.min(nap);
        wait(core, until);
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
    // SAFETY: as for the caller; the shards outlive the call.
    unsafe {
        let domain = inner(core).clone();
        let nap = &raw mut (*core).nap;
        let asked = |shard: usize| match until {
            Until::Lane(one) => one == shard,
            Until::Any => !is_quiet(core, shard),
        };
        let mut worked = false;
        if flat::sitting() > usize::from((*core).seat != NONE) {
            worked |= flat::serve_sitting();
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
        if !sleep || flat::sitting() > usize::from((*core).seat != NONE) {
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

/// Gives the client up where it must not wait: sends what request lines are free for. Nobody collects
/// the answers, and the memory is kept, since servers write there. Its shard is served where this
/// thread waits, until the thread ends and leaves the seat.
///
/// # Safety
/// `core` is valid and not borrowed, and not used again.
#[cold]
pub(crate) unsafe fn give_up(core: *mut Core) {
    // SAFETY: the contract; nothing here calls back.
    unsafe {
        if inner(core).gate.check_process().is_err() {
            return;
        }
        flush(core);
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
            channel.left.store(true, crate::sync::Ordering::Release);
            shard.unregister(channel);
        }
        flat::stand(core);
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
