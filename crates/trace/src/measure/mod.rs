//! What is measured of a trace while it comes in, and the rows that come of it.
//!
//! ```text
//! Measuring (a queue to a thread) ─► Measures ─┬─ caches: who has which line, and what it costs
//!                                              ├─ trackers: a list, of reuse by scope and unit
//!                                              └─ Objects: heap blocks, their histories, what fills caches
//! ```

mod contents;
mod line_blocks;
mod lives;
mod machine;
mod measures;
mod measuring;
mod moves;
mod names;
mod objects;
mod options;
mod paths;
mod repeats;
mod results;
mod rows;
mod step;

pub use machine::{Model, SimulatedMachine, THIS_MACHINE};
pub use measuring::Measuring;
pub use names::Trace;
pub use options::{MeasureError, MeasureOptions, ReuseShare};
pub use results::Results;
