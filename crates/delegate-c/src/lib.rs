//! The C face of [`linewise_delegate`]: opaque handles, error codes with a text, options whose first
//! member is their size. The header, `include/linewise_delegate.h`, is made from these sources by
//! `cargo xtask header`.
//!
//! No panic leaves a function: it becomes [`LINEWISE_INTERNAL`](error::LINEWISE_INTERNAL). What the
//! caller passes in is trusted as far as C can only promise it: pointers are valid or null, functions
//! return. One that throws an exception of C++ instead ends the process, wherever it runs.
#![expect(unsafe_code, reason = "is called from C, and takes its pointers")]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

pub mod array;
pub mod call;
pub mod client;
pub mod domain;
pub mod error;
pub mod fibres;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pointer of C's that goes to another thread.
#[derive(Clone, Copy)]
pub(crate) struct Passed(*mut c_void);

// SAFETY: who passes it vouches that the functions it is for may use it where they run; this library
// only hands it on.
unsafe impl Send for Passed {}
// SAFETY: a shared one is only copied; what it points to is for who passed it to vouch for.
unsafe impl Sync for Passed {}

impl Passed {
    /// The pointer. A method, so that closures capture the whole.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

/// A number that no other thread has, or ever had.
#[inline(always)]
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    let number = NUMBER.get();
    if number != 0 {
        return number;
    }
    let new = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(new);
    new
}

/// The `count` things that a caller passed under this name.
///
/// # Safety
/// `first` points to so many that stay as they are for `'a`, or is null.
pub(crate) unsafe fn passed<'a, T>(
    first: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], error::Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(error::Failure::null(name));
    }
    // SAFETY: not null, and the contract.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}
