//! What doctor found, as plain data: the JSON is this struct, the text is drawn from it.
//!
//! Schema 1 is a public interface: fields may be added, never renamed or removed. docs/doctor.md
//! describes it for users.

use serde::Serialize;

use super::matrix::RoundTrips;
use super::measure::{SamplerProbe, WatchpointProbe};

/// The version of the JSON interface.
pub(crate) const SCHEMA: u32 = 1;

/// Everything that doctor found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DoctorReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The processor and what runs on it.
    pub cpu: CpuSection,
    /// The machine's shape as the kernel tells it.
    pub topology: TopologySection,
    /// Core-to-core round trips as measured.
    pub round_trips: RoundTrips,
    /// Each source of samples: whether it works here, why not, what to do.
    pub sources: Vec<Source>,
    /// What this process may do.
    pub permissions: Permissions,
    /// Hardware watchpoints as measured.
    pub watchpoints: Measured<WatchpointProbe>,
    /// The timer sampler as measured.
    pub sampler: Measured<SamplerProbe>,
}

/// The processor and what runs on it. `null` is unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CpuSection {
    /// Model as the kernel names it.
    pub model: Option<String>,
    /// Maker as the CPU names it.
    pub vendor: Option<String>,
    /// Architecture that linewise was built for.
    pub architecture: String,
    /// Empty on bare metal, `unknown` when it hides its name.
    pub hypervisor: String,
    /// What `uname -r` says.
    pub kernel: Option<String>,
    /// Online CPUs, `0-3,8`.
    pub online: String,
    /// The CPUs that this process may use.
    pub allowed: Option<String>,
}

/// The machine's shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TopologySection {
    /// Bytes of a line.
    pub line_bytes: Option<u32>,
    /// The CPUs of each socket.
    pub sockets: Vec<String>,
    /// The CPUs of each core.
    pub cores: Vec<String>,
    /// The CPUs below each last-level cache.
    pub llc_groups: Vec<String>,
    /// NUMA nodes.
    pub nodes: Vec<NodeRow>,
    /// Caches; alike ones of different CPUs are one row.
    pub caches: Vec<CacheRow>,
    /// What the machine does not tell.
    pub holes: Vec<HoleRow>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NodeRow {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: String,
    /// Distances to all nodes, in the order of `nodes` (10 is local).
    pub distances: Vec<u32>,
}

/// Alike caches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CacheRow {
    /// 1 is the nearest to the core.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: &'static str,
    /// Capacity of one.
    pub size_bytes: Option<u64>,
    /// Bytes of a line.
    pub line_bytes: Option<u32>,
    /// Ways of associativity.
    pub ways: Option<u32>,
    /// The CPUs of each one.
    pub shared_by: Vec<String>,
}

/// What the machine does not tell, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HoleRow {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Whether a source can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceState {
    /// It works here, now, as this user.
    Ready,
    /// The machine has what it needs; this version of linewise does not use it yet.
    NotBuilt,
    /// Something that the user or the machine's owner can add is missing.
    Missing,
    /// It belongs to other processors.
    OtherCpu,
}

/// A source of samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Source {
    /// `timer`, `pebs`, `ibs`, `spe`, `exact`, `import`.
    pub name: &'static str,
    /// Whether it can be used.
    pub state: SourceState,
    /// What it is here, or why it is not, in a sentence.
    pub reason: String,
    /// What the user can do; empty when there is nothing to do.
    pub remedy: String,
}

/// What this process may do. `null` is unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Permissions {
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// What that and the capabilities grant, in a sentence.
    pub perf_events: String,
    /// Ring buffers of an ordinary user, KiB for each CPU.
    pub perf_event_mlock_kb: Option<u64>,
    /// `kernel.yama.ptrace_scope`; `null` on kernels without Yama.
    pub ptrace_scope: Option<u32>,
    /// Effective capabilities that matter here: `perfmon`, `ptrace`, `ipc_lock`.
    pub capabilities: Vec<&'static str>,
    /// RLIMIT_MEMLOCK in bytes, or `unlimited`.
    pub memlock_bytes: Option<LimitValue>,
    /// RLIMIT_NOFILE, or `unlimited`.
    pub open_files: Option<LimitValue>,
    /// Where tracefs can be read.
    pub tracefs: Option<String>,
    /// Where debugfs can be read.
    pub debugfs: Option<String>,
    /// What restricts linewise, and what to do about it.
    pub remedies: Vec<Remedy>,
}

/// A limit: a number, or the word `unlimited`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum LimitValue {
    /// At most so many.
    Number(u64),
    /// `unlimited`.
    Word(&'static str),
}

/// Something that restricts linewise, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Remedy {
    /// What is restricted.
    pub reason: String,
    /// What the user can do.
    pub remedy: String,
}

/// A measured value, or why it could not be measured and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Measured<T> {
    /// It was measured.
    Value(T),
    /// It was not.
    Failed(Remedy),
}

impl DoctorReport {
    /// Whether at least one source can be used.
    pub(crate) fn anything_works(&self) -> bool {
        self.sources
            .iter()
            .any(|source| source.state == SourceState::Ready)
    }
}
