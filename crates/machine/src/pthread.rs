//! The C library's locks around a value: what C programs synchronise with, for comparisons.

use std::cell::UnsafeCell;

/// A value behind a `pthread_mutex_t` of the default kind.
///
/// ```
/// let counter = linewise_machine::pthread::PthreadMutex::new(0_u64);
/// counter.with(|value| *value += 1);
/// assert_eq!(counter.into_inner(), 1);
/// ```
pub struct PthreadMutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, under the mutex; so sharing the mutex only
// sends the value from thread to thread.
unsafe impl<T: Send> Sync for PthreadMutex<T> {}
// SAFETY: nobody holds the mutex while it is sent, since holding it borrows it, and an unlocked
// mutex of the default kind is plain data in the C libraries of Linux.
unsafe impl<T: Send> Send for PthreadMutex<T> {}

impl<T> PthreadMutex<T> {
    /// Puts `value` behind an unlocked mutex.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `f` on the value with the mutex locked, and returns what it returns. A call on the
    /// same mutex inside `f` waits for ever.
    ///
    /// # Panics
    /// If the C library refuses to lock, which it does for no mutex of the default kind.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the mutex is initialised and stays where it is while it is borrowed.
        let result = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        assert_eq!(result, 0, "pthread_mutex_lock failed");
        let _unlock = OnDrop(|| {
            // SAFETY: this thread locked it above.
            unsafe { libc::pthread_mutex_unlock(self.raw.get()) };
        });
        // SAFETY: the mutex is locked until `_unlock` is dropped, after `f`; everybody else who
        // wants the value waits for it.
        f(unsafe { &mut *self.value.get() })
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// A value behind a `pthread_spinlock_t`. Waiting burns the CPU: a thread that waits for one that
/// does not run waits for its whole time slice.
///
/// ```
/// let counter = linewise_machine::pthread::PthreadSpin::new(0_u64);
/// counter.with(|value| *value += 1);
/// assert_eq!(counter.into_inner(), 1);
/// ```
pub struct PthreadSpin<T> {
    raw: UnsafeCell<libc::pthread_spinlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: as for PthreadMutex.
unsafe impl<T: Send> Sync for PthreadSpin<T> {}
// SAFETY: as for PthreadMutex; the lock is one integer.
unsafe impl<T: Send> Send for PthreadSpin<T> {}

impl<T> PthreadSpin<T> {
    /// Puts `value` behind an unlocked lock.
    #[must_use]
    pub fn new(value: T) -> Self {
        let mut raw = 0;
        // SAFETY: `raw` is a place for a lock; the call only writes it. It cannot fail on Linux.
        unsafe { libc::pthread_spin_init(&raw mut raw, libc::PTHREAD_PROCESS_PRIVATE) };
        Self {
            raw: UnsafeCell::new(raw),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `f` on the value with the lock held, and returns what it returns. A call on the same
    /// lock inside `f` waits for ever.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is initialised and stays where it is while it is borrowed.
        unsafe { libc::pthread_spin_lock(self.raw.get()) };
        let _unlock = OnDrop(|| {
            // SAFETY: this thread locked it above.
            unsafe { libc::pthread_spin_unlock(self.raw.get()) };
        });
        // SAFETY: the lock is held until `_unlock` is dropped, after `f`.
        f(unsafe { &mut *self.value.get() })
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// Does something when it goes, also when a panic passes.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const THREADS: u64 = 4;
    const EACH: u64 = 2_000;

    fn count(increment: impl Fn() + Sync) {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|_| increment()));
            }
        });
    }

    #[test]
    fn no_increment_is_lost_under_the_mutex() {
        let counter = PthreadMutex::new(0);
        count(|| counter.with(|value| *value += 1));
        assert_eq!(counter.into_inner(), THREADS * EACH);
    }

    #[test]
    fn no_increment_is_lost_under_the_spin_lock() {
        let counter = PthreadSpin::new(0);
        count(|| counter.with(|value| *value += 1));
        assert_eq!(counter.into_inner(), THREADS * EACH);
    }

    #[test]
    fn a_panic_leaves_both_unlocked() {
        let (mutex, spin) = (PthreadMutex::new(1), PthreadSpin::new(1));
        let panicked = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
        assert!(panicked(&|| mutex.with(|_| panic!("on purpose"))));
        assert!(panicked(&|| spin.with(|_| panic!("on purpose"))));
        assert_eq!(
            (mutex.with(|value| *value), spin.with(|value| *value)),
            (1, 1)
        );
    }
}
