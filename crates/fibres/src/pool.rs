//! Pools of workers, and how fibres begin in them.

use std::sync::Arc;

use crate::error::{Error, JoinError};
use crate::stack::{self, Stack};
use crate::task::{JointRef, Made, Task, make};
use crate::wait::{Waited, step_aside, thrown, wait_for};
use crate::worker::{Shared, Worker, new_ids, wake};
use crate::{announce, fork};

/// A pool of a runtime: one worker or more, among which fibres that have not begun are stolen. In the
/// literature on user threads a *scheduling domain*.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
}

/// What a fibre begins with; made by [`Pool::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Spawn<'p> {
    pool: &'p Pool,
    with: With,
}

/// What is asked for a fibre.
#[derive(Clone, Debug)]
struct With {
    name: Option<Box<str>>,
    stack: usize,
    roams: bool,
    /// Runs even where the runtime shuts down: somebody waits who cannot be told.
    must_run: bool,
}

/// Alignment of a body that is laid onto its stack.
const MOST_ALIGNED: usize = 16;
/// Bytes of a body that is laid onto its stack; corosensei takes no more than 1024. A larger one is boxed.
const LARGEST_BODY: usize = 512;

impl With {
    const NOTHING: Self = Self {
        name: None,
        stack: stack::DEFAULT,
        roams: false,
        must_run: false,
    };
}

/// The one who may wait for a fibre and take its value. Dropped, it lets the fibre run on alone.
pub struct JoinHandle<T> {
    pub(crate) joint: JointRef<T>,
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("JoinHandle")
            .field("id", &self.joint.task().id)
            .finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the fibre has ended and returns its value. Other fibres run meanwhile; on a thread
    /// that is no worker, the thread waits.
    ///
    /// # Errors
    /// [`JoinError::Panicked`]; [`JoinError::Cancelled`] if the runtime was shut down before;
    /// [`JoinError::Forked`] in a child of `fork`, if it had not ended before.
    pub fn join(self) -> Result<T, JoinError> {
        if self.is_lost() {
            return Err(JoinError::Forked);
        }
        thrown(wait_for(&self.joint.task().ending));
        self.joint.take()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.joint.task().ending.has_ended()
    }

    /// Whether it goes on in another process only.
    pub(crate) fn is_lost(&self) -> bool {
        fork::is_forked() && !self.is_finished()
    }

    /// Its number, unique in the process.
    pub fn id(&self) -> u64 {
        self.joint.task().id
    }
}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.pools[self.index].name
    }

    /// How many workers it has.
    pub fn workers(&self) -> usize {
        self.shared.pools[self.index].count
    }

    /// A fibre in this pool, with a name, a stack or a promise of its own.
    pub fn builder(&self) -> Spawn<'_> {
        Spawn {
            pool: self,
            with: With::NOTHING,
        }
    }

    /// Begins a fibre in this pool.
    ///
    /// # Errors
    /// [`Error::System`] if there is no memory for its stack; [`Error::ShuttingDown`].
    pub fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        // SAFETY: the body borrows nothing that ends.
        unsafe { begin(&self.shared, self.index, With::NOTHING, body) }
    }

    /// Whether the fibre is one of the same runtime.
    pub(crate) fn is_of(&self, task: &Task) -> bool {
        std::ptr::eq(task.shared, Arc::as_ptr(&self.shared).cast())
    }

    /// One of its workers.
    pub(crate) fn any(&self, from: &Worker) -> &Worker {
        self.shared.any_of(self.index, Some(from))
    }

    /// Runs `work` in a fibre of this pool, and waits for it even where the caller is to be cancelled: it may
    /// borrow.
    pub(crate) fn run_and_wait<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let (result, waited) = match self.begin_and_wait(work) {
            Ok(ended) => ended,
            Err(error) => panic!("no fibre to visit a pool with: {error}"),
        };
        thrown(waited);
        result.unwrap_or_else(|error| error.resume())
    }

    /// The same; what became of the work, and whether the caller is to end.
    pub(crate) fn begin_and_wait<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<(Result<T, JoinError>, Waited), Error> {
        // SAFETY: below, nothing returns and nothing unwinds before the fibre has ended.
        let handle = unsafe {
            let with = With {
                must_run: true,
                ..With::NOTHING
            };
            begin(&self.shared, self.index, with, work)?
        };
        let mut waited = Ok(());
        while let Err(stop) = wait_for(&handle.joint.task().ending) {
            waited = Err(stop);
            step_aside();
        }
        Ok((handle.joint.take(), waited))
    }
}

impl Spawn<'_> {
    /// A name, for messages and for whoever records.
    pub fn name(mut self, name: &str) -> Self {
        self.with.name = Some(name.into());
        self
    }

    /// Bytes of the stack: at least so many, rounded up to a power of two (64 KiB if not given, 1 GiB at
    /// most). Only what is used takes memory.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.with.stack = bytes;
        self
    }

    /// Lets idle workers take the fibre wherever it waits, not only before it begins.
    ///
    /// # Safety
    /// Whenever the fibre waits or gives way, it may go on in another thread: what
    /// [`migrate`](crate::migrate) asks of its caller holds wherever the body waits.
    pub unsafe fn roaming(mut self) -> Self {
        self.with.roams = true;
        self
    }

    /// Begins the fibre.
    ///
    /// # Errors
    /// As [`Pool::spawn`]; [`Error::StackSize`].
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        // SAFETY: the body borrows nothing that ends.
        unsafe { begin(&self.pool.shared, self.pool.index, self.with, body) }
    }
}

/// Begins a fibre in the pool of the running one.
///
/// # Errors
/// As [`Pool::spawn`]; [`Error::NoFibre`] on a thread that is no worker.
pub fn spawn<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let here = Worker::here().ok_or(Error::NoFibre)?;
    // SAFETY: the body borrows nothing that ends.
    unsafe { begin(here.shared(), here.pool, With::NOTHING, body) }
}

/// Begins a fibre on the worker that the caller's thread is.
///
/// # Safety
/// What `body` borrows lives until the fibre has ended.
pub(crate) unsafe fn begin_hosted(
    shared: &Shared,
    stack: usize,
    body: impl FnOnce(),
) -> Result<(), Error> {
    let with = With {
        stack,
        ..With::NOTHING
    };
    // SAFETY: the contract.
    unsafe { begin(shared, 0, with, body) }.map(drop)
}

/// Begins a fibre.
///
/// # Safety
/// What `body` borrows lives until the fibre has ended. It is `Send`, and its value is, unless the pool has
/// no other worker than the caller's thread.
unsafe fn begin<T>(
    shared: &Shared,
    pool: usize,
    with: With,
    body: impl FnOnce() -> T,
) -> Result<JoinHandle<T>, Error> {
    if fork::is_forked() {
        return Err(Error::Forked);
    }
    let here = Worker::here().filter(|it| std::ptr::eq(it.shared(), shared));
    // Held until the fibre is in a queue: a runtime that ends looks at all that have a stack.
    let admitted = match here {
        Some(_) => None,
        None => Some(shared.end.admit().ok_or(Error::ShuttingDown)?),
    };
    let kept = here
        .filter(|_| with.stack == stack::DEFAULT)
        .and_then(Worker::kept_stack);
    let stack = match kept {
        Some(stack) => stack,
        None => Stack::take(with.stack)?,
    };
    let id = here.map_or_else(outside_id, Worker::new_id);
    if shared.announces {
        announce::begun(id, with.name.as_deref(), stack.low_usable(), stack.size());
    }
    let made = Made {
        id,
        name: with.name,
        roams: with.roams,
        must_run: with.must_run,
        shared: std::ptr::from_ref(shared).cast(),
        wake,
    };
    // SAFETY: the contract.
    let (fibre, joint) = unsafe {
        if size_of_val(&body) <= LARGEST_BODY && align_of_val(&body) <= MOST_ALIGNED {
            make(stack, made, body)
        } else {
            let body = Box::new(body);
            make(stack, made, move || (*body)())
        }
    };
    match here {
        Some(here) if here.pool == pool => here.enqueue_new(fibre),
        Some(here) => here.enqueue_elsewhere(fibre, pool),
        None => shared.take_from_outside(pool, fibre),
    }
    drop(admitted);
    Ok(JoinHandle { joint })
}

/// A number for a fibre that no worker begins.
fn outside_id() -> u64 {
    new_ids()
}
