//! Write-Volume with plain loads and stores: no access waits for the one before, as in code that
//! sets a flag or counts events without atomics.
//!
//! Each thread has a word of its own on the shared line. An access loads the words of the others
//! and then stores its own; with the chance given it does so on the shared line, otherwise on a
//! private one.
//!
//! Truth: if another's word has changed since this thread's last load of it, that thread wrote the
//! line in between, so its data came here: one transfer. Loading the word that was just stored
//! would not do: a load is served from the thread's own store buffer while the store waits there,
//! which is just when the line is away. Nor does a swap now and then stand for the stores between:
//! it waits, and finds the line gone more often than a store does (tried: 200 million transfers a
//! second, where swaps alone move the line 40 million times).
//!
//! Bias: low. A store may wait in the buffer, bring the line here and lose it again before the next
//! load looks; and where several threads wrote in between, it is one transfer, put down to them in
//! equal parts.

use crate::worker::{CHUNK, Chance, Line, Program, SLOTS, Seat, Tally};
use std::hint::black_box;
use std::sync::atomic::Ordering;

static PLAIN_SHARED_LINE: Line = Line::new(0);

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: write_volume_plain_worker,
    note: "Each access loads the other threads' words and stores the thread's own: an access that \
           finds one changed is one transfer. Transfers by stores that gain and lose the line \
           between two loads are not seen, so the count is a little low. All of it is true \
           sharing: every word that is written is read by the others.",
    sampled: false,
};

fn prepare(_threads: usize) -> Vec<u64> {
    PLAIN_SHARED_LINE.reset(0);
    vec![PLAIN_SHARED_LINE.address()]
}

#[inline(never)]
fn write_volume_plain_worker(seat: &Seat<'_>) -> Tally {
    let own = seat.index % 8;
    let others: Vec<usize> = (0..seat.threads.min(8))
        .filter(|&word| word != own)
        .collect();
    // One other thread is the usual case and deserves a loop without a loop in it.
    match others[..] {
        [other] => count_changes(seat, own, [other]),
        _ => count_changes(seat, own, others),
    }
}

#[inline(always)]
fn count_changes(seat: &Seat<'_>, own: usize, others: impl AsRef<[usize]>) -> Tally {
    let others = others.as_ref();
    let shared = Chance::new(seat.fraction);
    let mut random = seat.random();
    let private_line = Line::new(0);
    let private = black_box(&private_line);
    let mut tally = Tally::new();
    let mut known = [0_u64; 8];
    let mut stored = 0_u64;
    while !seat.stopped() {
        for _ in 0..CHUNK {
            stored += 1;
            if shared.hits(random.next()) {
                tally.shared_accesses += 1;
                let mut changed = 0_u64;
                for &word in others {
                    let found = PLAIN_SHARED_LINE.words[word].load(Ordering::Relaxed);
                    changed |= u64::from(found != known[word]) << word;
                    known[word] = found;
                }
                PLAIN_SHARED_LINE.words[own].store(stored, Ordering::Relaxed);
                if changed != 0 {
                    attribute(changed, &mut tally.true_from);
                }
            } else {
                for &word in others {
                    black_box(private.words[word].load(Ordering::Relaxed));
                }
                private.words[own].store(stored, Ordering::Relaxed);
            }
        }
        tally.accesses += CHUNK;
    }
    tally
}

/// Puts one transfer down to the threads whose bits are set, in equal parts.
#[inline(always)]
fn attribute(changed: u64, from: &mut [f64; SLOTS]) {
    let part = 1.0 / f64::from(changed.count_ones());
    let mut left = changed;
    while left != 0 {
        from[left.trailing_zeros() as usize] += part;
        left &= left - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_access_is_one_transfer_however_many_words_changed() {
        let mut from = [0.0; SLOTS];
        attribute(0b10, &mut from);
        attribute(0b1010, &mut from);
        assert_eq!((from[1], from[3]), (1.5, 0.5));
        assert_eq!(from.iter().sum::<f64>(), 2.0);
    }
}
