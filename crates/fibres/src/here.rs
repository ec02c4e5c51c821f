//! Which worker's thread this is.
//!
//! The compiler looks up the address of a thread-local variable once for a function and what is inlined into
//! it (llvm/llvm-project 98479); but a fibre may change its thread in between. So the variable is reached
//! only in functions that are never inlined.

use std::cell::Cell;

use crate::worker::Worker;

thread_local! {
    static HERE: Cell<*const Worker> = const { Cell::new(std::ptr::null()) };
}

/// The worker whose thread this is, null on any other. The answer holds until the fibre leaves its stack.
#[inline(never)]
pub(crate) fn here() -> *const Worker {
    HERE.get()
}

/// Says which it is, for the calling thread.
#[inline(never)]
pub(crate) fn set(worker: *const Worker) {
    HERE.set(worker);
}
