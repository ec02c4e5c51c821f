//! What a tracker has measured.

use super::engine::Outcome;
use super::histogram::{Histogram, bin_of};

/// The same touches by both distances.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distances {
    /// By accesses in between, of the thread or group.
    pub time: Histogram,
    /// By distinct units in between: the LRU stack distance.
    pub stack: Histogram,
}

impl Distances {
    /// All touches.
    #[must_use]
    pub fn accesses(&self) -> f64 {
        self.stack.accesses
    }

    /// Adds everything that the others counted.
    pub fn merge(&mut self, other: &Self) {
        self.time.merge(&other.time);
        self.stack.merge(&other.stack);
    }

    #[inline]
    pub(super) fn count(&mut self, outcome: Outcome, weight: f64) {
        self.time.accesses += weight;
        self.stack.accesses += weight;
        match outcome {
            Outcome::Reuse { time, stack, .. } => {
                self.time.add_bin(bin_of(time), weight);
                self.stack.add_bin(bin_of(stack), weight);
            }
            Outcome::Cold => {
                self.time.cold += weight;
                self.stack.cold += weight;
            }
            Outcome::Invalidated { .. } => {
                self.time.invalidated += weight;
                self.stack.invalidated += weight;
            }
        }
    }

    /// Makes the mass equal to the touches that there were (SHARDS-adj: what a sample has too many
    /// or too few of are most likely touches of a few hot units, so the smallest distance makes up
    /// for it; FAST 2015, section 3.2). Returns what was missing (negative: too much).
    pub(super) fn complete(&mut self, touches: f64) -> f64 {
        let difference = touches - self.stack.accesses;
        for histogram in [&mut self.time, &mut self.stack] {
            histogram.accesses = touches;
            if difference != 0.0 {
                histogram.adjust(difference);
            }
        }
        difference
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.time.memory_bytes() + self.stack.memory_bytes()
    }
}

/// Reuse behind one cache, or of one thread by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheReuse {
    /// The cache's number in [`Grouping::Shared`](super::Grouping::Shared); `None` for a thread
    /// that is alone.
    pub cache: Option<u16>,
    /// Its touches.
    pub distances: Distances,
}

/// Touches by one instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteReuse {
    /// The instruction that touches.
    pub site: u32,
    /// Its touches.
    pub distances: Distances,
}

/// Touches that follow a use by one instruction and are by another or the same.
#[derive(Clone, Debug, PartialEq)]
pub struct PairReuse {
    /// The instruction that used.
    pub use_site: u32,
    /// The instruction that touches now.
    pub reuse_site: u32,
    /// The touches: reuses, and those that were invalidated.
    pub distances: Distances,
}

/// Everything that a [`ReuseTracker`](super::ReuseTracker) has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ReuseProfile {
    /// Bytes of a unit.
    pub granularity_bytes: u32,
    /// The share of units that was followed in the end; 1 when exact.
    pub rate: f64,
    /// Entries in use: units followed, once for each group that used them.
    pub entries: usize,
    /// All touches.
    pub total: Distances,
    /// All touches as the sample shows them, before their number was corrected by
    /// [`adjusted`](Self::adjusted): the better estimate of the shape where no unit is much hotter
    /// than others. The same as the total when exact.
    pub unadjusted: Distances,
    /// Of the reuses, those by another thread of the same cache (definition 6.2.3). The rest is
    /// intra-thread (6.2.1). Not adjusted when sampled.
    pub other_thread: Distances,
    /// By thread number.
    pub by_thread: Vec<Distances>,
    /// By group, in order of appearance.
    pub by_cache: Vec<CacheReuse>,
    /// By instruction, if asked for. When sampled, these add up to the total less
    /// [`adjusted`](Self::adjusted), since touches that are not followed have no instruction here.
    pub by_site: Vec<SiteReuse>,
    /// By pair of instructions, if asked for: those with the most touches, most first. Cold
    /// touches have no pair.
    pub by_pair: Vec<PairReuse>,
    /// All pairs that are not shown.
    pub other_pairs: Distances,
    /// Touches that the sample had too few of, and that the totals count at distance 0 (negative:
    /// too many, taken away there). 0 when exact.
    pub adjusted: f64,
    pub(super) replicates: Vec<Histogram>,
}

impl ReuseProfile {
    /// The standard error of the miss ratio of an LRU cache of `units` units that the sampling
    /// brings, from the scatter between 16 parts of the sample (random groups; Wolter:
    /// Introduction to Variance Estimation, chapter 2). `None` when nothing was sampled.
    ///
    /// It knows nothing of the error in the distances themselves, which are multiples of
    /// 1 / [`rate`](Self::rate) units; caches smaller than some tens of those are not resolved.
    #[must_use]
    pub fn miss_ratio_error(&self, units: u64) -> Option<f64> {
        let parts = self.replicates.len() as f64;
        let touches = self.total.accesses();
        if self.replicates.is_empty() || touches == 0.0 || self.rate >= 1.0 {
            return None;
        }
        let misses: Vec<f64> = self
            .replicates
            .iter()
            .map(|part| parts * (part.cold + part.invalidated + part.reuses_from(units)))
            .collect();
        let mean = misses.iter().sum::<f64>() / parts;
        let squares: f64 = misses
            .iter()
            .map(|estimate| (estimate - mean).powi(2))
            .sum();
        Some((squares / (parts * (parts - 1.0))).sqrt() / touches)
    }
}
