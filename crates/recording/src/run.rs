//! `run.json`: what was recorded, on what machine, at what price.

use serde::{Deserialize, Serialize};

use crate::values::{Address, CacheLevel, Order, Pid, Source, Time};

/// The version of the recording format that this crate writes.
pub const FORMAT_VERSION: u32 = 3;

/// The facts of a run that are not rows (file `run.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Format version of the tables beside it.
    pub format_version: u32,
    /// A random number, 128 bits in lower-case hex, by which the recording is known wherever it lies; empty in recordings
    /// of format 1.
    #[serde(default)]
    pub id: String,
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
    /// Where the rows come from.
    pub source: Source,
    /// Why that source was chosen, one line.
    pub source_reason: String,
    /// When recording began.
    pub start: Time,
    /// When it ended; equals the last flush while incomplete.
    pub end: Time,
    /// Why it ended: `target-exited`, `duration`, `interrupted`, `killed`; of one that was cut short `disk-full`,
    /// `quota-used-up` or `write-failed`, and something else where linewise was killed.
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
    /// The machine's name; empty in recordings of format 1, or if the system does not tell it.
    #[serde(default)]
    pub host: String,
    /// The kernel's name for the time since the machine was started, within which CLOCK_MONOTONIC counts on; empty
    /// likewise.
    #[serde(default)]
    pub boot_id: String,
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
    /// From the moment at which a watch is armed to the record of a trap that comes at once, ns.
    #[serde(default)]
    pub trap_delay_ns: f64,
    /// The data caches of the machine, the nearest to the core first, as it tells them: of each level the first CPU's.
    #[serde(default)]
    pub caches: Vec<SimulatedCache>,
    /// What the recording cost.
    pub overhead: Overhead,
    /// What an exact run was; `None` for other sources.
    #[serde(default)]
    pub exact: Option<ExactRun>,
    /// How reuse was sampled; `None` where it was not.
    #[serde(default)]
    pub reuse: Option<SampledReuse>,
    /// What the heap recorder did; `None` where there was none.
    #[serde(default)]
    pub heap: Option<HeapRun>,
}

/// The facts of a run in which every access was seen (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExactRun {
    /// The emulator and its version: `qemu-x86_64 7.2.22`.
    pub emulator: String,
    /// Accesses that were followed, of all threads; an estimate of all when a share of the lines was.
    pub accesses: f64,
    /// Accesses that were really followed.
    pub followed: u64,
    /// One line in so many was followed; 1 is all.
    pub one_line_in: u32,
    /// Share of the followed lines for which reuse distances were measured, 0 to 1; it falls while
    /// a program with many lines runs. 0 when they were not asked for.
    pub reuse_rate: f64,
    /// Bytes of an element for which reuse was measured beside that of lines; `None` if it was not.
    #[serde(default)]
    pub element_bytes: Option<u32>,
    /// Whether the calls that led to uses and reuses were followed.
    #[serde(default)]
    pub call_paths: bool,
    /// The module or function that alone was followed, if one was asked for.
    pub only: Option<String>,
    /// Accesses that were handed out later than their time stamp says.
    pub late: u64,
    /// How often threads of the target waited for the collector.
    pub waits: u64,
    /// How long they waited, all together, ns.
    pub waited_ns: u64,
    /// File of the kept trace, if one was asked for.
    pub trace: Option<String>,
    /// What was simulated: `this machine`, or the name of an invented one.
    pub machine: String,
    /// The simulated caches, one for each different level: all caches of a level are alike unless
    /// `count` says otherwise.
    pub caches: Vec<SimulatedCache>,
    /// Latency of a load from memory, measured beside the run, ns; `None` if it was not.
    #[serde(default)]
    pub memory_ns: Option<f64>,
    /// What a load from each level takes, ns; nothing where another machine than this one was simulated.
    #[serde(default)]
    pub level_ns: LevelLatencies,
    /// What of the simulated machine was not told by the system and had to be assumed, a sentence
    /// each.
    pub assumptions: Vec<String>,
    /// The order in which accesses of different threads were taken.
    pub order: Order,
    /// Sums of the simulation.
    pub sums: SimulationSums,
    /// Further runs of the command, of which nothing else is known.
    #[serde(default)]
    pub repeats: Vec<Repeat>,
}

/// What another run of the same command came to, scaled back as its first run is (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Accesses.
    pub accesses: f64,
    /// Transfers.
    pub transfers: f64,
    /// Those of the lines that moved most in the run that is told of in full.
    pub lines: Vec<RepeatedLine>,
}

/// A line in a [`Repeat`]: the one at the same address of the process that came to be in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedLine {
    /// Its process in the run that is told of in full.
    pub pid: Pid,
    /// Its first byte.
    pub line: Address,
    /// Its transfers.
    pub transfers: f64,
}

/// A kind of cache of the simulated machine, or of the recorded one (part of `run.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedCache {
    /// Which level.
    pub level: CacheLevel,
    /// Bytes of each.
    pub size_bytes: u64,
    /// Ways of each; 0 is fully associative.
    pub ways: u32,
    /// How many of this size the machine has.
    pub count: u32,
    /// Cores that share each.
    pub cores: u32,
}

/// What a load takes by the level that serves it, measured beside a run on the machine that it was simulated for,
/// with what translating the address takes, ns (part of `run.json`). `None`: not measured, or there is no such level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelLatencies {
    /// The first level.
    pub l1: Option<f64>,
    /// The core's second level.
    pub l2: Option<f64>,
    /// The last level.
    pub llc: Option<f64>,
    /// Another core: half a round trip of a line.
    pub core: Option<f64>,
    /// Memory.
    pub memory: Option<f64>,
}

/// Sums of a simulation, scaled back if a share of the lines was
/// followed (part of `run.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimulationSums {
    /// Transfers between accesses whose bytes overlap.
    pub true_sharing: f64,
    /// Transfers between accesses whose bytes do not.
    pub false_sharing: f64,
    /// Standard error of the number of transfers; `None` when all lines were followed.
    pub transfers_error: Option<f64>,
    /// Accesses that another cache of the same socket served.
    pub intra_socket_supplied: f64,
    /// Stores that had to take copies away in the same socket alone.
    pub intra_socket_upgrades: f64,
    /// Accesses that a cache of another socket served.
    pub inter_socket_supplied: f64,
    /// Stores that had to take copies away in another socket.
    pub inter_socket_upgrades: f64,
    /// Copies that stores took out of other caches.
    pub invalidations: f64,
    /// Dirty lines that went to memory.
    pub written_back: f64,
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

/// What the heap recorder did (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeapRun {
    /// Processes that the recorder was loaded into.
    pub processes: u64,
    /// Blocks of which the recorder told, all together.
    pub blocks: u64,
    /// Blocks alive when the recording ended or their process did, by what the recorder saw: estimated where it sampled.
    pub live_blocks: f64,
    /// Their bytes, likewise.
    pub live_bytes: f64,
    /// Blocks with a row.
    pub rows: u64,
    /// The largest mean distance of sampled blocks, in allocated bytes; 0 when every block was told of.
    pub sampled_bytes: u64,
    /// What the recorder took from the program's threads, ns.
    pub spent_ns: u64,
    /// How the allocator was probed from outside; `None` where a library in the program told of blocks.
    #[serde(default)]
    pub probed: Option<ProbedHeap>,
}

/// Probes on the allocator of a program that no library can be loaded into (part of `run.json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbedHeap {
    /// Share of the recorded time during which they were in place, 0 to 1.
    pub share: f64,
    /// How often they were placed: blocks are known from an allocation to the end of a slice, at most.
    pub slices: u64,
    /// Calls and returns that were told.
    pub hits: u64,
    /// Measured cost of a call to the calling thread, ns.
    pub entry_ns: f64,
    /// The same for functions that the processor must step through, ns.
    pub stepped_ns: f64,
    /// Measured cost of a return, ns.
    pub return_ns: f64,
    /// Frees that were seen.
    pub frees: u64,
    /// Of these the ones of blocks whose allocation had not been seen.
    pub frees_of_unknown: u64,
}

/// How reuse was sampled (part of `run.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledReuse {
    /// Chunks that can be watched at a time.
    pub slots: u32,
    /// Nanoseconds between two traps of a chunk that is touched all the time, measured before the
    /// recording on an idle CPU.
    pub offset_ns: f64,
    /// Its standard deviation from trap to trap, ns: shorter times are not told apart.
    pub deviation_ns: f64,
    /// Samples that were offered to the slots.
    pub offered: u64,
}
