//! Which blocks of a process were told of, so that the ends of those alone are told.
//!
//! A free looks at two bits first: how many keys that were noted and not forgotten share them. Most frees end
//! there. The others look for the key itself, in one line of memory. Frees come in any order, so what decides
//! is how much memory those bits are: a line of them is for 16 KiB of blocks, of which neighbours share two bits.
//! With a byte for each block redis waited for them for 7 % of its time.
//!
//! Keys are few where blocks are sampled, and lie anywhere. So they have a small table first: to touch a page for
//! the first time takes a virtual machine up to ten microseconds, ten times as long as all else about a block.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const COUNTERS: usize = 1 << 18;
/// Of a counter, and of counters in a byte.
const COUNT: u8 = 3;
const IN_A_BYTE: usize = 4;
/// Lines for the first keys, and for those that find no room there.
const FIRST_LINES: usize = 1 << 13;
const MORE_LINES: usize = 1 << 17;
const KEYS: usize = 7;

/// A count that is not changed any more.
const STUCK: u8 = COUNT;

/// Keys that share a place.
#[repr(C, align(64))]
struct Line {
    keys: [AtomicU64; KEYS],
    /// Not 0: there was no room for some, so what is not found here may have been noted all the same.
    overflowed: AtomicU32,
}

/// The set of keys, for any number of threads. Zeros are an empty set: it lies in memory that the kernel
/// zeroed, 9.0 MB of address space of which only what is touched is used.
///
/// A key is what [`block_key`] or [`name_key`] makes of an address. Who has a block notes and forgets its key,
/// nobody else.
#[repr(C)]
pub struct Told {
    counters: [AtomicU8; COUNTERS / IN_A_BYTE],
    first: [Line; FIRST_LINES],
    more: [Line; MORE_LINES],
}

/// The key of the block at an address.
#[inline(always)]
#[must_use]
pub fn block_key(address: u64) -> u64 {
    address
}

/// The key of the named object at an address, where a block may begin, too.
#[inline(always)]
#[must_use]
pub fn name_key(address: u64) -> u64 {
    address | 1 << 63
}

impl Line {
    fn find(&self, key: u64) -> Option<&AtomicU64> {
        (self.keys.iter()).find(|it| it.load(Ordering::Relaxed) == key)
    }

    /// Whether there was room for the key.
    fn add(&self, key: u64) -> bool {
        let free = |it: &AtomicU64| {
            it.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let added = self.keys.iter().any(free);
        if !added {
            self.overflowed.store(1, Ordering::Relaxed);
        }
        added
    }

    fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed) != 0
    }
}

impl Told {
    /// The byte that has a key's counter, and where in it that begins.
    #[inline(always)]
    fn counter(&self, key: u64) -> (&AtomicU8, usize) {
        let number = (key >> 6 ^ key >> 24) as usize % COUNTERS;
        (&self.counters[number / IN_A_BYTE], number % IN_A_BYTE * 2)
    }

    /// Changes a key's counter, unless it is stuck.
    fn change(&self, key: u64, by: impl Fn(u8) -> Option<u8>) {
        let (byte, shift) = self.counter(key);
        let changed = |all: u8| match all >> shift & COUNT {
            STUCK => None,
            count => Some(all & !(COUNT << shift) | by(count)? << shift),
        };
        let _ = byte.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// Where a key is, or else in the second of the two.
    fn lines(&self, key: u64) -> (&Line, &Line) {
        let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (
            &self.first[hash % FIRST_LINES],
            &self.more[hash % MORE_LINES],
        )
    }

    /// False: the key is not noted.
    #[inline(always)]
    #[must_use]
    pub fn may_know(&self, key: u64) -> bool {
        let (byte, shift) = self.counter(key);
        byte.load(Ordering::Relaxed) >> shift & COUNT != 0
    }

    /// Notes a key.
    pub fn note(&self, key: u64) {
        let (first, more) = self.lines(key);
        // It is there if the end of an earlier block at that address could not be told.
        if first.find(key).is_some() || first.has_overflowed() && more.find(key).is_some() {
            return;
        }
        if !first.add(key) {
            more.add(key);
        }
        self.change(key, |count| Some(count + 1));
    }

    /// Forgets a key; whether it was noted, or may have been where there was no room for it.
    pub fn forget(&self, key: u64) -> bool {
        let (first, more) = self.lines(key);
        let in_more = || first.has_overflowed().then(|| more.find(key)).flatten();
        let Some(place) = first.find(key).or_else(in_more) else {
            return first.has_overflowed() && more.has_overflowed();
        };
        place.store(0, Ordering::Relaxed);
        self.change(key, |count| count.checked_sub(1));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Told> {
        let layout = std::alloc::Layout::new::<Told>();
        // SAFETY: of the set's layout, which is not empty; zeros are a set; if there is no memory the box is not made.
        unsafe {
            let start = std::alloc::alloc_zeroed(layout).cast::<Told>();
            assert!(!start.is_null());
            Box::from_raw(start)
        }
    }

    #[test]
    fn who_shares_a_count_with_a_noted_block_does_not_end_it() {
        let told = empty();
        let block = block_key(0x7f00_1234_5670);
        // The same count, by the shifts of `counter`.
        let other = block ^ 1 << 24 ^ 1 << 6;
        told.note(block);
        assert!(told.may_know(other));
        assert!(!told.forget(other));
        assert!(told.may_know(block) && told.forget(block));
        assert!(!told.may_know(block) && !told.forget(block));
    }

    #[test]
    fn neighbours_in_a_byte_are_counted_each_for_itself() {
        let told = empty();
        let blocks: Vec<u64> = (0..8)
            .map(|place| block_key(0x10_0000 + place * 64))
            .collect();
        blocks.iter().for_each(|&block| told.note(block));
        for (place, &block) in blocks.iter().enumerate() {
            assert!(told.forget(block));
            let known = blocks.iter().map(|&block| told.may_know(block));
            let expected = (0..blocks.len()).map(|other| other > place);
            assert!(known.eq(expected));
        }
    }

    #[test]
    fn a_block_and_the_object_at_its_first_byte_are_two() {
        let told = empty();
        told.note(block_key(0x1000));
        told.note(name_key(0x1000));
        assert!(told.forget(name_key(0x1000)));
        assert!(told.forget(block_key(0x1000)));
        assert!(!told.forget(block_key(0x1000)));
    }

    #[test]
    fn where_there_is_no_room_every_end_is_told() {
        let told = empty();
        let count = (MORE_LINES * KEYS * 2) as u64;
        for number in 0..count {
            told.note(block_key(0x1_0000 + number * 48));
        }
        assert!((0..count).all(|number| {
            let key = block_key(0x1_0000 + number * 48);
            told.may_know(key) && told.forget(key)
        }));
    }
}
