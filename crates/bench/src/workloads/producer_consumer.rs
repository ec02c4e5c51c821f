//! Producer and consumer: pairs of threads with a ring of 16 slots between them. A slot is one line;
//! head and tail have lines of their own. Between two operations a thread works on private memory
//! for as many accesses as the fraction asks for.
//!
//! Truth: by the indices. Every pop reads a slot that the producer has filled since the consumer's
//! last look at it: one transfer. A thread that finds the other's index changed since it last looked
//! has just fetched that line: one transfer. Exact for data while the ring stays in the caches,
//! which 4 KiB do. Not counted: the producer still has the data of a slot that was only read, so
//! filling it again needs the right to write (an upgrade) but moves nothing; the same holds for the
//! indices.

use crate::spec::MAX_THREADS;
use crate::worker::{CHUNK, Line, Program, Seat, Tally};
use std::hint::black_box;
use std::sync::atomic::Ordering;

const SLOTS_OF_RING: u64 = 16;
/// Accesses of a push or pop: the words of a slot, the own index stored, the other's loaded.
const ACCESSES: u64 = 8 + 2;

struct Ring {
    head: Line,
    tail: Line,
    slots: [Line; SLOTS_OF_RING as usize],
}

static RINGS: [Ring; MAX_THREADS / 2] = [const {
    Ring {
        head: Line::new(0),
        tail: Line::new(0),
        slots: [const { Line::new(0) }; SLOTS_OF_RING as usize],
    }
}; MAX_THREADS / 2];

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: producer_consumer_worker,
    note: "Thread 2i produces, 2i+1 consumes. Each pop is one transfer of a slot's line, each \
           index found changed is one of its line: all are counted. Upgrades (a slot filled again \
           by the producer that still has its data) are not.",
    sampled: false,
};

fn prepare(threads: usize) -> Vec<u64> {
    let mut lines = Vec::new();
    for ring in &RINGS[..threads.div_ceil(2)] {
        for line in [&ring.head, &ring.tail].into_iter().chain(&ring.slots) {
            line.reset(0);
            lines.push(line.address());
        }
    }
    lines
}

fn producer_consumer_worker(seat: &Seat<'_>) -> Tally {
    let ring = &RINGS[seat.index / 2];
    match seat.private_beside(ACCESSES) {
        None => work_alone(seat),
        Some(private) if seat.index.is_multiple_of(2) => produce(seat, ring, private),
        Some(private) => consume(seat, ring, private),
    }
}

#[inline(never)]
fn work_alone(seat: &Seat<'_>) -> Tally {
    let private = Line::new(0);
    let mut tally = Tally::new();
    while !seat.stopped() {
        tally.accesses += work_in_private(&private, CHUNK);
    }
    tally
}

#[inline(never)]
fn produce(seat: &Seat<'_>, ring: &Ring, private_accesses: u64) -> Tally {
    let private = Line::new(0);
    let mut tally = Tally::new();
    let (mut head, mut tail) = (0, 0);
    while !seat.stopped() {
        let found = ring.head.words[0].load(Ordering::Acquire);
        tally.shared_accesses += 1;
        if found != head {
            tally.true_from[seat.partner()] += 1.0;
            head = found;
        }
        if tail - head == SLOTS_OF_RING {
            seat.pause();
            continue;
        }
        for word in &ring.slots[(tail % SLOTS_OF_RING) as usize].words {
            word.store(tail, Ordering::Relaxed);
        }
        tail += 1;
        ring.tail.words[0].store(tail, Ordering::Release);
        tally.shared_accesses += ACCESSES - 1;
        tally.accesses += work_in_private(&private, private_accesses);
    }
    tally.accesses += tally.shared_accesses;
    tally
}

#[inline(never)]
fn consume(seat: &Seat<'_>, ring: &Ring, private_accesses: u64) -> Tally {
    let private = Line::new(0);
    let mut tally = Tally::new();
    let (mut head, mut tail) = (0, 0);
    let mut sum = 0_u64;
    while !seat.stopped() {
        let found = ring.tail.words[0].load(Ordering::Acquire);
        tally.shared_accesses += 1;
        if found != tail {
            tally.true_from[seat.partner()] += 1.0;
            tail = found;
        }
        if tail == head {
            seat.pause();
            continue;
        }
        for word in &ring.slots[(head % SLOTS_OF_RING) as usize].words {
            sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
        tally.true_from[seat.partner()] += 1.0;
        head += 1;
        ring.head.words[0].store(head, Ordering::Release);
        tally.shared_accesses += ACCESSES - 1;
        tally.accesses += work_in_private(&private, private_accesses);
    }
    black_box(sum);
    tally.accesses += tally.shared_accesses;
    tally
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
