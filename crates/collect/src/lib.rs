//! Collecting: launch or attach, follow threads, sample or trace, write a recording.
//!
//! ```text
//!            ┌─ sources::timer  samples, watches ─┐
//! target ────┤                                    ├──► recording
//!            └─ sources::exact  every access ─────┘
//! ```
//!
//! The collector is a process of its own; nothing runs in the target but the kernel, the emulator of an exact run, and, where
//! it may be loaded, the heap recorder (`target::heap`). It knows nothing of symbols, objects or costs: it writes down raw
//! facts.

#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod bug;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod kernel;
mod latencies;
mod options;
mod recorder;
mod recording;
mod sources;
mod target;

pub use error::Error;
pub use options::{
    Event, HeapWhen, Progress, RecordOptions, SampleBy, Target, TimerOptions, Wanted,
};
pub use recorder::Outcome;
pub use recording::{Source, record};
pub use sources::exact;
pub use target::life::EndedBy;
