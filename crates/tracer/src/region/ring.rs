//! A ring: its header, and the reader's view of it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Region;
use super::futex::futex_wake;
use super::ring_header::{CLAIMED, FREE, OPEN, RingHeader, RingKind};

/// No ring is written so far, and positions may be added to.
const FARTHEST: u64 = 1 << 60;

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingState {
    /// Nobody uses it.
    Free,
    /// Somebody writes.
    Open,
    /// Its writer is done.
    Closed,
}

/// The reader's view of a ring.
#[derive(Debug)]
pub struct Ring {
    region: Region,
    index: usize,
    words: NonNull<AtomicU64>,
    count: u64,
}

// SAFETY: points into the region, which is `Send` and lives as long as the ring.
unsafe impl Send for Ring {}

impl Region {
    /// The reader's view of a ring.
    #[must_use]
    pub fn ring(&self, index: usize) -> Ring {
        let (words, count) = self.ring_words(index);
        Ring {
            region: self.clone(),
            index,
            words,
            count,
        }
    }
}

impl Ring {
    fn header(&self) -> &RingHeader {
        self.region.ring_header(self.index)
    }

    /// What is in it.
    #[must_use]
    pub fn kind(&self) -> RingKind {
        match self.header().kind.load(Ordering::Relaxed) {
            0 => RingKind::Thread,
            _ => RingKind::Process,
        }
    }

    /// Whether more can come.
    #[must_use]
    pub fn state(&self) -> RingState {
        match self.header().state.load(Ordering::Acquire) {
            FREE | CLAIMED => RingState::Free,
            OPEN => RingState::Open,
            _ => RingState::Closed,
        }
    }

    /// Process and thread id of the writer, in its own namespace.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        let header = self.header();
        (
            header.pid.load(Ordering::Relaxed),
            header.tid.load(Ordering::Relaxed),
        )
    }

    /// The inode of the namespace in which the writer has its [ids](Ring::ids); 0 if it could not tell.
    #[must_use]
    pub fn namespace(&self) -> u64 {
        self.header().namespace.load(Ordering::Relaxed)
    }

    /// The writer's image and the one it was forked from (or the same number again).
    #[must_use]
    pub fn images(&self) -> (u32, u32) {
        let header = self.header();
        (
            header.image.load(Ordering::Relaxed),
            header.parent.load(Ordering::Relaxed),
        )
    }

    /// The stamp when it was opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.header().opened.load(Ordering::Relaxed)
    }

    /// How long the writer has waited for room, in ns, and how often.
    #[must_use]
    pub fn waited(&self) -> (u64, u64) {
        let header = self.header();
        (
            header.waited_ns.load(Ordering::Relaxed),
            header.waits.load(Ordering::Relaxed),
        )
    }

    /// The number under which its writer has lines for itself, one of its own for each ring of a
    /// thread that was ever opened; 0 if it has none.
    #[must_use]
    pub fn owner(&self) -> u16 {
        self.header().owner.load(Ordering::Relaxed) as u16
    }

    /// Loads, stores and updates that the writer made so far, told or not, and the lines that it was the
    /// first to touch and had for itself. Noted now and then, and only where such lines are left out.
    #[must_use]
    pub fn counted(&self) -> ([u64; 3], u64) {
        let header = self.header();
        let quarters = header.quarters.each_ref();
        (
            quarters.map(|count| count.load(Ordering::Relaxed) / 4),
            header.first_touches.load(Ordering::Relaxed),
        )
    }

    /// How many words it holds.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.count
    }

    /// The first word that is not yet written, counted from the ring's opening.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.header().head.load(Ordering::Acquire)
    }

    /// How far it is written, if `freed` words were given back; otherwise, where nobody who follows the rules writes that, how
    /// far it is to be believed written: nothing of it is there to be read.
    ///
    /// # Errors
    /// See above.
    pub fn written(&self, freed: u64) -> Result<u64, u64> {
        let head = self.head();
        if head < FARTHEST && head.wrapping_sub(freed) <= self.count {
            Ok(head)
        } else {
            Err(head.min(FARTHEST))
        }
    }

    /// The word at a position, counted from the ring's opening; of a later lap if it was freed.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, position: u64) -> u64 {
        // SAFETY: masked to the ring's `count` words, which are inside the mapping and live as long
        // as `self`.
        unsafe {
            (*self
                .words
                .as_ptr()
                .add((position & (self.count - 1)) as usize))
            .load(Ordering::Relaxed)
        }
    }

    /// Overwrites words that were read and are not freed yet: they held memory of a process, and all that were forked from the
    /// same one see the ring, also those that are another user's by now.
    pub fn wipe(&self, positions: std::ops::Range<u64>) {
        for position in positions {
            // SAFETY: as in `word`; nobody writes what is not freed.
            unsafe {
                &*self
                    .words
                    .as_ptr()
                    .add((position & (self.count - 1)) as usize)
            }
            .store(0, Ordering::Relaxed);
        }
    }

    /// Frees the words before `tail`, and wakes the writer if it waits and half the ring is free.
    pub fn free(&self, tail: u64) {
        let header = self.header();
        header.tail.store(tail, Ordering::SeqCst);
        if header.waiting.load(Ordering::SeqCst) != 0 {
            let used = header.head.load(Ordering::Relaxed).saturating_sub(tail);
            if used <= self.count / 2 && header.waiting.swap(0, Ordering::SeqCst) != 0 {
                futex_wake(&header.waiting);
            }
        }
    }

    /// Gives a closed ring back, or one whose writer is gone.
    pub fn recycle(&self) {
        self.header().state.store(FREE, Ordering::Release);
    }
}
