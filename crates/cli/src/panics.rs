//! A panic is a bug of linewise, and takes neither the target's exit code nor what was recorded.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Where the last panic was.
static PLACE: Mutex<String> = Mutex::new(String::new());

/// A panic that was caught.
#[derive(Debug)]
pub(crate) struct Bug {
    message: String,
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message } = self;
        write!(
            f,
            "linewise has a bug: {message}{}; please report it",
            place()
        )
    }
}

impl std::error::Error for Bug {}

/// From now on a panic says nothing by itself, but where it was is remembered for who catches it.
pub(crate) fn remember() {
    std::panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let place = info.location().map_or_else(String::new, |place| {
            format!(" ({}:{})", place.file(), place.line())
        });
        *PLACE.lock().unwrap_or_else(PoisonError::into_inner) = place;
        // Who asks for it (RUST_BACKTRACE) looks for the bug.
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            let _ = writeln!(std::io::stderr(), "{trace}");
        }
    }));
}

/// Where the last panic was: a file of linewise or of a library and a line, in brackets behind a blank.
pub(crate) fn place() -> String {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Does `work`, whose panic is the error.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Bug> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Bug {
            message: text.unwrap_or("it panicked").to_owned(),
        }
    })
}

/// Panics where a test asks for it by the variable `LINEWISE_TEST_PANIC`; only in builds for tests.
pub(crate) fn where_a_test_wants_it(place: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("LINEWISE_TEST_PANIC").is_some_and(|it| it == place)
    {
        panic!("a test wants \x1b[31m{place} to fail");
    }
}
