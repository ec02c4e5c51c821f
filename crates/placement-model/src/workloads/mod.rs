//! The workloads: SAM's tables, machines with more caches than sockets, and what no placer can help.

mod catalogue;

pub use catalogue::{TABLE_1, TABLE_2, hubench, program};

use serde::Serialize;

use crate::machine::MachineKind;
use crate::program::{Pattern, Phase, Processes, Program};

/// What a workload is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// A program of table 1 alone.
    Standalone,
    /// Several at once.
    Mix,
    /// A placer can only lose.
    Losing,
}

/// Programs that run together on a machine.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: WorkloadKind,
    /// Whether tasks share so much that distance costs.
    pub shares: bool,
    /// Whether a process has several groups, or groups span processes: what cache-aware scheduling does not see.
    pub spans: bool,
    /// Migrations that SAM made of it (table 1).
    pub paper_moves: Option<u32>,
    /// Where it runs.
    pub machine: MachineKind,
    /// What runs.
    pub programs: Vec<Program>,
}

/// All workloads.
#[must_use]
pub fn workloads() -> Vec<Workload> {
    let mut all = standalone();
    all.extend(mixes());
    all.extend(groups());
    all.extend(losing());
    all
}

fn shares(programs: &[Program]) -> bool {
    let mut phases = programs.iter().flat_map(|program| &program.phases);
    phases.any(|phase| phase.transfers > 7e-4)
}

fn standalone() -> Vec<Workload> {
    let one = |&(name, threads, moves): &(&str, usize, u32)| {
        let program = program(name, threads);
        Workload {
            name: program.name.clone(),
            kind: WorkloadKind::Standalone,
            shares: shares(std::slice::from_ref(&program)),
            spans: false,
            paper_moves: Some(moves),
            machine: MachineKind::TwoSockets,
            programs: vec![program],
        }
    };
    TABLE_1.iter().map(one).collect()
}

fn mixes() -> Vec<Workload> {
    let one = |(at, parts): (usize, &&[(&str, usize)])| {
        let programs: Vec<Program> = parts
            .iter()
            .map(|&(name, threads)| program(name, threads))
            .collect();
        Workload {
            name: format!("mix {}", at + 1),
            kind: WorkloadKind::Mix,
            shares: shares(&programs),
            spans: false,
            paper_moves: None,
            machine: MachineKind::TwoSockets,
            programs,
        }
    };
    TABLE_2.iter().enumerate().map(one).collect()
}

/// Transfers a useful cycle of threads that share much on the machines of chiplets: where each transfer crosses, half of
/// the time is waiting for lines.
const MUCH: f64 = 4e-3;

fn grouped(name: &str, threads: usize, groups: usize, processes: Processes) -> Program {
    let phase = Phase::COMPUTES.sharing(MUCH);
    Program::new(name, threads, Pattern::Groups(groups), &[phase]).in_processes(processes)
}

fn groups() -> Vec<Workload> {
    use MachineKind::{EightLlcs, TwoByFourLlcs, TwoSockets};
    let workload = |name: &str, machine, programs: Vec<Program>| Workload {
        name: name.to_owned(),
        kind: WorkloadKind::Mix,
        shares: true,
        spans: true,
        paper_moves: None,
        machine,
        programs,
    };
    let one = Processes::One;
    let piped = Program::new(
        "pipe",
        12,
        Pattern::Pipeline,
        &[Phase::COMPUTES.sharing(MUCH)],
    );
    vec![
        workload(
            "2 groups of 6, 1 process",
            EightLlcs,
            vec![grouped("two", 12, 2, one)],
        ),
        workload(
            "2 groups in each of 3",
            EightLlcs,
            vec![
                grouped("a", 12, 2, one),
                grouped("b", 12, 2, one),
                grouped("c", 12, 2, one),
            ],
        ),
        workload(
            "4 groups over 4 processes",
            EightLlcs,
            vec![grouped("span", 24, 4, Processes::Blocks(4))],
        ),
        workload(
            "pairs over 2 processes",
            EightLlcs,
            vec![grouped("pairs", 16, 8, Processes::Blocks(2))],
        ),
        workload(
            "pipeline of 12 processes",
            EightLlcs,
            vec![piped.in_processes(Processes::Each)],
        ),
        workload(
            "groups and hyperthreads",
            TwoSockets,
            vec![grouped("three", 30, 3, one)],
        ),
        workload(
            "2 groups of 10, 1 process",
            TwoSockets,
            vec![grouped("two", 20, 2, one)],
        ),
        workload(
            "groups over processes",
            TwoByFourLlcs,
            vec![
                grouped("span", 16, 4, Processes::Blocks(4)),
                program("CPU", 8),
            ],
        ),
        workload(
            "groups beside memory",
            TwoByFourLlcs,
            vec![grouped("two", 8, 2, one), program("MemBench", 8)],
        ),
    ]
}

fn losing() -> Vec<Workload> {
    let workload = |name: &str, machine, programs: Vec<Program>| Workload {
        name: name.to_owned(),
        kind: WorkloadKind::Losing,
        shares: shares(&programs),
        spans: false,
        paper_moves: None,
        machine,
        programs,
    };
    let all = |threads| {
        Program::new(
            "all",
            threads,
            Pattern::All,
            &[Phase::COMPUTES.sharing(1.5e-3)],
        )
    };
    let computes = Phase::COMPUTES;
    let memory = computes.missing(0.02, 10.0, 1e6).lasting(0.06);
    let short = [computes.sharing(2e-3).lasting(0.06), memory];
    vec![
        workload(
            "all share with all, 40",
            MachineKind::TwoSockets,
            vec![all(40)],
        ),
        workload(
            "all share with all, 64",
            MachineKind::EightLlcs,
            vec![all(64)],
        ),
        workload(
            "nothing shared, 20",
            MachineKind::TwoSockets,
            vec![program("CPU", 20)],
        ),
        workload(
            "nothing shared, 100",
            MachineKind::EightLlcs,
            vec![program("CPU", 100)],
        ),
        workload(
            "phases as short as an interval",
            MachineKind::TwoSockets,
            vec![
                Program::new("flip", 8, Pattern::All, &short),
                Program::new("flop", 8, Pattern::All, &short),
            ],
        ),
        workload(
            "memory everywhere",
            MachineKind::TwoSockets,
            vec![program("MemBench", 20)],
        ),
    ]
}
