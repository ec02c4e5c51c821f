//! Which bytes of an object to watch next: places of 8 bytes, as many at a time as there are watchpoints.

use std::collections::BTreeMap;

use crate::sources::timer::watch::CHUNK;
use linewise_cache::Chance;

/// Places of an object that are watched in turn; of larger objects those that were seen to be touched.
const MOST_CHUNKS: usize = 16;
/// Histories after which a place without any access is left alone, but for now and then.
const COLD: u32 = 6;
/// How often a cold place is watched all the same.
const LOOK_AGAIN: f64 = 0.05;

/// A place of 8 bytes in the objects of a site.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    offset: u64,
    /// Whole histories of it.
    histories: u32,
    /// It was seen to be touched.
    touched: bool,
}

/// Of the objects of one site: what was watched, and what is next.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    size: u64,
    chunks: Vec<Chunk>,
    pairs: BTreeMap<(u64, u64), u32>,
}

impl Plan {
    /// For objects of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let mut plan = Self {
            size,
            chunks: Vec::new(),
            pairs: BTreeMap::new(),
        };
        let first = (0..size.div_ceil(CHUNK)).take(MOST_CHUNKS);
        for chunk in first {
            plan.add(chunk * CHUNK);
        }
        plan
    }

    fn add(&mut self, offset: u64) -> &mut Chunk {
        let place = match self.chunks.iter().position(|it| it.offset == offset) {
            Some(place) => place,
            None => {
                self.chunks.push(Chunk {
                    offset,
                    histories: 0,
                    touched: false,
                });
                self.chunks.len() - 1
            }
        };
        &mut self.chunks[place]
    }

    /// A sample or a trap touched the object at `offset`.
    pub(super) fn touched(&mut self, offset: u64) {
        let offset = offset & !(CHUNK - 1);
        if offset >= self.size.max(1) {
            return;
        }
        let known = self.chunks.iter().any(|it| it.offset == offset);
        if !known && self.chunks.len() >= MOST_CHUNKS {
            // Who is touched takes the place of one that is not known to be.
            let Some(idle) = self.chunks.iter().position(|it| !it.touched) else {
                return;
            };
            self.chunks.swap_remove(idle);
        }
        self.add(offset).touched = true;
    }

    /// A whole history of these places came in.
    pub(super) fn recorded(&mut self, offsets: &[u64]) {
        for (index, offset) in offsets.iter().enumerate() {
            if let Some(chunk) = self.chunks.iter_mut().find(|it| it.offset == *offset) {
                chunk.histories += 1;
            }
            for other in &offsets[index + 1..] {
                *self.pairs.entry(ordered(*offset, *other)).or_default() += 1;
            }
        }
    }

    /// Offsets to watch next, with room for `registers` of them, of the places that are touched or not yet known to
    /// be cold: the pair that was watched least, and with it those that were watched least with the chosen ones.
    pub(super) fn next(&self, registers: u32, chance: &mut Chance) -> Vec<u64> {
        let cold = |chunk: &Chunk| !chunk.touched && chunk.histories >= COLD;
        let mut places: Vec<Chunk> = Vec::new();
        for chunk in &self.chunks {
            if !cold(chunk) || chance.happens(LOOK_AGAIN) {
                places.push(*chunk);
            }
        }
        let least = |counts: Vec<u32>, chance: &mut Chance| -> Option<usize> {
            let lowest = counts.iter().min()?;
            let lowest: Vec<usize> = (0..counts.len())
                .filter(|&i| counts[i] == *lowest)
                .collect();
            lowest.get(chance.below(lowest.len())).copied()
        };
        let together = |a: &Chunk, b: &Chunk| -> u32 {
            let pair = ordered(a.offset, b.offset);
            self.pairs.get(&pair).copied().unwrap_or(0)
        };
        // Of the first place, how often the rarest of its pairs was watched; then of each how often all together.
        let mut chosen: Vec<Chunk> = Vec::new();
        while chosen.len() < registers.max(1) as usize {
            let counts = places.iter().map(|place| match chosen.as_slice() {
                [] => {
                    let others = places.iter().filter(|it| it.offset != place.offset);
                    let rarest = others.map(|other| together(place, other)).min();
                    rarest.filter(|_| registers > 1).unwrap_or(place.histories)
                }
                chosen => chosen.iter().map(|it| together(it, place)).sum(),
            });
            let Some(next) = least(counts.collect(), chance) else {
                break;
            };
            chosen.push(places.swap_remove(next));
        }
        let mut offsets: Vec<u64> = chosen.iter().map(|it| it.offset).collect();
        offsets.sort_unstable();
        // Of an object of which nothing is known but that it has no bytes.
        if offsets.is_empty() {
            offsets.push(0);
        }
        offsets
    }
}

fn ordered(a: u64, b: u64) -> (u64, u64) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_come_in_turn_and_cold_places_are_left_alone() {
        let mut plan = Plan::new(32);
        let mut chance = Chance::seeded(5);
        let mut watched: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        for _ in 0..200 {
            let offsets = plan.next(2, &mut chance);
            let pair = (offsets[0], offsets[1]);
            *watched.entry(pair).or_default() += 1;
            // The last 8 bytes are never touched.
            for offset in [pair.0, pair.1].into_iter().filter(|&it| it < 24) {
                plan.touched(offset);
            }
            plan.recorded(&offsets);
        }
        let hot = [(0, 8), (0, 16), (8, 16)].map(|pair| watched[&pair]);
        let (most, fewest) = (hot.iter().max().unwrap(), hot.iter().min().unwrap());
        assert!(most - fewest <= 3, "{watched:?}");
        let cold: u32 = watched
            .iter()
            .filter(|(pair, _)| pair.1 == 24)
            .map(|it| it.1)
            .sum();
        assert!((1..40).contains(&cold), "{watched:?}");
    }

    #[test]
    fn of_a_large_object_the_touched_places_are_watched() {
        let mut plan = Plan::new(4096);
        for offset in [4, 1000, 4095, 5000] {
            plan.touched(offset);
        }
        let touched: Vec<u64> = plan
            .chunks
            .iter()
            .filter(|it| it.touched)
            .map(|it| it.offset)
            .collect();
        assert_eq!(plan.chunks.len(), MOST_CHUNKS);
        assert_eq!(touched.len(), 3, "{touched:?}");
        assert!([0, 1000, 4088].iter().all(|it| touched.contains(it)));
    }

    #[test]
    fn small_objects_and_single_registers_have_single_places() {
        let mut chance = Chance::seeded(5);
        assert_eq!(Plan::new(8).next(2, &mut chance), [0]);
        assert_eq!(Plan::new(0).next(2, &mut chance), [0]);
        assert_eq!(Plan::new(64).next(1, &mut chance).len(), 1);
        assert_eq!(Plan::new(24).next(3, &mut chance), [0, 8, 16]);
    }

    #[test]
    fn three_at_a_time_cover_all_pairs_in_half_as_many_histories() {
        let mut plan = Plan::new(48);
        let mut chance = Chance::seeded(5);
        (0..6).for_each(|place| plan.touched(8 * place));
        let mut histories = 0;
        while plan.pairs.len() < 15 {
            let offsets = plan.next(3, &mut chance);
            assert_eq!(offsets.len(), 3);
            plan.recorded(&offsets);
            histories += 1;
        }
        // Six is the least that is possible, fifteen what pairs take.
        assert!((6..=8).contains(&histories), "{histories}");
    }
}
