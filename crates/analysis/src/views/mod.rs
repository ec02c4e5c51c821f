//! Views: pure functions from the tables of a recording to plain results, one file each.

mod curve;
mod encounter;
pub mod sharing;

pub use curve::{Curves, TransferCurve};
pub use encounter::{Encounter, Encounters, Stays, Touch, encounters};
