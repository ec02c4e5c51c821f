//! From lines to pairs of threads.

use std::collections::BTreeMap;

use linewise_recording::{Address, CpuId, Operation, Pid, Tid};

use super::super::sharing::{Estimate, Place, SharingView};
use super::sharing_pair::SharingPair;
use crate::quantity::Interval;

/// Threads of a line in turns that are paired: of many each shares little with each.
const MOST_AT_A_LINE: usize = 64;
/// Samples and traps of a thread at a line in turns from which on it works there, and does not only begin or end.
const LEAST_SEEN: u64 = 3;

/// A line: its process and first byte.
pub(crate) type LineOf = (Pid, Address);

/// What two threads share, or all of a group with each other, over the whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairSum {
    /// Transfers by true sharing.
    pub(crate) truly: f64,
    /// Transfers by false sharing.
    pub(crate) falsely: f64,
    /// Of both.
    pub(crate) interval: Interval,
    /// Thread time lost, ns.
    pub(crate) cost_ns: Estimate,
    /// Transfers that there might be besides if they ran at once.
    pub(crate) in_turns: f64,
    /// The part of each line in `strength`.
    pub(crate) lines: BTreeMap<LineOf, f64>,
    /// Transfers between CPUs.
    pub(crate) cpus: BTreeMap<(CpuId, CpuId), f64>,
}

impl PairSum {
    pub(super) fn transfers(&self) -> f64 {
        self.truly + self.falsely
    }

    /// How strongly they belong together.
    pub(super) fn strength(&self) -> f64 {
        self.transfers() + self.in_turns
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.truly += more.truly;
        self.falsely += more.falsely;
        self.interval.low += more.interval.low;
        self.interval.high += more.interval.high;
        self.cost_ns.add(more.cost_ns);
        self.in_turns += more.in_turns;
        for (&line, part) in &more.lines {
            *self.lines.entry(line).or_default() += part;
        }
        for (&cpus, part) in &more.cpus {
            *self.cpus.entry(cpus).or_default() += part;
        }
    }

    /// As it is told of a run of so many seconds.
    pub(super) fn row(&self, (one, other): (Tid, Tid), seconds: f64) -> SharingPair {
        let all = self.transfers();
        SharingPair {
            one: one.0,
            other: other.0,
            transfers: all / seconds,
            interval: Interval {
                low: self.interval.low / seconds,
                high: self.interval.high / seconds,
            },
            false_share: match all > 0.0 {
                true => self.falsely / all,
                false => 0.0,
            },
            in_turns: self.in_turns / seconds,
            lines: self.lines.len() as u64,
            why: Vec::new(),
        }
    }
}

/// The pairs of a run. Each line that was followed stands for `one_in`; a transfer takes `transfer_ns`.
pub(super) fn pairs(
    sharing: &SharingView,
    one_in: u32,
    transfer_ns: f64,
) -> BTreeMap<(Tid, Tid), PairSum> {
    let scale = f64::from(one_in);
    let mut pairs: BTreeMap<(Tid, Tid), PairSum> = BTreeMap::new();
    for line in &sharing.lines {
        let of = |flow: &super::super::sharing::Flow| flow.true_sharing + flow.false_sharing;
        let all: f64 = line.flows.iter().map(of).sum();
        for flow in line.flows.iter().filter(|flow| flow.to != flow.from) {
            let transfers = of(flow);
            if transfers.is_nan() || transfers <= 0.0 {
                continue;
            }
            let pair = pairs.entry(key(flow.to, flow.from)).or_default();
            // The line's interval and cost are told of all its transfers.
            let part = scale * transfers / all;
            pair.truly += scale * flow.true_sharing;
            pair.falsely += scale * flow.false_sharing;
            pair.interval.low += part * line.transfers.low;
            pair.interval.high += part * line.transfers.high;
            pair.cost_ns
                .add(line.cost_ns.times(Estimate::exactly(part)));
            *pair.lines.entry((line.pid, line.line)).or_default() += scale * transfers;
            for (&cpus, (truly, falsely)) in &line.cpu_flows {
                *pair.cpus.entry(cpus).or_default() += part * (truly + falsely);
            }
        }
    }
    for line in &sharing.turns {
        for (key, transfers) in in_turns(&line.places, transfer_ns) {
            let pair = pairs.entry(key).or_default();
            pair.in_turns += transfers;
            *pair.lines.entry((line.pid, line.line)).or_default() += transfers;
        }
    }
    pairs
}

fn key(a: Tid, b: Tid) -> (Tid, Tid) {
    (a.min(b), a.max(b))
}

/// One thread at a line in turns.
#[derive(Default)]
struct Turn {
    weight_ns: f64,
    seen: u64,
    writes: bool,
}

/// The pairs at a line in turns of whom one writes, and the transfers that fit into the time that both spend there.
fn in_turns(places: &[Place], transfer_ns: f64) -> Vec<((Tid, Tid), f64)> {
    let mut turns: BTreeMap<Tid, Turn> = BTreeMap::new();
    for place in places {
        let turn = turns.entry(place.tid).or_default();
        turn.weight_ns += place.weight;
        turn.seen += place.samples + place.traps;
        turn.writes |= place.touch.operation != Operation::Load;
    }
    let mut turns: Vec<(Tid, Turn)> = (turns.into_iter())
        .filter(|(_, turn)| turn.seen >= LEAST_SEEN)
        .collect();
    turns.sort_by(|a, b| b.1.weight_ns.total_cmp(&a.1.weight_ns));
    turns.truncate(MOST_AT_A_LINE);
    let mut pairs = Vec::new();
    for (i, (one, first)) in turns.iter().enumerate() {
        for (other, second) in &turns[..i] {
            let both_ns = first.weight_ns.min(second.weight_ns);
            if (first.writes || second.writes) && both_ns > 0.0 {
                pairs.push((key(*one, *other), both_ns / transfer_ns));
            }
        }
    }
    pairs
}
