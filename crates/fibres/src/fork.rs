//! Processes that fork: a child has none of the workers.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process is a fork of one with a runtime.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// A fibre that forked goes on in the child until it waits: nobody is there to run another.
pub(crate) fn abort_if_forked() {
    if is_forked() {
        let text = format!("fibres: {}\n", Error::Forked);
        // SAFETY: the bytes are the text's own.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        std::process::abort();
    }
}

/// From now on a child knows that it is one.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` only writes a flag.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
