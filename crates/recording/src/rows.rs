//! The rows of a recording: one plain struct for each table, raw facts only.
//!
//! Times are CLOCK_MONOTONIC nanoseconds, addresses are those of the target's address space.
//! Nothing here is interpreted: which accesses share a line, and what that costs, is the business
//! of the analysis.

use serde::{Deserialize, Serialize};

macro_rules! newtype {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype!(
    /// A kernel thread id.
    Tid(u32)
);
newtype!(
    /// A process id: the thread id of the process's first thread.
    Pid(u32)
);
newtype!(
    /// A logical CPU as the kernel numbers them.
    CpuId(u32)
);
newtype!(
    /// A point in time, CLOCK_MONOTONIC, in nanoseconds.
    Time(u64)
);
newtype!(
    /// A virtual address in the target.
    Address(u64)
);
newtype!(
    /// A row of the stacks table.
    StackId(u32)
);

impl Address {
    /// The first byte of the line of `line_size` bytes (a power of two) that holds this address.
    #[must_use]
    pub fn line(self, line_size: u64) -> Self {
        Self(self.0 & !(line_size - 1))
    }
}

impl Time {
    /// Nanoseconds from `earlier` to this time, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A text-coded enumeration: the same word in Parquet, JSON and the report.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vmeta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word of every value, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The word that stands for this value in every output.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The value that `word` stands for, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub(crate) use words;

words!(
    /// What an instruction does to memory.
    Operation {
        /// Reads only.
        Load = "load",
        /// Writes only.
        Store = "store",
        /// Reads and writes the same bytes: `add %rax,(%rdi)`, `xchg`, `lock cmpxchg`.
        Update = "update",
    }
);

words!(
    /// How the address of a sampled access was found.
    AddressOrigin {
        /// From the registers of the interrupted thread.
        Registers = "registers",
        /// From a one-shot execution breakpoint: the *next* execution of the instruction.
        Breakpoint = "breakpoint",
        /// From a watchpoint: the access is what trapped.
        Watchpoint = "watchpoint",
    }
);

words!(
    /// What a sample turned out to be.
    SampleClass {
        /// The waiting instruction is a memory access whose address is known.
        Access = "access",
        /// The waiting instruction does not access memory.
        Compute = "compute",
        /// The waiting instruction could not be named, or its address could not: see the reason.
        Unknown = "unknown",
        /// The thread was in the kernel; the address is that of the word that it waits for or wakes others at in a
        /// futex call, where it is in one.
        Kernel = "kernel",
    }
);

words!(
    /// Why a sample has no access.
    UnknownReason {
        /// The code bytes at the interrupted address could not be read (unmapped meanwhile, or not ours).
        CodeUnreadable = "code-unreadable",
        /// The bytes did not decode to a valid instruction.
        Undecodable = "undecodable",
        /// The interrupted instruction starts a block: the one that waited is behind a branch.
        BlockStart = "block-start",
        /// The instruction overwrote a register of its address, and no breakpoint was free to see it again.
        AddressOverwritten = "address-overwritten",
        /// A breakpoint was armed for it, but the instruction did not run again in time.
        BreakpointExpired = "breakpoint-expired",
        /// The address needs a state that the kernel does not deliver (vector gather, segment base).
        AddressNotInRegisters = "address-not-in-registers",
        /// The sample carries no user registers (a 32-bit task, or a kernel thread).
        NoRegisters = "no-registers",
    }
);

words!(
    /// How the watching of a line in one thread ended.
    WatchOutcome {
        /// The thread touched a watched chunk.
        Trapped = "trapped",
        /// It did not, until the expiry.
        Expired = "expired",
        /// The recording or the thread ended first.
        Ended = "ended",
    }
);

words!(
    /// What a mapping of the target is.
    MapKind {
        /// A file, or the vdso: code and static data.
        File = "file",
        /// The brk heap.
        Heap = "heap",
        /// The stack of a thread (`threads.stack_*` says whose).
        Stack = "stack",
        /// Anonymous memory: mmap, malloc arenas, thread stacks not recognised as such.
        Anonymous = "anonymous",
    }
);

words!(
    /// What an address belongs to.
    ObjectKind {
        /// A variable of static storage duration, thread-local ones too.
        Static = "static",
        /// Memory from the brk heap or an allocator's arena.
        Heap = "heap",
        /// The stack of a thread.
        Stack = "stack",
        /// Any other mapping.
        Mapping = "mapping",
    }
);

/// One interrupted instruction (table `samples`).
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When the timer fired.
    pub time: Time,
    /// The process of the interrupted thread.
    pub pid: Pid,
    /// The interrupted thread.
    pub tid: Tid,
    /// Where it ran.
    pub cpu: CpuId,
    /// The interrupted instruction pointer, before the skid rule.
    pub ip: Address,
    /// The user stack pointer.
    pub sp: Address,
    /// The call chain.
    pub stack: StackId,
    /// Thread time that the sample stands for, in ns.
    pub weight_ns: u64,
    /// What it turned out to be.
    pub class: SampleClass,
    /// The instruction that waited, after the skid rule; zero when unknown.
    pub access_ip: Address,
    /// The first byte that it touched; zero unless `class` is `Access`.
    pub address: Address,
    /// How many bytes it touched; zero unless `class` is `Access`.
    pub size: u32,
    /// What it does to memory; `None` when it is not an access.
    pub operation: Option<Operation>,
    /// Whether it is a locked (serialising) access.
    pub locked: bool,
    /// How the address was found.
    pub origin: Option<AddressOrigin>,
    /// Why there is no access, when `class` is `Unknown`.
    pub reason: Option<UnknownReason>,
}

/// One line watched in one thread for a while: up to four chunks armed together (table `watches`).
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The number of this watch, unique in the recording.
    pub id: u64,
    /// When it had been armed.
    pub armed: Time,
    /// When it was taken down.
    pub closed: Time,
    /// The process of the watched thread.
    pub pid: Pid,
    /// The watched thread.
    pub tid: Tid,
    /// The thread whose sample published the line.
    pub publisher: Tid,
    /// The published access: first byte.
    pub address: Address,
    /// The published access: bytes.
    pub size: u32,
    /// The published access: what it did.
    pub operation: Operation,
    /// Bit i set: chunk i was watched (8 bytes each, from the first byte of the line; of a line of more than 64 bytes,
    /// of those aligned 64 that hold the published access).
    pub chunks: u8,
    /// The CPU where the publisher was sampled.
    pub publisher_cpu: CpuId,
    /// How it ended.
    pub outcome: WatchOutcome,
    /// Time that the thread ran while the watch was armed, in ns, as the kernel counted it: the
    /// exposure of every watched chunk that did not trap (one that did has its own, in the trap).
    pub exposure_ns: u64,
}

/// One access of a watched chunk (table `traps`). A watch has at most one for each of its chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct Trap {
    /// The watch that it belongs to.
    pub watch: u64,
    /// The chunk that was touched, counted as in [`Watch::chunks`].
    pub chunk: u8,
    /// Time that the thread ran from arming to this access, in ns, as the kernel counted it.
    pub exposure_ns: u64,
    /// When the access happened.
    pub time: Time,
    /// The accessing process.
    pub pid: Pid,
    /// The accessing thread.
    pub tid: Tid,
    /// Where it ran.
    pub cpu: CpuId,
    /// The instruction that accessed the chunk; zero when it could not be named.
    pub access_ip: Address,
    /// The first byte that it touched.
    pub address: Address,
    /// How many bytes.
    pub size: u32,
    /// What it did.
    pub operation: Operation,
    /// Whether it is a locked (serialising) access.
    pub locked: bool,
    /// The call chain.
    pub stack: StackId,
}

/// One thread of the target (table `threads`).
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its process.
    pub pid: Pid,
    /// Its id.
    pub tid: Tid,
    /// Its name when it was last seen.
    pub name: String,
    /// When it was first seen.
    pub start: Time,
    /// When it ended, or the recording did.
    pub end: Time,
    /// CPU time it used while recorded, in ns.
    pub cpu_time_ns: u64,
    /// The lowest and one past the highest stack pointer seen or mapped; zero when unknown.
    pub stack_low: Address,
    /// See `stack_low`.
    pub stack_high: Address,
}

/// A stay of a thread on a CPU (table `switches`).
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The thread.
    pub tid: Tid,
    /// The CPU.
    pub cpu: CpuId,
    /// When it came.
    pub start: Time,
    /// When it went.
    pub end: Time,
}

/// A mapping of the target (table `maps`).
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The process.
    pub pid: Pid,
    /// When it was first seen.
    pub time: Time,
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Whether it is executable.
    pub executable: bool,
    /// Whether it is writable.
    pub writable: bool,
    /// What it is.
    pub kind: MapKind,
    /// The file, or the kernel's name in brackets, or empty.
    pub path: String,
    /// GNU build id in lower-case hex, empty if the file has none.
    pub build_id: String,
    /// The device of the file behind it (major number times 2^20 plus minor) where the mapping is shared; processes that map the
    /// same file have its bytes in common. `None` where it is private.
    pub device: Option<u32>,
    /// The inode of that file.
    pub inode: Option<u64>,
}

/// A call chain: user-space return addresses, innermost first (table `stacks`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Its id.
    pub id: StackId,
    /// The interrupted instruction, then each caller's return address.
    pub frames: Vec<Address>,
}

/// What an address belongs to, resolved when the recording ended (table `objects`).
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The process.
    pub pid: Pid,
    /// First byte.
    pub address: Address,
    /// Bytes.
    pub size: u64,
    /// What it is.
    pub kind: ObjectKind,
    /// Its name: a variable, `heap`, `stack of worker-1 (1234)`, a mapping's path.
    pub name: String,
    /// The type from DWARF, empty if unknown.
    pub type_name: String,
    /// Where a variable is declared, `file:line`, empty if unknown.
    pub declared_at: String,
}

/// A field of an object, resolved when the recording ended (table `fields`).
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The process of the object.
    pub pid: Pid,
    /// First byte of the object.
    pub object: Address,
    /// Offset of the field in the object.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its path: `counters[3].hits`.
    pub path: String,
    /// Its type from DWARF.
    pub type_name: String,
}

/// One source-level frame of a code address, resolved when the recording ended (table `frames`).
/// An address inside inlined code has several, innermost first. Rows of a return address are of the call before it;
/// where the instruction there has rows of its own, those of the call stand at the byte before.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The process.
    pub pid: Pid,
    /// The code address.
    pub address: Address,
    /// 0 is the innermost.
    pub depth: u32,
    /// Demangled function name; `module+0xoffset` if only that is known, empty if not even that.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// The module's path.
    pub module: String,
    /// Why function or line are missing and what to install; empty when both are known.
    pub reason: String,
}

/// The cost of moving a line between two CPUs, as measured at one moment (table `latencies`).
///
/// The round trip is always of that moment; the costs are repeated from an earlier row where it
/// shows that they still hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// When.
    pub time: Time,
    /// One CPU.
    pub cpu_a: CpuId,
    /// The other.
    pub cpu_b: CpuId,
    /// Ping-pong round trip, median, in ns.
    pub round_trip_ns: f64,
    /// Time that a thread spends at the line for each transfer to it, in ns, when the other CPU
    /// never wants it back.
    pub transfer_idle_ns: f64,
    /// The same when the other CPU is at the line for `busy_share` of its time.
    pub transfer_busy_ns: f64,
    /// See `transfer_busy_ns`; 0 to 1.
    pub busy_share: f64,
    /// The same when the other CPU is at the line for `crowded_share` of its time.
    pub transfer_crowded_ns: f64,
    /// See `transfer_crowded_ns`; 0 to 1.
    pub crowded_share: f64,
    /// The same when both CPUs want the line all the time.
    pub transfer_saturated_ns: f64,
    /// One serialised access to a line that this core holds, in ns.
    pub hit_ns: f64,
}

/// Something that was not recorded (table `losses`).
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// When it was noticed.
    pub time: Time,
    /// The thread, if it concerns one.
    pub tid: Option<Tid>,
    /// What: `ring-buffer-full`, `watchpoint-refused`, `thread-not-followed`, ...
    pub what: String,
    /// How many.
    pub count: u64,
    /// A sentence for the report's footer.
    pub detail: String,
}
