//! How a runtime ends: all workers halt, those that wait are found, then all go on to be cancelled.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const RUNNING: u32 = 0;
/// Workers come to a halt, so that nothing ends while those that wait are looked for.
const HALTING: u32 = 1;
/// Who waits is cancelled, and workers end when no fibre is left.
const CANCELLING: u32 = 2;

/// How long a worker halts before it looks whether another waits for something here.
const A_WHILE: Duration = Duration::from_millis(1);

/// How far a runtime is with its end.
#[derive(Debug, Default)]
pub(crate) struct End {
    phase: AtomicU32,
    halted: Mutex<usize>,
    resumed: Condvar,
    /// Held while a thread that is no worker brings a new fibre; true when none may come any more.
    closed: Mutex<bool>,
}

impl End {
    fn is(&self, phase: u32) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    pub(crate) fn has_begun(&self) -> bool {
        !self.is(RUNNING)
    }

    pub(crate) fn is_halting(&self) -> bool {
        self.is(HALTING)
    }

    pub(crate) fn is_cancelling(&self) -> bool {
        self.is(CANCELLING)
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a thread that is no worker make a fibre; none if the runtime is ending. It does not end before the
    /// guard is dropped.
    pub(crate) fn admit(&self) -> Option<MutexGuard<'_, bool>> {
        let closed = self.closed();
        (!*closed).then_some(closed)
    }

    /// From now on no thread that is no worker brings a fibre.
    pub(crate) fn close(&self) {
        *self.closed() = true;
    }

    /// The runtime is to end.
    pub(crate) fn begin(&self) {
        self.close();
        self.phase.store(HALTING, Ordering::SeqCst);
    }

    /// So many workers could not be started: nobody waits for them.
    pub(crate) fn give_up(&self, workers: usize) {
        *self.halted.lock().expect("nothing panics under it") += workers;
    }

    /// One of so many workers halts until all do; the last one calls `all_halt`, and all go on.
    ///
    /// False if it does not yet: `is_wanted`, as another may hold its thread until a fibre that was sent here
    /// has run.
    pub(crate) fn halt(
        &self,
        workers: usize,
        is_wanted: impl Fn() -> bool,
        all_halt: impl FnOnce(),
    ) -> bool {
        let mut halted = self.halted.lock().expect("nothing panics under it");
        *halted += 1;
        if *halted < workers {
            while self.is(HALTING) {
                let waited = self.resumed.wait_timeout(halted, A_WHILE);
                let (again, waited) = waited.expect("nothing panics under it");
                halted = again;
                if waited.timed_out() && self.is(HALTING) && is_wanted() {
                    *halted -= 1;
                    return false;
                }
            }
            return true;
        }
        all_halt();
        self.phase.store(CANCELLING, Ordering::Relaxed);
        self.resumed.notify_all();
        true
    }
}
