//! The machine as the placer looks at it: CPUs by dense indices, and the levels at which distance costs.

use linewise_topology::{CpuSet, Topology};

/// How far a line came that another core's cache had, as an index into [`Activity::transfers`](crate::Activity::transfers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Crossing {
    /// From a core below the same last-level cache.
    Core = 0,
    /// From below another last-level cache of the same socket.
    Llc = 1,
    /// From another socket.
    Socket = 2,
}

/// What separates the domains of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelKind {
    /// Sockets: between them lines take longest.
    Socket,
    /// Last-level caches.
    Llc,
}

/// A partition of the CPUs into domains between which lines take longer than within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// What its domains are.
    pub kind: LevelKind,
    /// The domain of each CPU.
    pub of_cpu: Vec<u32>,
    /// The CPUs of each domain.
    pub domains: Vec<Vec<u32>>,
}

impl Level {
    /// The transfers that cross this level, and no outer one.
    #[must_use]
    pub fn crosses(&self, transfers: &[f32; 3]) -> f32 {
        match self.kind {
            LevelKind::Socket => transfers[Crossing::Socket as usize],
            LevelKind::Llc => transfers[Crossing::Llc as usize],
        }
    }

    /// Transfers within a domain of this level.
    #[must_use]
    pub fn within(&self, transfers: &[f32; 3]) -> f32 {
        let near = transfers[Crossing::Core as usize];
        match self.kind {
            LevelKind::Socket => near + transfers[Crossing::Llc as usize],
            LevelKind::Llc => near,
        }
    }
}

/// A machine's CPUs and levels. CPUs are named by their index here; [`Machine::number`] has the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    numbers: Vec<u32>,
    core: Vec<u32>,
    levels: Vec<Level>,
    memory: Level,
    cores_of_memory: Vec<u32>,
}

impl Machine {
    /// From what the kernel tells. What it does not tell makes no level: where nothing is known of distances, nothing
    /// is to be gained by moving.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let mut numbers: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let sets_of = |kind, sets: Vec<CpuSet>| partition(kind, &numbers, &sets);
        let sockets = sets_of(LevelKind::Socket, topology.sockets());
        let llcs = sets_of(LevelKind::Llc, topology.llc_groups());
        let nodes = topology.nodes.iter().map(|node| node.cpus.clone());
        let nodes = nodes.filter(|cpus| !cpus.is_empty()).collect();
        let memory = sets_of(LevelKind::Socket, nodes)
            .or_else(|| sockets.clone())
            .unwrap_or_else(|| whole(numbers.len()));
        let same = |a: &Level, b: &Level| a.of_cpu == b.of_cpu;
        let llcs = llcs.filter(|llcs| sockets.as_ref().is_none_or(|sockets| !same(llcs, sockets)));
        let levels: Vec<Level> = sockets.into_iter().chain(llcs).collect();
        let levels = levels
            .into_iter()
            .filter(|level| level.domains.len() > 1)
            .collect();
        let cores = partition(LevelKind::Llc, &numbers, &topology.cores());
        let core = cores.map_or_else(|| (0..numbers.len() as u32).collect(), |cores| cores.of_cpu);
        let cores_of_memory = memory
            .domains
            .iter()
            .map(|cpus| count_cores(cpus, &core))
            .collect();
        Self {
            numbers,
            core,
            levels,
            memory,
            cores_of_memory,
        }
    }

    /// How many CPUs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The kernel's number of the CPU with this index.
    ///
    /// # Panics
    /// There is no such CPU.
    #[must_use]
    pub fn number(&self, cpu: u32) -> u32 {
        self.numbers[cpu as usize]
    }

    /// The index of the CPU with this number.
    #[must_use]
    pub fn index_of(&self, number: u32) -> Option<u32> {
        let found = self.numbers.binary_search(&number).ok()?;
        u32::try_from(found).ok()
    }

    /// The levels with more than one domain, the outermost first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The domains that have memory of their own: nodes, or sockets where no nodes are known.
    #[must_use]
    pub fn memory(&self) -> &Level {
        &self.memory
    }

    /// The level whose domains are the nearest that are told apart: within one no place is nearer than another.
    #[must_use]
    pub fn innermost(&self) -> &Level {
        self.levels.last().unwrap_or(&self.memory)
    }

    /// The core of a CPU.
    pub(crate) fn core(&self, cpu: u32) -> u32 {
        self.core[cpu as usize]
    }

    /// The cores of a memory domain.
    pub(crate) fn cores_of_memory(&self, domain: u32) -> u32 {
        self.cores_of_memory[domain as usize]
    }

    /// Cores with numbers from 0 to below this.
    pub(crate) fn core_bound(&self) -> usize {
        self.core.iter().max().map_or(0, |&core| core as usize + 1)
    }
}

/// One domain with all CPUs.
fn whole(count: usize) -> Level {
    Level {
        kind: LevelKind::Socket,
        of_cpu: vec![0; count],
        domains: vec![(0..count as u32).collect()],
    }
}

/// The level whose domains are `sets`; `None` where they are no partition of the CPUs.
fn partition(kind: LevelKind, numbers: &[u32], sets: &[CpuSet]) -> Option<Level> {
    let mut of_cpu = vec![u32::MAX; numbers.len()];
    let mut domains = Vec::with_capacity(sets.len());
    for set in sets {
        let indices = set
            .iter()
            .filter_map(|cpu| numbers.binary_search(&cpu).ok());
        let cpus: Vec<u32> = indices.map(|cpu| cpu as u32).collect();
        if cpus.is_empty() {
            continue;
        }
        for &cpu in &cpus {
            let domain = &mut of_cpu[cpu as usize];
            if *domain != u32::MAX {
                return None;
            }
            *domain = domains.len() as u32;
        }
        domains.push(cpus);
    }
    let complete = !domains.is_empty() && !of_cpu.contains(&u32::MAX);
    complete.then_some(Level {
        kind,
        of_cpu,
        domains,
    })
}

fn count_cores(cpus: &[u32], core: &[u32]) -> u32 {
    let mut cores: Vec<u32> = cpus.iter().map(|&cpu| core[cpu as usize]).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len() as u32
}

#[cfg(test)]
mod tests {
    use linewise_topology::synthetic;

    use super::*;

    #[test]
    fn two_sockets_with_one_cache_each_are_one_level() {
        let machine = Machine::new(&synthetic::two_sockets_of_ten_with_hyperthreads());
        assert_eq!(machine.levels().len(), 1);
        assert_eq!(machine.levels()[0].domains[1].len(), 20);
        assert_eq!(machine.cores_of_memory(0), 10);
    }

    #[test]
    fn the_caches_of_one_socket_are_a_level() {
        let machine = Machine::new(&synthetic::epyc_of_eight_ccxs());
        let kinds: Vec<LevelKind> = machine.levels().iter().map(|level| level.kind).collect();
        assert_eq!(kinds, [LevelKind::Llc]);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_level() {
        let mut topology = synthetic::two_sockets_of_ten();
        topology.caches.clear();
        topology.nodes.clear();
        for cpu in &mut topology.cpus {
            (cpu.socket, cpu.core, cpu.node) = (None, None, None);
        }
        let machine = Machine::new(&topology);
        assert!(machine.levels().is_empty());
        assert_eq!(machine.memory().domains.len(), 1);
    }

    #[test]
    fn numbers_may_have_holes() {
        let mut topology = synthetic::two_sockets_of_ten();
        topology.cpus.retain(|cpu| cpu.id % 2 == 0);
        let machine = Machine::new(&topology);
        assert_eq!(machine.len(), 10);
        assert_eq!(machine.index_of(4), Some(2));
        assert_eq!(machine.index_of(5), None);
        assert_eq!(machine.levels()[0].domains[0].len(), 5);
    }
}
