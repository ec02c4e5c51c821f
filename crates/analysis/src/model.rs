//! The report as plain data: what the JSON output holds and the other two renderers draw.
//!
//! The JSON form is a public interface (schema 1): fields may be added, never renamed or removed.

use linewise_recording::{Address, Tid};
use serde::{Deserialize, Serialize};

use crate::users::User;

pub use crate::details::{Details, Excerpt, ExcerptRow};
pub use crate::quantity::Interval;
pub use crate::views::Views;
pub use crate::views::caches::{CacheMisses, CacheRow, PlaceCaches, Served, ThreadCaches};
pub use crate::views::calls::{CallCell, CallNode, CallTree, Owner, SLICES, SampledThread};
pub use crate::views::flow::{FlowEdge, FlowNode, FlowPath, FlowRow, FlowSite, LevelHits};
pub use crate::views::heap_sites::{AllocationSite, HeapTotals};
pub use crate::views::hot::{HotCallee, HotFunction, HotInstruction, HotLine};
pub use crate::views::marks::{Marked, MarkedTime};
pub use crate::views::migrations::{CpuPair, Migrations, ThreadMigrations};
pub use crate::views::miss_ratio::{CacheSize, CurvePoint};
pub use crate::views::misses::MissRow;
pub use crate::views::place::SourcePlace;
pub use crate::views::polls::Poll;
pub use crate::views::prefetch::{FunctionPrefetch, Neighbours, Prefetch, Verdict};
pub use crate::views::reuse::{
    Beyond, Bin, FunctionReuse, Histogram, PairPaths, PairReuse, PathReuse, Reuse, ReuseSource,
    Touches,
};
pub use crate::views::run_coverage::RunCoverage;
pub use crate::views::sampled_reuse::{ReuseTimes, SampledReuse};
pub use crate::views::threads::ThreadRow;
pub use crate::views::timeline::TimelineBin;
pub use crate::views::types::{
    Coverage, FieldRow, FieldThread, Group, Layout, LevelMisses, MissingInfo, Reached, TypeCost,
    TypeRow,
};
pub use crate::views::working_set::{CrowdedSet, CrowdedType, LevelSet, TypeSet};

/// The version of the JSON interface.
pub const SCHEMA: u32 = 1;

/// Everything that one recording says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was run.
    pub run: Run,
    /// All sharing, found or not worth a finding.
    pub sharing: Sharing,
    /// Ranked by cost, the dearest first.
    pub findings: Vec<Finding>,
    /// What became of the samples.
    pub samples: Samples,
    /// How much of the run was seen: what it is worth that something was not found.
    #[serde(default)]
    pub coverage: RunCoverage,
    /// What was not recorded, by name (`ring-buffer-full`, `watchpoint-refused`, ...).
    pub losses: std::collections::BTreeMap<String, Lost>,
    /// What the reader must know before believing the rest: too short, cut short, one CPU only.
    pub notes: Vec<String>,
    /// For the timeline: samples and contended time over the run.
    pub timeline: Vec<TimelineBin>,
    /// Reuse distances; of an exact run, or of sampled addresses with the rates of one, else the field is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// Reuse times of sampled addresses; of a recording with `--reuse sampled` only, else the field is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_reuse: Option<SampledReuse>,
    /// Miss ratio by size of a cache for each thread, all threads together; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// Miss ratio by size of a cache for the threads behind each last level; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve_shared: Vec<CurvePoint>,
    /// The simulated caches on the curves, the nearest to the core first; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_sizes: Vec<CacheSize>,
    /// What each level of the simulated hierarchy served, and why it missed; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheRow>,
    /// Whose accesses missed in the simulated caches, and where; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<CacheMisses>,
    /// Whether fetching the neighbour of every line that misses would help; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// The data profile: types by what their accesses cost, the dearest first; at most 100. Not there without typed
    /// accesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeRow>,
    /// How many accesses could be typed, and why not the rest; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_coverage: Option<Coverage>,
    /// Why the first-level cache misses, type by type, those with the most misses first; at most 100. Likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<MissRow>,
    /// What fills each cache of the machine, the nearest to the core first; by samples, or as an exact run with `--caches` held it, else the field is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub working_set: Vec<LevelSet>,
    /// What happens to objects of a type from allocation to end, those with the most histories first; at most 20. Of a
    /// recording with `--flow` only, else the field is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowRow>,
    /// The answers of the views that show sections, each under its name.
    #[serde(flatten)]
    pub views: Views,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The command line, or `pid 123 (name)`.
    pub command: String,
    /// Where it comes from.
    pub source: linewise_recording::Source,
    /// Why that source, one line.
    pub source_reason: String,
    /// Wall time recorded.
    pub duration_ns: u64,
    /// Every thread, most CPU time first.
    pub threads: Vec<ThreadRow>,
    /// Core-to-core round trip, median over the run; `null` when it could not be measured.
    pub round_trip_ns: Option<f64>,
    /// The lowest and highest round trip seen in the run.
    pub round_trip_range_ns: Option<Interval>,
    /// What recording cost; `null` of an exact run, which runs the program under an emulator.
    pub overhead: Option<linewise_recording::Overhead>,
    /// Of so many lines an exact run followed one; 1 is all, `null` from samples.
    #[serde(default)]
    pub one_line_in: Option<u32>,
    /// The order in which an exact run took the accesses of different threads; `null` from samples.
    #[serde(default)]
    pub order: Option<linewise_recording::Order>,
    /// What came of running the command again; `null` if it was not (`--repeat`).
    #[serde(default)]
    pub repeated: Option<Repeated>,
    /// How long threads of the program waited for an exact run to be read, all together; `null` from samples. Nothing is lost by it.
    #[serde(default)]
    pub waited_ns: Option<u64>,
    /// CPU, hypervisor and kernel, one line.
    pub machine: String,
    /// Whether the recording was ended properly.
    pub complete: bool,
    /// The target's exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the target, if one did.
    pub exit_signal: Option<i32>,
}

/// Between what the counts of an exact run lie when the command is run again; all else is of the first run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Runs, with the first.
    pub runs: u64,
    /// Their accesses.
    pub accesses: Interval,
    /// Their transfers.
    pub transfers: Interval,
}

/// All sharing of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Transfers of the whole run, estimated from samples or counted by an exact run.
    pub transfers: Transfers,
    /// The thread ids of the matrix's rows and columns.
    pub threads: Vec<u32>,
    /// Transfers between each two threads, symmetric.
    pub matrix: Matrix,
    /// The CPU numbers of the CPU matrix's rows and columns.
    pub cpus: Vec<u32>,
    /// Estimated transfers between each two CPUs, symmetric.
    pub cpu_matrix: Matrix,
    /// Of the lines seen those that several threads use, but hardly ever at once on different CPUs: their transfers are not
    /// counted, of which there may be one each time that another thread goes on.
    #[serde(default)]
    pub uncounted_lines: u64,
    /// About so many lines that several threads use, of which there are more than a private cache holds: one has left it when
    /// another thread comes to it. What moves so waits for memory and not for a thread, and is not counted.
    #[serde(default)]
    pub spread_lines: u64,
}

/// Transfers, split by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// Of bytes that another thread stored to since the one that fetched the line used them, and that it used while it had the line.
    #[serde(rename = "true")]
    pub true_sharing: f64,
    /// The others: nothing of what came was new to what was used.
    #[serde(rename = "false")]
    pub false_sharing: f64,
    /// Of the sum of both: 90 %; of an exact run that followed every line, the sum itself.
    pub interval: Interval,
}

/// Two square matrices of the same shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Transfers by true sharing.
    #[serde(rename = "true")]
    pub true_sharing: Vec<Vec<f64>>,
    /// Transfers by false sharing.
    #[serde(rename = "false")]
    pub false_sharing: Vec<Vec<f64>>,
}

/// What kind of cause a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Threads fight over a line, not over its bytes.
    FalseSharing,
    /// Threads fight over the same bytes.
    TrueSharing,
    /// Threads fight over a line; which of the two it is could not be told.
    Sharing,
}

impl FindingKind {
    /// The kind of which the most transfers are, if that is known.
    #[must_use]
    pub fn of(false_share: Interval) -> Self {
        match false_share {
            Interval { low, .. } if low >= 0.5 => Self::FalseSharing,
            Interval { high, .. } if high < 0.5 => Self::TrueSharing,
            _ => Self::Sharing,
        }
    }
}

/// One cause, its evidence, and what to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// 1 is the dearest.
    pub rank: u32,
    /// False or true sharing, whichever causes more transfers, or that this is not known.
    pub kind: FindingKind,
    /// Thread time lost.
    pub cost: Cost,
    /// Transfers of this line or object, both kinds.
    pub transfers: f64,
    /// The 90 % interval of `transfers`; of an exact run that followed every line, `transfers` itself.
    pub transfers_interval: Interval,
    /// Of `transfers`, the share by false sharing, 0 to 1.
    pub false_share: f64,
    /// Between what `false_share` is known to lie: where a thread touches words of its own and words of others, samples
    /// do not tell whether it does so while it has the line once.
    #[serde(default)]
    pub false_share_interval: Interval,
    /// What is fought over.
    pub object: ObjectRow,
    /// The contended lines of the object, dearest first, at most 16.
    pub lines: Vec<LineRow>,
    /// How many lines moved, with those that are not in `lines`; 0 in reports that do not tell.
    #[serde(default)]
    pub line_count: u64,
    /// Who touches it and where in the source, dearest first; of many the dearest, and those of each thread.
    pub accesses: Vec<AccessRow>,
    /// What is not in `accesses`.
    #[serde(default)]
    pub unlisted: Unlisted,
    /// What to change, in a sentence or two.
    pub change: String,
    /// Source to paste, empty when there is none to propose.
    pub change_source: String,
    /// What the change is expected to save: at most this share of all thread time.
    pub expected_gain: Interval,
    /// What this finding cannot tell, in a sentence; empty when there is nothing to add.
    pub doubt: String,
    /// Samples and traps that it rests on.
    pub evidence: Evidence,
}

impl Finding {
    /// Whether every access was seen.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.evidence.accesses.is_some()
    }
}

/// Thread time lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Best estimate, ns of thread time over the run.
    pub ns: f64,
    /// The same as a share of all thread time, 0 to 1.
    pub share: f64,
    /// 90 % interval of `share`.
    pub interval: Interval,
}

/// The object that is fought over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// `static`, `heap`, `stack` or `mapping`.
    pub kind: linewise_recording::ObjectKind,
    /// Its name.
    pub name: String,
    /// Its type, empty if unknown.
    pub type_name: String,
    /// First byte.
    pub address: u64,
    /// Bytes; 0 if unknown.
    pub size: u64,
    /// `file:line` of its declaration, of a heap block that of its allocation; empty if unknown.
    pub declared_at: String,
    /// Of a heap block that the recorder told of, the callers of its allocation, innermost first, but for those within an
    /// allocator or a language's library: `function (file:line)`; else the field is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocated_at: Vec<String>,
    /// Of a block of Go's heap: where the program's code allocates values of its type, `function (file:line)` each; else, and where the
    /// code does not tell, the field is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub type_allocated_at: Vec<String>,
    /// How many objects this finding is of that are alike, of which this is the dearest: blocks allocated at one place, or one variable
    /// in several processes; 0 in reports that do not tell.
    #[serde(default)]
    pub count: u64,
    /// The type that most of its accesses name, by debug info and machine code, of an array that of its elements; empty if unknown.
    #[serde(default)]
    #[serde(rename = "type")]
    pub accessed_type: String,
    /// Who declares that type, if it is not the program, in a word or two: it is not to be edited; else the field is not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub type_owner: String,
    /// The fields of that type that are touched, the dearest first, with `, ` between; empty if unknown.
    #[serde(default)]
    pub field: String,
    /// The members and static variables that hold the pointers through which it is reached, the dearest first: `State.hash_table`; empty
    /// if none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reached_through: String,
    /// What the accesses say of its type, most first: of a heap block that the recorder told of the accesses to all blocks of its
    /// allocation site, else its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub type_votes: Vec<TypeVote>,
}

/// How many accesses name a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeVote {
    /// The type.
    pub name: String,
    /// Their share of the accesses whose type is known, 0 to 1.
    pub share: f64,
    /// Whether it is a part of `type`, which the accesses that name it do not know: what a library's lock lies in.
    #[serde(default)]
    pub part: bool,
}

/// One contended line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineRow {
    /// First byte.
    pub address: u64,
    /// Bytes of a line.
    pub size: u32,
    /// Offset of the line's first byte from the object's first byte (negative if the object starts inside).
    pub offset_in_object: i64,
    /// Transfers of this line.
    pub transfers: f64,
    /// What lies where on it: fields and variables, by offset in the line.
    pub fields: Vec<LineField>,
}

/// A field or variable on a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineField {
    /// Offset of its first byte in the line (0 to line size - 1; clipped to the line).
    pub offset: u32,
    /// Bytes of it on this line.
    pub size: u32,
    /// Its path, e.g. `counters[3].hits`; empty for bytes known only by their offset.
    pub path: String,
    /// Its type, empty if unknown; of a bit field with its bits, as in `unsigned int : 4`.
    pub type_name: String,
}

impl LineField {
    /// Whether it is the storage of one bit field, or of several: `flags.{ready,seen}`.
    pub(crate) fn is_bits(&self) -> bool {
        self.path.ends_with('}') || self.type_name.contains(" : ")
    }
}

/// One place in the source that touches the object, in one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessRow {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread_name: String,
    /// The goroutine that the thread ran, by the address of its descriptor; not there where none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goroutine: Option<u64>,
    /// Innermost function, demangled; an address when unknown.
    pub function: String,
    /// Source file, empty if unknown.
    pub file: String,
    /// Source line, 0 if unknown.
    pub line: u32,
    /// The innermost place in the program's own code: the function itself, what it was inlined into, or who calls it most.
    /// `null` where none is known.
    #[serde(default)]
    pub own: Option<SourcePlace>,
    /// Whether a scope ends there and gives back what it held, as a guard that unlocks: `own` is the line of its closing brace, or of
    /// what leaves it.
    #[serde(default)]
    pub ends_scope: bool,
    /// The language of the program there: `c`, `c++`, `rust`, `go`, `java`, `javascript` or `python`, of code that a runtime made or
    /// runs that of its programs; empty if unknown.
    #[serde(default)]
    pub language: String,
    /// Callers into which the function was inlined, innermost first.
    pub inlined_into: Vec<String>,
    /// Who called the function, by the samples that fell there, the most frequent chain first; empty where nobody knows,
    /// and where threads begin with the function.
    #[serde(default)]
    pub called_from: Vec<CallChain>,
    /// `load`, `store` or `update`.
    pub op: linewise_recording::Operation,
    /// Offset of the first byte touched, from the first byte of the contended line.
    pub offset: u32,
    /// Bytes touched.
    pub size: u32,
    /// The field touched, empty if unknown.
    pub field: String,
    /// Share of the finding's sampled time that this place took, 0 to 1; of an exact run, of the
    /// accesses that waited for its lines. With what the same code of this thread does that is not listed.
    pub share: f64,
    /// Address of the contended line that it touched.
    pub line_address: u64,
    /// Why the function or line is missing and what to install; empty when nothing is missing.
    pub missing: String,
}

impl AccessRow {
    /// Who it is that accesses.
    pub(crate) fn user(&self) -> User {
        User::of(Tid(self.tid), self.goroutine.map(Address))
    }

    /// The innermost place, whosoever code it is.
    pub(crate) fn innermost(&self) -> SourcePlace {
        SourcePlace {
            function: self.function.clone(),
            file: self.file.clone(),
            line: self.line,
        }
    }

    /// The program's own place if that is another one.
    pub(crate) fn own_caller(&self) -> Option<&SourcePlace> {
        let own = self.own.as_ref()?;
        (own.function != self.function || own.line != self.line).then_some(own)
    }
}

/// Places in the source that a finding does not list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unlisted {
    /// How many.
    pub places: u64,
    /// Their share, in the unit of [`AccessRow::share`], 0 to 1.
    pub share: f64,
}

/// Calls that lead to a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallChain {
    /// Share of the samples at the place, 0 to 1.
    pub share: f64,
    /// Callers, `function (file:line)`, innermost first, up to `main` or to where their thread began.
    pub callers: Vec<String>,
}

/// What a finding rests on. What its source does not have is `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Samples at its accesses.
    pub samples: Option<u64>,
    /// Times that a thread was watched for its lines.
    pub watches: Option<u64>,
    /// Times that the watched thread touched them.
    pub traps: Option<u64>,
    /// Accesses that waited for one of its lines, each counted by an exact run.
    pub accesses: Option<u64>,
}

/// What became of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// All; of an exact run every access, each of which stands for itself.
    pub total: u64,
    /// Those that are an access with an address.
    pub accesses: u64,
    /// Those that wait for no memory; `null` of an exact run, which sees nothing else.
    pub compute: Option<u64>,
    /// Those of threads in the kernel; `null` where it was not sampled.
    pub kernel: Option<u64>,
    /// The rest, by reason.
    pub unknown: std::collections::BTreeMap<String, u64>,
}

impl Samples {
    /// Those of user code.
    #[must_use]
    pub fn in_user_code(&self) -> u64 {
        self.total.saturating_sub(self.kernel.unwrap_or(0))
    }
}

/// Something that was not recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// A sentence for the footer.
    pub detail: String,
}
