//! Which transfers are true, which false: what a thread uses while it has the line decides.
//!
//! A transfer is true if the thread uses, before the line leaves it again, a word that another thread used
//! in conflict since it did so itself (M. Dubois, J. Skeppstedt, L. Ricciulli, K. Ramamurthy, P. Stenström, *The Detection and
//! Elimination of Useless Misses in Multiprocessors*, ISCA 1993, section 2). Where all that a thread
//! touches is such a word, or none of it, that is known. Where it touches both, samples alone cannot tell
//! whether it does so in one visit, and two ends are given:
//!
//! ```text
//! at least   the share of its time that it spends at such words: they paid those transfers
//! at most    the rate at which both touch such words, over the rate of the transfers
//! ```
//!
//! One instruction that touches several words of a line, and waits at each, takes one of them in a visit, as an
//! index picks it. Whether another thread took that word since depends on how often each of them picks it: of n words
//! that both pick alike, it did not with 1/e, about. Where it waits at one word nearly always, it goes through them in a
//! row, and uses all.

use std::collections::BTreeMap;

use linewise_recording::{Address, Operation, Time};

use super::super::encounter::{Encounter, Touch, conflict};
use super::{Estimate, phases};

/// Samples at a line, or watches of a chunk, from which on what was not seen of a thread is not there.
const TELLING_SAMPLES: u64 = 20;
const TELLING_WATCHES: u32 = 3;
/// A word that takes less than this share of a thread's time at a line is only passed by.
const PASSED_BY: f64 = 0.05;
/// The least time of a hit at a word that no other access pays for, ns.
const LEAST_HIT_NS: f64 = 1.0;
/// The time of an access that may be a hit or wait for a transfer, ns: the mean rate where any order of magnitude
/// from a hit to 70 to 400 ns is as likely as another.
const LIKELY_NS: f64 = 5.0;
/// An instruction that waits at one of its words for at least this share goes through them in a row.
const IN_A_ROW: f64 = 0.8;
/// A share of which nothing is known.
pub(super) const UNKNOWN: Estimate = Estimate {
    value: 0.5,
    low: 0.0,
    high: 1.0,
};
/// Samples that there may have been where none is (Poisson, 95 %).
const UNSEEN: f64 = 3.0;

/// What a trap counts beside a sample: it shows a place where a thread loses no time, such as a plain store, but not how often
/// it comes there, since a watch traps once at a chunk whether that is touched often or seldom.
pub(super) const TRAP: f64 = 0.02;

/// Whether so many samples at a line, or traps, tell where it is touched.
pub(super) fn is_telling(samples: u64, traps: u64) -> bool {
    samples >= TELLING_SAMPLES || traps >= u64::from(TELLING_WATCHES)
}

/// What a thread does at a line.
pub(super) struct Visitor<'a> {
    /// Where it touches the line, and how much that counts.
    pub(super) touches: Vec<(Touch, f64)>,
    /// Those of them where samples lost time, and how many.
    pub(super) sampled: Vec<(Touch, f64)>,
    /// Its samples at the line.
    pub(super) samples: u64,
    /// Whether enough was seen of it to know where it touches the line: see [`is_telling`].
    pub(super) is_known: bool,
    /// Each of them, in their order.
    pub(super) seen: &'a [(Time, Touch)],
    /// Its time at the line, ns.
    pub(super) at_line_ns: f64,
    /// What its watches saw.
    pub(super) met: Option<&'a Encounter>,
}

/// How often an instruction picks one of its words: at least and at most.
struct Picks {
    least: f64,
    most: f64,
    /// Whether it was seen often enough to say so.
    is_known: bool,
}

impl Visitor<'_> {
    /// Where it stores or updates.
    fn written(&self) -> impl Iterator<Item = &Touch> {
        let touches = self.touches.iter().map(|it| &it.0);
        touches.filter(|touch| touch.operation != Operation::Load)
    }

    pub(super) fn writes(&self) -> bool {
        self.written().next().is_some()
    }

    /// At most so many stores and updates of the line a second: it comes to a thread that loads it after one of another, and
    /// to one that stores after none but its own. Infinite where that is not known.
    pub(super) fn most_writes(&self) -> f64 {
        let Some(met) = self.met else {
            return if self.writes() { f64::INFINITY } else { 0.0 };
        };
        let is_watched = |chunk| met.chunk_watches(chunk, Operation::Load) >= TELLING_WATCHES;
        match self.written().flat_map(chunks).all(is_watched) {
            true => met.most_writes(),
            false => f64::INFINITY,
        }
    }

    /// How often it uses, in a visit, bytes in conflict with a touch of another thread: at least and at most; `None` if
    /// it was never seen to.
    fn meets(&self, other: &Touch) -> Option<(f64, f64)> {
        let meeting = self.touches.iter().filter(|(touch, _)| {
            conflict(touch.operation, other.operation) && touch.overlaps(other)
        });
        let picks: Vec<Picks> = meeting.map(|(touch, _)| self.picks(touch)).collect();
        // Instructions that are hardly known say nothing where others do.
        let any_known = picks.iter().any(|it| it.is_known);
        let telling = picks.iter().filter(|it| it.is_known || !any_known);
        let chances = telling.map(|it| (it.least, it.most));
        chances.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    /// How often the instruction of a touch picks its word of all that it touches here.
    fn picks(&self, touch: &Touch) -> Picks {
        let mut words: BTreeMap<Address, f64> = BTreeMap::new();
        for (it, count) in &self.touches {
            if (it.pid, it.ip) == (touch.pid, touch.ip) {
                *words.entry(it.address).or_default() += count;
            }
        }
        let all: f64 = words.values().sum();
        let most = words.values().copied().fold(0.0, f64::max);
        let is_known = all >= UNSEEN;
        let share = match words.len() < 2 || touch.ip.0 == 0 || most >= IN_A_ROW * all {
            true => 1.0,
            false => words.get(&touch.address).map_or(0.0, |count| count / all),
        };
        Picks {
            least: share,
            most: if is_known { share } else { 1.0 },
            is_known,
        }
    }

    /// Whether enough was seen of it to say that it does not use the bytes of a touch.
    fn is_known_at(&self, touch: &Touch) -> bool {
        let watched = |chunk| {
            self.met
                .map_or(0, |met| met.chunk_watches(chunk, touch.operation))
        };
        self.samples >= TELLING_SAMPLES || chunks(touch).all(|it| watched(it) >= TELLING_WATCHES)
    }

    /// Whether the time at the bytes of a touch tells how often it comes there: a plain store waits unseen.
    fn tells_by_time(&self, touch: &Touch) -> bool {
        let stores =
            |(it, _): &(Touch, f64)| it.operation == Operation::Store && it.overlaps(touch);
        self.samples >= TELLING_SAMPLES && !self.touches.iter().any(stores)
    }

    /// Whether it was met at the bytes of a touch not by chance.
    fn is_often_at(&self, touch: &Touch) -> bool {
        // A watch that traps at once says that a thread comes every 40 µs, where transfers may come every 0.1.
        let met = |chunk| self.met.is_some_and(|met| met.is_often_at(chunk));
        self.samples > 0 && self.share_of(touch) >= PASSED_BY
            || !self.tells_by_time(touch) && chunks(touch).any(met)
    }

    /// The share of its time that it spends at what overlaps this touch.
    fn share_of(&self, touch: &Touch) -> f64 {
        let all: f64 = self.sampled.iter().map(|it| it.1).sum();
        let here = self.sampled.iter().filter(|(it, _)| it.overlaps(touch));
        here.map(|it| it.1).sum::<f64>() / all.max(f64::MIN_POSITIVE)
    }

    /// At most so many accesses of the bytes of a touch in a run in which it is at the line for so long, of those that
    /// conflict `with` such an operation.
    fn most_accesses(&self, touch: &Touch, with: Operation, span_ns: f64) -> f64 {
        let by_time = match self.samples {
            0 => f64::INFINITY,
            samples => {
                let share = self.share_of(touch) + UNSEEN / samples as f64;
                self.at_line_ns * share.min(1.0) / LEAST_HIT_NS
            }
        };
        let by_watches = |chunk| Some(self.met?.most_at(chunk, with) * span_ns * 1e-9);
        let by_watches = chunks(touch).filter_map(by_watches);
        by_watches.fold(by_time, f64::min)
    }

    /// As many accesses of the bytes of a touch as the time there makes likely; infinite where that is not seen.
    fn likely_accesses(&self, touch: &Touch) -> f64 {
        match self.tells_by_time(touch) {
            true => self.at_line_ns * self.share_of(touch) / LIKELY_NS,
            false => f64::INFINITY,
        }
    }
}

/// The chunks of its line that a touch lies in.
fn chunks(touch: &Touch) -> impl Iterator<Item = usize> {
    let first = (touch.address.0 % 64 / 8) as usize;
    let last = first + ((touch.address.0 % 8 + u64::from(touch.size.max(1)) - 1) / 8) as usize;
    first..=last.min(7)
}

/// Of the transfers to one thread from another, of which there are so many in a line's use of `span_ns`, the
/// share that is true.
pub(super) fn true_share(
    to: &Visitor<'_>,
    from: &Visitor<'_>,
    transfers: f64,
    span_ns: f64,
) -> Estimate {
    let from_writes = from.writes();
    let conflicting =
        |(touch, _): &&(Touch, f64)| touch.operation != Operation::Load || from_writes;
    let touches: Vec<&(Touch, f64)> = to.touches.iter().filter(conflicting).collect();
    if touches.is_empty() {
        let only_reads = !to.touches.is_empty() && from.is_known;
        return if only_reads {
            Estimate::default()
        } else {
            UNKNOWN
        };
    }
    let most = |it: &Visitor<'_>, touch: &Touch, with| it.most_accesses(touch, with, span_ns);
    let likely = |it: &Visitor<'_>, touch: &Touch, with| {
        it.likely_accesses(touch).min(most(it, touch, with))
    };
    let high = with_accesses(to, from, &touches, transfers, most);
    let likely = with_accesses(to, from, &touches, transfers, likely);
    let all: f64 = touches.iter().map(|it| it.1).sum();
    let least = |(touch, count): &&(Touch, f64)| {
        let meets = from.meets(touch).filter(|_| from.is_often_at(touch));
        let picked = to.picks(touch);
        count * meets.map_or(0.0, |(at_least, _)| since(at_least, picked.most))
    };
    let low = (touches.iter().map(least).sum::<f64>() / all).min(high);
    let at_any_time = Estimate {
        value: ((low + high) / 2.0).min(likely).max(low),
        low,
        high,
    };
    at_any_time.times(phases::at_once(to.seen, from.seen))
}

/// The chance that another thread, which uses a word in so many of its visits, did so since this one used it last, which
/// picks it in so many of its own.
fn since(theirs: f64, picked: f64) -> f64 {
    1.0 - (1.0 - theirs).powf(1.0 / picked.max(1e-3))
}

/// The share of the transfers that is true if both access the bytes of a touch as often as `accesses` says.
fn with_accesses(
    to: &Visitor<'_>,
    from: &Visitor<'_>,
    touches: &[&(Touch, f64)],
    transfers: f64,
    accesses: impl Fn(&Visitor<'_>, &Touch, Operation) -> f64,
) -> f64 {
    // Touches of words that the other does not use; that it uses; and of which that is not known.
    let (mut own, mut shared, mut open, mut all) = (0.0, 0.0, 0.0, 0.0);
    // By word, whatever touches it.
    let mut by_word: BTreeMap<Address, f64> = BTreeMap::new();
    for (touch, count) in touches {
        all += count;
        if let Some((_, at_most)) = from.meets(touch) {
            let mine = accesses(to, touch, Operation::Update);
            let theirs = accesses(from, touch, touch.operation);
            // One that hardly ever comes there is in nobody's way there.
            let often = (theirs / transfers.max(1.0)).min(1.0);
            shared += count * since(often * at_most, to.picks(touch).least);
            own += count * (1.0 - often);
            let of_word = by_word.entry(touch.address).or_default();
            *of_word = of_word.max(mine.min(theirs));
        } else if from.is_known_at(touch) {
            own += count;
        } else {
            open += count;
        }
    }
    let also = match shared > 0.0 {
        true => own * (by_word.into_values().sum::<f64>() / transfers.max(1.0)).min(1.0),
        // So little may have been seen of it that it touches the other's words, too.
        false if !to.is_known => own,
        false => 0.0,
    };
    ((shared + open + also) / all).min(1.0)
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Address, Pid};

    use super::*;

    const TRANSFERS: f64 = 1e6;
    const SECOND_NS: f64 = 1e9;

    /// `(instruction, word, operation, samples)`.
    type Row = (u64, u64, Operation, u64);

    fn visitor(rows: &[Row]) -> Visitor<'static> {
        let touch = |&(ip, word, operation, samples): &Row| {
            let touch = Touch {
                pid: Pid(1),
                ip: Address(ip),
                address: Address(0x1000 + 8 * word),
                size: 8,
                operation,
                locked: false,
                goroutine: None,
            };
            // One that was only trapped counts a little.
            (touch, if samples > 0 { samples as f64 } else { 0.1 })
        };
        let samples = rows.iter().map(|row| row.3).sum();
        let sampled = rows.iter().filter(|row| row.3 > 0);
        Visitor {
            touches: rows.iter().map(touch).collect(),
            sampled: sampled.map(touch).collect(),
            samples,
            is_known: is_telling(samples, 0),
            seen: &[],
            at_line_ns: samples as f64 * 1e6,
            met: None,
        }
    }

    fn share(to: &[Row], from: &[Row]) -> (f64, f64) {
        let share = true_share(&visitor(to), &visitor(from), TRANSFERS, SECOND_NS);
        let percent = |share: f64| (share * 100.0).round() / 100.0;
        (percent(share.low), percent(share.high))
    }

    use Operation::{Load, Store, Update};

    #[test]
    fn words_that_both_use_are_true_in_whatever_order_they_are_met() {
        // A seqlock: the number and three words, written by one and read by the other.
        let writer = [
            (1, 0, Update, 50),
            (2, 1, Store, 5),
            (3, 2, Store, 5),
            (4, 3, Store, 5),
        ];
        let reader = [
            (11, 0, Load, 60),
            (12, 1, Load, 20),
            (13, 2, Load, 10),
            (14, 3, Load, 10),
        ];
        assert_eq!(share(&reader, &writer), (1.0, 1.0));
        assert_eq!(share(&writer, &reader), (1.0, 1.0));
        // Neighbours that meet at no word.
        let (one, other) = ([(1, 0, Update, 50)], [(11, 1, Update, 50)]);
        assert_eq!(share(&one, &other), (0.0, 0.0));
        // Who only reads is not in the way of one who reads another word.
        assert_eq!(share(&[(1, 0, Load, 50)], &[(11, 1, Load, 50)]), (0.0, 0.0));
    }

    #[test]
    fn a_thread_with_words_of_its_own_and_of_others_may_use_both_in_one_visit() {
        let both = [(1, 0, Update, 30), (2, 1, Update, 10)];
        let other = [(11, 1, Update, 40)];
        // A quarter of its time is at the shared word; how often it comes there nobody bounds.
        assert_eq!(share(&both, &other), (0.25, 1.0));
        assert_eq!(share(&other, &both), (1.0, 1.0));
    }

    #[test]
    fn a_word_of_the_other_looked_at_now_and_then_makes_nothing_true() {
        let one = [(1, 0, Update, 640), (2, 0, Load, 1)];
        let other = [(11, 1, Update, 620), (12, 0, Load, 1), (13, 1, Load, 1)];
        let share = true_share(&visitor(&one), &visitor(&other), 9.0 * TRANSFERS, SECOND_NS);
        assert!(share.low == 0.0 && share.value < 0.1, "{share:?}");
    }

    #[test]
    fn a_look_that_was_trapped_and_never_sampled_takes_no_time_to_speak_of() {
        let one = [(1, 0, Update, 640), (2, 1, Load, 0)];
        let other = [(11, 1, Update, 620), (12, 0, Load, 0)];
        let share = true_share(&visitor(&one), &visitor(&other), TRANSFERS, SECOND_NS);
        assert!(share.value < 0.01 && share.high > 0.9, "{share:?}");
    }

    #[test]
    fn what_an_index_picks_was_picked_by_the_other_meanwhile_with_a_chance_of_two_thirds() {
        let pool = |ip: u64| -> Vec<Row> { (0..8).map(|word| (ip, word, Update, 10)).collect() };
        let (low, high) = share(&pool(1), &pool(11));
        assert!((low - 0.66).abs() < 0.01 && low == high, "{low} {high}");
        // Who looks at all of them meets each.
        let sweeps: Vec<Row> = (0..8).map(|word| (11 + word, word, Update, 10)).collect();
        assert_eq!(share(&pool(1), &sweeps), (1.0, 1.0));
        // One that waits at the first word goes through all.
        let row: Vec<Row> = (0..8)
            .map(|word| (1, word, Update, if word == 0 { 90 } else { 1 }))
            .collect();
        assert_eq!(share(&row, &row).1, 1.0);
        assert!(share(&row, &row).0 > 0.9);
    }
}
