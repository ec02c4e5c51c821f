//! What one process has allocated at the moment, by address.
//!
//! Small blocks are kept by the page that they begin in, 24 bytes each: a heap of ten million of them fits
//! into some hundred megabytes, and who was allocated together lies together.

use std::collections::{BTreeMap, HashMap};

use linewise_heap::AllocatorCode;
use linewise_recording::Allocator;

const PAGE: u64 = 4096;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Monotonic ns.
    pub allocated: u64,
    /// A row of the stacks table.
    pub stack: u32,
    /// The number of the thread, as its source counts them.
    pub thread: u16,
    /// The number of the label; 0 is none.
    pub label: u16,
    /// The power of two of the distance of sampled blocks, in bytes; 0: every block was told.
    pub interval: u8,
    /// What it was asked from.
    pub allocator: u8,
    /// Whether an access to it was seen.
    pub touched: bool,
    /// How often every second block like it was forgotten: it stands for two to the power of this.
    pub halved: u8,
}

/// Allocators that [`Live`] treats in their own way.
pub const MMAP: u8 = AllocatorCode::Mmap as u8;
/// See [`MMAP`].
pub const POOL: u8 = AllocatorCode::Pool as u8;

/// A small block, within its page.
#[derive(Clone, Copy, Debug)]
struct Small {
    allocated: u64,
    stack: u32,
    offset: u16,
    size: u16,
    thread: u16,
    label: u16,
    interval: u8,
    allocator: u8,
    touched: bool,
    halved: u8,
}

impl Small {
    fn new(block: &Block) -> Self {
        Self {
            allocated: block.allocated,
            stack: block.stack,
            offset: (block.address % PAGE) as u16,
            size: block.size as u16,
            thread: block.thread,
            label: block.label,
            interval: block.interval,
            allocator: block.allocator,
            touched: block.touched,
            halved: block.halved,
        }
    }

    fn block(&self, page: u64) -> Block {
        Block {
            address: page * PAGE + u64::from(self.offset),
            size: u64::from(self.size),
            allocated: self.allocated,
            stack: self.stack,
            thread: self.thread,
            label: self.label,
            interval: self.interval,
            allocator: self.allocator,
            touched: self.touched,
            halved: self.halved,
        }
    }
}

impl Block {
    /// Whether it holds `address` and was there at `time`.
    pub fn holds(&self, address: u64, time: u64) -> bool {
        address.wrapping_sub(self.address) < self.size.max(1) && self.allocated <= time
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// The blocks of one process.
#[derive(Debug, Default)]
pub struct Live {
    /// By number of the page, in the order of their offsets.
    pages: HashMap<u64, Vec<Small>>,
    /// Blocks in `pages`.
    small: usize,
    large: BTreeMap<u64, Block>,
    mapped: BTreeMap<u64, Block>,
    /// Objects that the program named, which lie in blocks.
    named: BTreeMap<u64, Block>,
}

impl Live {
    /// Takes in a block; the one that lay at its first byte, whose end was not seen.
    pub fn insert(&mut self, block: Block) -> Option<Block> {
        match block.allocator {
            MMAP => self.mapped.insert(block.address, block),
            POOL => self.named.insert(block.address, block),
            _ if block.size <= PAGE => {
                let page = block.address / PAGE;
                let large = self.large.remove(&block.address);
                let blocks = self.pages.entry(page).or_default();
                let small = Small::new(&block);
                match blocks.binary_search_by_key(&small.offset, |it| it.offset) {
                    Ok(place) => {
                        let old = std::mem::replace(&mut blocks[place], small);
                        Some(old.block(page))
                    }
                    Err(place) => {
                        blocks.insert(place, small);
                        self.small += 1;
                        large
                    }
                }
            }
            _ => {
                let small = self.take_small(block.address);
                self.large.insert(block.address, block).or(small)
            }
        }
    }

    fn take_small(&mut self, address: u64) -> Option<Block> {
        let page = address / PAGE;
        let blocks = self.pages.get_mut(&page)?;
        let place = blocks
            .binary_search_by_key(&((address % PAGE) as u16), |it| it.offset)
            .ok()?;
        let block = blocks.remove(place).block(page);
        if blocks.is_empty() {
            self.pages.remove(&page);
        }
        self.small -= 1;
        Some(block)
    }

    /// The block that begins at `address`, no mapping and no named object.
    pub fn get(&self, address: u64) -> Option<Block> {
        let page = address / PAGE;
        let small = self.pages.get(&page).and_then(|blocks| {
            let offset = (address % PAGE) as u16;
            let place = blocks.binary_search_by_key(&offset, |it| it.offset).ok()?;
            Some(blocks[place].block(page))
        });
        small.or_else(|| self.large.get(&address).copied())
    }

    /// The innermost block that holds `address`.
    pub fn at(&self, address: u64) -> Option<Block> {
        let below = |blocks: &BTreeMap<u64, Block>| {
            let (_, block) = blocks.range(..=address).next_back()?;
            block.holds(address, u64::MAX).then_some(*block)
        };
        let small = || {
            // It begins in the page of the address or in the one before.
            [address / PAGE, (address / PAGE).wrapping_sub(1)]
                .into_iter()
                .find_map(|page| {
                    let blocks = self.pages.get(&page)?;
                    let begins =
                        |it: &Small| page.wrapping_mul(PAGE) + u64::from(it.offset) <= address;
                    let last = blocks.partition_point(begins).checked_sub(1)?;
                    let block = blocks[last].block(page);
                    block.holds(address, u64::MAX).then_some(block)
                })
        };
        below(&self.named)
            .or_else(small)
            .or_else(|| below(&self.large))
            .or_else(|| below(&self.mapped))
    }

    /// Takes out the block that begins at `address`, no mapping and no named object.
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        self.take_small(address)
            .or_else(|| self.large.remove(&address))
    }

    /// Takes out the named object that begins at `address`.
    pub fn remove_named(&mut self, address: u64) -> Option<Block> {
        self.named.remove(&address)
    }

    /// Takes out the named objects that begin in a block that ends.
    pub fn remove_named_in(&mut self, block: &Block) -> Vec<Block> {
        let inside = self
            .named
            .range(block.address..block.end().max(block.address));
        let found: Vec<u64> = inside.map(|(&address, _)| address).collect();
        found
            .iter()
            .filter_map(|address| self.named.remove(address))
            .collect()
    }

    /// Takes out what was mapped from `start` up to `end`; of mappings that reach beyond, what is left
    /// stays.
    pub fn unmap(&mut self, start: u64, end: u64) -> Vec<Block> {
        let overlapping: Vec<u64> = self
            .mapped
            .range(..end)
            .rev()
            // Mappings do not overlap each other.
            .take_while(|(_, block)| block.end() > start)
            .map(|(&address, _)| address)
            .collect();
        let mut gone = Vec::new();
        for address in overlapping {
            let Some(block) = self.mapped.remove(&address) else {
                continue;
            };
            for (from, to) in [(block.address, start), (end, block.end())] {
                if from < to && from >= block.address && to <= block.end() {
                    let left = Block {
                        address: from,
                        size: to - from,
                        ..block
                    };
                    self.mapped.insert(from, left);
                }
            }
            gone.push(block);
        }
        gone
    }

    /// Notes an access to the innermost block that holds `address` and was there at `time`; that block.
    pub fn touch(&mut self, address: u64, time: u64) -> Option<Block> {
        self.touch_anew(address, time).map(|(block, _)| block)
    }

    /// The same, and whether an access to it had been noted before.
    pub fn touch_anew(&mut self, address: u64, time: u64) -> Option<(Block, bool)> {
        let note = |block: &mut Block| {
            let before = std::mem::replace(&mut block.touched, true);
            (*block, before)
        };
        let below = |blocks: &BTreeMap<u64, Block>| {
            let (&first, block) = blocks.range(..=address).next_back()?;
            block.holds(address, time).then_some(first)
        };
        let named = &mut self.named;
        if let Some(block) = below(named).and_then(|first| named.get_mut(&first)) {
            return Some(note(block));
        }
        if let Some(found) = self.touch_small(address, time) {
            return Some(found);
        }
        for blocks in [&mut self.large, &mut self.mapped] {
            if let Some(block) = below(blocks).and_then(|first| blocks.get_mut(&first)) {
                return Some(note(block));
            }
        }
        None
    }

    fn touch_small(&mut self, address: u64, time: u64) -> Option<(Block, bool)> {
        // A small block begins in the page of its address or in the one before.
        for page in [address / PAGE, (address / PAGE).wrapping_sub(1)] {
            let Some(blocks) = self.pages.get_mut(&page) else {
                continue;
            };
            let last = blocks
                .partition_point(|it| page.wrapping_mul(PAGE) + u64::from(it.offset) <= address);
            if let Some(small) = last.checked_sub(1).and_then(|last| blocks.get_mut(last)) {
                if small.block(page).holds(address, time) {
                    let before = std::mem::replace(&mut small.touched, true);
                    return Some((small.block(page), before));
                }
                // A block further down would overlap this one.
                return None;
            }
        }
        None
    }

    /// All blocks, and none is left.
    pub fn drain(&mut self) -> impl Iterator<Item = Block> {
        let pages = std::mem::take(&mut self.pages);
        self.small = 0;
        let small = pages
            .into_iter()
            .flat_map(|(page, blocks)| blocks.into_iter().map(move |small| small.block(page)));
        let rest = [&mut self.large, &mut self.mapped, &mut self.named].map(std::mem::take);
        small.chain(rest.into_iter().flat_map(BTreeMap::into_values))
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.small + self.large.len() + self.mapped.len() + self.named.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets blocks for which `stays` says no, among those that nobody touched or, where `also_touched`,
    /// among all; who stays stands for twice as many. Mappings stay: a kernel allows few. Calls `forgotten` with the
    /// others; how many they are.
    pub fn thin(
        &mut self,
        also_touched: bool,
        mut stays: impl FnMut() -> bool,
        mut forgotten: impl FnMut(&Block),
    ) -> usize {
        let before = self.len();
        let mut stays = |touched: bool, halved: &mut u8| {
            if touched && !also_touched {
                return true;
            }
            *halved = halved.saturating_add(1);
            stays()
        };
        self.small = 0;
        self.pages.retain(|page, blocks| {
            blocks.retain_mut(|it| {
                let stays = stays(it.touched, &mut it.halved);
                if !stays {
                    forgotten(&it.block(*page));
                }
                stays
            });
            blocks.shrink_to_fit();
            self.small += blocks.len();
            !blocks.is_empty()
        });
        for blocks in [&mut self.large, &mut self.named] {
            blocks.retain(|_, it| {
                let stays = stays(it.touched, &mut it.halved);
                if !stays {
                    forgotten(it);
                }
                stays
            });
        }
        before - self.len()
    }
}

/// The allocator of this number.
pub fn allocator_of(code: u8) -> Allocator {
    const MALLOC: u8 = AllocatorCode::Malloc as u8;
    const CALLOC: u8 = AllocatorCode::Calloc as u8;
    const REALLOC: u8 = AllocatorCode::Realloc as u8;
    const ALIGNED: u8 = AllocatorCode::Aligned as u8;
    const NEW: u8 = AllocatorCode::New as u8;
    match code {
        MALLOC => Allocator::Malloc,
        CALLOC => Allocator::Calloc,
        REALLOC => Allocator::Realloc,
        ALIGNED => Allocator::Aligned,
        NEW => Allocator::New,
        MMAP => Allocator::Mmap,
        POOL => Allocator::Pool,
        _ => Allocator::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, size: u64, allocated: u64) -> Block {
        Block {
            address,
            size,
            allocated,
            stack: 1,
            thread: 0,
            label: 0,
            interval: 0,
            allocator: 0,
            touched: false,
            halved: 0,
        }
    }

    #[test]
    fn a_small_block_takes_24_bytes() {
        assert_eq!(size_of::<Small>(), 24);
    }

    #[test]
    fn blocks_are_found_by_any_of_their_bytes_and_at_their_time() {
        let mut live = Live::default();
        let rows = [
            block(0x1010, 32, 5),
            block(0x1030, 4096, 6),
            block(0x10_0000, 1 << 20, 7),
        ];
        for row in rows {
            assert_eq!(live.insert(row), None);
        }
        let mut at = |address, time| live.touch(address, time).map(|it| it.address);
        assert_eq!(at(0x102f, 5), Some(0x1010));
        assert_eq!(at(0x102f, 4), None);
        for address in [0x1010, 0x102f, 0x1030, 0x202f, 0x1f_ffff] {
            let found = live.at(address).map(|it| it.address);
            assert_eq!(found, live.touch(address, 9).map(|it| it.address));
        }
        assert_eq!((live.at(0x2030), live.at(0x20_0000)), (None, None));
        let mut at = |address, time| live.touch(address, time).map(|it| it.address);
        // Reaches into the next page.
        assert_eq!(at(0x202f, 9), Some(0x1030));
        assert_eq!(at(0x2030, 9), None);
        assert_eq!(at(0x1f_ffff, 9), Some(0x10_0000));
        assert_eq!(at(0x20_0000, 9), None);
        assert!(live.get(0x1030).unwrap().touched);
        assert_eq!(live.remove(0x1010).unwrap().size, 32);
        assert_eq!(live.remove(0x1010), None);
        assert_eq!(live.len(), 2);
        assert_eq!(live.drain().count(), 2);
        assert_eq!(live.len(), 0);
    }

    #[test]
    fn a_block_where_another_lay_takes_its_place_whatever_their_sizes() {
        let mut live = Live::default();
        live.insert(block(0x1000, 64, 1));
        assert_eq!(live.insert(block(0x1000, 8000, 2)).unwrap().size, 64);
        assert_eq!(live.insert(block(0x1000, 16, 3)).unwrap().size, 8000);
        assert_eq!(live.insert(block(0x1000, 17, 4)).unwrap().size, 16);
        assert_eq!(live.len(), 1);
    }

    #[test]
    fn named_objects_are_innermost_and_end_with_their_block() {
        let mut live = Live::default();
        live.insert(block(0x1000, 1024, 1));
        for address in [0x1000, 0x1040] {
            let object = Block {
                allocator: POOL,
                label: 3,
                ..block(address, 48, 2)
            };
            assert_eq!(live.insert(object), None);
        }
        assert_eq!(live.touch(0x1008, 5).unwrap().label, 3);
        assert_eq!(live.touch(0x1008, 1).unwrap().label, 0);
        assert_eq!(live.touch(0x1038, 5).unwrap().label, 0);
        let outer = live.remove(0x1000).unwrap();
        assert_eq!(live.remove_named_in(&outer).len(), 2);
        assert_eq!(live.len(), 0);
    }

    #[test]
    fn of_a_thinned_heap_each_second_block_stands_for_two_and_the_touched_ones_stay() {
        let mut live = Live::default();
        for place in 0..1000 {
            live.insert(block(place * 512, 48, 1));
            live.insert(block((1 << 40) + place * 8192, 8192, 1));
        }
        for place in 0..10 {
            live.touch(place * 512, 2);
        }
        let mut turn = 0;
        let mut told = 0;
        let stays = || {
            turn += 1;
            turn % 2 == 0
        };
        let forgotten = live.thin(false, stays, |_| told += 1);
        assert_eq!(told, forgotten);
        assert_eq!((forgotten, live.len()), (995, 1005));
        assert!(live.get(0).is_some_and(|it| it.touched && it.halved == 0));
        assert_eq!(live.thin(true, || false, |_| {}), 1005);
        assert_eq!((live.len(), live.drain().count()), (0, 0));
        live.insert(block(0, 48, 1));
        assert_eq!(live.thin(false, || true, |_| {}), 0);
        assert_eq!(live.drain().map(|it| it.halved).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_is_unmapped_in_the_middle_leaves_both_ends() {
        let mut live = Live::default();
        live.insert(Block {
            allocator: MMAP,
            ..block(0x10_000, 0x4000, 1)
        });
        assert_eq!(live.unmap(0x11_000, 0x12_000).len(), 1);
        assert_eq!(live.touch(0x10_fff, 2).unwrap().size, 0x1000);
        assert_eq!(live.touch(0x11_000, 2), None);
        assert_eq!(live.touch(0x12_000, 2).unwrap().size, 0x2000);
        assert_eq!(live.unmap(0, u64::MAX).len(), 2);
        assert_eq!(live.len(), 0);
    }
}
