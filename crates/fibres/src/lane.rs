//! How fibres that move reach their new worker: a ring for each pair of workers, written by the one
//! and read by the other.
//!
//! A slot tells by itself whether it is filled: its lowest bit changes with each turn of the ring. So the
//! reader writes nothing where it reads, and a move costs the writer the line of the slot and the reader
//! the same line back. How far the reader came it says now and then, in a line of its own.

use std::cell::Cell;

use crate::atomic::{AtomicUsize, Ordering};

/// Slots of a ring. More that move at once take the slower way, the queue under a lock.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 64 };
/// After so many the reader says how far it came.
const SAID_AFTER: usize = if cfg!(loom) { 1 } else { 16 };

/// One end's own count, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count {
    at: Cell<usize>,
    /// The writer's: how far the reader was when it looked last.
    seen: Cell<usize>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Said(AtomicUsize);

/// What travels: an address that is not null and even, and what helps to fetch what it needs.
#[derive(Debug, Default)]
struct Slot {
    value: AtomicUsize,
    hint: AtomicUsize,
}

/// A ring of one writer and one reader.
#[derive(Debug)]
pub(crate) struct Lane {
    slots: Box<[Slot]>,
    writer: Count,
    reader: Count,
    read: Said,
}

// SAFETY: each count is used by one end alone, which the contracts of `push` and `pop` promise.
unsafe impl Sync for Lane {}

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            writer: Count::default(),
            reader: Count::default(),
            read: Said::default(),
        }
    }

    /// The bit of a slot that is filled in the turn to which `at` belongs.
    fn turn(at: usize) -> usize {
        usize::from((at / SLOTS).is_multiple_of(2))
    }

    /// Puts `value` in; false if the ring is full.
    ///
    /// # Safety
    /// One thread alone calls it at a time. `value` is even and not 0.
    #[inline]
    pub(crate) unsafe fn push(&self, value: usize, hint: usize) -> bool {
        let at = self.writer.at.get();
        if at.wrapping_sub(self.writer.seen.get()) >= SLOTS {
            self.writer.seen.set(self.read.0.load(Ordering::Acquire));
            if at.wrapping_sub(self.writer.seen.get()) >= SLOTS {
                return false;
            }
        }
        let slot = &self.slots[at % SLOTS];
        slot.hint.store(hint, Ordering::Relaxed);
        slot.value.store(value | Self::turn(at), Ordering::Release);
        self.writer.at.set(at.wrapping_add(1));
        true
    }

    /// Whether something is in it; as the reader sees it.
    ///
    /// # Safety
    /// As of [`Lane::pop`].
    #[inline]
    pub(crate) unsafe fn is_filled(&self) -> bool {
        let at = self.reader.at.get();
        let value = self.slots[at % SLOTS].value.load(Ordering::Relaxed);
        value != 0 && value & 1 == Self::turn(at)
    }

    /// Takes the oldest value out, with its hint.
    ///
    /// # Safety
    /// One thread alone calls it at a time.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<(usize, usize)> {
        let at = self.reader.at.get();
        let slot = &self.slots[at % SLOTS];
        let value = slot.value.load(Ordering::Acquire);
        if value == 0 || value & 1 != Self::turn(at) {
            return None;
        }
        let hint = slot.hint.load(Ordering::Relaxed);
        let next = at.wrapping_add(1);
        self.reader.at.set(next);
        if next.is_multiple_of(SAID_AFTER) {
            self.read.0.store(next, Ordering::Release);
        }
        Some((value & !1, hint))
    }
}

/// Fetches a fibre's lines while the worker takes the others out of the lane: its own two,
/// where its stack ends and, as its coroutine keeps the way back there, where it begins.
#[inline(always)]
pub(crate) fn prefetch(fibre: usize, hint: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let depth = hint & ((1 << 48) - 1);
        let base = depth + (hint >> 48) * 64;
        for line in [
            fibre,
            fibre + 64,
            depth,
            depth - 64,
            depth + 64,
            depth + 128,
            base - 64,
            base,
        ] {
            let line = std::ptr::with_exposed_provenance::<i8>(line);
            // SAFETY: a hint; no access.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(line) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (fibre, hint);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_turns_keep_their_order_and_a_full_ring_refuses() {
        let lane = Lane::new();
        let mut next = 1;
        let mut expected = 1;
        // SAFETY: one thread has both ends; the values are even and not 0.
        unsafe {
            assert_eq!(lane.pop(), None);
            for round in 0..1000 {
                for _ in 0..round % 70 {
                    if lane.push(next * 2, next) {
                        next += 1;
                    } else {
                        assert!(next - expected > SLOTS - SAID_AFTER);
                        break;
                    }
                }
                for _ in 0..round % 67 {
                    let Some((value, hint)) = lane.pop() else {
                        break;
                    };
                    assert_eq!((value, hint), (expected * 2, expected));
                    expected += 1;
                }
                assert_eq!(lane.is_filled(), next != expected);
            }
        }
        assert!(expected > 10_000);
    }
}
