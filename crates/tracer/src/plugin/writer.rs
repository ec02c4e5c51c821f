//! The writing ends of the rings: one for each virtual CPU, which in user mode is a thread.

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::process;
use crate::clock;
use crate::region::{Region, RingHeader, RingKind, futex_wait};
use crate::words::{self, EventKind};

/// Virtual CPUs that can be told apart. QEMU numbers them by how many live at a time.
const VCPUS: usize = 1 << 16;
/// How long a full ring is looked at before the writer sleeps.
const SPINS: u32 = 200;
/// A sleeper looks this often whether the collector is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A mark stands in front of at most so many accesses.
const MARK_EVERY: u64 = 16;
/// A bank that no access is of.
const NO_BANK: u64 = u64::MAX;

/// The end of a ring. It is on one line, and an access needs the first five.
#[repr(C, align(64))]
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
    /// Room is no longer waited for.
    blind: bool,
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
            blind: false,
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
        if stamped || self.head >= self.stop {
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
        } else if self.bank != u64::from(bank) {
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
        if bank < words::NEAR_BANKS && now.wrapping_sub(self.stamp) < 1 << words::STAMP_BITS {
            self.put_around(words::mark(bank, now));
        } else {
            self.put_around(words::far_mark(bank));
            self.put_around(now);
        }
        self.stamp = now;
        self.bank = u64::from(bank);
    }

    /// Writes an event.
    pub(super) fn event(&mut self, vcpu: c_uint, kind: EventKind, a: u64, b: u64) {
        if self.head >= self.limit && !self.make_room(vcpu) {
            return;
        }
        let now = clock::stamp_after();
        self.put_around(words::event(kind));
        self.put_around(now);
        self.put_around(a);
        self.put_around(b);
        // The next access has a mark again, so that the reader's order is by one clock.
        self.bank = NO_BANK;
        self.stop = 0;
        self.stamp = now;
        self.publish();
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
        if !self.open {
            if process.detached() {
                return false;
            }
            if !self.open_ring(process, RingKind::Thread) {
                process
                    .region
                    .header()
                    .unrecorded
                    .fetch_add(1, Ordering::Relaxed);
                return false;
            }
            seen(vcpu);
            let (pid, tid) = process::ids();
            self.event(vcpu, EventKind::ThreadStarted, pid, tid);
        }
        if self.blind {
            return false;
        }
        // SAFETY: open, so `ring` was set.
        let ring = unsafe { &*self.ring };
        let capacity = self.capacity();
        let need = more + words::LONGEST + 2;
        let mut room = capacity - (self.head - ring.tail.load(Ordering::Acquire));
        if room < need {
            room = self.wait(process, ring, need);
            if room < need {
                return false;
            }
        }
        // In quarters, so that the collector hears of what is there while there is still room.
        process.region.ring_the_bell();
        self.limit = self.head + room.min((capacity / 4).max(need)) - (words::LONGEST + 1);
        true
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
                self.blind = true;
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
            if ring.waiting.load(Ordering::SeqCst) != 0 && !process.collector_lives() {
                process::end_for_lack_of_a_collector();
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
/// Only one thread at a time: the caller holds the lock of [`process::Process`].
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
    end.record(u32::MAX, record);
}
