//! The atomics, locks and threads of the protocols: those of the standard library, or those of loom, which
//! tries every order of execution. What two threads agree on takes them from here.

#[cfg(not(loom))]
mod chosen {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
    pub(crate) use std::thread;

    /// Where the kernel finds the word.
    pub(crate) fn address(word: &AtomicU32) -> *mut u32 {
        word.as_ptr()
    }
}

#[cfg(loom)]
mod chosen {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

    pub(crate) mod thread {
        pub(crate) use loom::thread::{Thread, current, park};

        /// No model has a clock.
        pub(crate) fn park_timeout(_: std::time::Duration) {
            park();
        }
    }

    pub(crate) fn address(_: &AtomicU32) -> *mut u32 {
        unreachable!("no model has a kernel")
    }
}

pub(crate) use chosen::*;
