//! What a policy sees of an interval: counters with their noise, or sharing as it is sampled.

use linewise_placer::{Activity, Mask, Sharing, Snapshot, Task as Seen, TaskKey};
use linewise_topology::CpuSet;

use crate::assumptions as assumed;
use crate::random::Random;
use crate::world::{INTERVAL_SECONDS, World};

/// What counters would tell; in the order of their keys, with the places of the tasks in the world.
pub(crate) fn snapshot(world: &World<'_>, random: &mut Random) -> (Snapshot, Vec<u32>) {
    let everywhere: CpuSet = (0..world.machine.len() as u32).collect();
    // Who was born in this interval was not seen yet.
    let seen = |task: &u32| {
        world.tasks[*task as usize]
            .born
            .is_some_and(|born| born < world.interval)
    };
    let places: Vec<u32> = world.living().filter(seen).collect();
    let tasks = places.iter().map(|&task| {
        let one = &world.tasks[task as usize];
        Seen {
            key: TaskKey {
                tid: task,
                start: one.born.unwrap_or(0),
            },
            process: one.process,
            cpu: one.cpu,
            strays: [0.0; 2],
            mask: 0,
            activity: activity(world, task, random),
        }
    });
    let snapshot = Snapshot {
        tasks: tasks.collect(),
        masks: vec![Mask::new(&world.machine.placer, &everywhere)],
        sharing: Vec::new(),
        other_load: Vec::new(),
    };
    (snapshot, places)
}

fn activity(world: &World<'_>, task: u32, random: &mut Random) -> Activity {
    let last = &world.tasks[task as usize].last;
    let hertz = world.machine.costs.frequency_hz;
    let mut counted = |rate: f64, deviation: f64| {
        (rate * hertz + deviation * hertz * random.normal()).max(0.0) as f32
    };
    let rates = &last.rates;
    let mut counted_event = |rate: f64| counted(rate, rate * assumed::COUNTER_NOISE);
    let llc = counted_event(rates.transfers[1]);
    let socket = counted_event(rates.transfers[2]);
    let remote = counted_event(rates.remote);
    let misses = counted_event(rates.misses);
    // Transfers within are what is left of the private caches' misses.
    let core = counted(
        rates.transfers[0],
        rates.private_misses * assumed::REST_NOISE,
    );
    Activity {
        load: 1.0,
        executed: last.rates.share as f32,
        transfers: [core, llc, socket],
        remote,
        misses,
        progress: Some((last.instructions * (1.0 + 0.02 * random.normal())) as f32),
    }
}

/// Sharing between pairs, from few samples.
#[derive(Clone, Debug)]
pub(crate) struct SampledSharing {
    /// Of each pair (smaller, larger), what is estimated, not yet divided by `weight`.
    estimate: Vec<f64>,
    born: Vec<Option<u64>>,
    weight: f64,
}

impl SampledSharing {
    pub(crate) fn new(tasks: usize) -> Self {
        Self {
            estimate: vec![0.0; tasks * tasks],
            born: vec![None; tasks],
            weight: 0.0,
        }
    }

    /// Takes in the last interval.
    pub(crate) fn sample(&mut self, world: &World<'_>, random: &mut Random) {
        let count = world.tasks.len();
        let mut rates = vec![0.0; count * count];
        let lines = world.machine.costs.frequency_hz;
        for (at, task) in world.tasks.iter().enumerate() {
            if self.born[at] != task.born {
                for other in 0..count {
                    self.estimate[at * count + other] = 0.0;
                    self.estimate[other * count + at] = 0.0;
                }
                self.born[at] = task.born;
            }
            if task.born.is_none_or(|born| born >= world.interval) {
                continue;
            }
            let events = world.phase(at as u32).transfers * task.last.rates.useful;
            let lives = |&&(other, _): &&(u32, f64)| world.tasks[other as usize].born.is_some();
            let living = || task.partners.iter().filter(lives);
            let weights: f64 = living().map(|(_, weight)| weight).sum();
            for &(other, weight) in living() {
                let there = world.tasks[other as usize].cpu;
                if world.machine.crossing(task.cpu, there).is_some() {
                    let (one, two) = (at.min(other as usize), at.max(other as usize));
                    rates[one * count + two] +=
                        events * weight / weights * lines * task.last.rates.share;
                }
            }
        }
        let all: f64 = rates.iter().sum();
        self.weight = self.weight * assumed::MEMORY + 1.0 - assumed::MEMORY;
        let told = all * (1.0 + assumed::COUNTER_NOISE * random.normal());
        // No more can be seen than there are.
        let samples = assumed::SAMPLES.min(all * INTERVAL_SECONDS);
        for (estimate, rate) in self.estimate.iter_mut().zip(rates) {
            *estimate *= assumed::MEMORY;
            if rate > 0.0 {
                let seen = random.poisson(samples * rate / all) / samples;
                *estimate += (1.0 - assumed::MEMORY) * seen * told;
            }
        }
    }

    /// What is estimated of these tasks, in their order.
    pub(crate) fn pairs(&self, places: &[u32]) -> Vec<Sharing> {
        let count = self.born.len();
        let mut pairs = Vec::new();
        for (one, &a) in places.iter().enumerate() {
            for (other, &b) in places.iter().enumerate().skip(one + 1) {
                let transfers =
                    self.estimate[a as usize * count + b as usize] / self.weight.max(0.01);
                if transfers >= 1.0 {
                    pairs.push(Sharing {
                        one: one as u32,
                        other: other as u32,
                        transfers: transfers as f32,
                    });
                }
            }
        }
        pairs
    }
}
