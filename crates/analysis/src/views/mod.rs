//! Views: pure functions from the tables of a recording to plain results, one file each.

pub mod caches;
mod clusters;
mod curve;
mod encounter;
#[cfg(test)]
mod exact_rows;
pub mod flow;
pub mod heap_sites;
mod kind;
mod lines_seen;
pub mod miss_ratio;
pub mod misses;
pub mod place;
pub mod prefetch;
pub mod reuse;
pub mod sampled_reuse;
#[cfg(test)]
pub(crate) mod sampled_rows;
pub mod sharing;
pub mod types;
pub mod working_set;

pub(crate) use clusters::Clusters;
pub use curve::{Curves, TransferCurve};
pub use encounter::{Encounter, Encounters, Stays, Touch, encounters};
