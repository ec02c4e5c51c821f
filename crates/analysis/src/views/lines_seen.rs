//! The lines that samples saw in use, and how they lie in the sets of a cache.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{CacheLevel, RunInfo, SimulatedCache};

/// A set is crowded with so many times the mean of all sets (DProf's factor).
const CROWDED: f64 = 2.0;
/// Bytes and ways of a first level of which nothing is told.
const USUAL: (u64, u64) = (32 << 10, 8);

/// A first-level cache.
pub(super) struct Shape {
    /// Lines that it holds.
    pub(super) lines: u64,
    ways: u64,
}

impl Shape {
    /// The first level of the recorded machine.
    pub(super) fn of(info: &RunInfo) -> Self {
        let first = |cache: &&SimulatedCache| cache.level == CacheLevel::L1d;
        let told = info.caches.iter().find(first);
        let (bytes, ways) = told.map_or(USUAL, |cache| (cache.size_bytes, cache.ways.into()));
        let lines = (bytes / info.line_size.max(1)).max(1);
        Self {
            lines,
            ways: if ways == 0 { lines } else { ways.min(lines) },
        }
    }

    fn sets(&self) -> u64 {
        (self.lines / self.ways).max(1)
    }

    /// The set of the line with this number.
    pub(super) fn set(&self, line: u64) -> u64 {
        line % self.sets()
    }
}

/// Lines by number (address over size), with how often each was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct LinesSeen(HashMap<u64, u64>);

impl LinesSeen {
    /// One sample at `line`.
    pub(super) fn add(&mut self, line: u64) {
        *self.0.entry(line).or_default() += 1;
    }

    /// How many were seen.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many there are at least, those that no sample saw included: Chao's bound, from those that were
    /// seen once and twice.
    pub(super) fn estimate(&self) -> f64 {
        let count = |times: u64| self.0.values().filter(|it| **it == times).count() as f64;
        let (once, twice) = (count(1), count(2));
        self.0.len() as f64 + once * (once - 1.0) / (2.0 * (twice + 1.0))
    }

    /// The sets with more lines than ways and far more than their share, each with its lines.
    pub(super) fn crowded(&self, shape: &Shape) -> BTreeMap<u64, Vec<u64>> {
        let mut sets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for line in self.0.keys() {
            sets.entry(shape.set(*line)).or_default().push(*line);
        }
        let mean = self.0.len() as f64 / shape.sets() as f64;
        sets.retain(|_, lines| {
            lines.len() as u64 > shape.ways && lines.len() as f64 > CROWDED * mean
        });
        sets
    }
}
