//! Where samples or accesses come from, each with its own way to record a target.

pub mod exact;
pub(crate) mod timer;
