//! A limit for what must not hang.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `body` in a thread of its own, and fails if it has not ended after so many seconds.
#[track_caller]
pub(crate) fn within(seconds: u64, body: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ended = ended;
        body();
    });
    if end.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    if let Err(payload) = thread.join() {
        std::panic::resume_unwind(payload);
    }
}
