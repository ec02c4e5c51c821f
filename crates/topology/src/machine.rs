//! A machine: who shares what with whom.
//!
//! ```text
//! socket 0                        socket 1
//! └─ LLC 0          LLC 1 …       └─ …
//!    └─ core 0  core 1 …             the LLC is the cache of the highest level;
//!       └─ cpu 0, cpu 20             a core's CPUs are its hyperthreads
//! ```
//!
//! Sockets, dies and nodes keep the kernel's numbers. Cores are numbered anew, densely over the
//! whole machine, because the kernel's `core_id` repeats in every socket.

use crate::CpuSet;

/// The shape of a machine. See the crate's documentation for where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Online CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// Every cache, by level, then kind, then first CPU. Empty when the machine hides them.
    pub caches: Vec<Cache>,
    /// NUMA nodes, by number. Empty when the kernel has no NUMA support.
    pub nodes: Vec<Node>,
    /// What the machine does not tell, and why.
    pub holes: Vec<Hole>,
}

/// A logical CPU: what the kernel schedules on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// The core, numbered densely over the whole machine; hyperthreads share one.
    pub core: Option<u32>,
    /// The socket, as the kernel numbers packages.
    pub socket: Option<u32>,
    /// The NUMA node.
    pub node: Option<u32>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

impl CacheKind {
    /// The word that stands for this kind in every output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        }
    }
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is the nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Capacity in bytes.
    pub size_bytes: Option<u64>,
    /// Bytes of a line.
    pub line_bytes: Option<u32>,
    /// Ways of associativity.
    pub ways: Option<u32>,
    /// Sets.
    pub sets: Option<u32>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number.
    pub id: u32,
    /// Its CPUs; a node may have memory only.
    pub cpus: CpuSet,
    /// Distance to each node in the order of [`Topology::nodes`], in the unit of the ACPI SLIT
    /// (10 is local). Empty when unknown.
    pub distances: Vec<u32>,
}

/// Something that the machine does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// What is missing: `caches`, `cores`, `nodes`, ...
    pub what: String,
    /// Why, in a sentence.
    pub reason: String,
}

/// How near two CPUs are, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proximity {
    /// The same CPU.
    SameCpu,
    /// Hyperthreads of one core: they share the private caches, so no line moves.
    SameCore,
    /// Different cores below one last-level cache.
    SameLlc,
    /// One socket, different last-level caches.
    SameSocket,
    /// Different sockets.
    OtherSocket,
}

impl Proximity {
    /// The words that stand for this value in every output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SameCpu => "same-cpu",
            Self::SameCore => "same-core",
            Self::SameLlc => "same-llc",
            Self::SameSocket => "same-socket",
            Self::OtherSocket => "other-socket",
        }
    }
}

impl Topology {
    /// The CPU with this number, if it is online.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// All online CPUs.
    #[must_use]
    pub fn cpu_set(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The CPUs of each core, by core number. CPUs whose core is unknown are in none.
    #[must_use]
    pub fn cores(&self) -> Vec<CpuSet> {
        self.groups(|cpu| cpu.core)
    }

    /// The CPUs of each socket, by socket number. CPUs whose socket is unknown are in none.
    #[must_use]
    pub fn sockets(&self) -> Vec<CpuSet> {
        self.groups(|cpu| cpu.socket)
    }

    /// The CPUs below each last-level cache, by first CPU. Empty when the caches are unknown.
    ///
    /// A level-1 cache is nobody's last level: a machine that shows no more than that hides the
    /// rest.
    #[must_use]
    pub fn llc_groups(&self) -> Vec<CpuSet> {
        let data = |cache: &&Cache| cache.kind != CacheKind::Instruction;
        let last = self
            .caches
            .iter()
            .filter(data)
            .map(|cache| cache.level)
            .max();
        let Some(last) = last.filter(|&level| level > 1) else {
            return Vec::new();
        };
        let mut groups: Vec<CpuSet> = self
            .caches
            .iter()
            .filter(data)
            .filter(|cache| cache.level == last)
            .map(|cache| cache.cpus.clone())
            .collect();
        groups.sort();
        groups
    }

    /// Bytes of a line: what the data caches agree on, the largest where they do not. `None` when
    /// no cache tells.
    #[must_use]
    pub fn line_size(&self) -> Option<u32> {
        self.caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction)
            .filter_map(|cache| cache.line_bytes)
            .max()
    }

    /// How near two CPUs are; `None` when one is not online or the machine does not tell.
    #[must_use]
    pub fn proximity(&self, a: u32, b: u32) -> Option<Proximity> {
        let (cpu_a, cpu_b) = (self.cpu(a)?, self.cpu(b)?);
        if a == b {
            return Some(Proximity::SameCpu);
        }
        if let (Some(core_a), Some(core_b)) = (cpu_a.core, cpu_b.core)
            && core_a == core_b
        {
            return Some(Proximity::SameCore);
        }
        let shared = |group: &CpuSet| group.contains(a) && group.contains(b);
        if self.llc_groups().iter().any(shared) {
            return Some(Proximity::SameLlc);
        }
        match (cpu_a.socket, cpu_b.socket) {
            (Some(socket_a), Some(socket_b)) if socket_a != socket_b => {
                Some(Proximity::OtherSocket)
            }
            // One socket, but without caches nobody knows whether the last level is shared.
            (Some(_), Some(_)) if !self.llc_groups().is_empty() => Some(Proximity::SameSocket),
            _ => None,
        }
    }

    /// The distance between two NUMA nodes in the unit of the ACPI SLIT (10 is local); `None`
    /// when either is unknown.
    #[must_use]
    pub fn node_distance(&self, from: u32, to: u32) -> Option<u32> {
        let to = self.nodes.iter().position(|node| node.id == to)?;
        let from = self.nodes.iter().find(|node| node.id == from)?;
        from.distances.get(to).copied()
    }

    fn groups(&self, key: impl Fn(&Cpu) -> Option<u32>) -> Vec<CpuSet> {
        let mut groups = std::collections::BTreeMap::<u32, CpuSet>::new();
        for cpu in &self.cpus {
            if let Some(group) = key(cpu) {
                groups.entry(group).or_default().insert(cpu.id);
            }
        }
        groups.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn hyperthreads_are_nearer_than_cores_and_cores_than_sockets() {
        let machine = synthetic::two_sockets_of_ten_with_hyperthreads();
        assert_eq!(machine.proximity(3, 3), Some(Proximity::SameCpu));
        assert_eq!(machine.proximity(0, 20), Some(Proximity::SameCore));
        assert_eq!(machine.proximity(0, 9), Some(Proximity::SameLlc));
        assert_eq!(machine.proximity(0, 10), Some(Proximity::OtherSocket));
        assert!(Proximity::SameCore < Proximity::SameLlc);
    }

    #[test]
    fn two_ccxs_of_one_socket_share_the_socket_only() {
        let machine = synthetic::epyc_of_eight_ccxs();
        assert_eq!(machine.llc_groups().len(), 8);
        assert_eq!(machine.proximity(0, 7), Some(Proximity::SameLlc));
        assert_eq!(machine.proximity(0, 8), Some(Proximity::SameSocket));
    }

    #[test]
    fn a_machine_without_caches_says_nothing_about_proximity_in_a_socket() {
        let mut machine = synthetic::two_sockets_of_ten();
        machine.caches.clear();
        assert_eq!(machine.line_size(), None);
        assert!(machine.llc_groups().is_empty());
        assert_eq!(machine.proximity(0, 1), None);
        assert_eq!(machine.proximity(0, 10), Some(Proximity::OtherSocket));
    }

    #[test]
    fn a_cpu_that_is_not_online_is_near_nobody() {
        let machine = synthetic::virtual_machine_of_two();
        assert_eq!(machine.proximity(0, 7), None);
        assert_eq!(machine.cpu(7), None);
    }

    #[test]
    fn node_distances_follow_the_node_numbers_not_their_order() {
        let mut machine = synthetic::two_sockets_of_ten();
        machine.nodes[1].id = 4;
        assert_eq!(machine.node_distance(0, 4), Some(21));
        assert_eq!(machine.node_distance(4, 4), Some(10));
        assert_eq!(machine.node_distance(0, 1), None);
    }
}
