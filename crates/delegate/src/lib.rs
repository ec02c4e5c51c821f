//! Delegation: threads that own data run the functions of the others on it, in batches of cache
//! lines.
#![allow(unsafe_code)]

mod arena;
mod channel;
mod client;
mod core;
mod domain;
mod error;
mod fibre;
mod flat;
mod handle;
mod job;
mod lane;
#[doc(hidden)]
pub mod line;
mod oneshot;
mod owned;
pub mod place;
mod server;
#[doc(hidden)]
pub mod shard;
mod stats;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod wait;

pub use client::Client;
pub use domain::{Builder, Domain, Ordered};
pub use error::Error;
pub use fibre::Fibres;
pub use flat::Policy;
pub use handle::{Handle, Reply};
pub use owned::{Owned, OwnedSlice, Sharded, Target};
pub use stats::{ClientStats, ShardStats};
