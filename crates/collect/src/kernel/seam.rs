//! What whoever records asks of the kernel.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linewise_machine::facts::Facts;
use linewise_machine::guard::{News, Unguarded};
use linewise_machine::latency::{LatencyError, LineCosts, RoundTrip};
use linewise_machine::perf::{BreakOn, SamplerOptions, Whom};
use linewise_machine::probe::{AtSwitch, ProbeError, SkidProbe, WatchpointCosts};
use linewise_machine::process::{Change, Ended, Manner};
use linewise_machine::procfs::{Mapping, Standing};
use linewise_machine::records::{ReadFormat, Record};
use linewise_machine::retrap::RetrapTime;
use linewise_machine::signals::Heard;
use linewise_machine::uprobe::{Hit, Point, ProbeCosts};
use linewise_recording::Time;
use linewise_topology::Topology;

/// All of it. A clone is a handle of the same kernel.
pub(crate) trait Kernel:
    Clocks + Machinery + PerfEvents + FunctionProbes + Processes + Launching + Clone
{
}

impl<K: Clocks + Machinery + PerfEvents + FunctionProbes + Processes + Launching + Clone> Kernel
    for K
{
}

/// Clocks.
pub(crate) trait Clocks {
    /// CLOCK_MONOTONIC.
    fn now(&self) -> Time;
    /// CPU time of this process, ns.
    fn own_cpu_time_ns(&self) -> u64;
    /// CPU time of this thread, ns.
    fn own_thread_time_ns(&self) -> u64;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// What the machine is and costs.
pub(crate) trait Machinery {
    fn facts(&self) -> Facts;
    /// A number that no other recording has, or nothing.
    fn run_id(&self) -> String;
    fn topology(&self) -> Option<Topology>;
    /// The CPUs that this process may use.
    fn allowed_cpus(&self) -> Vec<u32>;
    /// Has this process run soon after it wakes up.
    fn prefer_short_slices(&self);
    fn watchpoint_costs(&self) -> Result<WatchpointCosts, ProbeError>;
    fn skid_rule(&self) -> Result<SkidProbe, ProbeError>;
    fn switch_cost_ns(&self, what: AtSwitch) -> Result<f64, ProbeError>;
    fn retrap_time(&self, rounds: u32) -> Result<RetrapTime, ProbeError>;
    /// What a line costs between two CPUs, in `rounds` rounds, given up after `limit`.
    fn line_costs(
        &self,
        cpus: (u32, u32),
        rounds: u32,
        limit: Duration,
    ) -> Result<LineCosts, LatencyError>;
    /// The round trip alone.
    fn round_trip(
        &self,
        cpus: (u32, u32),
        rounds: usize,
        limit: Duration,
    ) -> Result<RoundTrip, LatencyError>;
}

/// Samplers and breakpoints; see [`linewise_machine::perf::Event`].
pub(crate) trait PerfEvents {
    type Event: PerfEvent;

    fn sampler(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Self::Event>;
    fn tracker(&self, whom: Whom, cpu: u32, options: SamplerOptions) -> io::Result<Self::Event>;
    fn switches(&self, cpu: u32) -> io::Result<Self::Event>;
    /// In thread `tid`, at an address and so many bytes from there.
    fn breakpoint(
        &self,
        tid: u32,
        bytes: (u64, u32),
        on: BreakOn,
        group: Option<&Self::Event>,
    ) -> io::Result<Self::Event>;
    /// Raises the limit of open files as far as may be; the limit.
    fn raise_open_files(&self) -> u64;
    fn own_open_files(&self) -> u64;
}

/// An open event, closed when it is dropped.
pub(crate) trait PerfEvent: Sized {
    type Ring: PerfRing;

    fn enable(&self) -> io::Result<()>;
    fn disable(&self) -> io::Result<()>;
    fn arm_shots(&self, shots: u32) -> io::Result<()>;
    fn redirect_to(&self, other: &Self) -> io::Result<()>;
    fn id(&self) -> io::Result<u64>;
    fn read(&self) -> io::Result<ReadFormat>;
    fn map_ring(&self, pages: usize) -> io::Result<Self::Ring>;
}

/// What events write into.
pub(crate) trait PerfRing {
    fn is_empty(&self) -> bool;
    fn drain(&mut self, each: impl FnMut(Record));
}

/// Probes on functions of a process; see [`linewise_machine::uprobe`].
pub(crate) trait FunctionProbes {
    type Prober: FunctionProber;

    /// What probes cost here.
    fn probe_costs(&self, cpus: &[u32]) -> io::Result<ProbeCosts>;
    /// What places them, and hears of hits on these CPUs.
    fn prober(&self, cpus: &[u32]) -> io::Result<Self::Prober>;
}

/// Places probes; see [`linewise_machine::uprobe::Prober`].
pub(crate) trait FunctionProber {
    /// Probes that are in place until it is dropped.
    type Placed;

    fn place(&self, pid: u32, file: &Path, points: &[Point]) -> io::Result<Self::Placed>;
    /// Takes out all hits; how many found no room.
    fn drain(&mut self, into: &mut Vec<Hit>) -> u64;
}

/// What `/proc` tells of processes, and what may be done to them.
pub(crate) trait Processes {
    fn own_pid(&self) -> u32;
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>>;
    fn thread_name(&self, pid: u32, tid: u32) -> Option<String>;
    fn thread_cpu_time_ns(&self, pid: u32, tid: u32) -> Option<u64>;
    /// Stack pointer and instruction of a thread that sleeps.
    fn sleeps_at(&self, pid: u32, tid: u32) -> Option<(u64, u64)>;
    /// CPU time, ns, and how often it came to a CPU.
    fn thread_stays(&self, pid: u32, tid: u32) -> Option<(u64, u64)>;
    fn cpu_time_ns(&self, pid: u32) -> Option<u64>;
    fn maps(&self, pid: u32) -> io::Result<Vec<Mapping>>;
    fn standing(&self, id: u32) -> Option<Standing>;
    fn descendants(&self, ancestors: &[u32]) -> io::Result<Vec<u32>>;
    fn command_line(&self, pid: u32) -> io::Result<Vec<String>>;
    fn read_memory(&self, pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Reads a file as a process sees it.
    fn read_file(&self, pid: u32, path: &str, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Where a file can be opened that a process sees at `path`.
    fn path_in(&self, pid: u32, path: &str) -> PathBuf;
    /// Where the program of a process can be opened.
    fn program_of(&self, pid: u32) -> PathBuf;
    fn thread_base(&self, pid: u32, tid: u32) -> io::Result<u64>;
    fn signal(&self, pid: u32, signal: i32) -> io::Result<()>;
    /// A descriptor that can be read from when the process has ended.
    fn pidfd(&self, pid: u32) -> io::Result<OwnedFd>;
}

/// Starting a target and waiting for it.
pub(crate) trait Launching {
    type Guard: Warden;
    type Held: HeldTarget<Child = Self::Child>;
    type Child: TargetChild;
    /// SIGCHLD, as a descriptor.
    type Changes;

    fn start_guard(&self) -> io::Result<Self::Guard>;
    fn fork(
        &self,
        command: &[OsString],
        variables: &[(OsString, OsString)],
        manner: Manner,
    ) -> io::Result<Self::Held>;
    /// What calls the heap recorder may make in a child, see [`linewise_machine::process::allowed_calls`].
    fn allowed_calls(&self) -> u32;
    fn adopt_orphans(&self) -> io::Result<()>;
    fn reap_orphans(&self, not_these: impl Fn(u32) -> bool);
    fn block_changes(&self) -> io::Result<Self::Changes>;
    fn changes_fd(&self, changes: &Self::Changes) -> RawFd;
    fn clear_changes(&self, changes: &Self::Changes);
    fn next_change(&self) -> io::Result<Option<(u32, Change)>>;
    /// Sleeps until one of the descriptors can be read from, or for so long; whether one can.
    fn wait_readable(&self, fds: &[RawFd], timeout: Duration) -> bool;
    /// Gives a signal to the target it was meant for; whether the recording is to end instead.
    fn pass_on(&self, heard: Heard, target: u32) -> bool;
}

/// The guard of threads; see [`linewise_machine::guard::Guard`].
pub(crate) trait Warden {
    fn pid(&self) -> u32;
    fn protect(&mut self, tid: u32) -> Result<(), Unguarded>;
    fn has_left(&self, tid: u32) -> bool;
    fn news(&mut self) -> Vec<News>;
    fn let_go(&mut self, tid: u32);
    fn held_back(&self) -> u64;
    fn raw_fd(&self) -> Option<RawFd>;
    fn release(&mut self);
}

/// A child that waits before its exec.
pub(crate) trait HeldTarget {
    type Child;

    fn pid(&self) -> u32;
    fn release(self) -> io::Result<Self::Child>;
}

/// A child that runs.
pub(crate) trait TargetChild {
    fn pid(&self) -> u32;
    /// Takes in what [`Launching::next_change`] told.
    fn note(&mut self, pid: u32, change: Change);
    fn ended(&self) -> Option<Ended>;
    fn try_wait(&mut self) -> io::Result<Option<Ended>>;
    fn wait(&mut self) -> io::Result<Ended>;
}

/// The signals that come to this process.
pub(crate) trait Signals {
    fn next(&self) -> Option<Heard>;
    fn raw_fd(&self) -> RawFd;
}
