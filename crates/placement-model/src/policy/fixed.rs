//! Placements that are decided once.

use super::balancer::Policy;
use super::balancer::{balance, idlest_of};
use crate::random::Random;
use crate::world::{Allowed, World};

/// Where each task may run.
pub(super) struct Fixed {
    allowed: Vec<Allowed>,
}

impl Policy for Fixed {
    fn place(&mut self, world: &World<'_>, task: u32, _random: &mut Random) -> (u32, Allowed) {
        match self.allowed.get(task as usize) {
            Some(&Allowed::Cpu(cpu)) => (cpu, Allowed::Cpu(cpu)),
            Some(&Allowed::Llc(llc)) => (idlest_of(world, llc), Allowed::Llc(llc)),
            _ => (0, Allowed::Everywhere),
        }
    }

    fn act(&mut self, world: &mut World<'_>, random: &mut Random) -> u64 {
        // Within what is allowed tasks are still balanced.
        balance(world, random, &|_, _, _| true);
        0
    }
}

/// Each task on its CPU.
pub(super) fn pinned(cpus: &[u32]) -> Fixed {
    Fixed {
        allowed: cpus.iter().map(|&cpu| Allowed::Cpu(cpu)).collect(),
    }
}

/// Tasks on random CPUs, none on a core that has one while there are others.
pub(super) fn random(world: &World<'_>, random: &mut Random) -> Fixed {
    let machine = world.machine;
    let mut cores: Vec<usize> = (0..machine.cpus_of_core.len()).collect();
    let mut cpus = Vec::new();
    for thread in 0..2 {
        random.shuffle(&mut cores);
        let of_core = |&core: &usize| machine.cpus_of_core[core].get(thread).copied();
        cpus.extend(cores.iter().filter_map(of_core));
    }
    let placed: Vec<u32> = (0..world.tasks.len())
        .map(|at| cpus[at % cpus.len()])
        .collect();
    pinned(&placed)
}

/// Each process in the last-level cache that has the fewest tasks, the largest first.
pub(super) fn one_llc(world: &World<'_>) -> Fixed {
    let processes = world
        .tasks
        .iter()
        .map(|task| task.process as usize + 1)
        .max()
        .unwrap_or(0);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); processes];
    for (at, task) in world.tasks.iter().enumerate() {
        members[task.process as usize].push(at);
    }
    members.sort_by_key(|members| std::cmp::Reverse(members.len()));
    let mut load = vec![0; world.machine.cpus_of_llc.len()];
    let mut allowed = vec![Allowed::Everywhere; world.tasks.len()];
    for members in members {
        let Some(llc) = (0..load.len()).min_by_key(|&llc| load[llc]) else {
            break;
        };
        load[llc] += members.len();
        for at in members {
            allowed[at] = Allowed::Llc(llc as u32);
        }
    }
    Fixed { allowed }
}
