//! A client's side of one channel: the line being filled, the pending queue, the lines in flight.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::channel::{AHEAD, Channel, OPERATIONS, Operation};
use crate::job::{Answers, CALLBACK_BYTES, Kind};
use crate::line::{FAILED, Order, WIDE, WORDS, prefetch_for_writing};
use crate::stats::{ClientCounters, ticks};
use crate::sync::Ordering;

/// What the client keeps about a line until its answers were given to the callbacks.
#[repr(C, align(64))]
struct Record {
    callbacks: [u8; CALLBACK_BYTES * WORDS],
    /// The requests, while the line waits in the pending queue.
    words: [u32; WORDS],
    kind: *const Kind,
    operand: u64,
    extra: u64,
    count: u32,
    entry: u32,
    opened_at: u64,
}

impl Record {
    fn new() -> Box<Self> {
        Box::new(Self {
            callbacks: [0; CALLBACK_BYTES * WORDS],
            words: [0; WORDS],
            kind: std::ptr::null(),
            operand: 0,
            extra: 0,
            count: 0,
            entry: 0,
            opened_at: 0,
        })
    }
}

/// A line that came back: filled by [`Lane::collect`], and not moved, since copying what was stored a
/// moment ago waits for all stores before it.
pub(crate) struct Collected {
    answers: Answers,
    record: *mut Record,
    count: usize,
}

impl Collected {
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self {
            answers: Answers {
                words: [0; WORDS],
                high: [0; WORDS],
                flags: 0,
                failures: Vec::new(),
            },
            record: std::ptr::null_mut(),
            count: 0,
        }
    }
}

/// One client's requests to one shard.
pub(crate) struct Lane {
    // The line being filled; these come first since every request touches them.
    kind: *const Kind,
    operand: u64,
    extra: u64,
    words: *mut u32,
    callbacks: *mut u8,
    count: u32,
    capacity: u32,
    in_place: bool,
    record: *mut Record,
    /// How many lines to send with an operand in each request before one for all is tried again.
    pub(crate) varied: u32,
    /// Requests whose callbacks have not begun.
    outstanding: u64,

    pub(crate) channel: Arc<Channel>,
    head: usize,
    tail: usize,
    flying: usize,
    flying_records: Box<[*mut Record]>,
    pending: VecDeque<*mut Record>,
    free: Vec<*mut Record>,
    all: Vec<*mut Record>,
    /// How many lines in flight name each entry of the channel's table.
    named: [u8; OPERATIONS],
    entries: [(usize, u64, u64); OPERATIONS],
    last_entry: usize,
    opened: u64,
    timed: bool,
}

impl Lane {
    pub(crate) fn new(channel: Arc<Channel>, timed: bool) -> Self {
        let lines = channel.lines.len();
        Self {
            kind: std::ptr::null(),
            operand: 0,
            extra: 0,
            words: std::ptr::null_mut(),
            callbacks: std::ptr::null_mut(),
            count: 0,
            capacity: 0,
            in_place: false,
            record: std::ptr::null_mut(),
            varied: 0,
            outstanding: 0,
            channel,
            head: 0,
            tail: 0,
            flying: 0,
            flying_records: vec![std::ptr::null_mut(); lines].into(),
            pending: VecDeque::new(),
            free: Vec::new(),
            all: Vec::new(),
            named: [0; OPERATIONS],
            entries: [(0, 0, 0); OPERATIONS],
            last_entry: 0,
            opened: 0,
            timed,
        }
    }

    /// Whether the line being filled takes a request of this kind, operand and operation.
    #[inline(always)]
    pub(crate) fn takes(&self, kind: *const Kind, operand: u64, extra: u64) -> bool {
        std::ptr::eq(self.kind, kind) && self.operand == operand && self.extra == extra
    }

    /// Whether the line being filled is of this kind and operation.
    #[inline(always)]
    pub(crate) fn takes_kind(&self, kind: *const Kind, extra: u64) -> bool {
        std::ptr::eq(self.kind, kind) && self.extra == extra
    }

    pub(crate) fn is_filling(&self) -> bool {
        !self.kind.is_null()
    }

    /// Requests in the line being filled.
    pub(crate) fn filled(&self) -> u32 {
        self.count
    }

    /// Where to write the next request of the open line, and its callback.
    ///
    /// # Safety
    /// The line takes `kind`.
    #[inline(always)]
    pub(crate) unsafe fn place(&self, kind: &Kind) -> (*mut u32, *mut u8) {
        let count = self.count as usize;
        // SAFETY: a line that takes the kind has room for another request until it is full.
        //
        // Computed from the count, not kept as two pointers that advance: those the compiler loads
        // as one vector, which cannot be forwarded from the two stores that began the line and so
        // waits for every store before them, that is, for the last line to arrive at this core.
        unsafe {
            (
                self.words.add(count * kind.words),
                self.callbacks.add(count * kind.callback_bytes),
            )
        }
    }

    /// The request and callback were written. True if the line is full and is to be closed.
    #[inline(always)]
    pub(crate) fn written(&mut self) -> bool {
        self.count += 1;
        self.outstanding += 1;
        self.count == self.capacity
    }

    /// Whether no request waits, flies or is being filled in.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    pub(crate) fn flying(&self) -> usize {
        self.flying
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a request line is free now, without waiting for an answer.
    pub(crate) fn has_free_line(&self) -> bool {
        self.flying < self.channel.lines.len()
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
    /// else in a record of its own.
    pub(crate) fn open(&mut self, kind: &'static Kind, operand: u64, extra: u64, in_place: bool) {
        debug_assert!(!self.is_filling());
        debug_assert!(!in_place || (self.pending.is_empty() && self.has_free_line()));
        let record = self.record();
        self.record = record;
        self.kind = kind;
        self.operand = operand;
        self.extra = extra;
        self.count = 0;
        self.capacity = kind.capacity as u32;
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
        // Before the first request is written: who drops a value counts the lines that may name it.
        self.opened += 1;
        self.channel.opened.0.store(self.opened, Ordering::Release);
    }

    /// Ends the line being filled: publishes it, or puts it into the pending queue. True if it was
    /// published.
    #[inline]
    pub(crate) fn close(&mut self) -> bool {
        let record = self.record;
        let operation = Operation {
            kind: self.kind,
            // Loaded one by one: as one vector they could not be forwarded from the stores that began
            // the line, and would wait until every store before those has left the core.
            // SAFETY: plain fields of ours.
            operand: unsafe { std::ptr::read_volatile(&raw const self.operand) },
            // SAFETY: as above.
            extra: unsafe { std::ptr::read_volatile(&raw const self.extra) },
        };
        // SAFETY: the record of the line being filled.
        unsafe {
            (*record).kind = self.kind;
            (*record).count = self.count;
        }
        self.kind = std::ptr::null();
        if self.in_place {
            self.publish(record, operation, self.count);
        } else {
            // SAFETY: as above.
            unsafe {
                (*record).operand = operation.operand;
                (*record).extra = operation.extra;
            }
            self.pending.push_back(record);
        }
        self.in_place
    }

    /// The entry of the channel's table for an operation, written if it is new.
    #[inline]
    fn entry(&mut self, operation: Operation) -> usize {
        let key = (operation.kind as usize, operation.operand, operation.extra);
        let last = &self.entries[self.last_entry];
        if last.0 == key.0 && last.1 == key.1 && last.2 == key.2 {
            return self.last_entry;
        }
        self.find_entry(operation, key)
    }

    #[cold]
    fn find_entry(&mut self, operation: Operation, key: (usize, u64, u64)) -> usize {
        let hash = (key.0 >> 4) as u64 ^ key.1.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.2 >> 4;
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
                if self.entries[index].0 == 0 {
                    break;
                }
            }
        }
        let index = free.expect("more entries than lines in flight");
        self.channel.set_operation(index, operation);
        self.entries[index] = key;
        self.last_entry = index;
        index
    }

    #[inline(always)]
    fn publish(&mut self, record: *mut Record, operation: Operation, count: u32) {
        let entry = self.entry(operation);
        self.named[entry] += 1;
        // SAFETY: as above.
        unsafe { (*record).entry = entry as u32 };
        self.flying_records[self.head] = record;
        self.channel.lines[self.head].publish(Order {
            count,
            operation: entry as u32,
        });
        let lines = self.channel.lines.len();
        self.head = next(self.head, 1, lines);
        self.flying += 1;
        prefetch_for_writing(&raw const self.channel.lines[next(self.head, AHEAD, lines)]);
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
        // SAFETY: a closed record, and the line is the client's turn.
        let (operation, count) = unsafe {
            let words = self.channel.lines[self.head].words();
            words.cast::<[u32; WORDS]>().write((*record).words);
            let operation = Operation {
                kind: (*record).kind,
                operand: (*record).operand,
                extra: (*record).extra,
            };
            (operation, (*record).count)
        };
        self.publish(record, operation, count);
        true
    }

    /// Takes the oldest line in flight out of the ring, if it has come back. The caller gives its
    /// answers to the callbacks with [`complete`] and the record back with [`Lane::recycle`].
    #[inline]
    pub(crate) fn collect(&mut self, counters: &ClientCounters, into: &mut Collected) -> bool {
        if self.flying == 0 {
            return false;
        }
        counters.polls.add(1);
        let line = &self.channel.lines[self.tail];
        let Some(flags) = line.answered() else {
            return false;
        };
        counters.ready.add(1);
        let record = self.flying_records[self.tail];
        // SAFETY: the line is the client's turn; its upper halves were written if it says so.
        unsafe {
            into.answers.words = *line.words().cast();
            if flags & WIDE != 0 {
                into.answers.high = *line.high().cast();
            }
        }
        into.answers.flags = flags;
        if flags & FAILED != 0 {
            into.answers.failures = self.channel.take_failures(self.tail);
        }
        self.tail = next(self.tail, 1, self.channel.lines.len());
        self.flying -= 1;
        // SAFETY: the record of a line in flight.
        let (count, entry, opened_at) =
            unsafe { ((*record).count, (*record).entry, (*record).opened_at) };
        self.named[entry as usize] -= 1;
        self.outstanding -= u64::from(count);
        counters.lines.add(1);
        counters.requests.add(u64::from(count));
        if self.timed {
            counters
                .latency_ticks
                .add(ticks().saturating_sub(opened_at));
            counters.latency_lines.add(1);
        }
        into.record = record;
        into.count = count as usize;
        true
    }

    /// Gives a record back whose callbacks have all been taken.
    #[inline]
    pub(crate) fn recycle(&mut self, collected: &Collected) {
        self.free.push(collected.record);
    }
}

/// Gives answers to callbacks, from the index in `done` on.
///
/// # Safety
/// The line was collected and not recycled, and `done` holds what the last call left there.
#[inline]
pub(crate) unsafe fn complete(collected: &Collected, done: &Cell<usize>) {
    // SAFETY: the record stands still until it is recycled; its kind is a constant.
    unsafe {
        let record = collected.record;
        let callbacks = (&raw mut (*record).callbacks).cast();
        ((*(*record).kind).complete)(&collected.answers, callbacks, done, collected.count);
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
            // SAFETY: made by `Box::into_raw` in `record`, and dropped once. The client waited for
            // all its answers, so no callback is left in it.
            drop(unsafe { Box::from_raw(record) });
        }
    }
}
