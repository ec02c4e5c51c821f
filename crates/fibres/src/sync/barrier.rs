//! Waiting for each other.

use std::sync::{Mutex, MutexGuard};

use crate::wait::{Stop, thrown};
use crate::wait_queue::WaitQueue;

/// Holds so many fibres or threads until all have come, again and again. One that is cancelled while it waits
/// has not come.
#[derive(Debug)]
pub struct Barrier {
    count: usize,
    /// Who came, and how often all did. Held for moments, never while a fibre waits.
    state: Mutex<(usize, usize)>,
    all_came: WaitQueue,
}

impl Barrier {
    /// A barrier for `count`; 0 is as 1.
    pub fn new(count: usize) -> Self {
        Self {
            count,
            state: Mutex::new((0, 0)),
            all_came: WaitQueue::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, (usize, usize)> {
        self.state.lock().expect("nothing panics under it")
    }

    /// Waits until all have come; true for one of them.
    pub fn wait(&self) -> bool {
        thrown(self.wait_or_stop())
    }

    pub(crate) fn wait_or_stop(&self) -> Result<bool, Stop> {
        let mut state = self.state();
        state.0 += 1;
        if state.0 >= self.count {
            *state = (0, state.1.wrapping_add(1));
            drop(state);
            self.all_came.call_all();
            return Ok(true);
        }
        let turn = state.1;
        loop {
            // In the queue before the state is free: who comes last calls it.
            let place = self.all_came.enter();
            drop(state);
            let waited = place.wait(None);
            state = self.state();
            if state.1 != turn {
                return Ok(false);
            }
            if let Err(stop) = waited {
                state.0 -= 1;
                return Err(stop);
            }
        }
    }
}
