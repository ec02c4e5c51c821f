//! The C face of [`linewise_delegate`]: opaque handles, error codes with a text, options whose first
//! member is their size. The header, `include/linewise_delegate.h`, is made from these sources by
//! `cargo xtask header`.
//!
//! No panic leaves a function: it becomes [`LINEWISE_INTERNAL`](error::LINEWISE_INTERNAL). What the
//! caller passes in is trusted as far as C can only promise it: pointers are valid or null, functions
//! return.
#![allow(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

pub mod array;
pub mod call;
pub mod client;
pub mod domain;
pub mod error;
