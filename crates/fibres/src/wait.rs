//! How a fibre, or a thread that is no worker, waits.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use crate::atomic::thread;
use crate::task::{Cancelled, Ending, Task, TaskRef, WAIT, Waiter, YIELD, current_task};
use crate::timers::Timers;

/// The runtime shuts down: the fibre is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runtime shuts down, and the fibre is to end")]
pub struct Stop;

impl Stop {
    /// Unwinds the fibre; [`JoinHandle::join`](crate::JoinHandle::join) tells that it was cancelled.
    pub(crate) fn throw(self) -> ! {
        resume_unwind(Box::new(Cancelled))
    }
}

/// Throws in a fibre that is to end.
pub(crate) fn thrown<T>(result: Result<T, Stop>) -> T {
    result.unwrap_or_else(|stop| stop.throw())
}

/// Whoever unwinds and waits for so long is told of.
const LONG: Duration = Duration::from_secs(1);

/// The caller is cancelled: its runtime shuts down.
pub(crate) type Waited = Result<(), Stop>;

/// When `time` is over from now on; in a century for what is beyond all clocks.
pub(crate) fn after(time: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(time.min(CENTURY)).unwrap_or(now)
}

/// Waits until woken, or not at all if it was woken since. May return early.
pub(crate) fn wait(task: &Task) -> Result<(), Stop> {
    if task.token.take() {
        return Ok(());
    }
    if std::thread::panicking() {
        hold(task);
        return Ok(());
    }
    if task.is_cancelled() || task.leave(WAIT) {
        return Err(Stop);
    }
    Ok(())
}

/// Waits a moment, for a fibre that unwinds: panics are counted by threads, so it stays where it is. Its worker
/// runs no other meanwhile, not even the one that it may wait for.
#[cold]
fn hold(task: &Task) {
    let begun = Instant::now();
    std::thread::sleep(Duration::from_micros(50));
    let held = &task.here().held;
    let before = held.get();
    held.set(before + begun.elapsed());
    if before < LONG && held.get() >= LONG {
        let name = task.name.as_deref().unwrap_or("no name");
        eprintln!(
            "fibres: fibre {} ({}) waits in a destructor while it unwinds from a panic, or from the end of \
             its runtime, and holds its worker: none of the worker's other fibres runs. If it waits for one of \
             these, it waits for ever",
            task.id,
            name.escape_debug()
        );
    }
}

/// As [`wait`], until `deadline` at most.
pub(crate) fn wait_until(task: &Task, deadline: Instant) -> Result<(), Stop> {
    let timers =
        |timers: &mut Timers<TaskRef>| timers.arm(&task.timer, deadline, || TaskRef::of(task));
    task.here().timers(timers);
    wait(task)
}

/// As [`yield_now`](crate::yield_now), and says if the caller is to end.
#[inline(always)]
pub(crate) fn give_way() -> Result<(), Stop> {
    let Some(task) = current_task() else {
        std::thread::yield_now();
        return Ok(());
    };
    if std::thread::panicking() {
        hold(task);
    } else if task.leave(YIELD) {
        return Err(Stop);
    }
    Ok(())
}

/// Lets others run, for one that is to end and must wait for something nevertheless.
pub(crate) fn step_aside() {
    let _ = give_way();
    std::thread::yield_now();
}

/// Waits until the caller is woken, or not at all if it was since the last time; not beyond `deadline`. May
/// return early.
pub(crate) fn wait_here(deadline: Option<Instant>) -> Waited {
    match (current_task(), deadline) {
        (Some(task), None) => wait(task),
        (Some(task), Some(deadline)) => wait_until(task, deadline),
        (None, None) => {
            thread::park();
            Ok(())
        }
        (None, Some(deadline)) => {
            thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
            Ok(())
        }
    }
}

/// Waits for the end of a fibre. One at a time waits for it: its handle is one.
pub(crate) fn wait_for(ending: &Ending) -> Waited {
    if !ending.has_ended() && ending.let_know(Waiter::current()) {
        while !ending.has_ended() {
            wait_here(None)?;
        }
    }
    Ok(())
}
