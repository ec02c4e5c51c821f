//! Who shares, but not with whom: tasks whose lines come from afar are brought together (SAM, figure 4, first part).

use crate::categories::Categories;
use crate::machine::Level;
use crate::plan::{Plan, Reason};

/// The tasks of one domain by category, as far as they may be moved.
#[derive(Default)]
struct Domain {
    /// Many lines from other domains.
    inter: Vec<u32>,
    /// How many tasks, movable or not, are among those that share here, across domains or within.
    shares: usize,
    cpu_bound: Vec<u32>,
    memory: Vec<u32>,
    idle: Vec<u32>,
    capacity: f32,
    outer: u32,
}

/// Brings those together whose lines cross the level with index `level`.
pub(crate) fn bring_together(plan: &mut Plan, categories: &[Categories], level: usize) {
    let machine = plan.machine;
    let this = &machine.levels()[level];
    let mut domains = domains(plan, categories, this, level);
    // Those who come find most of their kind there.
    let mut order: Vec<usize> = (0..domains.len()).collect();
    order.sort_by_key(|&domain| std::cmp::Reverse(domains[domain].shares));
    for (place, &to) in order.iter().enumerate() {
        if domains[to].inter.is_empty() {
            continue;
        }
        // Those with the fewest give first.
        for &from in order.iter().skip(place + 1).rev() {
            if domains[from].outer == domains[to].outer {
                gather(plan, &mut domains, this, level, (from, to));
            }
        }
    }
}

/// Moves tasks of `from` to `to` while there is room for their kind.
fn gather(
    plan: &mut Plan,
    domains: &mut [Domain],
    level: &Level,
    index: usize,
    (from, to): (usize, usize),
) {
    while (domains[to].shares as f32) < domains[to].capacity {
        let Some(task) = domains[from].inter.pop() else {
            return;
        };
        let transfers = level.crosses(&plan.task(task).activity.transfers);
        let reason = Reason::Coherence(plan.machine.levels()[index].kind, transfers);
        if let Some(cpu) = plan.take_idle(&mut domains[to].idle, task) {
            plan.go(task, cpu, reason);
        } else if let Some(other) = partner(plan, &mut domains[to].cpu_bound, task) {
            plan.swap(task, reason, other, Reason::MakesRoom(plan.task(task).key));
        } else if let Some(other) = partner(plan, &mut domains[to].memory, task) {
            plan.swap(
                task,
                reason,
                other,
                Reason::Reluctantly(plan.task(task).key),
            );
        } else {
            return;
        }
        domains[to].shares += 1;
        domains[from].shares -= 1;
    }
}

/// One of `candidates` that may change places with `task`.
pub(crate) fn partner(plan: &Plan, candidates: &mut Vec<u32>, task: u32) -> Option<u32> {
    let found = candidates
        .iter()
        .rposition(|&other| plan.may_swap(task, other))?;
    Some(candidates.swap_remove(found))
}

fn domains(plan: &Plan, categories: &[Categories], level: &Level, index: usize) -> Vec<Domain> {
    let outer = index
        .checked_sub(1)
        .map(|outer| &plan.machine.levels()[outer]);
    let empty = |cpus: &Vec<u32>| Domain {
        idle: plan.idle(cpus),
        capacity: plan.capacity(cpus),
        outer: outer.map_or(0, |outer| outer.of_cpu[cpus[0] as usize]),
        ..Domain::default()
    };
    let mut domains: Vec<Domain> = level.domains.iter().map(empty).collect();
    for (task, all) in categories.iter().enumerate() {
        let task = task as u32;
        let domain = &mut domains[plan.domain(level, task) as usize];
        let is_inter = all.has(Categories::inter(index));
        if is_inter || all.has(Categories::intra(index)) {
            domain.shares += 1;
        }
        if !plan.is_free(task) {
            continue;
        }
        if is_inter {
            domain.inter.push(task);
        } else if all.is_cpu_bound(index) {
            domain.cpu_bound.push(task);
        } else if all.has(Categories::MEMORY) && !all.has(Categories::intra(index)) {
            domain.memory.push(task);
        }
    }
    domains
}
