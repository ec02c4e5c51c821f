//! A fibre as the runtime sees it.

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::{Coroutine, Yielder};

use crate::atomic::{AtomicU32, Ordering};
use crate::block;
use crate::error::JoinError;
use crate::stack::Stack;
use crate::timers::Armed;
use crate::token::Token;
use crate::waiter::Ending;
use crate::worker::{Shared, Worker};

/// What a fibre asks of its worker when it leaves its stack: [`YIELD`], [`WAIT`], or the address of the
/// worker on which it goes on.
pub(crate) type Action = usize;
pub(crate) const YIELD: Action = 0;
pub(crate) const WAIT: Action = 1;

/// What a fibre is told when it goes on: whether the runtime shuts down.
pub(crate) type Resumed = bool;

pub(crate) type Routine = Coroutine<Resumed, Action, (), Stack>;

/// Thrown in a fibre that waits while its runtime shuts down.
pub(crate) struct Cancelled;

/// The part of a fibre that does not know its type.
#[repr(C, align(64))]
pub(crate) struct Task {
    /// Of the worker that runs it, or of whoever has it as a [`Runnable`].
    pub(crate) routine: UnsafeCell<Option<Routine>>,
    yielder: Cell<*const Yielder<Resumed, Action>>,
    /// The worker on which it runs, or ran last.
    pub(crate) worker: Cell<*const Worker>,
    /// About where its stack ended when it left it.
    pub(crate) depth: Cell<usize>,
    /// The last time that it waited for.
    pub(crate) timer: Cell<Option<Armed>>,
    pub(crate) token: Token,
    references: AtomicU32,
    pub(crate) ending: Ending,
    pub(crate) id: u64,
    /// May be stolen wherever it waits, as who started it promised.
    pub(crate) roams: bool,
    /// Announced to whoever records.
    pub(crate) announced: bool,
    pub(crate) name: Option<Box<str>>,
    pub(crate) shared: *const Shared,
    free: unsafe fn(NonNull<Task>),
}

/// The right to run a fibre: there is one at most for each, and who has it has its stack.
#[derive(Debug)]
pub(crate) struct Runnable(pub(crate) NonNull<Task>);

// SAFETY: what is on the stack of a fibre that has not begun is `Send`, as its body is. One that has
// begun goes to another thread only by promise: `migrate`, `Spawn::roaming`; or in `visit`, where
// nothing of it but a `Send` closure is touched there.
unsafe impl Send for Runnable {}

/// A reference to a fibre that may have ended.
#[derive(Debug)]
pub(crate) struct TaskRef(NonNull<Task>);

// SAFETY: it reaches only what is immutable or made for all threads: the token, the name, the counts.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

impl Clone for TaskRef {
    fn clone(&self) -> Self {
        self.task().references.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // The one that is alone is so for ever: only a reference makes another.
        let references = &self.task().references;
        if references.load(Ordering::Acquire) == 1 || references.fetch_sub(1, Ordering::AcqRel) == 1
        {
            // SAFETY: this was the last reference, and `free` is of this fibre's type.
            unsafe { (self.task().free)(self.0) };
        }
    }
}

impl TaskRef {
    /// Another reference to `task`.
    pub(crate) fn of(task: &Task) -> Self {
        task.references.fetch_add(1, Ordering::Relaxed);
        Self(NonNull::from(task))
    }

    #[inline]
    pub(crate) fn task(&self) -> &Task {
        // SAFETY: a reference keeps it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn into_address(self) -> usize {
        let address = self.0.as_ptr().expose_provenance();
        std::mem::forget(self);
        address
    }

    /// # Safety
    /// `address` came from [`TaskRef::into_address`], and is not used again.
    pub(crate) unsafe fn from_address(address: usize) -> Self {
        // SAFETY: the contract.
        Self(unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) })
    }
}

impl Runnable {
    /// Drops a fibre that nobody runs.
    pub(crate) fn never_begun(self) {
        // SAFETY: who has the right to run has the routine.
        let routine = unsafe { (*self.task().routine.get()).take() };
        if self.task().announced {
            crate::announce::ended(self.task().id);
        }
        // It drops the body, on this thread; the stack goes to no one else.
        drop(routine);
        drop(self.into_reference());
    }

    /// The reference that the right to run comes with, after the fibre has ended.
    pub(crate) fn into_reference(self) -> TaskRef {
        TaskRef(self.0)
    }

    #[inline]
    pub(crate) fn task(&self) -> &Task {
        // SAFETY: the right to run comes with a reference.
        unsafe { self.0.as_ref() }
    }
}

impl Task {
    /// Leaves the stack, by the fibre itself; comes back when a worker runs it again. True if the runtime
    /// shuts down.
    ///
    /// Always inlined: a processor predicts where `ret` goes by the calls before it, and the `ret` that
    /// leaves the stack meets the call that entered it only if there was none in between.
    ///
    /// The thread may be another afterwards, and the compiler keeps addresses of thread-local variables
    /// (llvm/llvm-project 98479): the crate's own are reached through [`here`](crate::here::here).
    #[inline(always)]
    pub(crate) fn leave(&self, action: Action) -> Resumed {
        self.depth.set(about_here());
        // SAFETY: the fibre runs, so its yielder, on its stack, lives.
        unsafe { (*self.yielder.get()).suspend(action) }
    }

    /// The worker on which it runs now. By the fibre itself; to be asked again after each
    /// [`Task::leave`].
    #[inline]
    pub(crate) fn here(&self) -> &Worker {
        // SAFETY: it runs, on this worker, which outlives every fibre of its runtime.
        unsafe { &*self.worker.get() }
    }
}

/// About where the stack ends now.
#[inline(always)]
fn about_here() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let here: usize;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags))
        };
        here
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mark = 0u8;
        std::ptr::from_ref(&mark).addr()
    }
}

/// A fibre with the place for its value.
#[repr(C)]
pub(crate) struct Joint<T> {
    task: Task,
    value: UnsafeCell<Option<Result<T, JoinError>>>,
}

/// Who may take the value of a fibre.
pub(crate) struct JointRef<T> {
    reference: TaskRef,
    of: std::marker::PhantomData<T>,
}

// SAFETY: through it a value of `T` goes from thread to thread, and nothing else that is not made for it.
unsafe impl<T: Send> Send for JointRef<T> {}
// SAFETY: by reference only the fibre's state is reached.
unsafe impl<T: Send> Sync for JointRef<T> {}

impl<T> JointRef<T> {
    pub(crate) fn task(&self) -> &Task {
        self.reference.task()
    }

    /// The value of a fibre that has ended.
    pub(crate) fn take(self) -> Result<T, JoinError> {
        assert!(self.task().ending.has_ended());
        let joint = self.reference.0.cast::<Joint<T>>();
        // SAFETY: it was made as a `Joint<T>`; the fibre has ended, and this is the one handle.
        let value = unsafe { (*(*joint.as_ptr()).value.get()).take() };
        value.expect("taken once, by the one handle")
    }
}

/// What a fibre is made with.
pub(crate) struct Made<'a> {
    pub(crate) id: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) roams: bool,
    pub(crate) announced: bool,
    pub(crate) shared: &'a Shared,
}

unsafe fn free<T>(task: NonNull<Task>) {
    let joint = task.cast::<Joint<T>>();
    // SAFETY: made by `make::<T>`, and this was the last reference.
    unsafe {
        joint.drop_in_place();
        block::give_back(joint.cast(), Layout::new::<Joint<T>>());
    }
}

/// Makes a fibre that runs `body` on `stack`.
///
/// # Safety
/// What `body` borrows lives until the fibre has ended.
pub(crate) unsafe fn make<T, F>(stack: Stack, made: Made<'_>, body: F) -> (Runnable, JointRef<T>)
where
    F: FnOnce() -> T,
{
    let joint = block::take(Layout::new::<Joint<T>>()).cast::<Joint<T>>();
    let filled = Joint {
        task: Task {
            routine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
            worker: Cell::new(std::ptr::null()),
            depth: Cell::new(0),
            timer: Cell::new(None),
            token: Token::new(),
            references: AtomicU32::new(2),
            ending: Ending::new(),
            id: made.id,
            roams: made.roams,
            announced: made.announced,
            name: made.name,
            shared: made.shared,
            free: free::<T>,
        },
        value: UnsafeCell::new(None),
    };
    // SAFETY: memory of this layout, which nobody has.
    unsafe { joint.write(filled) };
    let task = joint.cast::<Task>();
    stack.belongs_to(task.as_ptr(), std::ptr::from_ref(made.shared).cast_mut());
    let run = move |yielder: &Yielder<Resumed, Action>, cancelled: Resumed| {
        // SAFETY: a fibre that runs is there, and its value is its own until it has ended.
        let (task, value) = unsafe { (&(*joint.as_ptr()).task, (*joint.as_ptr()).value.get()) };
        task.yielder.set(yielder);
        let result = if cancelled {
            drop(body);
            Err(JoinError::Cancelled)
        } else {
            catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
                if payload.is::<Cancelled>() {
                    JoinError::Cancelled
                } else {
                    JoinError::Panicked(payload)
                }
            })
        };
        // SAFETY: as above.
        unsafe { *value = Some(result) };
    };
    // SAFETY: the caller keeps what the body borrows.
    let routine = unsafe { Coroutine::with_stack_unchecked(stack, run) };
    // SAFETY: nobody else knows it yet.
    unsafe { *(*joint.as_ptr()).task.routine.get() = Some(routine) };
    let reference = JointRef {
        reference: TaskRef(task),
        of: std::marker::PhantomData,
    };
    (Runnable(task), reference)
}
