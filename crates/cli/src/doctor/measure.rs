//! What has to be measured rather than read, and what comes of it.

use std::time::Duration;

use serde::Serialize;

/// What has to be measured rather than read. Errors are sentences for the user.
pub(crate) trait Measure {
    /// The round trip between two CPUs, measured for about `budget`.
    fn round_trip(&mut self, a: u32, b: u32, budget: Duration) -> Result<RoundTripNs, String>;

    /// Number of watchpoints, cost of arming one, cost of a trap.
    fn watchpoints(&mut self) -> Result<WatchpointProbe, String>;

    /// Which instruction the timer's samples name, and the cost of one.
    fn sampler(&mut self) -> Result<SamplerProbe, String>;
}

/// A round trip between two CPUs, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct RoundTripNs {
    /// Median.
    pub median: f64,
    /// 10th percentile.
    pub low: f64,
    /// 90th percentile.
    pub high: f64,
}

/// Watchpoints of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct WatchpointProbe {
    /// How many a thread can have at once.
    pub count: u32,
    /// Time to arm one on a running thread, ns.
    pub arm_ns: f64,
    /// Time that a trap takes from the trapping thread, ns.
    pub trap_ns: f64,
    /// Whether targets are guarded, because traps may lose their reason on this hypervisor.
    pub guarded: bool,
}

/// Which instruction a timer sample names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SkidRule {
    /// The one after the instruction that waited.
    Next,
    /// The instruction that waited.
    Same,
}

/// The timer sampler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct SamplerProbe {
    /// Which instruction a sample names.
    pub skid_rule: SkidRule,
    /// Share of the samples that agree with the rule, 0 to 1.
    pub agreement: f64,
    /// Samples that it rests on.
    pub samples: u32,
    /// Time that a sample takes from the sampled thread, ns.
    pub sample_ns: f64,
}
