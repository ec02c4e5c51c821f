//! What every source needs of a target: its processes and threads, what they map and allocate, its programs and their
//! functions.

mod account;
pub(crate) mod binary;
pub(crate) mod build_id;
pub(crate) mod clock;
pub(crate) mod family;
pub(crate) mod follow;
pub(crate) mod function;
pub(crate) mod heap;
pub(crate) mod library;
pub(crate) mod life;
