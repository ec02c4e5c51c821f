//! Fibres and threads that wait for the same thing, in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::atomic::{AtomicU32, Mutex, Ordering};
use crate::task::Waiter;
use crate::wait::{Stop, wait_here};

/// Who waits, and whether its turn has come.
#[derive(Debug)]
struct Entry {
    waiter: Waiter,
    called: AtomicU32,
}

#[derive(Default)]
pub(crate) struct WaitQueue(Mutex<VecDeque<Arc<Entry>>>);

/// The caller's place in a queue. Dropped, it is left; a call that came meanwhile goes to the next.
#[derive(Debug)]
pub(crate) struct Place<'q> {
    queue: &'q WaitQueue,
    entry: Arc<Entry>,
    /// It was waited for to its end.
    is_over: bool,
}

// Not what is under the lock: whoever shows it may wait, or panic.
impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WaitQueue").finish_non_exhaustive()
    }
}

impl WaitQueue {
    fn entries(&self) -> impl std::ops::DerefMut<Target = VecDeque<Arc<Entry>>> + '_ {
        self.0.lock().expect("nothing panics under it")
    }

    /// Takes a place at the end.
    pub(crate) fn enter(&self) -> Place<'_> {
        let entry = Arc::new(Entry {
            waiter: Waiter::current(),
            called: AtomicU32::new(0),
        });
        self.entries().push_back(entry.clone());
        Place {
            queue: self,
            entry,
            is_over: false,
        }
    }

    /// Calls the first; false if nobody waits.
    pub(crate) fn call_one(&self) -> bool {
        let first = self.entries().pop_front();
        first.is_some_and(|entry| {
            entry.called.store(1, Ordering::Release);
            entry.waiter.wake();
            true
        })
    }

    /// Calls all that wait now.
    pub(crate) fn call_all(&self) {
        let all = std::mem::take(&mut *self.entries());
        for entry in all {
            entry.called.store(1, Ordering::Release);
            entry.waiter.wake();
        }
    }
}

impl Place<'_> {
    fn is_called(&self) -> bool {
        self.entry.called.load(Ordering::Acquire) == 1
    }

    /// Waits to be called; false if `deadline` came first.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Result<bool, Stop> {
        while !self.is_called() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            wait_here(deadline)?;
        }
        self.is_over = true;
        Ok(self.is_called() || !self.leave())
    }

    /// Gives the place up; false if it was called already.
    fn leave(&self) -> bool {
        let mut entries = self.queue.entries();
        let place = entries.iter().position(|it| Arc::ptr_eq(it, &self.entry));
        place.is_some_and(|place| entries.remove(place).is_some())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_over && !self.leave() {
            self.queue.call_one();
        }
    }
}
