//! What single threads cost at a placement, without intervals or policies: what a replayed trace is held against.

use crate::cost::{Running, rates};
use crate::machine::SimulatedMachine;
use crate::program::Phase;

/// A thread that does the same all the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// What.
    pub phase: Phase,
    /// Which of the threads it has its transfers with, by index, and in what parts.
    pub partners: Vec<(u32, f64)>,
}

/// What a thread pays for one useful cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadCost {
    /// Cycles, at least 1.
    pub cycles: f64,
    /// Lines that other threads had, by `linewise_placer::Crossing`.
    pub transfers: [f64; 3],
}

/// What `threads` pay on the CPUs `cpus`, each on its own; their pages are where they run.
///
/// # Panics
/// There are fewer CPUs than threads, or the machine has no such CPU.
#[must_use]
pub fn thread_costs(
    machine: &SimulatedMachine,
    threads: &[Thread],
    cpus: &[u32],
) -> Vec<ThreadCost> {
    let socket = |at: usize| machine.socket[cpus[at] as usize];
    let running = threads.iter().enumerate().map(|(at, thread)| Running {
        task: at as u32,
        cpu: cpus[at],
        program: 0,
        phase: &thread.phase,
        home: socket(at),
        shared_home: socket(0),
        partners: &thread.partners,
    });
    let running: Vec<Running<'_>> = running.collect();
    let costs = rates(machine, &running)
        .into_iter()
        .map(|rates| ThreadCost {
            cycles: 1.0 / rates.useful,
            transfers: rates.transfers.map(|rate| rate / rates.useful),
        });
    costs.collect()
}
