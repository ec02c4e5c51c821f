//! Waiting for not longer than a time.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use linewise_fibres::hosted;

use crate::client::Client;
use crate::core;
use crate::error::Error;
use crate::exchange::{self, Until};
use crate::owned::Target;
use crate::reply::Reply;
use crate::wait::LONGEST_NAP;

/// Who waits for something that does not wake the client looks again after so long.
const NAP: Duration = Duration::from_micros(500);

impl Client<'_> {
    /// Runs `function` on the value and waits for its answer, for not longer than `time`.
    ///
    /// The call lends nothing: what the function needs goes along, and what it answers belongs to
    /// whoever has it then. An answer that comes too late is dropped, in a later call of this client. The
    /// time is looked at while the client waits: a call on the client's own shard, which runs here, and
    /// what it serves for others meanwhile take as long as they take.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use linewise_delegate::{Domain, Error};
    /// # fn main() -> Result<(), Error> {
    /// let domain = Domain::dedicated(1).build()?;
    /// let value = domain.own(0, || 5)?;
    /// let client = domain.client()?;
    /// let slow = |value: &mut i32| {
    ///     std::thread::sleep(Duration::from_millis(50));
    ///     *value += 1;
    /// };
    /// assert_eq!(client.apply_timeout(&value, Duration::from_millis(1), slow), Err(Error::TimedOut));
    /// // It was made all the same.
    /// assert_eq!(client.apply(&value, |value| *value)?, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Dropping the client waits for it, however long it takes.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the function may have run or may yet, unless there was no room for the
    /// request all the time. Else as [`Client::apply`].
    ///
    /// # Panics
    /// As [`Client::apply`].
    pub fn apply_timeout<'t, T, R, F>(
        &self,
        target: impl Into<Target<'t, T>>,
        time: Duration,
        function: F,
    ) -> Result<R, Error>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
    {
        let end = Instant::now().checked_add(time);
        let target = target.into();
        self.may_wait()?;
        self.check_domain(target)?;
        let shard = target.shard();
        let room = || self.look(|core| core.has_room(shard));
        let there = self.await_until(end, LONGEST_NAP, room);
        self.throw_on();
        if !there {
            return Err(Error::TimedOut);
        }
        let place = Rc::new(OnceCell::new());
        let answer = place.clone();
        self.apply_async(target, function, move |result| {
            // Set once, by the only call of this.
            let _ = answer.set(result);
        })?;
        self.await_until(end, LONGEST_NAP, || place.get().is_some());
        self.throw_on();
        // Where the callback has run, nobody else has a share in the place.
        let answer = Rc::into_inner(place).and_then(OnceCell::into_inner);
        answer.unwrap_or(Err(Error::TimedOut))
    }

    /// Waits for a reply in a thread that has this client: meanwhile what it asked before is sent and
    /// answered, its callbacks run, and in a flat domain it serves.
    ///
    /// # Errors
    /// Those of the reply; [`Error::Nested`] inside a delegated function or a callback.
    ///
    /// # Panics
    /// If a callback panics that is run meanwhile.
    pub fn wait<R>(&self, reply: Reply<R>) -> Result<R, Error> {
        self.may_wait()?;
        let answer = OnceCell::new();
        let reply = RefCell::new(reply);
        self.await_until(None, NAP, || {
            let there = reply.borrow_mut().wait_timeout(Duration::ZERO);
            there.is_some_and(|there| answer.set(there).is_ok())
        });
        self.throw_on();
        answer.into_inner().unwrap_or(Err(Error::Shutdown))
    }

    /// Sends what was asked and takes what comes back until `done`; until `end`, if there is one: then
    /// false. Does not unwind, unless `done` does. The caller may wait.
    pub(crate) fn await_until(
        &self,
        end: Option<Instant>,
        nap: Duration,
        done: impl Fn() -> bool,
    ) -> bool {
        let core = self.core();
        // SAFETY: this thread alone has the core, nobody borrows it now nor while `done` runs, and the
        // caller may wait.
        unsafe {
            loop {
                let mut worked = false;
                // In a fibre lines wait for the requests of the others: they are sent when all wait.
                let sends = !hosted::gives_way(core.cast());
                for shard in 0..core::inner(core).shards.len() {
                    worked |= exchange::exchange(core, shard, sends);
                }
                let is_done = done();
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if is_done || left.is_some_and(|left| left.is_zero()) {
                    (*core).ladder.reset();
                    return is_done;
                }
                if worked {
                    (*core).ladder.reset();
                } else {
                    // Where other fibres run meanwhile, they come back in that time.
                    (*core).nap = (*core).nap.min(left.unwrap_or(nap)).min(nap);
                    exchange::wait(core, Until::Any);
                }
            }
        }
    }
}
