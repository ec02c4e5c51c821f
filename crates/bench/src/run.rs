//! Runs a workload: pins its threads, lets them start together, ends them after the time asked
//! for, and adds up what they counted.

use crate::placement::{PlacementError, pin};
use crate::spec::{MAX_THREADS, Workload, WorkloadError, WorkloadSpec};
use crate::truth::Truth;
use crate::workloads;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The value in a shared word that no thread has written yet.
pub(crate) const NOBODY: u64 = SLOTS as u64 - 1;
/// A power of two above every thread's index and `NOBODY`, so that an index needs no check.
pub(crate) const SLOTS: usize = 64;
const _: () = assert!(MAX_THREADS < SLOTS);
/// Iterations between two looks at the flag that ends the run.
pub(crate) const CHUNK: u64 = 1024;

/// Eight words alone on their line. Aligned to two lines, because some processors fetch pairs.
#[repr(align(128))]
pub(crate) struct Line {
    pub(crate) words: [AtomicU64; 8],
}

impl Line {
    pub(crate) const fn new(value: u64) -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; 8],
        }
        .filled(value)
    }

    const fn filled(mut self, value: u64) -> Self {
        let mut i = 0;
        while i < self.words.len() {
            self.words[i] = AtomicU64::new(value);
            i += 1;
        }
        self
    }

    /// Sets every word; before the workers start.
    pub(crate) fn reset(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

/// Marsaglia's xorshift: private to a thread and without memory of its own in the loop.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, index: usize) -> Self {
        // Splitmix, so that neighbouring seeds have nothing in common.
        let mut z = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A chance between 0 and 1, taken with the low 32 bits of a random number. The high bits stay
/// free for a second, independent choice.
#[derive(Clone, Copy)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(fraction: f64) -> Self {
        Self((fraction.clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64)
    }

    #[inline(always)]
    pub(crate) fn hits(self, random: u64) -> bool {
        (random & 0xffff_ffff) < self.0
    }
}

/// What a worker needs.
pub(crate) struct Seat<'run> {
    /// The thread's index.
    pub(crate) index: usize,
    /// How many threads there are.
    pub(crate) threads: usize,
    /// The fraction in force.
    pub(crate) fraction: f64,
    /// Whether threads must take turns on CPUs, so that waiting in a loop keeps the other out.
    pub(crate) crowded: bool,
    seed: u64,
    stop: &'run Stop,
}

/// The flag that ends the run, alone on its line: workers read it all the time.
#[repr(align(128))]
struct Stop(AtomicBool);

impl Seat<'_> {
    #[inline(always)]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.0.load(Ordering::Relaxed)
    }

    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed, self.index)
    }

    /// This thread's id as it stands in shared words.
    pub(crate) fn id(&self) -> u64 {
        self.index as u64
    }

    /// The other thread of the pair to which this one belongs.
    pub(crate) fn partner(&self) -> usize {
        self.index ^ 1
    }

    /// One step of waiting for another thread.
    #[inline(always)]
    pub(crate) fn pause(&self) {
        if self.crowded {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// How many private accesses go with `shared` shared ones at the fraction in force; `None`
    /// when there must be no shared ones.
    pub(crate) fn private_beside(&self, shared: u64) -> Option<u64> {
        const MOST: f64 = 10_000_000.0;
        (self.fraction > 0.0).then(|| {
            ((shared as f64) * (1.0 - self.fraction) / self.fraction)
                .round()
                .min(MOST) as u64
        })
    }
}

/// What one thread counted. Moves are by the index of the thread that had the line before, as seen
/// by value; the entries of this thread itself and of nobody mean nothing.
pub(crate) struct Tally {
    pub(crate) accesses: u64,
    pub(crate) shared_accesses: u64,
    pub(crate) true_from: [f64; SLOTS],
    pub(crate) false_from: [f64; SLOTS],
    /// Accesses on which a sampled count rests.
    pub(crate) sampled: u64,
    /// Where sampled and full count of one thing exist: the two.
    pub(crate) check: Option<(f64, f64)>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            accesses: 0,
            shared_accesses: 0,
            true_from: [0.0; SLOTS],
            false_from: [0.0; SLOTS],
            sampled: 0,
            check: None,
        }
    }
}

/// What the harness must know of a workload.
pub(crate) struct Program {
    /// Puts the shared lines into their first state and names them.
    pub(crate) prepare: fn(threads: usize) -> Vec<u64>,
    /// The body of a thread.
    pub(crate) worker: fn(&Seat<'_>) -> Tally,
    /// How its truth is counted and what that cannot see.
    pub(crate) note: &'static str,
    /// Whether some of its truth is a sample.
    pub(crate) sampled: bool,
}

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
