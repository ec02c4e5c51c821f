//! What faces of other languages are made of.
//!
//! A waiting call of a fibre whose runtime shuts down unwinds, and so the fibre ends. Frames of other
//! languages must not be unwound, so these calls say [`Stop`] instead, and whoever is told returns. Each
//! further call that has to wait says it again at once.

use std::any::Any;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking;
use crate::error::{Error, JoinError};
use crate::fibre;
use crate::fork;
use crate::fs::File;
use crate::io::Io;
use crate::pool::{JoinHandle, Pool};
use crate::runtime::Runtime;
use crate::sync::{Barrier, Condvar, Receiver, Sender, TryRecvError, TrySendError};
use crate::task::current_task;
use crate::wait::{self, wait_here};
use crate::worker::Worker;

pub use crate::io::Direction;
pub use crate::sync::mutex::Lock;
pub use crate::wait::Stop;

/// As [`yield_now`](crate::yield_now).
///
/// # Errors
/// [`Stop`], after others have run.
pub fn yield_now() -> Result<(), Stop> {
    wait::give_way()
}

/// As [`sleep`](crate::sleep).
///
/// # Errors
/// [`Stop`] before the time is over.
pub fn sleep(time: Duration) -> Result<(), Stop> {
    fibre::rest(time)
}

/// As [`park`](crate::park), until `deadline` at most.
///
/// # Errors
/// [`Stop`] instead of waiting.
pub fn park(deadline: Option<Instant>) -> Result<(), Stop> {
    wait_here(deadline)
}

/// Waits until a fibre has ended; [`JoinHandle::join`] does not wait afterwards.
///
/// # Errors
/// [`Stop`] if the caller is to end; the handle stays as it is.
pub fn wait_for<T>(handle: &mut JoinHandle<T>) -> Result<(), Stop> {
    if handle.is_lost() {
        return Ok(());
    }
    wait::wait_for(&handle.joint.task().ending)
}

/// Whether [`Runtime::wait`] would come to an end, as far as the caller matters.
///
/// # Errors
/// The one with which it panics.
pub fn may_wait(runtime: &Runtime) -> Result<(), Error> {
    runtime.may_wait()
}

/// Whether this process is a fork of one with a runtime.
pub fn is_forked() -> bool {
    fork::is_forked()
}

/// Whether the caller is in [`blocking`](crate::blocking) of a fibre, which waits meanwhile.
pub fn is_blocking() -> bool {
    blocking::is_for_any()
}

/// Why nobody went to a pool, or came back from there.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// No fibre could begin there for a thread that visits.
    #[error(transparent)]
    Begin(#[from] Error),
    /// The one that began has no value.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// As [`visit`](crate::visit), and never says [`Stop`]: it waits for the work in every case.
///
/// # Errors
/// On a thread that is none of its workers [`VisitError`].
///
/// # Panics
/// If `work` panics in a fibre of the pool's runtime, with what it threw.
pub fn visit<T: Send>(pool: &Pool, work: impl FnOnce() -> T + Send) -> Result<T, VisitError> {
    if is_mine(pool) {
        return Ok(fibre::visit(pool, work));
    }
    Ok(pool.begin_and_wait(work)?.0?)
}

/// The pool where the caller runs; none if it is no fibre.
pub fn here() -> Option<Pool> {
    let worker = Worker::of(current_task()?.here());
    // SAFETY: the workers of a runtime have it in an `Arc`, and one of them runs this.
    let shared = unsafe {
        Arc::increment_strong_count(worker.shared);
        Arc::from_raw(worker.shared)
    };
    let index = worker.pool;
    Some(Pool { shared, index })
}

/// The number of the calling fibre, as [`Fibre::id`](crate::Fibre::id) has it.
pub fn id() -> Option<u64> {
    current_task().map(|task| task.id)
}

/// Whether the caller is a fibre of the pool's runtime.
pub fn is_mine(pool: &Pool) -> bool {
    current_task().is_some_and(|task| pool.is_of(task))
}

/// Frees `lock`, which the caller has, and waits to be notified, until `deadline` at most; false if that came
/// first. The caller has the lock afterwards in every case.
///
/// # Errors
/// [`Stop`] instead of waiting.
pub fn wait_at(condition: &Condvar, lock: &Lock, deadline: Option<Instant>) -> Result<bool, Stop> {
    condition.wait_at(lock, deadline)
}

/// As [`Barrier::wait`].
///
/// # Errors
/// [`Stop`] before all have come: the caller counts as one who has not.
pub fn meet(barrier: &Barrier) -> Result<bool, Stop> {
    barrier.wait_or_stop()
}

/// As [`Sender::send`], until `deadline` at most.
///
/// # Errors
/// [`Stop`] while there is no room; the value is dropped.
pub fn send<T>(
    to: &Sender<T>,
    value: T,
    deadline: Option<Instant>,
) -> Result<Result<(), TrySendError<T>>, Stop> {
    to.send_until(value, deadline)
}

/// As [`Receiver::recv`], until `deadline` at most.
///
/// # Errors
/// [`Stop`] while nothing is there.
pub fn recv<T>(
    from: &Receiver<T>,
    deadline: Option<Instant>,
) -> Result<Result<T, TryRecvError>, Stop> {
    from.recv_until(deadline)
}

/// Calls `attempt` until it says something else than [`io::ErrorKind::WouldBlock`], and waits in between until
/// `io` is ready; [`io::ErrorKind::TimedOut`] if `deadline` came first.
///
/// The fibre may be on another thread at each attempt, so `attempt` takes `errno` in a function that is never
/// inlined: compilers take its address once.
///
/// # Errors
/// [`Stop`] instead of waiting.
pub fn retry<T: AsRawFd, R>(
    io: &Io<T>,
    direction: Direction,
    deadline: Option<Instant>,
    attempt: impl FnMut(&T) -> io::Result<R>,
) -> Result<io::Result<R>, Stop> {
    io.retry_or_stop(direction, deadline, attempt)
}

/// Opens a file with the flags and the mode of `open`.
///
/// # Errors
/// As [`std::fs::File::open`].
pub fn open(path: &Path, flags: i32, mode: u32) -> io::Result<File> {
    File::open_with(path, flags, mode)
}

/// Takes what [`keep`] left for the running fibre.
pub fn kept() -> Option<Box<dyn Any + Send>> {
    current_task()?.local.take()
}

/// Keeps `value` for the running fibre until it ends, in place of what it kept before.
///
/// # Errors
/// The value, if the caller is no fibre.
pub fn keep(value: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
    match current_task() {
        Some(task) => {
            task.local.set(Some(value));
            Ok(())
        }
        None => Err(value),
    }
}
