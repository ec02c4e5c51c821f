//! Fibres: user threads on pools of pinned workers, which can move to where the data is.
//!
//! A [`Runtime`] has [`Pool`]s of one or more workers, threads of the kernel that run fibres. A fibre waits
//! without its worker waiting; and it can say where it goes on: [`visit`] runs a closure on another pool's
//! worker and comes back, [`migrate`] moves the fibre itself. So the data that many sessions share stays in
//! one core's cache, and the sessions come to it.
//!
//! ```
//! use linewise_fibres::{Runtime, spawn, visit, yield_now};
//!
//! // SAFETY: no fibre holds over a waiting call what belongs to its thread (see `Builder::start`).
//! let runtime = unsafe { Runtime::builder().pool("front", 1).pool("data", 1).start()? };
//! let data = runtime.pool("data").expect("named above");
//! let answer = runtime.spawn(move || {
//!     let other = spawn(|| {
//!         yield_now();
//!         20
//!     });
//!     let here = visit(&data, || 22); // on the worker of `data`
//!     other.and_then(|other| Ok(other.join().map_or(0, |there| here + there)))
//! })?;
//! assert_eq!(answer.join()??, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is where
//!
//! | wanted | call |
//! |---|---|
//! | a fibre | [`spawn`], [`Pool::spawn`]; with a name, a stack, a promise [`Pool::builder`]; its value [`JoinHandle::join`] |
//! | let others run | [`yield_now`], [`sleep`], [`park`] and [`Fibre::unpark`] |
//! | go to the data | [`visit`]; for good [`migrate`] |
//! | wait for each other | [`sync`]: mutex, condition variable, barrier, channel |
//! | sockets and pipes | [`TcpListener`], [`TcpStream`], [`Io`] around any descriptor, [`pipe`] |
//! | files | [`fs::File`], by io_uring where the kernel has it |
//! | anything else that blocks | [`blocking`] |
//! | tell a recorder which session is where | [`Builder::announce_sessions`] |
//!
//! # Which thread
//!
//! A fibre that has not begun may be stolen by any idle worker of its pool. One that has begun stays on its
//! worker, unless it moves or was begun as [roaming](Spawn::roaming): its stack may hold what belongs to the
//! thread, and no bound of the language tells.
//!
//! A fibre runs until it waits or gives way; nothing interrupts it. One that computes for long holds up those
//! of its worker that have begun, and nobody else. `std::sync::Mutex` blocks the worker: hold it over no
//! waiting call, and never over a move, as it would be unlocked by another thread.
//!
//! Of those that are ready each gets its turn; every 32 turns a worker looks at what other workers brought, and
//! every 64 at sockets, files and timers.
//!
//! # Panics, ends, forks
//!
//! A panic ends its fibre and reaches who [joins](JoinHandle::join) it. [`Runtime::shut_down`] cancels fibres
//! that wait: they unwind, destructors run. While a fibre unwinds it does not give way, since panics are
//! counted by threads: what waits in a destructor holds its worker up, and waits for ever if it waits for a fibre
//! of that worker; after a second that is said on the standard error. A child of `fork` has no workers;
//! beginning a fibre there is [`Error::Forked`], joining one [`JoinError::Forked`], and a fibre that forked ends the child when it waits.
//!
//! # Overflow
//!
//! A stack has 64 KiB unless told otherwise ([`Spawn::stack_size`]), with a guard below: whoever uses more is
//! told so by name before the process ends by SIGSEGV. The handler for that is put in front of the one that the
//! process has when the first runtime starts.
#![warn(clippy::too_many_lines)]
#![allow(unsafe_code)]

mod announce;
mod atomic;
mod bell;
mod block;
mod blocking;
mod end;
mod error;
mod fibre;
mod fork;
pub mod fs;
mod here;
pub mod hosted;
mod io;
mod kept;
mod lane;
#[cfg(all(test, loom))]
mod models;
mod no_unwind;
mod operation;
mod outsider;
mod overflow;
mod place;
mod pool;
mod pool_of;
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
mod wait;
mod wait_queue;
mod worker;

pub use blocking::blocking;
pub use error::{Error, JoinError};
pub use fibre::{
    Fibre, current, is_fibre, migrate, park, park_timeout, sleep, stack_range, visit, yield_now,
};
pub use io::{Io, TcpListener, TcpStream, pipe};
pub use place::pin;
pub use pool::{JoinHandle, Pool, Spawn, spawn};
pub use runtime::{Builder, Runtime};
