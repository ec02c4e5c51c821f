//! Accesses in, histograms out.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::chosen::Chosen;
use super::engine::{Choosing, Engine, Outcome, Reference};
use super::histogram::Histogram;
use super::options::{Attribution, ReuseError, ReuseOptions, Sampling};
use super::profile::{CacheReuse, Distances, PairReuse, ReuseProfile, SiteReuse};
use crate::Access;
use crate::hash::KeyHasher;

/// One touch of one unit and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Which access of the slice that was recorded.
    pub index: usize,
    /// What became of it.
    pub outcome: Outcome,
}

/// Measures reuse distances of a stream of accesses. See the [module](crate::reuse) for the
/// definitions.
///
/// ```
/// use linewise_cache::reuse::{ReuseOptions, ReuseTracker};
/// use linewise_cache::{Access, Kind};
///
/// let load = |address| Access { address, size: 8, kind: Kind::Load, thread: 0, site: 0 };
/// let mut tracker = ReuseTracker::new(&ReuseOptions::default())?;
/// // Lines a, b, c, b, d, d, a: five accesses to three lines between the two uses of a.
/// tracker.record(&[0u64, 64, 128, 64, 192, 192, 0].map(load));
/// let profile = tracker.profile();
/// assert_eq!(profile.total.accesses(), 7.0);
/// assert_eq!(profile.total.stack.cold, 4.0);
/// assert_eq!(profile.total.stack.bins().last().map(|bin| bin.from), Some(3));
/// assert_eq!(profile.total.time.bins().last().map(|bin| bin.from), Some(5));
/// # Ok::<(), linewise_cache::reuse::ReuseError>(())
/// ```
#[derive(Clone)]
pub struct ReuseTracker {
    engine: Engine,
    tallies: Tallies,
    options: ReuseOptions,
}

impl ReuseTracker {
    /// A tracker that has seen nothing.
    ///
    /// # Errors
    ///
    /// When an option is outside of its range.
    pub fn new(options: &ReuseOptions) -> Result<Self, ReuseError> {
        let engine = Engine::new(options)?;
        let sampled = options.sampling != Sampling::Exact;
        Ok(Self {
            engine,
            tallies: Tallies::new(options.attribution, sampled),
            options: options.clone(),
        })
    }

    /// Takes the next accesses, in their global order, in any form that can be read as one. Long
    /// slices are faster than short ones: 64 accesses are looked up at a time.
    ///
    /// # Panics
    ///
    /// When a group has more than 2^30 units in use.
    pub fn record(&mut self, accesses: &[Access]) {
        self.record_at(accesses, |index| accesses[index].site);
    }

    /// As [`record`](Self::record), with other sites than those of the accesses: `site_of` is given
    /// the index of an access and asked only for those that are followed, in order.
    ///
    /// # Panics
    ///
    /// As [`record`](Self::record).
    pub fn record_at(&mut self, accesses: &[Access], site_of: impl FnMut(usize) -> u32) {
        let tallies = &mut self.tallies;
        match (
            tallies.attribution.sites || tallies.attribution.pairs > 0,
            tallies.sampled,
        ) {
            (false, false) => {
                self.engine
                    .record(accesses, site_of, |reference, outcome, weight| {
                        tallies.count_thread(reference.thread, outcome, weight);
                    })
            }
            (false, true) => self
                .engine
                .record(accesses, site_of, |reference, outcome, weight| {
                    tallies.count_thread(reference.thread, outcome, weight);
                    tallies.count_replicate(reference.replicate(), outcome, weight);
                }),
            (true, _) => self
                .engine
                .record(accesses, site_of, |reference, outcome, weight| {
                    tallies.count_thread(reference.thread, outcome, weight);
                    if tallies.sampled {
                        tallies.count_replicate(reference.replicate(), outcome, weight);
                    }
                    tallies.count_site(reference.site, outcome, weight);
                }),
        }
    }

    /// As [`record`](Self::record), for who knows which accesses have to be looked at: a
    /// [`Chooser`](super::Chooser) made for this tracker, and maybe others, has chosen them.
    ///
    /// # Panics
    ///
    /// As [`record`](Self::record), and when `chosen` was noted of other accesses.
    pub fn record_chosen<A: Copy + Into<Access>>(&mut self, accesses: &[A], chosen: &Chosen) {
        let tallies = &mut self.tallies;
        self.engine
            .record_chosen(accesses, chosen, |reference, outcome, weight| {
                tallies.count(reference, outcome, weight);
            });
    }

    /// As [`record`](Self::record), and shows the outcome of every touch that is followed, in
    /// order. A touch of several units gives one outcome for each.
    ///
    /// # Panics
    ///
    /// As [`record`](Self::record).
    pub fn record_each(&mut self, accesses: &[Access], mut each: impl FnMut(Touch)) {
        let tallies = &mut self.tallies;
        let site_of = |index: usize| accesses[index].site;
        self.engine
            .record(accesses, site_of, |reference, outcome, weight| {
                tallies.count_thread(reference.thread, outcome, weight);
                if tallies.sampled {
                    tallies.count_replicate(reference.replicate(), outcome, weight);
                }
                tallies.count_site(reference.site, outcome, weight);
                each(Touch {
                    index: reference.index as usize,
                    outcome,
                });
            });
    }

    /// How it chooses units.
    pub(super) fn choosing(&self) -> Choosing {
        self.engine.choosing()
    }

    /// Entries now: units in use, counted once for each group that used them.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.engine.entries()
    }

    /// The share of units that is followed now.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.engine.rate()
    }

    /// Memory of everything that grows with the footprint, bytes by capacity.
    #[must_use]
    pub fn footprint_bytes(&self) -> usize {
        self.engine.memory_bytes()
    }

    /// Memory in all, bytes by capacity: the footprint's and the histograms'.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.footprint_bytes() + self.tallies.memory_bytes()
    }

    /// What was measured so far.
    #[must_use]
    pub fn profile(&self) -> ReuseProfile {
        let mut by_cache: Vec<CacheReuse> = self
            .engine
            .caches()
            .map(|cache| CacheReuse {
                cache,
                distances: Distances::default(),
            })
            .collect();
        let mut by_thread = Vec::new();
        let mut total = Distances::default();
        let mut unadjusted = Distances::default();
        let mut adjusted = 0.0;
        for (thread, (group, touches)) in self.engine.threads().enumerate() {
            let mut distances = self
                .tallies
                .threads
                .get(thread)
                .cloned()
                .unwrap_or_default();
            unadjusted.merge(&distances);
            adjusted += distances.complete(touches);
            by_cache[usize::from(group)].distances.merge(&distances);
            total.merge(&distances);
            by_thread.push(distances);
        }

        let by_site = self.tallies.sites.iter().enumerate();
        let by_site = by_site
            .filter(|(_, distances)| distances.accesses() > 0.0)
            .map(|(site, distances)| SiteReuse {
                site: site as u32,
                distances: distances.clone(),
            })
            .collect();
        let (by_pair, other_pairs) = self.tallies.pairs.shown();
        ReuseProfile {
            granularity_bytes: self.options.granularity_bytes,
            rate: self.engine.rate(),
            entries: self.engine.entries(),
            total,
            unadjusted,
            other_thread: self.tallies.other_thread.clone(),
            by_thread,
            by_cache,
            by_site,
            by_pair,
            other_pairs,
            adjusted,
            replicates: self.tallies.replicates.clone(),
        }
    }
}

/// The histograms under construction.
#[derive(Clone)]
struct Tallies {
    attribution: Attribution,
    sampled: bool,
    threads: Vec<Distances>,
    other_thread: Distances,
    sites: Vec<Distances>,
    pairs: Pairs,
    replicates: Vec<Histogram>,
}

impl Tallies {
    fn new(attribution: Attribution, sampled: bool) -> Self {
        Self {
            attribution,
            sampled,
            threads: Vec::new(),
            other_thread: Distances::default(),
            sites: Vec::new(),
            pairs: Pairs::new(attribution.pairs),
            replicates: vec![Histogram::new(); if sampled { 16 } else { 0 }],
        }
    }

    /// Counts a touch in everything that there is.
    #[inline]
    fn count(&mut self, reference: &Reference, outcome: Outcome, weight: f64) {
        self.count_thread(reference.thread, outcome, weight);
        if self.sampled {
            self.count_replicate(reference.replicate(), outcome, weight);
        }
        self.count_site(reference.site, outcome, weight);
    }

    #[inline]
    fn count_thread(&mut self, thread: u16, outcome: Outcome, weight: f64) {
        let thread = usize::from(thread);
        if thread >= self.threads.len() {
            self.threads.resize_with(thread + 1, Distances::default);
        }
        self.threads[thread].count(outcome, weight);
        if let Outcome::Reuse {
            same_thread: false, ..
        } = outcome
        {
            self.other_thread.count(outcome, weight);
        }
    }

    fn count_replicate(&mut self, replicate: usize, outcome: Outcome, weight: f64) {
        let histogram = &mut self.replicates[replicate];
        match outcome {
            Outcome::Cold => histogram.add_cold(weight),
            Outcome::Invalidated { .. } => histogram.add_invalidated(weight),
            Outcome::Reuse { stack, .. } => histogram.add(stack, weight),
        }
    }

    fn count_site(&mut self, site: u32, outcome: Outcome, weight: f64) {
        if self.attribution.sites {
            let index = site as usize;
            if index >= self.sites.len() {
                self.sites.resize_with(index + 1, Distances::default);
            }
            self.sites[index].count(outcome, weight);
        }
        if self.attribution.pairs > 0
            && let Outcome::Invalidated { use_site } | Outcome::Reuse { use_site, .. } = outcome
        {
            self.pairs.count(use_site, site, outcome, weight);
        }
    }

    fn memory_bytes(&self) -> usize {
        let all = self
            .threads
            .iter()
            .chain(&self.sites)
            .chain(&self.pairs.distances);
        let histograms: usize = all.map(Distances::memory_bytes).sum();
        let replicates: usize = self.replicates.iter().map(Histogram::memory_bytes).sum();
        let records =
            self.threads.capacity() + self.sites.capacity() + self.pairs.distances.capacity();
        histograms
            + replicates
            + records * size_of::<Distances>()
            + self.pairs.index.capacity() * 16
    }
}

/// Histograms of pairs of instructions, a bounded number of them.
#[derive(Clone)]
struct Pairs {
    shown: usize,
    index: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    names: Vec<u64>,
    distances: Vec<Distances>,
    given_up: Distances,
    last: (u64, usize),
}

impl Pairs {
    fn new(shown: usize) -> Self {
        Self {
            shown,
            index: HashMap::default(),
            names: Vec::new(),
            distances: Vec::new(),
            given_up: Distances::default(),
            last: (u64::MAX, usize::MAX),
        }
    }

    #[inline]
    fn count(&mut self, use_site: u32, site: u32, outcome: Outcome, weight: f64) {
        let name = u64::from(use_site) << 32 | u64::from(site);
        if self.last.0 != name || self.last.1 == usize::MAX {
            self.last = (name, self.place(name));
        }
        self.distances[self.last.1].count(outcome, weight);
    }

    fn place(&mut self, name: u64) -> usize {
        if let Some(&place) = self.index.get(&name) {
            return place as usize;
        }
        if self.names.len() >= self.shown.saturating_mul(4) {
            self.give_up();
        }
        let place = self.names.len();
        self.index.insert(name, place as u32);
        self.names.push(name);
        self.distances.push(Distances::default());
        place
    }

    /// Keeps the half with the most touches; the rest goes to the sum.
    #[cold]
    fn give_up(&mut self) {
        let order = self.by_touches();
        let (keep, rest) = order.split_at(order.len() / 2);
        for &place in rest {
            self.given_up.merge(&self.distances[place]);
        }
        let kept = |place: &usize| {
            (
                self.names[*place],
                std::mem::take(&mut self.distances[*place]),
            )
        };
        let kept: Vec<(u64, Distances)> = keep.iter().map(kept).collect();
        self.index.clear();
        self.names.clear();
        self.distances.clear();
        for (place, (name, distances)) in kept.into_iter().enumerate() {
            self.index.insert(name, place as u32);
            self.names.push(name);
            self.distances.push(distances);
        }
    }

    /// Places, those with the most touches first; ties by name, so that the order is always the
    /// same.
    fn by_touches(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by(|&a, &b| {
            let touches = |place: usize| self.distances[place].accesses();
            touches(b)
                .total_cmp(&touches(a))
                .then(self.names[a].cmp(&self.names[b]))
        });
        order
    }

    fn shown(&self) -> (Vec<PairReuse>, Distances) {
        let order = self.by_touches();
        let (shown, rest) = order.split_at(order.len().min(self.shown));
        let mut other = self.given_up.clone();
        for &place in rest {
            other.merge(&self.distances[place]);
        }
        let shown = shown
            .iter()
            .map(|&place| PairReuse {
                use_site: (self.names[place] >> 32) as u32,
                reuse_site: self.names[place] as u32,
                distances: self.distances[place].clone(),
            })
            .collect();
        (shown, other)
    }
}
