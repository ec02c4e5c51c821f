//! The timer: threads are interrupted in proportion to the time that they take, and the lines that they touch are watched
//! in others.
//!
//! ```text
//! kernel ring ─ Record ─┬─ Follow (threads, stays, mappings)
//!                       └─ sample ─ decode ─ access ─ board ─ watch ─ trap
//!                                                └──── all of it ───► recording
//! ```

mod attach;
mod bases;
mod board;
mod budget;
pub(crate) mod callers;
pub(crate) mod code;
mod collector;
mod cpu_times;
mod decode;
mod description;
mod duty;
mod fence;
pub(crate) mod flow;
mod goroutines;
mod recompute;
mod reuse;
mod runs;
mod samplers;
pub(crate) mod session;
mod silence;
mod watch;
