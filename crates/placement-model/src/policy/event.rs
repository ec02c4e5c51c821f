//! The woken follow their wakers, as in `scx_cosmos`: who is woken by a thread below another last-level cache goes there
//! if there is an idle core, else stays where it was.

use super::balancer::Policy;
use super::balancer::{balance, idlest_of};
use crate::random::Random;
use crate::world::World;

/// Transfers a useful cycle from which on threads wake each other often enough to be moved within an interval: one
/// wake-up goes with some hundred transfers.
const WAKES: f64 = 1e-4;

/// Follows events.
pub(super) struct Event;

impl Policy for Event {
    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64 {
        let before = world.migrations;
        let tasks: Vec<u32> = world.living().collect();
        for task in tasks {
            if world.phase(task).transfers < WAKES {
                continue;
            }
            let partners = &world.tasks[task as usize].partners;
            let Some(&(waker, _)) = partners.get(random.below(partners.len())) else {
                continue;
            };
            let waker = &world.tasks[waker as usize];
            let machine = world.machine;
            let (here, there) = (
                machine.llc[world.tasks[task as usize].cpu as usize],
                machine.llc[waker.cpu as usize],
            );
            if waker.born.is_none() || here == there {
                continue;
            }
            let cpu = idlest_of(world, there);
            let core = &machine.cpus_of_core[machine.core[cpu as usize] as usize];
            if core.iter().all(|&cpu| world.on_cpu[cpu as usize] == 0) {
                world.migrate(task, cpu);
            }
        }
        balance(world, random, &|_, _, _| true);
        world.migrations - before
    }
}
