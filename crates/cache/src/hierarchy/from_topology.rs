//! A machine to simulate from a machine's description.

use linewise_topology::{Cache, CacheKind, CpuSet, Topology};

use super::config::{Assumption, CacheShape, Config, ConfigError, Core, Group, Inclusion};

const L1: (u64, u32) = (32 << 10, 8);
const L2: (u64, u32) = (512 << 10, 8);
const LLC_OF_A_CORE: (u64, u32) = (2 << 20, 16);

impl Config {
    /// The machine that `topology` describes: for each core its first- and second-level cache, for
    /// each group of cores the cache of the highest level; threads one to a core in the order of
    /// the CPU numbers, hyperthreads last.
    ///
    /// What the description hides is filled in and listed in [`Config::assumptions`]:
    ///
    /// | missing | assumed |
    /// |---|---|
    /// | line size | 64 bytes |
    /// | L1 | 32 KiB, 8 ways |
    /// | L2, and every other level too | 512 KiB, 8 ways |
    /// | a level that cores share | 2 MiB for each core of a socket, 16 ways |
    /// | ways | those of the table above, or full associativity where they do not divide the size |
    /// | cores, sockets, nodes | a core for each CPU, one socket, one node |
    /// | inclusion | non-inclusive, since the kernel never tells it |
    ///
    /// A second level that several cores share below another shared level is modelled as private
    /// with an equal share of its capacity, and listed too. So is the replacement: LRU.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the machine has no CPU or is too large.
    pub fn from_topology(topology: &Topology) -> Result<Self, ConfigError> {
        Builder {
            topology,
            line_bytes: topology.line_size().unwrap_or(64),
            assumptions: Vec::new(),
        }
        .build()
    }
}

struct Builder<'a> {
    topology: &'a Topology,
    line_bytes: u32,
    assumptions: Vec<Assumption>,
}

/// Whether a cache holds data.
fn holds_data(cache: &&Cache) -> bool {
    cache.kind != CacheKind::Instruction
}

/// How many of `cores` a cache is shared by.
fn cores_below(cache: &Cache, cores: &[CpuSet]) -> u64 {
    let below = |core: &&CpuSet| core.iter().any(|cpu| cache.cpus.contains(cpu));
    cores.iter().filter(below).count() as u64
}

/// The logical CPUs with their cores, and the core of each thread: the second CPU of a core comes after the first of all.
fn threads_of(cores: &[CpuSet]) -> (Vec<(u32, u32)>, Vec<u32>) {
    let mut cpus: Vec<(u32, u32)> = cores
        .iter()
        .enumerate()
        .flat_map(|(core, set)| set.iter().map(move |cpu| (cpu, core as u32)))
        .collect();
    cpus.sort_unstable();
    let mut seen = vec![false; cores.len()];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for &(_, core) in &cpus {
        match std::mem::replace(&mut seen[core as usize], true) {
            true => second.push(core),
            false => first.push(core),
        }
    }
    first.append(&mut second);
    (cpus, first)
}

impl<'a> Builder<'a> {
    fn build(mut self) -> Result<Config, ConfigError> {
        let topology = self.topology;
        if topology.line_size().is_none() {
            self.assume("line", "lines of 64 bytes".into());
        }
        let cores = self.cores();
        if cores.is_empty() || cores.len() > Config::MOST_CORES {
            return Err(ConfigError::Cores(cores.len()));
        }
        let last_level = self.last_level(&cores);
        let sets = match last_level {
            Some(level) => self.sets_of(level),
            None => self.sockets(),
        };
        let groups: Vec<Group> = sets
            .iter()
            .map(|set| self.group(set, &cores, last_level))
            .collect();
        let described: Vec<Core> = cores
            .iter()
            .map(|set| self.core(set, &cores, &sets, last_level))
            .collect();
        if topology.nodes.is_empty() {
            self.assume("node", "one NUMA node".into());
        }
        self.assume("inclusion", "non-inclusive caches".into());
        self.assume("replacement", "least recently used".into());
        let (cpus, threads) = threads_of(&cores);
        let config = Config {
            line_bytes: self.line_bytes,
            cores: described,
            groups,
            threads,
            cpus,
            assumptions: self.assumptions,
            ..Config::uniform(1, 1, CacheShape::new(L1.0, L1.1))
        };
        config.check()?;
        Ok(config)
    }

    /// The caches that hold data.
    fn caches(&self) -> impl Iterator<Item = &'a Cache> + use<'a> {
        self.topology.caches.iter().filter(holds_data)
    }

    /// The level of the last cache that is told.
    fn last_level(&self, cores: &[CpuSet]) -> Option<u32> {
        let highest = self.caches().map(|cache| cache.level).max();
        // A private level below the third is not the end of a machine with several cores.
        highest.filter(|&level| {
            let mut of_level = self.caches().filter(|cache| cache.level == level);
            level > 2 || of_level.any(|cache| cores_below(cache, cores) > 1)
        })
    }

    /// The CPUs below each cache of a level.
    fn sets_of(&self, level: u32) -> Vec<CpuSet> {
        let of_level = self.caches().filter(|cache| cache.level == level);
        let mut sets: Vec<CpuSet> = of_level.map(|cache| cache.cpus.clone()).collect();
        sets.sort();
        sets.dedup();
        sets
    }

    /// The cores of `set`, with the last level above them.
    fn group(&mut self, set: &CpuSet, cores: &[CpuSet], last_level: Option<u32>) -> Group {
        let topology = self.topology;
        let is_member = |core: &&CpuSet| core.first().is_some_and(|cpu| set.contains(cpu));
        let members = cores.iter().filter(is_member).count() as u64;
        let first = set.first().and_then(|cpu| topology.cpu(cpu));
        let cache = last_level.and_then(|level| {
            let mut of_level = self.caches().filter(|cache| cache.level == level);
            of_level.find(|cache| cache.cpus == *set)
        });
        let default = (LLC_OF_A_CORE.0 * members.max(1), LLC_OF_A_CORE.1);
        Group {
            socket: first.and_then(|cpu| cpu.socket).unwrap_or(0),
            node: first
                .and_then(|cpu| cpu.node)
                .and_then(|node| topology.nodes.iter().position(|known| known.id == node))
                .and_then(|index| u8::try_from(index).ok())
                .unwrap_or(0),
            llc: Some(self.shape("llc", cache, 1, default)),
        }
    }

    /// One of `cores`, with its private caches and the group that it is in.
    fn core(
        &mut self,
        core: &CpuSet,
        cores: &[CpuSet],
        sets: &[CpuSet],
        last_level: Option<u32>,
    ) -> Core {
        let cpu = core.first();
        let find = |builder: &Self, level: u32| {
            let mut of_level = builder.caches().filter(|cache| cache.level == level);
            of_level.find(|cache| cache.cpus.contains(cpu.unwrap_or(0)))
        };
        let first = find(self, 1);
        let sharers = first.map_or(1, |cache| cores_below(cache, cores));
        let l1 = self.shape("l1", first, sharers, L1);
        let l2 = match last_level {
            Some(level) if level <= 2 => None,
            _ => match find(self, 2) {
                Some(cache) => Some(self.shape("l2", Some(cache), cores_below(cache, cores), L2)),
                // A machine that shows its last level shows the second if there is one.
                None if last_level.is_some() => None,
                None => Some(self.shape("l2", None, 1, L2)),
            },
        };
        let group = cpu.and_then(|cpu| sets.iter().position(|set| set.contains(cpu)));
        let group = group.unwrap_or_else(|| {
            let joined = "cores below no last-level cache join the first group";
            self.assume("llc", joined.into());
            0
        });
        Core {
            group: group as u32,
            l1,
            l2,
        }
    }

    /// The CPUs of each core; a CPU whose core is not known is one.
    fn cores(&mut self) -> Vec<CpuSet> {
        let mut cores = self.topology.cores();
        let lonely = self.topology.cpus.iter().filter(|cpu| cpu.core.is_none());
        let before = cores.len();
        cores.extend(lonely.map(|cpu| CpuSet::from_iter([cpu.id])));
        if cores.len() > before {
            self.assume("core", "a core for each CPU whose core is not told".into());
        }
        cores
    }

    /// The CPUs of each socket; CPUs whose socket is not known are in the first.
    fn sockets(&mut self) -> Vec<CpuSet> {
        let mut sockets = self.topology.sockets();
        let lonely = self.topology.cpus.iter().filter(|cpu| cpu.socket.is_none());
        let lonely: Vec<u32> = lonely.map(|cpu| cpu.id).collect();
        if !lonely.is_empty() {
            self.assume(
                "socket",
                "CPUs whose socket is not told are in the first".into(),
            );
            if sockets.is_empty() {
                sockets.push(CpuSet::new());
            }
            for cpu in lonely {
                sockets[0].insert(cpu);
            }
        }
        sockets
    }

    /// The shape of a cache that `sharers` cores divide among them.
    fn shape(
        &mut self,
        what: &'static str,
        cache: Option<&Cache>,
        sharers: u64,
        (size, ways): (u64, u32),
    ) -> CacheShape {
        let line = u64::from(self.line_bytes);
        let told = cache
            .and_then(|cache| cache.size_bytes)
            .filter(|&size| size >= line);
        let mut size_bytes = told.unwrap_or(size);
        if told.is_none() {
            self.assume(what, format!("{} KiB", size >> 10));
        }
        if sharers > 1 {
            size_bytes /= sharers;
            self.assume(
                what,
                format!("a cache that {sharers} cores share is modelled as {sharers} private ones of {} KiB", size_bytes >> 10),
            );
        }
        size_bytes -= size_bytes % line;
        let told = cache.and_then(|cache| cache.ways).filter(|&ways| ways > 0);
        let ways = told.unwrap_or_else(|| {
            self.assume(what, format!("{ways} ways"));
            ways
        });
        let shape =
            CacheShape::new(size_bytes.max(line), ways).with_inclusion(Inclusion::NonInclusive);
        if (shape.size_bytes / line).is_multiple_of(u64::from(ways)) {
            shape
        } else {
            self.assume(
                what,
                format!("full associativity, since {ways} ways do not divide it"),
            );
            CacheShape::fully_associative(shape.size_bytes)
        }
    }

    /// Notes an assumption once.
    fn assume(&mut self, what: &'static str, assumed: String) {
        let assumption = Assumption { what, assumed };
        if !self.assumptions.contains(&assumption) {
            self.assumptions.push(assumption);
        }
    }
}
