//! What a thread of a workload is given, touches and counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::spec::MAX_THREADS;

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
    pub(crate) seed: u64,
    pub(crate) stop: &'run Stop,
}

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

/// The flag that ends the run, alone on its line: workers read it all the time.
#[repr(align(128))]
pub(crate) struct Stop(pub(crate) AtomicBool);

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
