//! Reuse distances of threads and of shared caches, exact or sampled, online.
//!
//! # Definitions
//!
//! A *unit* is an aligned piece of memory of the chosen granularity. An access *touches* every unit
//! that it overlaps, in ascending order, and each touch counts once: a load across two lines is two
//! touches. A *group* is one thread (private reuse), or the threads behind one cache (shared). Each
//! touch is exactly one of
//!
//! - *cold*: the group's first touch of the unit;
//! - *invalidated*: since the group's last touch, a thread of another group stored to the unit. It
//!   counts here when the group comes back; a use that nobody comes back to costs nothing;
//! - a *reuse*, with the distance to the group's last touch: *time*, the group's accesses in
//!   between, and *stack*, the distinct units that the group touched in between (one that was
//!   invalidated meanwhile was touched all the same).
//!
//! So the mass of every histogram is the number of touches. A read by another group neither ends a
//! use nor makes a reuse. In a shared cache a reuse by another thread than the last
//! ([`ReuseProfile::other_thread`]) is the shared-cache reuse of the literature, and one by the
//! same thread an intra-thread reuse; never both (Sasongko, Chabbi, Marzijarani, Unat:
//! ReuseTracker, 2021, definitions 6.2.1 to 6.2.4 of the thesis version). With one thread behind
//! each cache the two kinds of groups give the same.
//!
//! The stack distance at line granularity says whether a fully associative LRU cache hits: see
//! [`MissRatioCurve`](crate::MissRatioCurve).

mod chooser;
mod chosen;
mod conversion;
mod engine;
mod histogram;
mod options;
mod profile;
mod recency;
pub mod ribench;
mod table;
mod tracker;

pub use chooser::{Chooser, StratifiedUnits};
pub use chosen::Chosen;
pub use conversion::stack_from_time;
pub use engine::Outcome;
pub use histogram::{Bin, Histogram};
pub use options::{Attribution, Choice, Grouping, ReuseError, ReuseOptions, Sampling};
pub use profile::{CacheReuse, Distances, PairReuse, ReuseProfile, SiteReuse};
pub use tracker::{ReuseTracker, Touch};
