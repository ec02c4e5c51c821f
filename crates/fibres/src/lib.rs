//! Fibres: user threads on pools of pinned workers, which can move to where the data is.
#![warn(clippy::too_many_lines)]
#![allow(unsafe_code)]

mod announce;
mod atomic;
mod bell;
mod block;
mod blocking;
mod error;
mod fibre;
pub mod fs;
mod here;
mod io;
mod kept;
mod lane;
mod overflow;
mod place;
mod pool;
mod queue;
pub mod raw;
mod reactor;
mod ring;
mod runtime;
mod stack;
pub mod sync;
mod task;
mod timers;
mod token;
mod wait_queue;
mod waiter;
mod worker;

pub use blocking::blocking;
pub use error::{Error, JoinError};
pub use fibre::{Fibre, current, is_fibre, migrate, park, park_timeout, sleep, visit, yield_now};
pub use io::{Io, TcpListener, TcpStream, pipe};
pub use place::pin;
pub use pool::{JoinHandle, Pool, Spawn, spawn};
pub use runtime::{Builder, Runtime};
