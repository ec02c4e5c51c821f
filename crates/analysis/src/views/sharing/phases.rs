//! Whether two threads are at a line, and at the same words of it, at the same time, or only one after the other.
//!
//! A word may have one owner now and another later: a slot or a block that is given back and taken by another thread.
//! Over the whole run both use it, and at no time do they share it; and a watch, which is armed some milliseconds after the
//! sample that asked for it, may meet the next owner. So samples that are near in time are compared with samples at any time:
//! where those are together much more seldom, the threads take turns at what they touch.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{Address, Tid, Time};

use super::super::encounter::{Touch, conflict};
use super::{Estimate, Z90};

/// How far apart two samples are that tell of one time, ns. Nearer ones may be of one moment, in which one thread is at a lock
/// because another is at what it protects.
const NEAR_NS: std::ops::RangeInclusive<u64> = 200_000..=10_000_000;
/// Fewer pairs tell nothing, and neither does a smaller difference than this factor.
const PAIRS: f64 = 30.0;
const SELDOM: f64 = 0.7;
/// Samples of a thread at a line that are compared, at most.
const MOST: usize = 1024;

/// One sample of a thread at the line.
type Seen = (Time, Touch);

/// Where each thread was sampled, in the order of time: the line, or 0 where that is no access.
pub(super) type Tracks = HashMap<Tid, Vec<(Time, Address)>>;

/// Of two threads whose samples at a line these are, how often the second is there when the first is, of how often it is
/// there at all, `share` of its samples; 1 where nothing speaks against it.
pub(super) fn together(
    at_line: &[Seen],
    other: &[(Time, Address)],
    line: Address,
    share: f64,
) -> Estimate {
    let (mut near, mut there) = (0.0, 0.0);
    for (time, _) in at_line.iter().take(MOST) {
        if let Some(place) = nearest(other, *time) {
            near += 1.0;
            there += f64::from(u8::from(*place == line));
        }
    }
    of_any(there, near, share)
}

/// How often conflicting samples of two threads meet at common bytes while they are near in time, of how often any two do,
/// each in the order of time; 1 where nothing speaks against it.
pub(super) fn at_once(a: &[Seen], b: &[Seen]) -> Estimate {
    let (mut near, mut meet) = (0.0, 0.0);
    for (time, touch) in a.iter().take(MOST) {
        if let Some(other) = nearest(b, *time) {
            near += f64::from(u8::from(conflict(touch.operation, other.operation)));
            meet += f64::from(u8::from(meets(touch, other)));
        }
    }
    of_any(meet, near, meeting(a, b))
}

/// The sample nearest to a moment, of those that tell of that time.
fn nearest<T>(seen: &[(Time, T)], time: Time) -> Option<&T> {
    let distance = |other: &&(Time, T)| other.0.0.abs_diff(time.0);
    let within = |other: &&(Time, T)| distance(other) <= *NEAR_NS.end();
    let far = |other: &&(Time, T)| NEAR_NS.contains(&distance(other));
    let (before, after) = seen.split_at(seen.partition_point(|(other, _)| *other < time));
    let earlier = before.iter().rev().take_while(within).find(far);
    let both = [earlier, after.iter().take_while(within).find(far)];
    let nearest = both.into_iter().flatten().min_by_key(distance)?;
    Some(&nearest.1)
}

/// `k` of `n` pairs against a share of `any`: the ratio, or 1 where it is not clearly less.
fn of_any(k: f64, n: f64, any: f64) -> Estimate {
    if n < PAIRS || any <= 0.0 {
        return Estimate::exactly(1.0);
    }
    let share = wilson(k, n);
    match share.high < SELDOM * any {
        true => share.times(Estimate::exactly(1.0 / any)),
        false => Estimate::exactly(1.0),
    }
}

fn meets(a: &Touch, b: &Touch) -> bool {
    conflict(a.operation, b.operation) && a.overlaps(b)
}

/// The share of all conflicting pairs that meet.
fn meeting(a: &[Seen], b: &[Seen]) -> f64 {
    let places = |seen: &[Seen]| {
        let mut places: BTreeMap<(Address, u32, bool), (Touch, f64)> = BTreeMap::new();
        for (_, touch) in seen {
            let writes = conflict(touch.operation, linewise_recording::Operation::Load);
            let place = (touch.address, touch.size, writes);
            places.entry(place).or_insert((*touch, 0.0)).1 += 1.0;
        }
        places
    };
    let (ours, theirs) = (places(a), places(b));
    let (mut all, mut meeting) = (0.0, 0.0);
    for (one, ours) in ours.values() {
        for (other, theirs) in theirs.values() {
            if conflict(one.operation, other.operation) {
                all += ours * theirs;
                meeting += f64::from(u8::from(one.overlaps(other))) * ours * theirs;
            }
        }
    }
    meeting / f64::max(all, 1.0)
}

/// The share of `k` of `n` (E. B. Wilson's interval, 1927).
pub(super) fn wilson(k: f64, n: f64) -> Estimate {
    let z2 = Z90 * Z90;
    let middle = (k + z2 / 2.0) / (n + z2);
    let spread = Z90 / (n + z2) * (k * (n - k) / n + z2 / 4.0).sqrt();
    Estimate {
        value: k / n,
        low: (middle - spread).max(0.0),
        high: (middle + spread).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use linewise_recording::{Operation, Pid};

    use super::*;

    const MS: u64 = 1_000_000;

    /// A sample every 3 ms, from `start` on, at the word that `word` says of its number.
    fn seen(start: u64, word: impl Fn(u64) -> u64) -> Vec<Seen> {
        let touch = |word| Touch {
            pid: Pid(1),
            ip: Address(1),
            address: Address(0x1000 + 8 * word),
            size: 8,
            operation: Operation::Update,
            locked: true,
            goroutine: None,
        };
        let at = |i| (Time(start + i * 3 * MS), touch(word(i)));
        (0..400).map(at).collect()
    }

    #[test]
    fn words_that_change_their_owners_are_not_shared_at_any_time() {
        let turns = |other| move |i: u64| (i / 20 + other) % 2;
        let shares = at_once(&seen(0, turns(0)), &seen(MS, turns(1)));
        assert!(shares.value < 0.2 && shares.high < 0.4, "{shares:?}");
        // Both at one word, both at two in any order, or at those of their own: nothing is to be mended.
        let scrambled = |i: u64| i.wrapping_mul(0x9e37_79b9) >> 7 & 1;
        let ours = seen(0, |_| 0);
        for theirs in [seen(MS, |_| 0), seen(MS, scrambled), seen(MS, |_| 1)] {
            assert_eq!(at_once(&ours, &theirs), Estimate::exactly(1.0));
        }
        // One looks at a word in which the other writes, by turns: that is no other word.
        let mut reads = seen(0, |_| 0);
        for (i, (_, touch)) in reads.iter_mut().enumerate() {
            if i / 20 % 2 == 0 {
                touch.operation = Operation::Load;
            }
        }
        let mut other = reads.clone();
        other.iter_mut().for_each(|it| it.0.0 += MS);
        assert_eq!(at_once(&reads, &other), Estimate::exactly(1.0));
        assert_eq!(
            at_once(&seen(0, scrambled), &seen(MS, scrambled)).value,
            1.0
        );
    }

    #[test]
    fn a_thread_that_is_elsewhere_whenever_another_is_at_a_line_is_not_there() {
        let line = |i: u64, other| Address(0x1000 + 0x40 * ((i / 20 + other) % 2));
        let track = |other| -> Vec<(Time, Address)> {
            let at = |i| (Time(MS + i * 3 * MS), line(i, other));
            (0..400).map(at).collect()
        };
        let mut here = seen(0, |_| 0);
        let mut number = 0..;
        here.retain(|_| line(number.next().unwrap(), 0) == line(0, 0));
        let turns = together(&here, &track(1), line(0, 0), 0.5);
        assert!(turns.value < 0.2 && turns.high < 0.4, "{turns:?}");
        let beside = together(&here, &track(0), line(0, 0), 0.5);
        assert_eq!(beside, Estimate::exactly(1.0));
    }

    #[test]
    fn samples_of_one_moment_tell_nothing() {
        // Whenever one is at the lock, the other is at what it protects.
        let (ours, theirs) = (seen(0, |i| i % 2), seen(1000, |i| (i + 1) % 2));
        // And of neighbours in time, 3 ms apart, all are at the same: only that is looked at.
        assert_eq!(at_once(&ours, &theirs), Estimate::exactly(1.0));
        assert_eq!(at_once(&ours[..10], &theirs[..10]), Estimate::exactly(1.0));
    }
}
