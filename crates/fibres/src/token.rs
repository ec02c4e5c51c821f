//! Whether a fibre waits, and who runs it next: one wake-up is kept for a fibre that does not wait yet.
//!
//! ```text
//!            notify                      settle (it left its stack)
//! RUNNING ───────────▶ NOTIFIED   RUNNING ──────────▶ WAITING
//!    ▲ settle, take        │         ▲ notify: who did it runs the fibre │
//!    └─────────────────────┘         └───────────────────────────────────┘
//! ```
//!
//! A fibre is handed out by `notify` only in `WAITING`, which its worker enters after the fibre has left
//! its stack: nobody else ever runs on a stack that is still in use.

use crate::atomic::{AtomicU32, Ordering};

const RUNNING: u32 = 0;
const NOTIFIED: u32 = 1;
const WAITING: u32 = 2;
const ENDED: u32 = 3;

/// The state of a fibre, as those see it who wake it.
#[derive(Debug)]
pub(crate) struct Token(AtomicU32);

impl Token {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(RUNNING))
    }

    /// Wakes it. True if the caller now has the fibre and must see that it runs.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = match seen {
                RUNNING => NOTIFIED,
                WAITING => RUNNING,
                // What the waker wrote before must be seen by whoever takes the one notification.
                NOTIFIED => NOTIFIED,
                _ => return false,
            };
            match self
                .0
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return seen == WAITING,
                Err(now) => seen = now,
            }
        }
    }

    /// By the fibre: takes a wake-up that came before it waits.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Only this fibre takes it back, so what is there stays there.
        self.0.load(Ordering::Relaxed) == NOTIFIED
            && self
                .0
                .compare_exchange(NOTIFIED, RUNNING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// By its worker, after the fibre has left its stack. True if it waits from now on; false if it was
    /// woken meanwhile, and the worker still has it.
    #[inline]
    pub(crate) fn settle(&self) -> bool {
        let waits = self
            .0
            .compare_exchange(RUNNING, WAITING, Ordering::Release, Ordering::Relaxed);
        if waits.is_err() {
            let taken = self.take();
            debug_assert!(taken, "only its worker ends or settles a fibre");
        }
        waits.is_ok()
    }

    /// By its worker: nothing wakes it any more.
    pub(crate) fn end(&self) {
        self.0.store(ENDED, Ordering::Release);
    }
}
