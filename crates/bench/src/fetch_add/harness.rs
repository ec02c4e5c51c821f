//! What all contenders share: pinned threads that start together and end after the time asked for,
//! the loop around an increment, the choice of a variable, and the account that must balance.

use super::spec::{FetchAddError, Operation};
use super::statistics::Statistics;
use crate::placement::{PlacementError, pin};
use crate::run::{Gate, Signal};
use crate::worker::Random;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Increments between two looks at the flag that ends a sample: few, because a contended one may
/// take microseconds.
pub(super) const CHUNK: usize = 64;

/// A value on lines of its own: two, because some processors fetch pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// What one thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Increments that it made, or that were made for it.
    pub(super) operations: u64,
    /// The sum of what they returned, modulo 2^64.
    pub(super) returned: u64,
}

impl Tally {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            returned: self.returned.wrapping_add(other.returned),
        }
    }
}

/// What the variables say at the end: the other side of the account. A variable that holds v has
/// returned 0 to v - 1, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    sum: u64,
    owed: u64,
}

impl Held {
    pub(super) fn of(values: impl Iterator<Item = u64>) -> Self {
        values.fold(Self::default(), |held, value| {
            let owed = u128::from(value) * u128::from(value.saturating_sub(1)) / 2;
            held.plus(Self {
                sum: value,
                // Modulo 2^64, like the other side.
                owed: owed as u64,
            })
        })
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            sum: self.sum.wrapping_add(other.sum),
            owed: self.owed.wrapping_add(other.owed),
        }
    }

    /// Whether every increment of the threads is in the variables, and every one was answered with
    /// what its variable held.
    pub(super) fn settle(self, tally: Tally, contender: &str) -> Result<(), FetchAddError> {
        if self.sum == tally.operations && self.owed == tally.returned {
            return Ok(());
        }
        Err(FetchAddError::Sum {
            contender: contender.to_owned(),
            operations: tally.operations,
            held: self.sum,
            returned: tally.returned,
            owed: self.owed,
        })
    }
}

/// What a sample of a contender gives.
pub(super) struct Outcome {
    /// What the threads did together.
    pub(super) tally: Tally,
    pub(super) held: Held,
    /// The time that it took.
    pub(super) elapsed: Duration,
    /// What a domain counted, for those that delegate to one.
    pub(super) statistics: Option<Statistics>,
}

impl Outcome {
    pub(super) fn new(tally: Tally, held: Held, elapsed: Duration) -> Self {
        Self {
            tally,
            held,
            elapsed,
            statistics: None,
        }
    }
}

/// What a variable becomes. A type and not a value, so that each loop is compiled for its own.
pub(super) trait Next: Send + Sync + 'static {
    const OPERATION: Operation;
    fn next(held: u64) -> u64;
}

pub(super) struct Add;

impl Next for Add {
    const OPERATION: Operation = Operation::Add;
    #[inline(always)]
    fn next(held: u64) -> u64 {
        held.wrapping_add(1)
    }
}

pub(super) struct Sqrt;

impl Next for Sqrt {
    const OPERATION: Operation = Operation::Sqrt;
    /// The root lies on the way from the old value to the new one, though no count ever reaches
    /// the 4 · 10^18 at which it makes a difference.
    #[inline(always)]
    fn next(held: u64) -> u64 {
        let root = (held as i64 as f64).sqrt();
        held.wrapping_add(1 + u64::from(root > 2e9))
    }
}

/// The variables of an experiment, divided evenly over servers: rounded up to a multiple of their
/// number, as in the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shards {
    pub(super) servers: usize,
    pub(super) each: usize,
}

impl Shards {
    /// `variables` over at most `servers`: never more servers than variables.
    pub(super) fn new(variables: usize, servers: usize) -> Self {
        let servers = servers.min(variables).max(1);
        Self {
            servers,
            each: variables.div_ceil(servers),
        }
    }

    /// `variables` over all of `threads`, where each is a server and a client.
    pub(super) fn flat(variables: usize, threads: usize) -> Self {
        Self {
            servers: threads,
            each: variables.div_ceil(threads),
        }
    }

    /// How many there are in all.
    pub(super) fn all(self) -> usize {
        self.servers * self.each
    }

    /// One of all, by a random number.
    #[inline(always)]
    pub(super) fn any(self, random: u64) -> usize {
        scale(random >> 32, self.all())
    }

    /// A server, and one of its variables, by a random number.
    #[inline(always)]
    pub(super) fn choose(self, random: u64) -> (usize, usize) {
        (
            scale(random & 0xffff_ffff, self.servers),
            scale(random >> 32, self.each),
        )
    }
}

/// A number below `among`, by 32 random bits.
#[inline(always)]
fn scale(bits: u64, among: usize) -> usize {
    ((bits * among as u64) >> 32) as usize
}

/// A place in a sample.
pub(super) struct Seat<'run> {
    /// The thread's index.
    pub(super) index: usize,
    /// Whether threads must take turns on CPUs, so that waiting in a loop keeps the other out.
    pub(super) crowded: bool,
    seed: u64,
    shared: &'run Shared,
    gate: &'run Gate,
    begun: Cell<Option<bool>>,
}

/// What the threads of a sample look at all the time.
#[derive(Default)]
struct Shared {
    stop: Apart<AtomicBool>,
    clients: Apart<AtomicUsize>,
}

impl Seat<'_> {
    #[inline(always)]
    pub(super) fn stopped(&self) -> bool {
        self.shared.stop.0.load(Ordering::Relaxed)
    }

    /// Whether all clients are done, and their servers may go.
    #[inline(always)]
    pub(super) fn deserted(&self) -> bool {
        self.shared.clients.0.load(Ordering::Acquire) == 0
    }

    /// Waits until everybody is ready; returns whether to go on. What a thread does before is not
    /// timed.
    pub(super) fn begin(&self) -> bool {
        self.begun.get().unwrap_or_else(|| {
            let go = self.gate.arrive();
            self.begun.set(Some(go));
            go
        })
    }

    /// One step of waiting for another thread.
    #[inline(always)]
    pub(super) fn pause(&self) {
        if self.crowded {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Begins, and calls `increment` with random numbers until the sample ends.
    #[inline(always)]
    pub(super) fn hammer(&self, increment: impl FnMut(u64) -> u64) -> Tally {
        self.hammer_as(0, increment)
    }

    /// Begins, and hands random numbers to `increments`, some at a time, until the sample ends.
    #[inline(always)]
    pub(super) fn hammer_in_batches(&self, mut increments: impl FnMut(&[u64; CHUNK])) -> Tally {
        let mut random = Random::new(self.seed, self.index);
        let mut tally = Tally::default();
        if !self.begin() {
            return tally;
        }
        let mut batch = [0; CHUNK];
        while !self.stopped() {
            batch.fill_with(|| random.next());
            increments(&batch);
            tally.operations += CHUNK as u64;
        }
        tally
    }

    /// As `hammer`, for one of several that share the thread.
    #[inline(always)]
    pub(super) fn hammer_as(&self, one: usize, mut increment: impl FnMut(u64) -> u64) -> Tally {
        let mut random = Random::new(self.seed, (one << 16) + self.index);
        let mut tally = Tally::default();
        if !self.begin() {
            return tally;
        }
        while !self.stopped() {
            for _ in 0..CHUNK {
                let returned = increment(random.next());
                tally.returned = tally.returned.wrapping_add(returned);
            }
            tally.operations += CHUNK as u64;
        }
        tally
    }
}

impl Drop for Seat<'_> {
    /// Nobody waits for a thread that failed before it began.
    fn drop(&mut self) {
        self.begin();
    }
}

/// Where and how long the threads of a sample run.
pub(super) struct Stage<'a> {
    /// The CPU of each thread; empty to leave them where they are.
    pub(super) placement: &'a [u32],
    pub(super) threads: usize,
    /// The first so many threads serve; the others are clients.
    pub(super) servers: usize,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// Calls `body` in every thread of a sample, lets them go at once when all have begun, tells them to
/// stop after the time asked for, and returns what each returned and the time until the last client
/// was done.
pub(super) fn play<T: Send>(
    stage: &Stage<'_>,
    body: impl Fn(&Seat<'_>) -> T + Sync,
) -> Result<(Vec<T>, Duration), FetchAddError> {
    let mut distinct = stage.placement.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let shared = Shared::default();
    let clients = stage.threads - stage.servers;
    shared.clients.0.store(clients, Ordering::Relaxed);
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(stage.threads);
        for index in 0..stage.threads {
            let seat = Seat {
                index,
                crowded: distinct.len() < stage.threads,
                seed: stage.seed,
                shared: &shared,
                gate: &gate,
                begun: Cell::new(None),
            };
            let serves = index < stage.servers;
            let (body, cpu) = (&body, stage.placement.get(index).copied());
            let role = if serves { "server" } else { "client" };
            let spawned = std::thread::Builder::new()
                .name(format!("{role}-{index}"))
                .spawn_scoped(scope, move || take_seat(seat, serves, cpu, body));
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    gate.signal(Signal::Abandon);
                    return Err(PlacementError::Spawn { index, source }.into());
                }
            }
        }
        gate.wait_for(stage.threads);
        let started = Instant::now();
        gate.signal(Signal::Go);
        std::thread::sleep(Duration::from_secs_f64(stage.seconds));
        shared.stop.0.store(true, Ordering::Relaxed);
        let mut results = Vec::with_capacity(stage.threads);
        let mut elapsed = Duration::ZERO;
        for (index, handle) in handles.into_iter().enumerate() {
            match handle.join() {
                Ok(Ok((result, ended))) => {
                    // What servers do after their clients have gone is not part of it.
                    if index >= stage.servers {
                        elapsed = elapsed.max(ended.saturating_duration_since(started));
                    }
                    results.push(result);
                }
                Ok(Err(error)) => return Err(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok((results, elapsed))
    })
}

/// Counts a client out when it goes, also when it panics, so that servers never wait for it.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn take_seat<T>(
    seat: Seat<'_>,
    serves: bool,
    cpu: Option<u32>,
    body: impl Fn(&Seat<'_>) -> T,
) -> Result<(T, Instant), FetchAddError> {
    let _leaving = (!serves).then(|| Leaving(&seat.shared.clients.0));
    pin(seat.index, cpu)?;
    let result = body(&seat);
    Ok((result, Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_balances_only_if_nothing_is_lost_and_every_answer_is_right() {
        // Two variables, incremented three times and once: 0 + 1 + 2 and 0 were returned.
        let held = Held::of([3, 1].into_iter());
        let right = Tally {
            operations: 4,
            returned: 3,
        };
        assert!(held.settle(right, "x").is_ok());
        for wrong in [
            Tally {
                operations: 5,
                ..right
            },
            Tally {
                returned: 2,
                ..right
            },
        ] {
            let error = held.settle(wrong, "x").unwrap_err().to_string();
            assert!(error.starts_with("x is broken"), "{error}");
        }
    }

    #[test]
    fn large_counts_are_owed_modulo_two_to_the_64th() {
        let value = 1_u64 << 40;
        let owed = Held::of([value].into_iter()).owed;
        assert_eq!(owed, ((1_u128 << 40) * ((1_u128 << 40) - 1) / 2) as u64);
    }

    #[test]
    fn both_operations_add_one() {
        for held in [0, 1, 2, 999_999_999_999] {
            assert_eq!(Add::next(held), held + 1);
            assert_eq!(Sqrt::next(held), held + 1);
        }
    }

    #[test]
    fn shards_cover_all_variables_and_never_outnumber_them() {
        assert_eq!(
            Shards::new(4, 16),
            Shards {
                servers: 4,
                each: 1
            }
        );
        let shards = Shards::new(128, 56);
        assert_eq!((shards.servers, shards.each), (56, 3));
        assert_eq!(shards.choose(0), (0, 0));
        assert_eq!(shards.choose(u64::MAX), (55, 2));
        assert_eq!((shards.any(0), shards.any(u64::MAX)), (0, 56 * 3 - 1));
        let flat = Shards::flat(1, 2);
        assert_eq!((flat.servers, flat.each), (2, 1));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_and_nobody_waits_for_ever() {
        let stage = Stage {
            placement: &[1_000_000, 1_000_000],
            threads: 2,
            servers: 1,
            seconds: 0.01,
            seed: 1,
        };
        let played = play(&stage, |seat| {
            seat.begin();
            while seat.index == 0 && !seat.deserted() {}
        });
        assert!(matches!(
            played,
            Err(FetchAddError::Placement(PlacementError::Pin { .. }))
        ));
    }
}
