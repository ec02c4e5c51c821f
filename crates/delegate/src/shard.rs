//! A shard: memory, the channels of its clients, and the seat of who serves them.
//!
//! Whoever holds the seat is the server: a dedicated thread for its lifetime, a flat client from
//! joining to leaving, and, where nobody sits (before the first client, after a shutdown), whoever
//! waits for an answer, for the moment. So a published request is always answered.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linewise_fibres::hosted;

use crate::arena::Arena;
use crate::channel::{Channel, ServerEnd};
use crate::error::Error;
use crate::gate::Gate;
use crate::inside::{Inside, is_serving};
use crate::panics::{NoUnwind, quietly};
use crate::stats::ShardCounters;
use crate::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell, fence};
use crate::wait::Parker;

thread_local! {
    static TOKEN: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other living thread has, never zero.
pub(crate) fn token() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
        token.get()
    })
}

/// A lock that is held for a lifetime or tried for a moment, never waited for.
#[derive(Debug)]
#[repr(align(128))]
pub struct Seat {
    holder: AtomicU64,
}

impl Default for Seat {
    fn default() -> Self {
        Self::new()
    }
}

impl Seat {
    /// A free seat.
    pub fn new() -> Self {
        Self {
            holder: AtomicU64::new(0),
        }
    }

    /// Takes the seat for `holder` (not zero) if it is free.
    pub fn try_take(&self, holder: u64) -> bool {
        self.holder.load(Ordering::Relaxed) == 0
            && self
                .holder
                .compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Gives the seat back.
    pub fn leave(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Whether `holder` has it.
    pub(crate) fn is_held_by(&self, holder: u64) -> bool {
        self.holder.load(Ordering::Relaxed) == holder
    }

    /// Whether nobody holds it.
    pub fn is_free(&self) -> bool {
        self.holder.load(Ordering::Acquire) == 0
    }
}

/// What the server should look at besides its lines: a flag that its side takes down before it
/// looks.
#[derive(Debug)]
#[repr(align(128))]
pub struct Doorbell {
    rung: AtomicBool,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// A quiet bell.
    pub fn new() -> Self {
        Self {
            rung: AtomicBool::new(false),
        }
    }

    /// Rings; what was done before is seen by who answers.
    pub fn ring(&self) {
        // Never a look first: a bell that seems rung may have been answered already, by somebody who
        // looked before our work was there.
        self.rung.swap(true, Ordering::AcqRel);
    }

    /// Whether it was rung.
    #[inline(always)]
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Takes the ring down, if there was one.
    #[inline(always)]
    pub fn answer(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::AcqRel)
    }
}

/// Work for a shard that comes from a thread without a client.
pub(crate) enum Errand {
    /// Runs on the shard's state.
    Run(Box<dyn FnOnce(&mut State) + Send>),
    /// Ends a value when all requests that may name it are answered.
    End(Ended),
}

/// What takes values out of a shard's memory.
pub(crate) type Take = Box<dyn FnOnce(&mut Arena) + Send>;

/// A value nobody owns any more, and how far each client's ring must be answered first.
pub(crate) struct Ended {
    pub(crate) offset: u32,
    pub(crate) layout: Layout,
    pub(crate) after: Vec<(Arc<Channel>, u64)>,
    /// Takes the values out instead.
    pub(crate) take: Option<Take>,
}

#[derive(Default)]
struct Errands {
    queue: VecDeque<Errand>,
    sealed: bool,
}

/// What only the holder of the seat touches.
pub(crate) struct State {
    pub(crate) arena: Arena,
    ends: Vec<ServerEnd>,
    idle: Idle,
    ended: Vec<Ended>,
}

/// Channels that nothing came through for long, where there are many: a dedicated server looks at a few
/// of them in each pass.
#[derive(Default)]
struct Idle {
    ends: Vec<ServerEnd>,
    /// Where the next look begins.
    next: usize,
    /// Passes since channels were sorted.
    passes: u32,
}

/// As many channels are looked at in every pass, whether idle or not.
const FEW: usize = 64;
/// Passes from one sorting of channels to the next.
const SORTING: u32 = 1024;
/// Passes in which each idle channel is looked at once.
const ROUND: usize = 64;

impl Idle {
    /// Moves channels from and to `ends`: those that are asked, of the next few or of all, and now and then
    /// those that were not.
    fn sort(&mut self, ends: &mut Vec<ServerEnd>, all: bool) {
        let few = self.ends.len() / ROUND + 1;
        let looks = if all {
            self.ends.len()
        } else {
            few.min(self.ends.len())
        };
        for _ in 0..looks {
            // Backwards: what takes the place of one that goes was looked at just before.
            self.next = self.next.checked_sub(1).unwrap_or(self.ends.len() - 1);
            if self.ends[self.next].is_asked() {
                ends.push(self.ends.swap_remove(self.next));
            }
        }
        self.passes += 1;
        if all || self.passes < SORTING {
            return;
        }
        self.passes = 0;
        let mut index = ends.len();
        while index > 0 {
            index -= 1;
            if ends[index].was_idle() && !ends[index].is_asked() {
                self.ends.push(ends.swap_remove(index));
            }
        }
    }
}

/// One shard of a domain.
pub(crate) struct Shard {
    pub(crate) seat: Seat,
    state: UnsafeCell<State>,
    /// Where the shard's thread sleeps.
    pub(crate) parker: Arc<Parker>,
    /// Rung when `channels` or `errands` changed, and by clients that are blocked (policy doorbell).
    pub(crate) bell: Doorbell,
    channels: Mutex<Vec<Arc<Channel>>>,
    errands: Mutex<Errands>,
    pub(crate) counters: ShardCounters,
    /// The domain's.
    pub(crate) gate: Arc<Gate>,
    /// Whether to read the clock at every visit.
    timed: bool,
    /// The arena's base: constant, so clients read it without the seat.
    base: *mut u8,
}

// SAFETY: the state is touched by the holder of the seat alone; taking and leaving it synchronise.
// The base is only an address here.
unsafe impl Sync for Shard {}
// SAFETY: the memory goes with it, and what the state holds is `Send`.
unsafe impl Send for Shard {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Beyond this much memory a shard's values do not stay in a core's own caches, and asking for the
/// targets of the next line pays.
const LOOK_AHEAD_BYTES: usize = 1 << 20;

impl Shard {
    pub(crate) fn new(bytes: usize, timed: bool, gate: Arc<Gate>) -> Result<Self, Error> {
        let arena = Arena::reserve(bytes)?;
        Ok(Self {
            seat: Seat::new(),
            gate,
            timed,
            base: arena.base(),
            state: UnsafeCell::new(State {
                arena,
                ends: Vec::new(),
                idle: Idle::default(),
                ended: Vec::new(),
            }),
            parker: Arc::new(Parker::new()),
            bell: Doorbell::new(),
            channels: Mutex::default(),
            errands: Mutex::default(),
            counters: ShardCounters::default(),
        })
    }

    /// Where the offsets of the shard's values count from.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Lets a client's channel be served.
    pub(crate) fn register(&self, channel: Arc<Channel>) {
        lock(&self.channels).push(channel);
        self.ring();
    }

    /// Rings and wakes the shard's thread.
    pub(crate) fn ring(&self) {
        self.bell.ring();
        self.parker.wake_if_asleep();
    }

    /// Forgets channels whose clients have left.
    pub(crate) fn unregister(&self, channel: &Arc<Channel>) {
        lock(&self.channels).retain(|other| !Arc::ptr_eq(other, channel));
        self.ring();
    }

    /// Wakes every client that sleeps: who serves has changed.
    pub(crate) fn wake_clients(&self) {
        for channel in lock(&self.channels).iter() {
            channel.parker.wake_if_asleep();
        }
    }

    /// Sends work from a thread that may have no client.
    pub(crate) fn send(&self, errand: Errand) -> Result<(), Error> {
        {
            let mut errands = lock(&self.errands);
            if errands.sealed {
                return Err(Error::Shutdown);
            }
            errands.queue.push_back(errand);
        }
        self.ring();
        Ok(())
    }

    /// Lets values end or be taken out; also after the end, when who drops them or waits for them serves.
    pub(crate) fn end(&self, ended: Ended) {
        lock(&self.errands).queue.push_back(Errand::End(ended));
        self.ring();
    }

    /// How far each client is: what was asked before this call lies below.
    pub(crate) fn opened(&self) -> Vec<(Arc<Channel>, u64)> {
        let channels = lock(&self.channels);
        let opened = |channel: &Arc<Channel>| channel.opened.0.load(Ordering::Acquire);
        channels
            .iter()
            .map(|each| (each.clone(), opened(each)))
            .collect()
    }

    /// Serves once if this thread holds the seat. True if something was done.
    pub(crate) fn serve_if_held(&self) -> bool {
        if !self.seat.is_held_by(token()) || is_serving() || self.gate.check_forked().is_err() {
            return false;
        }
        // SAFETY: this thread holds the seat, in the process that the domain lives in. No pass is running: in
        // one, users' code runs as a delegated function.
        unsafe { self.pass() }
    }

    /// Serves once if nobody holds the seat. True if something was done. Not in a child of fork, where what
    /// its parent was asked is not run again. The caller is not inside a pass.
    pub(crate) fn serve_if_free(&self) -> bool {
        if self.gate.check_forked().is_err() || !self.seat.try_take(token()) {
            return false;
        }
        // SAFETY: the seat was taken just now.
        let worked = unsafe { self.pass() };
        self.leave();
        worked
    }

    /// Leaves the seat, and lets those who wait know. The caller is not inside a pass.
    pub(crate) fn leave(&self) {
        loop {
            self.seat.leave();
            self.wake_clients();
            // What came after the last pass may have nobody who waits in a call. Who sent it looks at
            // the seat after a fence of its own: one of both sees the other.
            fence(Ordering::SeqCst);
            if !self.bell.is_rung() || !self.seat.try_take(token()) {
                return;
            }
            // SAFETY: the seat was taken just now.
            unsafe { self.pass() };
        }
    }

    /// Looks at every channel once, on the thread's own stack. True if something was done.
    ///
    /// # Safety
    /// The caller holds the seat, and is not inside another pass.
    #[inline]
    pub(crate) unsafe fn pass(&self) -> bool {
        // SAFETY: the contract; the caller waits on its own stack meanwhile.
        hosted::on_thread_stack(|| unsafe { self.pass_with(false) })
    }

    /// The same. With `rests`, channels are left alone for a while after a visit: for a server that
    /// does nothing but look, on a CPU of its own.
    ///
    /// # Safety
    /// As for [`Shard::pass`].
    #[inline(always)]
    pub(crate) unsafe fn pass_with(&self, rests: bool) -> bool {
        // A line whose requests ran in part would be run again.
        let half_done = NoUnwind;
        let worked = self.state.with_mut(|state| {
            // SAFETY: the contract.
            let state = unsafe { &mut *state };
            let mut worked = false;
            if self.bell.answer() {
                self.refresh(state);
                worked = self.run_errands(state);
            }
            if state.ends.len() > FEW || !state.idle.ends.is_empty() {
                state.idle.sort(&mut state.ends, !rests);
            }
            let look_ahead = state.arena.used() > LOOK_AHEAD_BYTES;
            for index in 0..state.ends.len() {
                let end = &mut state.ends[index];
                if rests && end.rest > 0 {
                    end.rest -= 1;
                    // The other hardware thread of the core may be the client.
                    std::hint::spin_loop();
                    continue;
                }
                if !end.is_asked() {
                    continue;
                }
                let _inside = Inside::function();
                let begin = if self.timed { crate::stats::ticks() } else { 0 };
                // SAFETY: the channel's client names values of this shard, and the caller alone
                // serves it.
                let served = unsafe { end.serve(self.base, look_ahead) };
                self.counters.served(served);
                if self.timed {
                    self.counters.busy(crate::stats::ticks() - begin);
                }
                worked = true;
            }
            if !state.ended.is_empty() {
                end_values(state);
            }
            self.counters.passed(worked);
            worked
        });
        half_done.passed();
        worked
    }

    /// Whether a pass would find something.
    ///
    /// # Safety
    /// The caller holds the seat, and is not inside a pass.
    pub(crate) unsafe fn has_work(&self) -> bool {
        let waits = |state: *const State| {
            // SAFETY: the contract.
            let state = unsafe { &*state };
            let mut ends = state.ends.iter().chain(&state.idle.ends);
            ends.any(ServerEnd::is_asked)
        };
        self.bell.is_rung() || self.state.with(waits)
    }

    #[cold]
    fn refresh(&self, state: &mut State) {
        let mut channels = lock(&self.channels);
        for channel in channels.iter() {
            if !channel.known.swap(true, Ordering::Relaxed) {
                state.ends.push(ServerEnd::new(channel.clone()));
            }
        }
        // One that was given up stays until what it sent is answered: values wait for that.
        let (mut gone, mut some_stay) = (Vec::new(), false);
        for ends in [&mut state.ends, &mut state.idle.ends] {
            gone.extend(ends.extract_if(.., |end| {
                // Looked at before its lines, all of which were sent then.
                let is_left = end.is_left();
                let is_over = is_left && !end.is_asked();
                some_stay |= is_left && !is_over;
                is_over
            }));
        }
        if some_stay {
            self.bell.ring();
        }
        state.idle.next = 0;
        for end in &gone {
            end.channel.known.store(false, Ordering::Relaxed);
        }
        if !gone.is_empty() {
            channels.retain(|channel| channel.known.load(Ordering::Relaxed));
        }
        drop(channels);
        // What requests of a client that was given up threw ends with their channel.
        let _inside = Inside::function();
        drop(gone);
    }

    #[cold]
    fn run_errands(&self, state: &mut State) -> bool {
        // An errand may send another: popped before it runs, and the other one's turn is the next pass, for which
        // it rang.
        let waiting = lock(&self.errands).queue.len();
        for _ in 0..waiting {
            let Some(errand) = lock(&self.errands).queue.pop_front() else {
                break;
            };
            match errand {
                Errand::End(ended) => {
                    // A channel that it waits for may be younger than the last look.
                    self.refresh(state);
                    state.ended.push(ended);
                }
                Errand::Run(run) => {
                    let _inside = Inside::function();
                    // Each errand catches what its function throws; this is for its destructors.
                    quietly(|| run(state));
                }
            }
        }
        waiting > 0
    }

    /// Runs what is queued and refuses what comes later. The caller holds the seat.
    ///
    /// # Safety
    /// As for [`Shard::pass`].
    pub(crate) unsafe fn seal(&self) {
        loop {
            // SAFETY: the contract.
            unsafe { self.pass() };
            let mut errands = lock(&self.errands);
            if errands.queue.is_empty() {
                errands.sealed = true;
                return;
            }
        }
    }
}

/// Ends the values that no request can name any more.
#[cold]
fn end_values(state: &mut State) {
    // Also where a channel ends that a value waited for.
    let _inside = Inside::function();
    let answered = |ends: &[ServerEnd], idle: &Idle, channel: &Arc<Channel>, opened: u64| {
        ends.iter()
            .chain(&idle.ends)
            .find(|end| Arc::ptr_eq(&end.channel, channel))
            .is_none_or(|end| {
                // Fewer were sent than begun where a client was given up.
                end.done() >= opened.min(channel.opened.0.load(Ordering::Acquire))
            })
    };
    let State {
        arena,
        ends,
        idle,
        ended,
    } = state;
    let mut index = 0;
    while index < ended.len() {
        ended[index]
            .after
            .retain(|(channel, opened)| !answered(ends, idle, channel, *opened));
        if ended[index].after.is_empty() {
            let over = ended.swap_remove(index);
            match over.take {
                // What `send` wakes and drops may throw.
                Some(take) => quietly(|| take(arena)),
                None => arena.end(over.offset, over.layout),
            }
        } else {
            index += 1;
        }
    }
}
