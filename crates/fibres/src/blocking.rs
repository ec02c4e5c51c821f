//! Calls that block a thread, on threads that are there for that.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::task::{Ending, current_task};
use crate::wait::{step_aside, wait_for};

type Job = Box<dyn FnOnce() + Send>;

/// Threads at most.
const THREADS: usize = 64;
/// A thread that had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

static JOBS: Mutex<Option<Jobs>> = Mutex::new(None);
static MORE: Condvar = Condvar::new();

thread_local! {
    static RUNTIME: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// Whether this thread works for a fibre of this runtime, which waits meanwhile.
pub(crate) fn is_for(runtime: *const ()) -> bool {
    RUNTIME.get() == runtime
}

/// Whether this thread works for a fibre.
pub(crate) fn is_for_any() -> bool {
    !RUNTIME.get().is_null()
}

/// Says whose fibre this thread works for, until it is dropped.
struct Working;

impl Working {
    /// Nothing where a worker does the job itself: its fibres are known as such, and may move meanwhile.
    fn for_one_of(runtime: *const ()) -> Option<Self> {
        current_task().is_none().then(|| {
            RUNTIME.set(runtime);
            Self
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        RUNTIME.set(std::ptr::null());
    }
}

/// Runs `call` on a thread where it may block, and waits for its value; other fibres run meanwhile. On a
/// thread that is no worker it runs there.
///
/// # Panics
/// If `call` does, with what it threw.
pub fn blocking<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    let Some(task) = current_task() else {
        return call();
    };
    let runtime = task.shared.addr();
    let ending = Ending::new();
    let mut result = None;
    {
        let (ending, result) = (&ending, &mut result);
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            let working = Working::for_one_of(std::ptr::without_provenance(runtime));
            *result = Some(catch_unwind(AssertUnwindSafe(call)));
            drop(working);
            // The place of `ending` is gone as soon as the fibre sees the end.
            if let Some(waiter) = ending.end() {
                waiter.wake();
            }
        });
        // SAFETY: only the lifetime changes; this function does not return before the job has ended.
        hand_over(unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) });
    }
    while wait_for(&ending).is_err() {
        // The runtime shuts down, but the job has our borrows; others it may wait for.
        step_aside();
    }
    match result.expect("set before the end") {
        Ok(value) => value,
        Err(payload) => resume_unwind(payload),
    }
}

fn hand_over(job: Job) {
    let mut guard = JOBS.lock().expect("nothing panics under it");
    let jobs = guard.get_or_insert_with(Jobs::default);
    let is_enough = jobs.waiting.len() < jobs.idle || jobs.threads >= THREADS;
    jobs.waiting.push_back(job);
    if is_enough {
        drop(guard);
        MORE.notify_one();
        return;
    }
    jobs.threads += 1;
    let alone = jobs.threads == 1;
    drop(guard);
    let thread = thread::Builder::new().name("blocking".to_owned());
    if thread.spawn(work).is_err() {
        let mut guard = JOBS.lock().expect("nothing panics under it");
        let jobs = guard.as_mut().expect("set above");
        jobs.threads -= 1;
        // No thread at all: better here than never.
        let job = alone.then(|| jobs.waiting.pop_front()).flatten();
        drop(guard);
        if let Some(job) = job {
            job();
        }
    }
}

fn work() {
    let mut guard = JOBS.lock().expect("nothing panics under it");
    loop {
        let jobs = guard.as_mut().expect("set before a thread begins");
        if let Some(job) = jobs.waiting.pop_front() {
            drop(guard);
            job();
            guard = JOBS.lock().expect("nothing panics under it");
            continue;
        }
        jobs.idle += 1;
        let (again, waited) = MORE
            .wait_timeout(guard, IDLE)
            .expect("nothing panics under it");
        guard = again;
        let jobs = guard.as_mut().expect("set before a thread begins");
        jobs.idle -= 1;
        if waited.timed_out() && jobs.waiting.is_empty() {
            jobs.threads -= 1;
            return;
        }
    }
}
