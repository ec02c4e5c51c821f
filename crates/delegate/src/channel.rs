//! The protocol of one client and one server: a ring of request lines that both go round in order.

use std::sync::Arc;

use crate::job::{Captured, Failures, Kind, Run};
use crate::line::{Line, Order, WORDS, Word, prefetch_for_writing};
use crate::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell};
use crate::wait::Parker;

/// Entries of a channel's table of operations: more than lines can be in flight, so a free one is
/// always found.
pub(crate) const OPERATIONS: usize = 64;
const _: () = assert!(OPERATIONS > crate::line::MOST_LINES);

/// How many lines ahead a client asks for, so that they have arrived when it gets there: two, three and
/// four differ by 8 %. A server asks for the next one only: with the one after it, it answered 1.4 to 2.6
/// times fewer requests where a round trip takes 400 ns, as visits find few lines there.
pub(crate) const AHEAD: usize = 2;

/// Most passes for which a server leaves a channel alone after a visit, some microseconds. Looking at a
/// line takes it from the client that fills it. So a visit takes half of the ring at most, and the
/// server stays away as long as it takes the client to fill that: longer after a visit that came to a
/// line which was not sent, shorter after one that did not. A line of one request, as a waiting call
/// sends, brings no rest, and neither does a last one that is not full: its client waits.
const MOST_REST: u32 = 40;
/// How much longer, in passes. Shorter by one, so that most visits find what they expect.
const LONGER: u32 = 2;

/// An entry of the table: what the lines that name it ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: *const Kind,
    pub(crate) operand: u64,
    pub(crate) captured: Captured,
}

/// A counter that one thread writes often, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(pub(crate) AtomicU64);

/// The operations that lines in flight name, on lines of their own: the server reads an entry for each
/// line of requests, and what the client writes as often must not lie beside it.
#[derive(Debug)]
#[repr(align(128))]
struct Table([UnsafeCell<Operation>; OPERATIONS]);

/// What one client and one server share.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) lines: Box<[Line]>,
    operations: Box<Table>,
    failures: Box<[UnsafeCell<Failures>]>,
    /// Lines that the client has begun to fill since it exists: what it asked before a moment is
    /// done when so many lines are answered.
    pub(crate) opened: Counter,
    /// Of those, the lines that the client ran itself.
    pub(crate) run_here: Counter,
    /// The shard's server has an end of it. Changed with the shard's list of channels locked.
    pub(crate) known: AtomicBool,
    /// The client is gone: this ends when all lines that it sent are answered.
    pub(crate) left: AtomicBool,
    /// Where the client sleeps.
    pub(crate) parker: Arc<Parker>,
}

// SAFETY: the lines hand their words over (see `Line`); an entry of the table is written by the
// client while no line in flight names it, and read by the server between a line's request and
// answer; a line's failures are touched by the side whose turn the line is.
unsafe impl Sync for Channel {}
// SAFETY: what it holds goes with it; the kinds that the table points to are constants.
unsafe impl Send for Channel {}

impl Channel {
    pub(crate) fn new(lines: usize, parker: Arc<Parker>) -> Self {
        let empty = Operation {
            kind: std::ptr::null(),
            operand: 0,
            captured: Captured::NOTHING,
        };
        Self {
            lines: (0..lines).map(|_| Line::new()).collect(),
            operations: Box::new(Table(std::array::from_fn(|_| UnsafeCell::new(empty)))),
            failures: (0..lines).map(|_| UnsafeCell::new(Vec::new())).collect(),
            opened: Counter::default(),
            run_here: Counter::default(),
            known: AtomicBool::new(false),
            left: AtomicBool::new(false),
            parker,
        }
    }

    /// Client: writes an entry that no line in flight names.
    pub(crate) fn set_operation(&self, index: usize, operation: Operation) {
        // SAFETY: the client's to write, as the caller says.
        self.operations.0[index].with_mut(|entry| unsafe { *entry = operation });
    }

    fn operation(&self, order: Order) -> Operation {
        // SAFETY: the entry stands still while a line that names it is in flight.
        self.operations.0[order.operation as usize].with(|entry| unsafe { *entry })
    }

    /// Client: the failures of a line that came back with [`FAILED`].
    pub(crate) fn take_failures(&self, line: usize) -> Failures {
        // SAFETY: the line is the client's turn.
        self.failures[line].with_mut(|failures| std::mem::take(unsafe { &mut *failures }))
    }
}

/// What was done in a visit to a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) lines: u64,
    pub(crate) requests: u64,
}

/// The server's place in a channel.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    pub(crate) channel: Arc<Channel>,
    next: usize,
    /// Lines answered since the channel exists.
    answered: u64,
    /// Passes to leave the channel alone.
    pub(crate) rest: u32,
    /// Passes to leave it alone after the next visit.
    pace: u32,
    /// Lines that the last visit found.
    expected: u64,
    /// How many lines were answered when [`ServerEnd::was_idle`] was asked last.
    looked_at: u64,
}

impl ServerEnd {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self {
            channel,
            next: 0,
            answered: 0,
            rest: 0,
            pace: 0,
            expected: 0,
            looked_at: 0,
        }
    }

    /// How many of the lines that the client began are done.
    pub(crate) fn done(&self) -> u64 {
        self.answered + self.channel.run_here.0.load(Ordering::Acquire)
    }

    /// Whether no line was answered since this was asked last.
    pub(crate) fn was_idle(&mut self) -> bool {
        std::mem::replace(&mut self.looked_at, self.answered) == self.answered
    }

    /// Whether the client is gone.
    pub(crate) fn is_left(&self) -> bool {
        self.channel.left.load(Ordering::Acquire)
    }

    /// Whether a line waits.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.channel.lines[self.next].asked().is_some()
    }

    /// Answers the lines that wait, at most half of the ring. With `look_ahead`, asks for the targets of
    /// the next line while it runs one.
    ///
    /// # Safety
    /// `base` is the memory of the shard that this channel's client names values of, and the caller
    /// alone serves it.
    #[inline]
    pub(crate) unsafe fn serve(&mut self, base: *mut u8, look_ahead: bool) -> Served {
        let channel = &*self.channel;
        let count = channel.lines.len();
        let most = (count as u64).div_ceil(2);
        let mut served = Served::default();
        let mut ran_out = false;
        // Whether the last line went before it was full.
        let mut is_short = false;
        while served.lines < most {
            let line = &channel.lines[self.next];
            let Some(order) = line.asked() else {
                ran_out = true;
                break;
            };
            served.lines += 1;
            served.requests += u64::from(order.count);
            let operation = channel.operation(order);
            // SAFETY: the client put a kind into the entry before it published a line that names it.
            let (words, capacity) =
                unsafe { ((*operation.kind).words, (*operation.kind).capacity) };
            is_short = (order.count as usize) < capacity;
            if order.alone {
                // SAFETY: the contract; the client published the line.
                unsafe { run_alone(channel, self.next, operation, base) };
                break;
            }
            let following = if self.next + 1 == count {
                0
            } else {
                self.next + 1
            };
            // Only what the client has surely sent: a line asked for too early is taken from the client
            // that fills it. Most lines are as long as the one before.
            if served.lines + 1 < self.expected {
                channel.lines[following].prefetch(words * order.count as usize);
            }
            if look_ahead {
                prefetch_targets(channel, following, base);
            }
            // SAFETY: the contract; the client published the line.
            let flags = unsafe {
                let count = order.count as usize;
                run(channel, self.next, operation, base, line.words(), count)
            };
            line.answer(flags);
            self.next = following;
        }
        if served.lines > 0 {
            self.expected = served.lines;
            if served.requests > served.lines {
                self.pace = if ran_out {
                    (self.pace + LONGER).min(MOST_REST)
                } else {
                    self.pace.saturating_sub(1)
                };
                // Who sends a line before it is full, and none after it, waits for its answer.
                self.rest = if is_short && ran_out { 0 } else { self.pace };
            }
            self.answered += served.lines;
            channel.parker.wake_if_asleep();
        }
        served
    }
}

/// Runs the `count` requests of a line in `words`, and returns the flags of its answer.
///
/// # Safety
/// The line was sent for this `operation`; `words` are its requests, and the values that they name, in
/// the memory at `base`, are the caller's alone.
#[inline(always)]
unsafe fn run(
    channel: &Channel,
    line: usize,
    operation: Operation,
    base: *mut u8,
    words: *mut u32,
    count: usize,
) -> u32 {
    let mut failures = Vec::new();
    let mut run = Run {
        base,
        operand: operation.operand,
        captured: operation.captured,
        high: channel.lines[line].high(),
        failures: &mut failures,
    };
    // SAFETY: the client put a kind into the entry before it published a line that names it, and so
    // many requests of that kind into the line.
    let flags = unsafe { ((*operation.kind).run)(&mut run, words, count) };
    if !failures.is_empty() {
        // SAFETY: the line is the server's turn.
        channel.failures[line].with_mut(|place| unsafe { *place = failures });
    }
    flags
}

/// Runs and answers the one request of a line that was sent alone. It is run in a copy: the client is
/// looking at the line, and takes it as soon as a part of it is written.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn run_alone(channel: &Channel, line: usize, operation: Operation, base: *mut u8) {
    let place = channel.lines[line].words().cast::<Word>();
    let mut copy = [Word::uninit(); WORDS];
    // SAFETY: the line is the server's turn, and its entry holds a kind. Copied word by word: a wider
    // load could not be forwarded from the stores of the answer.
    unsafe {
        let words = (*operation.kind).words;
        for (index, word) in copy.iter_mut().enumerate().take(words) {
            *word = place.add(index).read();
        }
        let flags = run(channel, line, operation, base, copy.as_mut_ptr().cast(), 1);
        for (index, word) in copy.iter().enumerate().take(words) {
            place
                .add(index)
                .write_volatile(std::ptr::read_volatile(word));
        }
        channel.lines[line].answer(flags);
    }
}

/// Asks for what the requests of a line that waits will touch.
#[inline(always)]
fn prefetch_targets(channel: &Channel, line: usize, base: *mut u8) {
    let line = &channel.lines[line];
    let Some(order) = line.asked() else {
        return;
    };
    // SAFETY: the entry of a line in flight holds a kind.
    let stride = unsafe { (*channel.operation(order).kind).words };
    let words = line.words();
    for index in 0..order.count as usize {
        // SAFETY: the line is the server's turn and holds so many requests, which begin with an
        // offset. Where it points to is not read.
        let target =
            unsafe { base.wrapping_add(*words.add(index * stride) as usize * crate::arena::UNIT) };
        prefetch_for_writing(target);
    }
}
