//! A thread's way into a domain: the calls.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use linewise_fibres::hosted;

use crate::arena::UNIT;
use crate::closure::{Closure, Many, Single};
use crate::core::{self, Core, NONE};
use crate::error::Error;
use crate::exchange::{self, Until};
use crate::inner::Inner;
use crate::inside::Inside;
use crate::job::put_callback;
use crate::lane::Sort;
use crate::own;
use crate::owned::Target;
use crate::panics::{NoUnwind, Panic};
use crate::sitting;
use crate::stats::{ClientCounters, ClientStats};
use crate::turn::turn;

/// A thread's way into a domain. It stays on its thread.
///
/// Requests gather in lines. A line is sent when it is full, when the next request is of another
/// kind, and by every call that waits, [`flush`](Client::flush) and [`poll`](Client::poll). Callbacks
/// run on this thread, inside calls of this client. They may make further requests, but wait with no client.
///
/// `'c` is what callbacks may borrow; it outlives the client. Dropping the client waits until all its
/// requests are answered. Where it must not wait (in a delegated function, in a callback, in a child of
/// `fork`) it is given up: what was sent is done, but callbacks do not run, and what they captured is not
/// dropped. One that is forgotten (`mem::forget`) keeps its memory, and before all is sent the values of the
/// shards that it asked from ending.
pub struct Client<'c> {
    /// From a box, which is freed when the client has left or was given up; forgotten clients keep it.
    core: NonNull<Core>,
    callbacks: PhantomData<Cell<&'c ()>>,
    stays: PhantomData<*mut ()>,
}

/// Where a waiting call's answer goes: a place on the caller's stack.
struct Answer<R>(Option<Result<R, Error>>);

impl<'c> Client<'c> {
    pub(crate) fn join(inner: &Arc<Inner>, seat: Option<usize>) -> Result<Self, Error> {
        let core = Core::join(inner, seat)?;
        let seat = core.seat;
        let client = Self {
            core: NonNull::from(Box::leak(Box::new(core))),
            callbacks: PhantomData,
            stays: PhantomData,
        };
        if seat != NONE {
            let core = client.core();
            // SAFETY: a client's core lives until it has stood up, and nothing of it runs in a thread whose
            // variables are destroyed but what borrows it anew.
            let leave = move || unsafe { exchange::vacate(core) };
            sitting::sit(core.cast(), inner.shards[seat].clone(), leave);
        }
        Ok(client)
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> *mut Core {
        self.core.as_ptr()
    }

    /// Reads the core.
    #[inline(always)]
    pub(crate) fn look<R>(&self, read: impl FnOnce(&Core) -> R) -> R {
        // SAFETY: this thread alone has the core, and what `read` is given in this crate calls nothing that
        // could change it.
        read(unsafe { self.core.as_ref() })
    }

    /// Refuses a call that would wait where waiting cannot end.
    #[inline(always)]
    pub(crate) fn may_wait(&self) -> Result<(), Error> {
        self.look(Core::may_wait)
    }

    /// What this client counts.
    #[inline(always)]
    pub(crate) fn counters(&self) -> &ClientCounters {
        // SAFETY: the core lives as long as the client, and its counters are never replaced.
        unsafe { core::counters(self.core()) }
    }

    /// Throws on what a callback threw.
    pub(crate) fn throw_on(&self) {
        // SAFETY: this thread alone has the core, and nobody borrows it now.
        unsafe { core::rethrow(self.core()) };
    }

    /// Refuses a value of another domain, and calls after the end.
    pub(crate) fn check_domain<T>(&self, target: Target<'_, T>) -> Result<(), Error> {
        self.look(|core| {
            if !Arc::ptr_eq(&core.inner, target.inner) {
                return Err(Error::Foreign);
            }
            core.inner.gate.check()
        })
    }

    /// The domain.
    #[inline(always)]
    pub(crate) fn domain(&self) -> &Arc<Inner> {
        // SAFETY: the core lives as long as the client, and its domain is never replaced.
        unsafe { core::inner(self.core()) }
    }

    /// Refuses what cannot be sent.
    #[inline(always)]
    pub(crate) fn check<T>(&self, target: Target<'_, T>) -> Result<(), Error> {
        let strict = self.look(|core| {
            if !Arc::ptr_eq(&core.inner, target.inner) {
                return Err(Error::Foreign);
            }
            core.inner.gate.check()?;
            Ok(core.strict)
        })?;
        if strict {
            // SAFETY: this thread alone has the core, and nobody borrows it now.
            return unsafe { exchange::keep_order(self.core(), target.shard as usize) };
        }
        Ok(())
    }

    /// Whether nothing was asked of this shard that is not yet answered.
    #[inline(always)]
    fn is_idle(&self, shard: usize) -> bool {
        self.look(|core| core.is_idle(shard))
    }

    /// Whether a call on this shard runs inline: it is the own one, nothing that was asked of it
    /// before is on its way, and no delegated function or callback is running.
    #[inline(always)]
    pub(crate) fn is_inline(&self, shard: u32) -> bool {
        // SAFETY: this thread alone has the core and its lanes, and nobody borrows them now.
        unsafe {
            let core = self.core();
            let shard = shard as usize;
            (*core).runs_here(shard) && {
                let lane = (*core).lane(shard);
                (*lane).is_idle() || exchange::settle_own(core, lane)
            }
        }
    }

    /// Runs a function on a value of the own shard.
    #[inline(always)]
    pub(crate) fn run_inline<T, R>(
        &self,
        offset: u32,
        function: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Error> {
        let base = self.look(|core| core.own_base);
        let inside = Inside::function();
        let answer = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the offset names a live value of the own shard; this thread holds its seat, and
            // no other delegated function is running.
            function(unsafe { &mut *base.add(offset as usize * UNIT).cast::<T>() })
        }));
        drop(inside);
        self.counters().local.add(1);
        // SAFETY: this thread alone has the core, and nobody borrows it now.
        unsafe { own::after_own_calls(self.core(), 1) };
        answer.map_err(|payload| Error::Panicked(Panic::of(payload)))
    }

    /// Gives an inline call's answer to its callback.
    #[inline(always)]
    pub(crate) fn call_back<R>(
        &self,
        then: impl FnOnce(Result<R, Error>),
        answer: Result<R, Error>,
    ) {
        let _inside = Inside::callback();
        then(answer);
    }

    /// Writes a request and its callback into the line being filled, or a new one. True if the line is
    /// full then, and to be sent. What the callbacks of others throw meanwhile is thrown on before the
    /// request is written.
    #[inline(always)]
    fn put<C>(&self, shard: usize, sort: &Sort, write: impl FnOnce(*mut u32), callback: C) -> bool {
        let core = self.core();
        // SAFETY: the core and its lanes are not borrowed while user code runs, and this thread alone
        // has them. The line takes the kind, so there is room for its words and callback.
        unsafe {
            let lane = (*core).lane(shard);
            if !(*lane).takes(sort.kind, sort.operand, sort.identity) {
                exchange::open(core, shard, sort);
            }
            let put = |words: *mut u32, callbacks: *mut u8| {
                write(words);
                put_callback(callbacks, callback);
            };
            let kind = sort.kind;
            (*lane).put(1, kind.words, kind.callback_bytes, kind.capacity, put)
        }
    }

    /// Makes a request for which nobody waits. Nothing of it borrows from the caller.
    #[inline(always)]
    pub(crate) fn push<C>(
        &self,
        shard: u32,
        sort: &Sort,
        write: impl FnOnce(*mut u32),
        callback: C,
    ) {
        let shard = shard as usize;
        if self.put(shard, sort, write, callback) {
            // SAFETY: this thread alone has the core and its lanes, which nobody borrows now; the line being
            // filled is of this sort, since it took a request, and full.
            unsafe {
                let core = self.core();
                turn(core, (*core).lane(shard), shard, sort);
            }
        }
    }

    /// Runs `function` on the value and waits for its answer. It may borrow from the caller. In a
    /// fibre, other fibres run meanwhile.
    ///
    /// # Errors
    /// [`Error::Panicked`] if the function panics; [`Error::Nested`] inside a delegated function or a
    /// callback; [`Error::Shutdown`], [`Error::Forked`], [`Error::Foreign`].
    ///
    /// # Panics
    /// If a callback of an earlier request that is answered meanwhile panics.
    pub fn apply<'t, T, R, F>(
        &self,
        target: impl Into<Target<'t, T>>,
        function: F,
    ) -> Result<R, Error>
    where
        T: Send + 'static,
        R: Send,
        F: FnOnce(&mut T) -> R + Send,
    {
        let target = target.into();
        self.may_wait()?;
        self.check(target)?;
        if self.is_inline(target.shard) {
            return self.run_inline(target.offset, function);
        }
        if self.is_idle(target.shard()) && !hosted::gives_way(self.core().cast()) {
            return self.apply_alone(target, function);
        }
        let mut answer = Answer(None);
        let place = &raw mut answer;
        let shard = target.shard();
        self.put_waiting(target, function, move |result| {
            // SAFETY: the answer is on the stack of the call that waits below for it.
            unsafe { (*place).0 = Some(result) };
        });
        self.await_answer(shard, place);
        answer.0.expect("waited for")
    }

    /// Makes a request whose closure and callback borrow from the caller, who waits. Does not unwind
    /// once it is made.
    #[inline(always)]
    pub(crate) fn put_waiting<T, R, F, C>(&self, target: Target<'_, T>, function: F, then: C)
    where
        F: FnOnce(&mut T) -> R,
        C: FnOnce(Result<R, Error>),
    {
        let shard = target.shard();
        let sort = Sort::of(Single::<T, F, R, C>::KIND);
        let write = |place: *mut u32| {
            // SAFETY: `put` gives room for this kind.
            unsafe { Closure::<T, F, R>::write(place, target.offset, function) };
        };
        if self.put(shard, &sort, write, then) {
            // SAFETY: this thread alone has the core and its lanes, which nobody borrows now; the line is being
            // filled. It is only closed: that runs no callback, which might throw.
            unsafe {
                let core = self.core();
                exchange::close(core, (*core).lane(shard), shard);
            }
        }
    }

    /// Sends a request for which nobody else waits, and spins on its line.
    #[inline(always)]
    fn apply_alone<T, R, F>(&self, target: Target<'_, T>, function: F) -> Result<R, Error>
    where
        F: FnOnce(&mut T) -> R,
    {
        type Job<T, F, R> = Single<T, F, R, fn(Result<R, Error>)>;
        let core = self.core();
        let shard = target.shard();
        let lends = NoUnwind;
        // SAFETY: this thread alone has the core and its lanes, and nobody borrows them now. The line has
        // room for one request. Nothing collects it meanwhile: what
        // this thread serves while it waits may neither wait nor collect, and no fibre of this client
        // runs. What the function borrows stays until it is answered, as nothing passes `lends`.
        let answer = unsafe {
            let lane = (*core).lane(shard);
            (*lane).send_alone(Job::<T, F, R>::KIND, |place| {
                Closure::<T, F, R>::write(place, target.offset, function);
            });
            core::inner(core).shards[shard].parker.wake_if_asleep();
            exchange::wait_for_line(core, lane, shard);
            (*lane).collect_alone(core::counters(core), |answers| {
                Closure::<T, F, R>::answer(answers, 0)
            })
        };
        lends.passed();
        answer
    }

    /// Waits until `answer` is there. Does not return or unwind before.
    fn await_answer<R>(&self, shard: usize, answer: *mut Answer<R>) {
        let core = self.core();
        let lends = NoUnwind;
        // SAFETY: this thread alone has the core, nobody borrows it now, and the caller may wait. The answer
        // is written by a callback of this thread, inside `exchange`, and nothing passes `lends` before.
        unsafe {
            // In a fibre the line waits for the requests of the others: it is sent when all wait.
            if !hosted::gives_way(core.cast()) {
                exchange::exchange(core, shard, true);
            }
            while (*answer).0.is_none() {
                exchange::wait(core, Until::Lane(shard));
                exchange::exchange(core, shard, false);
            }
            (*core).ladder.reset();
            lends.passed();
            core::rethrow(core);
        }
    }

    /// Runs `function` on the value; `then` gets its answer on this thread, in a later call of this
    /// client (or in this one, if the value is in the client's own shard).
    ///
    /// # Errors
    /// [`Error::Shutdown`], [`Error::Forked`], [`Error::Foreign`]; [`Error::Nested`] with [`Ordered::Client`](crate::Ordered::Client), where a
    /// callback would have to wait before it asks another shard. Then
    /// neither is run. `then` gets [`Error::Panicked`] if the function panics.
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline]
    pub fn apply_async<'t, T, R, F, C>(
        &self,
        target: impl Into<Target<'t, T>>,
        function: F,
        then: C,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
        C: FnOnce(Result<R, Error>) + 'c,
    {
        let target = target.into();
        self.check(target)?;
        if self.is_inline(target.shard) {
            let answer = self.run_inline(target.offset, function);
            self.call_back(then, answer);
            return Ok(());
        }
        let write = |place: *mut u32| {
            // SAFETY: `push` gives room for this kind.
            unsafe { Closure::<T, F, R>::write(place, target.offset, function) };
        };
        let sort = Sort::of(Single::<T, F, R, C>::KIND);
        self.push(target.shard, &sort, write, then);
        Ok(())
    }

    /// As [`Client::apply_async`]; `then` gets this client too, for further requests. A callback cannot
    /// borrow the client otherwise, since what callbacks borrow outlives it.
    ///
    /// ```
    /// # use linewise_delegate::{Client, Domain, Error, Owned};
    /// fn halve<'c>(client: &Client<'c>, value: &'c Owned<u64>, rounds: &'c std::cell::Cell<u32>) -> Result<(), Error> {
    ///     let half = |value: &mut u64| {
    ///         *value /= 2;
    ///         *value
    ///     };
    ///     client.apply_async_with(value, half, move |client, left| {
    ///         rounds.set(rounds.get() + 1);
    ///         if left != Ok(0) {
    ///             halve(client, value, rounds).unwrap();
    ///         }
    ///     })
    /// }
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let value = domain.own(0, || 100)?;
    /// let rounds = std::cell::Cell::new(0);
    /// let client = domain.client()?;
    /// halve(&client, &value, &rounds)?;
    /// client.barrier()?;
    /// assert_eq!(rounds.get(), 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::apply_async`].
    ///
    /// # Panics
    /// As [`Client::apply_async`].
    #[inline]
    pub fn apply_async_with<'t, T, R, F, C>(
        &self,
        target: impl Into<Target<'t, T>>,
        function: F,
        then: C,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
        C: FnOnce(&Client<'c>, Result<R, Error>) + 'c,
    {
        // Callbacks run inside calls of their client, so its core is there; the client itself may have
        // been moved since.
        let this = ManuallyDrop::new(Self {
            core: self.core,
            callbacks: PhantomData,
            stays: PhantomData,
        });
        self.apply_async(target, function, move |answer| then(&this, answer))
    }

    /// Runs `function` on the value, without an answer. What it throws is lost.
    ///
    /// # Errors
    /// As [`Client::apply_async`].
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    #[inline]
    pub fn post<'t, T, F>(&self, target: impl Into<Target<'t, T>>, function: F) -> Result<(), Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut T) + Send + 'static,
    {
        self.apply_async(target, function, |_| {})
    }

    /// Runs each function on its target; `then` gets the answers on this thread, in later calls of this
    /// client (or in this one), each with the number of its request. What [`Client::apply_async`] does
    /// for each, with one callback: functions of one type share lines, and no callback travels.
    ///
    /// ```
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let words = domain.own_sharded(3, |_| String::new())?;
    /// let length = std::cell::Cell::new(0);
    /// let client = domain.client()?;
    /// let push = |letter: char| {
    ///     move |word: &mut String| {
    ///         word.push(letter);
    ///         word.len()
    ///     }
    /// };
    /// let requests = "linewise".chars().enumerate();
    /// client.apply_each(
    ///     requests.map(|(index, letter)| (words.at(index % 3), push(letter))),
    ///     |_, answer| length.set(length.get().max(answer.unwrap())),
    /// )?;
    /// client.barrier()?;
    /// assert_eq!(length.get(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::apply_async`]; the requests before the refused one are made.
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile: then requests behind it are not made.
    pub fn apply_each<'t, T, R, F, C>(
        &self,
        requests: impl IntoIterator<Item = (Target<'t, T>, F)>,
        then: C,
    ) -> Result<(), Error>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
        C: Fn(usize, Result<R, Error>) + 'c,
    {
        let then = Rc::new(then);
        let kind = Many::<T, F, R, C>::KIND;
        let sort = Sort {
            common: Rc::as_ptr(&then).cast(),
            ..Sort::of(kind)
        };
        for (number, (target, function)) in requests.into_iter().enumerate() {
            self.check(target)?;
            if self.is_inline(target.shard) {
                let answer = self.run_inline(target.offset, function);
                self.call_back(|answer| then(number, answer), answer);
                continue;
            }
            let core = self.core();
            let shard = target.shard();
            // SAFETY: this thread alone has the core and its lanes, and nobody borrows them while user code
            // runs. A line that has our callback is one of this kind, and gives its share in the
            // callback back.
            unsafe {
                let lane = (*core).lane(shard);
                if !(*lane).takes_common(sort.common) {
                    std::mem::forget(then.clone());
                    exchange::open(core, shard, &sort);
                }
                let put = |words: *mut u32, numbers: *mut u8| {
                    Closure::<T, F, R>::write(words, target.offset, function);
                    numbers.cast::<usize>().write(number);
                };
                if (*lane).put(1, kind.words, kind.callback_bytes, kind.capacity, put) {
                    turn(core, lane, shard, &sort);
                }
            }
        }
        Ok(())
    }

    /// Sends what is being filled, as far as request lines are free. Does not wait, and runs no
    /// callback.
    pub fn flush(&self) {
        let core = self.core();
        // SAFETY: this thread alone has the core, nobody borrows it now, and nothing here calls back.
        unsafe { exchange::flush(core) };
    }

    /// Sends what is being filled, runs the callbacks of what has come back, and in a flat domain
    /// serves once. Does not wait. True if something was done.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a delegated function or a callback.
    ///
    /// # Panics
    /// If a callback panics.
    pub fn poll(&self) -> Result<bool, Error> {
        let core = self.core();
        self.may_wait()?;
        // SAFETY: this thread alone has the core, nobody borrows it now, and the caller may wait.
        unsafe {
            let mut worked = core::serve_own(core);
            for shard in 0..core::inner(core).shards.len() {
                worked |= exchange::exchange(core, shard, true);
            }
            core::rethrow(core);
            Ok(worked)
        }
    }

    /// Waits until all requests of this client are answered and their callbacks have run, also those
    /// that callbacks make. Answered also after a shutdown.
    ///
    /// # Errors
    /// [`Error::Nested`] inside a delegated function or a callback.
    ///
    /// # Panics
    /// If a callback panics.
    pub fn barrier(&self) -> Result<(), Error> {
        let core = self.core();
        self.may_wait()?;
        // SAFETY: this thread alone has the core, nobody borrows it now, and the caller may wait.
        unsafe {
            exchange::drain(core);
            core::rethrow(core);
        }
        Ok(())
    }

    /// The shard that this client serves, in a flat domain.
    pub fn shard(&self) -> Option<usize> {
        let seat = self.look(|core| core.seat);
        (seat != NONE).then_some(seat)
    }

    /// What this client did so far.
    pub fn stats(&self) -> ClientStats {
        self.counters().read()
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let core = self.core();
        let leaves = self.may_wait().is_ok();
        let leaves = leaves && self.look(|core| core.inner.gate.check_process().is_ok());
        // SAFETY: this thread alone has the core, nobody borrows it now, and it may wait where it leaves.
        unsafe {
            if leaves {
                exchange::leave(core);
            } else if !exchange::give_up(core) {
                return;
            }
            // Made by `Box::leak` in `join`; nothing of the thread or a server names it any more.
            drop(Box::from_raw(core));
        }
    }
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("shard", &self.shard())
            .field("stats", &self.stats())
            .finish()
    }
}
