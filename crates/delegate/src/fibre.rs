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

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::client::Client;
use crate::core::{self, Core};
use crate::error::Error;
use crate::exchange::{Until, exchange, wait};
use crate::panics::{NoUnwind, discard, quietly};
use crate::running;

type Fibre = Coroutine<(), (), (), DefaultStack>;

/// What a fibre runs.
type Body<'f> = Box<dyn FnOnce(&Fibres<'_, 'f>) + 'f>;

/// The fibres of one call of [`Client::fibres`]: spawns more.
pub struct Fibres<'a, 'f> {
    spawned: &'a RefCell<VecDeque<Body<'f>>>,
}

impl<'f> Fibres<'_, 'f> {
    /// Adds a fibre that runs `body`. It begins when the running fibre waits or ends. What
    /// [`Client::fibres`] asks of bodies its caller promised for this one too.
    pub fn spawn(&self, body: impl FnOnce(&Fibres<'_, 'f>) + 'f) {
        self.spawned.borrow_mut().push_back(Box::new(body));
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
        let core = self.core();
        self.may_wait()?;
        if running::is_inside() {
            return Err(Error::Nested);
        }
        let spawned: RefCell<VecDeque<Body<'f>>> = RefCell::new(VecDeque::new());
        spawned.borrow_mut().push_back(Box::new(first));
        let mut thrown = None;
        let mut refused = None;
        let mut stacks: Vec<DefaultStack> = Vec::new();
        let mut fibres: VecDeque<Fibre> = VecDeque::new();
        let suspended = NoUnwind;
        loop {
            loop {
                // The borrow ends before the body may be dropped, which may spawn another.
                let next = spawned.borrow_mut().pop_front();
                let Some(body) = next else { break };
                let stack = stacks
                    .pop()
                    .map_or_else(|| DefaultStack::new(STACK_BYTES), Ok);
                match stack {
                    Ok(stack) => fibres.push_back(fibre(core, stack, body, &spawned)),
                    Err(error) => {
                        quietly(|| drop(body));
                        refused.get_or_insert(Error::System {
                            what: "memory for a fibre's stack",
                            why: error.to_string(),
                        });
                    }
                }
            }
            if fibres.is_empty() {
                break;
            }
            let seen = self.counters().answered();
            for _ in 0..fibres.len() {
                let mut fibre = fibres.pop_front().expect("counted");
                let result = catch_unwind(AssertUnwindSafe(|| fibre.resume(())));
                running::exit();
                match result {
                    Ok(CoroutineResult::Yield(())) => fibres.push_back(fibre),
                    Ok(CoroutineResult::Return(())) => stacks.push(fibre.into_stack()),
                    // What was thrown first says best what went wrong.
                    Err(payload) if thrown.is_none() => thrown = Some(payload),
                    Err(payload) => discard(payload),
                }
            }
            if spawned.borrow().is_empty() && !fibres.is_empty() {
                self.exchange_for_fibres(seen);
            }
        }
        suspended.passed();
        if let Some(payload) = thrown {
            resume_unwind(payload);
        }
        self.throw_on();
        refused.map_or(Ok(()), Err)
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

/// A fibre that has not begun. The caller resumes it until it ends, within `'a`.
fn fibre<'a, 'f: 'a>(
    core: *mut Core,
    stack: DefaultStack,
    body: Body<'f>,
    spawned: &'a RefCell<VecDeque<Body<'f>>>,
) -> Fibre {
    let run: Box<dyn FnOnce() + 'a> = Box::new(move || body(&Fibres { spawned }));
    // SAFETY: only the lifetime changes. `Client::fibres` keeps what the body borrows until every
    // fibre has ended: it does not return before, and unwinding past its guard ends the process.
    let run: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(run) };
    Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        running::enter(core.cast(), yielder);
        run();
    })
}
