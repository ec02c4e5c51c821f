//! Coherent cache hierarchies: who serves each access, why it misses, which lines move between
//! cores.
//!
//! ```text
//!  threads     placed on cores, hyperthreads together; may move
//!  core        L1 ─ L2 (private, optional)          MESI or MOESI between all cores,
//!  group       LLC (optional), snoop filter         with an exact directory
//!  socket      one or more groups
//!  memory      NUMA nodes; pages of 64 lines at home where first touched
//! ```
//!
//! A [`Config`] comes from a machine's [`Topology`](linewise_topology::Topology), from
//! [`Config::uniform`], or, for one cache that counts like valgrind's, from
//! [`Config::cachegrind`]. [`Hierarchy::run`] takes accesses in one global order;
//! [`Hierarchy::finish`] gives the [`Report`].
//!
//! ```
//! use linewise_cache::hierarchy::{Class, Config, Hierarchy, Level};
//! use linewise_cache::{Access, Kind};
//! use linewise_topology::synthetic;
//!
//! let mut config = Config::from_topology(&synthetic::two_sockets_of_ten())?;
//! config.place(&[0, 10])?; // thread 0 on CPU 0, thread 1 on CPU 10: different sockets
//! let mut hierarchy = Hierarchy::new(&config)?;
//!
//! // Two counters in one line, incremented in turns.
//! let accesses: Vec<Access> = (0..1000)
//!     .map(|i| Access {
//!         address: 0x1000 + i % 2 * 8,
//!         size: 8,
//!         kind: Kind::Update,
//!         thread: (i % 2) as u16,
//!         site: (i % 2) as u32,
//!     })
//!     .collect();
//! hierarchy.run(&accesses);
//!
//! let report = hierarchy.finish();
//! assert_eq!(report.core_transfers.total().false_sharing, 999);
//! assert_eq!(report.total.class(Level::L1, Class::FalseSharing), 998);
//! assert_eq!(report.inter_socket.supplied, 999);
//! # Ok::<(), linewise_cache::hierarchy::ConfigError>(())
//! ```
//!
//! # What is counted how
//!
//! - **Accesses.** One for each line that an access touches, unless [`Spanning::OneReference`].
//! - **Levels.** [`Level::L2`] is asked where L1 misses, [`Level::Llc`] where the private levels
//!   miss. The last level answers for its group: it hits if any cache of the group has the line;
//!   [`Served`] tells which. So its misses are what leaves the group.
//! - **Misses.** [`Class`] has the order of causes. Conflict and capacity are told apart by a
//!   fully-associative LRU cache of the same capacity beside every cache, which gets the same
//!   requests and the same victims from nearer levels, and no invalidations: what an invalidation
//!   or the inclusion of an outer level took is not a question of capacity. True and false sharing
//!   follow Dubois and others by default; see [`Counts::class`] and [`Counts::overlapping`].
//! - **Transfers.** Served by another core's private cache; true or false by what the core does
//!   until it loses the line, see [`Transfer`]. An [upgrade](Counts::upgrades) moves nothing and is none.
//! - **Coherence events.** [`Report::intra_socket`] and [`Report::inter_socket`]; an upgrade
//!   belongs to the farthest copy that it invalidates.
//! - **Sets.** [`Report::sets`] has for each set its accesses, misses, evictions, and how many
//!   different lines it ever held, which shows sets that too many lines want.
//! - **Working set.** [`Hierarchy::resident`] tells the lines that a cache holds at the moment.
//!
//! # Who supplies a line
//!
//! The owner (exclusive, modified, owned), wherever it is; else the group's last level; else a
//! sharer of the group; else the last level that is newer than memory; else, by
//! [`SharedSupply`], the nearest cache or memory. A line that a reader gets while no other cache
//! outside its group's last level has it is exclusive.
//!
//! # Limits
//!
//! - Sets are indexed by line number; real last levels hash the address.
//! - No prefetching, no time: accesses have the order of the stream, and cores do not hold a line
//!   for a while as real ones do. Transfers of a contended line are therefore an upper bound.
//! - The directory is exact. Real ones forget silent evictions and have limits of their own.
//! - Instructions are not in the stream, so caches that hold both have more room here.
//! - At most [`Config::MOST_CORES`] cores and 64 groups, lines of 8 to 256 bytes, and fewer than
//!   2^32 different lines.
//!
//! # Cost
//!
//! Constant time for an access, whatever the sizes of the caches, but for sets above 64 ways in
//! the first level. Memory grows by 64 bytes for every line of a touched page of 64 lines, 64 for
//! each core and 32 for each group that touches the page. Nothing else is allocated once all
//! threads, sites, pages and moving lines have been seen. `examples/hierarchy_speed.rs` measures.
mod array;
mod coherence;
mod config;
mod contents;
mod counts;
mod engine;
mod follow;
mod from_topology;
mod l1;
mod lines;
mod mask;
mod outcome;
mod stays;
mod touch;
mod unbounded;
#[cfg(test)]
mod verify;
mod window;

pub use config::{
    Assumption, CacheShape, Config, ConfigError, Core, Group, Homes, Inclusion, Protocol,
    Replacement, SharedSupply, Spanning, Ways,
};
pub use counts::{
    Answer, ByteMasks, Class, Coherence, Counts, FollowedLine, Level, Matrix, Report, Served,
    SetCounts, SitePair, Transfers, WriteBacks,
};
pub use outcome::{Outcome, Party, Transfer};
pub use unbounded::Unbounded;

use crate::Access;
use engine::Engine;

/// A simulation in progress.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    engine: AnyEngine,
    cpus: Vec<(u32, u32)>,
}

/// The widths of byte masks.
#[derive(Clone, Debug)]
enum AnyEngine {
    Narrow(Box<Engine<u64>>),
    Wide(Box<Engine<u128>>),
}

impl Hierarchy {
    /// An empty machine.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the machine cannot be simulated.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            engine: if config.line_bytes <= 64 {
                AnyEngine::Narrow(Box::new(Engine::new(config)))
            } else {
                AnyEngine::Wide(Box::new(Engine::new(config)))
            },
            cpus: config.cpus.clone(),
        })
    }

    /// Simulates accesses in their order. May be called again and again: the batches are one
    /// stream.
    pub fn run(&mut self, accesses: &[Access]) {
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.run(accesses, |_, _| {}, |_| {}),
            AnyEngine::Wide(engine) => engine.run(accesses, |_, _| {}, |_| {}),
        }
    }

    /// The same, and tells `observe` for every line that an access touches the index of the
    /// access and what it did. With [`Spanning::OneReference`] once for each access. `moved` is told
    /// of each transfer when its kind is known; of the last ones by [`Self::finish_with`]. Accesses
    /// may come in any form that can be read as one.
    pub fn run_with<A: Copy + Into<Access>>(
        &mut self,
        accesses: &[A],
        observe: impl FnMut(usize, &Outcome),
        moved: impl FnMut(&Transfer),
    ) {
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.run(accesses, observe, moved),
            AnyEngine::Wide(engine) => engine.run(accesses, observe, moved),
        }
    }

    /// Moves a thread to a CPU, from its next access on.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Cpu`] when no core has this CPU.
    pub fn place(&mut self, thread: u16, cpu: u32) -> Result<(), ConfigError> {
        let of_cpu = |&&(number, _): &&(u32, u32)| number == cpu;
        let core = self
            .cpus
            .iter()
            .find(of_cpu)
            .ok_or(ConfigError::Cpu(cpu))?
            .1 as usize;
        match &mut self.engine {
            AnyEngine::Narrow(engine) => engine.place(thread, core),
            AnyEngine::Wide(engine) => engine.place(thread, core),
        }
        Ok(())
    }

    /// The lines that a level holds now, by address of their first byte, in no order: the working
    /// set. `core` is an index in [`Config::cores`]; the last level is that of its group.
    ///
    /// # Panics
    ///
    /// When there is no such core.
    #[must_use]
    pub fn resident(&self, core: usize, level: Level) -> Vec<u64> {
        match &self.engine {
            AnyEngine::Narrow(engine) => engine.resident(core, level),
            AnyEngine::Wide(engine) => engine.resident(core, level),
        }
    }

    /// The same, each line with the site of its last access, if that is known: of the core's own accesses in a
    /// private level, of one of its group's cores in the last.
    ///
    /// # Panics
    ///
    /// When there is no such core.
    #[must_use]
    pub fn contents(&self, core: usize, level: Level) -> Vec<(u64, Option<u32>)> {
        match &self.engine {
            AnyEngine::Narrow(engine) => engine.contents(core, level),
            AnyEngine::Wide(engine) => engine.contents(core, level),
        }
    }

    /// Ends the stream and hands over the counts. For counts in the middle of a stream, finish a
    /// clone.
    #[must_use]
    pub fn finish(self) -> Report {
        self.finish_with(|_| {})
    }

    /// The same, and tells of the transfers whose stays the end of the stream cuts.
    #[must_use]
    pub fn finish_with(self, moved: impl FnMut(&Transfer)) -> Report {
        match self.engine {
            AnyEngine::Narrow(engine) => engine.finish(moved),
            AnyEngine::Wide(engine) => engine.finish(moved),
        }
    }
}
