//! What a thread waits for a line: transfers to it, and what they cost it.
//!
//! For each line and each thread A at it, from the samples: the time W that A spent there. From the
//! watches: the presence p of the others, and how often they come while they are elsewhere. From
//! the latencies: the time V at the line for each transfer, given how much the others want it.
//!
//! ```text
//! transfers to A  =  W p / V(others)                      while others work on the line
//!                 +  min( W (1-p) / V(0), their rate )    while they only pass by
//! cost to A       =  transfers to A × (V - hit), at most W p
//! ```
//!
//! The time bounds the transfers from above where the rate of the others does not, and the rate
//! bounds them where the time is spent on hits: a hot read beside a field that is written a
//! thousand times a second moves a thousand times a second, however hot it is. What the formula
//! cannot know is how much of V a core hides behind other work: nothing for locked accesses,
//! which therefore get a narrow interval, and much for plain loads and stores.

use std::collections::HashMap;

use linewise_recording::{Address, Tid};

use super::super::curve::{Curves, TransferCurve};
use super::super::encounter::Encounter;
use super::stays::{Around, LineStays, Stay};
use super::{Estimate, Z90};

/// Relative error of the model itself where every access is locked, both ways.
const LOCKED_ERROR: f64 = 0.25;
/// Factors of the interval where accesses may hide part of their latency, or wait for other
/// things as well.
const HIDDEN_LOW: f64 = 0.25;
const HIDDEN_HIGH: f64 = 4.0;
/// What a core does ahead while it waits for a locked access, ns of work: it would have to be done without the wait,
/// too. (Of `fixtures/programs/repairs` those whose locked accesses stand among work in registers gained a fifth to
/// four fifths of what they waited where a transfer took 35 ns, nearly all where it took 250.)
const AHEAD_NS: f64 = 40.0;
/// Of the time at plain updates this much is lost to others at least: each waits for the one before it, also where nobody else
/// is at the line. (A repair of eight such counters gained a twentieth of it, others a fifth to two thirds.)
const LEAST_OF_PLAIN_UPDATES: f64 = 0.05;
/// What a store waits behind a contended line is seen at later instructions, too: a repair gained up to so many times
/// what its samples said.
const SPILLED: f64 = 1.3;

/// What is estimated for one thread that waits for the line.
pub(super) struct Wait {
    pub(super) tid: Tid,
    pub(super) transfers: Estimate,
    pub(super) cost_ns: Estimate,
    /// Whether all that it does there is locked.
    pub(super) locked: bool,
    /// The threads that the line comes from, with how much each counts.
    pub(super) from: Vec<(Tid, f64)>,
}

/// Of the moments at which a thread runs, the share at which it is at work at a line, and at which it writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    pub(super) at_all: Estimate,
    pub(super) writing: Estimate,
}

/// Another thread at the line, as this one meets it on another CPU.
struct Other {
    tid: Tid,
    /// Share of this one's time at the line at which the other is at work there.
    present: Estimate,
    /// Accesses a second of the other while it is not, of all lines that this stands for.
    absent_rate: f64,
}

/// How many of the others one meets at a time, each of which is `at_line` for a share of its time.
fn crowd_of(others: &[Other], met_share: f64, at_line: impl Fn(Tid) -> f64) -> f64 {
    let all = met_share.max(f64::MIN_POSITIVE);
    let each = |other: &Other| other.present.value / all * at_line(other.tid);
    others.iter().map(each).sum::<f64>() * met_share.max(1.0)
}

/// Transfers to one thread and what they cost it.
pub(super) fn wait_of(
    tid: Tid,
    stay: &Stay,
    stays: &LineStays,
    met: &HashMap<Tid, Encounter>,
    present: &HashMap<Tid, Presence>,
    line: Address,
    around: &Around<'_>,
) -> Wait {
    let Around {
        curves, on_cpus, ..
    } = around;
    let span_ns = stays.span_ns();
    let lines = 1.0 + stays.more_lines;
    let beside = stay.moments.beside_each(tid, on_cpus);
    let beside = |other: Tid| match on_cpus.knows(other) {
        true => beside.get(&other).copied().unwrap_or(0.0),
        false => 1.0,
    };
    let reads = stay.share_of_loads();
    let mut others: Vec<Other> = present
        .iter()
        .filter(|&(&other, _)| other != tid && beside(other) > 0.0)
        .filter(|&(&other, _)| !on_cpus.take_turns(tid, other))
        .map(|(&other, &present)| {
            let at_once = around.together(tid, other, line, stays);
            let beside = at_once.times(Estimate::exactly(beside(other)));
            let absent_rate = met.get(&other).map_or(0.0, Encounter::absent_rate);
            // What it loads only writes take away.
            let mut mixed = present.writing.times(Estimate::exactly(reads));
            mixed.add(present.at_all.times(Estimate::exactly(1.0 - reads)));
            Other {
                tid: other,
                present: beside.times(mixed),
                absent_rate: beside.value * lines * absent_rate,
            }
        })
        .collect();
    others.sort_by_key(|other| other.tid);
    // How much of its time a thread on another CPU is at the line when this one meets it there.
    let mut met_share = Estimate::default();
    for other in &others {
        met_share.add(other.present);
    }
    let absent_rate: f64 = others.iter().map(|other| other.absent_rate).sum();
    let at_line = |other: Tid| {
        let stay = stays.threads.get(&other);
        stay.map_or(0.0, |stay| stay.share_beside(other, tid, on_cpus))
    };
    let crowd = crowd_of(&others, met_share.value, at_line);
    let locked = stay.places.keys().all(|place| place.locked);
    let price = Price::of(stay, curves, crowd);
    // Each locked instruction of a visit takes its time also where the line stays.
    let hits_ns = price.hit_ns * stay.locked_instructions().max(1) as f64;
    let lost = |transfer_ns: f64| (transfer_ns - hits_ns).max(0.5 * transfer_ns);
    // Transfers and their cost, if the others are there for so much of this one's time.
    let if_met = |share: f64| {
        let share = share.min(1.0);
        let fought = stay.weight_ns * share / price.transfer_ns;
        let passed =
            (stay.weight_ns * (1.0 - share) / price.idle_ns).min(absent_rate * span_ns * 1e-9);
        let cost = fought * lost(price.transfer_ns) + passed * lost(price.idle_ns);
        (fought + passed, cost.min(stay.weight_ns))
    };
    let (value, cost) = if_met(met_share.value);
    let (least, least_cost) = if_met(met_share.low);
    let (most, most_cost) = if_met(met_share.high);
    let noise = Z90 / (stay.samples.max(1) as f64).sqrt();
    let (fewer, more) = match locked {
        true => (1.0 - LOCKED_ERROR, 1.0 + LOCKED_ERROR),
        false => (HIDDEN_LOW, HIDDEN_HIGH),
    };
    let ahead = (AHEAD_NS / price.transfer_ns).min(1.0);
    let cost = if locked {
        cost * (1.0 - 0.25 * ahead)
    } else {
        cost
    };
    let cost_low = match locked {
        true => (1.0 - ahead).clamp(0.25, 0.6),
        false if stay.updates_plainly() => LEAST_OF_PLAIN_UPDATES,
        false => 0.4,
    } * (1.0 - noise).max(0.1);
    // How much the others are there is known roughly only: where they are at all, all of the time here may be lost.
    let all = SPILLED * stay.weight_ns * (3.0 * met_share.high).min(1.0);
    let cost_most = 1.6 * most_cost.max(cost);
    let cost_most = match locked {
        true => cost_most.min(stay.weight_ns),
        false => cost_most.max(all).min(SPILLED * stay.weight_ns),
    };
    Wait {
        tid,
        transfers: Estimate {
            value,
            low: least.min(value) * fewer * (1.0 - noise).max(0.1),
            high: most.max(value) * more * (1.0 + noise),
        },
        cost_ns: Estimate {
            value: cost,
            low: least_cost.min(cost) * cost_low,
            high: cost_most * (1.0 + noise),
        },
        locked,
        // A thread at work counts by its presence; one that passes by, by the part of a second for
        // which it is in the way.
        from: others
            .iter()
            .map(|other| {
                let passing = other.absent_rate * 1e-9 * price.transfer_ns;
                (other.tid, other.present.value + passing)
            })
            .filter(|&(_, share)| share > 0.0)
            .collect(),
    }
}

/// What a transfer takes a thread at a line, over all curves that were in force while it was there.
struct Price {
    transfer_ns: f64,
    idle_ns: f64,
    hit_ns: f64,
}

impl Price {
    fn of(stay: &Stay, curves: &Curves, crowd: f64) -> Self {
        let total: f64 = stay.by_curve.values().sum::<f64>().max(1.0);
        // Times add up to transfers by division, so their mean is the harmonic one.
        let mean = |of: &dyn Fn(&TransferCurve) -> f64| {
            let transfers: f64 = stay
                .by_curve
                .iter()
                .filter_map(|(&number, weight)| Some(weight / of(curves.get(number)?).max(1.0)))
                .sum();
            total / transfers.max(f64::MIN_POSITIVE)
        };
        Self {
            transfer_ns: mean(&|curve| curve.transfer_ns(crowd)),
            idle_ns: mean(&TransferCurve::idle_ns),
            hit_ns: mean(&|curve| curve.hit_ns),
        }
    }
}

/// A line comes to a thread at most as often as it goes to the others: it must leave to come
/// back. So where the accesses are locked, whose time bounds the transfers from above, a thread
/// with many hits is bound by the others. Where one of two hides its waiting (a plain store retires
/// before it is done), the other speaks for both.
pub(super) fn balance(waits: &mut Vec<Wait>, stays: &LineStays, met: &HashMap<Tid, Encounter>) {
    let all: f64 = waits.iter().map(|wait| wait.transfers.value).sum();
    let all_locked = waits.iter().all(|wait| wait.locked);
    if all_locked && waits.len() >= 2 {
        let two = waits.len() == 2;
        for wait in waits.iter_mut() {
            let others = all - wait.transfers.value;
            if wait.transfers.value > others {
                // Not below what the noise of the others explains: a mean of both.
                let ratio = wait.transfers.value / others.max(1.0);
                let target = if ratio < SAME {
                    (wait.transfers.value + others) / 2.0
                } else {
                    others
                };
                wait.scale(target / wait.transfers.value);
            } else if two && waits_two_alike(wait.transfers.value, others) {
                wait.scale((wait.transfers.value + others) / 2.0 / wait.transfers.value);
            }
        }
        return;
    }
    let mut tids: Vec<Tid> = stays.threads.keys().copied().collect();
    tids.extend(
        met.iter()
            .filter(|(_, met)| met.traps > 0)
            .map(|(&tid, _)| tid),
    );
    tids.sort_unstable();
    tids.dedup();
    if tids.len() != 2 {
        return;
    }
    let speaker = waits.iter().max_by(|a, b| {
        (a.locked, a.transfers.value)
            .partial_cmp(&(b.locked, b.transfers.value))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let Some(mut spoken) = speaker.map(|wait| wait.transfers) else {
        return;
    };
    // How much of its time the speaker spends on hits is not known, nor what the other one hides.
    spoken.low = spoken.low.min(spoken.value * HIDDEN_LOW);
    spoken.high = waits
        .iter()
        .fold(spoken.high, |high, wait| high.max(wait.transfers.high));
    for tid in tids {
        match waits.iter_mut().find(|wait| wait.tid == tid) {
            Some(wait) => wait.transfers = spoken,
            None => waits.push(Wait {
                tid,
                transfers: spoken,
                // Never sampled at the line: it loses no time that we saw.
                cost_ns: Estimate::default(),
                locked: false,
                from: Vec::new(),
            }),
        }
    }
}

/// Two estimates of one number that differ by less than this are told apart by noise alone.
const SAME: f64 = 1.4;

fn waits_two_alike(a: f64, b: f64) -> bool {
    a > 0.0 && b / a < SAME
}

impl Wait {
    /// What comes from threads that only read is no transfer: they have a copy, and the waiting
    /// thread, which has another, takes the right to write back. That costs it time all the same.
    pub(super) fn leave_out_upgrades(&mut self, writes: impl Fn(Tid) -> bool) {
        let all: f64 = self.from.iter().map(|&(_, share)| share).sum();
        let written: f64 = self
            .from
            .iter()
            .filter(|&&(tid, _)| writes(tid))
            .map(|&(_, share)| share)
            .sum();
        if all > 0.0 {
            self.transfers.value *= written / all;
            self.transfers.low *= written / all;
            // Whether it reads before it writes, and so takes a copy first, is not known.
        }
    }

    /// It had no more transfers than these: the time beyond them passed in hits, as of a thread that looks at a word until
    /// another writes it.
    pub(super) fn is_at_most(&mut self, transfers: f64) {
        let all = self.transfers.value;
        if transfers < all {
            self.scale(transfers / all);
            self.transfers.high = transfers;
            self.transfers.low = self.transfers.low.min(transfers);
            self.cost_ns.high *= transfers / all;
        }
    }

    fn scale(&mut self, factor: f64) {
        for estimate in [&mut self.transfers, &mut self.cost_ns] {
            estimate.value *= factor;
            estimate.low *= factor;
            estimate.high *= factor.max(1.0);
        }
    }
}
