//! Delegation: threads that own data run the functions of the others on it, in batches of cache
//! lines.
//!
//! Where threads fight over a line that they truly share, padding does not help: the work must go to
//! the data. A [`Domain`] has shards, each served by one thread; an [`Owned`] value lives in a shard;
//! a [`Client`] sends functions there. What would be a lock's critical section is a closure.
//!
//! ```
//! use linewise_delegate::Domain;
//!
//! # fn main() -> Result<(), linewise_delegate::Error> {
//! let domain = Domain::dedicated(1).build()?;
//! let counters = domain.own_sharded(100, |_| 0u64)?;
//! let sum = std::cell::Cell::new(0); // declared before the client: its callbacks borrow it
//! let client = domain.client()?;
//!
//! // Waits, and may borrow.
//! let before = client.apply(counters.at(7), |counter| std::mem::replace(counter, 5))?;
//! assert_eq!(before, 0);
//!
//! // Does not wait: the callback runs in a later call of this client.
//! fn add(counter: &mut u64, operand: u64) -> u64 {
//!     *counter += operand;
//!     *counter
//! }
//! for index in 0..100 {
//!     client.call_async(counters.at(index), add, 2, |answer| sum.set(sum.get() + answer.unwrap()))?;
//! }
//! client.barrier()?;
//! assert_eq!(sum.get(), 205);
//! # Ok(())
//! # }
//! ```
//!
//! # The paper's four calls
//!
//! | G. Dill, *Asynchronous Delegation and its Applications* | here | C |
//! |---|---|---|
//! | `Launch_Servers(n)` | [`Domain::dedicated`]`(n).build()` ([`Domain::flat`] launches none) | `linewise_domain_open` |
//! | `Client_Thread_Create(f, arg)` | [`Domain::spawn_client`], or [`Domain::client`] on any thread | `linewise_client_start`, `linewise_client_open` |
//! | `Delegate_Async(s, cb, f, args…)` | [`Client::apply_async`]`(target, f, cb)`; small operations: [`Client::call_async`] | `linewise_apply_async`, `linewise_call_async` |
//! | `Async_Barrier()` | [`Client::barrier`] | `linewise_barrier` |
//!
//! The target stands for the server: it names a value, and a value has one server.
//!
//! # Which call for what
//!
//! | wanted | call |
//! |---|---|
//! | one answer, waited for | [`Client::apply`], for not longer than a time [`Client::apply_timeout`] |
//! | many answers, waited for, each call with arguments of its own | [`Client::apply_all`] |
//! | nothing back | [`Client::post`] |
//! | an answer later | [`Client::apply_async`], of a small operation [`Client::call_async`] |
//! | one function and one callback for many values | [`Client::apply_each`] |
//! | many small operations | [`Client::prepare`], with answers of any [small type](Answer) |
//! | as many requests at a time as a latency allows | [`Client::pace`] |
//! | several values at once | [`Client::apply_together`], in one shard; across shards nothing is atomic |
//! | something in every shard | [`Client::broadcast`] |
//! | a callback that asks further | [`Client::apply_async_with`] |
//! | a value back | [`Owned::into_inner`] |
//! | what a function threw | [`Panic::resume`], from [`Error::Panicked`] |
//! | no client | [`Handle::apply`], awaited or waited for |
//!
//! # A bank
//!
//! Threads that borrow what is around them are scoped threads, each with a client of its own. What must
//! change as one lies in one shard, and one call has all of it:
//!
//! ```
//! # use linewise_delegate::{Domain, Error};
//! # fn main() -> Result<(), Error> {
//! let domain = Domain::dedicated(1).build()?;
//! let accounts = domain.own_slice(0, 10, |_| 100_i64)?;
//! std::thread::scope(|scope| {
//!     let tellers: Vec<_> = (0..2)
//!         .map(|teller| {
//!             let (domain, accounts) = (&domain, &accounts);
//!             scope.spawn(move || {
//!                 let refused = std::cell::Cell::new(0);
//!                 let client = domain.client()?;
//!                 for turn in 0..100 {
//!                     let (from, to) = ((turn + teller) % 10, (turn * 3 + 5) % 10);
//!                     if from == to {
//!                         continue; // one value cannot be lent twice: Error::Twice
//!                     }
//!                     let moved = client.apply_together(
//!                         [accounts.at(from), accounts.at(to)],
//!                         |[from, to]| {
//!                             let enough = *from >= 30;
//!                             if enough {
//!                                 *from -= 30;
//!                                 *to += 30;
//!                             }
//!                             enough
//!                         },
//!                     )?;
//!                     refused.set(refused.get() + i64::from(!moved));
//!                 }
//!                 Ok::<_, Error>(refused.get())
//!             })
//!         })
//!         .collect();
//!     tellers.into_iter().try_for_each(|teller| teller.join().unwrap().map(drop))
//! })?;
//! let client = domain.client()?;
//! let mut sum = 0;
//! for index in 0..10 {
//!     sum += client.apply(accounts.at(index), |account| *account)?;
//! }
//! assert_eq!(sum, 1000);
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! Request lines are a ring that client and server go round in order, so a client's requests to one
//! shard run in the order they were made, at every number of lines (the paper keeps it with one line
//! only). Requests to different shards run in any order, unless [`Ordered::Client`].
//!
//! # Panics
//!
//! A delegated function that panics is answered with [`Error::Panicked`]; its server goes on. Nothing is
//! poisoned: the value stays as the panic left it, with what was half done, and later requests get it so.
//! A callback's panic unwinds out of the client's call that ran it; requests already made are answered all the
//! same.
//!
//! # Waiting
//!
//! Threads that wait spin, then yield, then sleep; an idle domain uses no CPU. A waiting call inside a
//! delegated function or a callback is [`Error::Nested`], whatever client it is of; inside a
//! [fibre](Client::fibres) it lets other fibres run. A shard that nobody serves (a flat client left, a
//! server was shut down) is served by who waits for it, or polls a future of it; polling a future of the own
//! seat serves that, too. In a flat domain a thread
//! serves when it calls, polls or waits: one that does something else for long lets the others wait, and
//! so does one that forgets its client, until it ends. So in a flat domain do not block on anything but the
//! domain, and take the seat of the data that you use most ([`Domain::client_at`]): [`Domain::client`] takes any.
//! A delegated function cannot wait for a value to change either; let it leave a sender in the value, and have a
//! thread without a seat wait for the receiver.
//!
//! # Async
//!
//! [`Handle::apply`] returns a future for any executor: the server wakes the task itself, so neither a
//! reactor nor a thread that polls is needed. A call takes an allocation and a hand-over each way, 700 to 900 ns
//! of a worker that has nothing else to do: for a short section that is hardly contended a mutex is faster. These are two requests, and others may see what is between
//! them; [`Handle::apply_together`] is one.
//!
//! ```
//! # use linewise_delegate::{Domain, Error, Owned};
//! async fn transfer(domain: &Domain, from: &Owned<u64>, to: &Owned<u64>) -> Result<u64, Error> {
//!     let handle = domain.handle();
//!     let taken = handle.apply(from, |balance| std::mem::take(balance)).await?;
//!     handle.apply(to, move |balance| { *balance += taken; *balance }).await
//! }
//! # let domain = Domain::dedicated(2).build()?;
//! # let (from, to) = (domain.own(0, || 5)?, domain.own(1, || 1)?);
//! # assert_eq!(futures_executor::block_on(transfer(&domain, &from, &to)), Ok(6));
//! # Ok::<(), Error>(())
//! ```
//!
//! # Shutdown
//!
//! [`Domain::shutdown`], or dropping the domain, refuses calls from then on ([`Error::Shutdown`]).
//! Requests that were made before are answered: by the servers, which end then, or by the clients that
//! wait for them. Values stay until their last handle is gone.
//!
//! # Fork
//!
//! A child of `fork` has none of the domain's threads. There every call is refused
//! ([`Error::Forked`]), also one of a client made before the fork, and so is the answer to a call of the
//! parent; what the parent was asked does not run there. Dropping a domain, a client or a
//! value waits for nobody and runs no callback. Do not fork inside a delegated
//! function, a callback or a fibre and return from it in the child. (Before Linux 4.14 only calls that
//! need no client are refused; a client made before the fork must not be used there.)
//!
//! # Models
//!
//! With `RUSTFLAGS="--cfg loom"`, `cargo test -p linewise-delegate --release --lib models` tries every order of
//! execution of both ends of a channel as they are, and `--test loom` of the sleeping, the seat, the bell and the
//! end of a value.
#![warn(clippy::too_many_lines)]
#![expect(
    unsafe_code,
    reason = "threads hand memory to each other through request lines, and values live in memory of the shard"
)]

mod arena;
mod batch;
mod channel;
mod client;
mod closure;
mod core;
mod domain;
mod error;
mod exchange;
mod fibre;
mod gate;
mod handle;
mod inner;
mod inside;
mod job;
mod lane;
#[doc(hidden)]
pub mod line;
#[cfg(all(test, loom))]
mod models;
mod oneshot;
mod own;
mod owned;
mod pace;
mod packed;
mod panics;
pub mod place;
mod policy;
mod prepared;
mod reply;
mod room;
mod server;
mod several;
#[doc(hidden)]
pub mod shard;
mod sitting;
mod stats;
#[doc(hidden)]
pub mod sync;
mod timeout;
mod turn;
#[doc(hidden)]
pub mod wait;

pub use client::Client;
pub use domain::{Builder, Domain};
pub use error::Error;
pub use fibre::Fibres;
pub use handle::Handle;
pub use inner::Ordered;
pub use owned::{Owned, OwnedSlice, Sharded, Target, Values};
pub use pace::Pace;
pub use panics::Panic;
pub use policy::Policy;
pub use prepared::{Answer, Prepared};
pub use reply::Reply;
pub use several::{Part, Together};
pub use stats::{ClientStats, ShardStats};
