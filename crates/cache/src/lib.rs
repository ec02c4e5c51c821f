//! What caches make of a stream of memory accesses: pure algorithms, no input or output.
//!
//! The stream is a sequence of [`Access`] values in one global order. Whoever makes it numbers the
//! threads and the instructions densely from zero, so that everything here can be held in vectors.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod access;
mod chance;
mod curve;
mod hash;
pub mod hierarchy;
pub mod reuse;

pub use access::{Access, Kind};
pub use chance::Chance;
pub use curve::{CurveMark, CurvePoint, MissRatioCurve, Misses};
pub use hash::{KeyHasher, line_hash};
