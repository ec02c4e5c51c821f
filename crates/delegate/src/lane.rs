//! A client's side of one channel: the line being filled, the pending queue, the lines in flight.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr::read_volatile;
use std::sync::Arc;

use crate::channel::{AHEAD, Channel, OPERATIONS, Operation};
use crate::job::{Answers, CALLBACK_BYTES, Callbacks, Captured, Kind};
use crate::line::{FAILED, Order, WORDS, Word};
use crate::stats::{ClientCounters, ticks};
use crate::sync::Ordering;

/// What the client keeps about a line until its answers were given to the callbacks.
#[repr(C, align(64))]
pub(crate) struct Record {
    callbacks: [MaybeUninit<u8>; CALLBACK_BYTES * WORDS],
    /// The requests, while the line waits in the pending queue.
    words: [Word; WORDS],
    kind: *const Kind,
    /// The callback of all requests, or null: see [`Callbacks`].
    common: *const (),
    operand: u64,
    identity: u64,
    captured: Captured,
    count: u32,
    opened_at: u64,
}

impl Record {
    fn callbacks(&mut self) -> Callbacks {
        Callbacks {
            each: (&raw mut self.callbacks).cast(),
            common: self.common,
        }
    }

    fn new() -> Box<Self> {
        Box::new(Self {
            callbacks: [MaybeUninit::uninit(); CALLBACK_BYTES * WORDS],
            words: [Word::uninit(); WORDS],
            kind: std::ptr::null(),
            common: std::ptr::null(),
            operand: 0,
            identity: 0,
            captured: Captured::NOTHING,
            count: 0,
            opened_at: 0,
        })
    }
}

/// A line whose requests were run, until its callbacks have run too.
#[derive(Debug)]
pub(crate) struct Done {
    record: *mut Record,
    answers: Answers,
    callbacks: Callbacks,
    kind: *const Kind,
    count: usize,
}

impl Done {
    /// Whether the answers are as they are in the line, of requests of this sort.
    #[inline(always)]
    pub(crate) fn is_plain(&self, sort: &Sort) -> bool {
        self.answers.flags == 0
            && std::ptr::eq(self.callbacks.common, sort.common)
            && std::ptr::eq(self.kind, sort.kind)
    }

    /// How many requests the line has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Gives the answers to the callbacks, from the index in `next` on.
    ///
    /// # Safety
    /// The line is not settled, and `next` holds what the last call left there.
    #[inline(always)]
    pub(crate) unsafe fn give(&self, next: &Cell<usize>) {
        // SAFETY: the record stands still until it is free; its kind is a constant.
        unsafe { ((*self.kind).complete)(&self.answers, &self.callbacks, next, self.count) };
    }

    /// Whether the line has a share in a common callback.
    #[inline(always)]
    pub(crate) fn has_share(&self) -> bool {
        !self.callbacks.common.is_null()
    }

    /// Gives the share in the common callback back.
    ///
    /// # Safety
    /// The line has one, and this is the only time.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: the contract.
        unsafe { ((*self.kind).release)(self.callbacks.common) };
    }
}

/// A line that was filled and not sent.
#[derive(Debug)]
pub(crate) struct Filled {
    record: *mut Record,
    pub(crate) operation: Operation,
    pub(crate) words: *mut u32,
    pub(crate) count: usize,
}

impl Filled {
    /// The line with its answers in the place of its requests.
    pub(crate) fn answered(self, answers: Answers) -> Done {
        // SAFETY: the record of this line, which no other list has.
        let callbacks = unsafe { (*self.record).callbacks() };
        Done {
            record: self.record,
            answers,
            callbacks,
            kind: self.operation.kind,
            count: self.count,
        }
    }
}

/// What the requests of a line have in common.
pub(crate) struct Sort {
    pub(crate) kind: &'static Kind,
    pub(crate) operand: u64,
    /// Tells the operations of this kind apart: of the same have captured the same.
    pub(crate) identity: u64,
    pub(crate) captured: Captured,
    pub(crate) common: *const (),
}

impl Sort {
    /// Of closures, which travel in their requests: nothing but their kind.
    #[inline(always)]
    pub(crate) fn of(kind: &'static Kind) -> Self {
        Self {
            kind,
            operand: 0,
            identity: 0,
            captured: Captured::NOTHING,
            common: std::ptr::null(),
        }
    }
}

/// What the lines have in common that name the same entry of the channel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    kind: *const Kind,
    operand: u64,
    identity: u64,
}

impl Key {
    const NONE: Self = Self {
        kind: std::ptr::null(),
        operand: 0,
        identity: 0,
    };
}

/// One client's requests to one shard.
pub(crate) struct Lane {
    // The line being filled; these come first since every request touches them.
    kind: *const Kind,
    /// The callback of all requests of the line, or null.
    common: *const (),
    operand: u64,
    identity: u64,
    words: *mut u32,
    callbacks: *mut u8,
    count: u32,
    in_place: bool,
    record: *mut Record,
    captured: Captured,
    /// How many lines to send with an operand in each request before one for all is tried again.
    pub(crate) varied: u32,
    /// Lines begun whose callbacks have not all run.
    unsettled: u32,

    pub(crate) channel: Arc<Channel>,
    head: usize,
    tail: usize,
    flying: usize,
    flying_records: Box<[*mut Record]>,
    /// The entry of the channel's table that each line in flight names.
    flying_entries: Box<[u8]>,
    pending: VecDeque<*mut Record>,
    free: Vec<*mut Record>,
    all: Vec<*mut Record>,
    /// How many lines in flight name each entry of the channel's table.
    named: [u8; OPERATIONS],
    entries: [Key; OPERATIONS],
    last_entry: usize,
    opened: u64,
    run_here: u64,
    timed: bool,
}

impl Lane {
    pub(crate) fn new(channel: Arc<Channel>, timed: bool) -> Self {
        let lines = channel.lines.len();
        Self {
            kind: std::ptr::null(),
            common: std::ptr::null(),
            operand: 0,
            identity: 0,
            words: std::ptr::null_mut(),
            callbacks: std::ptr::null_mut(),
            count: 0,
            in_place: false,
            record: std::ptr::null_mut(),
            captured: Captured::NOTHING,
            varied: 0,
            unsettled: 0,
            channel,
            head: 0,
            tail: 0,
            flying: 0,
            flying_records: vec![std::ptr::null_mut(); lines].into(),
            flying_entries: vec![0; lines].into(),
            pending: VecDeque::new(),
            free: Vec::new(),
            all: Vec::new(),
            named: [0; OPERATIONS],
            entries: [Key::NONE; OPERATIONS],
            last_entry: 0,
            opened: 0,
            run_here: 0,
            timed,
        }
    }

    /// Whether the line being filled takes a request of this kind, operand and operation.
    #[inline(always)]
    pub(crate) fn takes(&self, kind: *const Kind, operand: u64, identity: u64) -> bool {
        std::ptr::eq(self.kind, kind) && self.operand == operand && self.identity == identity
    }

    /// Whether the line being filled has this common callback, and so takes its requests.
    #[inline(always)]
    pub(crate) fn takes_common(&self, common: *const ()) -> bool {
        std::ptr::eq(self.common, common)
    }

    /// Whether the line being filled is of this kind and operation.
    #[inline(always)]
    pub(crate) fn takes_kind(&self, kind: *const Kind, identity: u64) -> bool {
        std::ptr::eq(self.kind, kind) && self.identity == identity
    }

    pub(crate) fn is_filling(&self) -> bool {
        !self.kind.is_null()
    }

    /// Requests in the line being filled.
    pub(crate) fn filled(&self) -> u32 {
        self.count
    }

    /// Lets `write` put the next `more` requests and their callbacks or tags into the open line, where
    /// requests have so many words and callbacks so many bytes. True if the line, which has room for
    /// `capacity`, is full then and is to be closed.
    ///
    /// # Safety
    /// The line takes requests of this shape, and has room for so many.
    #[inline(always)]
    pub(crate) unsafe fn put(
        &mut self,
        more: usize,
        words: usize,
        callback_bytes: usize,
        capacity: usize,
        write: impl FnOnce(*mut u32, *mut u8),
    ) -> bool {
        // Read once: after the write the compiler would read it again.
        let count = self.count as usize;
        // SAFETY: a line that takes the kind has room for another request until it is full.
        //
        // Computed from the count, not kept as two pointers that advance: those the compiler loads
        // as one vector, which cannot be forwarded from the two stores that began the line and so
        // waits for every store before them, that is, for the last line to arrive at this core.
        unsafe {
            write(
                self.words.add(count * words),
                self.callbacks.add(count * callback_bytes),
            );
        }
        self.count = (count + more) as u32;
        count + more == capacity
    }

    /// Whether no request waits, flies or is being filled in, and no callback of one runs.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.unsettled == 0
    }

    /// Whether there is nothing but the line being filled.
    pub(crate) fn is_first(&self) -> bool {
        self.unsettled == 1 && self.is_filling()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a request line is free now, without waiting for an answer.
    pub(crate) fn has_free_line(&self) -> bool {
        self.flying < self.channel.lines.len()
    }

    /// Whether a further line begins at once, also if the one being filled has to be closed for it;
    /// `most` may be pending.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        let filling = usize::from(self.is_filling());
        let (pending, flying) = if self.in_place {
            (self.pending(), self.flying + filling)
        } else {
            (self.pending() + filling, self.flying)
        };
        pending < most || pending == 0 && flying < self.channel.lines.len()
    }

    /// Whether the oldest line in flight has come back.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.flying > 0 && self.channel.lines[self.tail].answered().is_some()
    }

    fn record(&mut self) -> *mut Record {
        self.free.pop().unwrap_or_else(|| {
            let record = Box::into_raw(Record::new());
            self.all.push(record);
            record
        })
    }

    /// Begins a line: in the next request line if `in_place` (it is free, and nothing is pending),
    /// else in a record of its own. The line takes the share in its common callback over.
    pub(crate) fn open(&mut self, sort: &Sort, in_place: bool) {
        debug_assert!(!self.is_filling());
        debug_assert!(!in_place || (self.pending.is_empty() && self.has_free_line()));
        let record = self.record();
        self.record = record;
        self.kind = sort.kind;
        self.common = sort.common;
        self.operand = sort.operand;
        self.identity = sort.identity;
        self.captured = sort.captured;
        self.count = 0;
        self.unsettled += 1;
        self.in_place = in_place;
        // SAFETY: records live as long as the lane, and this one is in no other list.
        unsafe {
            self.callbacks = (&raw mut (*record).callbacks).cast();
            self.words = if in_place {
                self.channel.lines[self.head].words()
            } else {
                (&raw mut (*record).words).cast()
            };
            if self.timed {
                (*record).opened_at = ticks();
            }
        }
        self.count_opened();
    }

    /// Before the first request is written: who drops a value counts the lines that may name it.
    #[inline(always)]
    fn count_opened(&mut self) {
        self.opened += 1;
        self.channel.opened.0.store(self.opened, Ordering::Release);
    }

    /// The lines that were not sent never will be: nobody waits for them to end a value.
    pub(crate) fn forget_pending(&mut self) {
        self.opened -= self.pending.len() as u64;
        self.channel.opened.0.store(self.opened, Ordering::Release);
    }

    /// Whether the line being filled is a request line.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// A line that was taken out was run without the server.
    pub(crate) fn count_run_here(&mut self) {
        self.run_here += 1;
        let counter = &self.channel.run_here.0;
        counter.store(self.run_here, Ordering::Release);
    }

    /// Takes the line being filled out. It was not begun in place.
    pub(crate) fn take_filled(&mut self) -> Filled {
        debug_assert!(self.is_filling() && !self.in_place);
        let record = self.record;
        let key = self.end();
        Filled {
            record,
            operation: Operation {
                kind: key.kind,
                operand: key.operand,
                captured: self.captured,
            },
            words: self.words,
            count: self.count as usize,
        }
    }

    /// Ends the line being filled.
    #[inline(always)]
    fn end(&mut self) -> Key {
        // Loaded one by one: as one vector they could not be forwarded from the stores that began the
        // line, and would wait until every store before those has left the core.
        // SAFETY: plain fields of ours, and the record of the line being filled.
        let key = unsafe {
            let (operand, identity) = (
                read_volatile(&raw const self.operand),
                read_volatile(&raw const self.identity),
            );
            (*self.record).kind = self.kind;
            (*self.record).common = self.common;
            (*self.record).count = self.count;
            Key {
                kind: self.kind,
                operand,
                identity,
            }
        };
        self.kind = std::ptr::null();
        self.common = std::ptr::null();
        key
    }

    /// Ends the line being filled: publishes it, or puts it into the pending queue. True if it was
    /// published.
    #[inline]
    pub(crate) fn close(&mut self) -> bool {
        let record = self.record;
        let key = self.end();
        if self.in_place {
            let captured = &raw const self.captured;
            // SAFETY: a field of ours, which is not written meanwhile.
            unsafe { self.publish(record, key, captured, self.count) };
        } else {
            // SAFETY: the record of the line that was being filled, which is in no list yet.
            unsafe {
                (*record).operand = key.operand;
                (*record).identity = key.identity;
                (*record).captured = self.captured;
            }
            self.pending.push_back(record);
        }
        self.in_place
    }

    /// The entry of the channel's table for a key, written if it is new.
    ///
    /// # Safety
    /// `captured` can be read.
    #[inline]
    unsafe fn entry(&mut self, key: Key, captured: *const Captured) -> usize {
        let last = &self.entries[self.last_entry];
        if last.kind == key.kind && last.operand == key.operand && last.identity == key.identity {
            return self.last_entry;
        }
        // SAFETY: the contract. Read here only: most lines name the entry of the last.
        let captured = unsafe { *captured };
        self.find_entry(key, captured)
    }

    #[cold]
    fn find_entry(&mut self, key: Key, captured: Captured) -> usize {
        let hash = (key.kind as usize >> 4) as u64
            ^ key.operand.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ key.identity >> 4;
        let begin = (hash ^ hash >> 32) as usize;
        let mut free = None;
        for step in 0..OPERATIONS {
            let index = (begin + step) % OPERATIONS;
            if self.entries[index] == key {
                self.last_entry = index;
                return index;
            }
            if self.named[index] == 0 && free.is_none() {
                free = Some(index);
                // An entry that nothing names is as good as any further one.
                if self.entries[index].kind.is_null() {
                    break;
                }
            }
        }
        let index = free.expect("more entries than lines in flight");
        let operation = Operation {
            kind: key.kind,
            operand: key.operand,
            captured,
        };
        self.channel.set_operation(index, operation);
        self.entries[index] = key;
        self.last_entry = index;
        index
    }

    /// # Safety
    /// `captured` can be read.
    #[inline(always)]
    unsafe fn publish(
        &mut self,
        record: *mut Record,
        key: Key,
        captured: *const Captured,
        count: u32,
    ) {
        // SAFETY: the contract.
        let entry = unsafe { self.entry(key, captured) };
        self.named[entry] += 1;
        self.flying_entries[self.head] = entry as u8;
        self.flying_records[self.head] = record;
        self.channel.lines[self.head].publish(Order {
            count,
            operation: entry as u32,
            alone: false,
        });
        let lines = self.channel.lines.len();
        self.head = next(self.head, 1, lines);
        self.flying += 1;
        // SAFETY: kinds are constants.
        let words = unsafe { (*key.kind).words } * count as usize;
        self.channel.lines[next(self.head, AHEAD, lines)].prefetch(words);
    }

    /// Moves the oldest pending line into a free request line, if there are both.
    pub(crate) fn send_pending(&mut self, counters: &ClientCounters) -> bool {
        if !self.has_free_line() {
            return false;
        }
        counters.pops.add(1);
        let Some(record) = self.pending.pop_front() else {
            counters.failed_pops.add(1);
            return false;
        };
        // SAFETY: a closed record, which stands still, and the line is the client's turn.
        unsafe {
            let key = Key {
                kind: (*record).kind,
                operand: (*record).operand,
                identity: (*record).identity,
            };
            let count = (*record).count;
            let words = count as usize * (*key.kind).words;
            let to = self.channel.lines[self.head].words().cast::<Word>();
            std::ptr::copy_nonoverlapping((&raw const (*record).words).cast(), to, words);
            self.publish(record, key, &raw const (*record).captured, count);
        }
        true
    }

    /// The oldest line in flight, if it has come back. It stays in its place until it is settled.
    #[inline(always)]
    pub(crate) fn collect(&self, counters: &ClientCounters) -> Option<Done> {
        if self.flying == 0 {
            return None;
        }
        counters.polls.add(1);
        if !self.is_answered() {
            return None;
        }
        counters.ready.add(1);
        let record = self.flying_records[self.tail];
        // SAFETY: the record of a line in flight.
        let (kind, count, opened_at, callbacks) = unsafe {
            let record = &mut *record;
            let callbacks = record.callbacks();
            (record.kind, record.count, record.opened_at, callbacks)
        };
        counters.lines.add(1);
        counters.requests.add(u64::from(count));
        if self.timed {
            counters
                .latency_ticks
                .add(ticks().saturating_sub(opened_at));
            counters.latency_lines.add(1);
        }
        Some(Done {
            record,
            answers: self.answers(),
            callbacks,
            kind,
            count: count as usize,
        })
    }

    /// Frees the request line of what [`Lane::collect`] gave, whose callbacks have run.
    #[inline]
    pub(crate) fn settle(&mut self, done: &Done) {
        self.land();
        self.free(done);
    }

    /// Frees the oldest request line in flight.
    #[inline(always)]
    fn land(&mut self) {
        let entry = self.flying_entries[self.tail];
        self.named[entry as usize] -= 1;
        self.tail = next(self.tail, 1, self.channel.lines.len());
        self.flying -= 1;
    }

    /// Sends the one request that `write` makes, on a lane that is idle. Nobody collects it but
    /// [`Lane::collect_alone`]. Until then no other line is free: the ring goes on behind it, where the
    /// server does not look yet.
    #[inline(always)]
    pub(crate) fn send_alone(&mut self, kind: &'static Kind, write: impl FnOnce(*mut u32)) {
        debug_assert!(self.is_idle());
        let key = Key { kind, ..Key::NONE };
        // SAFETY: closures travel in their requests, and nothing in the table.
        let entry = unsafe { self.entry(key, &Captured::NOTHING) };
        self.named[entry] += 1;
        self.flying_entries[self.head] = entry as u8;
        self.flying = self.channel.lines.len();
        self.unsettled = 1;
        self.count_opened();
        // Nothing is stored between the request and the header: the server is looking at the line, and
        // takes it as soon as a part of it is written.
        let line = &self.channel.lines[self.head];
        write(line.words());
        line.publish(Order {
            count: 1,
            operation: entry as u32,
            alone: true,
        });
    }

    /// Takes the answer of the line that was sent alone and has come back: what `take` makes of it.
    #[inline(always)]
    pub(crate) fn collect_alone<R>(
        &mut self,
        counters: &ClientCounters,
        take: impl FnOnce(&Answers) -> R,
    ) -> R {
        counters.ready.add(1);
        counters.polls.add(1);
        counters.lines.add(1);
        counters.requests.add(1);
        let answer = take(&self.answers());
        self.named[self.flying_entries[self.head] as usize] -= 1;
        self.flying = 0;
        self.unsettled -= 1;
        answer
    }

    /// What came back in the oldest line in flight.
    #[inline(always)]
    fn answers(&self) -> Answers {
        let line = &self.channel.lines[self.tail];
        let flags = line.answered().unwrap_or(0);
        Answers {
            words: line.words(),
            high: line.high(),
            flags,
            failures: if flags & FAILED == 0 {
                Vec::new()
            } else {
                self.channel.take_failures(self.tail)
            },
        }
    }

    /// Begins the next line in place like the one that [`Lane::collect`] gave, whose callbacks have
    /// run: with its record, and with its share in their common callback.
    #[inline(always)]
    pub(crate) fn reopen(&mut self, done: &Done, sort: &Sort) {
        self.land();
        self.refill(done, sort);
        self.in_place = true;
        self.words = self.channel.lines[self.head].words();
    }

    /// Begins a line like the one that was taken out and run, whose callbacks have run: with its record,
    /// and with its share in their common callback.
    #[inline(always)]
    pub(crate) fn refill(&mut self, done: &Done, sort: &Sort) {
        debug_assert!(!self.is_filling() && self.pending.is_empty());
        self.record = done.record;
        self.kind = sort.kind;
        self.common = sort.common;
        self.operand = sort.operand;
        self.identity = sort.identity;
        self.captured = sort.captured;
        self.count = 0;
        self.in_place = false;
        self.callbacks = done.callbacks.each;
        // SAFETY: records live as long as the lane, and this one is in no other list.
        unsafe {
            self.words = (&raw mut (*done.record).words).cast();
            if self.timed {
                (*done.record).opened_at = ticks();
            }
        }
        self.count_opened();
    }

    /// Takes the record of a line back whose callbacks have run.
    #[inline]
    pub(crate) fn free(&mut self, done: &Done) {
        self.unsettled -= 1;
        self.free.push(done.record);
    }
}

#[inline(always)]
fn next(index: usize, step: usize, lines: usize) -> usize {
    let index = index + step;
    if index >= lines { index % lines } else { index }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for record in self.all.drain(..) {
            // SAFETY: made by `Box::into_raw` in `record`, and dropped once. Callbacks that are left in it, of a
            // client that was given up, are bytes here: what they borrow may be gone.
            drop(unsafe { Box::from_raw(record) });
        }
    }
}
