//! Linux' balancer: as many tasks on each socket, cache, core and CPU, whatever they do (`kernel/sched/fair.c`).

use crate::random::Random;
use crate::world::{Allowed, World};

/// A group is pulled from if it has more than this times as many tasks as the idlest (`imbalance_pct`).
const IMBALANCE: f64 = 1.25;

/// Only balances.
pub(super) struct Balancer;

impl Policy for Balancer {
    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64 {
        let before = world.migrations;
        balance(world, random, &|_, _, _| true);
        world.migrations - before
    }
}

/// Whether a task may be pulled from one last-level cache to another.
pub(super) type MayPull<'a> = &'a dyn Fn(&World<'_>, u32, u32) -> bool;

fn count(world: &World<'_>, cpus: &[u32]) -> u32 {
    cpus.iter().map(|&cpu| world.on_cpu[cpu as usize]).sum()
}

fn load_of_llc(world: &World<'_>, llc: u32) -> u32 {
    count(world, &world.machine.cpus_of_llc[llc as usize])
}

fn load_of_socket(world: &World<'_>, socket: usize) -> u32 {
    let llcs = &world.machine.llcs_of_socket[socket];
    llcs.iter().map(|&llc| load_of_llc(world, llc)).sum()
}

/// The idlest CPU for a new task: of the idlest socket, cache and core. Which of equal sockets and caches is chance, as
/// it depends on where the parent runs.
pub(super) fn idlest(world: &World<'_>, random: &mut Random) -> u32 {
    let machine = world.machine;
    let sockets =
        (0..machine.llcs_of_socket.len()).map(|at| (load_of_socket(world, at), at as u32));
    let socket = least(sockets.collect(), random);
    let llcs = machine.llcs_of_socket[socket as usize].iter();
    let llc = least(
        llcs.map(|&llc| (load_of_llc(world, llc), llc)).collect(),
        random,
    );
    idlest_of(world, llc)
}

/// The idlest CPU of the idlest core below a last-level cache.
pub(super) fn idlest_of(world: &World<'_>, llc: u32) -> u32 {
    let machine = world.machine;
    let cpus = &machine.cpus_of_llc[llc as usize];
    let key = |&&cpu: &&u32| {
        let core = &machine.cpus_of_core[machine.core[cpu as usize] as usize];
        (world.on_cpu[cpu as usize], count(world, core), cpu)
    };
    // An idle thread of a busy core comes before a CPU that is busy itself.
    cpus.iter().min_by_key(key).copied().unwrap_or(0)
}

fn least(mut loads: Vec<(u32, u32)>, random: &mut Random) -> u32 {
    let least = loads.iter().map(|&(load, _)| load).min().unwrap_or(0);
    loads.retain(|&(load, _)| load == least);
    loads
        .get(random.below(loads.len()))
        .map_or(0, |&(_, at)| at)
}

/// Evens out, from sockets inwards.
pub(super) fn balance(world: &mut World<'_>, random: &mut Random, may_pull: MayPull<'_>) {
    let machine = world.machine;
    let sockets: Vec<Vec<u32>> = machine.llcs_of_socket.clone();
    even_out(world, random, &sockets, may_pull);
    for llcs in sockets {
        let groups: Vec<Vec<u32>> = llcs.into_iter().map(|llc| vec![llc]).collect();
        even_out(world, random, &groups, may_pull);
    }
    let tasks: Vec<u32> = world.living().collect();
    for task in tasks {
        spread_within(world, task);
    }
}

/// Pulls tasks from the busiest of groups of last-level caches to the idlest.
fn even_out(
    world: &mut World<'_>,
    random: &mut Random,
    groups: &[Vec<u32>],
    may_pull: MayPull<'_>,
) {
    for _ in 0..world.machine.len() {
        let load = |group: &Vec<u32>| {
            group
                .iter()
                .map(|&llc| load_of_llc(world, llc))
                .sum::<u32>()
        };
        let loads: Vec<u32> = groups.iter().map(load).collect();
        let order = |at: &usize| loads[*at];
        let busiest = (0..groups.len()).max_by_key(order);
        let (Some(busiest), Some(idlest)) = (busiest, (0..groups.len()).min_by_key(order)) else {
            return;
        };
        let (most, fewest) = (loads[busiest], loads[idlest]);
        if most < fewest + 2 || f64::from(most) <= f64::from(fewest) * IMBALANCE {
            return;
        }
        let to = groups[idlest]
            .iter()
            .copied()
            .min_by_key(|&llc| load_of_llc(world, llc));
        let Some(to) = to else {
            return;
        };
        let cpu = idlest_of(world, to);
        let pulled = world.living().filter(|&task| {
            let llc = world.machine.llc[world.tasks[task as usize].cpu as usize];
            groups[busiest].contains(&llc)
                && world.may_run_on(task, cpu)
                && may_pull(world, task, to)
        });
        let pulled: Vec<u32> = pulled.collect();
        let Some(&task) = pulled.get(random.below(pulled.len())) else {
            return;
        };
        world.migrate(task, cpu);
    }
}

/// A task that shares its CPU, or its core, goes to an idle one below the same last-level cache; to any if it shares its
/// CPU and none is idle there.
fn spread_within(world: &mut World<'_>, task: u32) {
    let machine = world.machine;
    let one = &world.tasks[task as usize];
    let on_core = |cpu: u32| {
        count(
            world,
            &machine.cpus_of_core[machine.core[cpu as usize] as usize],
        )
    };
    let crowded = (world.on_cpu[one.cpu as usize], on_core(one.cpu));
    if crowded == (1, 1) {
        return;
    }
    let here = machine.llc[one.cpu as usize];
    let better = |cpu: u32| {
        let there = (world.on_cpu[cpu as usize] + 1, on_core(cpu) + 1);
        let gain = there.0 < crowded.0 || (there.0 == crowded.0 && there.1 < crowded.1);
        gain && world.may_run_on(task, cpu)
    };
    let near = idlest_of(world, here);
    if better(near) {
        world.migrate(task, near);
        return;
    }
    if crowded.0 > 1 {
        let llcs = 0..machine.cpus_of_llc.len() as u32;
        let idle = llcs
            .map(|llc| idlest_of(world, llc))
            .find(|&cpu| world.on_cpu[cpu as usize] == 0 && better(cpu));
        if let Some(cpu) = idle {
            world.migrate(task, cpu);
        }
    }
}

/// Decides for one run.
pub(crate) trait Policy {
    /// Where a task that is born begins.
    fn place(&mut self, world: &World<'_>, _task: u32, random: &mut Random) -> (u32, Allowed) {
        (idlest(world, random), Allowed::Everywhere)
    }

    /// Moves tasks before an interval; says how many it moved.
    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64;
}
