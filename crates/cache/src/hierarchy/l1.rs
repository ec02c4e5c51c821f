//! A core's first-level cache: the one that every access goes through.

use crate::Kind;

use super::array::{Dice, MOST_SCANNED_WAYS, Sets, tree_touch, tree_victim};
use super::config::{CacheShape, Replacement};
use super::engine::Touch;
use super::lines::{Info, NO_INFO, state};
use super::mask::Mask;
use super::window::Window;

/// The tag of an empty way. No line number reaches it, since a line has several bytes.
pub(super) const EMPTY: u64 = u64::MAX;

/// Bits of a way's number beside its slot in a word. The slot has the other 56: enough for years.
const WAY_BITS: u32 = 8;

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
        let tags = &self.tags[base..base + self.ways as usize];
        // The same for any number of ways; for the usual ones without a loop.
        let matches = match tags.len() {
            8 => matches::<8>(tags, line),
            12 => matches::<12>(tags, line),
            _ => matches_of_any(tags, line),
        };
        (matches != 0).then(|| base + matches.trailing_zeros() as usize)
    }

    /// Whether an access to the line in `way` changes nothing but what [`note`](Self::note) does.
    #[inline(always)]
    pub(super) fn needs_no_one(&self, way: usize, touch: &Touch) -> bool {
        let held = &self.held[way];
        let unready = touch.kind.writes() && !held.ready;
        !unready && Info::thread(held.last) == touch.thread && !self.window.is_full()
    }

    /// Notes an access in the way that has its line.
    #[inline(always)]
    pub(super) fn note(&mut self, set: usize, way: usize, touch: &Touch, bits: M) {
        let writes = touch.kind.writes();
        let info = touch.info();
        let held = &mut self.held[way];
        held.read |= bits.only_if(touch.kind != Kind::Store);
        held.written |= bits.only_if(writes);
        held.last = info;
        held.last_store = if writes { info } else { held.last_store };
        let id = held.id;
        let slot = self.slots[way];
        if !self.window.is_newest(slot) {
            self.slots[way] = self.window.touch(slot, id);
            self.used(way, set);
        }
    }

    /// Notes for replacement that `way` was used.
    #[inline]
    pub(super) fn used(&mut self, way: usize, set: usize) {
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
            Replacement::Lru if self.wide => {
                let slots = self.slots[range].iter().enumerate();
                let oldest = slots.min_by_key(|&(_, &slot)| slot);
                base + oldest.map_or(0, |(way, _)| way)
            }
            Replacement::Lru => {
                let slots = &self.slots[range];
                base + match slots.len() {
                    8 => oldest::<8>(slots),
                    12 => oldest::<12>(slots),
                    _ => oldest_of_any(slots),
                }
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

/// Which of `WAYS` tags are `line`, as bits.
#[inline(always)]
fn matches<const WAYS: usize>(tags: &[u64], line: u64) -> u64 {
    tags.first_chunk::<WAYS>()
        .map_or(0, |tags| matches_of_any(tags, line))
}

#[inline(always)]
fn matches_of_any(tags: &[u64], line: u64) -> u64 {
    let mut matches = 0;
    for (way, &tag) in tags.iter().enumerate() {
        matches |= u64::from(tag == line) << way;
    }
    matches
}

/// The least of `WAYS` slots.
#[inline(always)]
fn oldest<const WAYS: usize>(slots: &[u64]) -> usize {
    slots
        .first_chunk::<WAYS>()
        .map_or(0, |slots| oldest_of_any(slots))
}

#[inline(always)]
fn oldest_of_any(slots: &[u64]) -> usize {
    // Slot and way in a word: the least of several without a branch.
    let keys = slots.iter().enumerate();
    let oldest = keys.fold(u64::MAX, |oldest, (way, &slot)| {
        oldest.min(slot << WAY_BITS | way as u64)
    });
    (oldest & ((1 << WAY_BITS) - 1)) as usize
}
