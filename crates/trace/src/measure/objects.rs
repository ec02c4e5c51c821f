//! The heap of an exact run: which block an access touches.
//!
//! What is allocated changes only between accesses, at the place where the recorder told it. Looking one
//! up takes a search, so one in sixteen accesses says what instructions do to which
//! blocks; the blocks on lines that move are looked up at the transfers.

use std::collections::HashMap;

use linewise_cache::Access;
use linewise_cache::hierarchy::Hierarchy;
use linewise_recording::{
    Address, BlockUse, CacheContent, HeapBlock, HeapRun, Loss, PathStep, Pid, StackId, Tid, Time,
};

use super::contents::{Contents, OfBlock};
use super::line_blocks::{LineBlocks, Map, OnLine};
use super::lives::{Lives, Served};
use super::names::Names;
use super::step::Step;
use crate::access::GUEST_BITS;
use crate::heap_event::{HeapEvent, HeapNames};
use crate::live::{Block, Live, allocator_of};
use crate::thread::ExactThread;
use linewise_cache::Chance;

/// One in so many accesses is looked up.
const LOOKED_UP: u32 = 16;
/// Rows of blocks on no line that moves, before every second one is kept, and so on.
const ROWS: f64 = 20_000.0;
/// Blocks on lines that move, and such lines.
const MOST_MOVED: usize = 1 << 16;
/// Transfers of a line of which all are looked up; of the others one in as many.
const FIRST: u32 = 64;
/// Forks that a block is looked for through.
const GENERATIONS: usize = 4;
/// Pairs of a call chain and an instruction.
const MOST_USES: usize = 1 << 18;

/// The heap of an address space.
#[derive(Default)]
struct Heap {
    live: Live,
    pid: u32,
    /// The address space that it was forked from, or its own.
    parent: u16,
}

/// What tells a block from all others: address space and first byte, and when it was allocated.
type Key = (u64, u64);

/// A block that is worth a row, and its number.
struct NumberedBlock {
    id: u64,
    block: Block,
    pid: u32,
    end: Option<(u64, Option<u16>)>,
}

/// What an access did to a line of simulated caches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// Its place in the batch.
    pub(crate) index: usize,
    pub(crate) core: u16,
    /// First byte of the line.
    pub(crate) line: u64,
    pub(crate) served: Served,
    /// It missed the first level by conflict.
    pub(crate) conflict: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Objects {
    heaps: HashMap<u16, Heap>,
    moved: HashMap<Key, NumberedBlock>,
    lines: Map<u64, OnLine>,
    /// By process, call chain, name and instruction: accesses, and first accesses.
    uses: HashMap<(u32, u32, u16, u32), (u64, u64)>,
    until_looked_up: u32,
    lives: Option<Lives>,
    contents: Option<Contents>,
    rows: Vec<(NumberedBlock, f64)>,
    chance: Option<Chance>,
    others: f64,
    last_id: u64,
    run: HeapRun,
    dropped_uses: u64,
}

impl Objects {
    /// Nothing allocated yet. `follows`: objects are followed from allocation to end.
    pub(crate) fn new(follows: bool, contents: Option<Contents>) -> Self {
        Self {
            contents,
            lives: follows.then(Lives::default),
            chance: Some(Chance::seeded(0x9e37_79b9_7f4a_7c15)),
            until_looked_up: LOOKED_UP,
            ..Self::default()
        }
    }

    /// Takes what happened to the heap.
    pub(crate) fn heap(&mut self, event: &HeapEvent) {
        match *event {
            HeapEvent::Alloc {
                spaces: (space, parent),
                pid,
                block,
                follow,
            } => {
                self.run.blocks += 1;
                let heap = self.heaps.entry(space).or_insert_with(|| Heap {
                    pid,
                    parent,
                    ..Heap::default()
                });
                let before = heap.live.insert(block);
                if let Some(before) = before {
                    self.end(space, pid, before, Some(block.allocated), None);
                }
                if let Some(lives) = self.lives.as_mut().filter(|_| follow) {
                    lives.begin(space, pid, &block);
                }
            }
            HeapEvent::Free {
                space,
                address,
                named,
                time,
                thread,
            } => {
                let Some(heap) = self.heaps.get_mut(&space) else {
                    return;
                };
                let pid = heap.pid;
                let ended = if named {
                    heap.live.remove_named(address)
                } else {
                    heap.live.remove(address)
                };
                let Some(block) = ended else { return };
                let inside = heap.live.remove_named_in(&block);
                for block in [block].into_iter().chain(inside) {
                    self.end(space, pid, block, Some(time), Some(thread));
                }
            }
            HeapEvent::Unmap {
                space,
                range: (start, end),
                time,
                thread,
            } => {
                let Some(heap) = self.heaps.get_mut(&space) else {
                    return;
                };
                let pid = heap.pid;
                for block in heap.live.unmap(start, end) {
                    self.end(space, pid, block, Some(time), Some(thread));
                }
            }
        }
    }

    fn end(&mut self, space: u16, pid: u32, block: Block, time: Option<u64>, thread: Option<u16>) {
        if let Some(lives) = &mut self.lives {
            lives.end(space, &block, time.zip(thread));
        }
        let key = key(space, &block);
        if let Some(moved) = self.moved.get_mut(&key) {
            moved.end = time.map(|time| (time, thread));
            return;
        }
        // Who asks for a block by name or kind finds some of each.
        let share = 0.5_f64.powf((self.others / ROWS).floor());
        let kept = self.chance.as_mut().is_some_and(|it| it.happens(share));
        if kept {
            self.others += 1.0;
            self.last_id += 1;
            let row = NumberedBlock {
                id: self.last_id,
                block,
                pid,
                end: time.map(|time| (time, thread)),
            };
            self.rows.push((row, 1.0 / share));
        }
    }

    /// Whether [`Objects::served`] is wanted.
    pub(crate) fn wants_served(&self) -> bool {
        self.lives.as_ref().is_some_and(Lives::is_following)
    }

    /// Takes what an access of the batch to come did, by an instruction of this number.
    pub(crate) fn noted(&mut self, noted: &Noted, site: u32) {
        if let Some(lives) = self.lives.as_mut().filter(|it| it.is_following()) {
            lives.served(noted.index, noted.served);
        }
        if noted.conflict
            && let Some(mut contents) = self.contents.take()
        {
            contents.press(noted.core, noted.line, site, || self.of_block(noted.line));
            self.contents = Some(contents);
        }
    }

    /// So many accesses have passed; now and then what the caches hold is looked at.
    pub(crate) fn look(&mut self, caches: &Hierarchy, accesses: usize) {
        if self.contents.as_mut().is_some_and(|it| it.pass(accesses)) {
            self.look_now(caches);
        }
    }

    /// Looks if that was never done.
    pub(crate) fn look_at_the_end(&mut self, caches: &Hierarchy) {
        if self.contents.as_ref().is_some_and(Contents::is_empty) {
            self.look_now(caches);
        }
    }

    fn look_now(&mut self, caches: &Hierarchy) {
        if let Some(mut contents) = self.contents.take() {
            contents.look(caches, |line| self.of_block(line));
            self.contents = Some(contents);
        }
    }

    /// A block on a line: the one at its first byte, or else in its middle.
    fn of_block(&self, line: u64) -> Option<OfBlock> {
        let mut places = [line, line + 32, line + 48].into_iter();
        let (space, block, pid) = places.find_map(|address| self.block_at(address))?;
        Some(((pid, block.stack, block.label), key(space, &block).0))
    }

    /// Takes the next accesses.
    pub(crate) fn accesses(&mut self, batch: &[Step]) {
        if let Some(lives) = &mut self.lives {
            lives.accesses(batch);
        }
        if self.heaps.is_empty() {
            return;
        }
        let mut next = self.until_looked_up as usize;
        while let Some(step) = batch.get(next) {
            next += LOOKED_UP as usize;
            // Not those that stand for what an owner did.
            if step.stands_for() > 0 {
                self.look_up(step);
            }
        }
        self.until_looked_up = (next - batch.len()) as u32;
    }

    fn look_up(&mut self, step: &Step) {
        let access = Access::from(*step);
        let Some((block, pid)) = self.touch(access.address) else {
            return;
        };
        let full = self.uses.len() >= MOST_USES;
        let key = (pid, block.stack, block.label, access.site);
        if full && !self.uses.contains_key(&key) {
            self.dropped_uses += 1;
            return;
        }
        let (accesses, first) = self.uses.entry(key).or_default();
        *accesses += 1;
        *first += u64::from(!block.touched);
    }

    /// Notes an access to the innermost block that holds an address: the block as it was before, and its process.
    fn touch(&mut self, address: u64) -> Option<(Block, u32)> {
        let (space, _, pid) = self.block_at(address)?;
        let guest = address & ((1 << GUEST_BITS) - 1);
        let live = &mut self.heaps.get_mut(&space)?.live;
        let (block, touched) = live.touch_anew(guest, u64::MAX)?;
        Some((Block { touched, ..block }, pid))
    }

    /// The innermost block that holds an address, its address space and its process.
    fn block_at(&self, address: u64) -> Option<(u16, Block, u32)> {
        let mut space = (address >> GUEST_BITS) as u16;
        let guest = address & ((1 << GUEST_BITS) - 1);
        // What a child has from its parent, through some generations.
        for _ in 0..GENERATIONS {
            let heap = self.heaps.get(&space)?;
            if let Some(block) = heap.live.at(guest) {
                return Some((space, block, heap.pid));
            }
            if heap.parent == space {
                return None;
            }
            space = heap.parent;
        }
        None
    }

    /// A line moved to an access that touched `to` from one that touched `from`, both in it.
    pub(crate) fn moved(&mut self, line: u64, from: u64, to: u64) {
        if self.heaps.is_empty() {
            return;
        }
        let full = self.lines.len() >= MOST_MOVED;
        let on_line = match self.lines.get_mut(&line) {
            Some(known) => known,
            None if full => return,
            None => self.lines.entry(line).or_default(),
        };
        on_line.seen = on_line.seen.wrapping_add(1);
        if on_line.seen > FIRST && !on_line.seen.is_multiple_of(FIRST) {
            return;
        }
        let found = [from, to].map(|address| self.number(address));
        let Some(on_line) = self.lines.get_mut(&line) else {
            return;
        };
        for id in found.into_iter().flatten() {
            match on_line.blocks.iter_mut().find(|known| known.0 == id) {
                Some(known) => known.1 += 1,
                None => on_line.blocks.push((id, 1)),
            }
        }
        // Where many lay one after the other, those that were there most.
        if on_line.blocks.len() > 16 {
            on_line.blocks.sort_by_key(|it| std::cmp::Reverse(it.1));
            on_line.blocks.truncate(8);
        }
    }

    /// The number of the block at an address, which has a row from now on.
    fn number(&mut self, address: u64) -> Option<u64> {
        let (space, block, pid) = self.block_at(address)?;
        let full = self.moved.len() >= MOST_MOVED;
        let key = key(space, &block);
        if let Some(known) = self.moved.get(&key) {
            return Some(known.id);
        }
        if full {
            return None;
        }
        self.last_id += 1;
        let id = self.last_id;
        let moved = NumberedBlock {
            id,
            block,
            pid,
            end: None,
        };
        self.moved.insert(key, moved);
        Some(id)
    }

    /// The end of the run.
    pub(crate) fn finish(mut self) -> Found {
        let heaps = std::mem::take(&mut self.heaps);
        self.run.processes = heaps.len() as u64;
        let mut heaps: Vec<(u16, Heap)> = heaps.into_iter().collect();
        heaps.sort_by_key(|(space, _)| *space);
        for (space, mut heap) in heaps {
            let mut blocks: Vec<Block> = heap.live.drain().collect();
            blocks.sort_by_key(|block| (block.address, block.allocated));
            for block in blocks {
                self.run.live_blocks += 1.0;
                self.run.live_bytes += block.size as f64;
                self.end(space, heap.pid, block, None, None);
            }
        }
        let mut places: HashMap<u64, (u64, u64)> = HashMap::new();
        for moved in self.moved.into_values() {
            let range = (moved.block.address, moved.block.size.max(1));
            places.insert(moved.id, range);
            self.rows.push((moved, 1.0));
        }
        self.rows.sort_by_key(|(row, _)| row.id);
        self.run.rows = self.rows.len() as u64;
        Found {
            lines: LineBlocks {
                lines: self.lines,
                places,
            },
            uses: self.uses,
            rows: self.rows,
            run: self.run,
            lives: self.lives,
            contents: self.contents,
            dropped_uses: self.dropped_uses,
        }
    }
}

fn key(space: u16, block: &Block) -> Key {
    (
        u64::from(space) << GUEST_BITS | block.address,
        block.allocated,
    )
}

impl NumberedBlock {
    fn row(&self, weight: f64, names: &HeapNames, threads: &[ExactThread]) -> HeapBlock {
        let block = &self.block;
        let tid = |number: u16| Tid(threads.get(usize::from(number)).map_or(0, |it| it.tid));
        HeapBlock {
            id: self.id,
            pid: Pid(self.pid),
            address: Address(block.address),
            size: block.size,
            allocator: allocator_of(block.allocator),
            label: names.label(block.label),
            allocated: Time(block.allocated),
            allocated_by: tid(block.thread),
            stack: StackId(block.stack),
            freed: self.end.map(|(time, _)| Time(time)),
            freed_by: self.end.and_then(|(_, thread)| thread).map(tid),
            weight,
        }
    }
}

/// What was found out about the heap.
pub(crate) struct Found {
    pub(crate) lines: LineBlocks,
    uses: HashMap<(u32, u32, u16, u32), (u64, u64)>,
    rows: Vec<(NumberedBlock, f64)>,
    run: HeapRun,
    lives: Option<Lives>,
    contents: Option<Contents>,
    dropped_uses: u64,
}

/// The rows of the heap's tables.
pub(crate) struct HeapRows {
    pub(crate) blocks: Vec<HeapBlock>,
    pub(crate) uses: Vec<BlockUse>,
    pub(crate) steps: Vec<PathStep>,
    pub(crate) contents: Vec<CacheContent>,
    pub(crate) losses: Vec<Loss>,
}

impl Found {
    /// What the recorder did.
    pub(crate) fn run(&self, names: &HeapNames) -> HeapRun {
        HeapRun {
            // Those of children that are forked are not loaded anew.
            processes: names.processes.max(self.run.processes),
            ..self.run.clone()
        }
    }

    /// Puts names in the place of numbers. `busiest` is the thread with the most accesses.
    pub(crate) fn rows(&self, names: &HeapNames, busiest: u16, code: &Names<'_>) -> HeapRows {
        let threads = code.trace.threads;
        let blocks = self.rows.iter();
        let blocks = blocks.map(|(moved, weight)| moved.row(*weight, names, threads));
        let mut uses: Vec<BlockUse> = self
            .uses
            .iter()
            .filter_map(|(&(pid, stack, number, site), &(accesses, first))| {
                Some(BlockUse {
                    pid: Pid(pid),
                    stack: StackId(stack),
                    label: names.label(number),
                    ip: code.ip(site)?,
                    accesses: (accesses * u64::from(LOOKED_UP)) as f64 * code.scale(),
                    blocks: first,
                })
            })
            .collect();
        uses.sort_by(|a, b| {
            (a.pid, a.stack, a.ip, &a.label).cmp(&(b.pid, b.stack, b.ip, &b.label))
        });
        let mut losses = names.losses.clone();
        if self.dropped_uses > 0 {
            losses.push(Loss::new(
                code.trace.end,
                "block-uses-dropped",
                self.dropped_uses * u64::from(LOOKED_UP),
                "accesses to heap blocks that had no room in the table `block_uses`",
            ));
        }
        let mut steps = Vec::new();
        if let Some(lives) = &self.lives {
            steps = lives.paths(code, names);
            losses.extend(lives.losses(code.trace.end));
        }
        HeapRows {
            blocks: blocks.collect(),
            uses,
            contents: self
                .contents
                .as_ref()
                .map_or_else(Vec::new, |it| it.rows(busiest, code, names)),
            steps,
            losses,
        }
    }
}
