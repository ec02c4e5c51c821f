//! The simulated machines: their shape, and what distance and memory cost on them.

use linewise_placer::{Machine, Thresholds};
use linewise_topology::synthetic::Shape;

use crate::assumptions as assumed;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MachineKind {
    /// Two sockets of ten cores with two hyperthreads: the machine of SAM's paper (section 4).
    TwoSockets,
    /// One socket of eight core complexes, each eight cores with two hyperthreads.
    EightLlcs,
    /// Two sockets of four last-level caches, each four cores with two hyperthreads.
    TwoByFourLlcs,
}

/// What distance and memory cost, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Cycles of a CPU in a second.
    pub frequency_hz: f64,
    /// Cycles until a line comes that another core has, by `linewise_placer::Crossing`.
    pub transfer_cycles: [f64; 3],
    /// Cycles until a line comes from the memory of the own node.
    pub local_cycles: f64,
    /// Cycles until a line comes from the memory of another node.
    pub remote_cycles: f64,
    /// Lines that a node's memory gives in a second.
    pub lines_per_second: f64,
    /// Bytes of a last-level cache.
    pub llc_bytes: f64,
    /// Bytes of a core's private caches.
    pub private_bytes: f64,
}

/// A machine to simulate. CPUs are numbered densely from 0.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// Its name in every output.
    pub name: &'static str,
    /// The same as the placer looks at it.
    pub placer: Machine,
    /// What it costs.
    pub costs: Costs,
    /// From where on distance and load of memory matter: what `linewise calibrate` would find.
    pub thresholds: Thresholds,
    pub(crate) core: Vec<u32>,
    pub(crate) llc: Vec<u32>,
    pub(crate) socket: Vec<u32>,
    /// The CPUs of each core.
    pub(crate) cpus_of_core: Vec<Vec<u32>>,
    /// The CPUs of each last-level cache.
    pub(crate) cpus_of_llc: Vec<Vec<u32>>,
    /// The last-level caches of each socket.
    pub(crate) llcs_of_socket: Vec<Vec<u32>>,
}

impl MachineKind {
    /// All.
    pub const ALL: [Self; 3] = [Self::TwoSockets, Self::EightLlcs, Self::TwoByFourLlcs];

    /// The machine.
    #[must_use]
    pub fn build(self) -> SimulatedMachine {
        match self {
            Self::TwoSockets => {
                let shape = shape(2, 1, 10, 25 * MIB, 256 * KIB);
                let costs = Costs {
                    frequency_hz: assumed::IVY_BRIDGE_HZ,
                    transfer_cycles: assumed::INTEL_TRANSFER_CYCLES,
                    local_cycles: assumed::INTEL_LOCAL_NS * assumed::IVY_BRIDGE_HZ / 1e9,
                    remote_cycles: assumed::INTEL_REMOTE_NS * assumed::IVY_BRIDGE_HZ / 1e9,
                    lines_per_second: assumed::IVY_BRIDGE_LINES,
                    llc_bytes: shape.l3_bytes as f64,
                    private_bytes: shape.l2_bytes as f64,
                };
                build("2x10x2", shape, costs, Some(Thresholds::IVY_BRIDGE))
            }
            Self::EightLlcs => {
                let shape = shape(1, 8, 8, 32 * MIB, 512 * KIB);
                build("8ccx", shape, chiplets(&shape), None)
            }
            Self::TwoByFourLlcs => {
                let shape = shape(2, 4, 4, 32 * MIB, 512 * KIB);
                build("2x4llc", shape, chiplets(&shape), None)
            }
        }
    }
}

fn shape(
    sockets: u32,
    llcs_per_socket: u32,
    cores_per_llc: u32,
    l3_bytes: u64,
    l2_bytes: u64,
) -> Shape {
    Shape {
        sockets,
        llcs_per_socket,
        cores_per_llc,
        threads_per_core: 2,
        l1_bytes: 32 * KIB,
        l2_bytes,
        l3_bytes,
    }
}

fn chiplets(shape: &Shape) -> Costs {
    let cycles = |ns: f64| ns * assumed::CHIPLET_HZ / 1e9;
    Costs {
        frequency_hz: assumed::CHIPLET_HZ,
        transfer_cycles: assumed::CHIPLET_TRANSFER_NS.map(cycles),
        local_cycles: cycles(assumed::CHIPLET_LOCAL_NS),
        remote_cycles: cycles(assumed::CHIPLET_REMOTE_NS),
        lines_per_second: assumed::CHIPLET_LINES,
        llc_bytes: shape.l3_bytes as f64,
        private_bytes: shape.l2_bytes as f64,
    }
}

fn build(
    name: &'static str,
    shape: Shape,
    costs: Costs,
    thresholds: Option<Thresholds>,
) -> SimulatedMachine {
    let topology = shape.build();
    let placer = Machine::new(&topology);
    let cores_per_socket = shape.llcs_per_socket * shape.cores_per_llc;
    let cores = shape.sockets * cores_per_socket;
    let of_cpu = |width: u32| -> Vec<u32> {
        let cpus = 0..cores * shape.threads_per_core;
        cpus.map(|cpu| cpu % cores / width).collect()
    };
    let (core, llc, socket) = (
        of_cpu(1),
        of_cpu(shape.cores_per_llc),
        of_cpu(cores_per_socket),
    );
    let llcs = shape.sockets * shape.llcs_per_socket;
    let mut llcs_of_socket = vec![Vec::new(); shape.sockets as usize];
    for llc in 0..llcs {
        llcs_of_socket[(llc / shape.llcs_per_socket) as usize].push(llc);
    }
    SimulatedMachine {
        name,
        placer,
        thresholds: thresholds.unwrap_or_else(|| calibrated(&costs, shape.sockets > 1)),
        costs,
        cpus_of_core: members(&core, cores as usize),
        cpus_of_llc: members(&llc, llcs as usize),
        llcs_of_socket,
        core,
        llc,
        socket,
    }
}

/// Where the nearest distance that can be avoided costs 5 %, and where memory is 20 % below its limit (SAM, sections
/// 2.1 and 2.2).
fn calibrated(costs: &Costs, has_sockets: bool) -> Thresholds {
    let [near, llc, socket] = costs.transfer_cycles;
    let far = if has_sockets { llc.min(socket) } else { llc };
    let coherence = 0.05 / (far - near) * costs.frequency_hz;
    Thresholds {
        coherence: coherence as f32,
        remote: (0.05 / (costs.remote_cycles - costs.local_cycles) * costs.frequency_hz) as f32,
        misses: (0.8 * costs.lines_per_second) as f32,
    }
}

fn members(of_cpu: &[u32], count: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); count];
    for (cpu, &domain) in of_cpu.iter().enumerate() {
        members[domain as usize].push(cpu as u32);
    }
    members
}

impl SimulatedMachine {
    /// How many CPUs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.core.is_empty()
    }

    /// How far a line travels between two CPUs; `None` if it need not, because they share the private caches.
    pub(crate) fn crossing(&self, one: u32, other: u32) -> Option<usize> {
        let (one, other) = (one as usize, other as usize);
        if self.core[one] == self.core[other] {
            None
        } else if self.llc[one] == self.llc[other] {
            Some(0)
        } else if self.socket[one] == self.socket[other] {
            Some(1)
        } else {
            Some(2)
        }
    }

    /// How many cores there are below a last-level cache.
    pub(crate) fn cores_of_llc(&self, llc: u32) -> usize {
        let cpus = &self.cpus_of_llc[llc as usize];
        cpus.len() * self.cpus_of_core.len() / self.len()
    }
}
