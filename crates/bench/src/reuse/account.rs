//! What a thread knows of its own reuses: it walks whole arrays, always from the first element to
//! the last, so where each array's last walk began tells every distance.

use linewise_cache::reuse::Distances;

/// Elements of a line.
const LINE: u64 = 8;

/// Touches with their distances, as a program counted them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counted {
    /// Reuses: accesses in between, distinct units in between, how often.
    pub reuses: Vec<(u64, u64, u64)>,
    /// First touches.
    pub cold: u64,
    /// Touches after a store from elsewhere.
    pub invalidated: u64,
}

impl Counted {
    fn add(&mut self, time: u64, stack: u64, count: u64) {
        let same = |known: &&mut (u64, u64, u64)| (known.0, known.1) == (time, stack);
        match self.reuses.iter_mut().find(same) {
            Some(known) => known.2 += count,
            None if count > 0 => self.reuses.push((time, stack, count)),
            None => {}
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for &(time, stack, count) in &other.reuses {
            self.add(time, stack, count);
        }
        self.cold += other.cold;
        self.invalidated += other.invalidated;
    }

    /// All touches.
    #[must_use]
    pub fn touches(&self) -> u64 {
        let reuses: u64 = self.reuses.iter().map(|reuse| reuse.2).sum();
        reuses + self.cold + self.invalidated
    }

    /// As histograms.
    #[must_use]
    pub fn distances(&self) -> Distances {
        let mut distances = Distances::default();
        for &(time, stack, count) in &self.reuses {
            distances.time.add(time, count as f64);
            distances.stack.add(stack, count as f64);
        }
        for histogram in [&mut distances.time, &mut distances.stack] {
            histogram.add_cold(self.cold as f64);
            histogram.add_invalidated(self.invalidated as f64);
        }
        distances
    }
}

/// The walks of one thread, or of all threads together if no two walk at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Accesses so far.
    clock: u64,
    /// By array: where its last walk began, and its elements.
    last: Vec<Option<(u64, u64)>>,
    /// By element.
    pub(super) temporal: Counted,
    /// By line of eight elements, the first of which is aligned.
    pub(super) spatial: Counted,
    /// A walk of which a part was invalidated: then [`spatial`](Self::spatial) is not known.
    pub(super) parted: bool,
}

impl Account {
    /// Accesses so far.
    pub(super) fn accesses(&self) -> u64 {
        self.clock
    }

    /// A walk over all elements of an array, `kept` of which no one else has stored to since this
    /// account's last walk over it.
    pub(super) fn walk(&mut self, array: usize, elements: u64, kept: u64) {
        if elements == 0 {
            return;
        }
        if self.last.len() <= array {
            self.last.resize(array + 1, None);
        }
        let lines = elements.div_ceil(LINE);
        self.spatial.add(0, 0, elements - lines);
        if let Some((before, _)) = self.last[array] {
            let between = || self.last.iter().flatten().filter(|last| last.0 > before);
            let others: u64 = between().map(|last| last.1).sum();
            let other_lines: u64 = between().map(|last| last.1.div_ceil(LINE)).sum();
            let time = self.clock - before - 1;
            self.temporal.add(time, others + elements - 1, kept);
            self.temporal.invalidated += elements - kept;
            self.parted |= kept != 0 && kept != elements;
            if kept == 0 {
                self.spatial.invalidated += lines;
            } else {
                // A line was used last at its last element, and is used next at its first one.
                let whole = elements / LINE;
                let stack = other_lines + lines - 1;
                // (None is whole where there are fewer elements than that.)
                self.spatial
                    .add((time + 1).saturating_sub(LINE), stack, whole);
                let rest = elements % LINE;
                self.spatial.add(time + 1 - rest, stack, lines - whole);
            }
        } else {
            self.temporal.cold += elements;
            self.spatial.cold += lines;
        }
        self.last[array] = Some((self.clock, elements));
        self.clock += elements;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_cache::reuse::{ReuseOptions, ReuseTracker};
    use linewise_cache::{Access, Kind};

    /// The accesses of walks over arrays, as the program makes them.
    fn tracked(walks: &[(usize, u64)], granularity_bytes: u32) -> Distances {
        let mut tracker = ReuseTracker::new(&ReuseOptions {
            granularity_bytes,
            ..ReuseOptions::default()
        })
        .expect("the options are in range");
        for &(array, elements) in walks {
            let accesses: Vec<Access> = (0..elements)
                .map(|element| Access {
                    address: (array as u64 + 1) << 32 | element << 3,
                    size: 8,
                    kind: Kind::Load,
                    thread: 0,
                    site: 0,
                })
                .collect();
            tracker.record(&accesses);
        }
        tracker.profile().total
    }

    #[test]
    fn the_account_agrees_with_an_exact_tracker_at_both_granularities() {
        let walks = [
            (0, 40),
            (0, 40),
            (1, 17),
            (2, 8),
            (0, 40),
            (2, 8),
            (1, 17),
            (3, 1),
            (3, 1),
            (0, 40),
        ];
        let mut account = Account::default();
        for (array, elements) in walks {
            account.walk(array, elements, elements);
        }
        assert!(!account.parted);
        assert_eq!(account.temporal.distances(), tracked(&walks, 8));
        assert_eq!(account.spatial.distances(), tracked(&walks, 64));
        assert_eq!(account.temporal.touches(), account.accesses());
    }

    #[test]
    fn what_others_stored_to_is_invalidated() {
        let mut account = Account::default();
        account.walk(0, 16, 0);
        account.walk(0, 16, 0);
        assert_eq!(account.temporal.cold, 16);
        assert_eq!(account.temporal.invalidated, 16);
        assert_eq!(account.spatial.invalidated, 2);
        assert_eq!(account.spatial.reuses, [(0, 0, 28)]);
        assert!(!account.parted);
        account.walk(0, 16, 5);
        assert_eq!(account.temporal.reuses, [(15, 15, 5)]);
        assert!(account.parted);
    }
}
