//! The best placement that never changes: all ways to divide up to eight tasks among the last-level caches, then
//! annealing over CPUs; above eight tasks annealing from several beginnings.

use crate::cost::{Running, rates};
use crate::machine::SimulatedMachine;
use crate::program::Program;
use crate::random::Random;

/// Tasks up to which all divisions are tried.
const ALL_TRIED: usize = 8;
/// Moments of the programs' phases that a placement is judged by.
const MOMENTS: usize = 4;

/// A task of the search.
struct Slot {
    program: usize,
    thread: usize,
    partners: Vec<(u32, f64)>,
}

struct Search<'a> {
    machine: &'a SimulatedMachine,
    programs: &'a [Program],
    slots: Vec<Slot>,
}

/// The CPU of each task, bursts included; `steps` of annealing.
pub(crate) fn search(machine: &SimulatedMachine, programs: &[Program], steps: usize) -> Vec<u32> {
    let mut slots = Vec::new();
    for (program, one) in programs.iter().enumerate() {
        let first = slots.len();
        for thread in 0..one.slots() {
            let partners = one.pattern.partners(thread, one.slots());
            let weight = 1.0 / partners.len().max(1) as f64;
            let partners = partners
                .into_iter()
                .map(|other| ((first + other) as u32, weight));
            slots.push(Slot {
                program,
                thread,
                partners: partners.collect(),
            });
        }
    }
    let search = Search {
        machine,
        programs,
        slots,
    };
    let mut random = Random::new(7, 3);
    let mut best = (f64::NEG_INFINITY, Vec::new());
    for start in search.starts() {
        let value = search.value(&start);
        if value > best.0 {
            best = (value, start);
        }
    }
    search.anneal(best, steps, &mut random)
}

impl Search<'_> {
    /// The sum of the logarithms of the programs' speeds, over moments of their phases.
    fn value(&self, cpus: &[u32]) -> f64 {
        let mut sum = 0.0;
        let constant = self
            .programs
            .iter()
            .all(|program| program.phases.len() == 1);
        let moments = if constant { 1 } else { MOMENTS };
        for moment in 0..moments {
            let running = self.running(cpus, moment);
            let mut speed = vec![0.0; self.programs.len()];
            for (one, rates) in running.iter().zip(rates(self.machine, &running)) {
                speed[one.program as usize] += rates.share * rates.useful;
            }
            sum += speed
                .iter()
                .map(|speed: &f64| speed.max(1e-9).ln())
                .sum::<f64>();
        }
        sum / moments as f64
    }

    fn running<'a>(&'a self, cpus: &[u32], moment: usize) -> Vec<Running<'a>> {
        let phase_of = |program: usize| {
            let one = &self.programs[program];
            let all: f64 = one.phases.iter().map(|phase| phase.seconds.min(1e3)).sum();
            let at = (moment as f64 + 0.5) / MOMENTS as f64 + program as f64 * 0.618;
            let mut left = at.fract() * all;
            let found = one.phases.iter().find(|phase| {
                left -= phase.seconds.min(1e3);
                left <= 0.0
            });
            found.unwrap_or(&one.phases[0])
        };
        let mut firsts = vec![None; self.programs.len()];
        for (slot, &cpu) in self.slots.iter().zip(cpus) {
            firsts[slot.program].get_or_insert(self.machine.socket[cpu as usize]);
        }
        let mut running = Vec::with_capacity(cpus.len());
        for (task, (slot, &cpu)) in self.slots.iter().zip(cpus).enumerate() {
            let phase = phase_of(slot.program);
            if slot.thread >= self.programs[slot.program].threads + phase.extra {
                continue;
            }
            let home = self.machine.socket[cpu as usize];
            running.push(Running {
                task: task as u32,
                cpu,
                program: slot.program as u32,
                phase,
                home,
                shared_home: firsts[slot.program].unwrap_or(home),
                partners: &slot.partners,
            });
        }
        running
    }

    /// Placements to begin with.
    fn starts(&self) -> Vec<Vec<u32>> {
        let llcs = self.machine.cpus_of_llc.len();
        let count = self.slots.len();
        if count <= ALL_TRIED {
            let mut all = Vec::new();
            divide(&mut vec![0; count], 0, 0, llcs, &mut |division| {
                all.push(self.seat(division))
            });
            return all;
        }
        let even = count.div_ceil(llcs);
        let cores = self.machine.cores_of_llc(0);
        let mut starts = vec![
            (0..count).map(|at| at % llcs).collect::<Vec<usize>>(),
            (0..count).map(|at| at / even).collect(),
            (0..count).map(|at| at / cores % llcs).collect(),
            self.by_group(cores),
            self.by_group(cores * 2),
        ];
        let by_program = self.slots.iter().map(|slot| slot.program % llcs);
        starts.push(by_program.collect());
        starts
            .into_iter()
            .map(|division| self.seat(&division))
            .collect()
    }

    /// Those that share with each other together, as long as there is room.
    fn by_group(&self, room: usize) -> Vec<usize> {
        let llcs = self.machine.cpus_of_llc.len();
        let mut division = vec![usize::MAX; self.slots.len()];
        let mut used = vec![0; llcs];
        for at in 0..self.slots.len() {
            if division[at] != usize::MAX {
                continue;
            }
            let group: Vec<usize> = std::iter::once(at)
                .chain(
                    self.slots[at]
                        .partners
                        .iter()
                        .map(|&(other, _)| other as usize),
                )
                .filter(|&other| division[other] == usize::MAX)
                .collect();
            for other in group {
                let here = division[at];
                let same = (here != usize::MAX && used[here] < room).then_some(here);
                let llc = same
                    .or_else(|| (0..llcs).min_by_key(|&llc| used[llc]))
                    .unwrap_or(0);
                division[other] = llc;
                used[llc] += 1;
            }
        }
        division
    }

    /// Gives each task a CPU of its last-level cache: first one on each core.
    fn seat(&self, division: &[usize]) -> Vec<u32> {
        let mut used = vec![0_usize; self.machine.cpus_of_llc.len()];
        let seat = |&llc: &usize| {
            let cpus = &self.machine.cpus_of_llc[llc];
            let cpu = cpus[used[llc] % cpus.len()];
            used[llc] += 1;
            cpu
        };
        division.iter().map(seat).collect()
    }

    /// Improves a placement by moves and exchanges; worse ones are taken at first, too.
    fn anneal(&self, start: (f64, Vec<u32>), steps: usize, random: &mut Random) -> Vec<u32> {
        let (mut value, mut cpus) = start;
        let mut best = (value, cpus.clone());
        let count = cpus.len();
        for step in 0..steps {
            let heat = 0.02 * (1.0 - step as f64 / steps as f64).powi(2) + 1e-9;
            let one = random.below(count);
            let to = random.below(self.machine.len()) as u32;
            let other = cpus.iter().position(|&cpu| cpu == to);
            let from = cpus[one];
            cpus[one] = to;
            if let Some(other) = other {
                cpus[other] = from;
            }
            let now = self.value(&cpus);
            if now >= value || random.unit() < ((now - value) / heat).exp() {
                value = now;
                if value > best.0 {
                    best = (value, cpus.clone());
                }
            } else {
                if let Some(other) = other {
                    cpus[other] = to;
                }
                cpus[one] = from;
            }
        }
        best.1
    }
}

/// All divisions of tasks among domains that are alike.
fn divide(
    division: &mut Vec<usize>,
    at: usize,
    used: usize,
    domains: usize,
    visit: &mut impl FnMut(&[usize]),
) {
    if at == division.len() {
        visit(division);
        return;
    }
    for domain in 0..domains.min(used + 1) {
        division[at] = domain;
        divide(division, at + 1, used.max(domain + 1), domains, visit);
    }
}
