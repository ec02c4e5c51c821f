//! What a fibre sees of its worker, and which worker's thread this is.
//!
//! The compiler looks up the address of a thread-local variable once for a function and what is inlined into
//! it (llvm/llvm-project 98479); but a fibre may change its thread in between. So the variable is reached
//! only in functions that are never inlined.

use std::cell::{Cell, UnsafeCell};
use std::time::Duration;

use crate::block::Blocks;
use crate::timers::Timers;

/// The part of a worker that the fibres on it use; of the worker's thread alone. `F` is a reference to a fibre.
#[derive(Debug)]
pub(crate) struct Here<F> {
    /// The worker that this is a part of.
    pub(crate) worker: Cell<*const ()>,
    /// The fibre that runs, or ran last if none does; null after one has ended.
    pub(crate) running: Cell<*const ()>,
    /// The runtime shuts down: who waits is cancelled.
    pub(crate) cancelling: Cell<bool>,
    /// Whose fibres these are, where a host runs them.
    pub(crate) host: Cell<*const ()>,
    /// How long fibres that unwind have waited, and held the worker, since it last looked around.
    pub(crate) held: Cell<Duration>,
    timers: UnsafeCell<Timers<F>>,
    blocks: UnsafeCell<Blocks>,
}

impl<F> Here<F> {
    pub(crate) fn new() -> Self {
        Self {
            worker: Cell::new(std::ptr::null()),
            running: Cell::new(std::ptr::null()),
            cancelling: Cell::new(false),
            host: Cell::new(std::ptr::null()),
            held: Cell::new(Duration::ZERO),
            timers: UnsafeCell::new(Timers::default()),
            blocks: UnsafeCell::new(Blocks::default()),
        }
    }

    /// Calls `call` with the fibre that runs; meanwhile none does.
    pub(crate) fn aside<T>(&self, call: impl FnOnce(*const ()) -> T) -> T {
        /// Says again which one runs, also after a panic.
        struct Back<'h>(&'h Cell<*const ()>, *const ());

        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }

        let back = Back(&self.running, self.running.replace(std::ptr::null()));
        call(back.1)
    }

    /// Changes those that wait for a time. By its thread, never within itself.
    pub(crate) fn timers<T>(&self, change: impl FnOnce(&mut Timers<F>) -> T) -> T {
        // SAFETY: this thread alone has it, and `change` calls nothing that comes here.
        change(unsafe { &mut *self.timers.get() })
    }

    /// Changes the blocks that this worker keeps. By its thread, never within itself.
    pub(crate) fn blocks<T>(&self, change: impl FnOnce(&mut Blocks) -> T) -> T {
        // SAFETY: this thread alone has it, and `change` calls nothing that comes here.
        change(unsafe { &mut *self.blocks.get() })
    }
}

thread_local! {
    static HERE: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// The worker whose thread this is, null on any other. The answer holds until the fibre leaves its stack.
#[inline(never)]
pub(crate) fn get() -> *const () {
    HERE.get()
}

/// Says which it is, for the calling thread.
#[inline(never)]
pub(crate) fn set(here: *const ()) {
    HERE.set(here);
}
