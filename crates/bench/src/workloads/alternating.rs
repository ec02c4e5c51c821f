//! Alternating: Write-Volume with one thread at a time. Each works for 50 ms, hands over through a
//! condition variable and waits, so the line moves about 20 times a second, however hot it is.
//!
//! Truth: swaps, as in Write-Volume. Exact for the shared word; the lines of the mutex and the
//! condition variable move a few times at each change of hand too and are not counted.

use super::write_volume::SwapCounts;
use crate::worker::{Line, NOBODY, Program, Seat, Tally};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

static ALTERNATING_WORD: Line = Line::new(NOBODY);
static TURN: Mutex<usize> = Mutex::new(0);
static TURN_CHANGED: Condvar = Condvar::new();

const PHASE: Duration = Duration::from_millis(50);

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: alternating_worker,
    note: "One thread at a time, in phases of 50 ms. Every shared access is a swap that returns \
           who had the line: each transfer is counted, but not the few of the mutex that hands over.",
    sampled: false,
};

fn prepare(_threads: usize) -> Vec<u64> {
    ALTERNATING_WORD.reset(NOBODY);
    *TURN.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    vec![ALTERNATING_WORD.address()]
}

fn alternating_worker(seat: &Seat<'_>) -> Tally {
    let mut counts = SwapCounts::new(seat);
    while wait_for_turn(seat) {
        alternating_phase(seat, &mut counts);
        *TURN.lock().unwrap_or_else(PoisonError::into_inner) = (seat.index + 1) % seat.threads;
        TURN_CHANGED.notify_all();
    }
    counts.tally()
}

#[inline(never)]
fn alternating_phase(seat: &Seat<'_>, counts: &mut SwapCounts) {
    let end = Instant::now() + PHASE;
    while !seat.stopped() && Instant::now() < end {
        counts.swap_for_a_chunk(&ALTERNATING_WORD);
    }
}

/// Whether the turn came before the end of the run.
fn wait_for_turn(seat: &Seat<'_>) -> bool {
    let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    while *turn != seat.index && !seat.stopped() {
        // The end of the run is not announced here, so look for it now and then.
        turn = TURN_CHANGED
            .wait_timeout(turn, PHASE)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    !seat.stopped()
}
