//! Collecting: launch or attach, follow threads, sample, watch, write a recording.
//!
//! ```text
//! kernel ring ─ Record ─┬─ Follow (threads, stays, mappings)
//!                       └─ sample ─ decode ─ access ─ board ─ watch ─ trap
//!                                                └──── all of it ───► recording
//! ```
//!
//! The collector is a process of its own; nothing runs in the target but the kernel and, where it may be
//! loaded, the heap recorder (`heap`). It knows
//! nothing of symbols, objects or costs: it writes down raw facts.

#![forbid(unsafe_code)]

mod attach;
mod bases;
mod binary;
mod board;
mod budget;
mod bug;
mod callers;
mod code;
mod collector;
mod cpu_times;
mod decode;
mod description;
mod duty;
mod error;
pub mod exact;
mod family;
mod flow;
mod follow;
#[cfg(fuzzing)]
pub mod fuzzing;
mod heap;
mod kernel;
mod latencies;
mod library;
mod options;
mod recompute;
mod reuse;
mod runs;
mod samplers;
mod session;
mod silence;
mod watch;

pub use error::Error;
pub use flow::Wanted;
pub use options::{Event, HeapWhen, Progress, RecordOptions, SampleBy, Target};
pub use session::{Outcome, record};
