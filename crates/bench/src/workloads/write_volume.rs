//! Write-Volume (listing 5.1): every access swaps the thread's id into the shared word, with the
//! chance given, or into a private one.
//!
//! Truth: a swap that returns another thread's id brought the line here from that thread's core.
//! Exact: nobody reads the line, and a swap is atomic.

use crate::worker::{CHUNK, Chance, Line, NOBODY, Program, SLOTS, Seat, Tally};
use std::hint::black_box;
use std::sync::atomic::Ordering;

static SHARED_WORD: Line = Line::new(NOBODY);

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: write_volume_worker,
    note: "Every shared access is a swap that returns who had the line: each transfer is counted.",
    sampled: false,
};

fn prepare(_threads: usize) -> Vec<u64> {
    SHARED_WORD.reset(NOBODY);
    vec![SHARED_WORD.address()]
}

#[inline(never)]
fn write_volume_worker(seat: &Seat<'_>) -> Tally {
    let mut counts = SwapCounts::new(seat);
    while !seat.stopped() {
        counts.swap_for_a_chunk(&SHARED_WORD);
    }
    counts.tally()
}

/// The loop of this benchmark on any line, for the others that are built on it.
pub(crate) struct SwapCounts {
    id: u64,
    random: crate::worker::Random,
    shared: Chance,
    private: Line,
    accesses: u64,
    /// By the id that was in the word; this thread's own included, so that nothing branches on it.
    from: [u64; SLOTS],
}

impl SwapCounts {
    pub(crate) fn new(seat: &Seat<'_>) -> Self {
        Self::with_fraction(seat, seat.fraction)
    }

    pub(crate) fn with_fraction(seat: &Seat<'_>, fraction: f64) -> Self {
        Self {
            id: seat.id(),
            random: seat.random(),
            shared: Chance::new(fraction),
            private: Line::new(NOBODY),
            accesses: 0,
            from: [0; SLOTS],
        }
    }

    #[inline(always)]
    pub(crate) fn swap_for_a_chunk(&mut self, line: &Line) {
        for _ in 0..CHUNK {
            if self.shared.hits(self.random.next()) {
                let previous = line.words[0].swap(self.id, Ordering::Relaxed);
                self.from[previous as usize % SLOTS] += 1;
            } else {
                black_box(&self.private).words[0].swap(self.id, Ordering::Relaxed);
            }
        }
        self.accesses += CHUNK;
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            accesses: self.accesses,
            shared_accesses: self.from.iter().sum(),
            true_from: self.from.map(|count| count as f64),
            ..Tally::new()
        }
    }
}
