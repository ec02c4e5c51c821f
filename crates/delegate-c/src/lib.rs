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
use std::sync::atomic::{AtomicU64, Ordering};

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
