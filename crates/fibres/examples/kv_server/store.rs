//! What the server keeps: in shards, each under a lock of its own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::protocol::{MOST_VALUE, Verb};

/// Shards; a power of two.
const SHARDS: usize = 64;
/// What an item takes beyond its key and value, about.
const OVERHEAD: usize = 120;
/// Times up to this are from now, others since 1970.
const MONTH: i64 = 60 * 60 * 24 * 30;
/// No time.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    /// In seconds of the store; [`NEVER`].
    expires: u64,
    /// When it was stored.
    since: u64,
    /// Of its place in the queue.
    place: u64,
    /// Looked up since it was last considered to be dropped.
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    items: HashMap<Arc<[u8]>, Item>,
    /// In the order in which they came; those whose place is another by now are gone.
    queue: VecDeque<(Arc<[u8]>, u64)>,
    bytes: usize,
    next_cas: u64,
    next_place: u64,
    counts: Counts,
}

/// What happened, by shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) get_hits: u64,
    pub(crate) get_misses: u64,
    pub(crate) stores: u64,
    pub(crate) delete_hits: u64,
    pub(crate) delete_misses: u64,
    pub(crate) incr_hits: u64,
    pub(crate) incr_misses: u64,
    pub(crate) decr_hits: u64,
    pub(crate) decr_misses: u64,
    pub(crate) cas_hits: u64,
    pub(crate) cas_misses: u64,
    pub(crate) cas_badval: u64,
    pub(crate) evictions: u64,
    pub(crate) expired: u64,
    pub(crate) total_items: u64,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

/// A shard in lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(Mutex<Shard>);

#[derive(Debug)]
pub(crate) struct Store {
    shards: Box<[Apart]>,
    hasher: RandomState,
    begun: Instant,
    /// Items stored before this second are gone, from it on; [`NEVER`] if none are to be.
    flush_at: AtomicU64,
    most_of_shard: usize,
    pub(crate) most: usize,
    pub(crate) flushes: AtomicU64,
    pub(crate) connections: AtomicI64,
    pub(crate) all_connections: AtomicU64,
}

/// What became of a value that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Yes,
    No,
    Exists,
    NotFound,
    TooLarge,
}

/// What became of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Now(u64),
    NotFound,
    NoNumber,
}

impl Store {
    /// A store of so many bytes at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Apart::default()).collect(),
            hasher: RandomState::new(),
            begun: Instant::now(),
            flush_at: AtomicU64::new(NEVER),
            // The largest value fits whatever is asked for.
            most_of_shard: (most / SHARDS).max(MOST_VALUE + 4096),
            most,
            flushes: AtomicU64::new(0),
            connections: AtomicI64::new(0),
            all_connections: AtomicU64::new(0),
        }
    }

    /// Seconds since it was made, and one: an item is older than a flush in its very second.
    pub(crate) fn now(&self) -> u64 {
        self.begun.elapsed().as_secs() + 1
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        lock(&self.shards[index])
    }

    /// When an item that is to expire at `time`, as clients write it, does.
    fn expiry(&self, time: i64, now: u64) -> u64 {
        match time {
            0 => NEVER,
            ..0 => 0,
            1..=MONTH => now + time.unsigned_abs(),
            _ => {
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
                let since_1970 = since_1970.map_or(0, |it| it.as_secs());
                let left = time.unsigned_abs().checked_sub(since_1970);
                left.map_or(0, |left| now + left)
            }
        }
    }

    /// Items that were stored before this second are gone.
    fn flushed_before(&self, now: u64) -> u64 {
        let at = self.flush_at.load(Ordering::Acquire);
        if at <= now { at } else { 0 }
    }

    /// Adds an item to `out`, as it is told to clients; nothing if there is none.
    pub(crate) fn get(&self, key: &[u8], with_cas: bool, out: &mut Vec<u8>) {
        let now = self.now();
        let gone = self.flushed_before(now);
        let mut shard = self.shard(key);
        let Some(item) = shard.live(key, now, gone) else {
            shard.counts.get_misses += 1;
            return;
        };
        item.used = true;
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        out.push(b' ');
        put_number(out, item.flags.into());
        out.push(b' ');
        put_number(out, item.value.len() as u64);
        if with_cas {
            out.push(b' ');
            put_number(out, item.cas);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&item.value);
        out.extend_from_slice(b"\r\n");
        shard.counts.get_hits += 1;
    }

    /// Stores a value.
    pub(crate) fn store(
        &self,
        verb: Verb,
        key: &[u8],
        value: &[u8],
        (flags, time): (u32, i64),
    ) -> Stored {
        let now = self.now();
        let expires = self.expiry(time, now);
        let gone = self.flushed_before(now);
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        shard.counts.stores += 1;
        let cas = shard.next_cas();
        let Some(old) = shard.live(key, now, gone) else {
            return match verb {
                Verb::Set | Verb::Add => {
                    shard.insert(key, value.to_vec(), (flags, expires), (now, cas));
                    shard.make_room(self.most_of_shard, now, gone);
                    Stored::Yes
                }
                Verb::Cas(_) => {
                    shard.counts.cas_misses += 1;
                    Stored::NotFound
                }
                _ => Stored::No,
            };
        };
        let before = old.value.len();
        match verb {
            Verb::Add => return Stored::No,
            Verb::Cas(seen) if seen != old.cas => {
                shard.counts.cas_badval += 1;
                return Stored::Exists;
            }
            Verb::Append | Verb::Prepend => {
                if before + value.len() > MOST_VALUE {
                    return Stored::TooLarge;
                }
                let at = if verb == Verb::Append { before } else { 0 };
                old.value.splice(at..at, value.iter().copied());
            }
            _ => {
                // A buffer that is far too large is not kept.
                if old.value.capacity() > value.len().max(64) * 4 {
                    old.value = Vec::new();
                }
                old.value.clear();
                old.value.extend_from_slice(value);
                (old.flags, old.expires) = (flags, expires);
            }
        }
        (old.cas, old.since) = (cas, now);
        let after = old.value.len();
        shard.bytes = shard.bytes - before + after;
        shard.counts.cas_hits += u64::from(matches!(verb, Verb::Cas(_)));
        shard.counts.total_items += 1;
        shard.make_room(self.most_of_shard, now, gone);
        Stored::Yes
    }

    /// Takes an item out; false if there is none.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let now = self.now();
        let gone = self.flushed_before(now);
        let mut shard = self.shard(key);
        let is_there = shard.live(key, now, gone).is_some();
        if is_there {
            shard.remove(key);
            shard.counts.delete_hits += 1;
        } else {
            shard.counts.delete_misses += 1;
        }
        is_there
    }

    /// Takes an item out that a value too large was to take the place of.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.shard(key).remove(key);
    }

    /// Counts up or down: up beyond the largest number to 0, down to 0 at least.
    pub(crate) fn count(&self, key: &[u8], up: bool, by: u64) -> Counted {
        let now = self.now();
        let gone = self.flushed_before(now);
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        let cas = shard.next_cas();
        let Some(item) = shard.live(key, now, gone) else {
            let counts = &mut shard.counts;
            *(if up {
                &mut counts.incr_misses
            } else {
                &mut counts.decr_misses
            }) += 1;
            return Counted::NotFound;
        };
        let text = std::str::from_utf8(&item.value).ok();
        let digits = text.filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
        let Some(before) = digits.and_then(|it| it.parse::<u64>().ok()) else {
            return Counted::NoNumber;
        };
        let after = if up {
            before.wrapping_add(by)
        } else {
            before.saturating_sub(by)
        };
        let length = item.value.len();
        item.value.clear();
        put_number(&mut item.value, after);
        item.cas = cas;
        let now_long = item.value.len();
        shard.bytes = shard.bytes - length + now_long;
        let counts = &mut shard.counts;
        *(if up {
            &mut counts.incr_hits
        } else {
            &mut counts.decr_hits
        }) += 1;
        Counted::Now(after)
    }

    /// Lets go of all items, now or at a time as clients write it.
    pub(crate) fn flush_all(&self, delay: i64) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        if delay <= 0 {
            for shard in &self.shards {
                let mut shard = lock(shard);
                shard.items.clear();
                shard.queue.clear();
                shard.bytes = 0;
            }
            self.flush_at.store(NEVER, Ordering::Release);
        } else {
            self.flush_at
                .store(self.expiry(delay, now), Ordering::Release);
        }
    }

    /// What happened in all shards.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for shard in &self.shards {
            let shard = lock(shard);
            let of = &shard.counts;
            sum.get_hits += of.get_hits;
            sum.get_misses += of.get_misses;
            sum.stores += of.stores;
            sum.delete_hits += of.delete_hits;
            sum.delete_misses += of.delete_misses;
            sum.incr_hits += of.incr_hits;
            sum.incr_misses += of.incr_misses;
            sum.decr_hits += of.decr_hits;
            sum.decr_misses += of.decr_misses;
            sum.cas_hits += of.cas_hits;
            sum.cas_misses += of.cas_misses;
            sum.cas_badval += of.cas_badval;
            sum.evictions += of.evictions;
            sum.expired += of.expired;
            sum.total_items += of.total_items;
            sum.items += shard.items.len() as u64;
            sum.bytes += shard.bytes as u64;
        }
        sum
    }

    pub(crate) fn reset_counts(&self) {
        for shard in &self.shards {
            lock(shard).counts = Counts::default();
        }
        self.flushes.store(0, Ordering::Relaxed);
    }
}

/// A shard is whole wherever a session could be cut off, so one that was is no reason to stop.
fn lock(shard: &Apart) -> MutexGuard<'_, Shard> {
    shard
        .0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Item {
    fn is_live(&self, now: u64, gone: u64) -> bool {
        self.expires > now && self.since >= gone
    }
}

impl Shard {
    fn next_cas(&mut self) -> u64 {
        self.next_cas += 1;
        self.next_cas
    }

    /// The item of this key; one that is over is taken out.
    fn live(&mut self, key: &[u8], now: u64, gone: u64) -> Option<&mut Item> {
        if self
            .items
            .get(key)
            .is_some_and(|item| !item.is_live(now, gone))
        {
            self.remove(key);
            self.counts.expired += 1;
        }
        self.items.get_mut(key)
    }

    fn insert(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        (flags, expires): (u32, u64),
        (since, cas): (u64, u64),
    ) {
        let key: Arc<[u8]> = key.into();
        self.next_place += 1;
        self.bytes += key.len() + value.len() + OVERHEAD;
        self.counts.total_items += 1;
        self.queue.push_back((key.clone(), self.next_place));
        let item = Item {
            value,
            flags,
            cas,
            expires,
            since,
            place: self.next_place,
            used: false,
        };
        self.items.insert(key, item);
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(item) = self.items.remove(key) {
            self.bytes -= key.len() + item.value.len() + OVERHEAD;
        }
        if self.queue.len() > self.items.len() * 2 + 64 {
            let items = &self.items;
            self.queue
                .retain(|(key, place)| items.get(key).is_some_and(|it| it.place == *place));
        }
    }

    /// Drops what came first and was not looked up since, until `most` bytes are left.
    fn make_room(&mut self, most: usize, now: u64, gone: u64) {
        while self.bytes > most {
            let Some((key, place)) = self.queue.pop_front() else {
                return;
            };
            let Some(item) = self.items.get_mut(&key).filter(|it| it.place == place) else {
                continue;
            };
            if std::mem::take(&mut item.used) && item.is_live(now, gone) {
                self.queue.push_back((key, place));
            } else {
                self.remove(&key);
                self.counts.evictions += 1;
            }
        }
    }
}

/// Adds a number in digits.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
