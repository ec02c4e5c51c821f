//! What panics throw: kept out of the way, since a payload may itself throw when it is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic threw.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Drops what a panic threw. What that throws in turn is leaked.
pub(crate) fn discard(payload: Payload) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Keeps what was thrown first, which says best what went wrong.
pub(crate) fn keep_first(first: &mut Option<Payload>, payload: Payload) {
    match first {
        None => *first = Some(payload),
        Some(_) => discard(payload),
    }
}

/// Runs code of users whom nobody tells what it throws.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        discard(payload);
    }
}

/// The text of a panic's payload, which is dropped.
pub(crate) fn panic_text(payload: Payload) -> String {
    let text = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a payload that is no text".to_owned()
    };
    discard(payload);
    text
}

/// Ends the process where it is dropped, that is, where a panic passes. It stands where another thread
/// uses memory of this one, or where a protocol would be left in the middle. All that users wrote is
/// caught further inside, so what passes is a defect of ours.
#[must_use]
pub(crate) struct NoUnwind;

impl NoUnwind {
    /// No panic passed.
    #[inline(always)]
    pub(crate) fn passed(self) {
        std::mem::forget(self);
    }
}

impl Drop for NoUnwind {
    #[cold]
    fn drop(&mut self) {
        std::process::abort();
    }
}
