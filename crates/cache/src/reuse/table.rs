//! The table of lines: ordered linear probing over one dense array.
//!
//! ```text
//! key      hash of the line, 64 bits, one to one: no two lines have the same
//! home     key * scale / 2^64: keeps the order of the keys
//! array    .. | 12 | 17 | 18 |    | 25 | 31 | ..   sorted by key; a gap is a key of u64::MAX
//! ```
//!
//! The order buys three things (Amble, Knuth: Ordered hash tables, 1974): a search for an absent
//! key ends as soon as one for a present key; the array grows in place by any factor, in two
//! sequential passes, so that it is never much less than two thirds full; and the lines with the
//! greatest hashes, which fixed-size sampling gives up first, are its tail.

/// What is remembered of a line, 28 bytes.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct Entry {
    pub(super) key: u64,
    /// The last use: see [`Use`].
    pub(super) when: Use,
    /// The last use's place in the group's order.
    pub(super) slot: u32,
    /// The last use's instruction.
    pub(super) site: u32,
    /// Stores to the line (main table), or how many of them the group has seen (others').
    pub(super) version: u32,
}

/// When and by whom a line was last used: the clock of the group in 47 bits, whether a store from
/// elsewhere has ended the use, and the thread.
#[derive(Clone, Copy)]
pub(super) struct Use(u64);

impl Use {
    #[inline]
    pub(super) fn new(clock: u64, thread: u16) -> Self {
        Self(clock << 17 | u64::from(thread))
    }

    #[inline]
    pub(super) fn clock(self) -> u64 {
        self.0 >> 17
    }

    #[inline]
    pub(super) fn thread(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(super) fn ended(self) -> bool {
        self.0 & 1 << 16 != 0
    }

    #[inline]
    pub(super) fn end(self) -> Self {
        Self(self.0 | 1 << 16)
    }
}

/// A key that no line has; greater than every other, so that a search stops at it.
const NONE: u64 = u64::MAX;
const GAP: Entry = Entry {
    key: NONE,
    when: Use(0),
    slot: 0,
    site: 0,
    version: 0,
};

/// Entries behind the last home, so that the end of the array needs no care.
const MARGIN: usize = 32;
const SMALLEST: usize = 64;
/// Entries that are compared at once.
const NEAR: usize = 4;

/// See the module.
#[derive(Clone)]
pub(super) struct Table {
    entries: Vec<Entry>,
    used: usize,
    /// Homes.
    homes: usize,
    /// Homes times 2^64 / (greatest key + 1).
    scale: u64,
    greatest_key: u64,
}

impl Table {
    /// An empty table for keys up to `greatest_key`.
    pub(super) fn new(greatest_key: u64) -> Self {
        Self {
            entries: vec![GAP; MARGIN],
            used: 0,
            homes: 0,
            scale: 0,
            greatest_key,
        }
    }

    /// Entries in use.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Memory held, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        ((u128::from(key) * u128::from(self.scale)) >> 64) as usize
    }

    /// Loads where the key should be, for its effect on the caches: independent calls overlap.
    #[inline]
    pub(super) fn touch(&self, key: u64) -> u64 {
        let home = self.home(key);
        self.entries[home].key ^ self.entries[home + NEAR - 1].key
    }

    /// Where the key is, or where it belongs. The key must not be above the greatest.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Result<usize, usize> {
        let home = self.home(key);
        // From its home on, keys below this one come first and nothing else is among them, so how
        // many of four are below says where to look, without a branch that is hard to foresee.
        let near: &[Entry; NEAR] = self.entries[home..]
            .first_chunk()
            .expect("there is a margin behind every home");
        let mut at = home;
        for entry in near {
            at += usize::from(entry.key < key);
        }
        if at == home + NEAR {
            // Ends at the latest at the last entry, which is always a gap.
            while self.entries[at].key < key {
                at += 1;
            }
        }
        if self.entries[at].key == key {
            Ok(at)
        } else {
            Err(at)
        }
    }

    /// Whether the key is at this place.
    #[inline]
    pub(super) fn is_at(&self, key: u64, at: usize) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.key == key)
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry {
        self.entries[at]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }

    /// Inserts an entry whose key is absent; returns where.
    pub(super) fn insert(&mut self, entry: Entry) -> usize {
        if (self.used + 1) * 5 > self.homes * 4 {
            let homes = (self.homes + self.homes / 4).max(SMALLEST);
            self.spread(homes, self.greatest_key);
        }
        let (Ok(at) | Err(at)) = self.find(entry.key);
        let mut gap = at;
        while self.entries[gap].key != NONE {
            gap += 1;
        }
        if gap + 1 == self.entries.len() {
            self.entries.reserve_exact(MARGIN);
            self.entries.resize(self.entries.len() + MARGIN, GAP);
        }
        self.entries.copy_within(at..gap, at + 1);
        self.entries[at] = entry;
        self.used += 1;
        at
    }

    /// All entries, by key.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(|entry| entry.key != NONE)
    }

    /// The key at this place of the order of keys.
    pub(super) fn key_at_rank(&self, rank: usize) -> Option<u64> {
        let mut keys = self.entries.iter().map(|entry| entry.key);
        keys.by_ref().filter(|&key| key != NONE).nth(rank)
    }

    /// Forgets the entries with keys above the new greatest key, after showing each to `forget`.
    pub(super) fn lower(&mut self, greatest_key: u64, mut forget: impl FnMut(Entry)) {
        for entry in self.entries.iter_mut().rev() {
            if entry.key == NONE {
                continue;
            }
            if entry.key <= greatest_key {
                break;
            }
            forget(*entry);
            *entry = GAP;
            self.used -= 1;
        }
        if self.homes > 0 {
            self.spread(self.homes, greatest_key);
        }
        self.greatest_key = greatest_key;
    }

    /// Gives every entry its place among `homes` homes, in place: all move to the end of the
    /// array, and from there, in order, to their homes or just behind the one before.
    fn spread(&mut self, homes: usize, greatest_key: u64) {
        self.homes = homes;
        self.greatest_key = greatest_key;
        let scale = ((homes as u128) << 64) / (u128::from(greatest_key) + 1);
        self.scale = u64::try_from(scale).unwrap_or(u64::MAX);

        let mut next = 0;
        for index in 0..self.entries.len() {
            let key = self.entries[index].key;
            if key != NONE {
                next = next.max(self.home(key)) + 1;
            }
        }
        let length = (homes + MARGIN).max(next + 1).max(self.entries.len());
        self.entries.reserve_exact(length - self.entries.len());
        self.entries.resize(length, GAP);

        // The last entry stays a gap.
        let mut target = length - 1;
        for index in (0..length).rev() {
            if self.entries[index].key != NONE {
                target -= 1;
                self.entries.swap(index, target);
            }
        }
        let mut next = 0;
        for index in target..length - 1 {
            let place = next.max(self.home(self.entries[index].key));
            self.entries.swap(index, place);
            next = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;

    fn entry(key: u64) -> Entry {
        Entry {
            key,
            when: Use::new(key >> 20, 7),
            slot: key as u32,
            site: 3,
            version: 1,
        }
    }

    #[test]
    fn a_table_holds_what_was_put_in_through_growth_and_lowering() {
        let mut table = Table::new(u64::MAX);
        let keys: Vec<u64> = (0..20_000).map(line_hash).collect();
        for &key in &keys {
            assert!(table.find(key).is_err());
            table.insert(entry(key));
        }
        assert_eq!(table.len(), keys.len());
        for &key in &keys {
            let found = table.get(table.find(key).expect("was inserted"));
            assert_eq!({ found.slot }, key as u32);
            assert_eq!({ found.when }.clock(), key >> 20);
            assert_eq!({ found.when }.thread(), 7);
        }
        assert!(table.find(line_hash(20_001)).is_err());
        let limit = table.key_at_rank(4_999).expect("has as many");
        let mut forgotten = 0;
        table.lower(limit, |_| forgotten += 1);
        assert_eq!((table.len(), forgotten), (5_000, 15_000));
        for &key in keys.iter().filter(|&&key| key <= limit) {
            assert!(table.find(key).is_ok());
        }
        let mut left: Vec<u64> = table.iter_mut().map(|entry| entry.key).collect();
        assert!(left.is_sorted());
        left.dedup();
        assert_eq!(left.len(), 5_000);
    }

    #[test]
    fn keys_that_crowd_at_one_home_are_found_also_at_the_end_of_the_array() {
        let mut table = Table::new(u64::MAX);
        for key in (u64::MAX - 500..u64::MAX).chain(0..500).rev() {
            table.insert(entry(key));
        }
        for key in (u64::MAX - 500..u64::MAX).chain(0..500) {
            assert!(table.find(key).is_ok(), "{key:#x}");
        }
        assert!(table.find(500).is_err());
        assert!(table.find(u64::MAX - 501).is_err());
    }
}
