//! Migratory data: one thread after the other loads and stores the words of one line, as code under
//! a lock does. A token, on a line of its own, goes round and says whose turn it is; after its turn
//! a thread works on private memory for as many accesses as the fraction asks for.
//!
//! Truth: the token orders everything, so plain values tell. The data line carries the id of its
//! last user: if that is another thread, the turn brings the line here, once, however many words it
//! touches. The token is a number that only grows: a thread that finds another one than it last saw
//! has just fetched the token's line from the thread that passed it on. Exact for data; the right to
//! write what was just read (an upgrade) is not counted.

use crate::worker::{Line, NOBODY, Program, SLOTS, Seat, Tally};
use std::hint::black_box;
use std::sync::atomic::Ordering;

static TOKEN: Line = Line::new(0);
static MIGRATORY_DATA: Line = Line::new(NOBODY);

/// Words of the data line that a turn loads and stores, beside the one with the last user's id.
const WORDS: usize = 5;
/// Accesses of a turn: each word and the id loaded and stored, and the token passed on.
const ACCESSES: u64 = 2 * (WORDS as u64 + 1) + 1;

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: migratory_worker,
    note: "One thread at a time, so values tell: the data line carries its last user, the token a \
           number that grows. Each first sight of another's value is one transfer of that line. \
           Upgrades are not counted.",
    sampled: false,
};

fn prepare(_threads: usize) -> Vec<u64> {
    TOKEN.reset(0);
    MIGRATORY_DATA.reset(NOBODY);
    vec![TOKEN.address(), MIGRATORY_DATA.address()]
}

#[inline(never)]
fn migratory_worker(seat: &Seat<'_>) -> Tally {
    let threads = seat.threads as u64;
    let private = Line::new(0);
    let mut tally = Tally::new();
    let mut seen = 0;
    let Some(private_accesses) = seat.private_beside(ACCESSES) else {
        while !seat.stopped() {
            tally.accesses += work_in_private(&private, crate::worker::CHUNK);
        }
        return tally;
    };
    while !seat.stopped() {
        let token = TOKEN.words[0].load(Ordering::Acquire);
        tally.accesses += 1;
        tally.shared_accesses += 1;
        if token != seen {
            // Whoever had the turn before passed it on; so did this thread, if it is alone.
            tally.true_from[((token - 1) % threads) as usize] += 1.0;
            seen = token;
        }
        if token % threads != seat.id() {
            seat.pause();
            continue;
        }
        let last_user = take_a_turn(seat.id());
        tally.true_from[last_user as usize % SLOTS] += 1.0;
        seen = token + 1;
        TOKEN.words[0].store(seen, Ordering::Release);
        tally.accesses += ACCESSES + work_in_private(&private, private_accesses);
        tally.shared_accesses += ACCESSES;
    }
    tally
}

/// Works on the data line; returns who did so last.
#[inline(never)]
fn take_a_turn(id: u64) -> u64 {
    let last_user = MIGRATORY_DATA.words[0].load(Ordering::Relaxed);
    for word in &MIGRATORY_DATA.words[1..=WORDS] {
        word.store(
            word.load(Ordering::Relaxed).wrapping_add(id + 1),
            Ordering::Relaxed,
        );
    }
    MIGRATORY_DATA.words[0].store(id, Ordering::Relaxed);
    last_user
}

/// Stores to private memory; returns how often.
#[inline(never)]
fn work_in_private(private: &Line, accesses: u64) -> u64 {
    let private = black_box(private);
    for i in 0..accesses {
        private.words[i as usize % 8].store(i, Ordering::Relaxed);
    }
    accesses
}
