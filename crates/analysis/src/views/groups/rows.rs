//! The rows of the answer.

use linewise_recording::Source;
use serde::{Deserialize, Serialize};

use super::distance::{Distance, DistanceCost, LevelLatency};
use super::sharing_pair::{SharedObject, SharingPair};
use crate::quantity::Interval;

/// Who shares cache lines with whom, and where they should run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroups {
    /// [`GROUPS_SCHEMA`].
    pub schema: u32,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Where it comes from.
    pub source: Source,
    /// Whether linewise started the program: thread ids are of a run that is over.
    pub launched: bool,
    /// Wall time recorded, ns.
    pub duration_ns: u64,
    /// Bytes of a line.
    pub line_bytes: u64,
    /// The threads that did anything: those of the first group first, those in no group last.
    pub threads: Vec<GroupedThread>,
    /// Pairs of threads that share lines, the strongest first.
    pub pairs: Vec<SharingPair>,
    /// The groups, the one that shares most first.
    pub groups: Vec<ThreadGroup>,
    /// The machine that threads are placed on.
    pub shape: Shape,
    /// What a line's way costs at each distance that the machine has, the nearest first.
    pub latencies: Vec<LevelLatency>,
    /// What to do.
    pub advice: PlacementAdvice,
    /// What the reader must know, whole sentences.
    pub notes: Vec<String>,
}

/// A thread and its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupedThread {
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Of how many CPUs it used the time, 0 to 1; of an exact run that of the emulator.
    pub load: f64,
    /// The number of its group; `null` of a thread in none.
    pub group: Option<u32>,
}

/// Threads that share with each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroup {
    /// Its number, from 1.
    pub id: u32,
    /// Its threads by id.
    pub threads: Vec<u32>,
    /// Of how many CPUs they use the time together.
    pub load: f64,
    /// Transfers between them a second of the run; of an exact run all of them.
    pub transfers: f64,
    /// The interval of `transfers`: 90 %.
    pub interval: Interval,
    /// Of `transfers`, the share by false sharing, 0 to 1.
    pub false_share: f64,
    /// See [`SharingPair::in_turns`].
    pub in_turns: f64,
    /// Transfers between them and threads outside, in the unit of `transfers`.
    pub outside: f64,
    /// Distinct lines that they share.
    pub lines: u64,
    /// Bytes of these: the shared hot set.
    pub hot_bytes: u64,
    /// What their transfers cost where they ran, as a share of their thread time, 0 to 1; of an exact run of that of all
    /// threads.
    pub cost: f64,
    /// The interval of `cost`: 90 %.
    pub cost_interval: Interval,
    /// What they would cost at each distance that the machine has.
    pub elsewhere: Vec<DistanceCost>,
    /// Where they would run; `null` where no place on the machine is better than any other.
    pub place: Option<GroupPlace>,
    /// What it would save there, in the unit of `cost`; 0 where it has no place, or ran there. Of a group whose threads take
    /// turns what they might lose apart.
    pub gain: f64,
    /// The interval of `gain`: 90 %, with what the ratios of latencies leave open.
    pub gain_interval: Interval,
    /// What is to be done with it, or why nothing.
    pub verdict: PlacementVerdict,
    /// What lies on their lines, the most first; at most 3.
    pub why: Vec<SharedObject>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementAdvice {
    /// The answer.
    pub verdict: PlacementVerdict,
    /// The same in whole sentences.
    pub words: String,
}

/// Whether threads should be moved, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementVerdict {
    /// It should run at its `place`; of all: the groups of which this is said should.
    Move,
    /// Too little was seen to say anything.
    TooLittleSeen,
    /// No threads share lines.
    NothingShared,
    /// All CPUs are below one last-level cache.
    OneLlc,
    /// The shape of the machine that was recorded is not known.
    MachineUnknown,
    /// All threads share with all.
    AllWithAll,
    /// It fits nowhere as a whole; of all: no group does.
    NoRoom,
    /// It is there; of all: each group that fits somewhere is.
    AlreadyThere,
    /// It would bring next to nothing, or nothing for certain.
    TooCheap,
}

/// The shape of a machine, as far as it matters where threads run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// CPUs.
    pub cpus: u64,
    /// Last-level caches; `null` where the machine hides them.
    pub llcs: Option<u64>,
    /// Sockets; `null` where they are not known.
    pub sockets: Option<u64>,
    /// The CPUs below each last-level cache, by socket, as the kernel writes lists of CPUs; empty where they are not known.
    pub below: Vec<Below>,
}

/// The CPUs below a last-level cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Below {
    /// The socket; `null` where it is not known.
    pub socket: Option<u32>,
    /// The CPUs: `0-7`.
    pub cpus: String,
}

/// Where a group would run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPlace {
    /// The CPUs, as the kernel writes lists of them: `0-7`.
    pub cpus: String,
    /// Their NUMA nodes likewise; empty where they are not known.
    pub nodes: String,
    /// The largest distance between its threads there.
    pub distance: Distance,
    /// The number of the last-level cache, by its first CPU, from 0; `null` for a whole socket.
    pub llc: Option<u32>,
    /// Whether the group ran there.
    pub is_there: bool,
}
