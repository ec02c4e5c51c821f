//! Every round: records become events, events in the order of time change what is allocated, and what has
//! ended becomes rows.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::rc::Rc;

use linewise_heap::{AllocatorCode, Record, Region, Ring, RingState, stamp};
use linewise_machine::process;
use linewise_recording::{Address, Allocator, HeapBlock, HeapRun, Pid, StackId, Tid, Time, Writer};

use super::live::{Block, Live};
use super::observer::Observer;
use super::rate::{Rate, weight};
use super::unwind::Unwinder;
use crate::chance::Chance;
use crate::error::Error;
use crate::exact::Clock;
use crate::flow::Observed;
use crate::follow::Stacks;

/// What was lost of the heap's history: its name, how much, and a sentence.
pub(crate) type HeapLoss = (&'static str, u64, String);

/// Rows of untouched blocks that are kept before every second one is, and so on.
const ROWS: f64 = 50_000.0;
/// Rounds that a freed block waits for samples that touched it.
const LINGER: usize = 2;
/// Rounds are close to each other for so long after the beginning, ns: stacks are told by slices until
/// there are rules.
const YOUNG_NS: u64 = 100_000_000;
/// Time between two looks for processes and threads that are gone, ns.
const SLOW_NS: u64 = 1_000_000_000;
/// Frees of unknown blocks that are remembered, in case their allocation is told late.
const ORPHANS: usize = 10_000;

/// Something that happened to the heap of a process.
#[derive(Clone, Copy, Debug)]
struct Event {
    stamp: u64,
    image: u32,
    thread: u16,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
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
struct Image {
    pid: u32,
    /// The process that it was forked from, if it was.
    parent: Option<u32>,
    live: Live,
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

/// What is known of a ring.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The ring's image, 0 if it is free.
    image: u32,
    spent: u64,
}

/// Names that are kept once, and their numbers.
#[derive(Debug)]
struct Numbers<T> {
    all: Vec<T>,
    numbers: HashMap<u64, u16>,
}

impl<T> Numbers<T> {
    fn beginning_with(first: T) -> Self {
        Self {
            all: vec![first],
            numbers: HashMap::new(),
        }
    }

    /// The number of `key`, whose value `make` makes; 0 if there are too many.
    fn number(&mut self, key: u64, make: impl FnOnce() -> T) -> u16 {
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

    fn get(&self, number: u16) -> Option<&T> {
        self.all.get(usize::from(number))
    }
}

/// The collector's side of the heap recorder.
pub(crate) struct HeapRecorder {
    region: Rc<Region>,
    clock: Clock,
    unwinder: Unwinder,
    rate: Rate,
    chance: Chance,
    images: HashMap<u32, Image>,
    processes: HashMap<u32, u32>,
    rings: Vec<Seen>,
    stacks: HashMap<u64, StackId>,
    slices: HashMap<u64, StackId>,
    threads: Numbers<u32>,
    labels: Numbers<String>,
    /// Not yet applied, since they are later than what all rings have told.
    events: Vec<Event>,
    orphans: HashMap<(u32, u64), u64>,
    freed: VecDeque<Vec<Freed>>,
    touches: VecDeque<Vec<Touch>>,
    began_ns: u64,
    slow_ns: u64,
    malformed: u64,
    untouched_rows: f64,
    run: HeapRun,
    observer: Observer,
}

/// What a round cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapCost {
    /// Time that the recorder took from the target's threads, ns.
    pub(crate) target_ns: f64,
    /// Time of ours that was taken from the target for what it told, ns.
    pub(crate) own_ns: f64,
    /// What the budget has to pay now, ns.
    pub(crate) due_ns: f64,
}

impl HeapRecorder {
    /// Reads from `region`; tells of as much as a part of `overhead` pays for, or of everything.
    pub(crate) fn new(region: Region, overhead: Option<f64>) -> Self {
        let began_ns = process::monotonic_ns();
        let recorder = Self {
            region: Rc::new(region),
            clock: Clock::new(),
            unwinder: Unwinder::default(),
            rate: Rate::new(overhead),
            chance: Chance::seeded(began_ns),
            images: HashMap::new(),
            processes: HashMap::new(),
            rings: Vec::new(),
            stacks: HashMap::new(),
            slices: HashMap::new(),
            threads: Numbers::beginning_with(0),
            labels: Numbers::beginning_with(String::new()),
            events: Vec::new(),
            orphans: HashMap::new(),
            freed: VecDeque::new(),
            touches: VecDeque::from([Vec::new()]),
            began_ns,
            slow_ns: 0,
            malformed: 0,
            untouched_rows: 0.0,
            run: HeapRun::default(),
            observer: Observer::default(),
        };
        recorder.allow();
        recorder
    }

    /// Whether rounds should follow each other closely.
    pub(crate) fn is_young(&self) -> bool {
        process::monotonic_ns().saturating_sub(self.began_ns) < YOUNG_NS
    }

    /// Tells [`HeapRecorder::observed`] from now on.
    pub(crate) fn observe(&mut self) {
        self.observer.listen();
    }

    /// What happened since the last call, in the order of time but for touches.
    pub(crate) fn observed(&mut self) -> Vec<Observed> {
        self.observer.take()
    }

    /// The name that the program gave to objects.
    pub(crate) fn label(&self, number: u16) -> Option<&String> {
        self.labels.get(number)
    }

    /// Tells the recorder in the target to record no more.
    pub(crate) fn detach(&self) {
        self.region.detach();
    }

    /// An access was seen: the block that it touched is worth a row.
    pub(crate) fn touched(&mut self, pid: Pid, address: Address, time: Time) {
        if let Some(touches) = self.touches.back_mut() {
            touches.push(Touch {
                pid: pid.0,
                address: address.0,
                time: time.0,
            });
        }
    }

    /// Reads what was told until now. `thread_ns` of the target's time have passed since the last round,
    /// and `in_the_way` of ours is taken from the target (0 to 1).
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(crate) fn round(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        thread_ns: u64,
        in_the_way: f64,
    ) -> Result<HeapCost, Error> {
        let began = process::thread_cpu_time_ns();
        // Everybody who is told of by now was there before: what is later waits for the next round.
        let until = stamp();
        let target_ns = self.drain(stacks);
        self.apply(until);
        self.look_up_touches();
        self.settle(writer, LINGER)?;
        let now = process::monotonic_ns();
        if now.saturating_sub(self.slow_ns) >= SLOW_NS {
            self.slow_ns = now;
            self.clock.correct(until);
            self.bury(writer)?;
        }
        let own_ns = process::thread_cpu_time_ns().saturating_sub(began);
        // What goes with the number of records: a round costs something by itself, whatever is told.
        let own_ns = (own_ns as f64 * in_the_way).min(target_ns);
        let due_ns = self.rate.passed(thread_ns, target_ns + own_ns);
        self.region.set_interval(self.rate.interval());
        self.allow();
        self.region.hurry(false);
        self.run.spent_ns += target_ns as u64;
        Ok(HeapCost {
            target_ns,
            own_ns,
            due_ns,
        })
    }

    /// Gives the recorder what it may take until the next round.
    fn allow(&self) {
        let ticks_a_ns = 1e6 / self.clock.span_ns(1_000_000).max(1.0);
        self.region
            .allow((self.rate.allowance_ns() * ticks_a_ns) as i64);
    }

    /// Takes all records out of the rings; the time that they took from the target, ns.
    fn drain(&mut self, stacks: &mut Stacks) -> f64 {
        let mut spent = 0;
        let region = Rc::clone(&self.region);
        for ring in region.rings() {
            spent += self.drain_ring(&region, ring, stacks);
        }
        self.clock.span_ns(spent)
    }

    fn drain_ring(&mut self, region: &Region, ring: Ring<'_>, stacks: &mut Stacks) -> u64 {
        let state = ring.state();
        if state == RingState::Free {
            return 0;
        }
        let ids = ring.ids();
        if self.rings.len() <= ring.index() {
            self.rings.resize(ring.index() + 1, Seen::default());
        }
        if self.rings[ring.index()].image != ids.image {
            self.rings[ring.index()] = Seen {
                image: ids.image,
                spent: 0,
            };
            self.found_image(ids.image, ids.parent, ids.pid, ring.opened());
        }
        let thread = self.threads.number(u64::from(ids.tid), || ids.tid);
        let layout = ring.layout();
        let drained = ring.drain(|words| match Record::parse(words) {
            Some(record) => {
                let what = self.understand(region, (ids.pid, layout), record, stacks);
                self.events.extend(what.map(|(stamp, what)| Event {
                    stamp,
                    image: ids.image,
                    thread,
                    what,
                }));
            }
            None => self.malformed += 1,
        });
        self.malformed += u64::from(drained.is_err());
        let seen = &mut self.rings[ring.index()];
        let spent = ring.spent();
        let more = spent.wrapping_sub(seen.spent);
        seen.spent = spent;
        // Its state was read first: a writer that had closed it writes no more.
        if state == RingState::Closed {
            *seen = Seen::default();
            ring.recycle();
        }
        // The target may write over the count.
        if more < 1 << 40 { more } else { 0 }
    }

    /// A ring of a process that was not known.
    fn found_image(&mut self, image: u32, parent: u32, pid: u32, opened: u64) {
        if self.images.contains_key(&image) {
            return;
        }
        self.run.processes += 1;
        self.images.insert(
            image,
            Image {
                pid,
                parent: (parent != image).then_some(parent),
                ..Image::default()
            },
        );
        let before = self.processes.insert(pid, image);
        if let Some(before) = before.and_then(|before| self.images.get_mut(&before)) {
            before.ended = Some(Some(self.clock.ns(opened)));
        }
    }

    /// What a record tells, if it is an event.
    fn understand(
        &mut self,
        region: &Region,
        (pid, layout): (u32, u32),
        record: Record<'_>,
        stacks: &mut Stacks,
    ) -> Option<(u64, What)> {
        match record {
            Record::Alloc {
                stamp,
                address,
                size,
                stack,
                allocator,
                interval,
                label,
            } => {
                let stack = match self.slices.remove(&stack) {
                    Some(id) => id,
                    None => self.stacks.get(&stack).copied().unwrap_or(StackId(0)),
                };
                let number = |label| self.labels.numbers.get(&label).copied();
                let what = What::Alloc {
                    address,
                    size,
                    stack: stack.0,
                    allocator: allocator as u8,
                    interval: interval.max(1.0).log2().round().min(63.0) as u8,
                    label: label.and_then(number).unwrap_or(0),
                };
                return Some((stamp, what));
            }
            Record::Free {
                stamp,
                address,
                named,
            } => return Some((stamp, What::Free { address, named })),
            Record::Unmap {
                stamp,
                address,
                length,
            } => {
                let what = What::Unmap {
                    start: address,
                    end: address.saturating_add(length.next_multiple_of(4096)),
                };
                return Some((stamp, what));
            }
            Record::Stack { key, frames } => {
                let id = stacks.id(frames);
                self.stacks.insert(key, id);
            }
            Record::Slice {
                key,
                layout: told,
                prefix,
                at,
                words,
            } => {
                let mut frames = prefix.to_vec();
                // The slice says what was loaded when it was made, in as many bits.
                let layout = if told == layout & 0xffff {
                    layout
                } else {
                    told
                };
                frames.extend(self.unwinder.unwind(region, (pid, layout), at, words, None));
                frames.truncate(linewise_heap::MOST_FRAMES);
                // Those that never came are few.
                if self.slices.len() > ORPHANS {
                    self.slices.clear();
                }
                self.slices.insert(key, stacks.id(&frames));
            }
            Record::Label { key, words, bytes } => {
                let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = String::from_utf8_lossy(&text[..bytes.min(text.len())]);
                self.labels.number(key, || text.into_owned());
            }
        }
        None
    }

    /// Applies the events up to a stamp, in their order.
    fn apply(&mut self, until: u64) {
        self.freed.push_back(Vec::new());
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|event| event.stamp);
        let later = events.partition_point(|event| event.stamp <= until);
        self.events = events.split_off(later);
        for event in events {
            self.apply_one(event);
        }
    }

    fn apply_one(&mut self, event: Event) {
        let time = self.clock.ns(event.stamp);
        let Some(image) = self.images.get_mut(&event.image) else {
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
                };
                let tid = self.threads.get(event.thread).copied().unwrap_or(0);
                self.observer.allocated(pid, &block, tid);
                match self.orphans.remove(&(event.image, address)) {
                    // Its end was told before it.
                    Some(free) if free > event.stamp => {
                        ended.push((block, self.clock.ns(free), None));
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
                match block {
                    Some(block) => {
                        let inside = image.live.remove_named_in(&block);
                        let by = Some(event.thread);
                        ended.extend([block].into_iter().chain(inside).map(|it| (it, time, by)));
                    }
                    None if self.orphans.len() < ORPHANS => {
                        self.orphans.insert((event.image, address), event.stamp);
                    }
                    None => {}
                }
            }
            What::Unmap { start, end } => {
                let by = Some(event.thread);
                ended.extend(
                    image
                        .live
                        .unmap(start, end)
                        .into_iter()
                        .map(|it| (it, time, by)),
                );
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

    /// Marks what is allocated where accesses were seen.
    fn look_up_touches(&mut self) {
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
                image.live.insert(block);
            }
        }
        self.touches.push_back(Vec::new());
    }

    /// Makes rows of the blocks that ended at least `rounds` ago: those that were touched until shortly
    /// after, and a share of the others.
    fn settle(&mut self, writer: &mut Writer, rounds: usize) -> Result<(), Error> {
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
        let mut stands_for = weight(block.size, interval_of(block));
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

    /// Gives back what belongs to processes and threads that are gone.
    fn bury(&mut self, writer: &mut Writer) -> Result<(), Error> {
        for ring in self.region.rings() {
            if ring.state() != RingState::Open {
                continue;
            }
            let ids = ring.ids();
            let task = format!("/proc/{}/task/{}", ids.pid, ids.tid);
            let another = self.processes.get(&ids.pid) != Some(&ids.image);
            // What it told last was read in this round, or is read in the next.
            if another || !Path::new(&task).exists() {
                ring.close();
            }
        }
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
            if !Path::new(&format!("/proc/{}", image.pid)).exists() {
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
        for block in image.live.drain() {
            let blocks = weight(block.size, interval_of(&block));
            self.run.live_blocks += blocks;
            self.run.live_bytes += blocks * block.size as f64;
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

    /// The end: the last records, and rows of all that is still allocated. What the recorder did, with
    /// what was lost: name, number, sentence.
    ///
    /// # Errors
    /// The recording cannot be written.
    pub(crate) fn finish(
        mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
    ) -> Result<(HeapRun, Vec<HeapLoss>), Error> {
        self.region.detach();
        let spent = self.drain(stacks);
        self.run.spent_ns += spent as u64;
        self.apply(u64::MAX);
        self.look_up_touches();
        self.settle(writer, 0)?;
        let all: Vec<u32> = self.images.keys().copied().collect();
        for number in all {
            self.end_image(number, writer)?;
        }
        let mut losses = Vec::new();
        if self.region.lost() > 0 {
            losses.push((
                "heap-events-lost",
                self.region.lost(),
                "allocations and frees that could not be told: the collector did not get a CPU in time, more than a thousand threads allocated, or a signal handler did".to_owned(),
            ));
        }
        if self.malformed > 0 {
            losses.push((
                "heap-events-malformed",
                self.malformed,
                "records of the heap that made no sense: the target wrote over the shared memory"
                    .to_owned(),
            ));
        }
        if self.region.own_mallocs() > 0 {
            losses.push((
                "own-malloc",
                u64::from(self.region.own_mallocs()),
                "programs with a malloc of their own, whose blocks are not recorded; name its objects with `linewise.h`".to_owned(),
            ));
        }
        if self.region.images() == 0 {
            losses.push((
                "heap-not-recorded",
                1,
                "the heap recorder was not loaded into any process".to_owned(),
            ));
        }
        Ok((self.run, losses))
    }
}

fn interval_of(block: &Block) -> f64 {
    match block.interval {
        0 => 0.0,
        exponent => (1_u64 << exponent.min(63)) as f64,
    }
}

/// The allocator of this number.
pub(crate) fn allocator_of(code: u8) -> Allocator {
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
        super::live::MMAP => Allocator::Mmap,
        super::live::POOL => Allocator::Pool,
        _ => Allocator::Other,
    }
}
