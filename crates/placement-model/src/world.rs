//! The simulated machine at work: tasks are born and end, run where they are, and get done what that allows.

use crate::assumptions as assumed;
use crate::cost::{Rates, Running, rates};
use crate::machine::SimulatedMachine;
use crate::program::{Phase, Program};
use crate::random::Random;

/// Seconds of an interval: SAM decides at 100 ms (section 3.2).
pub const INTERVAL_SECONDS: f64 = 0.1;

/// Where a task may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Everywhere,
    Llc(u32),
    Cpu(u32),
}

/// A thread, or the room for one of a burst.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) program: u32,
    pub(crate) process: u32,
    pub(crate) partners: Vec<(u32, f64)>,
    /// When it was born, in intervals; `None` while it does not live.
    pub(crate) born: Option<u64>,
    pub(crate) cpu: u32,
    pub(crate) allowed: Allowed,
    home: u32,
    /// Cycles that filling the caches still takes.
    warm_up: f64,
    /// Lines that come from the cache it left.
    dirty: f64,
    /// What it got done in the last interval.
    pub(crate) last: Seen,
}

/// What happened to a task in an interval, before anybody measures it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) rates: Rates,
    pub(crate) instructions: f64,
}

/// How far a program is.
#[derive(Clone, Debug)]
struct Progress {
    phase: usize,
    done: f64,
    needed: f64,
    /// Useful cycles of all its threads until now.
    total: f64,
    shared_home: Option<u32>,
}

/// The machine with its tasks.
#[derive(Clone, Debug)]
pub(crate) struct World<'a> {
    pub(crate) machine: &'a SimulatedMachine,
    pub(crate) programs: &'a [Program],
    pub(crate) tasks: Vec<Task>,
    pub(crate) interval: u64,
    /// Tasks on each CPU.
    pub(crate) on_cpu: Vec<u32>,
    /// Tasks that changed their CPU, whoever moved them.
    pub(crate) migrations: u64,
    progress: Vec<Progress>,
    random: Random,
}

impl<'a> World<'a> {
    /// No task lives yet.
    pub(crate) fn new(machine: &'a SimulatedMachine, programs: &'a [Program], seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let mut tasks = Vec::new();
        let mut processes = 0;
        for (at, program) in programs.iter().enumerate() {
            let first = tasks.len();
            let slots = program.slots();
            let mut last = 0;
            for thread in 0..slots {
                let within = program.process(thread.min(program.threads.saturating_sub(1)));
                last = last.max(within);
                let partners = program.pattern.partners(thread, slots);
                let weight = 1.0 / (partners.len().max(1)) as f64;
                let partners = partners
                    .into_iter()
                    .map(|other| ((first + other) as u32, weight));
                tasks.push(Task {
                    program: at as u32,
                    process: (processes + within) as u32,
                    partners: partners.collect(),
                    born: None,
                    cpu: 0,
                    allowed: Allowed::Everywhere,
                    home: 0,
                    warm_up: 0.0,
                    dirty: 0.0,
                    last: Seen::default(),
                });
            }
            processes += last + 1;
        }
        let mut progress: Vec<Progress> = Vec::new();
        for program in programs {
            let mut one = Progress {
                phase: random.below(program.phases.len()),
                done: 0.0,
                needed: 0.0,
                total: 0.0,
                shared_home: None,
            };
            one.needed = needed(machine, program, one.phase, &mut random);
            // Programs do not begin at the same moment.
            one.done = if one.needed.is_finite() {
                one.needed * random.unit()
            } else {
                0.0
            };
            progress.push(one);
        }
        Self {
            machine,
            programs,
            tasks,
            interval: 0,
            on_cpu: vec![0; machine.len()],
            migrations: 0,
            progress,
            random,
        }
    }

    /// Ends the tasks that the phases no longer have, and names those that are to be born, in the order of their
    /// creation: programs create theirs at the same time.
    pub(crate) fn turn_over(&mut self) -> Vec<u32> {
        let mut queues: Vec<Vec<u32>> = Vec::new();
        let mut at = 0;
        for (program, progress) in self.programs.iter().zip(&self.progress) {
            let live = program.threads + program.phases[progress.phase].extra;
            let mut queue = Vec::new();
            for thread in 0..program.slots() {
                let task = &mut self.tasks[at];
                match (thread < live, task.born) {
                    (true, None) => queue.push(at as u32),
                    (false, Some(_)) => {
                        self.on_cpu[task.cpu as usize] -= 1;
                        task.born = None;
                    }
                    _ => {}
                }
                at += 1;
            }
            queue.reverse();
            queues.push(queue);
        }
        let mut order: Vec<usize> = Vec::new();
        for (program, queue) in queues.iter().enumerate() {
            order.extend(std::iter::repeat_n(program, queue.len()));
        }
        self.random.shuffle(&mut order);
        order
            .into_iter()
            .filter_map(|program| queues[program].pop())
            .collect()
    }

    /// A task begins on this CPU, where it touches its pages.
    pub(crate) fn bear(&mut self, task: u32, cpu: u32, allowed: Allowed) {
        let node = self.machine.socket[cpu as usize];
        let one = &mut self.tasks[task as usize];
        (one.cpu, one.allowed, one.home) = (cpu, allowed, node);
        (one.warm_up, one.dirty, one.last) = (0.0, 0.0, Seen::default());
        one.born = Some(self.interval);
        self.on_cpu[cpu as usize] += 1;
        self.progress[one.program as usize]
            .shared_home
            .get_or_insert(node);
    }

    /// A task goes to another CPU, where caches must fill.
    pub(crate) fn migrate(&mut self, task: u32, to: u32) {
        let from = self.tasks[task as usize].cpu;
        if from == to {
            return;
        }
        let machine = self.machine;
        let phase = *self.phase(task);
        let (costs, one) = (&machine.costs, &mut self.tasks[task as usize]);
        let is_far = machine.llc[from as usize] != machine.llc[to as usize];
        let (bytes, cycles) = if is_far {
            let common = phase.shared_bytes / machine.cpus_of_llc.len() as f64;
            (
                (phase.private_bytes + common).min(costs.llc_bytes),
                costs.remote_cycles,
            )
        } else {
            (
                phase.private_bytes.min(costs.private_bytes),
                costs.transfer_cycles[0],
            )
        };
        let is_core = machine.core[from as usize] == machine.core[to as usize];
        if !is_core {
            let lines = bytes / assumed::LINE_BYTES;
            one.warm_up = lines * cycles / assumed::WARM_UP_PARALLEL;
            one.dirty = if is_far { lines * assumed::DIRTY } else { 0.0 };
        }
        one.cpu = to;
        self.on_cpu[from as usize] -= 1;
        self.on_cpu[to as usize] += 1;
        self.migrations += 1;
    }

    pub(crate) fn phase(&self, task: u32) -> &'a Phase {
        let program = self.tasks[task as usize].program as usize;
        &self.programs[program].phases[self.progress[program].phase]
    }

    /// The tasks that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = u32> + '_ {
        let lives = |task: &u32| self.tasks[*task as usize].born.is_some();
        (0..self.tasks.len() as u32).filter(lives)
    }

    /// Whether a task may run there.
    pub(crate) fn may_run_on(&self, task: u32, cpu: u32) -> bool {
        match self.tasks[task as usize].allowed {
            Allowed::Everywhere => true,
            Allowed::Llc(llc) => self.machine.llc[cpu as usize] == llc,
            Allowed::Cpu(only) => only == cpu,
        }
    }

    /// All run for an interval.
    pub(crate) fn run(&mut self) {
        let living: Vec<u32> = self.living().collect();
        let running = living.iter().map(|&task| {
            let one = &self.tasks[task as usize];
            let progress = &self.progress[one.program as usize];
            Running {
                task,
                cpu: one.cpu,
                program: one.program,
                phase: self.phase(task),
                home: one.home,
                shared_home: progress.shared_home.unwrap_or(one.home),
                partners: &one.partners,
            }
        });
        let running: Vec<Running<'_>> = running.collect();
        let all = rates(self.machine, &running);
        let ipcs: Vec<f64> = running.iter().map(|one| one.phase.ipc).collect();
        let cycles = self.machine.costs.frequency_hz * INTERVAL_SECONDS;
        for ((&task, mut rates), ipc) in living.iter().zip(all).zip(ipcs) {
            let one = &mut self.tasks[task as usize];
            let own = cycles * rates.share;
            let lost = one.warm_up.min(own);
            one.warm_up -= lost;
            let useful = (own - lost) * rates.useful;
            rates.transfers[2] += one.dirty / own;
            one.dirty = 0.0;
            one.last = Seen {
                rates,
                instructions: useful * ipc,
            };
            let progress = &mut self.progress[one.program as usize];
            progress.done += useful;
            progress.total += useful;
        }
        self.interval += 1;
        for (program, progress) in self.programs.iter().zip(&mut self.progress) {
            if progress.done >= progress.needed {
                progress.phase = (progress.phase + 1) % program.phases.len();
                progress.done = 0.0;
                progress.needed = needed(self.machine, program, progress.phase, &mut self.random);
            }
        }
    }

    /// Useful cycles of each program until now.
    pub(crate) fn work(&self) -> Vec<f64> {
        self.progress
            .iter()
            .map(|progress| progress.total)
            .collect()
    }
}

/// Useful cycles of all threads until a phase ends: a fifth more or less each time.
fn needed(machine: &SimulatedMachine, program: &Program, phase: usize, random: &mut Random) -> f64 {
    let phase = &program.phases[phase];
    let threads = (program.threads + phase.extra) as f64;
    let varied = 0.8 + 0.4 * random.unit();
    phase.seconds * varied * threads * machine.costs.frequency_hz
}
