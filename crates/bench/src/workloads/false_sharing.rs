//! False-Sharing (listing 5.2): every access is atomic, either to a word that all threads write or,
//! with the chance given, to the thread's own word on a line of such words.
//!
//! Truth on the truly shared line: swaps, as in Write-Volume, each one counted.
//!
//! Truth on the falsely shared line: a thread that adds to its own word cannot see by value where
//! the line was. So one access in 8192 begins a *pair*: right after it, while the line is here, the
//! thread notes all eight words, and does so again after its next access to the line. If another
//! thread's word has changed in between, the line went there and came back: one transfer. The share
//! of such pairs stands for all accesses of this kind. Every other access reads eight words of a
//! private line instead, so that chosen accesses take no longer than the rest.
//!
//! What that costs and cannot see: 2 accesses in 8192 read the others' words, which is true sharing
//! (0.02 % of the accesses). One in 1024 was too many: on a Rocket Lake VM, where these loads wait
//! longer than the additions, the samples that fell on them made 9 to 14 % of the transfers true. If several threads' words have changed, the transfer is divided among them. A line
//! stolen between an access and its note is fetched back by the note, and such a steal is missed.
//!
//! How good it is: the two lines are alike but for the words, so the falsely shared line at fraction
//! f must behave as the truly shared one, where all is counted, does at 1 - f. Measured so on two
//! cores of a Zen 5 VM, the estimate was 2 to 6 % high at 0.2, within 2 % at 0.5, 5 to 6 % low at
//! 0.8 and 30 % low at 1, where the note hardly ever finds the line still there. The share of false
//! sharing was within 2 points everywhere; compare that, not the count, at fractions near 1.
//!
//! [`crate::Truth::sampling_check`] says how much the looking itself changes: on the truly shared
//! line, how often the line had moved in looked-at accesses over how often it had in all. Timing
//! accesses instead would lengthen the gaps between them, and with these the chance of a move.

use crate::worker::{CHUNK, Chance, Line, NOBODY, Program, SLOTS, Seat, Tally};
use std::hint::black_box;
use std::sync::atomic::Ordering;

static TRUE_SHARING_DATA: Line = Line::new(NOBODY);
static FALSE_SHARING_DATA: Line = Line::new(0);

/// One access in so many begins a pair.
const PAIR_ONE_IN: u64 = 8192;

pub(crate) const PROGRAM: Program = Program {
    prepare,
    worker: false_sharing_worker,
    note: "True sharing: every access is a swap that returns who had the line, each transfer is \
           counted. False sharing: estimated from pairs of successive accesses, one in 8192, between \
           which the other threads' words did or did not change; these pairs read the others' \
           words, 0.02 % of the accesses. The share of false sharing is good to 2 points, \
           the count of false transfers is up to a third low at fractions near 1. \
           sampling_check is how often the line had moved in such pairs on the truly shared \
           line, over how often it had in all accesses there.",
    sampled: true,
};

fn prepare(_threads: usize) -> Vec<u64> {
    TRUE_SHARING_DATA.reset(NOBODY);
    FALSE_SHARING_DATA.reset(0);
    vec![TRUE_SHARING_DATA.address(), FALSE_SHARING_DATA.address()]
}

/// The sampling of pairs on one line.
struct Pairs {
    /// The words after the last access, of the line itself if that access was chosen.
    noted: [u64; 8],
    /// Whether the last access began a pair.
    open: bool,
    accesses: u64,
    taken: u64,
}

impl Pairs {
    const fn new() -> Self {
        Self {
            noted: [0; 8],
            open: false,
            accesses: 0,
            taken: 0,
        }
    }

    /// After each access: notes the words. Returns them as they were and as they are if the access
    /// closed a pair.
    #[inline(always)]
    fn note(&mut self, chance: u64, line: &Line, private: &Line) -> Option<([u64; 8], [u64; 8])> {
        // Chosen or not must cost the same, or chosen accesses would leave the others more time to
        // take the line: no branch here, the line to look at comes out of a table.
        let closes = self.open;
        let opens = !closes & (chance >> 32).is_multiple_of(PAIR_ONE_IN);
        let seen = black_box([private, line])[usize::from(opens | closes)];
        let before = self.noted;
        for (noted, word) in self.noted.iter_mut().zip(&seen.words) {
            *noted = word.load(Ordering::Relaxed);
        }
        self.open = opens;
        self.accesses += 1;
        self.taken += u64::from(closes);
        closes.then_some((before, self.noted))
    }

    /// What one pair stands for.
    fn weight(&self) -> f64 {
        self.accesses as f64 / self.taken.max(1) as f64
    }
}

#[inline(never)]
fn false_sharing_worker(seat: &Seat<'_>) -> Tally {
    let id = seat.id();
    let falsely = Chance::new(seat.fraction);
    let mut random = seat.random();
    let private_line = Line::new(0);
    let private = black_box(&private_line);
    let (mut true_pairs, mut false_pairs) = (Pairs::new(), Pairs::new());
    let mut from = [0_u64; SLOTS];
    let mut false_from = [0.0; SLOTS];
    let mut moved_in_true_pairs = 0_u64;
    while !seat.stopped() {
        for _ in 0..CHUNK {
            let chance = random.next();
            if falsely.hits(chance) {
                // An odd number: the word changes with every access.
                FALSE_SHARING_DATA.words[seat.index % 8].fetch_add(chance | 1, Ordering::Relaxed);
                if let Some(pair) = false_pairs.note(chance, &FALSE_SHARING_DATA, private) {
                    attribute(pair, seat.index, &mut false_from);
                }
            } else {
                let previous = TRUE_SHARING_DATA.words[0].swap(id, Ordering::Relaxed);
                from[previous as usize % SLOTS] += 1;
                if true_pairs
                    .note(chance, &TRUE_SHARING_DATA, private)
                    .is_some()
                {
                    moved_in_true_pairs += u64::from(previous != id);
                }
            }
        }
    }
    let moved: u64 = from.iter().sum::<u64>() - from[seat.index];
    Tally {
        accesses: true_pairs.accesses + false_pairs.accesses,
        shared_accesses: true_pairs.accesses + false_pairs.accesses,
        true_from: from.map(|count| count as f64),
        false_from: false_from.map(|pairs| pairs * false_pairs.weight()),
        sampled: false_pairs.taken,
        check: (true_pairs.taken > 0).then(|| {
            (
                moved_in_true_pairs as f64 * true_pairs.weight(),
                moved as f64,
            )
        }),
    }
}

/// Puts one transfer down to the threads whose words changed, in equal parts.
fn attribute((before, after): ([u64; 8], [u64; 8]), own: usize, from: &mut [f64; SLOTS]) {
    let changed = |&word: &usize| word != own && before[word] != after[word];
    let count = (0..8).filter(changed).count();
    for word in (0..8).filter(changed) {
        from[word] += 1.0 / count as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_without_changes_of_others_is_no_transfer() {
        let mut from = [0.0; SLOTS];
        attribute(
            ([5, 1, 1, 0, 0, 0, 0, 0], [9, 1, 1, 0, 0, 0, 0, 0]),
            0,
            &mut from,
        );
        assert_eq!(from.iter().sum::<f64>(), 0.0);
    }

    #[test]
    fn a_pair_is_one_transfer_however_many_words_changed() {
        let mut from = [0.0; SLOTS];
        attribute(
            ([5, 1, 1, 0, 0, 0, 0, 0], [9, 2, 3, 0, 0, 0, 0, 0]),
            0,
            &mut from,
        );
        assert_eq!((from[0], from[1], from[2]), (0.0, 0.5, 0.5));
    }

    #[test]
    fn only_chosen_accesses_look_at_the_line() {
        let (line, private) = (Line::new(7), Line::new(0));
        let mut pairs = Pairs::new();
        assert!(pairs.note(1 << 32, &line, &private).is_none(), "not chosen");
        assert_eq!(pairs.noted, [0; 8]);
        assert!(pairs.note(0, &line, &private).is_none(), "begins a pair");
        assert_eq!(pairs.noted, [7; 8]);
        line.words[3].store(8, Ordering::Relaxed);
        let (before, after) = pairs
            .note(1 << 32, &line, &private)
            .expect("closes the pair");
        assert_eq!((before[3], after[3]), (7, 8));
        assert_eq!((pairs.accesses, pairs.taken), (3, 1));
    }
}
