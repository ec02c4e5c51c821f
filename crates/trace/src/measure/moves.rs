//! Transfers of lines by who had the line, who fetched it, and where: a bounded number of them, the
//! heaviest.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use linewise_cache::hierarchy::{Transfer, Transfers};
use linewise_cache::line_hash;

/// What tells transfers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Move {
    /// Address of the line's first byte, as in `TracedAccess::address`.
    pub(crate) line: u64,
    pub(crate) from_site: u32,
    pub(crate) to_site: u32,
    pub(crate) from_thread: u16,
    pub(crate) to_thread: u16,
    pub(crate) is_true: bool,
}

/// How often, and at which bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) count: u64,
    pub(crate) from_bytes: u64,
    pub(crate) to_bytes: u64,
}

/// The heaviest moves. When there are four times as many as are shown, the lighter half is summed
/// up; so with more than that the counts of the shown ones are lower bounds, and the sums are right.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    shown: usize,
    index: HashMap<Move, u32, BuildHasherDefault<MoveHasher>>,
    moved: Vec<(Move, Moved)>,
    /// The one counted last: a contended line goes back and forth between the same two.
    last: [usize; 2],
    given_up: Transfers,
}

impl Moves {
    pub(crate) fn new(shown: usize) -> Self {
        Self {
            shown,
            index: HashMap::default(),
            moved: Vec::new(),
            last: [usize::MAX; 2],
            given_up: Transfers::default(),
        }
    }

    /// Counts a transfer; `1 << bit_shift` bytes of its line are one bit.
    #[inline]
    pub(crate) fn count(&mut self, transfer: &Transfer, bit_shift: u32) {
        let mask = |(first, last): (u8, u8)| {
            let (first, last) = (first >> bit_shift, last >> bit_shift);
            (u64::MAX >> (63 - last)) & (u64::MAX << first)
        };
        let (from, to) = (&transfer.from, &transfer.to);
        let key = Move {
            line: transfer.line,
            from_site: from.site,
            to_site: to.site,
            from_thread: from.thread,
            to_thread: to.thread,
            is_true: transfer.is_true,
        };
        self.add(key, mask(from.bytes), mask(to.bytes));
    }

    #[inline]
    fn add(&mut self, key: Move, from_bytes: u64, to_bytes: u64) {
        let place = match self.recent(key) {
            Some(place) => place,
            None => self.place(key),
        };
        let moved = &mut self.moved[place].1;
        moved.count += 1;
        moved.from_bytes |= from_bytes;
        moved.to_bytes |= to_bytes;
    }

    fn recent(&self, key: Move) -> Option<usize> {
        self.last
            .into_iter()
            .find(|&place| self.moved.get(place).is_some_and(|known| known.0 == key))
    }

    fn place(&mut self, key: Move) -> usize {
        let place = match self.index.get(&key) {
            Some(&place) => place as usize,
            None => {
                if self.moved.len() >= self.shown.saturating_mul(4) {
                    self.give_up();
                }
                self.index.insert(key, self.moved.len() as u32);
                self.moved.push((key, Moved::default()));
                self.moved.len() - 1
            }
        };
        self.last = [place, self.last[0]];
        place
    }

    #[cold]
    fn give_up(&mut self) {
        self.sort();
        let keep = self.moved.len() / 2;
        for (key, moved) in self.moved.drain(keep..) {
            sum(&mut self.given_up, key, moved);
        }
        self.index.clear();
        for (place, (key, _)) in self.moved.iter().enumerate() {
            self.index.insert(*key, place as u32);
        }
        self.last = [usize::MAX; 2];
    }

    /// The heaviest first; ties by key, so that the order is always the same.
    fn sort(&mut self) {
        self.moved
            .sort_unstable_by_key(|&(key, moved)| (std::cmp::Reverse(moved.count), key));
    }

    /// The heaviest moves, and the sums of the others.
    pub(crate) fn finish(mut self) -> (Vec<(Move, Moved)>, Transfers) {
        self.sort();
        let mut others = self.given_up;
        for &(key, moved) in self.moved.iter().skip(self.shown) {
            sum(&mut others, key, moved);
        }
        self.moved.truncate(self.shown);
        (self.moved, others)
    }
}

fn sum(into: &mut Transfers, key: Move, moved: Moved) {
    if key.is_true {
        into.true_sharing += moved.count;
    } else {
        into.false_sharing += moved.count;
    }
}

/// Addresses and small dense numbers need no more than mixing.
#[derive(Clone, Default)]
pub(crate) struct MoveHasher(u64);

impl Hasher for MoveHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = line_hash(self.0.rotate_left(17) ^ value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_move(line: u64, is_true: bool) -> Move {
        Move {
            line,
            from_site: 1,
            to_site: 2,
            from_thread: 0,
            to_thread: 1,
            is_true,
        }
    }

    #[test]
    fn the_heaviest_are_kept_and_nothing_is_lost() {
        let mut moves = Moves::new(4);
        let mut all = Transfers::default();
        for round in 0..1000u64 {
            moves.add(a_move(64, false), 1, 2);
            moves.add(a_move(64 * (2 + round), true), 1, 1);
            all.false_sharing += 1;
            all.true_sharing += 1;
        }
        let (shown, others) = moves.finish();
        assert_eq!(shown.len(), 4);
        assert_eq!(shown[0].0, a_move(64, false));
        assert_eq!(shown[0].1.count, 1000);
        let mut sums = others;
        for (key, moved) in shown {
            sum(&mut sums, key, moved);
        }
        assert_eq!(sums, all);
    }

    #[test]
    fn bytes_are_joined() {
        let mut moves = Moves::new(4);
        moves.add(a_move(0, false), 0x0f, 0xf0);
        moves.add(a_move(0, false), 0xf00, 0xf0);
        let (shown, _) = moves.finish();
        assert_eq!(
            shown[0].1,
            Moved {
                count: 2,
                from_bytes: 0xf0f,
                to_bytes: 0xf0
            }
        );
    }
}
