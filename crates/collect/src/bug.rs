//! Panics of ours, which must not become the target's trouble.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Error;

/// Does `work`; a panic in it is [`Error::Bug`]. What it borrows may be half done afterwards: it is good for being dropped,
/// by [`drop_caught`].
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Bug {
            message: message(&*panic),
        })
    })
}

/// Drops what a panic left half done.
pub(crate) fn drop_caught<T>(what: T) {
    // The panic before said what went wrong.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let number = 7;
        let error = caught::<()>(|| panic!("no {number}")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("linewise has a bug: no 7"), "{text}");
        assert!(caught(|| Ok(number)).is_ok());
    }
}
