//! From the rings to one stream: decode, merge by time, hand out.
//!
//! In each round the clock is read first, then the heads of all rings. What is stamped before that
//! moment (less [`MARGIN`]) and written is merged; later stamps wait for the next round, since
//! another thread may still write something earlier. A thread that was interrupted between its stamp
//! and its word comes too late for that: its accesses are handed out with the time reached by then,
//! which is closer to when they happened than their stamp, and counted ([`Totals::late`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use linewise_cache::Kind;
use linewise_machine::namespace;
use linewise_machine::process::monotonic_ns;
use linewise_recording::Pid;
use linewise_trace::{CallKind, Consumer, ExactThread, TracedAccess, space_of};
use linewise_tracer::{Region, Ring, RingKind, RingState, pid_namespace, stamp, words};

use super::batch::Batch;
use super::code::{Code, NO_SITE};
use super::pieces::Special;
use super::reading::{EventAt, Reading};
use super::totals::Totals;
use crate::target::clock::Clock;

/// Up to so many threads at work the lowest stamp is looked for one by one, else in a heap.
const FEW: usize = 8;
/// How long, in ticks, a stamp may take to become visible to the reader.
const MARGIN: u64 = 20_000;
/// Rings of writers that are gone are looked for this often.
const LOOK_NS: u64 = 100_000_000;
/// The clock is set right this often.
const CORRECT_NS: u64 = 500_000_000;

/// A stamp that lies so far in the future, in ticks, is none: about a second.
const AHEAD: u64 = 1 << 31;
/// Images that are told apart, as threads are.
const MOST_IMAGES: usize = u16::MAX as usize;
/// So many accesses that are not told are an event.
const PASSED: u32 = 1 << 12;

/// The machine of ELF files for x86-64.
const X86_64: u16 = 62;

/// A process image.
#[derive(Clone, Copy, Debug)]
struct Image {
    /// Tells programs apart; a fork keeps its parent's.
    program: u32,
    pid: Pid,
}

/// The stream.
#[derive(Debug)]
pub(super) struct Stream {
    region: Region,
    readings: Vec<Option<Reading>>,
    images: HashMap<u32, Image>,
    /// The last image of each process.
    image_of: HashMap<u32, u32>,
    /// The inode of our namespace of process ids.
    namespace: u64,
    /// Processes in other namespaces that had ended before they were looked for.
    pub(super) strangers: u64,
    /// By process: programs that were replaced by one to be traced, less those that began.
    replaced: HashMap<u32, i64>,
    pub(super) code: Code,
    /// Instructions that the consumer was told of.
    told: usize,
    /// The machine of the target's ELF file.
    machine: u16,
    clock: Clock,
    batch: Batch,
    pub(super) threads: Vec<ExactThread>,
    /// See `ExactOutcome::counted`.
    pub(super) counted: Vec<([u64; 3], u64)>,
    /// Threads by the numbers under which they have lines for themselves.
    owners: HashMap<u16, u16>,
    pub(super) totals: Totals,
    /// Nothing more comes.
    all: bool,
    /// The latest stamp handed out.
    reached: u64,
    /// The latest time handed out.
    time_ns: u64,
    last_look: u64,
    last_correction: u64,
}

/// Where an address of a process counts.
#[derive(Clone, Copy)]
struct AddressSpace {
    shares: bool,
    image: u32,
    space: u64,
}

impl AddressSpace {
    #[inline(always)]
    fn of(self, code: &Code, address: u64) -> u64 {
        match self.shares {
            true => code.home(self.image, address),
            false => address | self.space,
        }
    }
}

/// What came of a word that is no access.
enum Mark {
    /// It was a mark or an event of so many words.
    Read(u64),
    /// It has a stamp that is not to be told yet.
    Later(u64),
    /// It was neither: a record is published whole.
    None,
}

/// Takes what became of an access that is not simply handed on; how many words of it are no accesses.
#[inline(always)]
fn take_special(
    (batch, totals): (&mut Batch, &mut Totals),
    reading: &mut Reading,
    told: Special,
) -> u64 {
    match told {
        Special::One(access) => {
            batch.push(access);
            reading.untold = 0;
            0
        }
        Special::PartOfUpdate => 1,
        Special::Unexplained => {
            totals.unexplained += 1;
            1
        }
    }
}

impl Stream {
    /// `machine` is that of the target's ELF file.
    pub(super) fn new(region: Region, machine: u16) -> Self {
        Self {
            region,
            readings: Vec::new(),
            images: HashMap::new(),
            image_of: HashMap::new(),
            namespace: pid_namespace(),
            strangers: 0,
            replaced: HashMap::new(),
            code: Code::default(),
            told: 0,
            machine,
            clock: Clock::new(),
            batch: Batch::new(),
            threads: Vec::new(),
            counted: Vec::new(),
            owners: HashMap::new(),
            totals: Totals::default(),
            all: false,
            reached: 0,
            time_ns: 0,
            last_look: monotonic_ns(),
            last_correction: monotonic_ns(),
        }
    }

    /// Reads what is there; how many words, at least 1 if anything. With `all` without regard for what may still
    /// come, when nobody writes any more.
    pub(super) fn round<C: Consumer>(&mut self, consumer: &mut C, all: bool) -> u64 {
        self.all = all;
        let until = if all {
            stamp().saturating_add(AHEAD)
        } else {
            stamp().saturating_sub(MARGIN)
        };
        let mut progress = u64::from(self.look_at_heads());
        progress += u64::from(self.define());
        self.tell_calls(consumer);
        progress += self.merge(consumer, until);
        self.flush(consumer);
        self.give_back();
        let now = monotonic_ns();
        if now - self.last_look > LOOK_NS {
            self.last_look = now;
            self.look_for_the_dead();
        }
        if now - self.last_correction > CORRECT_NS {
            self.last_correction = now;
            self.clock.correct(self.reached);
        }
        progress
    }

    /// Finds new rings and notes how far each is written.
    fn look_at_heads(&mut self) -> bool {
        let mut progress = false;
        let used = self.region.rings_used();
        if self.readings.len() < used {
            self.readings.resize_with(used, || None);
        }
        for index in 0..used {
            if self.readings[index].is_none() {
                let ring = self.region.ring(index);
                if ring.state() == RingState::Free {
                    continue;
                }
                progress = true;
                let reading = self.begin(ring);
                self.close_replaced(&reading);
                self.readings[index] = Some(reading);
            }
            if let Some(reading) = &mut self.readings[index] {
                // The state first: what is written before it is closed is then seen.
                reading.closed |= reading.ring.state() != RingState::Open;
                self.totals.malformed += u64::from(!reading.look());
            }
        }
        progress
    }

    /// Another image in the same process: the old one was replaced (exec).
    fn close_replaced(&mut self, new: &Reading) {
        let known = self.image_of.contains_key(&new.pid);
        if !known && self.image_of.len() >= MOST_IMAGES {
            return;
        }
        let before = self.image_of.insert(new.pid, new.image);
        if before.is_some_and(|before| before != new.image) {
            for old in self.readings.iter_mut().flatten() {
                old.closed |= old.pid == new.pid && old.image != new.image;
            }
        }
    }

    /// Process and thread id of a ring's writer as they are here, which it does not know in another namespace.
    fn ids(&mut self, ring: &Ring, image: u32) -> (u32, u32) {
        let (pid, tid) = ring.ids();
        let namespace = ring.namespace();
        if namespace == 0 || namespace == self.namespace {
            return (pid, tid);
        }
        let known = self.images.get(&image).map(|image| image.pid.0);
        let here =
            known.or_else(|| namespace::process(pid, |it| namespace::of(it) == Some(namespace)));
        let Some(here) = here else {
            self.strangers += 1;
            return (namespace::UNKNOWN | pid, namespace::UNKNOWN | tid);
        };
        let thread = namespace::thread(here, tid);
        (here, thread.unwrap_or(namespace::UNKNOWN | tid))
    }

    fn begin(&mut self, ring: Ring) -> Reading {
        let (image, parent) = ring.images();
        let (pid, tid) = self.ids(&ring, image);
        let kind = ring.kind();
        let above = self
            .images
            .get(&parent)
            .copied()
            .filter(|_| parent != image);
        let is_new = !self.images.contains_key(&image);
        if is_new && self.images.len() >= MOST_IMAGES {
            self.totals.unnumbered += 1;
        } else if is_new {
            if let Some(above) = above {
                self.code.inherit(above.pid, Pid(pid));
                self.code.shared.forked(Pid(parent), Pid(image));
            }
            let program = match above {
                Some(above) => above.program,
                None => parent,
            };
            // The first of all replaces none.
            if above.is_none() && !self.images.is_empty() {
                *self.replaced.entry(pid).or_default() -= 1;
            }
            let pid = Pid(pid);
            self.images.insert(image, Image { program, pid });
        }
        let opened = ring.opened();
        let now = self.clock.ns(opened);
        let quantum = ring.capacity() / 8;
        let mut thread = u16::MAX;
        let has_room =
            self.threads.len() < usize::from(u16::MAX) && self.images.contains_key(&image);
        if kind == RingKind::Thread && has_room {
            thread = self.threads.len() as u16;
            self.threads.push(ExactThread {
                pid: Pid(pid),
                tid,
                space: image.min(u32::from(u16::MAX)) as u16,
                start_ns: now,
                end_ns: now,
                accesses: 0,
                waited_ns: 0,
            });
            self.counted.push(([0; 3], 0));
            self.owners.insert(ring.owner(), thread);
        }
        Reading {
            ring,
            kind,
            pid,
            tid,
            started: linewise_tracer::started(pid),
            image,
            thread,
            position: 0,
            freed: 0,
            head: 0,
            closed: false,
            bank: u32::MAX,
            stamp: opened,
            time_ns: now,
            late: false,
            late_from: 0,
            quantum,
            space: space_of(image),
            parent: parent.min(u32::from(u16::MAX)) as u16,
            accesses: 0,
            untold: 0,
            replaced: false,
        }
    }

    /// Takes all definitions that are there. They are written before the accesses that need them,
    /// and the heads of those were noted before.
    fn define(&mut self) -> bool {
        let mut progress = false;
        let mut rest = Vec::new();
        for reading in self.readings.iter_mut().flatten() {
            if reading.kind != RingKind::Process {
                continue;
            }
            self.totals.malformed += u64::from(!reading.look());
            let program = self
                .images
                .get(&reading.image)
                .map_or(0, |image| image.program);
            while reading.position < reading.head {
                progress = true;
                let word = reading.ring.word(reading.position);
                let (kind, length) = words::definition_parts(word);
                let end = reading.position + 1 + length as u64;
                if words::tag(word) != words::DEFINITION || end > reading.head {
                    self.totals.malformed += 1;
                    reading.position = reading.head;
                    break;
                }
                rest.clear();
                rest.extend((reading.position + 1..end).map(|at| reading.ring.word(at)));
                self.code.define(
                    kind,
                    &rest,
                    program,
                    (Pid(reading.pid), reading.image),
                    &self.clock,
                );
                reading.position = end;
            }
            if reading.freed != reading.position {
                reading.freed = reading.position;
                reading.ring.free(reading.freed);
            }
        }
        progress
    }

    /// Tells the consumer what new instructions do to the stack of calls.
    fn tell_calls<C: Consumer>(&mut self, consumer: &mut C) {
        let new = &self.code.instructions[self.told..];
        if new.is_empty() {
            return;
        }
        let kinds: Vec<CallKind> = match self.machine {
            X86_64 => new.iter().map(CallKind::of).collect(),
            // Calls keep the return address in a register.
            _ => vec![CallKind::Neither; new.len()],
        };
        self.told += kinds.len();
        consumer.calls(&kinds);
    }

    /// Takes out of the rings what claims to be of the future: nothing is told before it happened, and it would wait there
    /// for as long.
    fn refuse(&mut self, reading_next: &mut Vec<(u64, usize)>, readings: &mut [Option<Reading>]) {
        let latest = stamp().saturating_add(AHEAD);
        reading_next.retain(|&(stamp, index)| {
            let refused = stamp > latest;
            if refused && let Some(reading) = &mut readings[index] {
                self.totals.malformed += 1;
                reading.position = reading.head;
            }
            !refused
        });
    }

    /// Hands out what is there up to a stamp, and changes what is shared when its moment has come.
    fn merge<C: Consumer>(&mut self, consumer: &mut C, until: u64) -> u64 {
        let mut words = 0_u64;
        while let Some(change) = self.code.next_change().filter(|&change| change <= until) {
            words = words.wrapping_add(self.merge_up_to(consumer, change.saturating_sub(1)));
            self.code.change_until(change);
        }
        words.wrapping_add(self.merge_up_to(consumer, until))
    }

    /// Hands out what is there up to a stamp, always from the ring whose next stamp is the lowest.
    fn merge_up_to<C: Consumer>(&mut self, consumer: &mut C, until: u64) -> u64 {
        let mut readings = std::mem::take(&mut self.readings);
        let mut next: Vec<(u64, usize)> = readings
            .iter()
            .enumerate()
            .filter_map(|(index, reading)| {
                let reading = reading.as_ref()?;
                Some((reading.next_stamp()?, index))
            })
            .collect();
        self.refuse(&mut next, &mut readings);
        next.retain(|&(stamp, _)| stamp <= until);
        let position = |readings: &[Option<Reading>]| -> u64 {
            let read = readings.iter().flatten().map(|it| it.position);
            // What is written over may be large.
            read.fold(0, u64::wrapping_add)
        };
        let before = position(&readings);
        if next.len() <= FEW {
            while let Some((place, other)) = lowest(&next) {
                let index = next[place].1;
                let reading = readings[index].as_mut();
                match reading.and_then(|it| self.run(it, other.min(until), consumer)) {
                    Some(stamp) if stamp <= until => next[place].0 = stamp,
                    _ => {
                        next.swap_remove(place);
                    }
                }
            }
        } else {
            let mut heap: BinaryHeap<_> = next.into_iter().map(Reverse).collect();
            while let Some(Reverse((_, index))) = heap.pop() {
                let turn = heap
                    .peek()
                    .map_or(until, |&Reverse((other, _))| other.min(until));
                let reading = readings[index].as_mut();
                match reading.and_then(|it| self.run(it, turn, consumer)) {
                    Some(stamp) if stamp <= until => heap.push(Reverse((stamp, index))),
                    _ => {}
                }
            }
        }
        let read = position(&readings).wrapping_sub(before);
        self.readings = readings;
        read
    }

    /// Hands out what a thread wrote up to a stamp; its next stamp, if it goes on.
    #[inline]
    fn run<C: Consumer>(
        &mut self,
        reading: &mut Reading,
        until: u64,
        consumer: &mut C,
    ) -> Option<u64> {
        if reading.thread == u16::MAX {
            self.totals.unnumbered += reading.head.saturating_sub(reading.position);
            reading.position = reading.head;
            return None;
        }
        let (head, thread) = (reading.head, reading.thread);
        let place = AddressSpace {
            shares: self.code.shared.has(Pid(reading.image)),
            image: reading.image,
            space: reading.space,
        };
        let mut position = reading.position;
        let mut bank = self.code.bank(reading.bank);
        reading.time_ns = reading.time_ns.max(self.time_ns);
        let mut time_ns = reading.time_ns;
        // Accesses are words, but for those that are joined with another or not described.
        let begin = position;
        let mut others = 0u64;
        let mut next = None;
        while position < head {
            let word = reading.ring.word(position);
            if words::tag(word) >= words::MARK {
                let emitted = position - begin - others;
                match self.mark(reading, (word, position), (until, emitted), place, consumer) {
                    Mark::Read(length) => {
                        position += length;
                        others += length;
                    }
                    Mark::Later(stamp) => {
                        next = Some(stamp);
                        break;
                    }
                    Mark::None => {
                        self.totals.malformed += 1;
                        others += head - position;
                        position = head;
                        break;
                    }
                }
                (bank, time_ns) = (self.code.bank(reading.bank), reading.time_ns);
                if position - reading.freed >= reading.quantum {
                    reading.freed = position;
                    reading.ring.free(position);
                }
                continue;
            }
            position += 1;
            let slot = bank[words::slot_in_bank(word)];
            let store = words::is_store(word);
            if words::address(word) == words::UNTOLD {
                others += 1;
                if slot.site != NO_SITE {
                    consumer.sampled(slot.site, slot.kind(store));
                }
                continue;
            }
            // Made in its place: a copy would wait for each of its fields.
            let access = TracedAccess {
                address: place.of(&self.code, words::address(word)),
                time_ns,
                site: slot.site,
                before: reading.untold,
                size: words::size(word),
                thread,
                kind: if store { Kind::Store } else { Kind::Load },
                orders: slot.orders,
            };
            if slot.special {
                let ends = reading.closed || self.all;
                let Some((words, told)) = reading.special(access, (word, slot), position, ends)
                else {
                    position -= 1;
                    break;
                };
                position += words;
                others += words;
                others += take_special((&mut self.batch, &mut self.totals), reading, told);
            } else {
                self.batch.push(access);
                reading.untold = 0;
            }
            if self.batch.is_full() {
                consumer.accesses(self.batch.filled());
                self.batch.clear();
            }
        }
        reading.pause(position, position - begin - others, &mut self.totals);
        next
    }

    /// Reads what is no access, behind so many accesses of this turn: a mark or an event.
    #[inline]
    fn mark<C: Consumer>(
        &mut self,
        reading: &mut Reading,
        (word, position): (u64, u64),
        (until, emitted): (u64, u64),
        place: AddressSpace,
        consumer: &mut C,
    ) -> Mark {
        let Some((stamp, length)) = reading.stamp_at(word, position) else {
            return Mark::None;
        };
        if stamp > until {
            return Mark::Later(stamp);
        }
        let is_event = words::tag(word) == words::EVENT;
        // The same stamp again: the bank changes.
        if stamp != reading.stamp || is_event {
            reading.stamped(stamp, emitted, self.reached, &mut self.totals);
            self.reached = stamp.max(self.reached);
            self.time_ns = self.clock.ns(self.reached).max(self.time_ns);
            reading.time_ns = self.time_ns;
        }
        reading.change_bank(word);
        if is_event || reading.untold >= PASSED {
            self.flush(consumer);
            reading.tell_passed(consumer, reading.time_ns);
        }
        if is_event {
            let record = EventAt {
                word,
                words: position + 2..position + length,
                time_ns: reading.time_ns,
            };
            let code = &self.code;
            let parts = (code, &self.owners, &mut self.totals);
            reading.tell_event(&record, parts, |address| place.of(code, address), consumer);
        }
        Mark::Read(length)
    }

    fn flush<C: Consumer>(&mut self, consumer: &mut C) {
        if !self.batch.filled().is_empty() {
            consumer.accesses(self.batch.filled());
            self.batch.clear();
        }
    }

    /// Frees what was read, and rings whose writers are done.
    fn give_back(&mut self) {
        let mut ended = Vec::new();
        for entry in &mut self.readings {
            let Some(reading) = entry else { continue };
            if reading.freed != reading.position {
                reading.freed = reading.position;
                reading.ring.free(reading.freed);
            }
            let done = reading.closed && reading.position >= reading.head;
            if let Some(thread) = self.threads.get_mut(usize::from(reading.thread)) {
                let accesses = std::mem::take(&mut reading.accesses);
                self.totals.accesses += accesses;
                thread.accesses += accesses;
                thread.end_ns = thread.end_ns.max(reading.time_ns);
                let (waited_ns, waits) = reading.ring.waited();
                thread.waited_ns = waited_ns;
                self.counted[usize::from(reading.thread)] = reading.ring.counted();
                if done {
                    self.totals.waits += waits;
                }
            }
            if done {
                if reading.replaced {
                    *self.replaced.entry(reading.pid).or_default() += 1;
                }
                if reading.kind == RingKind::Process {
                    self.region.free_tables(reading.image);
                    self.region.free_turns(reading.image);
                }
                reading.ring.recycle();
                ended.push(reading.image);
                *entry = None;
            }
        }
        for image in ended {
            let mut left = self.readings.iter().flatten();
            if !left.any(|reading| reading.image == image) {
                self.code.shared.end(Pid(image));
            }
        }
    }

    /// Notes as closed the rings of processes that are gone.
    fn look_for_the_dead(&mut self) {
        let mut living: HashMap<u32, bool> = HashMap::new();
        for reading in self.readings.iter().flatten() {
            let alive = || {
                linewise_tracer::started(reading.pid) == reading.started
                    // The first thread may have ended before the others.
                    || linewise_machine::procfs::threads(reading.pid)
                        .is_ok_and(|threads| threads.len() > 1)
            };
            living.entry(reading.pid).or_insert_with(alive);
        }
        for reading in self.readings.iter_mut().flatten() {
            if !living[&reading.pid] {
                reading.closed = true;
                self.totals.malformed += u64::from(!reading.look());
            }
        }
    }

    /// Processes that still have rings, other than this one.
    pub(super) fn others(&self, root: u32) -> usize {
        let mut pids: Vec<u32> = self
            .readings
            .iter()
            .flatten()
            .filter(|reading| !reading.closed && reading.pid != root)
            .map(|reading| reading.pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|&pid| linewise_tracer::started(pid).is_some());
        pids.len()
    }

    /// Programs that were to be traced and did not begin to be, of processes that have ended: at the end.
    pub(super) fn vanished(&self, root: u32) -> u64 {
        let mut replaced = self.replaced.clone();
        let gone = |pid: u32| pid == root || linewise_tracer::started(pid).is_none();
        for reading in self.readings.iter().flatten() {
            if reading.replaced && gone(reading.pid) {
                *replaced.entry(reading.pid).or_default() += 1;
            }
        }
        replaced.values().map(|&count| count.max(0) as u64).sum()
    }

    /// Adds up what open rings still hold, at the end.
    pub(super) fn finish<C: Consumer>(&mut self, consumer: &mut C) {
        for reading in self.readings.iter().flatten() {
            if reading.kind == RingKind::Thread {
                self.totals.waits += reading.ring.waited().1;
            }
        }
        self.flush(consumer);
        consumer.finish();
    }
}

/// Where the lowest stamp stands, and the lowest of the others.
#[inline]
fn lowest(next: &[(u64, usize)]) -> Option<(usize, u64)> {
    let mut place = 0;
    let (mut low, mut other) = (next.first()?.0, u64::MAX);
    for (index, &(stamp, _)) in next.iter().enumerate().skip(1) {
        if stamp < low {
            (place, other, low) = (index, low, stamp);
        } else {
            other = other.min(stamp);
        }
    }
    Some((place, other))
}
