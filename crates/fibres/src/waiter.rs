//! Who waits, fibre or thread, and how it is woken.

use std::thread::Thread;
use std::time::Instant;

use crate::atomic::{AtomicUsize, Ordering};
use crate::fibre::{self, Stop, current_task};
use crate::task::TaskRef;
use crate::worker::wake;

/// A fibre or a thread that waits, or is about to.
#[derive(Clone, Debug)]
pub(crate) enum Waiter {
    Fibre(TaskRef),
    Thread(Thread),
}

/// The caller is cancelled: its runtime shuts down.
pub(crate) type Waited = Result<(), Stop>;

impl Waiter {
    /// The caller.
    pub(crate) fn current() -> Self {
        match current_task() {
            Some(task) => Self::Fibre(TaskRef::of(task)),
            None => Self::Thread(std::thread::current()),
        }
    }

    /// Whether it is `other`.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fibre(one), Self::Fibre(two)) => std::ptr::eq(one.task(), two.task()),
            (Self::Thread(one), Self::Thread(two)) => one.id() == two.id(),
            _ => false,
        }
    }

    /// Wakes it, or lets its next wait return at once.
    pub(crate) fn wake(&self) {
        match self {
            Self::Fibre(task) => wake(task),
            Self::Thread(thread) => thread.unpark(),
        }
    }
}

/// Waits until the caller is woken, or not at all if it was since the last time; not beyond `deadline`. May
/// return early.
pub(crate) fn wait_here(deadline: Option<Instant>) -> Waited {
    match (current_task(), deadline) {
        (Some(task), None) => fibre::wait(task),
        (Some(task), Some(deadline)) => fibre::wait_until(task, deadline),
        (None, None) => {
            std::thread::park();
            Ok(())
        }
        (None, Some(deadline)) => {
            std::thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
            Ok(())
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

    /// Waits for the end. One at a time waits for a fibre: its handle is one.
    pub(crate) fn wait_for(&self) -> Waited {
        if self.has_ended() {
            return Ok(());
        }
        let mut seen = self.0.load(Ordering::Acquire);
        let word = into_word(Waiter::current());
        loop {
            if seen == ENDED {
                // SAFETY: it was not left there.
                drop(unsafe { from_word(word) });
                return Ok(());
            }
            match self
                .0
                .compare_exchange(seen, word, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(before) => {
                    // SAFETY: who waited before was cancelled, and left this word for one look.
                    drop(unsafe { from_word(before) });
                    break;
                }
                Err(now) => seen = now,
            }
        }
        while !self.has_ended() {
            wait_here(None)?;
        }
        Ok(())
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
