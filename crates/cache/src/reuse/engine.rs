//! From accesses to outcomes: who used this unit last, was the use ended, how far back is it.
//!
//! A unit's first group has its entry in the main table; the entries of other groups that use the
//! same unit are in a table for each group. Invalidation needs no list of sharers: a store marks
//! the first group's entry if the store is not its own, and counts up the unit's version, which
//! the other groups' entries compare with the version that they saw last.
//!
//! Accesses are taken in batches. Two passes over a batch load the entries and the bits that it
//! will need, so that their cache misses overlap; the third pass does the work.

use super::chosen::Chosen;
use super::options::{Choice, Grouping, ReuseError, ReuseOptions, Sampling};
use super::recency::{Ranks, Recency};
use super::table::{Entry, Table, Use};
use crate::{Access, line_hash};

/// What became of one touch of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The group's first touch of the unit.
    Cold,
    /// The group had used the unit, but a store from elsewhere came in between.
    Invalidated {
        /// The instruction of the use.
        use_site: u32,
    },
    /// A reuse.
    Reuse {
        /// The instruction of the use.
        use_site: u32,
        /// Accesses of the group in between.
        time: u64,
        /// Distinct units that the group touched in between; an estimate when sampled.
        stack: u64,
        /// Whether the use was by the same thread: an intra-thread reuse (definition 6.2.1), else
        /// one in the shared cache (6.2.3).
        same_thread: bool,
    },
}

/// A touch that is followed.
#[derive(Clone, Copy)]
pub(super) struct Reference {
    key: u64,
    clock: u64,
    pub(super) site: u32,
    /// Which access of the slice given to [`Engine::record`].
    pub(super) index: u32,
    pub(super) thread: u16,
    group: u16,
    writes: bool,
}

impl Reference {
    /// One of 16 samples that the units are divided into, by hash.
    #[inline]
    pub(super) fn replicate(&self) -> usize {
        (self.key & 15) as usize
    }
}

#[derive(Clone)]
struct Group {
    /// The cache that the group stands for; `None` for a thread by itself.
    cache: Option<u16>,
    /// Accesses so far.
    clock: u64,
    recency: Recency,
    /// Entries of units whose first group is another.
    others: Table,
}

#[derive(Clone, Copy)]
struct Thread {
    group: u16,
    /// Units touched so far, followed or not.
    touches: u64,
}

/// The entry that was used last, to recognise a repetition.
#[derive(Clone, Copy)]
struct Last {
    key: u64,
    thread: u16,
    at: usize,
}

const NOBODY: Last = Last {
    key: u64::MAX,
    thread: 0,
    at: 0,
};

/// References of a batch.
const BATCH: usize = 64;
/// Tables below this fit into a core's own caches, where touching ahead costs more than it saves.
const TOUCH_FROM_BYTES: usize = 1 << 19;
/// Slots for each line in the order of recency, after packing.
const SLACK: usize = 4;
/// Units of a block of [`Choice::Stratified`].
const STRATUM_BITS: u32 = 6;

/// How units are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choosing {
    /// Logarithm of the granularity.
    pub(super) shift: u32,
    choice: Choice,
    /// Greatest key that is followed.
    threshold: u64,
}

impl Choosing {
    pub(super) fn new(granularity_bytes: u32, rate: f64, choice: Choice) -> Self {
        Self {
            shift: granularity_bytes.trailing_zeros(),
            choice,
            threshold: threshold(rate),
        }
    }

    /// Whether all units are followed.
    pub(super) fn all(&self) -> bool {
        self.threshold == u64::MAX - 1
    }

    /// How keys are made of units.
    fn key_of(&self) -> fn(u64) -> u64 {
        match (self.choice, self.all()) {
            (Choice::Hashed, true) => line_key,
            (Choice::Hashed, false) => line_hash,
            (Choice::Stratified, _) => stratified_key,
        }
    }

    /// Whether a unit is followed.
    pub(super) fn follows(&self, unit: u64) -> bool {
        self.key_of()(unit) <= self.threshold
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Engine {
    shift: u32,
    choice: Choice,
    /// Greatest key that is followed.
    threshold: u64,
    /// Units of the program for each unit of the stream; 1 unless the stream is a sample.
    thinned: f64,
    /// Entries at most; `usize::MAX` where there is no limit.
    most_entries: usize,
    grouping: Grouping,
    main: Table,
    groups: Vec<Group>,
    threads: Vec<Thread>,
    batch: Vec<Reference>,
    last: Last,
    entries: usize,
    /// The most units that one access has touched.
    most_units: u64,
}

impl Engine {
    pub(super) fn new(options: &ReuseOptions) -> Result<Self, ReuseError> {
        options.check()?;
        let (rate, choice, most_entries) = match options.sampling {
            Sampling::Exact | Sampling::Thinned { .. } => (1.0, Choice::Hashed, usize::MAX),
            Sampling::FixedRate { rate, choice } => (rate, choice, usize::MAX),
            Sampling::FixedSize {
                entries,
                rate,
                choice,
            } => (rate, choice, entries),
        };
        let threshold = threshold(rate);
        Ok(Self {
            shift: options.granularity_bytes.trailing_zeros(),
            choice,
            threshold,
            thinned: match options.sampling {
                Sampling::Thinned { rate } => 1.0 / rate,
                _ => 1.0,
            },
            most_entries,
            grouping: options.grouping.clone(),
            main: Table::new(threshold),
            groups: Vec::new(),
            threads: Vec::new(),
            batch: Vec::with_capacity(BATCH),
            last: NOBODY,
            entries: 0,
            most_units: 1,
        })
    }

    /// How units are chosen.
    pub(super) fn choosing(&self) -> Choosing {
        Choosing {
            shift: self.shift,
            choice: self.choice,
            threshold: self.threshold,
        }
    }

    /// Takes accesses in order; `sink` gets every followed touch in order, with its outcome and
    /// how many touches it stands for. `site_of` is asked for the site of each access that is followed,
    /// given its index: once for each unit.
    pub(super) fn record(
        &mut self,
        accesses: &[Access],
        mut site_of: impl FnMut(usize) -> u32,
        mut sink: impl FnMut(&Reference, Outcome, f64),
    ) {
        let (site_of, sink) = (&mut site_of, &mut sink);
        // Branch here, loop there: the choice is made once for each slice.
        match (self.choice, self.threshold == u64::MAX - 1) {
            (Choice::Hashed, true) => self.expand::<true>(accesses, line_key, site_of, sink),
            (Choice::Hashed, false) => self.expand::<false>(accesses, line_hash, site_of, sink),
            (Choice::Stratified, _) => {
                self.expand::<false>(accesses, stratified_key, site_of, sink);
            }
        }
    }

    #[inline]
    fn expand<const ALL: bool>(
        &mut self,
        accesses: &[Access],
        key_of: impl Fn(u64) -> u64,
        site_of: &mut impl FnMut(usize) -> u32,
        sink: &mut impl FnMut(&Reference, Outcome, f64),
    ) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut rest = accesses;
        // One thread after the other, as they come: what belongs to the thread is looked up once.
        while let Some(&Access { thread, .. }) = rest.first() {
            if usize::from(thread) >= self.threads.len() {
                self.meet(thread);
            }
            let group = self.threads[usize::from(thread)].group;
            let begun = self.groups[usize::from(group)].clock;
            let before = accesses.len() - rest.len();
            let mut further_units = 0;
            let mut taken = 0;
            for access in rest {
                if access.thread != thread {
                    break;
                }
                let first = access.address >> self.shift;
                let bytes_behind_first = u64::from(access.size.max(1)) - 1;
                let last = access.address.saturating_add(bytes_behind_first) >> self.shift;
                let key = key_of(first);
                taken += 1;
                if !ALL && key > self.threshold && first == last {
                    continue;
                }
                let index = before + taken as usize - 1;
                let mut follow = |key| {
                    if ALL || key <= self.threshold {
                        batch.push(Reference {
                            key,
                            clock: begun + taken,
                            site: site_of(index),
                            index: index as u32,
                            thread,
                            group,
                            writes: access.kind.writes(),
                        });
                    }
                };
                follow(key);
                if first != last {
                    (first + 1..=last).for_each(|unit| follow(key_of(unit)));
                    further_units += last - first;
                    self.most_units = self.most_units.max(last - first + 1);
                }
                if batch.len() >= BATCH {
                    self.resolve_batch(&batch, sink);
                    batch.clear();
                }
            }
            rest = &rest[taken as usize..];
            self.groups[usize::from(group)].clock = begun + taken;
            self.threads[usize::from(thread)].touches += taken + further_units;
        }
        self.resolve_batch(&batch, sink);
        batch.clear();
        self.batch = batch;
    }

    /// As [`record`](Self::record) for a batch whose chosen accesses are known: none of the others
    /// touches a unit that is followed, or several units.
    pub(super) fn record_chosen<A: Copy + Into<Access>>(
        &mut self,
        accesses: &[A],
        chosen: &Chosen,
        mut sink: impl FnMut(&Reference, Outcome, f64),
    ) {
        if chosen.counts.len() > self.threads.len() {
            self.meet(chosen.counts.len() as u16 - 1);
        }
        let key_of = self.choosing().key_of();
        // The accesses of a thread alone are counted already, and so are all together.
        let alone = self.groups.len() == self.threads.len();
        let together = self.groups.len() == 1;
        let mut by_group = vec![0; self.groups.len()];
        let mut counted = 0;
        let mut batch = std::mem::take(&mut self.batch);
        for pick in &chosen.picks {
            let access: Access = accesses[pick.index as usize].into();
            let (first, last) = (
                access.address >> self.shift,
                access
                    .address
                    .saturating_add(u64::from(access.size.max(1)) - 1)
                    >> self.shift,
            );
            let group = self.threads[usize::from(access.thread)].group;
            let made = if alone {
                pick.nth
            } else if together {
                pick.all
            } else {
                for &(thread, made) in &chosen.made[counted..=pick.index as usize] {
                    by_group[usize::from(self.threads[usize::from(thread)].group)] += made;
                }
                counted = pick.index as usize + 1;
                by_group[usize::from(group)]
            };
            let clock = self.groups[usize::from(group)].clock + u64::from(made);
            for unit in first..=last {
                let key = key_of(unit);
                if key <= self.threshold {
                    batch.push(Reference {
                        key,
                        clock,
                        site: access.site,
                        index: pick.index,
                        thread: access.thread,
                        group,
                        writes: access.kind.writes(),
                    });
                }
            }
            self.threads[usize::from(access.thread)].touches += last - first;
            self.most_units = self.most_units.max(last - first + 1);
            if batch.len() >= BATCH {
                self.resolve_batch(&batch, &mut sink);
                batch.clear();
            }
        }
        self.resolve_batch(&batch, &mut sink);
        batch.clear();
        self.batch = batch;
        for (thread, &count) in self.threads.iter_mut().zip(&chosen.counts) {
            thread.touches += u64::from(count);
            self.groups[usize::from(thread.group)].clock += u64::from(count);
        }
    }

    fn resolve_batch(
        &mut self,
        batch: &[Reference],
        sink: &mut impl FnMut(&Reference, Outcome, f64),
    ) {
        let mut places = [usize::MAX; BATCH];
        for batch in batch.chunks(BATCH) {
            if self.entries * size_of::<Entry>() > TOUCH_FROM_BYTES {
                self.touch(batch, &mut places);
            }
            for (reference, &place) in batch.iter().zip(&places) {
                // The threshold may have been lowered since the batch was gathered.
                if reference.key <= self.threshold {
                    let weight = self.weight();
                    let outcome = self.resolve(reference, place);
                    sink(reference, outcome, weight);
                }
            }
        }
    }

    /// Loads what the batch will need, without a dependence from one reference to the next. Notes
    /// where in the main table each is now.
    fn touch(&self, batch: &[Reference], places: &mut [usize; BATCH]) {
        let mut seen = 0;
        let mut foreign = false;
        let followed = |reference: &Reference| reference.key <= self.threshold;
        for reference in batch.iter().filter(|reference| followed(reference)) {
            seen ^= self.main.touch(reference.key);
        }
        for (reference, place) in batch.iter().zip(places) {
            *place = usize::MAX;
            if !followed(reference) {
                continue;
            }
            let Ok(at) = self.main.find(reference.key) else {
                continue;
            };
            *place = at;
            let entry = self.main.get(at);
            let owner = self.threads[usize::from({ entry.when }.thread())].group;
            let group = &self.groups[usize::from(reference.group)];
            seen ^= if owner == reference.group {
                group.recency.touch(entry.slot)
            } else {
                foreign = true;
                group.others.touch(reference.key)
            };
        }
        if foreign {
            for reference in batch.iter().filter(|reference| followed(reference)) {
                let group = &self.groups[usize::from(reference.group)];
                if let Ok(at) = group.others.find(reference.key) {
                    seen ^= group.recency.touch(group.others.get(at).slot);
                }
            }
        }
        std::hint::black_box(seen);
    }

    #[inline]
    fn resolve(&mut self, reference: &Reference, place: usize) -> Outcome {
        let &Reference {
            key,
            thread,
            site,
            clock,
            ..
        } = reference;
        if key == self.last.key && thread == self.last.thread {
            // Nothing came in between: the order stays as it is.
            let entry = self.main.get_mut(self.last.at);
            let (before, use_site) = (entry.when, entry.site);
            entry.when = Use::new(clock, thread);
            entry.site = site;
            entry.version = { entry.version }.wrapping_add(u32::from(reference.writes));
            return Outcome::Reuse {
                use_site,
                time: self.scaled((clock - before.clock()).saturating_sub(1)),
                stack: 0,
                same_thread: true,
            };
        }
        let group_number = usize::from(reference.group);
        if self.groups[group_number].recency.is_full() {
            self.pack();
        }

        // Entries may have moved since the batch was looked up.
        let found = if self.main.is_at(key, place) {
            Ok(place)
        } else {
            self.main.find(key)
        };
        let Ok(at) = found else {
            let slot = self.groups[group_number].recency.push();
            let at = self.main.insert(Entry {
                key,
                when: Use::new(clock, thread),
                slot,
                site,
                version: u32::from(reference.writes),
            });
            self.last = Last { key, thread, at };
            self.count_entry();
            return Outcome::Cold;
        };
        let group = &mut self.groups[group_number];
        let entry = self.main.get_mut(at);
        let before = entry.when;
        entry.version = { entry.version }.wrapping_add(u32::from(reference.writes));
        let version = entry.version;
        let owner = before.thread();
        let mine = owner == thread || self.threads[usize::from(owner)].group == reference.group;

        let (entry, ended) = if mine {
            self.last = Last { key, thread, at };
            (entry, before.ended())
        } else {
            if reference.writes {
                entry.when = before.end();
            }
            self.last = NOBODY;
            let Ok(at) = group.others.find(key) else {
                let slot = group.recency.push();
                group.others.insert(Entry {
                    key,
                    when: Use::new(clock, thread),
                    slot,
                    site,
                    version,
                });
                self.count_entry();
                return Outcome::Cold;
            };
            let entry = group.others.get_mut(at);
            let seen = { entry.version }.wrapping_add(u32::from(reference.writes));
            entry.version = version;
            (entry, seen != version)
        };
        let (before, use_site) = (entry.when, entry.site);
        let (distance, slot) = group.recency.renew(entry.slot);
        entry.when = Use::new(clock, thread);
        entry.slot = slot;
        entry.site = site;
        if ended {
            return Outcome::Invalidated { use_site };
        }
        let time = self.scaled((clock - before.clock()).saturating_sub(1));
        Outcome::Reuse {
            use_site,
            time,
            stack: self.estimate(distance, time),
            same_thread: before.thread() == thread,
        }
    }

    /// The stack distance of which the sample shows `distance`, after `time` accesses: these cannot
    /// have touched more units than they are.
    #[inline]
    fn estimate(&self, distance: u64, time: u64) -> u64 {
        if self.threshold == u64::MAX - 1 {
            return self.scaled(distance);
        }
        let scale = self.weight();
        let expected = distance as f64 * scale;
        let expected = match self.choice {
            Choice::Hashed => expected,
            // Whether the block's neighbours were used in between is not known: half of them.
            Choice::Stratified => {
                expected + (scale - 1.0).min((1u64 << STRATUM_BITS) as f64 - 1.0) / 2.0
            }
        };
        let most = match self.most_units {
            1 => time,
            // Of the two accesses at the ends as well.
            units => (time + 2).saturating_mul(units),
        };
        (expected.round() as u64).min(most)
    }

    /// A distance in the stream as one in the program.
    #[inline]
    fn scaled(&self, distance: u64) -> u64 {
        if self.thinned == 1.0 {
            distance
        } else {
            (distance as f64 * self.thinned).round() as u64
        }
    }

    /// Touches that a followed one stands for.
    #[inline]
    fn weight(&self) -> f64 {
        if self.threshold == u64::MAX - 1 {
            self.thinned
        } else {
            TWO_TO_64 / (self.threshold as f64 + 1.0)
        }
    }

    /// The share of units that is followed now.
    pub(super) fn rate(&self) -> f64 {
        1.0 / self.weight()
    }

    /// Entries now.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Threads seen: the group's number and the touches of each.
    pub(super) fn threads(&self) -> impl Iterator<Item = (u16, f64)> + '_ {
        self.threads
            .iter()
            .map(|thread| (thread.group, thread.touches as f64 * self.thinned))
    }

    /// The cache that each group stands for, by the group's number.
    pub(super) fn caches(&self) -> impl Iterator<Item = Option<u16>> + '_ {
        self.groups.iter().map(|group| group.cache)
    }

    /// Memory of the entries and their order, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_group = |group: &Group| group.recency.memory_bytes() + group.others.memory_bytes();
        self.main.memory_bytes() + self.groups.iter().map(of_group).sum::<usize>()
    }

    #[cold]
    fn meet(&mut self, thread: u16) {
        for number in self.threads.len()..=usize::from(thread) {
            let cache = match &self.grouping {
                Grouping::Private => None,
                Grouping::Shared(caches) => caches.get(number).copied(),
            };
            let known = self
                .groups
                .iter()
                .position(|group| cache.is_some() && group.cache == cache);
            let group = known.unwrap_or_else(|| {
                self.groups.push(Group {
                    cache,
                    clock: 0,
                    recency: Recency::default(),
                    others: Table::new(self.threshold),
                });
                self.groups.len() - 1
            });
            self.threads.push(Thread {
                group: group as u16,
                touches: 0,
            });
        }
    }

    /// Packs the orders of all groups: one pass over the tables serves all of them.
    #[cold]
    fn pack(&mut self) {
        let ranks: Vec<Ranks<'_>> = self
            .groups
            .iter()
            .map(|group| group.recency.ranks())
            .collect();
        for entry in self.main.iter_mut() {
            let group = self.threads[usize::from({ entry.when }.thread())].group;
            entry.slot = ranks[usize::from(group)].of(entry.slot);
        }
        drop(ranks);
        for group in &mut self.groups {
            let ranks = group.recency.ranks();
            for entry in group.others.iter_mut() {
                entry.slot = ranks.of(entry.slot);
            }
            drop(ranks);
            // A share of all entries, so that a small group does not cause many passes.
            let slots = (group.recency.live() * SLACK).max(self.entries / 4);
            group.recency.pack(slots);
        }
    }

    #[inline]
    fn count_entry(&mut self) {
        self.entries += 1;
        if self.entries > self.most_entries {
            self.lower();
        }
    }

    /// Follows fewer units: the sixteenth with the greatest keys is forgotten.
    #[cold]
    fn lower(&mut self) {
        let keep = self.most_entries - self.most_entries / 16;
        while self.entries > keep && self.threshold > 0 {
            let rank = (self.main.len() as u128 * keep as u128 / self.entries as u128) as usize;
            let Some(key) = self.main.key_at_rank(rank) else {
                break;
            };
            self.threshold = key.saturating_sub(1);
            let (threads, groups) = (&self.threads, &mut self.groups);
            self.main.lower(self.threshold, |entry| {
                let group = threads[usize::from({ entry.when }.thread())].group;
                groups[usize::from(group)].recency.remove(entry.slot);
            });
            for group in groups {
                let recency = &mut group.recency;
                group
                    .others
                    .lower(self.threshold, |entry| recency.remove(entry.slot));
            }
            let others: usize = self.groups.iter().map(|group| group.others.len()).sum();
            self.entries = self.main.len() + others;
        }
        self.last = NOBODY;
    }
}

/// The greatest key of a share of the units.
fn threshold(rate: f64) -> u64 {
    // u64::MAX is no key: see `Table`.
    ((rate * TWO_TO_64) as u64)
        .saturating_sub(1)
        .min(u64::MAX - 1)
}

const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// The key of a unit where all are followed. The one unit with the key `u64::MAX`, which is none,
/// shares that of its neighbour.
///
/// Not the hash itself: of a stream that was thinned by it only the units with low ones come, and all
/// would crowd at the front of the table, which is in the order of the keys.
#[inline]
fn line_key(unit: u64) -> u64 {
    let hash = line_hash(unit);
    (hash ^ (hash << 32)).min(u64::MAX - 1)
}

/// The key of a unit for [`Choice::Stratified`]: six bits of place in the block, shuffled by the
/// block's hash, above the 58 bits of that hash. One to one.
#[inline]
fn stratified_key(unit: u64) -> u64 {
    const BITS: u32 = 64 - STRATUM_BITS;
    const MASK: u64 = (1 << BITS) - 1;
    // Steps as in `line_hash`, on 58 bits: xor of a shift and odd factors are one to one there too.
    let block = unit >> STRATUM_BITS;
    let mixed = (block ^ (block >> 27)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & MASK;
    let mixed = (mixed ^ (mixed >> 25)).wrapping_mul(0x94d0_49bb_1331_11eb) & MASK;
    let hash = mixed ^ (mixed >> 29);
    let place = (unit ^ (hash >> 8))
        .wrapping_mul(hash >> 14 | 1)
        .wrapping_add(hash >> 20);
    (place << BITS | hash).min(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stratified_choice_takes_as_many_from_every_block_and_every_place_equally() {
        let mut places = [0u32; 64];
        for block in 0..64_000u64 {
            let chosen: Vec<u64> = (0..64)
                .filter(|place| stratified_key(block << 6 | place) <= u64::MAX / 64)
                .collect();
            assert_eq!(chosen.len(), 1, "block {block}");
            places[chosen[0] as usize] += 1;
        }
        assert!(
            places.iter().all(|&count| (800..1200).contains(&count)),
            "{places:?}"
        );
    }

    #[test]
    fn units_that_were_chosen_by_their_hash_are_spread_over_all_keys() {
        let mut eighths = [0u32; 8];
        for unit in (0..640_000).filter(|&unit| line_hash(unit) <= u64::MAX / 64) {
            eighths[(line_key(unit) >> 61) as usize] += 1;
        }
        assert!(
            eighths.iter().all(|&count| (1000..1500).contains(&count)),
            "{eighths:?}"
        );
    }

    #[test]
    fn stratified_keys_are_distinct_and_nested() {
        let mut keys: Vec<u64> = (0..100_000).map(stratified_key).collect();
        let eighth = keys.iter().filter(|&&key| key <= u64::MAX / 8).count();
        assert!((12_400..12_600).contains(&eighth), "{eighth}");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }
}
