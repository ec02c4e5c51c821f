//! Error codes, and the text of the last one.

use std::cell::RefCell;
use std::ffi::c_char;

use linewise_delegate::Error;
use linewise_edge::{Defect, Last, Refused, caught};

/// All went well.
pub const LINEWISE_OK: i32 = 0;
/// An argument is null, out of range, or of an unknown version.
pub const LINEWISE_ARGUMENT: i32 = 1;
/// A client was used by another thread than the one that opened it.
pub const LINEWISE_THREAD: i32 = 2;
/// The domain is shut down.
pub const LINEWISE_SHUTDOWN: i32 = 3;
/// A call that waits, or that ends what is in use, inside a delegated function, a callback or a fibre.
pub const LINEWISE_NESTED: i32 = 4;
/// The values belong to another domain than the client.
pub const LINEWISE_FOREIGN: i32 = 5;
/// Every seat of a flat domain is taken, or the wanted one is.
pub const LINEWISE_NO_SEAT: i32 = 6;
/// The shard's memory is used up.
pub const LINEWISE_FULL: i32 = 7;
/// The domain belongs to the parent process.
pub const LINEWISE_FORKED: i32 = 8;
/// The system refused a thread, a CPU or memory.
pub const LINEWISE_SYSTEM: i32 = 9;
/// A defect of the library: it panicked.
pub const LINEWISE_INTERNAL: i32 = 10;
/// The time was over before the answer was there.
pub const LINEWISE_TIMED_OUT: i32 = 11;

/// A code with its text.
pub(crate) struct Failure {
    pub(crate) code: i32,
    text: String,
}

impl Failure {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self {
            code: LINEWISE_ARGUMENT,
            text: text.into(),
        }
    }

    pub(crate) fn null(name: &str) -> Self {
        Refused::null(name).into()
    }

    pub(crate) fn thread() -> Self {
        Self {
            code: LINEWISE_THREAD,
            text: "a client belongs to the thread that opened it".to_owned(),
        }
    }

    pub(crate) fn nested(text: &str) -> Self {
        Self {
            code: LINEWISE_NESTED,
            text: text.to_owned(),
        }
    }

    pub(crate) fn memory(bytes: usize) -> Self {
        Self {
            code: LINEWISE_SYSTEM,
            text: format!("there is no memory for a value of {bytes} bytes"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Shutdown => LINEWISE_SHUTDOWN,
            Error::Nested => LINEWISE_NESTED,
            Error::Foreign => LINEWISE_FOREIGN,
            Error::NoSeat => LINEWISE_NO_SEAT,
            Error::TimedOut => LINEWISE_TIMED_OUT,
            Error::NoShard { .. } | Error::Setting(_) | Error::Apart | Error::Twice => {
                LINEWISE_ARGUMENT
            }
            Error::Full { .. } => LINEWISE_FULL,
            Error::Forked => LINEWISE_FORKED,
            Error::System { .. } => LINEWISE_SYSTEM,
            // Functions of C do not panic, so what did is ours.
            _ => LINEWISE_INTERNAL,
        };
        Self {
            code,
            text: error.to_string(),
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::argument(refused.0)
    }
}

impl From<Defect> for Failure {
    fn from(defect: Defect) -> Self {
        Self {
            code: LINEWISE_INTERNAL,
            text: defect.0,
        }
    }
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Notes a failure as the thread's last, and returns its code.
pub(crate) fn note(failure: &Failure) -> i32 {
    // A destructor of a thread that ends may come after that of the text; the code is enough then.
    let _ = LAST.try_with(|last| last.borrow_mut().set(&failure.text));
    failure.code
}

/// Runs the body of a function of the header: no panic leaves it, and what failed is noted.
#[inline(always)]
pub(crate) fn edge(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match caught(body) {
        Ok(()) => LINEWISE_OK,
        Err(failure) => note(&failure),
    }
}

/// The text of the last error of the calling thread; empty if there was none. Valid until the next
/// error of this thread, or its end.
#[no_mangle]
pub extern "C" fn linewise_last_error() -> *const c_char {
    static EMPTY: c_char = 0;
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(&raw const EMPTY)
}
