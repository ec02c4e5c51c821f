//! What a fibre does to itself: give way, wait, move.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::pool::Pool;
use crate::task::{Action, Task, VISIT, Waiter, current_task};
use crate::wait::{Stop, after, give_way, thrown, wait_here, wait_until};
use crate::worker::Worker;

/// Lets the other fibres of this worker run; on a thread that is no worker, other threads.
#[inline(always)]
pub fn yield_now() {
    if let Err(stop) = give_way() {
        stop.throw();
    }
}

/// Waits for at least `time`; other fibres run meanwhile.
pub fn sleep(time: Duration) {
    thrown(rest(time));
}

/// As [`sleep`], and says if the caller is to end.
pub(crate) fn rest(time: Duration) -> Result<(), Stop> {
    let Some(task) = current_task() else {
        std::thread::sleep(time);
        return Ok(());
    };
    // One that is to end is told even where nothing is left to wait for: it may do nothing else in a loop.
    if task.is_cancelled() {
        return Err(Stop);
    }
    let deadline = after(time);
    while Instant::now() < deadline {
        wait_until(task, deadline)?;
    }
    Ok(())
}

/// Waits until [`Fibre::unpark`] is called for the caller, or returns at once if it was since the last
/// time. May return early.
pub fn park() {
    thrown(wait_here(None));
}

/// As [`park`], for `time` at most.
pub fn park_timeout(time: Duration) {
    thrown(wait_here(Some(after(time))));
}

/// A fibre, or a thread that is no worker, to be woken by others.
#[derive(Clone, Debug)]
pub struct Fibre(Waiter);

impl Fibre {
    /// Lets its [`park`] return.
    pub fn unpark(&self) {
        self.0.wake();
    }

    /// Its number, unique in the process; `None` for a thread.
    pub fn id(&self) -> Option<u64> {
        match &self.0 {
            Waiter::Fibre(task) => Some(task.task().id),
            Waiter::Thread(_) => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Waiter::Fibre(task) => task.task().name.as_deref(),
            Waiter::Thread(thread) => thread.name(),
        }
    }
}

/// The caller.
pub fn current() -> Fibre {
    Fibre(Waiter::current())
}

/// Whether the caller is a fibre.
pub fn is_fibre() -> bool {
    current_task().is_some()
}

/// The addresses of the caller's stack, if it is a fibre: for logs and for whoever records.
pub fn stack_range() -> Option<std::ops::Range<usize>> {
    current_task()?;
    let here = 0_u8;
    crate::stack::holding((&raw const here).addr())
}

/// Goes on with `target`; [`VISIT`] if it will come back.
#[inline(always)]
fn move_to(task: &Task, target: &Worker, how: Action) {
    // A fibre that moves is on its way, not waiting: it is not cancelled here.
    task.leave(std::ptr::from_ref(target).expose_provenance() | how);
}

/// Runs `work` on a worker of `pool` and comes back with its value: the fibre moves there and back, which
/// takes no stack and no memory. Where the caller is in that pool, or is unwinding, `work` may run in
/// another way; on a thread that is no worker it is run by a fibre of its own, and the thread waits.
///
/// What crosses is `work` and its value, both `Send`. The rest of the caller's stack goes along unseen:
/// the caller goes on with the very thread that it had.
///
/// ```
/// # use linewise_fibres::{Runtime, visit};
/// // SAFETY: no fibre holds anything over a waiting call that belongs to its thread.
/// let runtime = unsafe { Runtime::builder().pool("front", 1).pool("data", 1).start()? };
/// let data = runtime.pool("data").expect("made above");
/// let sum = runtime.spawn(move || {
///     let table = vec![1, 2, 3];
///     visit(&data, || table.iter().sum::<i32>())
/// })?;
/// assert_eq!(sum.join()?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `work` panics, with what it threw.
#[inline]
pub fn visit<T: Send>(pool: &Pool, work: impl FnOnce() -> T + Send) -> T {
    let Some(task) = current_task().filter(|it| pool.is_of(it)) else {
        return pool.run_and_wait(work);
    };
    if Worker::of(task.here()).pool == pool.index {
        return work();
    }
    if std::thread::panicking() {
        return pool.run_and_wait(work);
    }
    let home: *const Worker = Worker::of(task.here());
    move_to(task, pool.any(Worker::of(task.here())), VISIT);
    let result = apart(|| catch_unwind(AssertUnwindSafe(work)));
    // SAFETY: a worker outlives the fibres of its runtime.
    move_to(task, unsafe { &*home }, VISIT);
    result.unwrap_or_else(|payload| resume_unwind(payload))
}

/// Calls `work` in a frame of its own: the compiler keeps addresses of thread-local variables within one
/// (llvm/llvm-project 98479), and those of the caller are another thread's.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work)()
}

/// Moves the running fibre, with its stack, to a worker of `pool`, and goes on there; stays where it is if
/// it is in that pool, is no fibre, or is unwinding.
///
/// # Safety
/// The fibre goes on in another thread of the kernel. So nothing that it holds belongs to its thread: no
/// value that is not `Send` (an `Rc`, a guard of `std::sync::Mutex`), no reference to a thread-local
/// variable, nothing else that takes back on return what it left in the thread.
///
/// And the function that calls this uses no thread-local variable, nor does one that is inlined into it: the
/// compiler may look up its address once, before the move (llvm/llvm-project 98479). A function that is
/// never inlined may. [`Builder::check_moves`](crate::Builder::check_moves) looks for such addresses.
#[inline(always)]
pub unsafe fn migrate(pool: &Pool) {
    let Some(task) = current_task().filter(|it| pool.is_of(it) && !std::thread::panicking()) else {
        return;
    };
    if Worker::of(task.here()).pool != pool.index {
        move_to(task, pool.any(Worker::of(task.here())), 0);
    }
}
