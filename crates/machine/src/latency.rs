//! What it costs to move a line between two CPUs, at this moment.
//!
//! In virtual machines these costs flip within minutes, so they are measured beside everything
//! that depends on them. Two pinned threads, one on each CPU, measure in short rounds; a round
//! that an interrupt or another thread tore is an outlier and the median drops it.
//!
//! ```text
//! round trip   leader stores n, partner answers n+1: two transfers with a look in between
//! idle         partner swaps 16 lines and rests; leader swaps them, each telling the next
//! busy         both swap one line, and work privately in between for as long as chance wills
//! crowded      both swap one line, then work privately for a tenth of the time
//! saturated    both swap one line without a pause
//! hit          leader swaps a line of its own
//! ```
//!
//! Idle, busy and saturated all say how long a thread is at the line for each transfer to it,
//! hits in between included: a core that has the line keeps it for several accesses while the
//! other's request waits, the more so the more they fight.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::affinity::{pin_current_thread, prefer_short_slices};

/// A value on lines of its own: two, because of adjacent-line prefetching.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The costs of one line between two CPUs, in ns; medians over the rounds of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCosts {
    /// The ping-pong.
    pub round_trip: RoundTrip,
    /// Time at the line for each transfer to a thread when the other CPU never wants it back.
    pub transfer_idle_ns: f64,
    /// The same when the other CPU is at the line for `busy_share` of its time.
    pub transfer_busy_ns: f64,
    /// See `transfer_busy_ns`; 0 to 1.
    pub busy_share: f64,
    /// The same when the other CPU is at the line for `crowded_share` of its time.
    pub transfer_crowded_ns: f64,
    /// See `transfer_crowded_ns`; 0 to 1.
    pub crowded_share: f64,
    /// The same when both CPUs want the line all the time.
    pub transfer_saturated_ns: f64,
    /// A serialised access to a line that this CPU holds.
    pub hit_ns: f64,
}

/// The ping-pong round trip between two CPUs, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrip {
    /// Median over the rounds.
    pub median_ns: f64,
    /// 10th percentile.
    pub low_ns: f64,
    /// 90th percentile.
    pub high_ns: f64,
}

/// Why a latency could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// A CPU may not be used.
    #[error("cannot run on CPU {cpu}: {source}; is it online and in this process's CPU set?")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The two threads never ran at the same time.
    #[error(
        "CPU {cpu_a} and CPU {cpu_b} were never free at the same time for {waited_ms} ms: the machine is too busy to measure the latency between them"
    )]
    Busy {
        /// One CPU.
        cpu_a: u32,
        /// The other.
        cpu_b: u32,
        /// How long we tried.
        waited_ms: u64,
    },
    /// The helper thread could not be started.
    #[error("cannot start a thread to measure with: {0}")]
    Thread(std::io::Error),
}

/// Of the steps of irregular work one in so many is the last.
const STEPS_TO_THE_LAST: u64 = 8;
const LINES: usize = 16;
const STRIDE: usize = 37;
const ROUND_TRIPS_A_ROUND: u64 = 32;
const SWAPS_A_ROUND: u64 = 512;
const LEADER: u64 = 1;
const PARTNER: u64 = 2;

/// What the leader asks of the partner: a step number above, a command in the low bits.
const PING_PONG: u64 = 0;
const TOUCH: u64 = 1;
const FIGHT: u64 = 2;
const QUIT: u64 = 3;
const COMMAND_BITS: u64 = 2;

/// The number of the line that the next round is played on.
static NEXT_LINE: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Arena {
    command: Padded<AtomicU64>,
    done: Padded<AtomicU64>,
    partner_own: Padded<AtomicU64>,
    think: Padded<AtomicU64>,
    irregular: Padded<AtomicBool>,
    private: Padded<AtomicBool>,
    stop: Padded<AtomicBool>,
    lines: ScatteredLines,
    /// Which of them this round is played on.
    line: Padded<AtomicUsize>,
    own: Padded<AtomicU64>,
}

/// Lines far apart and visited in a scattered order: neighbours would be prefetched, and a
/// prefetched line costs no transfer that anybody waits for.
///
/// And many, because a line is as near as the slice of the cache that its address belongs to: on a mesh
/// of an Intel server processor the round trips of lines differ by a quarter, each always the same.
struct ScatteredLines(Vec<Padded<AtomicU64>>);

impl Default for ScatteredLines {
    fn default() -> Self {
        Self((0..LINES * STRIDE).map(|_| Padded::default()).collect())
    }
}

impl ScatteredLines {
    /// One near each that is visited, to play a round on.
    fn line(&self, slot: usize) -> &AtomicU64 {
        &self.0[slot * STRIDE + (slot * slot + 5) % STRIDE].0
    }

    /// Reads a neighbour of every line, so that the timed visit pays for transfers and not for
    /// address translation, which virtual machines do twice.
    fn translate(&self) {
        for slot in 0..LINES {
            let neighbour = &self.0[slot * STRIDE + (slot * slot + 2) % STRIDE].0;
            std::hint::black_box(neighbour.load(Ordering::Relaxed));
        }
    }

    /// Swaps every line once. Where the next one is stands in the line itself, so that a core
    /// cannot overlap their transfers.
    fn visit(&self) {
        let mut slot = 0;
        for _ in 0..LINES {
            let next = (slot + 7) % LINES;
            let line = &self.0[slot * STRIDE + slot * slot % STRIDE].0;
            // Every visitor leaves the same value behind; an untouched line holds 0.
            let told = line.swap(next as u64, Ordering::AcqRel) as usize;
            slot = if told == 0 { next } else { told } % LINES;
        }
    }
}

/// How long to look for an answer before giving the CPU back, and for how long: longer awake than
/// asleep, so that two threads that look for each other meet.
const LOOK: Duration = Duration::from_micros(400);
const REST: Duration = Duration::from_micros(300);

/// Spins until `ready` says so, with rests: on a busy machine the other thread may have no CPU, and
/// whoever keeps spinning takes the target's. False when `deadline` passed first.
fn spin_until(deadline: Instant, mut ready: impl FnMut() -> bool) -> bool {
    let mut since = Instant::now();
    loop {
        for _ in 0..256 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = Instant::now();
        if now >= deadline {
            return ready();
        }
        if now - since > LOOK {
            std::thread::sleep(REST);
            since = Instant::now();
        }
    }
}

impl Arena {
    fn partner(&self, cpu: u32, deadline: Instant) -> Result<(), LatencyError> {
        pin_current_thread(cpu).map_err(|source| LatencyError::Pin { cpu, source })?;
        prefer_short_slices();
        let mut last = 0;
        loop {
            let mut command = last;
            let came = spin_until(deadline, || {
                command = self.command.0.load(Ordering::Acquire);
                command != last
            });
            if !came {
                return Ok(());
            }
            last = command;
            match command & ((1 << COMMAND_BITS) - 1) {
                PING_PONG => {
                    let word = self.line();
                    for round in 0..ROUND_TRIPS_A_ROUND {
                        let ball = 2 * round + 1;
                        if !spin_until(deadline, || word.load(Ordering::Acquire) == ball) {
                            return Ok(());
                        }
                        word.store(ball + 1, Ordering::Release);
                    }
                }
                TOUCH => {
                    self.lines.visit();
                }
                FIGHT => {
                    let work = self.work();
                    let target = if self.private.0.load(Ordering::Relaxed) {
                        &self.partner_own.0
                    } else {
                        self.line()
                    };
                    let mut player = Player::new(PARTNER, command);
                    while !self.stop.0.load(Ordering::Relaxed) {
                        for _ in 0..16 {
                            player.swap(target, work);
                        }
                    }
                    std::hint::black_box(player.state);
                }
                _ => return Ok(()),
            }
            self.done.0.store(command, Ordering::Release);
        }
    }

    /// The line of this round.
    fn line(&self) -> &AtomicU64 {
        self.lines.line(self.line.0.load(Ordering::Relaxed))
    }

    /// Begins a round on another line.
    fn next_line(&self) {
        let line = NEXT_LINE.fetch_add(1, Ordering::Relaxed) % LINES;
        self.line.0.store(line, Ordering::Relaxed);
    }

    fn ask(&self, step: &mut u64, command: u64) -> u64 {
        *step += 1;
        let word = (*step << COMMAND_BITS) | command;
        self.command.0.store(word, Ordering::Release);
        word
    }

    fn answered(&self, word: u64, deadline: Instant) -> bool {
        spin_until(deadline, || self.done.0.load(Ordering::Acquire) == word)
    }

    /// One ping-pong round, on another line than the last: ns a round trip.
    fn ping_pong(&self, step: &mut u64, deadline: Instant) -> Option<f64> {
        self.next_line();
        let line = self.line();
        line.store(0, Ordering::Relaxed);
        let word = self.ask(step, PING_PONG);
        let mut start = Instant::now();
        for round in 0..ROUND_TRIPS_A_ROUND {
            if round == 2 {
                start = Instant::now();
            }
            let ball = 2 * round + 1;
            line.store(ball, Ordering::Release);
            if !spin_until(deadline, || line.load(Ordering::Acquire) == ball + 1) {
                return None;
            }
        }
        let elapsed = start.elapsed();
        self.answered(word, deadline)
            .then(|| elapsed.as_nanos() as f64 / (ROUND_TRIPS_A_ROUND - 2) as f64)
    }

    /// One idle round: ns a transfer.
    fn idle_transfer(&self, step: &mut u64, deadline: Instant) -> Option<f64> {
        let word = self.ask(step, TOUCH);
        if !self.answered(word, deadline) {
            return None;
        }
        self.lines.translate();
        let start = Instant::now();
        self.lines.visit();
        Some(start.elapsed().as_nanos() as f64 / LINES as f64)
    }

    /// What is done between two swaps of this round.
    fn work(&self) -> Work {
        Work {
            steps: self.think.0.load(Ordering::Relaxed),
            irregular: self.irregular.0.load(Ordering::Relaxed),
        }
    }

    /// One round of both swapping a line, with private work between two swaps: ns an iteration, and
    /// transfers to the leader an iteration. With `private` each has a line of its own, so that
    /// nothing but the fight differs.
    fn fight(&self, step: &mut u64, deadline: Instant, work: Work, private: bool) -> Option<Fight> {
        self.stop.0.store(false, Ordering::Relaxed);
        self.think.0.store(work.steps, Ordering::Relaxed);
        self.irregular.0.store(work.irregular, Ordering::Relaxed);
        self.private.0.store(private, Ordering::Relaxed);
        let (target, theirs) = if private {
            (&self.own.0, &self.partner_own.0)
        } else {
            (self.line(), self.line())
        };
        theirs.store(0, Ordering::Relaxed);
        let word = self.ask(step, FIGHT);
        // Do not begin before the partner does.
        let began = spin_until(deadline, || theirs.load(Ordering::Relaxed) == PARTNER);
        let (mut transfers, mut player) = (0u64, Player::new(LEADER, word));
        let start = Instant::now();
        if began {
            for _ in 0..SWAPS_A_ROUND {
                transfers += u64::from(player.swap(target, work) == PARTNER);
            }
        }
        let elapsed = start.elapsed();
        std::hint::black_box(player.state);
        self.stop.0.store(true, Ordering::Relaxed);
        if !self.answered(word, deadline) || !began {
            return None;
        }
        Some(Fight {
            iteration_ns: elapsed.as_nanos() as f64 / SWAPS_A_ROUND as f64,
            transfers: transfers as f64 / SWAPS_A_ROUND as f64,
        })
    }

    /// Time at the line for each transfer when both fight with `work` in between, and the share of
    /// their time that they are at it.
    fn fought_transfer(&self, step: &mut u64, deadline: Instant, work: Work) -> Option<(f64, f64)> {
        let fight = self.fight(step, deadline, work, false)?;
        let alone = if work.steps == 0 {
            0.0
        } else {
            (self.fight(step, deadline, work, true)?.iteration_ns - self.hit()).max(0.0)
        };
        let at_line = fight.iteration_ns - alone;
        (fight.transfers > 0.0 && at_line > 0.0)
            .then(|| (at_line / fight.transfers, at_line / fight.iteration_ns))
    }

    fn hit(&self) -> f64 {
        const SWAPS: u32 = 64;
        let start = Instant::now();
        for _ in 0..SWAPS {
            self.own.0.swap(LEADER, Ordering::AcqRel);
        }
        start.elapsed().as_nanos() as f64 / f64::from(SWAPS)
    }
}

/// What one round of fighting gave, for each of the leader's iterations.
struct Fight {
    iteration_ns: f64,
    transfers: f64,
}

/// The private work between two swaps.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Dependent multiplications, about a ns each; of irregular work, on average.
    steps: u64,
    /// Whether its length is left to chance. Work of one length lets both threads fall into step, each
    /// taking the line while the other works. And no branch of it is mispredicted: after one that is, a
    /// core asks for lines before it knows whether it needs them, and takes them from the other.
    irregular: bool,
}

impl Work {
    fn regular(steps: u64) -> Self {
        Self {
            steps,
            irregular: false,
        }
    }

    fn irregular(steps: u64) -> Self {
        Self {
            steps,
            irregular: true,
        }
    }
}

/// One side of a fight.
struct Player {
    id: u64,
    state: u64,
    random: u64,
}

impl Player {
    fn new(id: u64, seed: u64) -> Self {
        Self {
            id,
            state: seed,
            random: (seed << 8 | id).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Swaps and works; what was in the line before.
    #[inline(always)]
    fn swap(&mut self, line: &AtomicU64, work: Work) -> u64 {
        let before = line.swap(self.id, Ordering::AcqRel);
        // What follows waits for the line: otherwise the core would think in its shadow and the time
        // at the line would look shorter than it is.
        self.state ^= before;
        if work.irregular {
            while !self.chance() {
                self.state = think_for(self.state, work.steps / STEPS_TO_THE_LAST);
            }
        } else {
            self.state = think_for(self.state, work.steps);
        }
        before
    }

    /// Once in [`STEPS_TO_THE_LAST`] times. It waits for no line: the branches of a program mostly do not.
    fn chance(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32).is_multiple_of(STEPS_TO_THE_LAST)
    }
}

/// Private work: `steps` dependent multiplications, about a ns each.
fn think_for(state: u64, steps: u64) -> u64 {
    (0..steps).fold(state, |state, _| {
        std::hint::black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1))
    })
}

/// The value at `share` (0 to 1) of the sorted values.
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((share * last as f64).round() as usize).copied()
}

/// The medians of both halves.
fn median_pair(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (mut left, mut right): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    Some((quantile(&mut left, 0.5)?, quantile(&mut right, 0.5)?))
}

/// Runs `lead` on `cpu_a` with a partner serving it on `cpu_b`.
fn with_partner<T: Send>(
    cpu_a: u32,
    cpu_b: u32,
    deadline: Instant,
    lead: impl FnOnce(&Arena, &mut u64) -> T + Send,
) -> Result<T, LatencyError> {
    let arena = Arena::default();
    std::thread::scope(|scope| {
        let partner = std::thread::Builder::new()
            .name("latency-b".into())
            .spawn_scoped(scope, || arena.partner(cpu_b, deadline))
            .map_err(LatencyError::Thread)?;
        let leader = std::thread::Builder::new()
            .name("latency-a".into())
            .spawn_scoped(scope, || {
                let mut step = 0;
                prefer_short_slices();
                let pinned = pin_current_thread(cpu_a)
                    .map_err(|source| LatencyError::Pin { cpu: cpu_a, source });
                let result = pinned.map(|()| lead(&arena, &mut step));
                arena.ask(&mut step, QUIT);
                result
            });
        let result = match leader {
            Ok(leader) => leader.join(),
            Err(error) => {
                arena.command.0.store((1 << 32) | QUIT, Ordering::Release);
                return Err(LatencyError::Thread(error));
            }
        };
        let partner = partner.join();
        match (result, partner) {
            (Ok(result), Ok(partner)) => partner.and(result),
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}

/// Measures the round trip between two CPUs for about `budget`.
///
/// # Errors
/// See [`LatencyError`].
pub fn measure_round_trip(
    cpu_a: u32,
    cpu_b: u32,
    budget: Duration,
) -> Result<RoundTrip, LatencyError> {
    let start = Instant::now();
    ping_pong_while(cpu_a, cpu_b, budget * 3, |_| start.elapsed() < budget)
}

/// Measures the round trip between two CPUs in `rounds` rounds (2 to 15 µs each), giving up after
/// `limit`: cheap enough to be done beside anything.
///
/// # Errors
/// See [`LatencyError`].
pub fn glance_at_round_trip(
    cpu_a: u32,
    cpu_b: u32,
    rounds: usize,
    limit: Duration,
) -> Result<RoundTrip, LatencyError> {
    ping_pong_while(cpu_a, cpu_b, limit, |done| done < rounds)
}

/// Plays rounds for as long as `more` (of the number done) says.
fn ping_pong_while(
    cpu_a: u32,
    cpu_b: u32,
    limit: Duration,
    more: impl Fn(usize) -> bool + Send + Sync,
) -> Result<RoundTrip, LatencyError> {
    let deadline = Instant::now() + limit;
    let mut rounds = with_partner(cpu_a, cpu_b, deadline, |arena, step| {
        let mut rounds = Vec::new();
        while more(rounds.len()) {
            let Some(round) = arena.ping_pong(step, deadline) else {
                break;
            };
            rounds.push(round);
        }
        rounds
    })?;
    summarise(&mut rounds).ok_or(LatencyError::Busy {
        cpu_a,
        cpu_b,
        waited_ms: limit.as_millis() as u64,
    })
}

fn summarise(rounds: &mut [f64]) -> Option<RoundTrip> {
    Some(RoundTrip {
        median_ns: quantile(rounds, 0.5)?,
        low_ns: quantile(rounds, 0.1)?,
        high_ns: quantile(rounds, 0.9)?,
    })
}

/// Measures all costs of a line between two CPUs in `rounds` rounds of each kind (about 40 to
/// 150 µs each), giving up at `deadline`.
///
/// # Errors
/// See [`LatencyError`].
pub fn measure_line_costs(
    cpu_a: u32,
    cpu_b: u32,
    rounds: u32,
    limit: Duration,
) -> Result<LineCosts, LatencyError> {
    let deadline = Instant::now() + limit;
    let mut seen = with_partner(cpu_a, cpu_b, deadline, |arena, step| {
        let mut seen = Rounds::default();
        for _ in 0..rounds {
            let Some(trip) = arena.ping_pong(step, deadline) else {
                break;
            };
            seen.trips.push(trip);
            let Some(transfer) = arena.idle_transfer(step, deadline) else {
                break;
            };
            seen.idle.push(transfer);
            let Some((saturated, _)) = arena.fought_transfer(step, deadline, Work::regular(0))
            else {
                continue;
            };
            seen.saturated.push(saturated);
            // Work for about half as long as a transfer takes, and for a tenth of it.
            let steps = |share: f64| (saturated * share).clamp(2.0, 2000.0) as u64;
            seen.busy
                .extend(arena.fought_transfer(step, deadline, Work::irregular(steps(0.5))));
            seen.crowded
                .extend(arena.fought_transfer(step, deadline, Work::regular(steps(0.1))));
            seen.hits.push(arena.hit());
        }
        seen
    })?;
    let busy = || LatencyError::Busy {
        cpu_a,
        cpu_b,
        waited_ms: limit.as_millis() as u64,
    };
    let (transfer_busy_ns, busy_share) = median_pair(&seen.busy).ok_or_else(busy)?;
    let (transfer_crowded_ns, crowded_share) = median_pair(&seen.crowded).ok_or_else(busy)?;
    Ok(LineCosts {
        round_trip: summarise(&mut seen.trips).ok_or_else(busy)?,
        transfer_idle_ns: quantile(&mut seen.idle, 0.5).ok_or_else(busy)?,
        transfer_busy_ns,
        busy_share,
        transfer_crowded_ns,
        crowded_share,
        transfer_saturated_ns: quantile(&mut seen.saturated, 0.5).ok_or_else(busy)?,
        hit_ns: quantile(&mut seen.hits, 0.5).ok_or_else(busy)?,
    })
}

/// What each round gave.
#[derive(Default)]
struct Rounds {
    trips: Vec<f64>,
    idle: Vec<f64>,
    busy: Vec<(f64, f64)>,
    crowded: Vec<(f64, f64)>,
    saturated: Vec<f64>,
    hits: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_of_nothing_is_nothing_and_of_one_is_itself() {
        assert_eq!(quantile(&mut [], 0.5), None);
        assert_eq!(quantile(&mut [3.0], 0.9), Some(3.0));
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named_in_the_error() {
        let error = measure_round_trip(100_000, 100_001, Duration::from_millis(5)).unwrap_err();
        assert!(error.to_string().contains("CPU 10000"), "{error}");
    }

    #[test]
    fn moving_a_line_costs_more_than_keeping_it() {
        let cpus = crate::affinity::allowed_cpus();
        let [a, b, ..] = cpus[..] else {
            eprintln!("skipped: needs two CPUs");
            return;
        };
        match measure_line_costs(a, b, 40, Duration::from_secs(2)) {
            Ok(costs) => assert!(costs.transfer_idle_ns > costs.hit_ns, "{costs:?}"),
            Err(LatencyError::Busy { .. }) => eprintln!("skipped: the machine is too busy"),
            Err(error) => panic!("{error}"),
        }
    }
}
