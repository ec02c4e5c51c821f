//! It is known who shares with whom: groups get a domain each, and as few tasks as possible move for it.

use crate::categories::Categories;
use crate::groups::groups;
use crate::machine::Level;
use crate::plan::{Plan, Reason};
use crate::snapshot::{Sharing, Thresholds};

/// The share of what crosses now that a new seating must save: below it tasks would be shuffled for nothing.
const WORTH: f32 = 0.1;

/// No domain.
const NONE: u32 = u32::MAX;

/// Seats the groups of tasks that share with each other in domains of the level with index `level`.
pub(crate) fn seat_groups(
    plan: &mut Plan,
    categories: &[Categories],
    thresholds: &Thresholds,
    level: usize,
) {
    let machine = plan.machine;
    let this = &machine.levels()[level];
    let outer = level.checked_sub(1).map(|outer| &machine.levels()[outer]);
    let same_outer = |plan: &Plan, pair: &Sharing| {
        outer.is_none_or(|outer| plan.domain(outer, pair.one) == plan.domain(outer, pair.other))
    };
    // What a pair shares is no reason to move if all of it costs neither 5 %.
    let few = thresholds.coherence * WORTH;
    let counts = |pair: &&Sharing| pair.transfers >= few && same_outer(plan, pair);
    let pairs: Vec<Sharing> = plan
        .snapshot
        .sharing
        .iter()
        .filter(counts)
        .copied()
        .collect();
    let before = crossing(&pairs, |task| plan.domain(this, task));
    if before < thresholds.coherence {
        return;
    }
    let capacity: Vec<f32> = this
        .domains
        .iter()
        .map(|cpus| plan.capacity(cpus))
        .collect();
    let wants = wanted(plan, &pairs, this, outer, &capacity);
    let after = crossing(&pairs, |task| match wants[task as usize] {
        NONE => plan.domain(this, task),
        domain => domain,
    });
    let moved = wants
        .iter()
        .enumerate()
        .filter(|(task, domain)| **domain != NONE && plan.domain(this, *task as u32) != **domain);
    // Half of a pair's transfers come to each of the two. What is known of pairs is sampled, and a new division of tasks
    // that all share alike looks better by chance: so each task that moves must save what the threshold says is worth it.
    let saved = before - after;
    let worth =
        saved >= WORTH * before && saved / 2.0 >= thresholds.coherence * moved.count() as f32;
    if worth {
        seat(plan, categories, level, &wants, &pairs);
    }
}

/// Transfers a second between domains.
fn crossing(pairs: &[Sharing], domain: impl Fn(u32) -> u32) -> f32 {
    let crosses = pairs
        .iter()
        .filter(|pair| domain(pair.one) != domain(pair.other));
    crosses.map(|pair| pair.transfers).sum()
}

/// The domain that each task is to be in; [`NONE`] if it does not matter.
fn wanted(
    plan: &Plan,
    pairs: &[Sharing],
    level: &Level,
    outer: Option<&Level>,
    capacity: &[f32],
) -> Vec<u32> {
    let load = |task: u32| plan.task(task).activity.load.max(0.05);
    let count = plan.snapshot.tasks.len() as u32;
    let loads: Vec<f32> = (0..count).map(load).collect();
    let largest = capacity.iter().copied().fold(0.0, f32::max);
    let mut room = capacity.to_vec();
    let mut wants = vec![NONE; count as usize];
    // Who may not be moved stays, and the others come to it.
    let mut seats_of = |members: &[u32], wants: &mut Vec<u32>| {
        let mut resident = vec![0.0_f32; capacity.len()];
        for &task in members {
            let here = plan.domain(level, task) as usize;
            // A task that never comes along weighs more than those that do; one that is new or rests comes later.
            resident[here] += loads[task as usize] * if plan.stays(task) { 4.0 } else { 1.0 };
        }
        let weight: f32 = members.iter().map(|&task| loads[task as usize]).sum();
        let inside = |domain: usize| {
            let outer = outer.map(|outer| (outer, plan.domain(outer, members[0])));
            let first = level.domains[domain][0] as usize;
            outer.is_none_or(|(outer, domain)| outer.of_cpu[first] == domain)
        };
        let fits =
            (0..room.len()).filter(|&domain| inside(domain) && room[domain] + 0.05 >= weight);
        let best = fits.max_by(|&a, &b| {
            let key = |domain: usize| (resident[domain], room[domain]);
            let ((here_a, room_a), (here_b, room_b)) = (key(a), key(b));
            here_a
                .total_cmp(&here_b)
                .then(room_a.total_cmp(&room_b))
                .then(b.cmp(&a))
        });
        let Some(best) = best else {
            return;
        };
        room[best] -= weight;
        for &task in members {
            wants[task as usize] = best as u32;
        }
    };
    for group in groups(&loads, pairs, largest, 0.0) {
        seats_of(&group, &mut wants);
    }
    wants
}

/// Moves who is not where it is wanted.
fn seat(
    plan: &mut Plan,
    categories: &[Categories],
    level: usize,
    wants: &[u32],
    pairs: &[Sharing],
) {
    let this = &plan.machine.levels()[level];
    let mut shared = vec![0.0_f32; wants.len()];
    for pair in pairs {
        if wants[pair.one as usize] == wants[pair.other as usize] {
            shared[pair.one as usize] += pair.transfers;
            shared[pair.other as usize] += pair.transfers;
        }
    }
    let count = this.domains.len();
    let mut idle: Vec<Vec<u32>> = this.domains.iter().map(|cpus| plan.idle(cpus)).collect();
    // Who leaves a domain, by where it goes; and who would make room there, the best last.
    let mut leaves: Vec<Vec<u32>> = vec![Vec::new(); count * count];
    let mut gives: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (task, &domain) in wants.iter().enumerate() {
        let at = task as u32;
        let here = plan.domain(this, at);
        if !plan.is_free(at) || domain == here {
            continue;
        }
        if domain == NONE {
            gives[here as usize].push(at);
        } else {
            leaves[here as usize * count + domain as usize].push(at);
        }
    }
    let memory = |task: &u32| categories[*task as usize].has(Categories::MEMORY);
    for gives in &mut gives {
        gives.sort_by_key(|task| !memory(task));
    }
    let kind = this.kind;
    let because = |task: u32| Reason::Group(kind, shared[task as usize]);
    for from in 0..count {
        for to in 0..count {
            while let Some(task) = leaves[from * count + to].pop() {
                if let Some(other) =
                    crate::counters::partner(plan, &mut leaves[to * count + from], task)
                {
                    plan.swap(task, because(task), other, because(other));
                } else if let Some(cpu) = plan.take_idle(&mut idle[to], task) {
                    plan.go(task, cpu, because(task));
                } else if let Some(other) = crate::counters::partner(plan, &mut gives[to], task) {
                    let key = plan.task(task).key;
                    let makes_room = if memory(&other) {
                        Reason::Reluctantly(key)
                    } else {
                        Reason::MakesRoom(key)
                    };
                    plan.swap(task, because(task), other, makes_room);
                }
            }
        }
    }
}
