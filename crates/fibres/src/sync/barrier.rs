//! Waiting for each other.

use super::{Condvar, Mutex};

/// Holds so many fibres or threads until all have come, again and again.
#[derive(Debug)]
pub struct Barrier {
    count: usize,
    /// Who came, and how often all did.
    state: Mutex<(usize, usize)>,
    all_came: Condvar,
}

impl Barrier {
    /// A barrier for `count`; 0 is as 1.
    pub fn new(count: usize) -> Self {
        Self {
            count,
            state: Mutex::new((0, 0)),
            all_came: Condvar::new(),
        }
    }

    /// Waits until all have come; true for one of them.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.0 >= self.count {
            *state = (0, state.1.wrapping_add(1));
            drop(state);
            self.all_came.notify_all();
            return true;
        }
        let turn = state.1;
        drop(self.all_came.wait_while(state, |state| state.1 == turn));
        false
    }
}
