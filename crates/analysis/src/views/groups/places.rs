//! Where each group fits on a machine.

use std::collections::BTreeMap;

use linewise_recording::{CacheLevel, RunInfo, Sample};
use linewise_topology::{CpuSet, Topology};

use super::distance::Distance;
use super::rows::{Below, GroupPlace, Shape, ThreadGroup};

/// A group whose samples fell to this share below one cache is there.
const THERE: f64 = 0.95;

impl Shape {
    /// That of `machine`, or what a recording tells of its own.
    pub(super) fn of(info: &RunInfo, machine: Option<&Topology>) -> Self {
        let Some(machine) = machine else {
            let told = info.caches.iter().max_by_key(|cache| cache.level);
            let last = told.filter(|cache| cache.level > CacheLevel::L1d);
            return Self {
                cpus: info.cpus.into(),
                llcs: last.map(|cache| cache.count.into()).filter(|it| *it > 0),
                ..Self::default()
            };
        };
        let llcs = machine.llc_groups();
        let below = |cpus: &CpuSet| Below {
            socket: cpus.first().and_then(|cpu| machine.cpu(cpu)?.socket),
            cpus: cpus.to_string(),
        };
        let mut below: Vec<Below> = llcs.iter().map(below).collect();
        below.sort_by_key(|it| it.socket);
        let sockets = machine.sockets().len() as u64;
        Self {
            cpus: machine.cpus.len() as u64,
            llcs: Some(llcs.len() as u64).filter(|it| *it > 0),
            sockets: Some(sockets).filter(|it| *it > 0),
            below,
        }
    }
}

/// A set of CPUs that groups are put on.
struct Room {
    cpus: CpuSet,
    distance: Distance,
    llc: Option<u32>,
    free: f64,
}

/// Gives each group the nearest CPUs that it fits on: those where it ran most, else those with the most room. A group that
/// fits on no socket has no place. Where all groups need more CPUs than there are each domain has its share of them, as
/// for `linewise place`.
pub(super) fn place(groups: &mut [ThreadGroup], machine: &Topology, samples: &[Sample]) {
    let all: f64 = groups.iter().map(need).sum();
    let crowd = (all / machine.cpus.len().max(1) as f64).max(1.0);
    let (mut llcs, mut sockets) = (rooms(machine, true, crowd), rooms(machine, false, crowd));
    if llcs.len() < 2 {
        return;
    }
    for group in groups {
        let ran = ran_on(group, samples);
        let at = |room: &Room| -> f64 {
            let there = ran.iter().filter(|(cpu, _)| room.cpus.contains(**cpu));
            there.map(|(_, ns)| ns).sum()
        };
        let need = need(group);
        let rooms = match llcs.iter().any(|room| room.free >= need) {
            true => &mut llcs,
            false if sockets.len() > 1 => &mut sockets,
            false => continue,
        };
        let best = rooms
            .iter_mut()
            .filter(|room| room.free >= need)
            .max_by(|a, b| {
                (at(a), a.free)
                    .partial_cmp(&(at(b), b.free))
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
        let Some(best) = best else { continue };
        best.free -= need;
        let all: f64 = ran.values().sum();
        group.place = Some(GroupPlace {
            cpus: best.cpus.to_string(),
            nodes: nodes(machine, &best.cpus),
            distance: best.distance,
            llc: best.llc,
            is_there: all > 0.0 && at(best) >= THERE * all,
        });
        let taken = best.cpus.clone();
        // What a cache has no room for its socket has none for, either, and the other way round.
        for room in llcs.iter_mut().chain(&mut sockets) {
            let common = room.cpus.intersection(&taken).len() as f64;
            if room.cpus != taken {
                room.free -= need * common / taken.len().max(1) as f64;
            }
        }
    }
}

/// CPUs that a group needs; two at least: what they used while they waited for each other may be little.
fn need(group: &ThreadGroup) -> f64 {
    group.load.max(f64::min(group.threads.len() as f64, 2.0))
}

/// The domains, with room for so many times their CPUs.
fn rooms(machine: &Topology, of_llcs: bool, crowd: f64) -> Vec<Room> {
    let (sets, distance) = match of_llcs {
        true => (machine.llc_groups(), Distance::Llc),
        false => (machine.sockets(), Distance::Socket),
    };
    let room = |(cpus, number): (CpuSet, u32)| Room {
        free: (cpus.len() as f64 * crowd).ceil(),
        cpus,
        distance,
        llc: of_llcs.then_some(number),
    };
    sets.into_iter().zip(0..).map(room).collect()
}

/// Where the samples of a group fell, ns by CPU.
fn ran_on(group: &ThreadGroup, samples: &[Sample]) -> BTreeMap<u32, f64> {
    let mut ran = BTreeMap::new();
    for sample in samples {
        if group.threads.binary_search(&sample.tid.0).is_ok() {
            *ran.entry(sample.cpu.0).or_default() += sample.weight as f64;
        }
    }
    ran
}

fn nodes(machine: &Topology, cpus: &CpuSet) -> String {
    let nodes: CpuSet = (cpus.iter())
        .filter_map(|cpu| machine.cpu(cpu)?.node)
        .collect();
    nodes.to_string()
}
