//! What a thread is in the middle of: delegated functions and callbacks, in which nothing may wait.
//!
//! One word for the thread, not one for each client: what a callback of one client waits for with
//! another could need the line whose callbacks are running.

use std::cell::Cell;

/// Set while a delegated function runs; below it the callbacks that have begun and not ended.
const SERVING: u32 = 1 << 31;

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether the caller is a delegated function or a callback.
#[inline(always)]
pub(crate) fn is_nested() -> bool {
    INSIDE.get() != 0
}

/// Whether the caller is a delegated function.
#[inline(always)]
pub(crate) fn is_serving() -> bool {
    INSIDE.get() & SERVING != 0
}

/// Marks the thread until dropped.
#[must_use]
pub(crate) struct Inside(u32);

impl Inside {
    /// Delegated functions run.
    #[inline(always)]
    pub(crate) fn function() -> Self {
        let before = INSIDE.get();
        INSIDE.set(before | SERVING);
        Self(before)
    }

    /// A callback runs.
    #[inline(always)]
    pub(crate) fn callback() -> Self {
        let before = INSIDE.get();
        INSIDE.set(before + 1);
        Self(before)
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}
