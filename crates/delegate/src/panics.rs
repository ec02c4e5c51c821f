//! What panics throw: kept out of the way, since a payload may itself throw when it is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::inside::Inside;

/// What a panic threw.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Drops what a panic threw. What that throws in turn is leaked.
pub(crate) fn discard(payload: Payload) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Keeps what was thrown first, which says best what went wrong.
///
/// # Safety
/// `first` is valid and not borrowed. (What drops the payload may come to it, too.)
pub(crate) unsafe fn keep_first(first: *mut Option<Payload>, payload: Payload) {
    // SAFETY: the contract.
    let first = unsafe {
        match &*first {
            Some(_) => None,
            None => Some(&mut *first),
        }
    };
    match first {
        Some(first) => *first = Some(payload),
        None => discard(payload),
    }
}

/// Runs code of users whom nobody tells what it throws.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        discard(payload);
    }
}

/// What a delegated function threw: its text, and the payload until somebody takes it.
///
/// Clones have the payload in common. Where nobody takes it, it is dropped with the last of them; what
/// its destructor throws is lost, and waiting calls in there are [`Error::Nested`](crate::Error::Nested).
#[derive(Clone)]
pub struct Panic(Arc<Thrown>);

struct Thrown {
    text: String,
    payload: Mutex<Option<Payload>>,
}

impl Panic {
    /// Of what `catch_unwind` returned.
    pub(crate) fn of(payload: Payload) -> Self {
        let text = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else {
            "a payload that is no text".to_owned()
        };
        let payload = Mutex::new(Some(payload));
        Self(Arc::new(Thrown { text, payload }))
    }

    /// What the payload says, if it is a text as that of `panic!`; else that it is none.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The payload, as [`JoinHandle::join`](std::thread::JoinHandle::join) gives it. If it was taken
    /// from a clone before, a `String` with its text.
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        let taken = self.0.payload().take();
        taken.unwrap_or_else(|| Box::new(self.0.text.clone()))
    }

    /// Throws the payload on, in the calling thread, without a message on the terminal: the panic said
    /// it where it began.
    ///
    /// # Panics
    /// Always.
    pub fn resume(self) -> ! {
        resume_unwind(self.into_payload())
    }
}

impl Thrown {
    fn payload(&self) -> MutexGuard<'_, Option<Payload>> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Thrown {
    fn drop(&mut self) {
        let payload = self.payload().take();
        if let Some(payload) = payload {
            // Wherever this is, a destructor that waits could wait for who drops it.
            let _inside = Inside::callback();
            discard(payload);
        }
    }
}

/// As one of that text, whose payload is the text.
impl From<String> for Panic {
    fn from(text: String) -> Self {
        Self::of(Box::new(text))
    }
}

impl From<&str> for Panic {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// By their texts.
impl PartialEq for Panic {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Panic {}

impl std::fmt::Display for Panic {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::fmt::Debug for Panic {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.text(), formatter)
    }
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
