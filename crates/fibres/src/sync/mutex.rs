//! Mutual exclusion.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering};
use crate::wait::{Stop, step_aside, thrown};
use crate::wait_queue::WaitQueue;

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Somebody may wait. (U. Drepper, *Futexes Are Tricky*, the third mutex, with a queue for the futex.)
const AWAITED: u32 = 2;

/// A value that one fibre or thread at a time reaches. A panic under the lock does not poison it. The guard
/// may move to another thread with its fibre.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: the value goes along.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

/// The lock alone: whose it is, the caller knows. See [`raw`](crate::raw).
#[derive(Debug)]
pub struct Lock {
    state: AtomicU32,
    queue: WaitQueue,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            queue: WaitQueue::default(),
        }
    }
}

impl Lock {
    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.state
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits until it is free, and takes it.
    ///
    /// # Errors
    /// [`Stop`] instead of waiting, without the lock.
    #[inline]
    pub fn lock(&self) -> Result<(), Stop> {
        if self.try_lock() {
            return Ok(());
        }
        self.lock_slowly()
    }

    #[cold]
    fn lock_slowly(&self) -> Result<(), Stop> {
        loop {
            if self.state.swap(AWAITED, Ordering::Acquire) == FREE {
                return Ok(());
            }
            let place = self.queue.enter();
            // Who let go of it before the place was taken called nobody.
            if self.state.swap(AWAITED, Ordering::Acquire) == FREE {
                return Ok(());
            }
            place.wait(None)?;
        }
    }

    /// Takes it even where the caller is to end: others run until it is free.
    pub(crate) fn lock_anyway(&self) {
        if self.lock().is_err() {
            while !self.try_lock() {
                step_aside();
            }
        }
    }

    /// Frees it, whoever has it.
    #[inline]
    pub fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            self.queue.call_one();
        }
    }
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub fn new(value: T) -> Self {
        Self {
            lock: Lock::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else has the value, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        thrown(self.lock.lock());
        MutexGuard(self)
    }

    /// Takes the value if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.lock.try_lock().then_some(MutexGuard(self))
    }

    /// The value; nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The value of a mutex, until it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'m, T: ?Sized>(&'m Mutex<T>);

// SAFETY: by reference it gives a reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'m, T: ?Sized> MutexGuard<'m, T> {
    pub(crate) fn mutex(&self) -> &'m Mutex<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard borrowed for this alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}
