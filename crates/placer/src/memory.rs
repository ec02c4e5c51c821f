//! Memory: tasks go home to theirs, and away from one that is saturated (SAM, figure 4, second and third part).

use crate::categories::Categories;
use crate::counters::partner;
use crate::history::History;
use crate::plan::{Plan, Reason};

/// Sends home who had to make room and loads from remote memory since.
pub(crate) fn send_home(plan: &mut Plan, categories: &[Categories], history: &History) {
    let level = plan.machine.memory();
    if level.domains.len() < 2 {
        return;
    }
    for (task, all) in categories.iter().enumerate() {
        let task = task as u32;
        let here = plan.domain(level, task);
        let home = history.home(task).filter(|&home| home != here);
        let Some(home) = home.filter(|_| all.has(Categories::REMOTE) && plan.is_free(task)) else {
            continue;
        };
        let reason = Reason::Home(plan.task(task).activity.remote);
        let mut exiles = Vec::new();
        let (mut cpu_bound, mut memory) = (Vec::new(), Vec::new());
        for (other, all) in categories.iter().enumerate() {
            let other = other as u32;
            if plan.domain(level, other) != home || !plan.is_free(other) {
                continue;
            }
            if history.home(other) == Some(here) {
                exiles.push(other);
            } else if is_cpu_bound(plan, *all) {
                cpu_bound.push(other);
            } else if is_memory(plan, *all) && all.has(Categories::REMOTE) {
                // Whose memory is there would be the next to want home.
                memory.push(other);
            }
        }
        let key = plan.task(task).key;
        let mut idle = plan.idle(&level.domains[home as usize]);
        if let Some(other) = partner(plan, &mut exiles, task) {
            let other_reason = Reason::Home(plan.task(other).activity.remote);
            plan.swap(task, reason, other, other_reason);
        } else if let Some(cpu) = plan.take_idle(&mut idle, task) {
            plan.go(task, cpu, reason);
        } else if let Some(other) = partner(plan, &mut cpu_bound, task) {
            plan.swap(task, reason, other, Reason::MakesRoom(key));
        } else if let Some(other) = partner(plan, &mut memory, task) {
            plan.swap(task, reason, other, Reason::Reluctantly(key));
        }
    }
}

/// Lets tasks that use much memory leave where it is saturated.
pub(crate) fn balance(plan: &mut Plan, categories: &[Categories], limit: f32) {
    let level = plan.machine.memory();
    let mut used = vec![0.0_f32; level.domains.len()];
    let takes = |plan: &Plan, task: u32| {
        let activity = &plan.task(task).activity;
        activity.misses * activity.load
    };
    for task in 0..categories.len() as u32 {
        used[plan.domain(level, task) as usize] += takes(plan, task);
    }
    for from in 0..used.len() {
        if used[from] <= limit {
            continue;
        }
        let leaves = |task: &u32| {
            let all = categories[*task as usize];
            plan.domain(level, *task) as usize == from
                && plan.is_free(*task)
                && is_memory(plan, all)
        };
        let mut candidates: Vec<u32> = (0..categories.len() as u32).filter(leaves).collect();
        for to in 0..used.len() {
            if to == from || used[to] >= limit {
                continue;
            }
            let mut idle = plan.idle(&level.domains[to]);
            let makes_room = |task: &u32| {
                let all = categories[*task as usize];
                plan.domain(level, *task) as usize == to && is_cpu_bound(plan, all)
            };
            let mut others: Vec<u32> = (0..categories.len() as u32).filter(makes_room).collect();
            while used[from] > limit {
                let Some(&task) = candidates.last() else {
                    break;
                };
                let taken = takes(plan, task);
                // Both would not be better off.
                if used[to] + taken > limit.max(used[from] - taken) {
                    break;
                }
                let reason = Reason::Bandwidth(used[from]);
                if let Some(cpu) = plan.take_idle(&mut idle, task) {
                    plan.go(task, cpu, reason);
                } else if let Some(other) = partner(plan, &mut others, task) {
                    let back = takes(plan, other);
                    plan.swap(task, reason, other, Reason::MakesRoom(plan.task(task).key));
                    used[to] -= back;
                    used[from] += back;
                } else {
                    break;
                }
                candidates.pop();
                used[from] -= taken;
                used[to] += taken;
            }
        }
    }
}

/// Whoever shares on no level, and uses little memory.
fn is_cpu_bound(plan: &Plan, all: Categories) -> bool {
    all.has(Categories::BUSY) && !all.has(Categories::MEMORY) && !shares(plan, all)
}

/// Whoever uses much memory, and shares on no level.
fn is_memory(plan: &Plan, all: Categories) -> bool {
    all.has(Categories::MEMORY) && !shares(plan, all)
}

fn shares(plan: &Plan, all: Categories) -> bool {
    let levels = 0..plan.machine.levels().len();
    let mut levels = levels
        .filter(|&level| all.has(Categories::inter(level)) || all.has(Categories::intra(level)));
    levels.next().is_some()
}
