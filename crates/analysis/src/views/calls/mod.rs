//! Thread time by call chain, by thread, and over the run: what the page draws as a flame graph and as rows of threads.
//!
//! ```text
//! samples ── by call chain and thread ──► tree of calls ── prune ──► nodes
//!        └── by thread and slice of the run ─────────────────────► cells
//! ```

mod prune;
mod rows;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{RunInfo, Sample, Tables, Tid};

pub use self::rows::{CallCell, CallNode, CallTree, Owner, SLICES, SampledThread};
use self::tree::Tree;
use super::chains::{Chains, PathKey};

/// Threads that are told apart; what the others did is taken together.
const MOST_THREADS: usize = 512;

/// Of the samples of a recording; `contended_ns` is what of a sample's time is lost at a contended line. `None` of an
/// exact run, and without samples.
pub(crate) fn calls(
    info: &RunInfo,
    tables: &Tables,
    contended_ns: impl Fn(&Sample) -> f64,
) -> Option<CallTree> {
    let samples = tables.samples.iter();
    let all = samples.fold(0_u64, |sum, sample| sum.saturating_add(sample.weight));
    if info.exact.is_some() || all == 0 {
        return None;
    }
    let length_ns = info.end.since(info.start).max(1) as f64;
    let slice_of = |sample: &Sample| {
        let share = sample.time.since(info.start) as f64 / length_ns;
        ((share * SLICES as f64) as usize).min(SLICES - 1)
    };
    let (mut threads, numbers) = threads(tables);
    let mut paths: HashMap<(PathKey, usize), Path<'_>> = HashMap::new();
    for sample in &tables.samples {
        let thread = numbers.get(&sample.tid).copied().unwrap_or_default();
        let slice = slice_of(sample);
        if let Some(row) = threads.get_mut(thread) {
            row.sampled_ns[slice] += sample.weight as f64;
            row.contended_ns[slice] += contended_ns(sample);
        }
        let path = paths
            .entry((PathKey::of(sample), thread))
            .or_insert_with(|| Path::of(sample));
        let ns = path.ns.entry(slice).or_default();
        *ns = ns.saturating_add(sample.weight);
    }
    let chains = Chains::new(tables);
    let mut tree = Tree::default();
    let mut cells: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
    // In an order of their own, so that two reports of one recording are the same.
    let mut paths: Vec<((PathKey, usize), Path<'_>)> = paths.into_iter().collect();
    paths.sort_by_key(|(key, _)| *key);
    for ((key, thread), path) in paths {
        let name = threads.get(thread).map_or("", |it| it.group.as_str());
        let sum = path
            .ns
            .values()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let frames: Vec<_> = chains.of(path.sample).map(|(frame, _)| frame).collect();
        let node = tree.add(name, &frames, key.in_kernel, sum);
        for (slice, ns) in path.ns {
            let cell = cells.entry((node, thread, slice)).or_default();
            *cell = cell.saturating_add(ns);
        }
    }
    let nodes = tree.into_nodes();
    let cells = cells.into_iter();
    let cells = cells.map(|((node, thread, slice), ns)| CallCell {
        node,
        thread,
        slice,
        ns,
    });
    Some(CallTree {
        length_ns,
        threads,
        ..prune::prune(nodes, cells.collect())
    })
}

/// The samples of one call chain in one thread.
struct Path<'a> {
    /// Any of them.
    sample: &'a Sample,
    /// Their time by slice of the run.
    ns: BTreeMap<usize, u64>,
}

impl<'a> Path<'a> {
    fn of(sample: &'a Sample) -> Self {
        Self {
            sample,
            ns: BTreeMap::new(),
        }
    }
}

/// The sampled threads, those with the most time first, and where each of them stands.
fn threads(tables: &Tables) -> (Vec<SampledThread>, HashMap<Tid, usize>) {
    let mut sums: HashMap<Tid, u64> = HashMap::new();
    for sample in &tables.samples {
        let sum = sums.entry(sample.tid).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    let mut order: Vec<(Tid, u64)> = sums.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let all = tables.threads.iter();
    let names: HashMap<Tid, &str> = all.map(|it| (it.tid, it.name.as_str())).collect();
    let shown = order.iter().take(MOST_THREADS);
    let mut rows: Vec<SampledThread> = shown
        .map(
            |(tid, _)| match names.get(tid).copied().unwrap_or_default() {
                "" => SampledThread::new(Some(tid.0), format!("thread {}", tid.0)),
                name => SampledThread::new(Some(tid.0), name.to_owned()),
            },
        )
        .collect();
    if order.len() > MOST_THREADS {
        let others = order.len() - MOST_THREADS;
        rows.push(SampledThread::new(None, format!("{others} other threads")));
    }
    group(&mut rows);
    let numbers = order.iter().enumerate();
    let numbers = numbers.map(|(number, (tid, _))| (*tid, number.min(MOST_THREADS)));
    (rows, numbers.collect())
}

/// Takes threads together whose names differ by their numbers alone.
fn group(threads: &mut [SampledThread]) {
    let mut names: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for thread in threads.iter() {
        let of_kind = names.entry(without_numbers(&thread.name)).or_default();
        of_kind.insert(&thread.name);
    }
    let groups = threads.iter().map(|thread| {
        let kind = without_numbers(&thread.name);
        let is_one = names.get(&kind).is_none_or(|names| names.len() < 2);
        if is_one { thread.name.clone() } else { kind }
    });
    let groups: Vec<String> = groups.collect();
    for (thread, group) in threads.iter_mut().zip(groups) {
        thread.group = group;
    }
}

/// `pool-*` of `pool-17`.
fn without_numbers(name: &str) -> String {
    let mut kind = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if kind.ends_with('*') => {}
            true => kind.push('*'),
            false => kind.push(c),
        }
    }
    kind
}
