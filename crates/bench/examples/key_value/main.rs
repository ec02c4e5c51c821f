//! Question: what does a sharded key-value cache gain if its shards are delegated instead of locked, beside
//! the concurrent maps that people use and rings written by hand, and at which latency?
//!
//! Method: a table of 100,000 keys. Every thread asks for keys by Zipf's law (exponent 0.99), 95 or 50 of
//! 100 requests read and the others write. The table is 16 shards, each behind a mutex or a reader-writer
//! lock; or a map (dashmap, papaya, scc); or 16 shards that a server owns (dedicated: one of the threads; flat: all
//! of them); or those shards in a thread that is asked through two rings (rtrb), 64 requests at a time, with
//! so many on their way. A delegating client waits for each answer (`call`), for all after so many requests, paces
//! itself for a latency (`10 us`), or asks far ahead. Everybody takes turns; the medians of the rounds are printed,
//! with the round trip of a line: on a quiet machine, and beside a process that keeps one CPU busy. Latency is
//! that of one request in 16, chosen without regard to batches, from asking to the answer. Writes are counted in
//! the table, and all must be there. In the end: each one's highest throughput at a limit of the 99th percentile.
//!
//! `cargo run --release -p linewise-bench --example key_value -- [ROUNDS] [SECONDS] [NAME] [WRITES] [STATE]`, where
//! NAME is a part of a name, WRITES how many of 100 requests write, STATE quiet or busy; `linewise run` on the one
//! with `mutex` names the lock.

mod delegated;
mod rings;
mod shared;

use std::cell::RefCell;
use std::error::Error;
use std::process::{Child, Command};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linewise_delegate::Error as Refused;
use linewise_machine::affinity::{allowed_cpus, pin_current_thread};
use linewise_machine::latency::measure_round_trip;

const KEYS: u32 = 100_000;
const SHARDS: usize = 16;
const EXPONENT: f64 = 0.99;
/// Requests that a thread goes round in, drawn before the clock runs.
const DRAWN: usize = 1 << 18;

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

    /// The time, for one request in 16; 0 for the others.
    #[inline]
    fn start(&self, number: usize) -> u64 {
        // Scattered: a batch of a length that divides 16 would always show the same place.
        if number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0 {
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

/// What all caches have in common.
struct World<'a> {
    cpus: &'a [u32],
    time: Duration,
    /// Of each thread.
    requests: &'a [Vec<Request>],
}

/// What the threads saw, and the writes that the table holds.
type Outcome = (Vec<Seen>, u64);

/// How a cache is asked.
type Cache = Box<dyn Fn(&World<'_>) -> Result<Outcome, Refused>>;

/// A cache under measurement, with what its rounds gave.
struct Row {
    name: &'static str,
    setting: String,
    cache: Cache,
    mops: Vec<f64>,
    /// 50th, 99th and 99.9th percentile of each round, ns.
    latencies_ns: [Vec<f64>; 3],
}

impl Row {
    fn new(
        name: &'static str,
        setting: impl Into<String>,
        cache: impl Fn(&World<'_>) -> Result<Outcome, Refused> + 'static,
    ) -> Self {
        Self {
            name,
            setting: setting.into(),
            cache: Box::new(cache),
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

/// All caches, each with its settings.
fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row::new("mutex", "", shared::mutex),
        Row::new("rwlock", "", shared::rwlock),
        Row::new("dashmap", "", shared::dashmap),
        Row::new("papaya", "", shared::papaya),
        Row::new("scc", "", shared::scc),
    ];
    for flying in [64, 128, 256, 1024, 4096] {
        let setting = format!("{flying}");
        rows.push(Row::new("rings", setting, move |world| {
            rings::rings(world, flying)
        }));
    }
    for (name, flat) in [("dedicated", false), ("flat", true)] {
        for way in delegated::WAYS {
            let delegated = move |world: &World<'_>| delegated::delegated(world, flat, way);
            rows.push(Row::new(name, way.to_string(), delegated));
        }
    }
    rows
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A process that keeps a CPU busy until this is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> std::io::Result<Self> {
        Command::new(std::env::current_exe()?)
            .arg("spin")
            .spawn()
            .map(Self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // What has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a busy process does; for ten minutes at most, should nobody end it.
fn spin() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(600) {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}

/// Limits of the 99th percentile, ns.
const LIMITS_NS: [f64; 3] = [1e3, 1e4, 1e5];

/// Measures all rows in turns and prints them.
fn table(rows: &mut [Row], rounds: usize, world: &World<'_>) -> Result<(), Box<dyn Error>> {
    let mut trips = Vec::new();
    for _ in 0..rounds {
        for row in rows.iter_mut() {
            row.measure(world)?;
        }
        let trip = measure_round_trip(world.cpus[0], world.cpus[1], Duration::from_millis(10));
        trips.extend(trip.map(|trip| trip.median_ns));
    }
    println!(
        "{:<11}{:<9}{:>7}{:>17}{:>10}{:>10}{:>11}",
        "cache", "setting", "Mops", "spread", "p50 ns", "p99 ns", "p99.9 ns"
    );
    let mut best: Vec<(&str, [f64; 3])> = Vec::new();
    for row in rows {
        let rate = median(&mut row.mops);
        let spread = format!("{:.1} to {:.1}", row.mops[0], row.mops[rounds - 1]);
        let [middle, high, highest] = row.latencies_ns.each_mut().map(|ns| median(ns));
        println!(
            "{:<11}{:<9}{rate:>7.1}{spread:>17}{middle:>10.0}{high:>10.0}{highest:>11.0}",
            row.name, row.setting
        );
        if best.last().is_none_or(|(name, _)| *name != row.name) {
            best.push((row.name, [0.0; 3]));
        }
        let (_, rates) = best.last_mut().expect("pushed just now");
        for (limit, held) in LIMITS_NS.into_iter().zip(rates) {
            *held = if high <= limit { held.max(rate) } else { *held };
        }
    }
    println!("\nMops with p99 up to     1 us    10 us   100 us");
    for (name, rates) in best {
        let told = |rate: f64| {
            if rate > 0.0 {
                format!("{rate:.1}")
            } else {
                "-".to_owned()
            }
        };
        let [one, ten, hundred] = rates.map(told);
        println!("{name:<20}{one:>8}{ten:>9}{hundred:>9}");
    }
    println!(
        "round trip {:.0} ns, {:.0} to {:.0}\n",
        median(&mut trips),
        trips.first().copied().unwrap_or(f64::NAN),
        trips.last().copied().unwrap_or(f64::NAN)
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == "spin") {
        spin();
        return Ok(());
    }
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(0.5), |text| text.parse())?;
    let only = arguments.next().unwrap_or_default();
    let shares = match arguments.next() {
        Some(text) => vec![text.parse()?],
        None => vec![5, 50],
    };
    let state = arguments.next();
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
    for writes in shares {
        let requests: Vec<Vec<Request>> = (0..cpus.len() as u64)
            .map(|thread| draw(&sums, f64::from(writes) / 100.0, thread))
            .collect();
        let world = World {
            cpus: &cpus,
            time: Duration::from_secs_f64(seconds),
            requests: &requests,
        };
        for (name, is_busy) in [("quiet", false), ("busy", true)] {
            if state.as_ref().is_some_and(|state| state != name) {
                continue;
            }
            println!("{} of 100 requests read, {name}", 100 - writes);
            let _busy = is_busy.then(Busy::start).transpose()?;
            let mut rows = rows();
            rows.retain(|row| row.name.contains(only.as_str()));
            table(&mut rows, rounds, &world)?;
        }
    }
    Ok(())
}
