//! How far one ring is read.

use std::collections::HashMap;
use std::ops::Range;

use linewise_recording::Pid;
use linewise_trace::{Consumer, EventKind, GUEST_BITS, HeapRecord, TracedAccess, TracedEvent};
use linewise_tracer::{Ring, RingKind, words};

use super::code::{Code, Slot};
use super::pieces::{Pieces, Special, special};
use super::totals::Totals;

/// What is read from one ring.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) ring: Ring,
    pub(super) kind: RingKind,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// When the process of this id started, if that could be seen.
    pub(super) started: Option<u64>,
    pub(super) image: u32,
    pub(super) thread: u16,
    pub(super) position: u64,
    pub(super) freed: u64,
    pub(super) head: u64,
    pub(super) closed: bool,
    /// The bank of the last mark.
    pub(super) bank: u32,
    pub(super) stamp: u64,
    /// The time of the accesses handed out last.
    pub(super) time_ns: u64,
    /// The stamp of the last mark lies before what was handed out already.
    pub(super) late: bool,
    pub(super) late_from: u64,
    /// Words that are freed at a time.
    pub(super) quantum: u64,
    /// Number of its address space, in its place in an address.
    pub(super) space: u64,
    /// That of the one that it was forked from, or its own.
    pub(super) parent: u16,
    pub(super) accesses: u64,
    /// Accesses that are not told, since the last that is.
    pub(super) untold: u32,
    /// The last that is told is that its program is replaced by one that will be traced.
    pub(super) replaced: bool,
}

impl Reading {
    /// Notes how far the ring is written. `false` if it is as nobody who follows the rules writes it: what is in it is
    /// passed over.
    pub(super) fn look(&mut self) -> bool {
        let written = self.ring.written(self.freed);
        self.head = written.unwrap_or_else(|head| head);
        if written.is_err() {
            self.position = self.head;
            self.freed = self.head;
            self.ring.free(self.head);
        }
        written.is_ok()
    }

    /// The stamp of what comes next, the last mark's unless it is one. `None` if nothing is
    /// there.
    pub(super) fn next_stamp(&self) -> Option<u64> {
        if self.kind != RingKind::Thread || self.position >= self.head {
            return None;
        }
        let word = self.ring.word(self.position);
        Some(match words::tag(word) {
            words::MARK => words::mark_stamp(word, self.stamp),
            words::FAR_MARK | words::EVENT => self.ring.word(self.position + 1),
            _ => self.stamp,
        })
    }

    /// What becomes of an access that is not simply handed on, which was `word`, and how many words from `next` on are of
    /// it. `None` if more of it may come; with `ends` nothing does.
    #[inline(always)]
    pub(super) fn special(
        &self,
        mut access: TracedAccess,
        (word, slot): (u64, Slot),
        next: u64,
        ends: bool,
    ) -> Option<(u64, Special)> {
        let pieces = Pieces {
            ring: &self.ring,
            next,
            head: self.head,
            bank: self.bank,
        };
        let words = match pieces.join(&mut access, word, slot) {
            None if ends => 0,
            joined => joined?,
        };
        Some((words, special(access, slot)))
    }

    /// The stamp of a mark or event, and its words. `None` if it is neither: a record is published whole.
    #[inline(always)]
    pub(super) fn stamp_at(&self, word: u64, position: u64) -> Option<(u64, u64)> {
        match words::tag(word) {
            words::MARK => Some((words::mark_stamp(word, self.stamp), 1)),
            words::FAR_MARK if position + 1 < self.head => Some((self.ring.word(position + 1), 2)),
            words::EVENT if position + words::event_length(word) <= self.head => {
                Some((self.ring.word(position + 1), words::event_length(word)))
            }
            _ => None,
        }
    }

    /// A new stamp, behind so many accesses of this turn. What comes under one before `reached` is late.
    #[inline(always)]
    pub(super) fn stamped(&mut self, stamp: u64, emitted: u64, reached: u64, totals: &mut Totals) {
        self.stamp = stamp;
        if self.late {
            totals.late += emitted - self.late_from;
        }
        self.late = stamp < reached;
        self.late_from = emitted;
    }

    /// Takes over the bank of a mark, and how many accesses before it are not told; an event has neither.
    #[inline(always)]
    pub(super) fn change_bank(&mut self, word: u64) {
        let untold = match words::tag(word) {
            words::MARK => {
                self.bank = words::mark_bank(word);
                words::mark_untold(word)
            }
            words::FAR_MARK => {
                self.bank = words::far_mark_bank(word);
                words::far_mark_untold(word)
            }
            _ => {
                self.bank = u32::MAX;
                0
            }
        };
        self.untold += untold as u32;
        self.accesses += untold;
    }

    /// The end of a turn: read up to `position`, `emitted` accesses of it.
    pub(super) fn pause(&mut self, position: u64, emitted: u64, totals: &mut Totals) {
        if self.late {
            totals.late += emitted - self.late_from;
            self.late_from = 0;
        }
        self.position = position;
        self.accesses += emitted;
    }

    /// Tells the accesses that are not told one by one.
    pub(super) fn tell_passed<C: Consumer>(&mut self, consumer: &mut C, time_ns: u64) {
        if self.untold > 0 {
            consumer.event(&TracedEvent {
                thread: self.thread,
                time_ns,
                kind: EventKind::Passed,
                a: u64::from(std::mem::take(&mut self.untold)),
                b: 0,
            });
        }
    }

    /// Tells an event. `place` makes an address of the guest's what it is in an access.
    pub(super) fn tell_event<C: Consumer>(
        &mut self,
        event: &EventAt,
        (code, owners, totals): (&Code, &HashMap<u16, u16>, &mut Totals),
        place: impl Fn(u64) -> u64,
        consumer: &mut C,
    ) {
        let (thread, time_ns) = (self.thread, event.time_ns);
        let words = event.words.clone();
        let word = |at: u64| self.ring.word(words.start + at);
        let kind = words::event_kind(event.word);
        match kind {
            Some(EventKind::Taken) => {
                let taken = words::Taken::unpack(std::array::from_fn(|at| word(at as u64)));
                match owners.get(&taken.owner) {
                    Some(&owner) => {
                        consumer.handover(&code.handover(&taken, owner, time_ns, self.space));
                    }
                    None => totals.unowned += 1,
                }
            }
            Some(EventKind::Heap) => {
                let record = words.clone().map(|at| self.ring.word(at));
                consumer.heap(&HeapRecord {
                    thread,
                    time_ns,
                    spaces: ((self.space >> GUEST_BITS) as u16, self.parent),
                    pid: Pid(self.pid),
                    words: &record.collect::<Vec<u64>>(),
                    maps: &code.maps,
                });
                self.ring.wipe(words);
            }
            Some(kind) => {
                let (mut a, b) = (word(0), word(1));
                if kind == EventKind::ThreadStarted {
                    a = u64::from(self.pid) | (u64::from(self.tid) << 32);
                }
                consumer.event(&TracedEvent::of(kind, a, b, thread, time_ns, place));
            }
            None => totals.malformed += 1,
        }
        self.replaced = kind == Some(EventKind::ExecTraced);
    }
}

/// An event in a ring.
pub(super) struct EventAt {
    pub(super) word: u64,
    /// Where the words behind its stamp lie.
    pub(super) words: Range<u64>,
    pub(super) time_ns: u64,
}
