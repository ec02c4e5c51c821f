//! The writing ends of the rings: one for each virtual CPU, which in user mode is a thread.

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::order;
use super::others::{self, OfProcess};
use super::process;
use super::{group, joint, shadow, shared};
use crate::clock;
use crate::own::{Line, Notes, Touch};
use crate::region::{Region, RingHeader, RingKind, Turn, futex_wait};
use crate::words::{self, EventKind};

/// Virtual CPUs that can be told apart. QEMU numbers them by how many live at a time.
const VCPUS: usize = 1 << 16;
/// How long a full ring is looked at before the writer sleeps.
const SPINS: u32 = 200;
/// A sleeper looks this often whether the collector is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A mark stands in front of at most so many accesses.
const MARK_EVERY: u64 = 16;
/// Who got no ring asks again after so many accesses.
const ASK_AGAIN: u32 = 1 << 12;
/// In the place of a virtual CPU: definitions are no virtual CPU's.
const NO_VCPU: c_uint = c_uint::MAX;
/// A bank that no access is of.
const NO_BANK: u64 = u64::MAX;
/// Bits of the greatest distance between two samples of accesses that are not told: 128 on average.
const SAMPLE_BITS: u32 = 8;
/// After so many accesses that are not told a new stamp is taken, in quarters.
const STAMP_AFTER_QUARTERS: i64 = 4 * MARK_EVERY as i64;

/// Whether an access is written to the ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Yes,
    /// It is noted with its line, and told when another takes that.
    WithItsLine,
    No,
}

/// The end of a ring. An access that is told needs the first five, one that is not the second half.
#[repr(C, align(128))]
pub(super) struct End {
    /// Words written.
    head: u64,
    /// While `head` is below it no mark is due, there is room for more than one access, and the ring's
    /// end is not reached.
    stop: u64,
    /// The bank of the last mark.
    bank: u64,
    /// Where the word number 0 would stand if the ring were not one: `head` words before the next.
    lap: *mut AtomicU64,
    ring: *const RingHeader,
    /// While `head` is below it there is room for a record of any kind.
    limit: u64,
    /// The stamp of the last mark.
    stamp: u64,
    index: u32,
    log2_words: u8,
    open: bool,
    /// Accesses until a ring is asked for again, where there was none.
    refused: u32,
    /// The complement of the number under which the thread has lines for itself; 0, which is nobody's,
    /// while the ring is not open.
    not_owner: u16,
    /// Quarters of accesses until one is sampled, of those that are not told.
    left: i64,
    /// What `left` was when the number of those was last told.
    told_left: i64,
    /// With `left` subtracted: the thread's accesses so far, in quarters.
    base: u64,
    /// Loads, stores and updates so far, in quarters.
    quarters: [u64; 3],
    first_touches: u64,
    random: u64,
    /// Its place in the order, where that is made.
    turn: Option<&'static Turn>,
}

impl End {
    const fn new() -> Self {
        Self {
            head: 0,
            stop: 0,
            bank: 0,
            lap: std::ptr::null_mut(),
            ring: std::ptr::null(),
            limit: 0,
            stamp: 0,
            index: 0,
            log2_words: 0,
            open: false,
            refused: 0,
            not_owner: 0,
            left: 0,
            told_left: 0,
            base: 0,
            quarters: [0; 3],
            first_touches: 0,
            random: 0,
            turn: None,
        }
    }

    fn capacity(&self) -> u64 {
        1 << self.log2_words
    }

    /// Only while there is room.
    #[inline(always)]
    fn put(&mut self, word: u64) {
        // SAFETY: `lap` is kept so that this is a word of the ring, in a mapping that is never taken
        // away, and only this thread writes to it.
        unsafe {
            (*self.lap.wrapping_add(self.head as usize)).store(word, Ordering::Relaxed);
        }
        self.head += 1;
    }

    /// Like [`End::put`], where the ring may begin anew.
    fn put_around(&mut self, word: u64) {
        self.put(word);
        if self.head & (self.capacity() - 1) == 0 {
            self.lap = self.lap.wrapping_sub(self.capacity() as usize);
        }
    }

    #[inline(always)]
    fn publish(&self) {
        // SAFETY: set together with `lap`, to a header of the same mapping.
        unsafe { (*self.ring).head.store(self.head, Ordering::Release) };
    }

    /// Whether an access of a bank can be written without a mark or anything else.
    #[inline(always)]
    pub(super) fn follows(&self, bank: u64) -> bool {
        self.head < self.stop && self.bank == bank
    }

    /// Writes the word of an access that [follows](End::follows).
    #[inline(always)]
    pub(super) fn access(&mut self, word: u64) {
        self.put(word);
        self.publish();
    }

    /// Writes the word of an access after a mark if there has to be one, and makes room for the next.
    /// `stamped`: it wants a stamp of its own, which must not be taken early if it orders threads.
    pub(super) fn marked_access(
        &mut self,
        vcpu: c_uint,
        word: u64,
        bank: u32,
        stamped: bool,
        ordering: bool,
    ) {
        // Only if the ring is not open.
        if self.head >= self.limit && !self.make_room(vcpu) {
            return;
        }
        let untold = self.told_left - self.left;
        if stamped || self.head >= self.stop || untold >= STAMP_AFTER_QUARTERS {
            let now = if ordering {
                clock::stamp_after()
            } else {
                clock::stamp()
            };
            self.mark(bank, now);
            // The last access before the limit comes here, so that room is made after it; and so does
            // the one on the ring's last word.
            let last = self.head | (self.capacity() - 1);
            self.stop = (self.head + MARK_EVERY).min(self.limit - 1).min(last);
        } else if self.bank != u64::from(bank) || untold >= 4 {
            self.mark(bank, self.stamp);
            let last = self.head | (self.capacity() - 1);
            self.stop = self.stop.min(last);
        }
        self.put_around(word);
        self.publish();
        if self.head >= self.limit {
            self.make_room(vcpu);
        }
    }

    fn mark(&mut self, bank: u32, now: u64) {
        // Few, since they are sampled.
        let untold = ((self.told_left - self.left) >> 2) as u64;
        self.told_left -= (untold as i64) << 2;
        let near = bank < words::NEAR_BANKS
            && now.wrapping_sub(self.stamp) < 1 << words::STAMP_BITS
            && untold < 1 << words::UNTOLD_BITS;
        if near {
            self.put_around(words::mark(bank, now, untold));
        } else {
            self.put_around(words::far_mark(bank, untold));
            self.put_around(now);
        }
        self.stamp = now;
        self.bank = u64::from(bank);
    }

    /// The thread is about to make the second one.
    pub(super) fn begins_order(&mut self, vcpu: c_uint) {
        if self.open && !order::is_on() {
            order::begin(vcpu, group::group(), self.clock());
            self.has_turn(vcpu);
        }
    }

    /// Others may have memory in common with this process. In a call.
    pub(super) fn joins_processes(&mut self, vcpu: c_uint) {
        if self.open {
            joint::joins(vcpu, self.turn.filter(|_| order::is_on()), self.clock());
            self.has_turn(vcpu);
        }
    }

    /// Its place in the order is that of the virtual CPU.
    fn has_turn(&mut self, vcpu: c_uint) {
        self.turn = order::of(vcpu);
        if let Some(turn) = self.turn {
            order::owns(vcpu, !self.not_owner);
            self.sets_clock(turn.clock.load(Ordering::Relaxed));
        }
    }

    /// Where the thread notes what it does to a line, if it has it for itself.
    #[inline(always)]
    pub(super) fn notes<'a>(&self, line: Line<'a>) -> Option<&'a Notes> {
        line.notes_of(!self.not_owner)
    }

    /// Whether an access to a line can be made at any time: it is the thread's own, or constant and not stored to.
    #[inline(always)]
    pub(super) fn needs_no_turn(&self, line: Option<Line<'_>>, store: bool) -> bool {
        line.is_some_and(|line| self.notes(line).is_some() || !store && line.is_constant())
    }

    /// Whether a line is constant and the thread has loaded it before.
    #[inline(always)]
    pub(super) fn knows(&self, line: Line<'_>) -> bool {
        self.not_owner != 0 && line.is_constant_for(!self.not_owner)
    }

    /// Whether the ring is open, or can be opened.
    pub(super) fn opens(&mut self, vcpu: c_uint) -> bool {
        self.open || self.make_room(vcpu)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The number under which the thread has lines for itself; 0 without one.
    fn owner(&self) -> u16 {
        match self.not_owner {
            0 => 0,
            not_owner => !not_owner,
        }
    }

    /// The thread's accesses so far, in quarters.
    #[inline(always)]
    pub(super) fn number_in_quarters(&self) -> u64 {
        self.base.wrapping_sub(self.left as u64)
    }

    /// Notes an access to a line that the thread has for itself, instead of writing it. `slot_and_meta` is as
    /// in an access word. Whether it is to be [sampled](End::sample).
    #[inline(always)]
    pub(super) fn note<const ORDERED: bool>(
        &mut self,
        notes: &Notes,
        offset: u64,
        slot_and_meta: u64,
        kind: usize,
        quarters: u64,
    ) -> bool {
        let number = self.number_in_quarters() >> (2 + words::DEED_UNIT_BITS);
        let deed = words::deed(number, offset, slot_and_meta);
        let store = slot_and_meta as usize & 1;
        let granules = words::granules(offset, 1 << (slot_and_meta >> 1 & 7));
        notes.note(store, deed, quarters as u32, granules);
        if kind == 2 {
            notes.note_loaded(granules);
        }
        self.pass::<ORDERED>(kind, quarters)
    }

    /// Counts an access that is neither noted nor written; whether it is to be [sampled](End::sample), or the thread to
    /// [look up](End::looks_up).
    #[inline(always)]
    pub(super) fn pass<const ORDERED: bool>(&mut self, kind: usize, quarters: u64) -> bool {
        self.quarters[kind] += quarters;
        self.left -= quarters as i64;
        let looks_up = |turn: &Turn| turn.comes_to(self.clock());
        (ORDERED && self.turn.is_some_and(looks_up)) || self.left <= 0
    }

    /// Waits for its turn. `executes`: in the middle of a block.
    #[inline(always)]
    pub(super) fn takes_turn(&mut self, executes: bool) {
        if let Some(turn) = self.turn {
            turn.takes_turn(executes);
            self.sets_clock(turn.clock.load(Ordering::Relaxed));
        }
    }

    /// Its clock in the order: its accesses so far, in quarters, as they are counted there.
    #[inline(always)]
    pub(super) fn clock(&self) -> u64 {
        self.number_in_quarters().wrapping_add(group::shift())
    }

    fn sets_clock(&mut self, clock: u64) {
        let number = clock.wrapping_sub(group::shift());
        self.base = number.wrapping_add(self.left as u64);
    }

    /// The access is done, and all that there is to tell of it told.
    pub(super) fn looks_up(&mut self) {
        if let Some(turn) = self.turn
            && turn.comes_to(self.clock())
        {
            // It may be the last that it does.
            self.publish_counts();
            let clock = turn.looks_up();
            self.sets_clock(clock);
        }
    }

    /// A system call is over.
    pub(super) fn ends_call(&mut self) {
        if let Some(turn) = self.turn {
            let clock = turn.called();
            self.sets_clock(clock);
        }
    }

    /// Waits until a line may be taken from who has it, or from all.
    fn asks_for(&mut self, line: Line<'_>, me: u16, store: bool) {
        let taken = line.owner_beside(me).is_some_and(order::is_at_work);
        if (taken || store && line.is_constant())
            && let Some(turn) = self.turn
        {
            self.publish_counts();
            let clock = turn.requests();
            self.sets_clock(clock);
        }
    }

    /// Counts an access that is told.
    pub(super) fn count(&mut self, kind: usize, quarters: u64) {
        self.quarters[kind] += quarters;
        self.base += quarters;
    }

    /// Touches a line, maybe with a store; whether that has to be told.
    pub(super) fn touches(&mut self, vcpu: c_uint, address: u64, store: bool) -> Told {
        let (Some(process), Some(line)) = (process::current(), shadow::make(address)) else {
            return Told::Yes;
        };
        let address = address & !63;
        // Without a number it is nobody's touch, and the line is told for good.
        let me = self.owner();
        if order::is_on() {
            self.asks_for(line, me, store);
        }
        let others = self.others(|| process.tells_whole(address) || shared::has(address));
        let number = self.number_in_quarters() >> 2;
        match line.touch(address, me, number, store, &others) {
            Touch::Own => Told::WithItsLine,
            Touch::Constant => Told::No,
            Touch::First => {
                self.first_touches += 1;
                Told::WithItsLine
            }
            Touch::Again | Touch::Shared => Told::Yes,
            Touch::Taken(taken) => {
                self.taken(vcpu, &taken);
                if order::is_on() && me != 0 && taken.is_old(number) {
                    line.keep(me, number);
                    for handed in handed_over(&taken, me, number) {
                        self.taken(vcpu, &handed);
                    }
                }
                Told::Yes
            }
        }
    }

    fn others<W: Fn() -> bool>(&self, wanted: W) -> OfProcess<W> {
        OfProcess {
            wanted,
            number: self.number_in_quarters() >> 2,
            turn: self.turn.filter(|_| order::is_on()),
        }
    }

    /// Lets accesses pass, in quarters, that are told one by one.
    pub(super) fn let_pass(&mut self, quarters: u64) {
        self.base += quarters;
    }

    /// Touches a line in the order that is made; what others did to it was told.
    pub(super) fn claims(&mut self, address: u64, store: bool) {
        let Some(line) = shadow::make(address) else {
            return;
        };
        let me = self.owner();
        self.asks_for(line, me, store);
        let number = self.number_in_quarters() >> 2;
        let others = self.others(|| shared::has(order::address(address)));
        let touch = line.touch(address & !63, me, number, store, &others);
        if let Touch::Taken(taken) = touch
            && me != 0
            && taken.is_old(number)
        {
            line.keep(me, number);
            handed_over(&taken, me, number).for_each(drop);
        }
    }

    /// Lets all accesses to a line be told from now on.
    pub(super) fn share(&mut self, vcpu: c_uint, address: u64) {
        let Some(line) = shadow::make(address) else {
            return;
        };
        let touch = line.touch(address & !63, 0, 0, true, &self.others(|| true));
        if let Touch::Taken(taken) = touch {
            self.taken(vcpu, &taken);
        }
    }

    /// All accesses to what others may have from now on are told, also where the thread had it for itself before.
    pub(super) fn share_all(&mut self, vcpu: c_uint, from: u64, to: u64) {
        let others = self.others(|| true);
        let leaves_own = process::current().is_some_and(process::Process::leaves_own);
        for address in shadow::touched(from, to) {
            if let Some(line) = shadow::find(order::beyond(address)) {
                line.touch(address, 0, 0, true, &others);
            }
            if leaves_own {
                self.share(vcpu, address);
            } else if let Some(line) = shadow::find(address) {
                line.touch(address, 0, 0, true, &others);
            }
        }
    }

    fn taken(&mut self, vcpu: c_uint, taken: &words::Taken) {
        self.write_event(vcpu, EventKind::Taken, &taken.pack());
    }

    /// What an access asked for that is not told.
    pub(super) fn sample_or_look_up(&mut self, vcpu: c_uint, slot_and_meta: u64) {
        match self.left <= 0 {
            true => self.sample(vcpu, slot_and_meta),
            false => self.looks_up(),
        }
    }

    /// Writes which instruction made the last access that is not told, of those of an interval of random
    /// length.
    pub(super) fn sample(&mut self, vcpu: c_uint, slot_and_meta: u64) {
        self.random = self
            .random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let distance = ((self.random >> (64 - SAMPLE_BITS)) as i64 + 1) * 4;
        self.left += distance;
        self.told_left += distance;
        self.base = self.base.wrapping_add(distance as u64);
        let word = words::access(words::UNTOLD, 0, 0) | (slot_and_meta & (words::SLOT_BITS | 15));
        self.marked_access(vcpu, word, (slot_and_meta >> 16) as u32, true, false);
        self.publish_counts();
        if order::is_on() {
            self.looks_up();
        } else if self.not_owner != 0 {
            others::has_made(!self.not_owner, self.number_in_quarters() >> 2);
        }
    }

    fn publish_counts(&self) {
        if !self.open {
            return;
        }
        // SAFETY: open, so `ring` was set.
        let ring = unsafe { &*self.ring };
        for (count, &quarters) in ring.quarters.iter().zip(&self.quarters) {
            count.store(quarters, Ordering::Relaxed);
        }
        ring.first_touches
            .store(self.first_touches, Ordering::Relaxed);
    }

    /// Writes an event.
    pub(super) fn event(&mut self, vcpu: c_uint, kind: EventKind, a: u64, b: u64) {
        self.write_event(vcpu, kind, &[a, b]);
        self.publish_counts();
    }

    fn write_event(&mut self, vcpu: c_uint, kind: EventKind, values: &[u64]) {
        if self.head >= self.limit && !self.make_room(vcpu) {
            return;
        }
        self.event_of(words::event(kind), values);
    }

    /// Writes the words of an event, for which there is room.
    fn event_of(&mut self, first: u64, values: &[u64]) {
        let now = clock::stamp_after();
        if self.told_left - self.left >= 4 {
            self.mark(0, now);
        }
        self.put_around(first);
        self.put_around(now);
        for &value in values {
            self.put_around(value);
        }
        // The next access has a mark again, so that the reader's order is by one clock.
        self.bank = NO_BANK;
        self.stop = 0;
        self.stamp = now;
        self.publish();
    }

    /// Writes a record of the heap, of at most 255 words.
    pub(super) fn heap(&mut self, vcpu: c_uint, record: &[u64]) {
        // The event's own words, and a mark before it.
        let more = record.len() as u64 + 4;
        if self.head + more >= self.limit && !self.make_room_for(vcpu, more) {
            return;
        }
        self.event_of(words::heap_event(record.len() as u16), record);
    }

    /// Writes words that belong together.
    fn record(&mut self, vcpu: c_uint, record: &[u64]) {
        debug_assert!(record.len() < 4096);
        if self.head + record.len() as u64 >= self.limit
            && !self.make_room_for(vcpu, record.len() as u64)
        {
            return;
        }
        for &word in record {
            self.put_around(word);
        }
        self.publish();
    }

    /// Opens the ring and waits for room, whichever it needs; false if nothing is to be written.
    pub(super) fn make_room(&mut self, vcpu: c_uint) -> bool {
        self.make_room_for(vcpu, 0)
    }

    /// Opens the ring if it is not, then waits until there is room; false if nothing is to be
    /// written.
    fn make_room_for(&mut self, vcpu: c_uint, more: u64) -> bool {
        let Some(process) = process::current() else {
            return false;
        };
        if process.detached() {
            return self.goes_blind(process, vcpu);
        }
        if !self.open {
            if self.refused > 0 || !self.open_ring(process, RingKind::Thread) {
                self.is_refused(process);
                return false;
            }
            seen(vcpu);
            if order::is_on() {
                self.has_turn(vcpu);
            }
            let (pid, tid) = process::ids();
            self.event(vcpu, EventKind::ThreadStarted, pid, tid);
        }
        // SAFETY: open, so `ring` was set.
        let ring = unsafe { &*self.ring };
        let capacity = self.capacity();
        let need = more + words::LONGEST + 2;
        let mut room = capacity - (self.head - ring.tail.load(Ordering::Acquire));
        if room < need {
            room = self.wait(process, ring, need);
            if room < need {
                return self.goes_blind(process, vcpu);
            }
        }
        // In quarters, so that the collector hears of what is there while there is still room.
        process.region.ring_the_bell();
        self.limit = self.head + room.min((capacity / 4).max(need)) - (words::LONGEST + 1);
        true
    }

    /// There is no ring for an access. One is looked for among all of them, which takes as long as thousands of
    /// accesses.
    #[cold]
    fn is_refused(&mut self, process: &process::Process) {
        let lost = &process.region.header().unrecorded;
        lost.fetch_add(1, Ordering::Relaxed);
        self.refused = match self.refused {
            0 => {
                // Nobody gives rings back who is gone.
                process.looks_detached();
                ASK_AGAIN
            }
            more => more - 1,
        };
    }

    /// Nobody reads any more: nothing is written, which is `false`.
    #[cold]
    fn goes_blind(&mut self, process: &process::Process, vcpu: c_uint) -> bool {
        // What stands below would be written without asking for room.
        self.stop = 0;
        self.limit = 0;
        if vcpu != NO_VCPU {
            process.let_go();
        }
        false
    }

    fn open_ring(&mut self, process: &process::Process, kind: RingKind) -> bool {
        let image = process.image.load(Ordering::Relaxed);
        let parent = process.parent.load(Ordering::Relaxed);
        let Some(index) = process.region.claim(kind, image, parent) else {
            return false;
        };
        let (first, count) = process.region.ring_words(index);
        *self = Self::new();
        self.lap = first.as_ptr();
        self.log2_words = count.trailing_zeros() as u8;
        self.ring = process.region.ring_header(index);
        self.index = index as u32;
        self.bank = NO_BANK;
        // SAFETY: just set to a header of a mapping that is never taken away.
        let owner = unsafe { (*self.ring).owner.load(Ordering::Relaxed) } as u16;
        // Without a number of its own the thread has no lines for itself.
        self.not_owner = if owner == 0 { 0 } else { !owner };
        self.random = u64::from(owner).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.open = true;
        true
    }

    /// Waits for the collector; returns the room there is, less than `need` if there will be none.
    fn wait(&mut self, process: &process::Process, ring: &RingHeader, need: u64) -> u64 {
        let capacity = self.capacity();
        let start = process::monotonic_ns();
        let mut spins = 0;
        let room = loop {
            process.region.ring_the_bell();
            let room = capacity - (self.head - ring.tail.load(Ordering::Acquire));
            if room >= need {
                break room;
            }
            if process.detached() {
                break 0;
            }
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            ring.waiting.store(1, Ordering::SeqCst);
            let room = capacity - (self.head - ring.tail.load(Ordering::SeqCst));
            if room >= need || process.detached() {
                ring.waiting.store(0, Ordering::SeqCst);
                continue;
            }
            futex_wait(&ring.waiting, 1, LOOK);
            if ring.waiting.load(Ordering::SeqCst) != 0 {
                process.looks_detached();
            }
        };
        let waited = process::monotonic_ns().saturating_sub(start);
        ring.waited_ns.fetch_add(waited, Ordering::Relaxed);
        ring.waits.fetch_add(1, Ordering::Relaxed);
        room
    }

    fn close(&mut self, region: &Region) {
        if self.open {
            region.close(self.index as usize);
        }
        *self = Self::new();
    }
}

/// Has the owner of a line that was taken hand over what it has done with of the same page; what it did there.
fn handed_over(taken: &words::Taken, me: u16, number: u64) -> impl Iterator<Item = words::Taken> {
    let owner = taken.owner;
    taken
        .neighbours()
        .filter_map(move |address| shadow::find(address)?.hand_over(address, owner, me, number))
}

struct Ends(UnsafeCell<[End; VCPUS]>);

// SAFETY: each element is used by the thread of that virtual CPU alone, see `end`; `forget` runs
// in a process that has one thread.
unsafe impl Sync for Ends {}

/// All zero, so that no page of it exists until it is touched.
static ENDS: Ends = Ends(UnsafeCell::new([const { End::new() }; VCPUS]));
/// One past the highest virtual CPU that opened a ring.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// The end of a virtual CPU; `None` for numbers beyond the table.
///
/// # Safety
/// Only in the thread that runs this virtual CPU, and not while another reference from here lives.
#[inline(always)]
pub(super) unsafe fn end(vcpu: c_uint) -> Option<&'static mut End> {
    if vcpu as usize >= VCPUS {
        return None;
    }
    // SAFETY: in bounds; unique by the caller's promise.
    Some(unsafe { &mut (*ENDS.0.get())[vcpu as usize] })
}

/// The thread of this virtual CPU makes no more accesses.
///
/// # Safety
/// As for [`end`].
pub(super) unsafe fn close(vcpu: c_uint) {
    // SAFETY: the caller's promise.
    if let (Some(end), Some(process)) = (unsafe { end(vcpu) }, process::current()) {
        end.close(&process.region);
    }
}

/// Notes that this virtual CPU was used, for [`forget`].
pub(super) fn seen(vcpu: c_uint) {
    SEEN.fetch_max(vcpu.saturating_add(1), Ordering::Relaxed);
}

/// In a new child process: the rings are the parent's.
pub(super) fn forget() {
    let seen = (SEEN.load(Ordering::Relaxed) as usize).min(VCPUS);
    for vcpu in 0..seen {
        // SAFETY: a forked child has one thread, which is here.
        unsafe { (*ENDS.0.get())[vcpu] = End::new() };
    }
    let definitions = DEFINITIONS.load(Ordering::Relaxed);
    if !definitions.is_null() {
        // SAFETY: leaked by `define`, and used under QEMU's translation lock alone; see above.
        unsafe { *definitions = End::new() };
    }
}

static DEFINITIONS: AtomicPtr<End> = AtomicPtr::new(std::ptr::null_mut());

/// Writes a definition to the ring of this process.
///
/// # Safety
/// Only one thread at a time: the caller holds the lock of the guest.
pub(super) unsafe fn define(record: &[u64]) {
    let Some(process) = process::current() else {
        return;
    };
    if process.detached() {
        return;
    }
    let mut definitions = DEFINITIONS.load(Ordering::Relaxed);
    if definitions.is_null() {
        definitions = Box::into_raw(Box::new(End::new()));
        DEFINITIONS.store(definitions, Ordering::Relaxed);
    }
    // SAFETY: never freed; unique by the caller's promise.
    let end = unsafe { &mut *definitions };
    if !end.open && !end.open_ring(process, RingKind::Process) {
        process
            .region
            .header()
            .unrecorded
            .fetch_add(1, Ordering::Relaxed);
        return;
    }
    end.record(NO_VCPU, record);
}
