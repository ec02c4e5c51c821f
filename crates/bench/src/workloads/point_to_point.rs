//! Point-to-Point (listing 5.4): threads in pairs, each pair with a shared word on a line of its
//! own and a fraction of its own: the first pair has the one given, pair i has it divided by i + 1.
//!
//! Truth: swaps, as in Write-Volume. Exact.

use super::write_volume::SwapCounts;
use crate::spec::MAX_THREADS;
use crate::worker::{Line, NOBODY, Program, Seat, Tally};

static SHARED_WORD_OF_PAIR: [Line; MAX_THREADS / 2] =
    [const { Line::new(NOBODY) }; MAX_THREADS / 2];

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: point_to_point_worker,
    note: "Threads 2i and 2i+1 share a word, with the fraction given divided by i + 1. Every \
           shared access is a swap that returns who had the line: each transfer is counted.",
    sampled: false,
};

fn prepare(threads: usize) -> Vec<u64> {
    let used = &SHARED_WORD_OF_PAIR[..threads.div_ceil(2)];
    used.iter().for_each(|line| line.reset(NOBODY));
    used.iter().map(Line::address).collect()
}

#[inline(never)]
fn point_to_point_worker(seat: &Seat<'_>) -> Tally {
    let pair = seat.index / 2;
    let mut counts = SwapCounts::with_fraction(seat, seat.fraction / (pair + 1) as f64);
    while !seat.stopped() {
        counts.swap_for_a_chunk(&SHARED_WORD_OF_PAIR[pair]);
    }
    counts.tally()
}
