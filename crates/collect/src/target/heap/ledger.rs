//! The book of blocks: events in the order of time change what is allocated, and what has ended becomes rows.

use std::collections::{HashMap, HashSet, VecDeque};

use linewise_machine::process;
use linewise_recording::{Address, HeapBlock, HeapRun, Pid, StackId, Tid, Time, Writer};

use super::cost::HeapLoss;
use super::live::{Block, Live, allocator_of};
use super::observer::Observer;
use super::rate::told_weight;
use super::sites::Sites;
use crate::error::Error;
use crate::target::clock::Clock;
use linewise_cache::Chance;

/// Rows of untouched blocks that are kept before every second one is, and so on.
const ROWS: f64 = 50_000.0;
/// Rounds that a freed block waits for samples that touched it.
pub(super) const LINGER: usize = 2;
/// Frees of unknown blocks that are remembered, in case their allocation is told late.
const ORPHANS: usize = 10_000;
/// Blocks that are known at once, of all processes: some hundred megabytes of ours.
pub(super) const MOST_LIVE: usize = 1 << 22;
/// Rows of call chains, of all processes.
const SITE_ROWS: u64 = 500_000;
/// Addresses of ended blocks that are remembered.
const ENDED: usize = 100_000;

/// Something that happened to the heap of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) stamp: u64,
    pub(super) image: u32,
    pub(super) thread: u16,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Alloc {
        address: u64,
        size: u64,
        stack: u32,
        allocator: u8,
        interval: u8,
        label: u16,
    },
    Free {
        address: u64,
        named: bool,
    },
    Unmap {
        start: u64,
        end: u64,
    },
}

/// A process that runs one program.
#[derive(Debug, Default)]
pub(super) struct Image {
    pid: u32,
    /// When it was first told of.
    opened: u64,
    /// The process that it was forked from, if it was.
    parent: Option<u32>,
    live: Live,
    sites: Sites,
    /// It is no more; when it went on as another program, that moment.
    ended: Option<Option<u64>>,
}

/// A block that has ended.
#[derive(Clone, Copy, Debug)]
struct Freed {
    block: Block,
    pid: u32,
    at: Option<u64>,
    by: Option<u16>,
}

/// An access that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Touch {
    pid: u32,
    address: u64,
    time: u64,
}

/// Names that are kept once, and their numbers.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    all: Vec<T>,
    pub(super) numbers: HashMap<u64, u16>,
}

impl<T> Numbers<T> {
    pub(super) fn beginning_with(first: T) -> Self {
        Self {
            all: vec![first],
            numbers: HashMap::new(),
        }
    }

    /// The number of `key`, whose value `make` makes; 0 if there are too many.
    pub(super) fn number(&mut self, key: u64, make: impl FnOnce() -> T) -> u16 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let Ok(number) = u16::try_from(self.all.len()) else {
            return 0;
        };
        self.all.push(make());
        self.numbers.insert(key, number);
        number
    }

    /// The value of a key.
    pub(super) fn named(&self, key: u64) -> Option<&T> {
        self.get(*self.numbers.get(&key)?)
    }

    pub(super) fn get(&self, number: u16) -> Option<&T> {
        self.all.get(usize::from(number))
    }
}

/// What is known of the heaps of all processes.
#[derive(Debug)]
pub(super) struct Ledger {
    /// From the stamps of events to ns; without it they are that already.
    pub(super) clock: Option<Clock>,
    chance: Chance,
    pub(super) images: HashMap<u32, Image>,
    pub(super) processes: HashMap<u32, u32>,
    pub(super) threads: Numbers<u32>,
    pub(super) labels: Numbers<String>,
    /// Not yet applied, since they are later than what all threads have told.
    pub(super) events: Vec<Event>,
    orphans: HashMap<(u32, u64), u64>,
    freed: VecDeque<Vec<Freed>>,
    touches: VecDeque<Vec<Touch>>,
    untouched_rows: f64,
    pub(super) run: HeapRun,
    pub(super) observer: Observer,
    /// Where blocks ended and nothing was allocated since. The C library frees once more what an ending thread has kept
    /// for later.
    ended: HashSet<(u32, u64)>,
    /// Events of processes that were taken for ended when they were applied.
    pub(super) strays: u64,
    /// Ends of blocks that were seen, and of those the ones of blocks that were not known.
    pub(super) frees: u64,
    pub(super) frees_of_unknown: u64,
    /// Blocks that were forgotten while they were allocated, since too many were.
    pub(super) forgotten: u64,
    site_rows: u64,
    /// Call chains without a row.
    pub(super) sites_cut: u64,
}

impl Ledger {
    pub(super) fn new(clock: Option<Clock>) -> Self {
        Self {
            clock,
            chance: Chance::seeded(process::monotonic_ns()),
            images: HashMap::new(),
            processes: HashMap::new(),
            threads: Numbers::beginning_with(0),
            labels: Numbers::beginning_with(String::new()),
            events: Vec::new(),
            orphans: HashMap::new(),
            freed: VecDeque::new(),
            touches: VecDeque::from([Vec::new()]),
            untouched_rows: 0.0,
            run: HeapRun::default(),
            observer: Observer::default(),
            ended: HashSet::new(),
            strays: 0,
            frees: 0,
            frees_of_unknown: 0,
            forgotten: 0,
            site_rows: 0,
            sites_cut: 0,
        }
    }

    /// The time of an event's stamp, ns.
    pub(super) fn ns(&self, stamp: u64) -> u64 {
        self.clock.as_ref().map_or(stamp, |clock| clock.ns(stamp))
    }

    /// An access was seen: the block that it touched is worth a row.
    pub(super) fn touched(&mut self, pid: Pid, address: Address, time: Time) {
        if let Some(touches) = self.touches.back_mut() {
            touches.push(Touch {
                pid: pid.0,
                address: address.0,
                time: time.0,
            });
        }
    }

    /// The process of an image that is known.
    pub(super) fn process_of(&self, image: u32) -> Option<u32> {
        self.images.get(&image).map(|image| image.pid)
    }

    /// A ring of a process that was not known.
    pub(super) fn found_image(&mut self, image: u32, parent: u32, pid: u32, opened: u64) {
        if self.images.contains_key(&image) {
            return;
        }
        self.run.processes += 1;
        let opened = self.ns(opened);
        let mut found = Image {
            pid,
            opened,
            parent: (parent != image).then_some(parent),
            ..Image::default()
        };
        let known = self.processes.get(&pid);
        match known.and_then(|known| self.images.get_mut(known)) {
            // Rings are not looked at in the order in which they were opened.
            Some(after) if after.opened > opened => found.ended = Some(Some(after.opened)),
            before => {
                if let Some(before) = before {
                    before.ended = Some(Some(opened));
                }
                self.processes.insert(pid, image);
            }
        }
        self.images.insert(image, found);
    }

    /// Applies the events up to a stamp, in their order.
    pub(super) fn apply(&mut self, until: u64) {
        self.freed.push_back(Vec::new());
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|event| event.stamp);
        let later = events.partition_point(|event| event.stamp <= until);
        self.events = events.split_off(later);
        for event in events {
            self.apply_one(event);
        }
        // Those that nobody touched first; samples are few enough that this suffices.
        for also_touched in [false, true] {
            if self.live() > MOST_LIVE {
                self.thin(also_touched);
            }
        }
    }

    /// Blocks that are known as allocated.
    pub(super) fn live(&self) -> usize {
        self.images.values().map(|image| image.live.len()).sum()
    }

    /// Entries of all that grows with what is told.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let freed: usize = self.freed.iter().map(Vec::len).sum();
        let touches: usize = self.touches.iter().map(Vec::len).sum();
        let waiting = self.events.len() + self.orphans.len() + self.ended.len();
        self.live() + freed + touches + waiting
    }

    fn thin(&mut self, also_touched: bool) {
        let chance = &mut self.chance;
        for image in self.images.values_mut() {
            let Image { live, sites, .. } = image;
            let stays = || chance.happens(0.5);
            let forgotten = live.thin(also_touched, stays, |block| sites.forget(block));
            self.forgotten += forgotten as u64;
        }
    }

    /// What was forgotten, as a loss.
    pub(super) fn losses(&self) -> impl Iterator<Item = HeapLoss> {
        let forgotten = (self.forgotten > 0).then(|| {
            (
                "heap-blocks-forgotten",
                self.forgotten,
                format!(
                    "blocks that are known no more: over {MOST_LIVE} were allocated at once, so that one of two that no sample had touched was forgotten; accesses to them have no name, and among the rows of single blocks the others stand for them"
                ),
            )
        });
        let cut = (self.sites_cut > 0).then(|| {
            (
                "heap-sites-cut",
                self.sites_cut,
                "call chains of processes that ended late whose allocations are not summed up: so many have been".to_owned(),
            )
        });
        forgotten.into_iter().chain(cut)
    }

    fn apply_one(&mut self, event: Event) {
        let time = self.ns(event.stamp);
        let Some(image) = self.images.get_mut(&event.image) else {
            self.strays += 1;
            return;
        };
        let pid = image.pid;
        let mut ended: Vec<(Block, u64, Option<u16>)> = Vec::new();
        match event.what {
            What::Alloc {
                address,
                size,
                stack,
                allocator,
                interval,
                label,
            } => {
                self.run.blocks += 1;
                self.ended.remove(&(event.image, address));
                if interval > 0 {
                    self.run.sampled_bytes = self.run.sampled_bytes.max(1 << interval);
                }
                let block = Block {
                    address,
                    size,
                    allocated: time,
                    stack,
                    thread: event.thread,
                    label,
                    interval,
                    allocator,
                    touched: false,
                    halved: 0,
                };
                let tid = self.threads.get(event.thread).copied().unwrap_or(0);
                self.observer.allocated(pid, &block, tid);
                image.sites.allocated(&block);
                match self.orphans.remove(&(event.image, address)) {
                    // Its end was told before it.
                    Some(free) if free > event.stamp => {
                        let clock = self.clock.as_ref();
                        let at = clock.map_or(free, |clock| clock.ns(free));
                        ended.push((block, at, None));
                    }
                    _ => ended.extend(image.live.insert(block).map(|old| (old, time, None))),
                }
            }
            What::Free { address, named } => {
                let block = if named {
                    image.live.remove_named(address)
                } else if image
                    .live
                    .get(address)
                    .is_some_and(|it| it.allocated > time)
                {
                    // The free of an earlier block, told late.
                    None
                } else {
                    image.live.remove(address)
                };
                let counted = block.is_none() && !named && image.sites.forgotten_freed(address);
                let place = (event.image, address);
                if counted {
                    self.frees += 1;
                } else if block.is_some() || !self.ended.contains(&place) {
                    self.frees += 1;
                    self.frees_of_unknown += u64::from(block.is_none());
                }
                if self.clock.is_none() && self.ended.len() < ENDED {
                    self.ended.insert(place);
                }
                match block {
                    Some(block) => {
                        let inside = image.live.remove_named_in(&block);
                        let by = Some(event.thread);
                        ended.extend([block].into_iter().chain(inside).map(|it| (it, time, by)));
                    }
                    None if !counted && self.orphans.len() < ORPHANS => {
                        self.orphans.insert((event.image, address), event.stamp);
                    }
                    None => {}
                }
            }
            What::Unmap { start, end } => {
                let by = Some(event.thread);
                let gone = image.live.unmap(start, end);
                for block in &gone {
                    image.sites.unmapped(block, start, end);
                }
                ended.extend(gone.into_iter().map(|it| (it, time, by)));
            }
        }
        self.end(&event, pid, ended);
    }

    /// Counts blocks that `event` ended, each with when and by whom, and lets them wait for their rows.
    fn end(&mut self, event: &Event, pid: u32, ended: Vec<(Block, u64, Option<u16>)>) {
        if !matches!(event.what, What::Unmap { .. })
            && let Some(image) = self.images.get_mut(&event.image)
        {
            for (block, ..) in &ended {
                image.sites.ended(block);
            }
        }
        for (block, at, by) in &ended {
            // Without a free it is told by another block that lies there now.
            if let Some(by) = *by {
                let tid = self.threads.get(by).copied().unwrap_or(0);
                self.observer.freed(pid, block, *at, tid);
            }
        }
        if let Some(freed) = self.freed.back_mut() {
            freed.extend(ended.into_iter().map(|(block, at, by)| Freed {
                block,
                pid,
                at: Some(at),
                by,
            }));
        }
    }

    /// All that process `image` has allocated is known no more from `time` on: its frees are not seen.
    pub(super) fn cut(&mut self, image: u32, time: u64) {
        let Some(image) = self.images.get_mut(&image) else {
            return;
        };
        let pid = image.pid;
        image.sites.cut();
        let known: Vec<Block> = image.live.drain().collect();
        self.orphans.clear();
        self.ended.clear();
        self.events.clear();
        if self.freed.is_empty() {
            self.freed.push_back(Vec::new());
        }
        if let Some(freed) = self.freed.back_mut() {
            freed.extend(known.into_iter().map(|block| Freed {
                block,
                pid,
                at: Some(time.max(block.allocated)),
                by: None,
            }));
        }
    }

    /// Marks what is allocated where accesses were seen.
    pub(super) fn look_up_touches(&mut self) {
        let Some(touches) = self.touches.back() else {
            return;
        };
        for touch in touches {
            let Some(&number) = self.processes.get(&touch.pid) else {
                continue;
            };
            let Some(image) = self.images.get_mut(&number) else {
                continue;
            };
            if let Some(block) = image.live.touch(touch.address, touch.time) {
                self.observer.touched(touch.pid, &block, touch.address);
                continue;
            }
            let parent = image.parent;
            // What a child has from its parent becomes its own when it is touched.
            let inherited = parent
                .and_then(|parent| self.images.get_mut(&parent))
                .and_then(|parent| parent.live.touch(touch.address, touch.time));
            if let Some(block) = inherited
                && let Some(image) = self.images.get_mut(&number)
            {
                image.sites.inherited(&block);
                image.live.insert(block);
            }
        }
        self.touches.push_back(Vec::new());
    }

    /// Makes rows of the blocks that ended at least `rounds` ago: those that were touched until shortly
    /// after, and a share of the others.
    pub(super) fn settle(&mut self, writer: &mut Writer, rounds: usize) -> Result<(), Error> {
        if self.freed.len() <= rounds {
            return Ok(());
        }
        let mut touches: Vec<Touch> = self.touches.iter().flatten().copied().collect();
        touches.sort_unstable();
        while self.freed.len() > rounds {
            for freed in self.freed.pop_front().unwrap_or_default() {
                let first = touches.partition_point(|touch| {
                    (touch.pid, touch.address) < (freed.pid, freed.block.address)
                });
                let touched = touches[first..].iter().take_while(|touch| {
                    touch.pid == freed.pid
                        && touch.address - freed.block.address < freed.block.size.max(1)
                });
                let during = |touch: &Touch| {
                    freed.block.allocated <= touch.time
                        && freed.at.is_none_or(|end| touch.time < end)
                };
                let mut touched = touched.filter(|touch| during(touch));
                let first = touched.next();
                if let Some(touch) = first.filter(|_| !freed.block.touched) {
                    self.observer
                        .touched(freed.pid, &freed.block, touch.address);
                }
                let touched = freed.block.touched || first.is_some();
                let row = self.row(&freed, touched, 1.0);
                writer.push(row)?;
            }
        }
        while self.touches.len() > rounds + 2 {
            self.touches.pop_front();
        }
        Ok(())
    }

    /// The row of a block, if it is to have one: `share` (0 to 1) of those that nobody touched.
    fn row(&mut self, freed: &Freed, touched: bool, share: f64) -> Option<HeapBlock> {
        let block = &freed.block;
        let mut stands_for = block_weight(block);
        if !touched {
            let share = share * 0.5_f64.powf((self.untouched_rows / ROWS).floor());
            if !self.chance.happens(share) {
                return None;
            }
            self.untouched_rows += 1.0;
            stands_for /= share;
        }
        self.run.rows += 1;
        let tid = |number| Tid(self.threads.get(number).copied().unwrap_or(0));
        Some(HeapBlock {
            id: self.run.rows,
            pid: Pid(freed.pid),
            address: Address(block.address),
            size: block.size,
            allocator: allocator_of(block.allocator),
            label: self.labels.get(block.label).cloned().unwrap_or_default(),
            allocated: Time(block.allocated),
            allocated_by: tid(block.thread),
            stack: StackId(block.stack),
            freed: freed.at.map(Time),
            freed_by: freed.by.map(tid),
            weight: stands_for,
        })
    }

    /// Ends what belongs to processes that are gone: those for which `lives` says no.
    pub(super) fn bury(
        &mut self,
        writer: &mut Writer,
        lives: impl Fn(u32) -> bool,
    ) -> Result<(), Error> {
        let gone: Vec<u32> = self
            .images
            .iter()
            .filter(|(_, image)| image.ended.is_some())
            .map(|(&number, _)| number)
            .collect();
        for number in gone {
            self.end_image(number, writer)?;
        }
        for image in self.images.values_mut() {
            if !lives(image.pid) {
                image.ended = Some(None);
            }
        }
        self.orphans.clear();
        Ok(())
    }

    /// Makes rows of what a process had allocated at its end.
    fn end_image(&mut self, number: u32, writer: &mut Writer) -> Result<(), Error> {
        let Some(mut image) = self.images.remove(&number) else {
            return Ok(());
        };
        if self.processes.get(&image.pid) == Some(&number) {
            self.processes.remove(&image.pid);
        }
        let count = image.live.len() as f64;
        let share = (2.0 * ROWS / count.max(1.0)).min(1.0);
        let (blocks, bytes) = image.sites.live();
        self.run.live_blocks += blocks;
        self.run.live_bytes += bytes;
        let mut sites = image.sites.rows(image.pid, |label| {
            self.labels.get(label).cloned().unwrap_or_default()
        });
        let room = usize::try_from(SITE_ROWS.saturating_sub(self.site_rows)).unwrap_or(0);
        self.sites_cut += sites.len().saturating_sub(room) as u64;
        sites.truncate(room);
        self.site_rows += sites.len() as u64;
        writer.push(sites)?;
        for block in image.live.drain() {
            let freed = Freed {
                block,
                pid: image.pid,
                at: image.ended.flatten(),
                by: None,
            };
            let row = self.row(&freed, block.touched, share);
            writer.push(row)?;
        }
        Ok(())
    }

    /// The end: all events, and rows of all that is still allocated.
    pub(super) fn close(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.apply(u64::MAX);
        self.look_up_touches();
        self.settle(writer, 0)?;
        let all: Vec<u32> = self.images.keys().copied().collect();
        for number in all {
            self.end_image(number, writer)?;
        }
        Ok(())
    }
}

/// How many blocks it stands for.
fn block_weight(block: &Block) -> f64 {
    told_weight(block.size, block.interval) * 2_f64.powi(i32::from(block.halved))
}
