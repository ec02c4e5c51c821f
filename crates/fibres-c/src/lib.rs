//! The C face of [`linewise_fibres`]: opaque handles, error codes with a text. The header,
//! `include/linewise_fibres.h`, is made from these sources by `cargo xtask header`.
//!
//! Nothing unwinds through a frame of C: a waiting call of a fibre that is to end returns
//! [`LINEWISE_FIBRES_CANCELLED`](error::LINEWISE_FIBRES_CANCELLED), a panic becomes a code, and an exception
//! of C++ that leaves a function that was passed in ends the process there.
//!
//! A fibre may be on another thread after a call that waits. So what belongs to a thread (the text of its
//! last error, `errno`) is reached only in functions that are never inlined.
#![expect(unsafe_code, reason = "is called from C, and takes its pointers")]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

pub mod channel;
pub mod error;
pub mod fibre;
pub mod file;
pub mod io;
pub mod runtime;
pub mod sync;

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use linewise_edge::Passed;

use error::Failure;

/// What a fibre runs, or what is run elsewhere for it. What it returns goes to whoever waits for it.
pub type linewise_fibres_function =
    Option<unsafe extern "C-unwind" fn(argument: *mut c_void) -> *mut c_void>;

/// One that is there.
type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Ends the process where an exception passes that is no panic: nobody but its own language may catch it.
struct Foreign;

impl Drop for Foreign {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            eprintln!(
                "fibres: an exception left a function that was passed to linewise_fibres; catch it inside"
            );
            std::process::abort();
        }
    }
}

/// Calls a function of C's.
fn call(function: Function, argument: Passed) -> Passed {
    let foreign = Foreign;
    // SAFETY: who passed the function vouches for it.
    let value = unsafe { function(argument.get()) };
    std::mem::forget(foreign);
    Passed(value)
}

/// The same; what it threw if it panicked, which only one written in Rust does.
fn call_caught(function: Function, argument: Passed) -> Result<Passed, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| call(function, argument)))
}

/// Writes what is told to whoever wants it.
///
/// # Safety
/// `place` is null or a place for it.
unsafe fn tell<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the contract.
        unsafe { place.write(value) };
    }
}

/// What is behind a handle.
///
/// # Safety
/// `handle` is null, or valid for `'a`.
unsafe fn of<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the contract.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// A place for what is asked for, which must not be null.
fn place<T>(place: *mut T, name: &str) -> Result<*mut T, Failure> {
    if place.is_null() {
        return Err(Failure::null(name));
    }
    Ok(place)
}

/// Puts `value` behind a handle.
///
/// # Safety
/// `place` is a place for a handle.
unsafe fn give<T>(place: *mut *mut T, value: T) {
    // SAFETY: the contract.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
}

/// Closes a handle.
///
/// # Safety
/// `handle` is null, or was made by [`give`], and the caller gives it up.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the contract.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A text of C's.
///
/// # Safety
/// `text` is null, or a string that ends with a zero and stays for the call.
unsafe fn text(text: *const c_char, name: &str) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: not null, and the contract.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

/// When so many nanoseconds are over; never for the largest number.
fn deadline(nanoseconds: u64) -> Option<Instant> {
    if nanoseconds == u64::MAX {
        return None;
    }
    Instant::now().checked_add(Duration::from_nanos(nanoseconds))
}
