//! Threads that wake a fibre and belong to no runtime: one that ends waits until these have let go of it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are.
static OUTSIDERS: AtomicUsize = AtomicUsize::new(0);

/// Such a thread, while it may touch a runtime.
pub(crate) struct Outsider;

impl Outsider {
    pub(crate) fn enter() -> Self {
        OUTSIDERS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        OUTSIDERS.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until there is none.
pub(crate) fn wait_until_gone() {
    while OUTSIDERS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
}
