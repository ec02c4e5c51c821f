//! Runs of all workloads under all policies, and what they come to.

use std::collections::BTreeMap;

use linewise_placer::Thresholds;
use rayon::prelude::*;
use serde::Serialize;

use crate::machine::{MachineKind, SimulatedMachine};
use crate::policy::{self, Hold, PolicyKind, oracle};
use crate::program::Program;
use crate::random::Random;
use crate::workloads::{Workload, WorkloadKind};
use crate::world::{INTERVAL_SECONDS, World};

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Seeds, from 1.
    pub seeds: u64,
    /// Seconds of each run.
    pub seconds: f64,
    /// Steps of the oracle's search.
    pub steps: usize,
}

impl Effort {
    /// That of the full tables.
    pub const FULL: Self = Self {
        seeds: 20,
        seconds: 30.0,
        steps: 3000,
    };
    /// For a look, and for tests.
    pub const QUICK: Self = Self {
        seeds: 3,
        seconds: 10.0,
        steps: 400,
    };
}

/// How the placer is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// All thresholds times this.
    pub thresholds: f32,
    /// What holds tasks where they were moved.
    pub hold: Hold,
}

impl Default for Setup {
    /// As measured, and held by domain.
    fn default() -> Self {
        Self {
            thresholds: 1.0,
            hold: Hold::Domain,
        }
    }
}

/// What a policy made of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Progress over that of the static oracle with the program alone: geometric mean over programs and seeds.
    pub speedup: f64,
    /// The same of the slowest program.
    pub min: f64,
    /// The same of the fastest.
    pub max: f64,
    /// Moves of a run, mean.
    pub moves: f64,
    /// Moves later than 2 s after its begin, the most of any run.
    pub late_moves: u64,
}

/// What the policies made of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The workload's name.
    pub name: String,
    /// What it is for.
    pub kind: WorkloadKind,
    /// Whether its tasks share.
    pub shares: bool,
    /// Whether groups and processes differ.
    pub spans: bool,
    /// Whether no task changes its behaviour.
    pub constant: bool,
    /// The machine's name.
    pub machine: &'static str,
    /// Migrations by SAM in the paper.
    pub paper_moves: Option<u32>,
    /// By policy.
    pub policies: BTreeMap<PolicyKind, Outcome>,
}

/// One run: useful cycles of each program, and moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Useful cycles of each program.
    pub work: Vec<f64>,
    /// Moves of the policy.
    pub moves: u64,
    /// Those after 2 s.
    pub late_moves: u64,
}

/// A machine and programs, with the static placement that search found to be best.
#[derive(Clone, Debug)]
pub struct Case {
    machine: SimulatedMachine,
    programs: Vec<Program>,
    oracle: Vec<u32>,
}

impl Case {
    /// Searches the oracle's placement by so many steps.
    #[must_use]
    pub fn new(machine: MachineKind, programs: &[Program], steps: usize) -> Self {
        let machine = machine.build();
        let oracle = oracle::search(&machine, programs, steps);
        Self {
            machine,
            programs: programs.to_vec(),
            oracle,
        }
    }

    /// Simulates one policy.
    #[must_use]
    pub fn run(&self, kind: PolicyKind, setup: Setup, seed: u64, seconds: f64) -> Run {
        let mut world = World::new(&self.machine, &self.programs, seed);
        let mut random = Random::new(seed, 2);
        let thresholds: Thresholds = self.machine.thresholds.times(setup.thresholds);
        let mut policy = policy::build(
            kind,
            &world,
            &self.oracle,
            thresholds,
            setup.hold,
            &mut random,
        );
        let (mut moves, mut late_moves) = (0, 0);
        for interval in 0..(seconds / INTERVAL_SECONDS).round() as u64 {
            for task in world.turn_over() {
                let (cpu, allowed) = policy.place(&world, task, &mut random);
                world.bear(task, cpu, allowed);
            }
            let moved = policy.act(&mut world, &mut random);
            moves += moved;
            if interval as f64 * INTERVAL_SECONDS > 2.0 {
                late_moves += moved;
            }
            world.run();
        }
        Run {
            work: world.work(),
            moves,
            late_moves,
        }
    }
}

/// Useful cycles of each program alone under the static oracle, by machine, program and seed.
type Alone = BTreeMap<(MachineKind, String), Vec<f64>>;

/// Workloads with the best static placements that search found, alone and together.
#[derive(Clone, Debug)]
pub struct Experiment {
    workloads: Vec<Workload>,
    cases: Vec<Case>,
    alone: Alone,
    effort: Effort,
}

impl Experiment {
    /// Searches, and simulates each program alone.
    #[must_use]
    pub fn new(workloads: Vec<Workload>, effort: Effort) -> Self {
        let case =
            |workload: &Workload| Case::new(workload.machine, &workload.programs, effort.steps);
        Self {
            cases: workloads.par_iter().map(case).collect(),
            alone: alone(&workloads, effort),
            workloads,
            effort,
        }
    }

    /// Simulates those workloads that are wanted under `policies`; `told` hears of each that is done.
    #[must_use]
    pub fn rows(
        &self,
        policies: &[PolicyKind],
        setup: Setup,
        wanted: impl Fn(&Workload) -> bool,
        told: &(dyn Fn(&str) + Sync),
    ) -> Vec<Row> {
        let pairs = self.workloads.iter().zip(&self.cases);
        let pairs: Vec<(&Workload, &Case)> =
            pairs.filter(|(workload, _)| wanted(workload)).collect();
        let row = |&(workload, case): &(&Workload, &Case)| {
            let outcome = |&kind: &PolicyKind| (kind, self.outcome(case, workload, kind, setup));
            let row = Row {
                name: workload.name.clone(),
                kind: workload.kind,
                shares: workload.shares,
                spans: workload.spans,
                constant: workload
                    .programs
                    .iter()
                    .all(|program| program.phases.len() == 1),
                machine: case.machine.name,
                paper_moves: workload.paper_moves,
                policies: policies.iter().map(outcome).collect(),
            };
            told(&workload.name);
            row
        };
        pairs.par_iter().map(row).collect()
    }

    fn outcome(&self, case: &Case, workload: &Workload, kind: PolicyKind, setup: Setup) -> Outcome {
        let (effort, alone) = (self.effort, &self.alone);
        let (mut logs, mut mins, mut maxs) = (0.0, 0.0, 0.0);
        let (mut moves, mut late_moves) = (0, 0);
        for seed in 1..=effort.seeds {
            let run = case.run(kind, setup, seed, effort.seconds);
            let ratio = |(program, work): (&Program, &f64)| {
                let alone = alone.get(&(workload.machine, program.name.clone()));
                let alone = alone.map_or(f64::NAN, |works| works[(seed - 1) as usize]);
                (work / alone).max(1e-9).ln()
            };
            let ratios: Vec<f64> = workload.programs.iter().zip(&run.work).map(ratio).collect();
            logs += ratios.iter().sum::<f64>() / ratios.len() as f64;
            mins += ratios.iter().copied().fold(f64::INFINITY, f64::min);
            maxs += ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            moves += run.moves;
            late_moves = late_moves.max(run.late_moves);
        }
        let seeds = effort.seeds.max(1) as f64;
        Outcome {
            speedup: (logs / seeds).exp(),
            min: (mins / seeds).exp(),
            max: (maxs / seeds).exp(),
            moves: moves as f64 / seeds,
            late_moves,
        }
    }
}

fn alone(workloads: &[Workload], effort: Effort) -> Alone {
    let mut programs: Vec<(MachineKind, &Program)> = Vec::new();
    for workload in workloads {
        programs.extend(
            workload
                .programs
                .iter()
                .map(|program| (workload.machine, program)),
        );
    }
    programs.sort_by(|(a, one), (b, other)| (a, &one.name).cmp(&(b, &other.name)));
    programs.dedup_by(|(a, one), (b, other)| a == b && one == other);
    let works = programs.par_iter().map(|&(machine, program)| {
        let case = Case::new(machine, std::slice::from_ref(program), effort.steps);
        let run = |seed| {
            case.run(PolicyKind::Oracle, Setup::default(), seed, effort.seconds)
                .work[0]
        };
        (
            (machine, program.name.clone()),
            (1..=effort.seeds).map(run).collect(),
        )
    });
    works.collect()
}
