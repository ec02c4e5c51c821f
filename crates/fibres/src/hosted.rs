//! Fibres on the caller's own thread, for a host that has its own way to wait: it gives way where it would
//! wait, and is asked to look around when every fibre has run once. `linewise-delegate` runs the fibres of a
//! client so.

use std::cell::Cell;
use std::sync::Arc;

use crate::bell::{Bell, Futex};
use crate::error::Error;
use crate::here;
use crate::no_unwind::NoUnwind;
use crate::overflow::{self, HandlerStack};
use crate::pool::begin_hosted;
use crate::pool_of::PoolOf;
use crate::task::{self, YIELD, current_task};
use crate::worker::{Shared, Worker};

/// Takes the thread back from the worker that it was, also by a panic of the host.
struct Thread;

impl Drop for Thread {
    fn drop(&mut self) {
        here::set(std::ptr::null());
    }
}

/// The fibres of one [`run`], from inside: begins more.
#[derive(Debug)]
pub struct Hosted<'a> {
    shared: &'a Shared,
    stack: usize,
    begun: &'a Cell<bool>,
}

impl Hosted<'_> {
    /// Begins a fibre. It first runs when the running one gives way or ends.
    ///
    /// # Safety
    /// `body` does not panic, and what it borrows lives until [`run`] has returned.
    ///
    /// # Errors
    /// As [`Pool::spawn`](crate::Pool::spawn).
    pub unsafe fn spawn(&self, body: impl FnOnce()) -> Result<(), Error> {
        self.begun.set(true);
        // SAFETY: the contract.
        unsafe { begin_hosted(self.shared, self.stack, body) }
    }
}

/// Runs fibres on this thread until all have ended: those that `first` begins, and that these begin by what it was
/// given, which lives until this returns. When each
/// has run once since, and none began, `look_around` is called. In a fibre of these [`gives_way`] is true
/// for `host`.
///
/// # Safety
/// As of [`Builder::start`](crate::Builder::start), for all bodies. A panic of `first` or `look_around` ends the process.
///
/// # Errors
/// [`Error::Hosted`] where the caller is a fibre or a worker already.
pub unsafe fn run(
    host: *const (),
    stack: usize,
    first: impl FnOnce(&Hosted<'_>),
    mut look_around: impl FnMut(),
) -> Result<(), Error> {
    if Worker::here().is_some() {
        return Err(Error::Hosted);
    }
    overflow::install();
    let _faults = HandlerStack::install();
    let shared = Arc::new_cyclic(|shared| {
        let worker = Worker::new((0, 0, 1), shared.as_ptr(), Bell::new(Box::new(Futex)), None);
        worker.here.host.set(host);
        Shared::new(Box::new([worker]), Box::new([PoolOf::new("here", 0, 1)]))
    });
    let begun = Cell::new(false);
    let worker = &shared.workers[0];
    worker.become_here();
    let _thread = Thread;
    // Stacks of suspended fibres would outlive what they borrow.
    let suspended = NoUnwind;
    // Fibres begin others by it, until the last has ended.
    let hosted = Hosted {
        shared: &shared,
        stack,
        begun: &begun,
    };
    first(&hosted);
    loop {
        while !shared.all_ended() {
            begun.set(false);
            worker.round();
            if !begun.get() && !shared.all_ended() {
                look_around();
            }
        }
        // Another thread may have begun one here, by a pool that a fibre gave it.
        shared.end.close();
        if shared.all_ended() {
            break;
        }
    }
    suspended.passed();
    Ok(())
}

/// Whether the caller is a fibre that gives way where `host` would wait. Not while it unwinds: panics are
/// counted by threads.
#[inline]
pub fn gives_way(host: *const ()) -> bool {
    task::here().is_some_and(|here| {
        here.host.get() == host && !here.running.get().is_null() && !std::thread::panicking()
    })
}

/// Lets the host's other fibres run; false if the caller is none that gives way.
#[inline(always)]
pub fn give_way(host: *const ()) -> bool {
    if !gives_way(host) {
        return false;
    }
    if let Some(task) = current_task() {
        task.leave(YIELD);
    }
    true
}

/// Runs `call` on the thread's own stack, where the caller is a hosted fibre: what `call` leads to may need
/// more stack than a fibre has. Meanwhile the thread is none of a fibre.
#[inline(always)]
pub fn on_thread_stack<T>(call: impl FnOnce() -> T + Send) -> T {
    match Worker::here().filter(|it| !it.here.running.get().is_null()) {
        Some(here) => here.off_stack(call),
        None => call(),
    }
}
