//! The shape of a machine as plain values: CPUs, cores, caches, sockets, NUMA nodes, distances.
//!
//! Nothing here reads a file or asks the kernel; `linewise-machine` fills a [`Topology`] from
//! sysfs, and [`synthetic`] invents machines that tests can rely on. A machine may hide a part of
//! its shape (many virtual machines do): what is not known is `None`, and [`Topology::holes`] says
//! why.
//!
//! ```
//! use linewise_topology::{Proximity, synthetic};
//!
//! let machine = synthetic::two_sockets_of_ten();
//! assert_eq!(machine.cpus.len(), 20);
//! assert_eq!(machine.proximity(0, 1), Some(Proximity::SameLlc));
//! assert_eq!(machine.proximity(0, 10), Some(Proximity::OtherSocket));
//! assert_eq!(machine.line_size(), Some(64));
//! ```
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod cpu_set;
mod machine;
pub mod synthetic;

pub use cpu_set::{CpuSet, ParseCpuSetError};
pub use machine::{Cache, CacheKind, Cpu, Hole, Node, Proximity, Topology};
