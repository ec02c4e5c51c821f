//! Waiting for what another does under a mutex.

use std::time::{Duration, Instant};

use super::mutex::{Lock, MutexGuard};
use crate::wait::{Stop, after, thrown};
use crate::wait_queue::WaitQueue;

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(WaitQueue);

impl Condvar {
    /// A condition that nobody waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets go of the mutex, waits to be notified, and takes the mutex again. May return early.
    pub fn wait<'m, T: ?Sized>(&self, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
        self.wait_until(guard, None).0
    }

    /// As [`Condvar::wait`], for `time` at most; false if it was over.
    pub fn wait_timeout<'m, T: ?Sized>(
        &self,
        guard: MutexGuard<'m, T>,
        time: Duration,
    ) -> (MutexGuard<'m, T>, bool) {
        self.wait_until(guard, Some(after(time)))
    }

    /// Waits as long as `condition` holds.
    pub fn wait_while<'m, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'m, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    fn wait_until<'m, T: ?Sized>(
        &self,
        guard: MutexGuard<'m, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'m, T>, bool) {
        let mutex = guard.mutex();
        // In the queue before the mutex is free: who notifies under it from now on is heard.
        let place = self.0.enter();
        drop(guard);
        let notified = thrown(place.wait(deadline));
        (mutex.lock(), notified)
    }

    /// As [`Condvar::wait`], until `deadline` at most, with a lock that the caller has, and has afterwards in
    /// every case.
    pub(crate) fn wait_at(&self, lock: &Lock, deadline: Option<Instant>) -> Result<bool, Stop> {
        let place = self.0.enter();
        lock.unlock();
        let notified = place.wait(deadline);
        lock.lock_anyway();
        notified
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.call_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.call_all();
    }
}
