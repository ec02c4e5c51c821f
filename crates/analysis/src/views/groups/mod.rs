//! View `groups`: which threads share lines with which, as groups, and what would their transfers cost elsewhere?
//!
//! Nothing is estimated anew: transfers and costs of a pair are its part of those of the lines that view `sharing` found.
//! Threads that take turns at a line move nothing where they are; they would where they ran at once, so they belong
//! together, too.
//!
//! ```text
//! lines with flows   → pairs → groups (linewise_placer) → cost at each distance → where they fit
//! lines in turns     ↗
//! ```

mod distance;
mod input;
mod pairs;
mod places;
mod rows;
mod sharing_pair;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::BTreeMap;

use linewise_placer::Sharing;
use linewise_recording::{RunInfo, Tid};

use super::sharing::{Estimate, Followed, ThreadTime};
use super::threads::thread_rows;
use crate::quantity::Interval;
pub use distance::{Distance, DistanceCost, Latencies, LevelLatency};
pub use input::GroupsInput;
pub(crate) use pairs::{LineOf, PairSum};
pub use rows::{
    Below, GroupPlace, GroupedThread, PlacementAdvice, PlacementVerdict, Shape, ThreadGroup,
    ThreadGroups,
};
pub use sharing_pair::{SharedObject, SharingPair};

/// The version of the JSON interface.
pub const GROUPS_SCHEMA: u32 = 1;

/// A pair weaker than this, of the strongest of either thread, does not make two groups one.
const CUT: f32 = 0.1;
/// Transfers of a run below which a pair makes no group: what threads hand to each other when they begin and end stays
/// below.
const LEAST_TRANSFERS: f64 = 1_000.0;

/// The view's answer without names, and the lines behind each pair and group.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The answer; `why` is empty everywhere.
    pub(crate) groups: ThreadGroups,
    /// By the threads of [`ThreadGroups::pairs`], the lower id first.
    pub(crate) sums: BTreeMap<(Tid, Tid), PairSum>,
}

/// Computes the view.
#[must_use]
pub(crate) fn thread_groups(input: &GroupsInput<'_>) -> Found {
    let info = input.info;
    let seconds = seconds(info);
    let latencies = Latencies::of(&input.tables.latencies, input.machine);
    let sums = pairs::pairs(
        input.sharing,
        Followed::of(info).one_in(),
        latencies.now_ns(),
    );
    let mut threads = busy_threads(input, &sums);
    let members = grouped(&mut threads, &sums);
    let mut groups: Vec<ThreadGroup> = (1..)
        .zip(&members)
        .map(|(id, members)| group(id, members, input, &sums, &latencies))
        .collect();
    let shape = Shape::of(info, input.machine);
    if let Some(machine) = input.machine {
        places::place(&mut groups, machine, &input.tables.samples);
    }
    threads.sort_by_key(|thread| (thread.group.unwrap_or(u32::MAX), thread.tid));
    let mut pairs: Vec<SharingPair> = (sums.iter())
        .map(|(key, sum)| sum.row(*key, seconds))
        .collect();
    pairs.sort_by(|a, b| b.strength().total_cmp(&a.strength()));
    let mut groups = ThreadGroups {
        schema: GROUPS_SCHEMA,
        command: info.command.clone(),
        source: info.source,
        launched: info.launched,
        duration_ns: info.end.since(info.start),
        line_bytes: info.line_size,
        threads,
        pairs,
        groups,
        shape,
        latencies: latencies.levels,
        advice: PlacementAdvice {
            verdict: PlacementVerdict::NothingShared,
            words: String::new(),
        },
        notes: Vec::new(),
    };
    groups.judge(input);
    Found { groups, sums }
}

/// Seconds by which transfers are divided; 1 where those of the run mean nothing.
fn seconds(info: &RunInfo) -> f64 {
    match info.end.since(info.start) {
        ns if !info.source.is_emulated() && ns > 0 => ns as f64 * 1e-9,
        _ => 1.0,
    }
}

/// The threads that used any time or share anything.
fn busy_threads(
    input: &GroupsInput<'_>,
    sums: &BTreeMap<(Tid, Tid), PairSum>,
) -> Vec<GroupedThread> {
    let run_ns = input.info.end.since(input.info.start).max(1) as f64;
    let sharing: std::collections::BTreeSet<u32> =
        sums.keys().flat_map(|(a, b)| [a.0, b.0]).collect();
    let rows = thread_rows(input.info, input.tables).into_iter();
    rows.filter(|row| row.work() > 0 || sharing.contains(&row.tid))
        .map(|row| GroupedThread {
            tid: row.tid,
            pid: row.pid,
            load: (row.cpu_time_ns as f64 / run_ns).min(1.0),
            name: row.name,
            group: None,
        })
        .collect()
}

/// The members of each group; it is noted at the threads, too.
fn grouped(threads: &mut [GroupedThread], sums: &BTreeMap<(Tid, Tid), PairSum>) -> Vec<Vec<Tid>> {
    let index: BTreeMap<u32, u32> = (threads.iter().zip(0..))
        .map(|(thread, i)| (thread.tid, i))
        .collect();
    let strong = sums
        .iter()
        .filter(|(_, sum)| sum.strength() >= LEAST_TRANSFERS);
    let pairs: Vec<Sharing> = strong
        .filter_map(|((one, other), sum)| {
            Some(Sharing {
                one: *index.get(&one.0)?,
                other: *index.get(&other.0)?,
                transfers: sum.strength() as f32,
            })
        })
        .collect();
    let weights: Vec<f32> = threads.iter().map(|thread| thread.load as f32).collect();
    // What a group needs is looked at when it is placed: it is shown however large it is.
    let groups = linewise_placer::groups(&weights, &pairs, f32::INFINITY, CUT);
    for (id, members) in (1..).zip(&groups) {
        for &at in members {
            threads[at as usize].group = Some(id);
        }
    }
    let tids = |members: &Vec<u32>| {
        let mut tids: Vec<Tid> = members
            .iter()
            .map(|&at| Tid(threads[at as usize].tid))
            .collect();
        tids.sort_unstable();
        tids
    };
    groups.iter().map(tids).collect()
}

fn group(
    id: u32,
    members: &[Tid],
    input: &GroupsInput<'_>,
    sums: &BTreeMap<(Tid, Tid), PairSum>,
    latencies: &Latencies,
) -> ThreadGroup {
    let seconds = seconds(input.info);
    let is_in = |tid: &Tid| members.binary_search(tid).is_ok();
    let mut inner = PairSum::default();
    let mut outside = 0.0;
    for ((one, other), sum) in sums {
        match (is_in(one), is_in(other)) {
            (true, true) => inner.add(sum),
            (false, false) => {}
            _ => outside += sum.transfers(),
        }
    }
    let threads = input.tables.threads.iter();
    let own_ns: u64 = (threads.filter(|thread| is_in(&thread.tid)))
        .map(|thread| thread.cpu_time_ns)
        .sum();
    let share = |cost: Estimate| match input.info.exact.is_some() {
        true => input.time.share(cost),
        false => ThreadTime::Measured(own_ns as f64).share(cost),
    };
    let cost = share(inner.cost_ns);
    let row = inner.row((Tid(0), Tid(0)), seconds);
    let scale = f64::from(Followed::of(input.info).one_in());
    let lines = (inner.lines.len() as f64 * scale) as u64;
    let run_ns = input.info.end.since(input.info.start).max(1);
    ThreadGroup {
        id,
        threads: members.iter().map(|tid| tid.0).collect(),
        load: own_ns as f64 / run_ns as f64,
        transfers: row.transfers,
        interval: row.interval,
        false_share: row.false_share,
        in_turns: row.in_turns,
        outside: outside / seconds,
        lines,
        hot_bytes: lines * input.info.line_size,
        cost: cost.value,
        cost_interval: cost.interval(),
        elsewhere: latencies.costs(&inner, input, share),
        place: None,
        gain: 0.0,
        gain_interval: Interval::default(),
        verdict: PlacementVerdict::NothingShared,
        why: Vec::new(),
    }
}

impl ThreadGroups {
    /// Whether its transfers are counted over the whole run, not by the second.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.source.is_emulated()
    }

    /// The thread with this id.
    #[must_use]
    pub fn thread(&self, tid: u32) -> Option<&GroupedThread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }
}
