//! Traces of accesses: what stands in one, how one is kept in a file, and what is measured of it.
//!
//! ```text
//! a source ─ TracedAccess, TracedEvent, Handover, HeapRecord ─► Consumer ─┬─ TraceWriter ─► file ─► TraceReader
//!                                                                      └─ Measuring ─► rows of a recording
//! ```
//!
//! It does not know where accesses come from, and touches neither the kernel nor the target: a trace that was
//! kept, or a list of accesses that a test made up, is measured as one that comes in while the program runs.

#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod access;
mod calls;
mod heap_event;
mod instruction;
mod kept;
pub mod live;
pub mod measure;
mod numbers;
mod tables;
mod thread;

pub use access::{
    Both, Consumer, GUEST_BITS, Handover, HeapRecord, TracedAccess, TracedEvent, space_of,
};
pub use calls::CallKind;
pub use heap_event::{HeapEvent, HeapNames, HeapReader};
pub use instruction::Instruction;
pub use kept::{KeepTrace, MOST_INSTRUCTIONS, Piece, TraceError, TraceReader, TraceWriter};
pub use linewise_tracer::words::EventKind;
pub use tables::TraceTables;
pub use thread::ExactThread;
