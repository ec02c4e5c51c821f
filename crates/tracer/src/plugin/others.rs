//! The threads of this process beside one: what a [line](crate::own) asks of them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::group;
use crate::own::Others;
use crate::region::Turn;

/// How many accesses each thread had made when one was last sampled, by the number under which it has lines.
static MADE: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];

/// That of one thread.
fn made_by(owner: u16) -> u64 {
    MADE[usize::from(owner)].load(Ordering::Relaxed)
}

/// A thread has made so many.
pub(super) fn has_made(owner: u16, accesses: u64) {
    MADE[usize::from(owner)].store(accesses, Ordering::Relaxed);
}

/// The threads of this process beside one.
pub(super) struct OfProcess<W> {
    /// All accesses to the line are told for good.
    pub(super) wanted: W,
    /// The one's accesses so far.
    pub(super) number: u64,
    /// Its place in the order, if that is made.
    pub(super) turn: Option<&'static Turn>,
}

impl<W: Fn() -> bool> Others for OfProcess<W> {
    fn want_all(&self) -> bool {
        (self.wanted)()
    }

    fn made(&self, owner: u16) -> u64 {
        match self.turn {
            // Clocks are one time.
            Some(_) => self.number,
            None => made_by(owner),
        }
    }

    fn had_time(&self) -> bool {
        self.turn.is_none_or(Turn::others_had_time)
    }

    fn asked(&self) -> Option<u64> {
        self.turn
            .and_then(Turn::asked)
            .map(|quarters| quarters.wrapping_sub(group::shift()) >> 2)
    }
}
