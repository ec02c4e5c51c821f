//! Question: how many fetch-and-adds a second do two pinned threads make, delegated, beside atomics?
//!
//! Method: N variables of 64 bytes, indices by xorshift, each answer added to a sum. Every row is
//! measured in turns with the atomic and the round trip of one line, several times in one run.
//!
//! `cargo run --release -p linewise-delegate --example fetch_add -- [ROUNDS] [MILLISECONDS]`

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linewise_delegate::{Client, Domain, Error, Policy, Sharded, Target, place};

#[repr(align(64))]
struct Variable(u64);

#[repr(align(64))]
struct Shared(AtomicU64);

fn add(variable: &mut Variable, operand: u64) -> u64 {
    let before = variable.0;
    variable.0 = before + operand;
    before
}

struct Random(u64);

impl Random {
    #[inline(always)]
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }
}

/// Runs `work` on `threads` pinned threads until the time is over; millions of operations a second.
fn measure(threads: usize, time: Duration, work: impl Fn(usize, &AtomicBool) -> u64 + Sync) -> f64 {
    let stop = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for index in 0..threads {
            let (stop, total, work, ready) = (&stop, &total, &work, &ready);
            scope.spawn(move || {
                place::pin(index as u32).unwrap();
                ready.wait();
                total.fetch_add(work(index, stop), Ordering::Relaxed);
            });
        }
        ready.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    total.into_inner() as f64 / time.as_secs_f64() / 1e6
}

fn atomic(count: usize, time: Duration) -> f64 {
    let variables: Vec<Shared> = (0..count).map(|_| Shared(AtomicU64::new(0))).collect();
    measure(2, time, |index, stop| {
        let mut random = Random(88_172_645_463_325_252 + index as u64 * 7919);
        let (mut done, mut sum) = (0, 0u64);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..64 {
                let variable = &variables[random.next() & (count - 1)];
                sum = sum.wrapping_add(variable.0.fetch_add(1, Ordering::Relaxed));
            }
            done += 64;
        }
        black_box(sum);
        done
    })
}

/// Requests of a batch.
const BATCH: usize = 126;
/// Closures of a batch.
const CLOSURES: u64 = 2048;

/// What a client asks for in its loop.
#[derive(Clone, Copy)]
enum Ask {
    Batch,
    Prepared,
    Typed,
    Closure,
    Closures,
}

/// Asks for variables at random until the time is over.
#[inline(always)]
fn hammer<'v>(
    values: &'v Sharded<Variable>,
    stop: &AtomicBool,
    seed: u64,
    mut ask: impl FnMut(Target<'v, Variable>),
) -> u64 {
    let mut random = Random(88_172_645_463_325_252 + seed * 7919);
    let mask = values.len() - 1;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            ask(values.at(random.next() & mask));
        }
        done += 64;
    }
    done
}

fn client_loop(
    client: &Client<'_>,
    values: &Sharded<Variable>,
    ask: Ask,
    stop: &AtomicBool,
    seed: u64,
) -> u64 {
    let sum: &'static Cell<u64> = Box::leak(Box::new(Cell::new(0)));
    let then = |answer: Result<u64, Error>| sum.set(sum.get().wrapping_add(answer.unwrap()));
    let prepared = client.prepare(
        |variable: &mut Variable, ()| add(variable, 1),
        move |(), answer| then(answer),
    );
    let done = match ask {
        Ask::Batch => {
            let mut random = Random(88_172_645_463_325_252 + seed * 7919);
            let mask = values.len() - 1;
            let mut done = 0;
            let mut requests = [(0, (), ()); BATCH];
            while !stop.load(Ordering::Relaxed) {
                for request in &mut requests {
                    request.0 = random.next() & mask;
                }
                prepared.call_batch(values, &requests).unwrap();
                done += BATCH as u64;
            }
            done
        }
        Ask::Prepared => hammer(values, stop, seed, |target| {
            prepared.call(target, (), ()).unwrap();
        }),
        Ask::Typed => hammer(values, stop, seed, |target| {
            client.call_async(target, add, 1, then).unwrap();
        }),
        Ask::Closures => {
            let mut random = Random(88_172_645_463_325_252 + seed * 7919);
            let mask = values.len() - 1;
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                let request = |number: u64| {
                    let operand = number % 3;
                    let function = move |value: &mut Variable| add(value, operand);
                    (values.at(random.next() & mask), function)
                };
                let requests = (0..CLOSURES).map(request);
                client
                    .apply_each(requests, move |_, answer| then(answer))
                    .unwrap();
                done += CLOSURES;
            }
            done
        }
        Ask::Closure => {
            let mut operand = 0;
            hammer(values, stop, seed, |target| {
                operand = (operand + 1) % 3;
                let one = operand;
                let function = move |value: &mut Variable| add(value, one);
                client.apply_async(target, function, then).unwrap();
            })
        }
    };
    client.barrier().unwrap();
    black_box(sum.get());
    done
}

fn dedicated(count: usize, time: Duration, ask: Ask, timed: bool) -> (f64, f64) {
    let builder = Domain::dedicated(1).server_cpus([1]);
    let domain = if timed { builder.timed() } else { builder }
        .build()
        .unwrap();
    let values = domain.own_sharded(count, |_| Variable(0)).unwrap();
    let rate = measure(1, time, |_, stop| {
        client_loop(&domain.client().unwrap(), &values, ask, stop, 0)
    });
    let stats = domain.shard_stats()[0];
    (rate, stats.ticks_per_request())
}

fn flat(count: usize, time: Duration, policy: Policy, ask: Ask) -> f64 {
    let domain = Domain::flat(2).policy(policy).build().unwrap();
    // Built by this thread, since no client sits yet.
    let values = domain.own_sharded(count, |_| Variable(0)).unwrap();
    let seated = Barrier::new(2);
    measure(2, time, |index, stop| {
        let client = domain.client_at(index).unwrap();
        seated.wait();
        client_loop(&client, &values, ask, stop, index as u64)
    })
}

/// One thread that asks itself through request lines: what both sides cost without a transfer.
fn alone(count: usize, time: Duration) -> f64 {
    let policy = Policy::ServeWhenBlocked;
    let domain = Domain::flat(1).policy(policy).build().unwrap();
    let values = domain.own_sharded(count, |_| Variable(0)).unwrap();
    measure(1, time, |_, stop| {
        client_loop(&domain.client().unwrap(), &values, Ask::Batch, stop, 0)
    })
}

/// One call at a time, in nanoseconds.
fn waiting(time: Duration) -> f64 {
    let domain = Domain::dedicated(1).server_cpus([1]).build().unwrap();
    let value = domain.own(0, || Variable(0)).unwrap();
    let rate = measure(1, time, |_, stop| {
        let client = domain.client().unwrap();
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            black_box(client.call(&value, add, 1).unwrap());
            done += 1;
        }
        done
    });
    1e3 / rate
}

/// The round trip of one line, in nanoseconds.
fn round_trip() -> f64 {
    const TRIPS: u32 = 100_000;
    let line = AtomicU32::new(0);
    let mut result = 0.0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            place::pin(1).unwrap();
            for trip in 0..TRIPS {
                while line.load(Ordering::Acquire) != 2 * trip + 1 {
                    std::hint::spin_loop();
                }
                line.store(2 * trip + 2, Ordering::Release);
            }
        });
        let result = &mut result;
        let line = &line;
        scope.spawn(move || {
            place::pin(0).unwrap();
            let begin = Instant::now();
            for trip in 0..TRIPS {
                line.store(2 * trip + 1, Ordering::Release);
                while line.load(Ordering::Acquire) != 2 * trip + 2 {
                    std::hint::spin_loop();
                }
            }
            *result = begin.elapsed().as_nanos() as f64 / f64::from(TRIPS);
        });
    });
    result
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Row<'a> = (&'a str, Box<dyn Fn() -> (f64, f64)>);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| {
        arguments
            .next()
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let rounds = number(5) as usize;
    let time = Duration::from_millis(number(100));
    let only = arguments.next().unwrap_or_default();
    let pair = move |count: usize, rate: f64| (rate, atomic(count, time));
    let mut rows: Vec<Row<'_>> = vec![
        (
            "dedicated 1+1, N = 64",
            Box::new(move || pair(64, dedicated(64, time, Ask::Batch, false).0)),
        ),
        (
            "dedicated 1+1, N = 4096",
            Box::new(move || pair(4096, dedicated(4096, time, Ask::Batch, false).0)),
        ),
        (
            "dedicated 1+1, N = 262144",
            Box::new(move || pair(1 << 18, dedicated(1 << 18, time, Ask::Batch, false).0)),
        ),
        (
            "one by one, prepared, 1+1, N = 64",
            Box::new(move || pair(64, dedicated(64, time, Ask::Prepared, false).0)),
        ),
        (
            "one by one, not prepared, 1+1, N = 64",
            Box::new(move || pair(64, dedicated(64, time, Ask::Typed, false).0)),
        ),
        (
            "closures, 1+1, N = 64",
            Box::new(move || pair(64, dedicated(64, time, Ask::Closure, false).0)),
        ),
        (
            "closures in batches, 1+1, N = 64",
            Box::new(move || pair(64, dedicated(64, time, Ask::Closures, false).0)),
        ),
        (
            "one thread with itself, N = 64",
            Box::new(move || pair(64, alone(64, time))),
        ),
        (
            "ticks per request, N = 64",
            Box::new(move || (dedicated(64, time, Ask::Batch, true).1, 12.0)),
        ),
        (
            "waiting call, ns (beside: round trip)",
            Box::new(move || (waiting(time), round_trip())),
        ),
    ];
    for (name, count) in [
        ("64", 64),
        ("4096", 4096),
        ("262144", 1 << 18),
        ("4 million", 1 << 22),
    ] {
        let name: &'static str = Box::leak(format!("flat queue, 2 threads, N = {name}").into());
        rows.push((
            name,
            Box::new(move || pair(count, flat(count, time, Policy::Queue, Ask::Batch))),
        ));
    }
    for (name, policy) in [
        ("flat when blocked, N = 64", Policy::ServeWhenBlocked),
        ("flat fast path, N = 64", Policy::FastPath),
        ("flat bound 256, N = 64", Policy::UpperBound(256)),
        ("flat doorbell, N = 64", Policy::Doorbell),
    ] {
        rows.push((
            name,
            Box::new(move || pair(64, flat(64, time, policy, Ask::Batch))),
        ));
    }
    println!(
        "{:38} {:>9} {:>9} {:>7}  {:>15}  {:>9}",
        "", "delegated", "beside", "ratio", "spread", "round trip"
    );
    for (name, row) in &rows {
        if !name.contains(&only) {
            continue;
        }
        let (mut ours, mut beside, mut ratios, mut trips) = (vec![], vec![], vec![], vec![]);
        for _ in 0..rounds {
            let (rate, other) = row();
            ours.push(rate);
            beside.push(other);
            ratios.push(rate / other);
            trips.push(round_trip());
        }
        let (rate, other, ratio) = (median(&mut ours), median(&mut beside), median(&mut ratios));
        let spread = format!("{:.0} to {:.0}", ours[0], ours[rounds - 1]);
        let trip = format!(
            "{:.0} to {:.0}",
            trips.iter().copied().fold(f64::MAX, f64::min),
            trips.iter().copied().fold(0.0, f64::max)
        );
        println!("{name:38} {rate:9.1} {other:9.1} {ratio:7.2}  {spread:>15}  {trip:>9}");
    }
}
