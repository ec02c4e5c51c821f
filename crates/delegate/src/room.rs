//! Which units of a shard's memory are free: ranges that grow together again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many free ranges of nearly the wanted size are tried for one that is aligned as wanted, before one
/// that has room for any alignment is taken.
const TRIES: usize = 16;

/// Free ranges below `used`, and all beyond it. No two touch each other, and none touches `used`.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    used: usize,
    /// Lengths by starts.
    ranges: BTreeMap<usize, usize>,
    /// The same, by length and start.
    lengths: BTreeSet<(usize, usize)>,
}

impl Room {
    /// So many free units.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            ranges: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }

    /// Where the units end that were never taken, or were all given back.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes `count` units (not 0) whose first is a multiple of `align`: of the smallest range that has
    /// them. `None` if there is no room.
    pub(crate) fn take(&mut self, count: usize, align: usize) -> Option<usize> {
        let fits = |&(length, start): &(usize, usize)| {
            start.next_multiple_of(align) + count <= start + length
        };
        let close = self
            .lengths
            .range((count, 0)..)
            .take(TRIES)
            .find(|one| fits(one));
        let ample = || self.lengths.range((count + align - 1, 0)..).next();
        if let Some(&(length, start)) = close.or_else(ample) {
            let taken = start.next_multiple_of(align);
            self.remove(start, length);
            self.insert(start..taken);
            self.insert(taken + count..start + length);
            return Some(taken);
        }
        let taken = self.used.next_multiple_of(align);
        let end = taken.checked_add(count).filter(|end| *end <= self.limit)?;
        self.insert(self.used..taken);
        self.used = end;
        Some(taken)
    }

    /// Gives `count` units from `start` on back, which were taken. Returns the free range that they are
    /// part of now.
    pub(crate) fn give(&mut self, start: usize, count: usize) -> Range<usize> {
        let mut free = start..start + count;
        let before = self.ranges.range(..start).next_back();
        if let Some((&before, &length)) = before
            && before + length == start
        {
            self.remove(before, length);
            free.start = before;
        }
        if let Some(&length) = self.ranges.get(&free.end) {
            self.remove(free.end, length);
            free.end += length;
        }
        if free.end == self.used {
            self.used = free.start;
        } else {
            self.insert(free.clone());
        }
        free
    }

    fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.ranges.insert(range.start, range.len());
            self.lengths.insert((range.len(), range.start));
        }
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.ranges.remove(&start);
        self.lengths.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_with_one_alive_takes_no_more_than_thrice_its_size() {
        let mut room = Room::new(1 << 30);
        let mut alive = (room.take(1, 1).unwrap(), 1);
        for count in 2..4000 {
            let next = room.take(count, 1).unwrap();
            room.give(alive.0, alive.1);
            alive = (next, count);
            assert!(room.used() <= 3 * count, "{} for {count}", room.used());
        }
        room.give(alive.0, alive.1);
        assert_eq!(
            (room.used(), room.ranges.len(), room.lengths.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn no_unit_is_taken_twice_and_none_is_lost() {
        let mut room = Room::new(5000);
        let mut alive = Vec::<(usize, usize)>::new();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |limit: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % limit
        };
        for _ in 0..20_000 {
            if below(2) == 0 && !alive.is_empty() {
                let (start, count) = alive.swap_remove(below(alive.len()));
                let free = room.give(start, count);
                assert!(free.start <= start && start + count <= free.end);
                assert!(
                    alive
                        .iter()
                        .all(|one| one.0 + one.1 <= free.start || free.end <= one.0)
                );
                continue;
            }
            let (count, align) = (1 + below(60), 1 << below(6));
            if let Some(start) = room.take(count, align) {
                assert_eq!(start % align, 0);
                assert!(start + count <= 5000);
                let apart = |one: &(usize, usize)| one.0 + one.1 <= start || start + count <= one.0;
                assert!(alive.iter().all(apart));
                alive.push((start, count));
            } else {
                assert!(alive.len() > 20, "full with {}", alive.len());
            }
        }
        for (start, count) in alive {
            room.give(start, count);
        }
        assert_eq!((room.used(), room.ranges.len()), (0, 0));
    }
}
