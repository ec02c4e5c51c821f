//! A fibre as the runtime sees it.

use std::alloc::Layout;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::stack::Stack as _;
use corosensei::{Coroutine, Yielder};

use crate::atomic::thread::Thread;
use crate::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::block;
use crate::error::JoinError;
use crate::here;
use crate::stack::Stack;
use crate::timers::Armed;
use crate::token::Token;

/// What a fibre asks of its worker when it leaves its stack: [`YIELD`], [`WAIT`], or the address of the
/// worker on which it goes on.
pub(crate) type Action = usize;
pub(crate) const YIELD: Action = 0;
pub(crate) const WAIT: Action = 1;
/// Set in the address of a worker where the fibre will come back.
pub(crate) const VISIT: Action = 2;

/// What a fibre is told when it goes on: whether the runtime shuts down.
pub(crate) type Resumed = bool;

pub(crate) type Routine = Coroutine<Resumed, Action, (), Stack>;

/// Thrown in a fibre that waits while its runtime shuts down.
pub(crate) struct Cancelled;

/// What a fibre sees of its worker.
pub(crate) type Here = here::Here<TaskRef>;

/// The worker whose thread this is, as far as fibres see it. The answer holds until the fibre leaves its stack.
#[inline(always)]
pub(crate) fn here<'a>() -> Option<&'a Here> {
    // SAFETY: what `Worker::work` set, which lives as long as its thread runs fibres.
    unsafe { here::get().cast::<Here>().as_ref() }
}

/// The blocks that this thread keeps, if it is a worker's.
fn with_blocks<T>(change: impl FnOnce(Option<&mut block::Blocks>) -> T) -> T {
    match here() {
        Some(here) => here.blocks(|blocks| change(Some(blocks))),
        None => change(None),
    }
}

/// The fibre that the caller is in. It stays the same however often the caller changes threads, and lives
/// as long as the caller runs.
#[inline(always)]
pub(crate) fn current_task<'a>() -> Option<&'a Task> {
    // SAFETY: a fibre that runs lives.
    here().and_then(|here| unsafe { here.running.get().cast::<Task>().as_ref() })
}

/// The part of a fibre that does not know its type.
#[repr(C, align(64))]
pub(crate) struct Task {
    // What a switch touches, in two lines.
    /// Of the worker that runs it, or of whoever has it as a [`Runnable`].
    pub(crate) routine: UnsafeCell<Option<Routine>>,
    yielder: Cell<*const Yielder<Resumed, Action>>,
    /// The worker on which it runs, or ran last.
    pub(crate) here: Cell<*const Here>,
    /// About where its stack ended when it left it.
    pub(crate) depth: Cell<usize>,
    /// Where its stack begins.
    base: usize,
    /// Its runtime.
    pub(crate) shared: *const (),
    pub(crate) token: Token,
    references: AtomicU32,
    pub(crate) ending: Ending,
    /// May be stolen wherever it waits, as who started it promised.
    pub(crate) roams: bool,
    /// The last time that it waited for.
    pub(crate) timer: Cell<Option<Armed>>,
    pub(crate) id: u64,
    pub(crate) name: Option<Box<str>>,
    /// How it is woken.
    wake: fn(&TaskRef),
    /// What a face of another language keeps for the fibre. By the fibre itself.
    pub(crate) local: Cell<Option<Box<dyn Any + Send>>>,
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
        self.task().refer();
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
        task.refer();
        Self(NonNull::from(task))
    }

    #[inline]
    pub(crate) fn task(&self) -> &Task {
        // SAFETY: a reference keeps it.
        unsafe { self.0.as_ref() }
    }

    /// Wakes it, from any thread.
    pub(crate) fn wake(&self) {
        (self.task().wake)(self);
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
    /// One reference more. Who forgets two thousand million of them is stopped before the count wraps.
    fn refer(&self) {
        if self.references.fetch_add(1, Ordering::Relaxed) > i32::MAX as u32 {
            std::process::abort();
        }
    }

    /// Leaves the stack, by the fibre itself; comes back when a worker runs it again. True if the runtime
    /// shuts down.
    ///
    /// Always inlined: a processor predicts where `ret` goes by the calls before it, and the `ret` that
    /// leaves the stack meets the call that entered it only if there was none in between.
    ///
    /// The thread may be another afterwards, and the compiler keeps addresses of thread-local variables
    /// (llvm/llvm-project 98479): the crate's own are reached through [`here`](mod@crate::here).
    #[inline(always)]
    pub(crate) fn leave(&self, action: Action) -> Resumed {
        self.depth.set(about_here());
        // SAFETY: the fibre runs, so its yielder, on its stack, lives.
        unsafe { (*self.yielder.get()).suspend(action) }
    }

    /// What helps to fetch its stack, in one word: where it ends, and how many lines it has, as far as that
    /// can be said.
    pub(crate) fn hint(&self) -> usize {
        let depth = self.depth.get();
        // Not below it where the fibre waited on another stack of its own.
        let lines = self.base.wrapping_sub(depth) / 64;
        depth | lines.min(0xffff) << 48
    }

    /// Runs `call` on the stack of the worker, by the fibre itself.
    pub(crate) fn off_stack<T>(&self, call: impl FnOnce() -> T + Send) -> T {
        // SAFETY: the fibre runs, so its yielder, on its stack, lives.
        unsafe { (*self.yielder.get()).on_parent_stack(call) }
    }

    /// Whether its runtime shuts down, so that it is not to wait any more. By the fibre itself; one that unwinds is not
    /// told again.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.here().cancelling.get() && !std::thread::panicking()
    }

    /// The worker on which it runs now, as far as fibres see it. By the fibre itself; to be asked again after
    /// each [`Task::leave`].
    #[inline]
    pub(crate) fn here(&self) -> &Here {
        // SAFETY: it runs, on this worker, which outlives every fibre of its runtime.
        unsafe { &*self.here.get() }
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

// A worker keeps the memory of such fibres for the next: one that does not fit is asked for anew each time.
const _: () = assert!(block::fits(Layout::new::<Joint<[u64; 8]>>()));

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
pub(crate) struct Made {
    pub(crate) id: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) roams: bool,
    /// Its body runs even where the runtime shuts down.
    pub(crate) must_run: bool,
    /// Its runtime.
    pub(crate) shared: *const (),
    pub(crate) wake: fn(&TaskRef),
}

unsafe fn free<T>(task: NonNull<Task>) {
    let joint = task.cast::<Joint<T>>();
    // SAFETY: made by `make::<T>`, and this was the last reference.
    unsafe {
        // A value that nobody took may throw as it is dropped. Nobody is there to catch it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| joint.drop_in_place())) {
            std::mem::forget(payload);
        }
        with_blocks(|blocks| block::give_back(joint.cast(), Layout::new::<Joint<T>>(), blocks));
    }
}

/// Makes a fibre that runs `body` on `stack`.
///
/// # Safety
/// What `body` borrows lives until the fibre has ended.
pub(crate) unsafe fn make<T, F>(stack: Stack, made: Made, body: F) -> (Runnable, JointRef<T>)
where
    F: FnOnce() -> T,
{
    let joint =
        with_blocks(|blocks| block::take(Layout::new::<Joint<T>>(), blocks)).cast::<Joint<T>>();
    let filled = Joint {
        task: Task {
            routine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
            here: Cell::new(std::ptr::null()),
            depth: Cell::new(0),
            base: stack.base().get(),
            timer: Cell::new(None),
            token: Token::new(),
            references: AtomicU32::new(2),
            ending: Ending::new(),
            id: made.id,
            roams: made.roams,
            name: made.name,
            shared: made.shared,
            wake: made.wake,
            local: Cell::new(None),
            free: free::<T>,
        },
        value: UnsafeCell::new(None),
    };
    // SAFETY: memory of this layout, which nobody has.
    unsafe { joint.write(filled) };
    let task = joint.cast::<Task>();
    stack.belongs_to(task.as_ptr().cast(), made.shared.cast_mut());
    let must_run = made.must_run;
    let run = move |yielder: &Yielder<Resumed, Action>, cancelled: Resumed| {
        // SAFETY: a fibre that runs is there, and its value is its own until it has ended.
        let (task, value) = unsafe { (&(*joint.as_ptr()).task, (*joint.as_ptr()).value.get()) };
        task.yielder.set(yielder);
        let result = catch_unwind(AssertUnwindSafe(|| {
            if cancelled && !must_run {
                drop(body);
                Err(JoinError::Cancelled)
            } else {
                Ok(body())
            }
        }));
        let result = result.unwrap_or_else(|payload| {
            Err(if payload.is::<Cancelled>() {
                JoinError::Cancelled
            } else {
                JoinError::Panicked(payload)
            })
        });
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

/// A fibre or a thread that waits, or is about to.
#[derive(Clone, Debug)]
pub(crate) enum Waiter {
    Fibre(TaskRef),
    Thread(Thread),
}

impl Waiter {
    /// The caller.
    pub(crate) fn current() -> Self {
        match current_task() {
            Some(task) => Self::Fibre(TaskRef::of(task)),
            None => Self::Thread(crate::atomic::thread::current()),
        }
    }

    /// Whether it is the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fibre(one), Self::Fibre(other)) => std::ptr::eq(one.task(), other.task()),
            (Self::Thread(one), Self::Thread(other)) => one.id() == other.id(),
            _ => false,
        }
    }

    /// Wakes it, or lets its next wait return at once.
    pub(crate) fn wake(&self) {
        match self {
            Self::Fibre(task) => task.wake(),
            Self::Thread(thread) => thread.unpark(),
        }
    }
}

/// The end of a fibre, and the one who waits for it, in one word.
#[derive(Debug)]
pub(crate) struct Ending(AtomicUsize);

const NOBODY: usize = 0;
const ENDED: usize = 1;
/// Set in the address of a thread; that of a fibre is a multiple of 64.
const THREAD: usize = 2;

impl Ending {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(NOBODY))
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == ENDED
    }

    /// By its worker: the fibre has ended. Who waits for it is to be woken.
    #[inline]
    pub(crate) fn end(&self) -> Option<Waiter> {
        // SAFETY: a word that is neither nobody nor the end is a waiter that `wait_for` left for this one
        // look.
        unsafe { from_word(self.0.swap(ENDED, Ordering::AcqRel)) }
    }
}

impl Ending {
    /// Has `waiter` woken at the end; false if that was before.
    pub(crate) fn let_know(&self, waiter: Waiter) -> bool {
        let word = into_word(waiter);
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if seen == ENDED {
                // SAFETY: it was not left there.
                drop(unsafe { from_word(word) });
                return false;
            }
            match self
                .0
                .compare_exchange(seen, word, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(before) => {
                    // SAFETY: who waited before was cancelled, and left this word for one look.
                    drop(unsafe { from_word(before) });
                    return true;
                }
                Err(now) => seen = now,
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // SAFETY: as in `end`; nobody else looks any more.
        drop(unsafe { from_word(self.0.load(Ordering::Relaxed)) });
    }
}

fn into_word(waiter: Waiter) -> usize {
    match waiter {
        Waiter::Fibre(task) => task.into_address(),
        Waiter::Thread(thread) => Box::into_raw(Box::new(thread)).expose_provenance() | THREAD,
    }
}

/// # Safety
/// `word` is [`NOBODY`], [`ENDED`], or came from [`into_word`] and is not used again.
unsafe fn from_word(word: usize) -> Option<Waiter> {
    if word == NOBODY || word == ENDED {
        return None;
    }
    // SAFETY: the contract; the mark tells which it was.
    unsafe {
        Some(if word & THREAD == 0 {
            Waiter::Fibre(TaskRef::from_address(word))
        } else {
            let thread = std::ptr::with_exposed_provenance_mut::<Thread>(word & !THREAD);
            Waiter::Thread(*Box::from_raw(thread))
        })
    }
}
