//! Runs a workload: pins its threads, lets them start together, ends them after the time asked
//! for, and adds up what they counted.

use crate::placement::{PlacementError, pin};
use crate::spec::{Workload, WorkloadError, WorkloadSpec};
use crate::truth::Truth;
use crate::worker::{Program, Seat, Stop, Tally};
use crate::workloads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One workload at a time in a process: the shared lines are static variables, so that a report
/// can name them.
static RUNNING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Signal {
    Wait,
    Go,
    Abandon,
}

/// Lets all workers start at once, or sends them home if one could not be created.
pub(crate) struct Gate {
    state: Mutex<(usize, Signal)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new((0, Signal::Wait)),
            changed: Condvar::new(),
        }
    }

    /// Waits for the signal; returns whether to go.
    pub(crate) fn arrive(&self) -> bool {
        let mut state = lock(&self.state);
        state.0 += 1;
        self.changed.notify_all();
        while state.1 == Signal::Wait {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.1 == Signal::Go
    }

    pub(crate) fn wait_for(&self, arrivals: usize) {
        let mut state = lock(&self.state);
        while state.0 < arrivals {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        lock(&self.state).1 = signal;
        self.changed.notify_all();
    }
}

/// Runs a workload in this process and returns what it counted. Runs of several callers wait for
/// each other.
///
/// # Errors
/// The specification is out of range, or a thread could not be created or pinned.
pub fn run_workload(spec: &WorkloadSpec) -> Result<Truth, WorkloadError> {
    spec.validate()?;
    let placement = spec.placement()?;
    let _alone = lock(&RUNNING);
    let program = workloads::program(spec.workload);
    let line_addresses = (program.prepare)(spec.threads);
    let stop = Stop(AtomicBool::new(false));
    let gate = Gate::new();
    let mut distinct = placement.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let crowded = distinct.len() < spec.threads;

    let (workers, seconds) = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(spec.threads);
        for index in 0..spec.threads {
            let seat = Seat {
                index,
                threads: spec.threads,
                fraction: spec.effective_fraction(),
                crowded,
                seed: spec.seed,
                stop: &stop,
            };
            let (gate, worker, cpu) = (&gate, program.worker, placement.get(index).copied());
            let spawned = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn_scoped(scope, move || take_seat(&seat, cpu, gate, worker));
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    gate.signal(Signal::Abandon);
                    return Err(PlacementError::Spawn { index, source }.into());
                }
            }
        }
        gate.wait_for(spec.threads);
        gate.signal(Signal::Go);
        let started = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(spec.seconds));
        stop.0.store(true, Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        let mut workers = Vec::with_capacity(spec.threads);
        for handle in handles {
            match handle.join() {
                Ok(Ok(worker)) => workers.push(worker),
                Ok(Err(error)) => return Err(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok((workers, seconds))
    })?;
    Ok(add_up(
        spec,
        &program,
        placement,
        line_addresses,
        seconds,
        &workers,
    ))
}

fn take_seat(
    seat: &Seat<'_>,
    cpu: Option<u32>,
    gate: &Gate,
    worker: fn(&Seat<'_>) -> Tally,
) -> Result<(u32, Tally), WorkloadError> {
    let pinned = pin(seat.index, cpu);
    let go = gate.arrive();
    pinned?;
    let tally = if go { worker(seat) } else { Tally::new() };
    Ok((linewise_machine::process::current_tid(), tally))
}

fn add_up(
    spec: &WorkloadSpec,
    program: &Program,
    placement: Vec<u32>,
    line_addresses: Vec<u64>,
    seconds: f64,
    workers: &[(u32, Tally)],
) -> Truth {
    let threads = workers.len();
    let on_one_cpu = |a: usize, b: usize| matches!((placement.get(a), placement.get(b)), (Some(x), Some(y)) if x == y);
    let mut handovers = 0.0;
    let mut matrix_true = vec![vec![0_u64; threads]; threads];
    let mut matrix_false = matrix_true.clone();
    let mut matrix = matrix_true.clone();
    for a in 0..threads {
        for b in 0..a {
            let by_true = workers[a].1.true_from[b] + workers[b].1.true_from[a];
            let by_false = workers[a].1.false_from[b] + workers[b].1.false_from[a];
            if on_one_cpu(a, b) {
                handovers += by_true + by_false;
                continue;
            }
            for (x, y) in [(a, b), (b, a)] {
                matrix_true[x][y] = by_true.round() as u64;
                matrix_false[x][y] = by_false.round() as u64;
                matrix[x][y] = matrix_true[x][y] + matrix_false[x][y];
            }
        }
    }
    let upper = |matrix: &[Vec<u64>]| -> u64 {
        matrix
            .iter()
            .enumerate()
            .flat_map(|(a, row)| row.iter().take(a))
            .sum()
    };
    let checks = workers.iter().filter_map(|(_, tally)| tally.check);
    let (sampled, counted) = checks.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut notes = vec![program.note.to_owned()];
    if placement.is_empty() {
        notes.push(
            "The kernel did not tell where threads may run: they were not pinned.".to_owned(),
        );
    }
    if spec.threads > 1 && placement.iter().all(|cpu| *cpu == placement[0]) && !placement.is_empty()
    {
        notes.push("All threads ran on one CPU: no line could move.".to_owned());
    }
    Truth {
        workload: spec.workload,
        threads,
        fraction: spec.effective_fraction(),
        seconds,
        seed: spec.seed,
        accesses: workers.iter().map(|(_, tally)| tally.accesses).sum(),
        shared_accesses: workers.iter().map(|(_, tally)| tally.shared_accesses).sum(),
        transfers: upper(&matrix),
        transfers_true: upper(&matrix_true),
        transfers_false: upper(&matrix_false),
        handovers_on_one_cpu: handovers.round() as u64,
        matrix,
        matrix_true,
        matrix_false,
        tids: workers.iter().map(|(tid, _)| *tid).collect(),
        cpus: placement,
        false_fraction_configured: (spec.workload == Workload::FalseSharing)
            .then_some(spec.fraction),
        sampled_accesses: program
            .sampled
            .then(|| workers.iter().map(|(_, tally)| tally.sampled).sum()),
        sampling_check: (counted > 0.0).then(|| sampled / counted),
        notes,
        line_addresses,
    }
}
