//! What stands in the cells of the tables: ids, times, addresses and words.
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

/// An enumeration that stands in a column as words.
pub(crate) trait Word: Copy {
    const WORDS: &'static [&'static str];

    fn word(self) -> &'static str;

    fn from_word(word: &str) -> Option<Self>;
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

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl Word for $name {
            const WORDS: &'static [&'static str] = Self::WORDS;

            fn word(self) -> &'static str {
                self.word()
            }

            fn from_word(word: &str) -> Option<Self> {
                Self::from_word(word)
            }
        }
    };
}

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

words!(
    /// Where the rows of a recording come from. Further sources are further values.
    Source {
        /// Interrupts in proportion to the CPU time of threads that run at nearly full speed.
        Timer = "timer",
        /// Every access, under an emulator.
        Exact = "exact",
    }
);

// What differs by source is a method here, or a match that names every variant: a further one is then asked for.
impl Source {
    /// Whether every access was seen, and not samples of them.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Whether the program ran under an emulator: its seconds and its CPUs are not those of the machine.
    #[must_use]
    pub fn is_emulated(self) -> bool {
        matches!(self, Self::Exact)
    }

    /// What is seen one by one: `sample` or `access`.
    #[must_use]
    pub fn observation(self) -> &'static str {
        match self {
            Self::Timer => "sample",
            Self::Exact => "access",
        }
    }

    /// What shares are shares of.
    #[must_use]
    pub fn weight(self) -> Weight {
        match self {
            Self::Timer => Weight::ThreadTime,
            Self::Exact => Weight::Accesses,
        }
    }
}

words!(
    /// What a source weighs its observations in.
    Weight {
        /// Nanoseconds of thread time.
        ThreadTime = "time",
        /// Accesses.
        Accesses = "accesses",
    }
);

words!(
    /// The order in which the accesses of different threads were taken.
    Order {
        /// Made in the run: threads wait for each other so that all make their accesses at the same rate.
        EqualRate = "equal-rate",
        /// As the emulator happened to run them.
        AsRun = "as-run",
    }
);

#[expect(clippy::derivable_impls, reason = "the macro makes the type")]
impl Default for Order {
    fn default() -> Self {
        Self::EqualRate
    }
}

words!(
    /// Whose uses count as one stream.
    ReuseScope {
        /// Each thread by itself, as in a private cache.
        Private = "private",
        /// The threads behind one last-level cache.
        Shared = "shared",
    }
);

words!(
    /// How the distance between a use and its reuse is counted.
    Measure {
        /// Distinct units in between: the LRU stack distance.
        Stack = "stack",
        /// Accesses in between.
        Time = "time",
    }
);

words!(
    /// What is used and reused.
    Unit {
        /// A line.
        Line = "line",
        /// A byte.
        Byte = "byte",
        /// As many aligned bytes as `element_bytes` of `run.json` says.
        Element = "element",
        /// Two neighbouring lines, of which the first begins at a multiple of both: what an adjacent
        /// line prefetcher fetches together. Distances are in pairs.
        LinePair = "line-pair",
        /// Eight aligned bytes: what one watchpoint covers.
        Chunk = "chunk",
    }
);

words!(
    /// What became of a touch of a unit.
    Touch {
        /// It comes back to a unit, at a distance.
        Reuse = "reuse",
        /// The first one.
        Cold = "cold",
        /// A store from elsewhere had ended the earlier use.
        Invalidated = "invalidated",
        /// Of the reuses, those after a use by another thread of the same cache. They are in the
        /// rows of the reuses already: do not add both.
        OtherThread = "other-thread",
    }
);

words!(
    /// A level of the simulated hierarchy.
    CacheLevel {
        /// The first-level data cache of a core.
        L1d = "L1d",
        /// The second level: of a core, or the last level of a machine that has no third.
        L2 = "L2",
        /// The third level: the last level of most machines.
        L3 = "L3",
        /// The fourth level.
        L4 = "L4",
        /// No level of a machine: a cache of each core that never loses a line for want of room, where
        /// the sizes of caches were not simulated.
        Unbounded = "unbounded",
    }
);

impl CacheLevel {
    /// Whether every access asks it: the first level, or what stands for all of them.
    #[must_use]
    pub fn is_first(self) -> bool {
        matches!(self, Self::L1d | Self::Unbounded)
    }
}

words!(
    /// Whose accesses a row of `caches` counts.
    CacheSubject {
        /// All accesses.
        Total = "total",
        /// Those of one thread.
        Thread = "thread",
        /// Those of one instruction.
        Instruction = "instruction",
        /// Those of all instructions that have no row of their own.
        OtherInstructions = "other-instructions",
    }
);

words!(
    /// Whether two accesses touch the same bytes of a line.
    Sharing {
        /// Their bytes overlap.
        True = "true",
        /// Their bytes do not.
        False = "false",
    }
);

words!(
    /// How the history of an object ended.
    HistoryOutcome {
        /// It was watched from its allocation to its end.
        Whole = "whole",
        /// It was touched more often than a watch can tell.
        Hot = "hot",
        /// A thread began meanwhile that was not watched.
        ThreadBegan = "thread-began",
        /// The watch, the process or the recording ended before the object did.
        Unfinished = "unfinished",
    }
);

words!(
    /// What happens to an object in a step of its path.
    PathEvent {
        /// It is allocated.
        Allocated = "allocated",
        /// An instruction touches it.
        Accessed = "accessed",
        /// It is freed.
        Freed = "freed",
    }
);

words!(
    /// What a block of memory was asked from.
    Allocator {
        /// `malloc`.
        Malloc = "malloc",
        /// `calloc`.
        Calloc = "calloc",
        /// `realloc` and `reallocarray`: the block after it.
        Realloc = "realloc",
        /// `posix_memalign`, `aligned_alloc`, `memalign`, `valloc`, `pvalloc`.
        Aligned = "aligned",
        /// `operator new`, where it does not come through `malloc`.
        New = "new",
        /// `mmap` and `mremap`.
        Mmap = "mmap",
        /// jemalloc's or mimalloc's own functions (`mallocx`, `mi_malloc`).
        Other = "other",
        /// The program's own pool, which named the object (`linewise.h`).
        Pool = "pool",
    }
);

words!(
    /// How the watching of a chunk for its reuses ended.
    ReuseOutcome {
        /// The sampled thread (in shared scope: some thread) touched it as often as can be seen.
        Complete = "complete",
        /// The reservoir gave its slot to a later sample.
        Replaced = "replaced",
        /// The recording or the sampled thread ended first.
        Ended = "ended",
    }
);

words!(
    /// Why it is not known which type an instruction touches.
    UntypedReason {
        /// The module has no debug info.
        NoDebugInfo = "no-debug-info",
        /// The debug info does not cover this code: assembly, or a part built without it.
        NoFunction = "no-function",
        /// The code could not be read, or no instruction with a memory operand starts there.
        NoInstruction = "no-instruction",
        /// The processor's instructions are not decoded.
        OtherProcessor = "other-processor",
        /// The function has more code than is looked at.
        FunctionTooLarge = "function-too-large",
        /// Pushed or spilled: memory of the stack that is no variable.
        Stack = "stack",
        /// Relative to a segment: thread-local memory.
        ThreadLocal = "thread-local",
        /// In read-only data that is no variable: a table of the compiler, as for a `switch`.
        Constant = "constant",
        /// Neither the debug info nor the code says what the register points to.
        UnknownPointer = "unknown-pointer",
        /// Paths through the function disagree about what it points to.
        Conflict = "conflict",
        /// The type that it points to is declared there, not defined.
        IncompleteType = "incomplete-type",
        /// The bytes do not lie in a field of the type that it points to.
        OutsideType = "outside-type",
    }
);

words!(
    /// What a thread marked.
    MarkKind {
        /// Whom it works for: a connection, a request, a user.
        Session = "session",
        /// What it does there: a step of the work.
        Phase = "phase",
    }
);
