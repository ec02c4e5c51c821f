//! Invented machines for tests: same shape on every computer that runs them.
//!
//! CPUs are numbered as Linux does it on x86: first hyperthread of every core, socket by socket,
//! then the second hyperthread of every core.

use crate::{Cache, CacheKind, Cpu, CpuSet, Node, Topology};

/// A regular machine, from which [`Shape::build`] makes a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sockets; each is one NUMA node.
    pub sockets: u32,
    /// Last-level caches in a socket.
    pub llcs_per_socket: u32,
    /// Cores below a last-level cache.
    pub cores_per_llc: u32,
    /// Hyperthreads of a core.
    pub threads_per_core: u32,
    /// Capacity of a core's first-level data cache, bytes. The instruction cache has as much.
    pub l1_bytes: u64,
    /// Capacity of a core's second-level cache, bytes.
    pub l2_bytes: u64,
    /// Capacity of a last-level cache, bytes.
    pub l3_bytes: u64,
}

impl Shape {
    /// The machine of this shape, with 64-byte lines and nothing unknown.
    #[must_use]
    pub fn build(self) -> Topology {
        let cores_per_socket = self.llcs_per_socket * self.cores_per_llc;
        let cores = self.sockets * cores_per_socket;
        let cpus_of_cores = |range: std::ops::Range<u32>| -> CpuSet {
            (0..self.threads_per_core)
                .flat_map(|thread| range.clone().map(move |core| thread * cores + core))
                .collect()
        };

        let cpus = (0..cores * self.threads_per_core)
            .map(|id| {
                let core = id % cores;
                let socket = core / cores_per_socket;
                Cpu {
                    id,
                    core: Some(core),
                    socket: Some(socket),
                    node: Some(socket),
                }
            })
            .collect();

        let mut caches = Vec::new();
        for (level, kind, size_bytes, ways, width) in [
            (1, CacheKind::Data, self.l1_bytes, 8, 1),
            (1, CacheKind::Instruction, self.l1_bytes, 8, 1),
            (2, CacheKind::Unified, self.l2_bytes, 8, 1),
            (3, CacheKind::Unified, self.l3_bytes, 16, self.cores_per_llc),
        ] {
            for first in (0..cores).step_by(width.max(1) as usize) {
                caches.push(Cache {
                    level,
                    kind,
                    size_bytes: Some(size_bytes),
                    line_bytes: Some(64),
                    ways: Some(ways),
                    sets: u32::try_from(size_bytes / 64 / u64::from(ways)).ok(),
                    cpus: cpus_of_cores(first..first + width),
                });
            }
        }

        let nodes = (0..self.sockets)
            .map(|socket| Node {
                id: socket,
                cpus: cpus_of_cores(socket * cores_per_socket..(socket + 1) * cores_per_socket),
                distances: (0..self.sockets)
                    .map(|other| if other == socket { 10 } else { 21 })
                    .collect(),
            })
            .collect();

        Topology {
            cpus,
            caches,
            nodes,
            holes: Vec::new(),
        }
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Two sockets of ten cores, one last-level cache each, no hyperthreads.
#[must_use]
pub fn two_sockets_of_ten() -> Topology {
    TWO_SOCKETS_OF_TEN.build()
}

/// The shape of [`two_sockets_of_ten`].
pub const TWO_SOCKETS_OF_TEN: Shape = Shape {
    sockets: 2,
    llcs_per_socket: 1,
    cores_per_llc: 10,
    threads_per_core: 1,
    l1_bytes: 32 * KIB,
    l2_bytes: 256 * KIB,
    l3_bytes: 25 * MIB,
};

/// [`two_sockets_of_ten`] with two hyperthreads a core: CPU 20 is core 0 again.
#[must_use]
pub fn two_sockets_of_ten_with_hyperthreads() -> Topology {
    Shape {
        sockets: 2,
        llcs_per_socket: 1,
        cores_per_llc: 10,
        threads_per_core: 2,
        l1_bytes: 32 * KIB,
        l2_bytes: 256 * KIB,
        l3_bytes: 25 * MIB,
    }
    .build()
}

/// One AMD EPYC socket of eight core complexes (CCX) with eight cores and an L3 of their own.
#[must_use]
pub fn epyc_of_eight_ccxs() -> Topology {
    Shape {
        sockets: 1,
        llcs_per_socket: 8,
        cores_per_llc: 8,
        threads_per_core: 2,
        l1_bytes: 32 * KIB,
        l2_bytes: 512 * KIB,
        l3_bytes: 32 * MIB,
    }
    .build()
}

/// A virtual machine of two CPUs that claim to share one L3.
#[must_use]
pub fn virtual_machine_of_two() -> Topology {
    Shape {
        sockets: 1,
        llcs_per_socket: 1,
        cores_per_llc: 2,
        threads_per_core: 1,
        l1_bytes: 48 * KIB,
        l2_bytes: MIB,
        l3_bytes: 32 * MIB,
    }
    .build()
}

/// A machine like an Apple M1 Max or M2 Pro under Linux: a cluster of two efficient cores and two
/// of four performance cores, in that order. The cores of a cluster share a second-level cache,
/// which is the last; lines have 128 bytes. The memory-side cache is not told, as on the real one.
#[must_use]
pub fn apple_of_three_clusters() -> Topology {
    // First CPU, CPUs; first-level data, its ways, instructions, its ways; second level, its ways.
    let clusters = [
        (0, 2, [(64 * KIB, 8), (128 * KIB, 8), (4 * MIB, 16)]),
        (2, 4, [(128 * KIB, 8), (192 * KIB, 6), (12 * MIB, 12)]),
        (6, 4, [(128 * KIB, 8), (192 * KIB, 6), (12 * MIB, 12)]),
    ];
    let mut caches = Vec::new();
    for (at, (level, kind)) in [
        (1, CacheKind::Data),
        (1, CacheKind::Instruction),
        (2, CacheKind::Unified),
    ]
    .into_iter()
    .enumerate()
    {
        for &(first, cpus, shapes) in &clusters {
            let width = if level == 1 { 1 } else { cpus };
            let (size_bytes, ways) = shapes[at];
            for start in (first..first + cpus).step_by(width as usize) {
                caches.push(Cache {
                    level,
                    kind,
                    size_bytes: Some(size_bytes),
                    line_bytes: Some(128),
                    ways: Some(ways),
                    sets: u32::try_from(size_bytes / 128 / u64::from(ways)).ok(),
                    cpus: (start..start + width).collect(),
                });
            }
        }
    }
    Topology {
        cpus: (0..10)
            .map(|id| Cpu {
                id,
                core: Some(id),
                socket: Some(0),
                node: Some(0),
            })
            .collect(),
        caches,
        nodes: vec![Node {
            id: 0,
            cpus: (0..10).collect(),
            distances: vec![10],
        }],
        holes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_of_an_invented_machine_has_one_cache_of_each_kind_and_level() {
        for machine in [
            two_sockets_of_ten(),
            two_sockets_of_ten_with_hyperthreads(),
            epyc_of_eight_ccxs(),
            virtual_machine_of_two(),
        ] {
            for cpu in &machine.cpus {
                let mut of_cpu: Vec<_> = machine
                    .caches
                    .iter()
                    .filter(|cache| cache.cpus.contains(cpu.id))
                    .map(|cache| (cache.level, cache.kind))
                    .collect();
                of_cpu.sort_unstable();
                assert_eq!(
                    of_cpu,
                    [
                        (1, CacheKind::Data),
                        (1, CacheKind::Instruction),
                        (2, CacheKind::Unified),
                        (3, CacheKind::Unified)
                    ]
                );
            }
        }
    }

    #[test]
    fn the_second_hyperthreads_come_after_all_first_ones() {
        let machine = two_sockets_of_ten_with_hyperthreads();
        assert_eq!(machine.cores()[0].to_string(), "0,20");
        assert_eq!(machine.sockets()[1].to_string(), "10-19,30-39");
        assert_eq!(machine.nodes[0].cpus.to_string(), "0-9,20-29");
    }

    #[test]
    fn the_epyc_has_sixteen_cpus_below_each_of_its_eight_llcs() {
        let groups = epyc_of_eight_ccxs().llc_groups();
        assert_eq!(groups.len(), 8);
        assert_eq!(groups[1].to_string(), "8-15,72-79");
    }

    #[test]
    fn the_clusters_of_the_apple_have_one_second_level_each_and_it_is_their_last() {
        let machine = apple_of_three_clusters();
        let groups: Vec<String> = machine.llc_groups().iter().map(CpuSet::to_string).collect();
        assert_eq!(groups, ["0-1", "2-5", "6-9"]);
        assert_eq!(machine.line_size(), Some(128));
        assert_eq!(machine.proximity(2, 5), Some(crate::Proximity::SameLlc));
        assert_eq!(machine.proximity(5, 6), Some(crate::Proximity::SameSocket));
        for cpu in &machine.cpus {
            let mut of_cpu = machine
                .caches
                .iter()
                .filter(|cache| cache.cpus.contains(cpu.id));
            assert_eq!(of_cpu.clone().count(), 3);
            assert!(of_cpu.all(|cache| {
                let lines = cache.size_bytes.unwrap() / 128;
                u64::from(cache.sets.unwrap()) * u64::from(cache.ways.unwrap()) == lines
            }));
        }
    }
}
