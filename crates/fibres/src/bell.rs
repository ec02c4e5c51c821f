//! How a worker sleeps and is woken: through one trait, by a futex or by epoll with an eventfd.

use std::time::Duration;

use crate::atomic::{AtomicU32, Ordering, address, fence};

/// The worker looks for work.
const AWAKE: u32 = 0;
/// It sleeps, or is about to.
const ASLEEP: u32 = 1;

/// What a worker sleeps in.
pub(crate) trait Park: Send + Sync {
    /// Sleeps while `word` is [`ASLEEP`], for `timeout` at most. May return early.
    fn sleep(&self, word: &AtomicU32, timeout: Option<Duration>);
    /// Ends the sleep of whoever sleeps at `word`.
    fn wake(&self, word: &AtomicU32);
}

/// Where others tell a worker that there is something to do.
#[repr(align(64))]
pub(crate) struct Bell {
    word: AtomicU32,
    park: Box<dyn Park>,
}

impl Bell {
    pub(crate) fn new(park: Box<dyn Park>) -> Self {
        Self {
            word: AtomicU32::new(AWAKE),
            park,
        }
    }

    /// By the worker: sleeps unless `has_work` finds something after all have been told that it will.
    /// Who brings work and then calls [`Bell::ring`] is seen by `has_work` or sees the worker asleep.
    pub(crate) fn sleep(&self, timeout: Option<Duration>, has_work: impl FnOnce() -> bool) {
        self.word.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            self.park.sleep(&self.word, timeout);
        }
        self.word.store(AWAKE, Ordering::Relaxed);
    }

    /// After work was brought: wakes the worker if it sleeps, for certain.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        self.ring_soon();
    }

    /// The same without the fence: a worker that falls asleep at this very moment may be missed, so the
    /// caller calls [`Bell::ring`] later.
    #[inline]
    pub(crate) fn ring_soon(&self) {
        if self.word.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.word.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            self.park.wake(&self.word);
        }
    }

    /// Whether the worker sleeps, roughly.
    pub(crate) fn is_asleep(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ASLEEP
    }
}

/// Sleeps in a futex: of a worker without sockets and files.
#[derive(Debug)]
pub(crate) struct Futex;

impl Park for Futex {
    fn sleep(&self, word: &AtomicU32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the word and the time live until the call returns.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                address(word),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                ASLEEP,
                timeout,
            );
        }
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: the call reads nothing but the address.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                address(word),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}
