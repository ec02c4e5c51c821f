//! Read-Write (listing 5.3): the first thread writes the shared word in every access; the others
//! read it, with the chance given, or write it.
//!
//! Truth: every write is unique (a number and the writer's id) and a swap, so each access, read or
//! write, learns the word's value. If that is not what this thread last saw or wrote, another
//! thread has written since: this core had no valid copy, and the line's data came here. If it is,
//! the copy was still valid. Exact for data.
//!
//! Not counted: a writer whose value was read meanwhile still has the data and asks only for the
//! right to write (an upgrade, which a counter of requests for ownership would count). And a read
//! may be served by another reader's cache; the transfer is put down to the last writer.

use crate::worker::{CHUNK, Chance, Line, NOBODY, Program, SLOTS, Seat, Tally};
use std::sync::atomic::Ordering;

static READ_WRITE_WORD: Line = Line::new(NOBODY);

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: read_write_worker,
    note: "Every write is a swap of a unique value: an access that finds another value than the \
           thread last saw or wrote brought the data here, each is counted. Upgrades (a writer \
           that still has the data but others have read it) are no transfers and not counted. A \
           read is put down to the last writer, even if a third core served it.",
    sampled: false,
};

fn prepare(_threads: usize) -> Vec<u64> {
    READ_WRITE_WORD.reset(NOBODY);
    vec![READ_WRITE_WORD.address()]
}

#[inline(never)]
fn read_write_worker(seat: &Seat<'_>) -> Tally {
    let word = &READ_WRITE_WORD.words[0];
    // The first thread is the one that always writes.
    let reads = Chance::new(if seat.index == 0 { 0.0 } else { seat.fraction });
    let mut random = seat.random();
    let mut known = NOBODY;
    let mut writes = 0_u64;
    let mut tally = Tally::new();
    let mut from = [0_u64; SLOTS];
    while !seat.stopped() {
        for _ in 0..CHUNK {
            let found;
            let moved_from;
            if reads.hits(random.next()) {
                found = word.load(Ordering::Relaxed);
                moved_from = if found == known { NOBODY } else { found };
                known = found;
            } else {
                writes += 1;
                let unique = (writes * SLOTS as u64) | seat.id();
                found = word.swap(unique, Ordering::Relaxed);
                moved_from = if found == known { NOBODY } else { found };
                known = unique;
            }
            from[moved_from as usize % SLOTS] += 1;
        }
        tally.accesses += CHUNK;
    }
    tally.shared_accesses = tally.accesses;
    tally.true_from = from.map(|count| count as f64);
    tally
}
