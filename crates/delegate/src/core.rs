//! What a client is made of, behind its safe face: lanes, the seat, and how it waits.
//!
//! Everything here works on a raw pointer to the core: callbacks run in the middle of it and may make
//! further requests of the same client, so no reference to the core or a lane is held across them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::channel::Channel;
use crate::error::Error;
use crate::inner::{Inner, Ordered};
use crate::inside::{Inside, is_nested, is_serving};
use crate::lane::{Done, Lane};
use crate::panics::{Payload, discard, keep_first};
use crate::policy::Rules;
use crate::shard::{Shard, token};
use crate::sitting;
use crate::stats::ClientCounters;
use crate::wait::{LONGEST_NAP, Ladder, Parker};

/// No own shard, or none asked yet.
pub(crate) const NONE: usize = usize::MAX;

pub(crate) struct Core {
    pub(crate) inner: Arc<Inner>,
    lanes: *mut Lane,
    pub(crate) count: usize,
    /// The shard whose seat this client holds, or [`NONE`].
    pub(crate) seat: usize,
    /// The shard whose calls run inline, or [`NONE`].
    pub(crate) inline_seat: usize,
    pub(crate) own_base: *mut u8,
    pub(crate) rules: Option<Rules>,
    /// Own calls left until the next look at what others ask.
    pub(crate) own_calls: u32,
    pub(crate) strict: bool,
    pub(crate) last_shard: usize,
    pub(crate) most_pending: usize,
    pub(crate) opens: u32,
    /// Operations that were prepared so far.
    pub(crate) prepared: u64,
    pub(crate) parker: Arc<Parker>,
    pub(crate) counters: Arc<ClientCounters>,
    /// Its place in the domain's accounts.
    pub(crate) number: usize,
    /// How the wait that goes on has waited so far.
    pub(crate) ladder: Ladder,
    /// The longest that the next sleep may take.
    pub(crate) nap: Duration,
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

impl Core {
    /// Joins the domain: channels to every shard, and in a flat domain a seat.
    pub(crate) fn join(inner: &Arc<Inner>, wanted: Option<usize>) -> Result<Self, Error> {
        inner.gate.check()?;
        if is_serving() {
            return Err(Error::Nested);
        }
        let rules = inner.settings.flat;
        if rules.is_some() && !sitting::can_sit() {
            return Err(Error::System {
                what: "taking a seat of a flat domain",
                why: "this thread is ending, and would not leave it".to_owned(),
            });
        }
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
            own_calls: Rules::own_calls(rules.as_ref()),
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

    /// Reads the lane to `shard`, which the domain has. What `read` is given in this crate calls nothing that
    /// could change it.
    #[inline(always)]
    pub(crate) fn look_at<R>(&self, shard: usize, read: impl FnOnce(&Lane) -> R) -> R {
        // SAFETY: the lanes live as long as the core, whose thread alone has them, and this one only reads now.
        read(unsafe { &*self.lane(shard) })
    }

    /// Whether nothing was asked of `shard` that is not yet answered, its callbacks included.
    #[inline(always)]
    pub(crate) fn is_idle(&self, shard: usize) -> bool {
        self.look_at(shard, Lane::is_idle)
    }

    /// Whether `shard` can be asked now where all requests keep their order.
    pub(crate) fn is_next(&self, shard: usize) -> bool {
        let last = self.last_shard;
        last == shard || last == NONE || self.is_idle(last)
    }

    /// Whether a request to `shard` goes into a line without a wait before.
    pub(crate) fn has_room(&self, shard: usize) -> bool {
        let room = |lane: &Lane| lane.has_room(self.most_pending);
        (!self.strict || self.is_next(shard)) && self.look_at(shard, room)
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
            keep_first(&raw mut (*core).thrown, payload);
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
    unsafe {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| done.release())) {
            keep_first(&raw mut (*core).thrown, payload);
        }
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
