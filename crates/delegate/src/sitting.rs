//! The seats that this thread holds, of flat domains.

use std::cell::RefCell;
use std::sync::Arc;

use crate::inside::is_nested;
use crate::shard::Shard;

/// A client of this thread that holds a seat.
struct Seated {
    /// Its core, which tells it from others.
    client: *const (),
    shard: Arc<Shard>,
    leave: Box<dyn FnOnce()>,
}

/// The clients of this thread that hold seats. The seats of those that are still here when it ends are
/// left then: they were forgotten, or given up where they could not leave, or they outlive this list in
/// another variable of the thread, and go on without.
struct Sitting(RefCell<Vec<Seated>>);

impl Drop for Sitting {
    fn drop(&mut self) {
        let seated = self.0.take();
        // A delegated function or a callback that ends the process has its thread's variables destroyed in the
        // middle of a pass: the seat is in use, and stays.
        if is_nested() {
            std::mem::forget(seated);
            return;
        }
        for seated in seated {
            (seated.leave)();
        }
    }
}

thread_local! {
    static SITTING: Sitting = const { Sitting(RefCell::new(Vec::new())) };
}

/// Notes that this client of this thread holds the seat of `shard`. Unless it stands up before, `leave`
/// runs when the thread ends.
pub(crate) fn sit(client: *const (), shard: Arc<Shard>, leave: impl FnOnce() + 'static) {
    let seated = Seated {
        client,
        shard,
        leave: Box::new(leave),
    };
    let _ = SITTING.try_with(|sitting| sitting.0.borrow_mut().push(seated));
}

/// Whether a seat that this thread takes now will be left when it ends: not where its variables are being destroyed.
pub(crate) fn can_sit() -> bool {
    SITTING.try_with(|_| ()).is_ok()
}

/// Notes that it no longer does.
pub(crate) fn stand(client: *const ()) {
    let stays = |other: &Seated| other.client != client;
    let _ = SITTING.try_with(|sitting| sitting.0.borrow_mut().retain(stays));
}

/// Serves every shard whose seat this thread holds. True if something was done.
pub(crate) fn serve() -> bool {
    let at = |index: usize| {
        let shard = |sitting: &Sitting| Some(sitting.0.borrow().get(index)?.shard.clone());
        SITTING.try_with(shard).ok().flatten()
    };
    let mut worked = false;
    let mut index = 0;
    // One at a time: a delegated function may change the list.
    while let Some(shard) = at(index) {
        worked |= shard.serve_if_held();
        index += 1;
    }
    worked
}

/// How many seats this thread holds.
pub(crate) fn count() -> usize {
    SITTING
        .try_with(|sitting| sitting.0.borrow().len())
        .unwrap_or(0)
}
