//! A machine that is simulated, on which policies place tasks: what a placement brings, before anybody moves a thread of
//! a real program.
//!
//! Time goes by in intervals of 100 ms. Programs are threads that pass through [`Phase`]s; what a placement costs them
//! follows from latencies that were measured elsewhere ([`ASSUMPTIONS`]), and a policy sees of it what it would see: noisy
//! counters, or sharing from few samples. The same seed gives the same result on every machine. Which workloads there are
//! ([`workloads()`]) is as the paper of SAM tells them (Srikanthan, Dwarkadas, Shen: Data Sharing or Resource Contention,
//! USENIX ATC 2015, tables 1 and 2).
//!
//! ```
//! use linewise_placement_model::{Case, MachineKind, PolicyKind, Setup, hubench};
//!
//! let case = Case::new(MachineKind::TwoSockets, &[hubench(8)], 100);
//! let spread = case.run(PolicyKind::Balancer, Setup::default(), 1, 3.0);
//! let together = case.run(PolicyKind::Oracle, Setup::default(), 1, 3.0);
//! assert!(together.work[0] > 1.2 * spread.work[0]);
//! ```
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod assumptions;
mod cost;
mod experiment;
mod machine;
mod observe;
mod policy;
mod program;
mod random;
mod threads;
mod workloads;
mod world;

pub use assumptions::{ASSUMPTIONS, Assumption};
pub use experiment::{Case, Effort, Experiment, Outcome, Row, Run, Setup};
pub use machine::{Costs, MachineKind, SimulatedMachine};
pub use policy::{Hold, PolicyKind};
pub use program::{Pattern, Phase, Processes, Program};
pub use threads::{Thread, ThreadCost, thread_costs};
pub use workloads::{TABLE_1, TABLE_2, Workload, WorkloadKind, hubench, program, workloads};
pub use world::INTERVAL_SECONDS;
