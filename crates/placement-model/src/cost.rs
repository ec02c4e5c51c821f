//! What a placement costs: how fast every task is, and what its counters would count.
//!
//! ```text
//! cycles of a useful cycle = computing (slower beside another on the core)
//!                          + Σ transfers × distance
//!                          + Σ misses × (latency of the node + wait) / misses at once
//! ```
//!
//! Misses are those that the phase has anyhow and the accesses that a last-level cache is too small for. The wait is that
//! of the node's queue, which depends on how fast all are: it is solved for, node by node.

use crate::assumptions as assumed;
use crate::machine::SimulatedMachine;
use crate::program::Phase;

/// Nodes of the largest machine.
pub(crate) const NODES: usize = 2;

/// Passes over the nodes until the waits of all agree.
const PASSES: usize = 3;

/// A task that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub(crate) task: u32,
    pub(crate) cpu: u32,
    pub(crate) program: u32,
    pub(crate) phase: &'a Phase,
    /// The nodes of its own pages and of the program's.
    pub(crate) home: u32,
    pub(crate) shared_home: u32,
    pub(crate) partners: &'a [(u32, f64)],
}

/// What a task gets done. Rates are per cycle of its CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Its share of its CPU.
    pub(crate) share: f64,
    /// Useful cycles.
    pub(crate) useful: f64,
    pub(crate) transfers: [f64; 3],
    pub(crate) misses: f64,
    pub(crate) remote: f64,
    /// Misses of the private caches.
    pub(crate) private_misses: f64,
}

/// A task while its rates are solved for.
struct Part {
    /// Cycles of a useful cycle but for memory.
    fixed: f64,
    /// Cycles of a useful cycle for each node's memory, if nobody waits in a queue.
    memory: [f64; NODES],
    /// Misses of a useful cycle in each node.
    misses: [f64; NODES],
    parallel: f64,
}

/// Of the running tasks, in their order, what they get done; the same machine may be asked again and again.
pub(crate) fn rates(machine: &SimulatedMachine, running: &[Running<'_>]) -> Vec<Rates> {
    let mut on_cpu = vec![0_u32; machine.len()];
    for one in running {
        on_cpu[one.cpu as usize] += 1;
    }
    let overflow = overflow(machine, running);
    let mut place = vec![
        u32::MAX;
        running
            .iter()
            .map(|one| one.task as usize + 1)
            .max()
            .unwrap_or(0)
    ];
    for one in running {
        place[one.task as usize] = one.cpu;
    }
    let mut all = Vec::with_capacity(running.len());
    let mut parts = Vec::with_capacity(running.len());
    for one in running {
        let (rates, part) = part(machine, one, &on_cpu, &place, &overflow);
        all.push(rates);
        parts.push(part);
    }
    let waits = waits(machine, &all, &parts);
    for (rates, part) in all.iter_mut().zip(&parts) {
        let cycles = part.cycles(&waits);
        rates.useful = 1.0 / cycles;
        for rate in rates.transfers.iter_mut().chain([
            &mut rates.misses,
            &mut rates.remote,
            &mut rates.private_misses,
        ]) {
            *rate /= cycles;
        }
    }
    all
}

/// Of each last-level cache, the share of what is used below it that it does not hold.
fn overflow(machine: &SimulatedMachine, running: &[Running<'_>]) -> Vec<f64> {
    let count = machine.cpus_of_llc.len();
    let mut used = vec![0.0; count];
    let programs = running.iter().map(|one| one.program as usize + 1).max();
    let mut common = vec![0.0_f64; count * programs.unwrap_or(0)];
    for one in running {
        let llc = machine.llc[one.cpu as usize] as usize;
        used[llc] += one.phase.private_bytes;
        let bytes = &mut common[one.program as usize * count + llc];
        *bytes = bytes.max(one.phase.shared_bytes);
    }
    for (at, bytes) in common.iter().enumerate() {
        used[at % count] += bytes;
    }
    let held = |used: f64| (machine.costs.llc_bytes / used.max(1.0)).min(1.0);
    used.into_iter().map(|used| 1.0 - held(used)).collect()
}

/// What a task costs but for waiting in queues. The rates are still per useful cycle.
fn part(
    machine: &SimulatedMachine,
    one: &Running<'_>,
    on_cpu: &[u32],
    place: &[u32],
    overflow: &[f64],
) -> (Rates, Part) {
    let (phase, cpu) = (one.phase, one.cpu as usize);
    let beside = machine.cpus_of_core[machine.core[cpu] as usize]
        .iter()
        .any(|&other| other != one.cpu && on_cpu[other as usize] > 0);
    let mut fixed = if beside {
        1.0 / assumed::SMT_SPEED
    } else {
        1.0
    };
    let mut transfers = [0.0; 3];
    let lives = |&&(other, _): &&(u32, f64)| {
        place
            .get(other as usize)
            .is_some_and(|&there| there != u32::MAX)
    };
    // Its lines come from those that live: what others would have written they write.
    let all: f64 = one
        .partners
        .iter()
        .filter(lives)
        .map(|(_, weight)| weight)
        .sum();
    for &(other, weight) in one.partners.iter().filter(lives) {
        if let Some(crossing) = machine.crossing(one.cpu, place[other as usize]) {
            transfers[crossing] += phase.transfers * weight / all;
        }
    }
    for (count, cycles) in transfers.iter().zip(machine.costs.transfer_cycles) {
        fixed += count * cycles;
    }
    let misses = phase.misses + phase.accesses * overflow[machine.llc[cpu] as usize];
    let mut of_node = [0.0; NODES];
    of_node[one.home as usize] += misses * phase.own;
    of_node[one.shared_home as usize] += misses * (1.0 - phase.own);
    let here = machine.socket[cpu] as usize;
    let costs = &machine.costs;
    let memory = std::array::from_fn(|node| {
        let latency = if node == here {
            costs.local_cycles
        } else {
            costs.remote_cycles
        };
        of_node[node] * latency / phase.parallel
    });
    let rates = Rates {
        share: 1.0 / f64::from(on_cpu[cpu]),
        useful: 0.0,
        transfers,
        misses: misses + transfers[1] + transfers[2],
        remote: misses - of_node[here],
        private_misses: phase.accesses + phase.misses + transfers.iter().sum::<f64>(),
    };
    let part = Part {
        fixed,
        memory,
        misses: of_node,
        parallel: phase.parallel,
    };
    (rates, part)
}

impl Part {
    /// Cycles of a useful cycle where each node's queue lets wait so long.
    fn cycles(&self, waits: &[f64; NODES]) -> f64 {
        let memory =
            |node: usize| self.memory[node] + self.misses[node] * waits[node] / self.parallel;
        self.fixed + (0..NODES).map(memory).sum::<f64>()
    }
}

/// The cycles that a miss waits for each node's memory.
fn waits(machine: &SimulatedMachine, rates: &[Rates], parts: &[Part]) -> [f64; NODES] {
    let costs = &machine.costs;
    let service = costs.frequency_hz / costs.lines_per_second;
    let mut waits = [0.0; NODES];
    for _ in 0..PASSES {
        for node in 0..NODES {
            // How much of the node's time is used if a miss waits so long: less, the longer.
            let used = |wait: f64| {
                let mut waits = waits;
                waits[node] = wait;
                let lines = rates
                    .iter()
                    .zip(parts)
                    .filter(|(_, part)| part.misses[node] > 0.0)
                    .map(|(rates, part)| rates.share * part.misses[node] / part.cycles(&waits));
                lines.sum::<f64>() * service
            };
            if used(0.0) < 1e-3 {
                waits[node] = 0.0;
                continue;
            }
            let is_longer = |wait: f64| {
                let used = used(wait);
                used >= 1.0 || service * used / (2.0 * (1.0 - used)) > wait
            };
            let (mut low, mut high) = (0.0, service);
            while is_longer(high) && high < 1e7 {
                (low, high) = (high, high * 4.0);
            }
            for _ in 0..18 {
                let middle = (low + high) / 2.0;
                if is_longer(middle) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            waits[node] = (low + high) / 2.0;
        }
    }
    waits
}
