//! What each call chain has allocated, all blocks together: a block without a row is counted, too.
//!
//! Of a block that the ledger forgets its end is still recognised, so that what is there at the end is counted and not
//! estimated: four bytes for each, by the page that it begins in.

use std::collections::HashMap;

use linewise_recording::{HeapSite, Pid, StackId};

use super::live::{Block, POOL, allocator_of};
use super::rate::told_weight;

const PAGE: u64 = 4096;
/// Blocks begin at multiples of this.
const ALIGNED: u64 = 8;
/// Bits of an entry for the place in its page.
const PLACE_BITS: u32 = (PAGE / ALIGNED).ilog2();
/// Kinds of forgotten blocks, at most.
const MOST_KINDS: usize = 1 << (u32::BITS - PLACE_BITS);
/// Forgotten blocks whose ends are recognised, of one process: with their pages some 300 MB.
const MOST_PLACES: usize = 1 << 25;

/// Call chain, allocator and label.
type Key = (u32, u8, u16);

/// What of a forgotten block counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    key: Key,
    size: u64,
    interval: u8,
}

impl Kind {
    fn of(block: &Block) -> Self {
        Self {
            key: (block.stack, block.allocator, block.label),
            size: block.size,
            interval: block.interval,
        }
    }

    /// The blocks that it stands for, and their bytes.
    fn amount(&self) -> (f64, f64) {
        let blocks = told_weight(self.size, self.interval);
        (blocks, blocks * self.size as f64)
    }
}

/// Sums of blocks and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    all: (f64, f64),
    live: (f64, f64),
    peak: (f64, f64),
}

impl Sum {
    fn add(&mut self, (blocks, bytes): (f64, f64)) {
        self.live.0 += blocks;
        self.live.1 += bytes;
        self.peak.0 = self.peak.0.max(self.live.0);
        self.peak.1 = self.peak.1.max(self.live.1);
    }
}

/// The call chains of one process.
#[derive(Debug, Default)]
pub(super) struct Sites {
    sums: HashMap<Key, Sum>,
    /// Entries of forgotten blocks, by the page that they begin in: place and kind.
    forgotten: HashMap<u64, Vec<u32>>,
    places: usize,
    kinds: Vec<Kind>,
    numbers: HashMap<Kind, u32>,
}

impl Sites {
    /// A block was allocated.
    pub(super) fn allocated(&mut self, block: &Block) {
        self.forgotten_freed(block.address);
        let (blocks, bytes) = Kind::of(block).amount();
        let sum = self.sums.entry(Kind::of(block).key).or_default();
        sum.add((blocks, bytes));
        sum.all.0 += blocks;
        sum.all.1 += bytes;
    }

    /// A block is there that another process allocated.
    pub(super) fn inherited(&mut self, block: &Block) {
        let kind = Kind::of(block);
        self.sums.entry(kind.key).or_default().add(kind.amount());
    }

    /// A block has ended.
    pub(super) fn ended(&mut self, block: &Block) {
        self.ended_kind(Kind::of(block));
    }

    /// Of a mapping what lies from `start` up to `end` was unmapped.
    pub(super) fn unmapped(&mut self, block: &Block, start: u64, end: u64) {
        let kind = Kind::of(block);
        let (first, last) = (block.address, block.address.saturating_add(block.size));
        let left = u32::from(first < start) + u32::from(end < last);
        let bytes = end.min(last).saturating_sub(start.max(first));
        if let Some(sum) = self.sums.get_mut(&kind.key) {
            sum.add((f64::from(left) - 1.0, -(bytes as f64)));
        }
    }

    fn ended_kind(&mut self, kind: Kind) {
        let (blocks, bytes) = kind.amount();
        if let Some(sum) = self.sums.get_mut(&kind.key) {
            sum.add((-blocks, -bytes));
        }
    }

    /// What was there is known no more.
    pub(super) fn cut(&mut self) {
        for sum in self.sums.values_mut() {
            sum.live = (0.0, 0.0);
        }
        self.forgotten.clear();
        self.places = 0;
    }

    /// A block is forgotten, whose end is to be counted. Those for which there is no room are taken for alive.
    pub(super) fn forget(&mut self, block: &Block) {
        // A named object can begin where its block does.
        let is_named = block.allocator == POOL;
        if is_named || self.places >= MOST_PLACES || !block.address.is_multiple_of(ALIGNED) {
            return;
        }
        let kind = Kind::of(block);
        let number = match self.numbers.get(&kind) {
            Some(&number) => number,
            None if self.kinds.len() < MOST_KINDS => {
                let number = self.kinds.len() as u32;
                self.kinds.push(kind);
                self.numbers.insert(kind, number);
                number
            }
            None => return,
        };
        let place = (block.address % PAGE / ALIGNED) as u32;
        let entries = self.forgotten.entry(block.address / PAGE).or_default();
        entries.push(number << PLACE_BITS | place);
        self.places += 1;
    }

    /// Counts the end of a forgotten block that begins at `address`, if there is one.
    pub(super) fn forgotten_freed(&mut self, address: u64) -> bool {
        if self.places == 0 || !address.is_multiple_of(ALIGNED) {
            return false;
        }
        let page = address / PAGE;
        let Some(entries) = self.forgotten.get_mut(&page) else {
            return false;
        };
        let place = (address % PAGE / ALIGNED) as u32;
        let is_it = |entry: &u32| entry % (1 << PLACE_BITS) == place;
        let Some(found) = entries.iter().position(is_it) else {
            return false;
        };
        let number = entries.swap_remove(found) >> PLACE_BITS;
        if entries.is_empty() {
            self.forgotten.remove(&page);
        }
        self.places -= 1;
        if let Some(&kind) = self.kinds.get(number as usize) {
            self.ended_kind(kind);
        }
        true
    }

    /// Blocks that are there, and their bytes.
    pub(super) fn live(&self) -> (f64, f64) {
        let sums = self.sums.values();
        sums.fold((0.0, 0.0), |(blocks, bytes), sum| {
            (blocks + sum.live.0, bytes + sum.live.1)
        })
    }

    /// The rows, in the order of call chains; `label` names labels.
    pub(super) fn rows(&self, pid: u32, label: impl Fn(u16) -> String) -> Vec<HeapSite> {
        let mut sums: Vec<_> = self.sums.iter().collect();
        sums.sort_unstable_by_key(|(key, _)| **key);
        let row = |(&(stack, allocator, name), sum): (&Key, &Sum)| HeapSite {
            pid: Pid(pid),
            stack: StackId(stack),
            allocator: allocator_of(allocator),
            label: label(name),
            blocks: sum.all.0,
            bytes: sum.all.1,
            live_blocks: sum.live.0.max(0.0),
            live_bytes: sum.live.1.max(0.0),
            peak_blocks: sum.peak.0,
            peak_bytes: sum.peak.1,
        };
        sums.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, size: u64) -> Block {
        Block {
            address,
            size,
            allocated: 1,
            stack: 3,
            thread: 0,
            label: 0,
            interval: 0,
            allocator: 0,
            touched: false,
            halved: 2,
        }
    }

    #[test]
    fn blocks_are_counted_once_each_also_when_they_are_forgotten() {
        let mut sites = Sites::default();
        for place in 0..1000 {
            sites.allocated(&block(place * 48, 40));
            sites.forget(&block(place * 48, 40));
        }
        for place in 0..400 {
            assert!(sites.forgotten_freed(place * 48));
            assert!(!sites.forgotten_freed(place * 48));
        }
        // Another block lies there: the end of the first was not seen.
        sites.allocated(&block(999 * 48, 40));
        let rows = sites.rows(7, |_| String::new());
        let row = &rows[0];
        assert_eq!((row.blocks, row.bytes), (1001.0, 40_040.0));
        assert_eq!((row.live_blocks, row.live_bytes), (600.0, 24_000.0));
        assert_eq!((row.peak_blocks, row.peak_bytes), (1000.0, 40_000.0));
        assert_eq!(sites.live(), (600.0, 24_000.0));
    }

    #[test]
    fn of_a_mapping_that_is_cut_in_two_the_rest_is_there() {
        let mut sites = Sites::default();
        sites.allocated(&block(0x10_000, 0x4000));
        sites.unmapped(&block(0x10_000, 0x4000), 0x11_000, 0x12_000);
        assert_eq!(sites.live(), (2.0, 12_288.0));
        sites.cut();
        assert_eq!(sites.live(), (0.0, 0.0));
    }
}
