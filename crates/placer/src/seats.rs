//! It is known who shares with whom: groups get a domain each, and as few tasks as possible move for it.

use crate::categories::Categories;
use crate::counters::partner;
use crate::groups::groups;
use crate::plan::{HAIR, Plan, Reason};
use crate::snapshot::{BUSY, Sharing, Snapshot, Thresholds};

/// The share of what crosses now that a new seating must save: below it tasks would be shuffled for nothing.
const WORTH: f32 = 0.1;

/// A task that is elsewhere for more of the time than this is kept where those are with whom it shares.
const WANDERS: f32 = 0.1;

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
    let here: Vec<u32> = plan
        .cpu_of
        .iter()
        .map(|&cpu| this.of_cpu[cpu as usize])
        .collect();
    let above = |domain: u32| {
        let first = this.domains[domain as usize][0] as usize;
        outer.map_or(0, |outer| outer.of_cpu[first])
    };
    // What a pair shares is no reason to move if all of it costs neither 5 %.
    let few = thresholds.coherence * WORTH;
    let mut pairs: Vec<Sharing> = Vec::with_capacity(plan.snapshot.sharing.len());
    let mut before = 0.0;
    for pair in plan
        .snapshot
        .sharing
        .iter()
        .filter(|pair| plan.snapshot.rate(pair) >= few)
    {
        let (one, other) = (here[pair.one as usize], here[pair.other as usize]);
        if above(one) == above(other) {
            let strays = strays_of(plan.snapshot, pair, level);
            pairs.push(*pair);
            before += pair.transfers * apart(one == other, strays);
        }
    }
    if before / 2.0 < thresholds.coherence * BUSY {
        return;
    }
    let capacity: Vec<f32> = this
        .domains
        .iter()
        .map(|cpus| plan.capacity(cpus))
        .collect();
    let wants = wanted(plan, &pairs, &here, above, &capacity);
    let (after, cpu_time) = outcome(plan.snapshot, &pairs, &here, &wants, level);
    // Half of a pair's transfers come to each of the two. What is known of pairs is sampled, and a new division of tasks
    // that all share alike looks better by chance: so each task that moves must save what the threshold says is worth it.
    let saved = before - after;
    let worth = saved >= WORTH * before && saved / 2.0 >= thresholds.coherence * cpu_time;
    if worth {
        seat(plan, categories, level, &wants, &pairs);
    }
}

/// The share of the time that two tasks are in different domains, by whether they mostly are in the same and how much
/// of the time each strays from there; as if there were two domains.
#[must_use]
pub fn apart(same: bool, [one, other]: [f32; 2]) -> f32 {
    let swapped = one + other - 2.0 * one * other;
    if same { swapped } else { 1.0 - swapped }
}

fn strays_of(snapshot: &Snapshot, pair: &Sharing, level: usize) -> [f32; 2] {
    [pair.one, pair.other].map(|task| snapshot.tasks[task as usize].strays[level])
}

/// Transfers a second between domains if everybody is where it is wanted and stays there, and the CPU time of those who move
/// for it; if nobody does, of whoever has least of those who stay.
fn outcome(
    snapshot: &Snapshot,
    pairs: &[Sharing],
    here: &[u32],
    wants: &[u32],
    level: usize,
) -> (f32, f32) {
    let both = here.iter().zip(wants);
    let there: Vec<u32> = both
        .map(|(&here, &want)| if want == NONE { here } else { want })
        .collect();
    let crosses = pairs.iter().map(|pair| {
        let tasks = [pair.one as usize, pair.other as usize];
        let [one, other] = tasks.map(|task| there[task]);
        let strays = tasks.map(|task| match wants[task] {
            NONE => snapshot.tasks[task].strays[level],
            _ => 0.0,
        });
        pair.transfers * apart(one == other, strays)
    });
    let after = crosses.sum();
    let cpu_time = |task: usize| snapshot.cpu_time(task as u32);
    let moved: f32 = (0..here.len())
        .filter(|&task| here[task] != there[task])
        .map(cpu_time)
        .sum();
    let held = (0..here.len()).filter(|&task| wants[task] != NONE);
    let least = || held.map(cpu_time).fold(1.0, f32::min);
    (after, if moved > 0.0 { moved } else { least() })
}

/// The domain that each task is to be in; [`NONE`] if it does not matter. `here` has the domain of each, and `above` the
/// outer domain of one, which is not left.
fn wanted(
    plan: &Plan,
    pairs: &[Sharing],
    here: &[u32],
    above: impl Fn(u32) -> u32,
    capacity: &[f32],
) -> Vec<u32> {
    let loads = plan
        .snapshot
        .tasks
        .iter()
        .map(|task| task.activity.load.max(0.05));
    let loads: Vec<f32> = loads.collect();
    let largest = capacity.iter().copied().fold(0.0, f32::max);
    let mut room = capacity.to_vec();
    let mut wants = vec![NONE; here.len()];
    let mut resident = vec![0.0_f32; capacity.len()];
    for members in groups(&loads, pairs, largest, 0.0) {
        resident.fill(0.0);
        let mut weight = 0.0;
        for &task in &members {
            let load = loads[task as usize];
            // A task that never comes along weighs more than those that do; one that is new or rests comes later.
            resident[here[task as usize] as usize] +=
                load * if plan.stays(task) { 4.0 } else { 1.0 };
            weight += load;
        }
        let outer = above(here[members[0] as usize]);
        let fits = (0..room.len())
            .filter(|&domain| room[domain] + HAIR >= weight && above(domain as u32) == outer);
        // Where most of them are already, then where there is most room.
        let best = fits.max_by(|&a, &b| {
            let residents = resident[a].total_cmp(&resident[b]);
            residents.then(room[a].total_cmp(&room[b])).then(b.cmp(&a))
        });
        let Some(best) = best else {
            continue;
        };
        room[best] -= weight;
        for &task in &members {
            wants[task as usize] = best as u32;
        }
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
        if !plan.is_free(at) {
            continue;
        }
        if domain == here {
            let cpu = plan.cpu_of[task];
            if plan.task(at).strays[level] > WANDERS && plan.may_run_on(at, cpu) {
                plan.go(at, cpu, Reason::Stay(this.kind, shared[task]));
            }
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
                if let Some(other) = partner(plan, &mut leaves[to * count + from], task) {
                    plan.swap(task, because(task), other, because(other));
                } else if let Some(cpu) = plan.take_idle(&mut idle[to], task) {
                    plan.go(task, cpu, because(task));
                } else if let Some(cpu) = plan.with_room(&this.domains[to], task) {
                    plan.go(task, cpu, because(task));
                } else if let Some(other) = partner(plan, &mut gives[to], task) {
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
