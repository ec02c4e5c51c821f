//! Error codes, and the text of the last one.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;
use std::io;

use linewise_edge::{Defect, Last, Refused, caught, panic_text};
use linewise_fibres::raw::{self, Stop, VisitError};
use linewise_fibres::{Error, JoinError};

/// All went well.
pub const LINEWISE_FIBRES_OK: i32 = 0;
/// An argument is null, out of range, or of an unknown version.
pub const LINEWISE_FIBRES_ARGUMENT: i32 = 1;
/// The runtime is shut down: no new fibres.
pub const LINEWISE_FIBRES_SHUTDOWN: i32 = 3;
/// A call that waits for a whole runtime, inside a fibre or inside linewise_fibres_blocking of one of its own.
pub const LINEWISE_FIBRES_NESTED: i32 = 4;
/// The runtime belongs to the parent process.
pub const LINEWISE_FIBRES_FORKED: i32 = 8;
/// The system refused something; linewise_fibres_last_errno() has its number.
pub const LINEWISE_FIBRES_SYSTEM: i32 = 9;
/// A defect of the library: it panicked.
pub const LINEWISE_FIBRES_INTERNAL: i32 = 10;
/// The time was over before.
pub const LINEWISE_FIBRES_TIMED_OUT: i32 = 11;
/// The runtime of the calling fibre shuts down: it is to clean up and return. Every further call that has to
/// wait returns this at once.
pub const LINEWISE_FIBRES_CANCELLED: i32 = 20;
/// The caller is no fibre.
pub const LINEWISE_FIBRES_NO_FIBRE: i32 = 21;
/// A function that was passed in, written in Rust, panicked.
pub const LINEWISE_FIBRES_PANICKED: i32 = 22;
/// The fibre has no value: its runtime was shut down before it began.
pub const LINEWISE_FIBRES_NO_VALUE: i32 = 23;
/// Nobody sends to the channel any more, and it is empty; or linewise_fibres_channel_finish was called.
pub const LINEWISE_FIBRES_CLOSED: i32 = 24;
/// It cannot be had without waiting, or is in use.
pub const LINEWISE_FIBRES_BUSY: i32 = 25;
/// The mutex is not the caller's, or is so already.
pub const LINEWISE_FIBRES_OWNER: i32 = 26;

/// A code with its text.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    text: String,
    /// The kernel's number, 0 if there is none.
    errno: i32,
}

impl Failure {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            errno: 0,
        }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(LINEWISE_FIBRES_ARGUMENT, text)
    }

    pub(crate) fn null(name: &str) -> Self {
        Refused::null(name).into()
    }

    pub(crate) fn no_fibre() -> Self {
        Self::new(LINEWISE_FIBRES_NO_FIBRE, "the caller is no fibre")
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(LINEWISE_FIBRES_TIMED_OUT, "the time was over before")
    }

    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = panic_text(payload).unwrap_or("with a value that is no text");
        Self::new(LINEWISE_FIBRES_PANICKED, format!("it panicked: {text}"))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::argument(refused.0)
    }
}

impl From<Defect> for Failure {
    fn from(defect: Defect) -> Self {
        Self::new(LINEWISE_FIBRES_INTERNAL, defect.0)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::new(LINEWISE_FIBRES_CANCELLED, stop.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = match error {
            Error::System { errno, .. } => errno.unwrap_or(0),
            _ => 0,
        };
        let code = match error {
            Error::System { .. } => LINEWISE_FIBRES_SYSTEM,
            Error::StackSize { .. } | Error::Plan(_) => LINEWISE_FIBRES_ARGUMENT,
            Error::ShuttingDown => LINEWISE_FIBRES_SHUTDOWN,
            Error::Nested => LINEWISE_FIBRES_NESTED,
            Error::NoFibre => LINEWISE_FIBRES_NO_FIBRE,
            Error::Forked => LINEWISE_FIBRES_FORKED,
            _ => LINEWISE_FIBRES_INTERNAL,
        };
        Self {
            errno,
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Panicked(payload) => Self::panicked(&*payload),
            JoinError::Forked => Error::Forked.into(),
            JoinError::Cancelled => Self::new(LINEWISE_FIBRES_NO_VALUE, error.to_string()),
        }
    }
}

impl From<VisitError> for Failure {
    fn from(error: VisitError) -> Self {
        match error {
            VisitError::Begin(error) => error.into(),
            VisitError::Join(error) => error.into(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // One of the kernel's has a number; ours says that a time was over.
        if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::TimedOut {
            return Self::timed_out();
        }
        Self {
            code: LINEWISE_FIBRES_SYSTEM,
            text: error.to_string(),
            errno: error.raw_os_error().unwrap_or(0),
        }
    }
}

/// The last error of a fibre or a thread.
#[derive(Default)]
struct Noted {
    last: Last,
    errno: i32,
}

thread_local! {
    static LAST: RefCell<Noted> = RefCell::default();
}

/// What `look` finds in the last error of the caller: the fibre has its own wherever it runs. None where there
/// is no place for one, in the last destructors of a thread.
///
/// Never inlined: its callers wait, and go on in other threads.
#[inline(never)]
fn noted<T>(look: impl FnOnce(&mut Noted) -> T) -> Option<T> {
    if !linewise_fibres::is_fibre() {
        return LAST.try_with(|last| look(&mut last.borrow_mut())).ok();
    }
    let mut noted = raw::kept()
        .and_then(|kept| kept.downcast::<Noted>().ok())
        .unwrap_or_default();
    let found = look(&mut noted);
    raw::keep(noted).ok()?;
    Some(found)
}

/// Notes a failure as the caller's last, and returns its code.
#[cold]
#[inline(never)]
fn note(failure: &Failure) -> i32 {
    noted(|noted| {
        noted.last.set(&failure.text);
        noted.errno = failure.errno;
    });
    failure.code
}

/// Runs the body of a function of the header: no panic leaves it, and what failed is noted.
#[inline(always)]
pub(crate) fn edge(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match caught(body) {
        Ok(()) => LINEWISE_FIBRES_OK,
        Err(failure) => note(&failure),
    }
}

/// The text of the last error of the calling fibre, or of the calling thread if it is none; empty if there was
/// none. Valid until the next error of the caller, or its end.
#[no_mangle]
pub extern "C" fn linewise_fibres_last_error() -> *const c_char {
    static EMPTY: c_char = 0;
    noted(|noted| noted.last.as_ptr()).unwrap_or(&raw const EMPTY)
}

/// The system's number of that error, as in <errno.h>; 0 if it has none. Unlike `errno` it belongs to the fibre.
#[no_mangle]
pub extern "C" fn linewise_fibres_last_errno() -> i32 {
    noted(|noted| noted.errno).unwrap_or(0)
}
