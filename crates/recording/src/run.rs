//! `run.json`: what was recorded, on what machine, at what price.

use serde::{Deserialize, Serialize};

use crate::rows::{Pid, Time};

/// The version of the recording format that this crate writes.
pub const FORMAT_VERSION: u32 = 1;

/// The facts of a run that are not rows (file `run.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Format version of the tables beside it.
    pub format_version: u32,
    /// The version of linewise that wrote it.
    pub linewise_version: String,
    /// Whether the recording was ended properly; false while it is written and after a crash.
    pub complete: bool,
    /// The command with its arguments, or what was attached to.
    pub command: Vec<String>,
    /// The first process.
    pub pid: Pid,
    /// Whether linewise started the target (`false`: attached).
    pub launched: bool,
    /// The source of the samples: `timer`.
    pub source: String,
    /// Why that source was chosen, one line.
    pub source_reason: String,
    /// When recording began.
    pub start: Time,
    /// When it ended; equals the last flush while incomplete.
    pub end: Time,
    /// Why it ended: `target-exited`, `duration`, `interrupted`, `killed`.
    pub ended_by: String,
    /// The target's exit code, if it exited by itself while recorded.
    pub exit_code: Option<i32>,
    /// The signal that ended the target, if one did.
    pub exit_signal: Option<i32>,
    /// Line size of the machine in bytes.
    pub line_size: u64,
    /// Online CPUs.
    pub cpus: u32,
    /// Bytes that one watchpoint covers times how many a thread has.
    pub watchpoint_bytes: u32,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Hypervisor vendor, empty on bare metal.
    pub hypervisor: String,
    /// Kernel release.
    pub kernel: String,
    /// The sampler's skid rule: `next` (the IP is the instruction after the one that waited) or `same`.
    pub skid_rule: String,
    /// What the kernel counts between arming a watchpoint and a trap that comes at once, ns: to be
    /// subtracted from every exposure that ended in a trap.
    #[serde(default)]
    pub exposure_offset_ns: f64,
    /// What the recording cost.
    pub overhead: Overhead,
}

/// What the recording cost the target (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// What was asked for, as a share of the target's CPU time (0.02 is 2 %).
    pub budget: f64,
    /// What it is estimated to have been, likewise.
    pub estimated: f64,
    /// Measured cost of one sample to the sampled thread, ns.
    pub sample_ns: f64,
    /// Measured time to arm a watchpoint, of the collector, ns.
    pub arm_ns: f64,
    /// Measured cost of one trap to the trapping thread, ns.
    pub trap_ns: f64,
    /// Measured cost of a watch, with a trap, to the watched thread, ns; 0 in recordings that do
    /// not tell.
    #[serde(default)]
    pub watch_ns: f64,
    /// Samples a second of thread time, last in force.
    pub samples_per_second: f64,
    /// Watches a second, last in force, all threads.
    pub watches_per_second: f64,
    /// CPU time of the collector, ns.
    pub collector_cpu_ns: u64,
    /// Highest resident size of the collector, bytes.
    pub collector_rss_bytes: u64,
}
