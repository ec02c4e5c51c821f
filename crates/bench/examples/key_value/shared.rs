//! Caches that all threads use themselves: shards behind locks, and maps.

use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError, RwLock};

use linewise_delegate::Error as Refused;

use crate::{KEYS, Outcome, Request, SHARDS, Seen, Shard, Watch, World, go_round, run};

/// A lock on lines of its own: the shards' locks are not to be in each other's way.
#[repr(align(128))]
struct Apart<L>(L);

/// All of them: each thread gets a way to serve its requests, with their numbers.
fn shared<A: FnMut(usize, Request) -> u64>(
    world: &World<'_>,
    asker: impl Fn() -> A + Sync,
    writes: impl FnOnce() -> u64,
) -> Outcome {
    let seen = run(world.cpus, world.time, |index, stop, ready| {
        let (watch, mut ask) = (Watch::new(), asker());
        let mut sum = 0_u64;
        ready.wait();
        let (requests, writes) = go_round(&world.requests[index], stop, |number, request| {
            let started = watch.start(number);
            sum = sum.wrapping_add(ask(number, request));
            watch.stop(started);
        });
        std::hint::black_box(sum);
        Seen {
            requests,
            writes,
            latencies_ns: watch.latencies_ns.into_inner(),
        }
    });
    (seen, writes())
}

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
    let asker = || |_: usize, request: Request| ask(&shards[request.shard()].0, request);
    shared(world, asker, || {
        shards.iter().map(|shard| writes(&shard.0)).sum()
    })
}

pub(crate) fn mutex(world: &World<'_>) -> Result<Outcome, Refused> {
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

pub(crate) fn rwlock(world: &World<'_>) -> Result<Outcome, Refused> {
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

/// What maps have of a key.
#[derive(Clone, Copy, Default)]
struct Value {
    writes: u64,
    value: [u64; 5],
}

impl Value {
    fn read(&self) -> u64 {
        self.value.iter().sum()
    }

    fn write(&mut self) -> u64 {
        self.writes += 1;
        self.value[self.writes as usize % 5] = self.writes;
        self.writes
    }
}

/// As fast a hash as that of the shards: one multiplication.
#[derive(Clone, Default)]
struct Fast;

struct FastHasher(u64);

impl BuildHasher for Fast {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        FastHasher(0)
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) fn dashmap(world: &World<'_>) -> Result<Outcome, Refused> {
    let map = dashmap::DashMap::with_hasher(Fast);
    for key in 0..KEYS {
        map.insert(key, Value::default());
    }
    let asker = || {
        |_: usize, request: Request| {
            if request.writes() {
                map.get_mut(&request.key())
                    .map_or(0, |mut value| value.write())
            } else {
                map.get(&request.key()).map_or(0, |value| value.read())
            }
        }
    };
    let writes = || map.iter().map(|entry| entry.value().writes).sum();
    Ok(shared(world, asker, writes))
}

/// Values are replaced, which is how this map changes them; the guard of its memory is renewed for every 64
/// requests.
pub(crate) fn papaya(world: &World<'_>) -> Result<Outcome, Refused> {
    let map = papaya::HashMap::with_hasher(Fast);
    for key in 0..KEYS {
        map.pin().insert(key, Value::default());
    }
    let asker = || {
        let mut pinned = map.pin();
        let map = &map;
        move |number: usize, request: Request| {
            if number.is_multiple_of(64) {
                pinned = map.pin();
            }
            if request.writes() {
                let write = |value: &Value| {
                    let mut value = *value;
                    value.write();
                    value
                };
                pinned
                    .update(request.key(), write)
                    .map_or(0, |value| value.writes)
            } else {
                pinned.get(&request.key()).map_or(0, Value::read)
            }
        }
    };
    let writes = || map.pin().values().map(|value| value.writes).sum();
    Ok(shared(world, asker, writes))
}

pub(crate) fn scc(world: &World<'_>) -> Result<Outcome, Refused> {
    let map = scc::HashMap::with_hasher(Fast);
    for key in 0..KEYS {
        let _ = map.insert_sync(key, Value::default());
    }
    let asker = || {
        |_: usize, request: Request| {
            let answer = if request.writes() {
                map.update_sync(&request.key(), |_, value| value.write())
            } else {
                map.read_sync(&request.key(), |_, value| value.read())
            };
            answer.unwrap_or(0)
        }
    };
    let writes = || {
        let mut writes = 0;
        map.iter_sync(|_, value| {
            writes += value.writes;
            true
        });
        writes
    };
    Ok(shared(world, asker, writes))
}
