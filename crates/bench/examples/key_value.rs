//! Question: what does a sharded key-value cache gain if its shards are delegated instead of locked?
//!
//! Method: a table of 100,000 keys in 16 shards. Every thread asks for keys by Zipf's law (exponent
//! 0.99), 95 or 50 of 100 requests read and the others write. Each shard is behind a mutex, behind a
//! reader-writer lock, or owned by a server (dedicated: one of the threads; flat: all of them) that
//! the threads ask without waiting. Everybody takes turns; the medians of the rounds are printed, with
//! the round trip of a line. Latency is that of one request in 16, from asking to the answer. Writes
//! are counted in the table, and all must be there.
//!
//! `cargo run --release -p linewise-bench --example key_value -- [ROUNDS] [SECONDS] [NAME]`, where
//! NAME is a part of mutex, rwlock, dedicated, flat; `linewise run` on the one with `mutex` names the
//! lock.

use std::cell::RefCell;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use linewise_delegate::{Client, Domain, Error as Refused, Owned};
use linewise_machine::affinity::{allowed_cpus, pin_current_thread};
use linewise_machine::latency::measure_round_trip;

const KEYS: u32 = 100_000;
const SHARDS: usize = 16;
const EXPONENT: f64 = 0.99;
/// Requests that a thread goes round in, drawn before the clock runs.
const DRAWN: usize = 1 << 18;
/// One request in so many is timed.
const TIMED: usize = 16;

/// A part of the table: open addressing, twice as many places as keys.
struct Shard {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    key: u32,
    writes: u64,
    value: [u64; 5],
}

const EMPTY: u32 = u32::MAX;

impl Shard {
    fn new(shard: usize) -> Self {
        let empty = Entry {
            key: EMPTY,
            writes: 0,
            value: [0; 5],
        };
        let places = (2 * KEYS as usize / SHARDS).next_power_of_two();
        let mut made = Self {
            entries: vec![empty; places],
        };
        for key in (shard as u32..KEYS).step_by(SHARDS) {
            let place = made.place(key);
            made.entries[place].key = key;
        }
        made
    }

    /// Where the key is, or belongs.
    #[inline]
    fn place(&self, key: u32) -> usize {
        let mask = self.entries.len() - 1;
        let mut place = key.wrapping_mul(0x9e37_79b9) as usize >> 8 & mask;
        while self.entries[place].key != key && self.entries[place].key != EMPTY {
            place = (place + 1) & mask;
        }
        place
    }

    #[inline]
    fn read(&self, key: u32) -> u64 {
        self.entries[self.place(key)].value.iter().sum()
    }

    #[inline]
    fn write(&mut self, key: u32) -> u64 {
        let place = self.place(key);
        let entry = &mut self.entries[place];
        entry.writes += 1;
        entry.value[entry.writes as usize % 5] = entry.writes;
        entry.writes
    }

    #[inline]
    fn serve(&mut self, request: Request) -> u64 {
        if request.writes() {
            self.write(request.key())
        } else {
            self.read(request.key())
        }
    }

    fn writes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.writes).sum()
    }
}

/// A key, and in the lowest bit whether it is written: it fits the packed way of delegation.
#[derive(Clone, Copy)]
struct Request(u32);

impl Request {
    fn key(self) -> u32 {
        self.0 >> 1
    }

    fn writes(self) -> bool {
        self.0 & 1 == 1
    }

    fn shard(self) -> usize {
        self.key() as usize % SHARDS
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Requests by Zipf's law, from the table of its sums. Keys are scattered over the shards.
fn draw(sums: &[f64], writes: f64, seed: u64) -> Vec<Request> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    let last = sums.last().copied().unwrap_or(1.0);
    (0..DRAWN)
        .map(|_| {
            let at = random.next() * last;
            let rank = sums.partition_point(|sum| *sum < at) as u32;
            let key = (u64::from(rank) * 2_654_435_761 % u64::from(KEYS)) as u32;
            Request(key << 1 | u32::from(random.next() < writes))
        })
        .collect()
}

/// What a thread saw.
#[derive(Default)]
struct Seen {
    requests: u64,
    writes: u64,
    latencies_ns: Vec<u32>,
}

/// The clock of a thread, and the latencies that it noted.
struct Watch {
    begun: Instant,
    latencies_ns: RefCell<Vec<u32>>,
}

impl Watch {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            latencies_ns: RefCell::default(),
        }
    }

    /// The time, for one request in [`TIMED`]; 0 for the others.
    #[inline]
    fn start(&self, number: usize) -> u64 {
        if number.is_multiple_of(TIMED) {
            (self.begun.elapsed().as_nanos() as u64).max(1)
        } else {
            0
        }
    }

    #[inline]
    fn stop(&self, started: u64) {
        if started > 0 {
            let now = self.begun.elapsed().as_nanos() as u64;
            self.latencies_ns
                .borrow_mut()
                .push((now - started).min(u64::from(u32::MAX)) as u32);
        }
    }
}

/// A thread's requests until the time is over: `ask` gets each with its number.
fn go_round(
    requests: &[Request],
    stop: &AtomicBool,
    mut ask: impl FnMut(usize, Request),
) -> (u64, u64) {
    let (mut done, mut writes) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let request = requests[done as usize % DRAWN];
            writes += u64::from(request.writes());
            ask(done as usize, request);
            done += 1;
        }
    }
    (done, writes)
}

/// Runs a thread on each CPU until the time is over.
fn run(
    cpus: &[u32],
    time: Duration,
    body: impl Fn(usize, &AtomicBool, &Barrier) -> Seen + Sync,
) -> Vec<Seen> {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(cpus.len() + 1));
    std::thread::scope(|scope| {
        let (stop, ready, body) = (&stop, &ready, &body);
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(index, &cpu)| {
                scope.spawn(move || {
                    pin_current_thread(cpu).expect("one of the CPUs of this process");
                    body(index, stop, ready)
                })
            })
            .collect();
        ready.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.expect("no thread panics")).collect()
    })
}

/// A lock on lines of its own: the shards' locks are not to be in each other's way.
#[repr(align(128))]
struct Apart<L>(L);

/// Both locks: `ask` serves a request.
fn locked<L: Sync>(
    world: &World<'_>,
    new: impl Fn(Shard) -> L,
    ask: impl Fn(&L, Request) -> u64 + Sync,
    writes: impl Fn(&L) -> u64,
) -> Outcome {
    let shards: Vec<Apart<L>> = (0..SHARDS)
        .map(|shard| Apart(new(Shard::new(shard))))
        .collect();
    let seen = run(world.cpus, world.time, |index, stop, ready| {
        let watch = Watch::new();
        let mut sum = 0_u64;
        ready.wait();
        let (requests, writes) = go_round(&world.requests[index], stop, |number, request| {
            let started = watch.start(number);
            sum = sum.wrapping_add(ask(&shards[request.shard()].0, request));
            watch.stop(started);
        });
        std::hint::black_box(sum);
        Seen {
            requests,
            writes,
            latencies_ns: watch.latencies_ns.into_inner(),
        }
    });
    (seen, shards.iter().map(|shard| writes(&shard.0)).sum())
}

fn mutex(world: &World<'_>) -> Result<Outcome, Refused> {
    let lock = |shard: &Mutex<Shard>| {
        let held = shard.lock().unwrap_or_else(PoisonError::into_inner);
        held.writes()
    };
    let ask = |shard: &Mutex<Shard>, request| {
        let mut held = shard.lock().unwrap_or_else(PoisonError::into_inner);
        held.serve(request)
    };
    Ok(locked(world, Mutex::new, ask, lock))
}

fn rwlock(world: &World<'_>) -> Result<Outcome, Refused> {
    let ask = |shard: &RwLock<Shard>, request: Request| {
        if request.writes() {
            let mut held = shard.write().unwrap_or_else(PoisonError::into_inner);
            held.write(request.key())
        } else {
            let held = shard.read().unwrap_or_else(PoisonError::into_inner);
            held.read(request.key())
        }
    };
    let writes = |shard: &RwLock<Shard>| {
        let held = shard.read().unwrap_or_else(PoisonError::into_inner);
        held.writes()
    };
    Ok(locked(world, RwLock::new, ask, writes))
}

/// Asks without waiting until the time is over, and waits for the answers.
fn delegate<'c>(
    client: &Client<'c>,
    shards: &[Owned<Shard>],
    (watch, sum): (&'c Watch, &'c AtomicU64),
    requests: &[Request],
    stop: &AtomicBool,
) -> Result<(u64, u64), Refused> {
    let serve = client.prepare(
        |shard: &mut Shard, request: Request| shard.serve(request),
        |started, answer: Result<u64, Refused>| {
            sum.store(answer.unwrap_or(0), Ordering::Relaxed);
            watch.stop(started);
        },
    );
    let mut refused = Ok(());
    let done = go_round(requests, stop, |number, request| {
        let asked = serve.call(&shards[request.shard()], request, watch.start(number));
        refused = std::mem::replace(&mut refused, Ok(())).and(asked);
    });
    refused?;
    client.barrier()?;
    Ok(done)
}

/// What the shards count in the end.
fn count(domain: &Domain, shards: &[Owned<Shard>]) -> Result<u64, Refused> {
    let client = domain.client()?;
    let mut writes = 0;
    for shard in shards {
        writes += client.apply(shard, |shard| shard.writes())?;
    }
    Ok(writes)
}

fn delegated(world: &World<'_>, flat: bool) -> Result<Outcome, Refused> {
    let threads = world.cpus.len();
    let servers = (threads / 4).max(1);
    let (domain, clients) = if flat {
        (Domain::flat(threads).build()?, world.cpus)
    } else {
        let domain = Domain::dedicated(servers).server_cpus(&world.cpus[..servers]);
        (domain.build()?, &world.cpus[servers..])
    };
    let shards = (0..SHARDS)
        .map(|shard| domain.own(shard % domain.shards(), move || Shard::new(shard)))
        .collect::<Result<Vec<_>, _>>()?;
    let failed = OnceLock::new();
    let seen = run(clients, world.time, |index, stop, ready| {
        let (watch, sum) = (Watch::new(), AtomicU64::new(0));
        let client = if flat {
            domain.client_at(index)
        } else {
            domain.client()
        };
        ready.wait();
        let done = client.and_then(|client| {
            let requests = &world.requests[index];
            delegate(&client, &shards, (&watch, &sum), requests, stop)
        });
        let (requests, writes) = done.unwrap_or_else(|error| {
            failed.get_or_init(|| error);
            (0, 0)
        });
        Seen {
            requests,
            writes,
            latencies_ns: watch.latencies_ns.into_inner(),
        }
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok((seen, count(&domain, &shards)?)),
    }
}

/// What all caches have in common.
struct World<'a> {
    cpus: &'a [u32],
    time: Duration,
    /// Of each thread.
    requests: &'a [Vec<Request>],
}

/// What the threads saw, and the writes that the table holds.
type Outcome = (Vec<Seen>, u64);

/// A cache under measurement, with what its rounds gave.
struct Row {
    name: &'static str,
    cache: fn(&World<'_>) -> Result<Outcome, Refused>,
    mops: Vec<f64>,
    /// 50th, 99th and 99.9th percentile of each round, ns.
    latencies_ns: [Vec<f64>; 3],
}

impl Row {
    fn new(name: &'static str, cache: fn(&World<'_>) -> Result<Outcome, Refused>) -> Self {
        Self {
            name,
            cache,
            mops: Vec::new(),
            latencies_ns: Default::default(),
        }
    }

    fn measure(&mut self, world: &World<'_>) -> Result<(), Box<dyn Error>> {
        let (seen, held) = (self.cache)(world)?;
        let requests: u64 = seen.iter().map(|seen| seen.requests).sum();
        let writes: u64 = seen.iter().map(|seen| seen.writes).sum();
        if held != writes {
            return Err(format!("{}: {writes} writes, and {held} are there", self.name).into());
        }
        self.mops
            .push(requests as f64 / world.time.as_secs_f64() / 1e6);
        let mut latencies: Vec<u32> = seen
            .into_iter()
            .flat_map(|seen| seen.latencies_ns)
            .collect();
        latencies.sort_unstable();
        for (share, rounds) in [0.5, 0.99, 0.999].into_iter().zip(&mut self.latencies_ns) {
            let at = (latencies.len() as f64 * share) as usize;
            rounds.push(latencies.get(at).map_or(f64::NAN, |&ns| f64::from(ns)));
        }
        Ok(())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(0.5), |text| text.parse())?;
    let only = arguments.next().unwrap_or_default();
    let mut cpus = allowed_cpus();
    if cpus.len() < 2 {
        // Two threads on one CPU: slow, and right.
        cpus = vec![cpus.first().copied().unwrap_or(0); 2];
    }
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += f64::from(rank).powf(-EXPONENT);
            sum
        })
        .collect();
    println!(
        "{:<7}{:<13}{:>7}{:>17}{:>10}{:>10}{:>11}",
        "r/w %", "shards", "Mops", "spread", "p50 ns", "p99 ns", "p99.9 ns"
    );
    for writes in [5, 50] {
        let requests: Vec<Vec<Request>> = (0..cpus.len() as u64)
            .map(|thread| draw(&sums, f64::from(writes) / 100.0, thread))
            .collect();
        let world = World {
            cpus: &cpus,
            time: Duration::from_secs_f64(seconds),
            requests: &requests,
        };
        let mut rows = vec![
            Row::new("mutex", mutex),
            Row::new("rwlock", rwlock),
            Row::new("dedicated", |world| delegated(world, false)),
            Row::new("flat", |world| delegated(world, true)),
        ];
        rows.retain(|row| row.name.contains(only.as_str()));
        let mut trips = Vec::new();
        for _ in 0..rounds {
            for row in &mut rows {
                row.measure(&world)?;
            }
            let trip = measure_round_trip(cpus[0], cpus[1], Duration::from_millis(10));
            trips.extend(trip.map(|trip| trip.median_ns));
        }
        for row in &mut rows {
            let rate = median(&mut row.mops);
            let spread = format!("{:.1} to {:.1}", row.mops[0], row.mops[rounds - 1]);
            let [middle, high, highest] = &mut row.latencies_ns;
            println!(
                "{:<7}{:<13}{rate:>7.1}{spread:>17}{:>10.0}{:>10.0}{:>11.0}",
                format!("{}/{writes}", 100 - writes),
                row.name,
                median(middle),
                median(high),
                median(highest),
            );
        }
        println!(
            "       round trip {:.0} ns, {:.0} to {:.0}",
            median(&mut trips),
            trips.first().copied().unwrap_or(f64::NAN),
            trips.last().copied().unwrap_or(f64::NAN)
        );
    }
    Ok(())
}
