//! The tags of one cache and who has to leave a full set.

use crate::chance::Chance;

use super::config::{MOST_SCANNED_WAYS, Replacement};

/// No line.
pub(super) const EMPTY: u32 = u32::MAX;

/// Points all nodes of a set's tree on the path to `way` away from it. `tree` holds node `n`
/// (the root is 1, its children 2 and 3) in bit `n`; a set bit points to the upper half.
#[inline]
pub(super) fn tree_touch(tree: &mut u64, ways: u32, way: u32) {
    let mut node = 1;
    let mut half = ways.next_power_of_two() / 2;
    while half > 0 {
        let upper = way & half != 0;
        if upper {
            *tree &= !(1 << node);
        } else {
            *tree |= 1 << node;
        }
        node = 2 * node + u32::from(upper);
        half /= 2;
    }
}

/// The way that a set's tree points to. Where the number of ways is not a power of two, the
/// halves that do not exist are never chosen.
pub(super) fn tree_victim(tree: u64, ways: u32) -> u32 {
    let (mut node, mut way) = (1, 0);
    let mut half = ways.next_power_of_two() / 2;
    while half > 0 {
        let upper = tree >> node & 1 == 1 && way + half < ways;
        way += half * u32::from(upper);
        node = 2 * node + u32::from(upper);
        half /= 2;
    }
    way
}

/// The set of a line: its number modulo the number of sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sets {
    sets: u64,
    mask: Option<u64>,
}

impl Sets {
    pub(super) fn new(sets: u64) -> Self {
        Self {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
        }
    }

    #[inline]
    pub(super) fn of(self, line: u64) -> usize {
        match self.mask {
            Some(mask) => (line & mask) as usize,
            None => (line % self.sets) as usize,
        }
    }
}

/// How the lines of a set are ordered.
#[derive(Clone, Debug)]
enum Order {
    /// A set's lines stand in the order of their last touch, the most recent first.
    Recency,
    /// A tree of bits for each set.
    Tree(Vec<u64>),
    /// No order.
    Random(Chance),
    /// Like recency, for sets too wide to be shifted: a ring for each set through `2 * ways + 2`
    /// links. The ring's anchor stands behind the ways.
    Ring { next: Vec<u32>, back: Vec<u32> },
}

/// The lines (by id) of a second- or last-level cache.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) sets: Sets,
    ways: u32,
    ids: Vec<u32>,
    order: Order,
    /// Unused slots of each set; for sets that are not scanned.
    free: Vec<Vec<u32>>,
}

impl Array {
    /// An empty cache.
    pub(super) fn new(sets: u64, ways: u32, replacement: Replacement, seed: u64) -> Self {
        let wide = ways > MOST_SCANNED_WAYS;
        let order = match replacement {
            Replacement::Lru if wide => {
                let ring = |_| (0..sets as u32).flat_map(|_| (0..ways).chain([ways]));
                Order::Ring {
                    next: ring(0).collect(),
                    back: ring(1).collect(),
                }
            }
            Replacement::Lru => Order::Recency,
            Replacement::TreePlru => Order::Tree(vec![0; sets as usize]),
            Replacement::Random => Order::Random(Chance::seeded(seed)),
        };
        Self {
            sets: Sets::new(sets),
            ways,
            ids: vec![EMPTY; (sets * u64::from(ways)) as usize],
            order,
            free: if wide {
                vec![(0..ways).rev().collect(); sets as usize]
            } else {
                Vec::new()
            },
        }
    }

    /// The lines that are here.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied().filter(|&id| id != EMPTY)
    }

    /// Who may be the next to leave the set of line number `line`, or [`EMPTY`]. Sure for narrow
    /// LRU sets only.
    #[inline]
    pub(super) fn next_victim(&self, line: u64) -> u32 {
        self.ids[(self.sets.of(line) + 1) * self.ways as usize - 1]
    }

    /// Notes an access to `id`, which is here in `slot` (what [`insert`](Self::insert) said).
    #[inline]
    pub(super) fn touch(&mut self, set: usize, id: u32, slot: u32) {
        let ways = self.ways as usize;
        let base = set * ways;
        match &mut self.order {
            Order::Recency => {
                let lines = &mut self.ids[base..base + ways];
                if lines[0] != id {
                    let at = scan(lines, id);
                    lines.copy_within(0..at, 1);
                    lines[0] = id;
                }
            }
            Order::Tree(trees) => {
                tree_touch(&mut trees[set], self.ways, slot);
            }
            Order::Random(_) => {}
            Order::Ring { next, back } => {
                let ring = set * (ways + 1);
                unlink(&mut next[ring..], &mut back[ring..], slot);
                link_first(&mut next[ring..], &mut back[ring..], self.ways, slot);
            }
        }
    }

    /// Brings in `id`, which is not here; its slot, and who had to leave.
    #[inline]
    pub(super) fn insert(&mut self, set: usize, id: u32) -> (u32, Option<u32>) {
        let ways = self.ways as usize;
        let base = set * ways;
        if let Order::Recency = self.order {
            let lines = &mut self.ids[base..base + ways];
            // Empty ways are always at the end.
            let victim = lines[ways - 1];
            lines.copy_within(0..ways - 1, 1);
            lines[0] = id;
            return (0, (victim != EMPTY).then_some(victim));
        }
        let lines = &mut self.ids[base..base + ways];
        let unused = if self.free.is_empty() {
            lines
                .iter()
                .position(|&line| line == EMPTY)
                .map(|way| way as u32)
        } else {
            self.free[set].pop()
        };
        let slot = unused.unwrap_or_else(|| match &mut self.order {
            Order::Tree(trees) => tree_victim(trees[set], self.ways),
            Order::Random(dice) => dice.below(self.ways as usize) as u32,
            Order::Ring { next, back } => {
                let ring = set * (ways + 1);
                let oldest = back[ring + ways];
                unlink(&mut next[ring..], &mut back[ring..], oldest);
                oldest
            }
            Order::Recency => 0,
        });
        let victim = std::mem::replace(&mut lines[slot as usize], id);
        match &mut self.order {
            Order::Tree(trees) => tree_touch(&mut trees[set], self.ways, slot),
            Order::Ring { next, back } => {
                let ring = set * (ways + 1);
                link_first(&mut next[ring..], &mut back[ring..], self.ways, slot);
            }
            Order::Recency | Order::Random(_) => {}
        }
        (slot, (victim != EMPTY).then_some(victim))
    }

    /// Takes out `id`, which is here in `slot`.
    pub(super) fn remove(&mut self, set: usize, id: u32, slot: u32) {
        let ways = self.ways as usize;
        let base = set * ways;
        let lines = &mut self.ids[base..base + ways];
        match &mut self.order {
            Order::Recency => {
                let at = scan(lines, id);
                lines.copy_within(at + 1.., at);
                lines[ways - 1] = EMPTY;
                return;
            }
            Order::Ring { next, back } => {
                let ring = set * (ways + 1);
                unlink(&mut next[ring..], &mut back[ring..], slot);
            }
            Order::Tree(_) | Order::Random(_) => {}
        }
        debug_assert_eq!(lines[slot as usize], id);
        lines[slot as usize] = EMPTY;
        if let Some(free) = self.free.get_mut(set) {
            free.push(slot);
        }
    }
}

/// Where `id` stands in a set of at most 64 ways that holds it.
#[inline]
fn scan(lines: &[u32], id: u32) -> usize {
    // Without a branch for each way: which it is cannot be foretold.
    let mut matches = 0u64;
    for (way, &line) in lines.iter().enumerate() {
        matches |= u64::from(line == id) << way;
    }
    debug_assert!(
        matches != 0,
        "a line that is marked as present is in its set"
    );
    matches.trailing_zeros() as usize
}

fn unlink(next: &mut [u32], back: &mut [u32], slot: u32) {
    let (after, before) = (next[slot as usize], back[slot as usize]);
    next[before as usize] = after;
    back[after as usize] = before;
}

fn link_first(next: &mut [u32], back: &mut [u32], anchor: u32, slot: u32) {
    let first = next[anchor as usize];
    next[slot as usize] = first;
    back[slot as usize] = anchor;
    next[anchor as usize] = slot;
    back[first as usize] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_four_ways_chooses_as_by_hand() {
        let mut tree = 0;
        assert_eq!(tree_victim(tree, 4), 0);
        // After 0, 2 the root points down, to the pair of 0, and there to 1.
        tree_touch(&mut tree, 4, 0);
        assert_eq!(tree_victim(tree, 4), 2);
        tree_touch(&mut tree, 4, 2);
        assert_eq!(tree_victim(tree, 4), 1);
        tree_touch(&mut tree, 4, 1);
        assert_eq!(tree_victim(tree, 4), 3);
    }

    #[test]
    fn the_tree_never_chooses_a_way_that_is_not_there_and_never_the_last_touched() {
        for ways in 2..=64 {
            let mut tree = 0;
            let mut dice = Chance::seeded(7);
            for _ in 0..1000 {
                let way = dice.below(ways as usize) as u32;
                tree_touch(&mut tree, ways, way);
                let victim = tree_victim(tree, ways);
                assert!(victim < ways);
                assert!(victim != way || !ways.is_power_of_two());
            }
        }
    }

    #[test]
    fn wide_and_narrow_sets_drop_the_same_lines() {
        for ways in [1u32, 3, 64] {
            let mut narrow = Array::new(2, ways, Replacement::Lru, 0);
            // The same number of ways, held as a wide set is.
            let mut wide = narrow.clone();
            wide.order = Order::Ring {
                next: (0..2).flat_map(|_| 0..=ways).collect(),
                back: (0..2).flat_map(|_| 0..=ways).collect(),
            };
            wide.free = vec![(0..ways).rev().collect(); 2];
            let mut slots = vec![None; 400];
            let mut dice = Chance::seeded(1);
            for _ in 0..20_000 {
                let id = dice.below(ways as usize * 4 + 2) as u32;
                let set = (id % 2) as usize;
                match slots[id as usize] {
                    Some(slot) if dice.below(10) == 0 => {
                        narrow.remove(set, id, 0);
                        wide.remove(set, id, slot);
                        slots[id as usize] = None;
                    }
                    Some(slot) => {
                        narrow.touch(set, id, 0);
                        wide.touch(set, id, slot);
                    }
                    None => {
                        let (_, victim) = narrow.insert(set, id);
                        let (slot, other) = wide.insert(set, id);
                        assert_eq!(victim, other);
                        slots[id as usize] = Some(slot);
                        if let Some(victim) = victim {
                            slots[victim as usize] = None;
                        }
                    }
                }
            }
        }
    }
}
