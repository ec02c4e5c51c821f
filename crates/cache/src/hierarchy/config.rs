//! What a simulated machine looks like.

use std::fmt;

/// Above this many ways a set is not scanned; its lines know their slots.
pub(super) const MOST_SCANNED_WAYS: u32 = 64;

/// Bytes a core's caches can hold and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Capacity in bytes, a multiple of `ways` lines. The number of sets need not be a power of
    /// two: a line's set is its number modulo the sets.
    pub size_bytes: u64,
    /// Associativity.
    pub ways: Ways,
    /// Who leaves a full set.
    pub replacement: Replacement,
    /// What it holds of the caches nearer to the core. Means nothing at the first level.
    pub inclusion: Inclusion,
}

impl CacheShape {
    /// A cache with least-recently-used replacement that neither includes nor excludes.
    #[must_use]
    pub fn new(size_bytes: u64, ways: u32) -> Self {
        Self {
            size_bytes,
            ways: Ways::Number(ways),
            replacement: Replacement::Lru,
            inclusion: Inclusion::NonInclusive,
        }
    }

    /// The same with one set of all lines.
    #[must_use]
    pub fn fully_associative(size_bytes: u64) -> Self {
        Self {
            ways: Ways::Full,
            ..Self::new(size_bytes, 1)
        }
    }

    /// The same with this inclusion.
    #[must_use]
    pub fn with_inclusion(self, inclusion: Inclusion) -> Self {
        Self { inclusion, ..self }
    }

    /// The same with this replacement.
    #[must_use]
    pub fn with_replacement(self, replacement: Replacement) -> Self {
        Self {
            replacement,
            ..self
        }
    }

    /// Lines that fit.
    pub(super) fn lines(&self, line_bytes: u32) -> u64 {
        self.size_bytes / u64::from(line_bytes)
    }

    /// Ways as a number. The shape is valid.
    pub(super) fn number_of_ways(&self, line_bytes: u32) -> u32 {
        match self.ways {
            Ways::Number(ways) => ways,
            Ways::Full => self.lines(line_bytes) as u32,
        }
    }

    /// Number of sets. The shape is valid.
    pub(super) fn sets(&self, line_bytes: u32) -> u64 {
        self.lines(line_bytes) / u64::from(self.number_of_ways(line_bytes))
    }

    fn check(&self, name: &'static str, line_bytes: u32) -> Result<(), ConfigError> {
        let lines = self.lines(line_bytes);
        let wrong = |reason| Err(ConfigError::Shape { name, reason });
        if lines == 0 || !self.size_bytes.is_multiple_of(u64::from(line_bytes)) {
            return wrong("its size is not a positive multiple of the line");
        }
        if lines > 1 << 28 {
            return wrong("it has more than 2^28 lines");
        }
        match self.ways {
            Ways::Number(0) => return wrong("it has no ways"),
            Ways::Number(ways) if !lines.is_multiple_of(u64::from(ways)) => {
                return wrong("its lines cannot be divided evenly into its ways");
            }
            _ => {}
        }
        if self.replacement == Replacement::TreePlru
            && self.number_of_ways(line_bytes) > MOST_SCANNED_WAYS
        {
            return wrong("tree-PLRU is modelled for up to 64 ways");
        }
        Ok(())
    }
}

/// Associativity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Lines of a set.
    Number(u32),
    /// One set. A first-level cache of this kind is simulated at a few million accesses a second.
    Full,
}

/// Who leaves a full set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used line.
    Lru,
    /// The line that a binary tree of bits points to; each touch turns the bits on its path away.
    /// With ways that are no power of two the missing leaves are passed over.
    TreePlru,
    /// Any line, by a generator seeded from [`Config::seed`].
    Random,
}

/// What a level holds of the levels nearer to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inclusion {
    /// Everything: a line that leaves here leaves there too.
    Inclusive,
    /// Nothing: lines come when they are evicted there, and leave when they are fetched again. A
    /// last-level cache takes a line when the last core of its group gives it up.
    Exclusive,
    /// No promise: a fetched line is put into both and leaves each by itself; a dirty victim that
    /// is not here is put here (see [`Config::victims_allocate`]).
    NonInclusive,
}

/// The coherence protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A modified line that another core reads is written back and shared.
    Mesi,
    /// A modified line that another core reads stays dirty with its owner, who goes on to supply
    /// it.
    Moesi,
}

/// Who answers for a line that only other groups have, all of them clean copies without an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedSupply {
    /// Memory: plain MESI and MOESI have no forwarder.
    Memory,
    /// A cache that has it, as in Intel's MESIF.
    Cache,
}

/// Which NUMA node a page belongs to. A page here is 64 lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Homes {
    /// That of the core that touches it first, Linux's default.
    FirstTouch,
    /// Page by page in turn.
    Interleaved,
    /// All in this one (an index as in [`Group::node`]).
    Node(u8),
}

/// How an access that reaches into the next line is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spanning {
    /// As one access for each line that it touches, as hardware splits it.
    EachLine,
    /// As one access; a miss where any of its lines misses; after a first-level miss the last
    /// level is asked for all of its lines. This is how cachegrind counts. For one core only.
    OneReference,
}

/// A core with its private caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// Index of its group in [`Config::groups`].
    pub group: u32,
    /// First-level data cache.
    pub l1: CacheShape,
    /// Second-level cache, where there is a private one.
    pub l2: Option<CacheShape>,
}

/// Cores that share a last-level cache, or would if there were one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Socket.
    pub socket: u32,
    /// NUMA node, numbered densely from 0.
    pub node: u8,
    /// The shared last-level cache.
    pub llc: Option<CacheShape>,
}

/// Something that the description of the machine did not tell and how it was filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// What was missing: `l1`, `l2`, `llc`, `line`, `core`, `node`, `inclusion`.
    pub what: &'static str,
    /// What is assumed, in a sentence.
    pub assumed: String,
}

/// A machine to simulate, threads included. All fields may be changed before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a line, a power of two from 8 to 256. Byte masks of lines above 128 bytes have a
    /// bit for every two bytes.
    pub line_bytes: u32,
    /// Cores, at most [`Config::MOST_CORES`].
    pub cores: Vec<Core>,
    /// Groups of cores, at most 64.
    pub groups: Vec<Group>,
    /// The core (index in `cores`) that each thread starts on. Threads beyond the end begin again
    /// at the front.
    pub threads: Vec<u32>,
    /// The core of each CPU number, for [`Config::place`] and
    /// [`Hierarchy::place`](super::Hierarchy::place). Hyperthreads share one.
    pub cpus: Vec<(u32, u32)>,
    /// Coherence protocol.
    pub protocol: Protocol,
    /// Who supplies clean copies across groups.
    pub shared_supply: SharedSupply,
    /// Where memory is.
    pub homes: Homes,
    /// How accesses that reach into the next line are counted.
    pub spanning: Spanning,
    /// Whether a dirty victim that a non-inclusive outer cache does not have is put there. If not,
    /// it goes to memory.
    pub victims_allocate: bool,
    /// Lines with transfers that get statistics of their own; those beyond are summed.
    pub followed_lines: usize,
    /// Sites with counts of their own; those beyond are summed.
    pub counted_sites: u32,
    /// Seed of random replacement.
    pub seed: u64,
    /// What was not known and is assumed.
    pub assumptions: Vec<Assumption>,
}

/// Why a machine cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The line is no power of two from 8 to 256 bytes.
    Line(u32),
    /// There is no core, or more than can be held.
    Cores(usize),
    /// There is no group, or more than 64.
    Groups(usize),
    /// A core names a group, or a thread or CPU a core, that does not exist.
    Missing {
        /// `group` or `core`.
        what: &'static str,
        /// Its index.
        index: u32,
    },
    /// No thread is placed.
    Threads,
    /// A cache cannot be built.
    Shape {
        /// Which: `L1`, `L2` or `LLC`.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// [`Spanning::OneReference`] with more than one core or with a second level.
    OneReference,
    /// No core has this CPU number.
    Cpu(u32),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(bytes) => write!(
                f,
                "a line of {bytes} bytes cannot be simulated; give a power of two from 8 to 256"
            ),
            Self::Cores(number) => write!(
                f,
                "{number} cores cannot be simulated; give 1 to {}",
                Config::MOST_CORES
            ),
            Self::Groups(number) => {
                write!(
                    f,
                    "{number} groups of cores cannot be simulated; give 1 to 64"
                )
            }
            Self::Missing { what, index } => {
                write!(f, "there is no {what} {index}; indices count from 0")
            }
            Self::Threads => write!(f, "no thread is placed on a core; place at least one"),
            Self::Shape { name, reason } => write!(f, "the {name} cannot be built: {reason}"),
            Self::OneReference => write!(
                f,
                "spanning accesses can be one reference only on one core without a second level; \
                 use Spanning::EachLine"
            ),
            Self::Cpu(cpu) => write!(f, "no core has CPU {cpu}; use a CPU of the machine"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// The most cores that can be simulated.
    pub const MOST_CORES: usize = 128;

    /// A machine of equal cores: `groups` times `cores_per_group`, each group its own NUMA node
    /// and socket, thread `t` on core `t`, CPU `c` on core `c`, 64-byte lines, MESI, no second or
    /// last level.
    #[must_use]
    pub fn uniform(groups: u32, cores_per_group: u32, l1: CacheShape) -> Self {
        let cores = groups * cores_per_group;
        Self {
            line_bytes: 64,
            cores: (0..cores)
                .map(|core| Core {
                    group: core / cores_per_group,
                    l1,
                    l2: None,
                })
                .collect(),
            groups: (0..groups)
                .map(|group| Group {
                    socket: group,
                    node: group as u8,
                    llc: None,
                })
                .collect(),
            threads: (0..cores).collect(),
            cpus: (0..cores).map(|core| (core, core)).collect(),
            protocol: Protocol::Mesi,
            shared_supply: SharedSupply::Memory,
            homes: Homes::FirstTouch,
            spanning: Spanning::EachLine,
            victims_allocate: true,
            followed_lines: 1 << 18,
            counted_sites: 1 << 20,
            seed: 1,
            assumptions: Vec::new(),
        }
    }

    /// The same with this second level in every core.
    #[must_use]
    pub fn with_l2(mut self, l2: CacheShape) -> Self {
        for core in &mut self.cores {
            core.l2 = Some(l2);
        }
        self
    }

    /// The same with this last level in every group.
    #[must_use]
    pub fn with_llc(mut self, llc: CacheShape) -> Self {
        for group in &mut self.groups {
            group.llc = Some(llc);
        }
        self
    }

    /// The core of thread `thread`. Beyond the list, threads share the cores of all but the first: it made them, and meets each.
    ///
    /// # Panics
    /// If the configuration has no thread, which [`Self::check`] refuses.
    #[must_use]
    pub fn core_of_thread(&self, thread: usize) -> u32 {
        let place = match (thread, self.threads.len()) {
            (0, _) | (_, 1) => 0,
            (thread, threads) => 1 + (thread - 1) % (threads - 1),
        };
        self.threads[place]
    }

    /// What valgrind's cachegrind simulates for data: one first-level cache for all threads, and
    /// a last level that is asked only when the first level misses. Both are LRU, non-inclusive,
    /// and do not tell stores from loads.
    ///
    /// The counts are cachegrind's when the stream is: an access that reaches into the next line
    /// is *one* reference, a miss if either line misses, and then the last level is asked for both
    /// lines; an instruction that reads and writes a place is *one* access, [`Kind::Update`], which
    /// cachegrind counts among its reads (`Dr`). cachegrind's last level also holds instructions,
    /// which such a stream does not have; `DLmr` and `DLmw` therefore agree where instructions do
    /// not compete with data for the last level.
    ///
    /// [`Kind::Update`]: crate::Kind::Update
    #[must_use]
    pub fn cachegrind(d1: CacheShape, ll: CacheShape) -> Self {
        let plain = |shape: CacheShape| {
            shape
                .with_replacement(Replacement::Lru)
                .with_inclusion(Inclusion::NonInclusive)
        };
        Self {
            spanning: Spanning::OneReference,
            victims_allocate: false,
            ..Self::uniform(1, 1, plain(d1)).with_llc(plain(ll))
        }
    }

    /// Places threads on CPUs: thread `t` on `cpus[t]`, further threads from the second on again.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Cpu`] when the machine has no such CPU, [`ConfigError::Threads`] when `cpus`
    /// is empty.
    pub fn place(&mut self, cpus: &[u32]) -> Result<(), ConfigError> {
        if cpus.is_empty() {
            return Err(ConfigError::Threads);
        }
        self.threads = cpus
            .iter()
            .map(|&cpu| self.core_of(cpu).ok_or(ConfigError::Cpu(cpu)))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The core that has this CPU number.
    #[must_use]
    pub fn core_of(&self, cpu: u32) -> Option<u32> {
        let of_cpu = |&&(number, _): &&(u32, u32)| number == cpu;
        self.cpus.iter().find(of_cpu).map(|&(_, core)| core)
    }

    /// Says whether this machine can be simulated.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.line_bytes.is_power_of_two() || !(8..=256).contains(&self.line_bytes) {
            return Err(ConfigError::Line(self.line_bytes));
        }
        if self.cores.is_empty() || self.cores.len() > Self::MOST_CORES {
            return Err(ConfigError::Cores(self.cores.len()));
        }
        if self.groups.is_empty() || self.groups.len() > 64 {
            return Err(ConfigError::Groups(self.groups.len()));
        }
        for core in &self.cores {
            if core.group as usize >= self.groups.len() {
                return Err(ConfigError::Missing {
                    what: "group",
                    index: core.group,
                });
            }
            core.l1.check("L1", self.line_bytes)?;
            if let Some(l2) = core.l2 {
                l2.check("L2", self.line_bytes)?;
            }
        }
        for llc in self.groups.iter().filter_map(|group| group.llc) {
            llc.check("LLC", self.line_bytes)?;
        }
        if self.threads.is_empty() {
            return Err(ConfigError::Threads);
        }
        let of_cpus = self.cpus.iter().map(|&(_, core)| core);
        for core in self.threads.iter().copied().chain(of_cpus) {
            if core as usize >= self.cores.len() {
                return Err(ConfigError::Missing {
                    what: "core",
                    index: core,
                });
            }
        }
        if self.spanning == Spanning::OneReference
            && (self.cores.len() > 1 || self.cores[0].l2.is_some())
        {
            return Err(ConfigError::OneReference);
        }
        Ok(())
    }

    /// Nodes of the machine.
    pub(super) fn nodes(&self) -> u32 {
        let highest = self.groups.iter().map(|group| group.node).max();
        u32::from(highest.unwrap_or(0)) + 1
    }
}
