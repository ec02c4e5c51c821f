//! Fibres: user threads on pools of pinned workers, which can move to where the data is.
#![warn(clippy::too_many_lines)]
#![allow(unsafe_code)]

mod announce;
mod bell;
mod block;
mod error;
mod fibre;
mod here;
mod kept;
mod lane;
mod overflow;
mod place;
mod pool;
mod queue;
mod reactor;
mod runtime;
mod stack;
mod sync;
mod task;
mod timers;
mod token;
mod waiter;
mod worker;

pub use error::{Error, JoinError};
pub use fibre::{
    Fibre, current, is_fibre, migrate, park, park_timeout, sleep, stack, visit, yield_now,
};
pub use place::pin;
pub use pool::{JoinHandle, Pool, Spawn, spawn};
pub use runtime::{Builder, Runtime};
