//! A core's first-level cache: the one that every access goes through.

use super::array::{Dice, MOST_SCANNED_WAYS, Sets, tree_touch, tree_victim};
use super::config::{CacheShape, Replacement};
use super::lines::{NO_INFO, state};
use super::mask::Mask;
use super::window::Window;

/// The tag of an empty way. No line number reaches it, since a line has several bytes.
pub(super) const EMPTY: u64 = u64::MAX;

/// What a way knows of its line besides the tag.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way<M> {
    /// Bytes read since the last flush (see `Engine::flush`), all by the thread of `last`.
    pub(super) read: M,
    /// Bytes written, likewise.
    pub(super) written: M,
    /// Last access ([`super::lines::Info`]).
    pub(super) last: u64,
    /// Last store of this residency, or [`NO_INFO`].
    pub(super) last_store: u64,
    /// The line.
    pub(super) id: u32,
    /// State of the core's copy.
    pub(super) state: u8,
    /// Newer than the second level.
    pub(super) dirty: bool,
    /// Modified and dirty: a store changes nothing but the bytes.
    pub(super) ready: bool,
}

/// A first-level cache. A way is numbered over all sets: `set * ways + way in the set`.
#[derive(Clone, Debug)]
pub(super) struct L1<M> {
    pub(super) sets: Sets,
    pub(super) ways: u32,
    /// Whether sets are too wide to be scanned: their lines know their ways.
    pub(super) wide: bool,
    pub(super) tags: Vec<u64>,
    /// The slot of each way's line in the window: its age.
    pub(super) slots: Vec<u64>,
    pub(super) held: Vec<Way<M>>,
    /// The way of each set that was used last.
    pub(super) recent: Vec<u32>,
    pub(super) window: Window,
    replacement: Replacement,
    trees: Vec<u64>,
    dice: Dice,
}

impl<M: Mask> L1<M> {
    pub(super) fn new(shape: &CacheShape, line_bytes: u32, seed: u64) -> Self {
        let sets = shape.sets(line_bytes);
        let ways = shape.number_of_ways(line_bytes);
        let lines = shape.lines(line_bytes) as usize;
        let empty = Way {
            last: NO_INFO,
            last_store: NO_INFO,
            state: state::SHARED,
            ..Way::default()
        };
        Self {
            sets: Sets::new(sets),
            ways,
            wide: ways > MOST_SCANNED_WAYS,
            tags: vec![EMPTY; lines],
            slots: vec![0; lines],
            held: vec![empty; lines],
            recent: (0..sets as u32).map(|set| set * ways).collect(),
            window: Window::new(lines as u64),
            replacement: shape.replacement,
            trees: vec![0; sets as usize],
            dice: Dice::new(seed),
        }
    }

    /// The way that has `line`. Not for wide sets beyond the way used last.
    #[inline]
    pub(super) fn find(&self, set: usize, line: u64) -> Option<usize> {
        let recent = self.recent[set] as usize;
        if self.tags[recent] == line {
            return Some(recent);
        }
        if self.wide {
            return None;
        }
        let base = set * self.ways as usize;
        let mut matches = 0u64;
        for (way, &tag) in self.tags[base..base + self.ways as usize]
            .iter()
            .enumerate()
        {
            matches |= u64::from(tag == line) << way;
        }
        (matches != 0).then(|| base + matches.trailing_zeros() as usize)
    }

    /// Notes for replacement that `way` was used.
    #[inline]
    pub(super) fn used(&mut self, set: usize, way: usize) {
        self.recent[set] = way as u32;
        if self.replacement == Replacement::TreePlru {
            tree_touch(
                &mut self.trees[set],
                self.ways,
                way as u32 - set as u32 * self.ways,
            );
        }
    }

    /// The way for a line that comes to `set`: an empty one, or that of the line which must leave.
    pub(super) fn choose(&mut self, set: usize) -> usize {
        let base = set * self.ways as usize;
        let range = base..base + self.ways as usize;
        let tags = &self.tags[range.clone()];
        match self.replacement {
            // An empty way has slot 0, older than all lines.
            Replacement::Lru => {
                let mut oldest = (u64::MAX, 0);
                for (way, &slot) in self.slots[range].iter().enumerate() {
                    if slot < oldest.0 {
                        oldest = (slot, way);
                    }
                }
                base + oldest.1
            }
            Replacement::TreePlru => {
                let empty = tags.iter().position(|&tag| tag == EMPTY);
                base + empty.unwrap_or_else(|| tree_victim(self.trees[set], self.ways) as usize)
            }
            Replacement::Random => {
                let empty = tags.iter().position(|&tag| tag == EMPTY);
                base + empty.unwrap_or_else(|| self.dice.throw(self.ways) as usize)
            }
        }
    }

    /// Empties a way.
    pub(super) fn clear(&mut self, way: usize) {
        self.tags[way] = EMPTY;
        self.slots[way] = 0;
    }
}
