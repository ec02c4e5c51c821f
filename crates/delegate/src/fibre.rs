//! Fibres: many waiting callers on one thread, as Gepard has them.
//!
//! A fibre that waits for an answer gives way to the next; the thread goes on with the requests of
//! the others, and waits only when all fibres do. Each fibre has a stack of its own (corosensei).
//!
//! Fibres are not safe, whatever runs them. Safe code may rely on it that a call has returned before its
//! thread goes on with something else: `scoped_tls` keeps a borrow in a variable of the thread, and
//! takes it back when `set` returns. Two fibres in such calls end in any order, and leave a pointer to a
//! frame that is gone (rust-lang/unsafe-code-guidelines, 602). No bound of the language tells such
//! bodies from others, so who starts fibres promises it.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use linewise_fibres::hosted::{self, Hosted};

use crate::client::Client;
use crate::core;
use crate::error::Error;
use crate::exchange::{Until, exchange, wait};
use crate::panics::{Payload, keep_first, quietly};

/// The fibres of one call of [`Client::fibres`]: spawns more.
pub struct Fibres<'a, 'f> {
    hosted: &'a Hosted<'a>,
    /// Of all fibres of the call.
    failed: &'a Failed,
    bodies: PhantomData<Cell<&'f ()>>,
}

/// What went wrong first.
#[derive(Default)]
struct Failed {
    thrown: UnsafeCell<Option<Payload>>,
    refused: Cell<Option<Error>>,
}

impl<'f> Fibres<'_, 'f> {
    /// Adds a fibre that runs `body`. It begins when the running fibre waits or ends. What
    /// [`Client::fibres`] asks of bodies its caller promised for this one too.
    pub fn spawn(&self, body: impl FnOnce(&Fibres<'_, 'f>) + 'f) {
        let hosted = std::ptr::from_ref(self.hosted).cast::<Hosted<'_>>();
        let failed = std::ptr::from_ref(self.failed);
        let mut body = Quiet(Some(body));
        let run = move || {
            let Some(body) = body.0.take() else { return };
            // SAFETY: as below.
            let (hosted, failed) = unsafe { (&*hosted, &*failed) };
            let fibres = Fibres {
                hosted,
                failed,
                bodies: PhantomData,
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&fibres))) {
                // SAFETY: the fibres are of one thread, and this does not give way.
                unsafe { keep_first(failed.thrown.get(), payload) };
            }
        };
        // SAFETY: `Client::fibres` keeps both, and what the body borrows, until every fibre has ended: it does
        // not return before, and unwinding past its guard ends the process. A panic is caught within.
        if let Err(error) = unsafe { self.hosted.spawn(run) } {
            let first = self.failed.refused.take();
            self.failed
                .refused
                .set(first.or(Some(Error::of_fibres(&error))));
        }
    }
}

/// A body whose end nobody hears, where no fibre runs it.
struct Quiet<B>(Option<B>);

impl<B> Drop for Quiet<B> {
    fn drop(&mut self) {
        quietly(|| drop(self.0.take()));
    }
}

impl std::fmt::Debug for Fibres<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fibres").finish_non_exhaustive()
    }
}

/// Bytes of a fibre's stack.
const STACK_BYTES: usize = 256 * 1024;

impl Client<'_> {
    /// Runs `first` and every fibre that it and they spawn, and returns when all have ended. In a
    /// fibre, a waiting call of this client ([`apply`](Client::apply), [`call`](Client::call)) lets
    /// other fibres run until its answer is there; one of another client or of a handle holds them up.
    ///
    /// A fibre is suspended only in such calls, and always resumed: it runs to its end.
    /// [`barrier`](Client::barrier) in a fibre waits for the requests of all of them.
    ///
    /// [`Handle::apply`](crate::Handle::apply) waits in many places of a thread without any promise.
    ///
    /// # Safety
    /// Fibres run between each other's waiting calls, and end in any order. So neither `first` nor a
    /// fibre that it or another spawns holds over a waiting call of this client what is right only
    /// while the calls of a thread nest: it is not inside `set` of a scoped thread-local, not
    /// inside `with` of a thread-local whose borrow another fibre could end, nor inside anything
    /// else that takes back on return what it left in the thread.
    ///
    /// ```compile_fail,E0133
    /// # use linewise_delegate::Domain;
    /// # let domain = Domain::dedicated(1).build()?;
    /// # let client = domain.client()?;
    /// client.fibres(|_| ())?;
    /// # Ok::<(), linewise_delegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Nested`] inside a delegated function, a callback or another fibre;
    /// [`Error::System`] if there is no memory for a stack.
    ///
    /// # Panics
    /// If a fibre or a callback panics, after all fibres have ended.
    pub unsafe fn fibres<'f>(&self, first: impl FnOnce(&Fibres<'_, 'f>) + 'f) -> Result<(), Error> {
        self.may_wait()?;
        let failed = Failed::default();
        let seen = Cell::new(self.counters().answered());
        let begin = |hosted: &Hosted<'_>| {
            let fibres = Fibres {
                hosted,
                failed: &failed,
                bodies: PhantomData,
            };
            fibres.spawn(first);
        };
        let look_around = || {
            self.exchange_for_fibres(seen.get());
            seen.set(self.counters().answered());
        };
        // SAFETY: the caller promises what is asked of the bodies; `failed` and what they borrow live until
        // this has returned; a panic that would pass it ends the process there.
        let ran = unsafe { hosted::run(self.core().cast(), STACK_BYTES, begin, look_around) };
        ran.map_err(|error| Error::of_fibres(&error))?;
        if let Some(payload) = failed.thrown.into_inner() {
            resume_unwind(payload);
        }
        self.throw_on();
        failed.refused.into_inner().map_or(Ok(()), Err)
    }

    /// All fibres wait: sends what they asked and takes what came back. While it spins for that, no
    /// fibre is resumed: a round of them takes far longer than a look. `seen` is how much was
    /// answered before the fibres ran: what was answered meanwhile may be for one that ran before.
    fn exchange_for_fibres(&self, seen: u64) {
        let core = self.core();
        let mut worked = self.counters().answered() != seen;
        // SAFETY: this thread alone has the core, nobody borrows it now, since no fibre runs, and the caller
        // may wait.
        unsafe {
            loop {
                for shard in 0..core::inner(core).shards.len() {
                    worked |= exchange(core, shard, true);
                }
                if worked {
                    (*core).ladder.reset();
                    return;
                }
                wait(core, Until::Any);
                if (*core).ladder.is_slow() {
                    return;
                }
            }
        }
    }
}
