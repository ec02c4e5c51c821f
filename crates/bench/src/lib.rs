//! Micro-benchmarks with known answers: programs that share cache lines and count, while they run,
//! how often a line moved. The collector watches them; the tables here print its estimate beside
//! that truth.
//!
//! The workloads are those of ComDetective (Sasongko, Chabbi, Marzijarani, Unat: listings 5.1 to
//! 5.4) and a few more. There the truth came from a PMU; here every workload counts by *value*:
//! `prev = swap(shared, my_id)`, and the line moved if and only if `prev != my_id`. How each one
//! counts, and what it cannot count, stands in the header of its module and in [`Truth::notes`].
//! The programs of [`reuse`] count the distances of their reuses in the same way.
//!
//! ```
//! use linewise_bench::{Workload, WorkloadSpec, run_workload};
//!
//! let spec = WorkloadSpec { seconds: 0.05, ..WorkloadSpec::new(Workload::WriteVolume) };
//! let truth = run_workload(&spec)?;
//! println!("{}", truth.to_json_line());
//! # Ok::<(), linewise_bench::WorkloadError>(())
//! ```

#![warn(clippy::too_many_lines)]

pub mod accesstest;
pub mod calibrate;
mod compare;
mod drawing;
pub mod fetch_add;
pub mod fibres;
mod placement;
pub mod reuse;
mod run;
pub mod simulated;
mod spec;
mod states;
mod truth;
mod waiting;
mod worker;
mod workloads;

pub use compare::{
    Bar, Comparison, Measured, Repeat, RoundTrips, rtt_json, rtt_table, sharing_json, sharing_table,
};
pub use placement::{PlacementError, usable};
pub use run::run_workload;
pub use spec::{MAX_THREADS, Workload, WorkloadError, WorkloadSpec};
pub use truth::{Truth, TruthError};
