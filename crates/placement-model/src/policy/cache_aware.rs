//! Cache-aware scheduling as merged into Linux: a process aims at the last-level cache where most of it runs, unless it
//! has more active threads than that has cores, or the cache is full already (`llc_overload_pct`, `llc_imb_pct`).

use super::balancer::Policy;
use super::balancer::{balance, idlest_of};
use crate::random::Random;
use crate::world::World;

/// From this load on a last-level cache counts as full.
const FULL: f64 = 0.5;
/// A full one may still take a task while it is not so much busier than where the task is.
const IMBALANCE: f64 = 1.2;

/// Aims processes at last-level caches.
pub(super) struct CacheAware;

impl Policy for CacheAware {
    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64 {
        let before = world.migrations;
        let wanted = wanted(world);
        let tasks: Vec<u32> = world.living().collect();
        for task in tasks {
            let one = &world.tasks[task as usize];
            let here = world.machine.llc[one.cpu as usize];
            let Some(aim) = wanted[one.process as usize].filter(|&aim| aim != here) else {
                continue;
            };
            let cpu = idlest_of(world, aim);
            if world.on_cpu[cpu as usize] == 0 && may_take(world, here, aim) {
                world.migrate(task, cpu);
            }
        }
        balance(world, random, &|world, task, to| {
            let one = &world.tasks[task as usize];
            let here = world.machine.llc[one.cpu as usize];
            let leaves = wanted[one.process as usize] == Some(here) && to != here;
            // Balancing takes a task from where its process is only if that is full and much busier.
            !leaves || (used(world, here) > FULL && !may_take(world, to, here))
        });
        world.migrations - before
    }
}

/// The last-level cache that each process aims at.
fn wanted(world: &World<'_>) -> Vec<Option<u32>> {
    let llcs = world.machine.cpus_of_llc.len();
    let processes = world
        .tasks
        .iter()
        .map(|task| task.process as usize + 1)
        .max()
        .unwrap_or(0);
    let mut threads = vec![vec![0_usize; llcs]; processes];
    for task in world.living() {
        let one = &world.tasks[task as usize];
        threads[one.process as usize][world.machine.llc[one.cpu as usize] as usize] += 1;
    }
    let aim = |of_llc: Vec<usize>| {
        let all: usize = of_llc.iter().sum();
        let (most, _) = of_llc
            .iter()
            .enumerate()
            .max_by_key(|&(llc, count)| (count, std::cmp::Reverse(llc)))?;
        let aim = most as u32;
        (all > 1 && all <= world.machine.cores_of_llc(aim)).then_some(aim)
    };
    threads.into_iter().map(aim).collect()
}

fn used(world: &World<'_>, llc: u32) -> f64 {
    let cpus = &world.machine.cpus_of_llc[llc as usize];
    let tasks: u32 = cpus.iter().map(|&cpu| world.on_cpu[cpu as usize]).sum();
    f64::from(tasks) / cpus.len() as f64
}

/// Whether a task may go from one last-level cache to the one its process aims at.
fn may_take(world: &World<'_>, from: u32, to: u32) -> bool {
    let one = 1.0 / world.machine.cpus_of_llc[to as usize].len() as f64;
    let after = used(world, to) + one;
    after <= FULL || after <= IMBALANCE * used(world, from)
}
