//! What a simulation counts.

use std::collections::HashMap;
use std::ops::AddAssign;

use crate::Kind;

/// Who served an access, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Served {
    /// The core's first-level cache.
    L1,
    /// The core's second-level cache.
    L2,
    /// The last-level cache of the core's group.
    Llc,
    /// Another core's private cache in the same group.
    Peer,
    /// A cache of another group in the same socket.
    OtherGroup,
    /// A cache of another socket.
    OtherSocket,
    /// Memory of the core's own NUMA node.
    LocalDram,
    /// Memory of another NUMA node.
    RemoteDram,
}

impl Served {
    /// All, the nearest first.
    pub const ALL: [Self; 8] = [
        Self::L1,
        Self::L2,
        Self::Llc,
        Self::Peer,
        Self::OtherGroup,
        Self::OtherSocket,
        Self::LocalDram,
        Self::RemoteDram,
    ];

    /// The word that stands for this value in every output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::Llc => "llc",
            Self::Peer => "peer",
            Self::OtherGroup => "other-group",
            Self::OtherSocket => "other-socket",
            Self::LocalDram => "local-dram",
            Self::RemoteDram => "remote-dram",
        }
    }
}

/// A level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The private first level.
    L1,
    /// The private second level. It is asked where the first misses.
    L2,
    /// A group of cores: its last-level cache, and the private caches above it for what the
    /// last-level cache does not have. It is asked where the private levels miss; it misses where
    /// no cache of the group has the line.
    Llc,
}

impl Level {
    /// All, the nearest first.
    pub const ALL: [Self; 3] = [Self::L1, Self::L2, Self::Llc];
}

/// Why an access misses. The first that holds, in this order: the cache has never had the line
/// ([`Compulsory`](Self::Compulsory)); it lost the line to another's store
/// ([`TrueSharing`](Self::TrueSharing), [`FalseSharing`](Self::FalseSharing)); it evicted the line
/// ([`Conflict`](Self::Conflict), [`Capacity`](Self::Capacity)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The cache never had the line.
    Compulsory,
    /// A fully-associative LRU cache of the same capacity would have evicted the line too (Hill
    /// and Smith, "Evaluating associativity in CPU caches", 1989).
    Capacity,
    /// Such a cache, asked the same, would still have it. Includes what non-LRU replacement and
    /// the inclusion of an outer level cost.
    Conflict,
    /// The line was invalidated, and the core goes on to touch a byte that others wrote since.
    TrueSharing,
    /// The line was invalidated, and the core touches no byte that others wrote since.
    FalseSharing,
}

impl Class {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::Compulsory,
        Self::Capacity,
        Self::Conflict,
        Self::TrueSharing,
        Self::FalseSharing,
    ];

    /// The word that stands for this value in every output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Compulsory => "compulsory",
            Self::Capacity => "capacity",
            Self::Conflict => "conflict",
            Self::TrueSharing => "true-sharing",
            Self::FalseSharing => "false-sharing",
        }
    }
}

/// What a level said to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A nearer level had the line, or there is no such level.
    NotAsked,
    /// It has the line.
    Hit,
    /// It does not. Sharing is told true from false by the bytes of this access alone; see
    /// [`Counts::overlapping`](super::Counts::overlapping).
    Miss(Class),
}

/// Counts of a thread, of a site, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub(super) served: [[u64; 8]; 3],
    pub(super) classes: [[u64; 5]; 3],
    pub(super) overlapping: [u64; 3],
    pub(super) llc_hits: u64,
    pub(super) upgrades: u64,
}

impl Counts {
    /// Accesses; one that reaches into the next line counts as [`Config::spanning`] says.
    ///
    /// [`Config::spanning`]: super::Config::spanning
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.served.iter().flatten().sum()
    }

    /// Accesses of one kind.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> u64 {
        self.served[kind as usize].iter().sum()
    }

    /// Accesses served from there.
    #[must_use]
    pub fn served(&self, by: Served) -> u64 {
        self.served.iter().map(|of_kind| of_kind[by as usize]).sum()
    }

    /// Accesses of one kind served from there.
    #[must_use]
    pub fn served_of_kind(&self, kind: Kind, by: Served) -> u64 {
        self.served[kind as usize][by as usize]
    }

    /// Hits of a level. Zero where the machine has no such level.
    #[must_use]
    pub fn hits(&self, level: Level) -> u64 {
        match level {
            Level::L1 => self.served(Served::L1),
            Level::L2 => self.served(Served::L2),
            Level::Llc => self.llc_hits,
        }
    }

    /// Misses of a level. Zero where the machine has no such level.
    #[must_use]
    pub fn misses(&self, level: Level) -> u64 {
        self.classes[level as usize].iter().sum()
    }

    /// Misses of a level and class; sharing is told true from false by what the core touches
    /// until it loses the line again.
    ///
    /// This is the definition of Dubois, Skeppstedt, Ricciulli, Ramamurthy and Stenström ("The
    /// detection and elimination of useless misses in multiprocessors", 1993) with the bytes that
    /// others wrote between losing the line and the miss: a miss is necessary if the core uses in
    /// this residency something that it could not have known. It is the default because the
    /// access that misses is often not the one that needs the news: a consumer reads the header
    /// of a message before its body. A residency lasts as long as any private cache of the core
    /// (for [`Level::Llc`]: any cache of the group) has the line. Residencies that the stream's
    /// end cuts are judged by what was touched until then.
    #[must_use]
    pub fn class(&self, level: Level, class: Class) -> u64 {
        self.classes[level as usize][class as usize]
    }

    /// Sharing misses whose *own* bytes overlap those that others wrote since the line was lost:
    /// true sharing by the immediate definition. The other sharing misses are false by it.
    #[must_use]
    pub fn overlapping(&self, level: Level) -> u64 {
        self.overlapping[level as usize]
    }

    /// Stores to a line that the core had without the right to store: others may have it.
    #[must_use]
    pub fn upgrades(&self) -> u64 {
        self.upgrades
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        let add = |into: &mut [u64], from: &[u64]| {
            for (into, from) in into.iter_mut().zip(from) {
                *into += from;
            }
        };
        add(self.served.as_flattened_mut(), other.served.as_flattened());
        add(
            self.classes.as_flattened_mut(),
            other.classes.as_flattened(),
        );
        add(&mut self.overlapping, &other.overlapping);
        self.llc_hits += other.llc_hits;
        self.upgrades += other.upgrades;
    }
}

/// Counts of the sets with one index, summed over the caches of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounts {
    /// Accesses that hit.
    pub hits: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Lines that had to leave for another.
    pub evictions: u64,
    /// Different lines that were ever here; a line counts once for each cache that had it.
    pub lines: u64,
}

impl SetCounts {
    /// Hits and misses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.hits + self.misses
    }

    /// Counts an answer of the set's cache.
    #[inline]
    pub(super) fn add(&mut self, answer: Answer) {
        match answer {
            Answer::NotAsked => {}
            Answer::Hit => self.hits += 1,
            Answer::Miss(class) => {
                self.misses += 1;
                self.lines += u64::from(class == Class::Compulsory);
            }
        }
    }
}

/// Lines that moved from one core's private cache to another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Of bytes that the core that had the line touched last or stored to ([`Transfer`](super::Transfer)).
    pub true_sharing: u64,
    /// Of other bytes of the line.
    pub false_sharing: u64,
}

impl Transfers {
    /// Both.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.true_sharing + self.false_sharing
    }

    #[inline]
    pub(super) fn add(&mut self, overlap: bool) {
        self.true_sharing += u64::from(overlap);
        self.false_sharing += u64::from(!overlap);
    }
}

impl AddAssign for Transfers {
    fn add_assign(&mut self, other: Self) {
        self.true_sharing += other.true_sharing;
        self.false_sharing += other.false_sharing;
    }
}

/// Transfers from each to each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    side: usize,
    dense: Vec<Transfers>,
    sparse: HashMap<(u16, u16), Transfers>,
}

impl Matrix {
    /// Above this index the cells are kept in a hash table.
    const MOST_DENSE: usize = 1024;

    /// Transfers from one to another.
    #[must_use]
    pub fn get(&self, from: u16, to: u16) -> Transfers {
        let (row, column) = (usize::from(from), usize::from(to));
        if row < self.side && column < self.side {
            self.dense[row * self.side + column]
        } else {
            self.sparse.get(&(from, to)).copied().unwrap_or_default()
        }
    }

    /// Transfers between two, in either direction: symmetric.
    #[must_use]
    pub fn between(&self, a: u16, b: u16) -> Transfers {
        let mut both = self.get(a, b);
        if a != b {
            both += self.get(b, a);
        }
        both
    }

    /// All cells that are not zero: from, to, transfers; by row, then column.
    #[must_use]
    pub fn cells(&self) -> Vec<(u16, u16, Transfers)> {
        let dense = self
            .dense
            .iter()
            .enumerate()
            .map(|(at, &cell)| ((at / self.side) as u16, (at % self.side) as u16, cell));
        let sparse = self
            .sparse
            .iter()
            .map(|(&(from, to), &cell)| (from, to, cell));
        let mut cells: Vec<_> = dense
            .chain(sparse)
            .filter(|(_, _, cell)| cell.total() > 0)
            .collect();
        cells.sort_unstable_by_key(|&(from, to, _)| (from, to));
        cells
    }

    /// The sum of all cells.
    #[must_use]
    pub fn total(&self) -> Transfers {
        let mut total = Transfers::default();
        for (_, _, cell) in self.cells() {
            total += cell;
        }
        total
    }

    /// Makes room for indices below `side`.
    pub(super) fn grow(&mut self, side: usize) {
        let side = side.min(Self::MOST_DENSE);
        if side <= self.side {
            return;
        }
        let side = side.next_power_of_two().min(Self::MOST_DENSE);
        let mut dense = vec![Transfers::default(); side * side];
        for row in 0..self.side {
            let old = &self.dense[row * self.side..(row + 1) * self.side];
            dense[row * side..row * side + self.side].copy_from_slice(old);
        }
        self.side = side;
        self.dense = dense;
    }

    #[inline]
    pub(super) fn add(&mut self, from: u16, to: u16, overlap: bool) {
        let (row, column) = (usize::from(from), usize::from(to));
        if row < self.side && column < self.side {
            self.dense[row * self.side + column].add(overlap);
        } else {
            self.sparse.entry((from, to)).or_default().add(overlap);
        }
    }
}

/// What caches had to say to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coherence {
    /// Accesses that another core's or group's cache served.
    pub supplied: u64,
    /// Stores to a line that the core had without the right to store.
    pub upgrades: u64,
    /// Copies that a store took out of private caches and of other groups' last levels.
    pub invalidations: u64,
}

impl Coherence {
    /// Requests that other caches had to answer: supplied accesses and upgrades.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.supplied + self.upgrades
    }
}

/// Dirty lines on their way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBacks {
    /// From a first to a second level.
    pub l1_to_l2: u64,
    /// From a core's private caches to its group's last level.
    pub private_to_llc: u64,
    /// To memory, from anywhere.
    pub to_memory: u64,
}

/// Transfers between two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitePair {
    /// The site of the access that the line came from.
    pub from: u32,
    /// The site of the access that fetched it.
    pub to: u32,
    /// How often.
    pub transfers: Transfers,
}

/// The bytes of a line that a thread touched; bit `i` stands for byte `i` (for bytes `2i` and
/// `2i + 1` of a line of 256).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMasks {
    /// Which thread.
    pub thread: u16,
    /// What it read.
    pub read: u128,
    /// What it wrote.
    pub written: u128,
}

/// A line that moved between cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedLine {
    /// Address of its first byte.
    pub address: u64,
    /// How often it moved.
    pub transfers: Transfers,
    /// Between which sites, the busiest first.
    pub pairs: Vec<SitePair>,
    /// Transfers of further pairs, for which there was no room.
    pub other_pairs: Transfers,
    /// What each thread touched, from the residencies on that its first transfer found.
    pub threads: Vec<ByteMasks>,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Everything.
    pub total: Counts,
    /// By thread.
    pub threads: Vec<Counts>,
    /// By site.
    pub sites: Vec<Counts>,
    /// The sites for which there was no room ([`Config::counted_sites`]).
    ///
    /// [`Config::counted_sites`]: super::Config::counted_sites
    pub other_sites: Counts,
    /// By set, for each [`Level`].
    pub sets: [Vec<SetCounts>; 3],
    /// Transfers from core to core.
    pub core_transfers: Matrix,
    /// Transfers from thread to thread.
    pub thread_transfers: Matrix,
    /// Coherence inside a socket.
    pub intra_socket: Coherence,
    /// Coherence between sockets.
    pub inter_socket: Coherence,
    /// Copies that left because an inclusive outer level evicted the line.
    pub back_invalidations: u64,
    /// Dirty lines on their way out.
    pub write_backs: WriteBacks,
    /// Lines that moved between cores, those that moved most first.
    pub lines: Vec<FollowedLine>,
    /// Further lines that moved, for which there was no room ([`Config::followed_lines`]).
    ///
    /// [`Config::followed_lines`]: super::Config::followed_lines
    pub other_lines: u64,
    /// Their transfers.
    pub other_line_transfers: Transfers,
}
