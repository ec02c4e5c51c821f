//! A core's first-level cache: the one that every access goes through.

use crate::Kind;
use crate::chance::Chance;

use super::array::{Sets, tree_touch, tree_victim};
use super::config::{CacheShape, MOST_SCANNED_WAYS, Replacement};
use super::lines::{Info, NO_INFO, state};
use super::mask::Mask;
use super::touch::Touch;
use super::window::Window;

/// The tag of an empty way. No line number reaches it, since a line has several bytes.
pub(super) const EMPTY: u64 = u64::MAX;

/// Bits of a way's number beside its slot in a word. The slot has the other 56: enough for years.
const WAY_BITS: u32 = 8;

/// Slots from here on are none of the window's: see [`L1::young`].
const YOUNG: u64 = 1 << 55;
/// Ways whose lines are not in the window, at most.
const MOST_YOUNG: usize = 8;

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
    /// The slot of each way's line in the window: its age. For a young one [`YOUNG`] and the time of
    /// its last use, so that slots have the order of the last uses either way.
    pub(super) slots: Vec<u64>,
    pub(super) held: Vec<Way<M>>,
    /// The way of each set that was used last.
    recent: Vec<u32>,
    pub(super) window: Window,
    /// The ways of the lines used last, in no order: the top of the LRU stack, of which the window
    /// holds the rest. A hit there is noted in one word; the window hears of a line when it leaves
    /// the top, which lines do in the order of their last use.
    young: Vec<u32>,
    most_young: usize,
    /// Uses so far.
    time: u64,
    replacement: Replacement,
    trees: Vec<u64>,
    dice: Chance,
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
            young: Vec::with_capacity(MOST_YOUNG),
            most_young: MOST_YOUNG.min(lines),
            time: 0,
            replacement: shape.replacement,
            trees: vec![0; sets as usize],
            dice: Chance::seeded(seed),
        }
    }

    /// The way that has `line`. Not for wide sets beyond the way used last.
    #[inline(always)]
    pub(super) fn find(&self, set: usize, line: u64) -> Option<usize> {
        let recent = self.recent[set] as usize;
        if self.tags[recent] == line {
            return Some(recent);
        }
        self.find_any(set, line)
    }

    fn find_any(&self, set: usize, line: u64) -> Option<usize> {
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
        !unready && Info::thread(held.last) == touch.thread && self.is_young(way)
    }

    /// Whether the line in `way` is among those used last, which the window does not hold.
    #[inline(always)]
    pub(super) fn is_young(&self, way: usize) -> bool {
        self.slots[way] >= YOUNG
    }

    /// The young way used longest ago, if there is no room for another one.
    pub(super) fn oldest_of_full_young(&self) -> Option<usize> {
        (self.young.len() == self.most_young).then(|| self.oldest_young())
    }

    /// The young way used longest ago. There is one.
    pub(super) fn oldest_young(&self) -> usize {
        let ways = self.young.iter().map(|&way| way as usize);
        ways.min_by_key(|&way| self.slots[way]).unwrap_or(0)
    }

    /// A young way's line goes to the window, which is not full.
    pub(super) fn age(&mut self, way: usize) {
        self.young.retain(|&young| young as usize != way);
        self.slots[way] = self.window.touch(0, self.held[way].id);
    }

    /// The line in `way`, whose slot in the window was `slot`, is used and becomes young, for which
    /// there is room.
    pub(super) fn rejuvenate(&mut self, way: usize, slot: u64) {
        self.window.remove(slot);
        self.window.leave_room(self.young.len() as u64 + 1);
        self.young.push(way as u32);
        self.time += 1;
        self.slots[way] = YOUNG + self.time;
    }

    /// Notes an access in the way that has its line, which is young.
    #[inline(always)]
    pub(super) fn note(&mut self, set: usize, way: usize, touch: &Touch, bits: M) {
        let writes = touch.kind.writes();
        let info = touch.info();
        let held = &mut self.held[way];
        held.read |= bits.only_if(touch.kind != Kind::Store);
        held.written |= bits.only_if(writes);
        held.last = info;
        held.last_store = if writes { info } else { held.last_store };
        self.time += 1;
        self.slots[way] = YOUNG + self.time;
        // Nothing changes for the way that its set used last.
        if self.recent[set] != way as u32 {
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
            Replacement::Lru => self.least_recent(set),
            Replacement::TreePlru => {
                let empty = tags.iter().position(|&tag| tag == EMPTY);
                base + empty.unwrap_or_else(|| tree_victim(self.trees[set], self.ways) as usize)
            }
            Replacement::Random => {
                let empty = tags.iter().position(|&tag| tag == EMPTY);
                base + empty.unwrap_or_else(|| self.dice.below(self.ways as usize))
            }
        }
    }

    /// The way of a set, which is not wide, that was used longest ago; an empty one if there is any.
    #[inline]
    fn least_recent(&self, set: usize) -> usize {
        let base = set * self.ways as usize;
        let slots = &self.slots[base..base + self.ways as usize];
        base + match slots.len() {
            8 => oldest::<8>(slots),
            12 => oldest::<12>(slots),
            _ => oldest_of_any(slots),
        }
    }

    /// The line that is likely to leave when another comes to `set`.
    pub(super) fn likely_victim(&self, set: usize) -> Option<u32> {
        if self.wide {
            return None;
        }
        let way = self.least_recent(set);
        (self.tags[way] != EMPTY).then(|| self.held[way].id)
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
