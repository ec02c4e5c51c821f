//! From traps to intervals between a use and its reuse, with the chance that each had to be seen.

use std::collections::HashMap;

use linewise_recording::{
    Address, Operation, Pid, ReuseOutcome, ReuseScope, ReuseTrap, ReuseWatch, Sample, Tid, Time,
};

/// What became of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was reused; by another thread, if true.
    Reused(bool),
    /// A store of another thread (in shared scope: of another cache) came first.
    Invalidated,
}

/// A use, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReuseInterval {
    pub(super) scope: ReuseScope,
    pub(super) pid: Pid,
    /// The thread that used.
    pub(super) tid: Tid,
    pub(super) start: Time,
    pub(super) end: Time,
    /// Time that the thread ran in between, ns; of private reuse only.
    pub(super) running_ns: Option<u64>,
    pub(super) fate: Fate,
    pub(super) use_ip: Address,
    pub(super) reuse_ip: Address,
    /// The instruction of the sample that chose the address.
    pub(super) sample_ip: Address,
    /// How many like it there are: thread time that the sample stands for, over the chance that the
    /// watch lasted until the end of this interval.
    pub(super) weight: f64,
}

/// All intervals, and the weight of what was not seen to its end.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    pub(super) seen: Vec<ReuseInterval>,
    /// For each scope: instruction of the sample, and the weight of all uses of its watches, seen to
    /// their end or not.
    pub(super) all: Vec<(ReuseScope, Pid, Address, f64)>,
}

/// The chance that a watch is not taken away within a time.
///
/// The estimator of Kaplan and Meier (1958) of the times at which the reservoir, or the end of the
/// recording, took watches away; those that were complete before count as not taken away until then.
/// An interval that was seen to its end stands for one over that chance: all together have the same
/// weight as the product-limit estimate of their lengths (Robins, Rotnitzky, 1992).
#[derive(Debug)]
pub(super) struct Lasting {
    /// Time since arming, and the chance from then on.
    steps: Vec<(u64, f64)>,
}

impl Lasting {
    /// From how long each watch was armed, ns, and whether it was taken away.
    pub(super) fn new(watches: impl Iterator<Item = (u64, bool)>) -> Self {
        let mut watches: Vec<(u64, bool)> = watches.collect();
        // Who completes at the same moment was at risk.
        watches.sort_unstable_by_key(|&(ns, taken)| (ns, taken));
        let mut steps: Vec<(u64, f64)> = Vec::new();
        let mut chance = 1.0;
        for (index, &(ns, taken)) in watches.iter().enumerate() {
            if taken {
                let at_risk = (watches.len() - index) as f64;
                chance *= 1.0 - 1.0 / at_risk;
                steps.push((ns, chance));
            }
        }
        Self { steps }
    }

    /// The chance that a watch lasts for `ns`.
    pub(super) fn until(&self, ns: u64) -> f64 {
        let behind = self.steps.partition_point(|&(step, _)| step < ns);
        match behind {
            0 => 1.0,
            behind => self.steps[behind - 1].1,
        }
    }
}

/// Finds the intervals in the traps of all watches.
pub(super) fn intervals(watches: &[ReuseWatch], traps: &[ReuseTrap]) -> Intervals {
    let mut of_watch: HashMap<u64, Vec<&ReuseTrap>> = HashMap::new();
    for trap in traps {
        of_watch.entry(trap.watch).or_default().push(trap);
    }
    let mut result = Intervals::default();
    for scope in [ReuseScope::Private, ReuseScope::Shared] {
        let of_scope = || watches.iter().filter(|watch| watch.scope == scope);
        let lasting = Lasting::new(of_scope().map(|watch| {
            let armed = watch.closed.since(watch.armed);
            (armed, watch.outcome != ReuseOutcome::Complete)
        }));
        for watch in of_scope() {
            let uses = uses_shown(watch) as f64;
            let weight = watch.weight_ns as f64;
            result
                .all
                .push((scope, watch.pid, watch.sample_ip, weight * uses));
            let mut traps = of_watch.remove(&watch.id).unwrap_or_default();
            traps.sort_by_key(|trap| trap.time);
            for (use_trap, trap, fate) in pairs(watch, &traps) {
                let chance = lasting.until(trap.time.since(watch.armed));
                if chance <= 0.0 {
                    continue;
                }
                let same = use_trap.tid == trap.tid && scope == ReuseScope::Private;
                result.seen.push(ReuseInterval {
                    scope,
                    pid: watch.pid,
                    tid: use_trap.tid,
                    start: use_trap.time,
                    end: trap.time,
                    running_ns: same.then(|| trap.running_ns.saturating_sub(use_trap.running_ns)),
                    fate,
                    use_ip: use_trap.access_ip,
                    reuse_ip: trap.access_ip,
                    sample_ip: watch.sample_ip,
                    weight: weight / chance,
                });
            }
        }
    }
    result
}

/// Uses that a watch can show the end of: the last shot has no time of its own.
fn uses_shown(watch: &ReuseWatch) -> usize {
    watch.shots.saturating_sub(2) as usize
}

/// The uses of one watch, each with the trap that ended it. As many as every watch can show at most.
fn pairs<'a>(
    watch: &ReuseWatch,
    traps: &[&'a ReuseTrap],
) -> Vec<(&'a ReuseTrap, &'a ReuseTrap, Fate)> {
    let mut pairs = Vec::new();
    let mut used: Option<&ReuseTrap> = None;
    let mut stored = false;
    let mut counts: HashMap<Tid, u32> = HashMap::new();
    for &trap in traps {
        if trap.time > watch.closed {
            break;
        }
        *counts.entry(trap.tid).or_default() += 1;
        let is_use = match watch.scope {
            ReuseScope::Private => trap.tid == watch.tid,
            ReuseScope::Shared => trap.loads,
        };
        if !is_use {
            // What traps for stores alone is a store.
            stored |= trap.operation != Some(Operation::Load);
            continue;
        }
        if let Some(before) = used {
            let fate = match stored || unseen_stores(watch, &counts) {
                true => Fate::Invalidated,
                false => Fate::Reused(before.tid != trap.tid),
            };
            pairs.push((before, trap, fate));
        }
        used = Some(trap);
        stored = false;
    }
    pairs.truncate(uses_shown(watch));
    pairs
}

/// Whether a thread has used up its shots with stores: while the owner came less often than that, it
/// is taken to go on storing.
fn unseen_stores(watch: &ReuseWatch, counts: &HashMap<Tid, u32>) -> bool {
    watch.scope == ReuseScope::Private
        && counts
            .iter()
            .any(|(&tid, &count)| tid != watch.tid && count >= watch.shots)
}

/// The time between two traps of a chunk that is touched at once, ns: as measured, or less where this
/// run has shorter times between traps. (The measurement is of another moment, and two busy CPUs slow
/// each other; most programs have reuses so near that they show it.)
pub(super) fn trap_offset(watches: &[ReuseWatch], traps: &[ReuseTrap], measured_ns: f64) -> f64 {
    /// Of the times between traps, the share that may be shorter by chance.
    const SHARE: usize = 100;
    let mut of_watch: HashMap<(u64, Tid), Vec<u64>> = HashMap::new();
    for trap in traps.iter().filter(|trap| trap.loads) {
        let of = of_watch.entry((trap.watch, trap.tid)).or_default();
        of.push(trap.running_ns);
    }
    let shown: HashMap<u64, usize> = watches
        .iter()
        .map(|watch| (watch.id, uses_shown(watch) + 1))
        .collect();
    let mut times = Vec::new();
    for ((watch, _), mut running) in of_watch {
        running.sort_unstable();
        running.truncate(shown.get(&watch).copied().unwrap_or(0));
        times.extend(running.windows(2).map(|pair| pair[1] - pair[0]));
    }
    times.sort_unstable();
    times
        .get(times.len() / SHARE)
        .map_or(measured_ns, |&shortest| measured_ns.min(shortest as f64))
}

/// What else took time from threads between two moments.
pub(super) struct Interruptions {
    /// By thread, sorted: when, and for how long in ns, added up from the first on.
    of_thread: HashMap<Tid, Vec<(Time, f64)>>,
}

impl Interruptions {
    pub(super) fn new(
        samples: &[Sample],
        sample_ns: f64,
        traps: &[ReuseTrap],
        offset_ns: f64,
    ) -> Self {
        let mut of_thread: HashMap<Tid, Vec<(Time, f64)>> = HashMap::new();
        for sample in samples {
            let of = of_thread.entry(sample.tid).or_default();
            of.push((sample.time, sample_ns));
        }
        for trap in traps {
            let of = of_thread.entry(trap.tid).or_default();
            of.push((trap.time, offset_ns));
        }
        for moments in of_thread.values_mut() {
            moments.sort_by_key(|&(time, _)| time);
            let mut sum = 0.0;
            for (_, ns) in moments.iter_mut() {
                sum += *ns;
                *ns = sum;
            }
        }
        Self { of_thread }
    }

    /// What all threads lost, ns.
    pub(super) fn all(&self) -> f64 {
        let of_thread = self.of_thread.values();
        of_thread
            .filter_map(|moments| Some(moments.last()?.1))
            .sum()
    }

    /// What a thread lost from `start` on until before `end`, ns.
    pub(super) fn between(&self, tid: Tid, start: Time, end: Time) -> f64 {
        let Some(moments) = self.of_thread.get(&tid) else {
            return 0.0;
        };
        let until = |time: Time| {
            let behind = moments.partition_point(|&(moment, _)| moment < time);
            behind.checked_sub(1).map_or(0.0, |last| moments[last].1)
        };
        until(end) - until(start)
    }
}
