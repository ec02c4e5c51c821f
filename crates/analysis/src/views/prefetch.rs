//! View `prefetch`: will it help to fetch the neighbour of every line that misses?
//!
//! Some processors fetch lines by aligned pairs ("adjacent cache line prefetch", "spatial
//! prefetcher"), which can be switched on and off. It saves time where memory is waited for and the
//! neighbour is used soon, and costs time where the neighbour is another thread's. After ReuseTracker
//! (Sasongko, Chabbi, Marzijarani, Unat, 2021: section 6.5.7 of the thesis version), which predicted
//! the sign of all twelve speedups above 5 % that it saw:
//!
//! ```text
//! G = T_m - T_fs       T_m = reuses that go to memory × latency of memory
//!                      T_fs = transfers by false sharing × latency of a transfer
//! ```
//!
//! G looks at lines only and cannot know whether the neighbours are used. Where the recording has
//! reuse distances of *pairs* of lines as well, they tell: misses that fetching by pairs avoids, and
//! invalidations that it adds. A verdict needs the two not to contradict each other.

use std::collections::BTreeMap;

use linewise_recording::{
    CacheCounts, CacheLevel, CacheSubject, Frame, Latency, ReuseBin, ReuseScope, RunInfo, Sharing,
    TransferCount, Unit,
};
use serde::{Deserialize, Serialize};

use super::place::Places;
use super::reuse::{Reuse, sum};
use crate::quantity::{Interval, median};

/// Functions that a result names.
const MOST_ROWS: usize = 100;
/// Assumed when it was not measured: what memory takes on today's machines, ns.
const USUAL_MEMORY_NS: Interval = Interval {
    low: 60.0,
    high: 150.0,
};
/// Assumed when it was not measured: what a transfer takes inside a socket, ns.
const USUAL_TRANSFER_NS: Interval = Interval {
    low: 25.0,
    high: 150.0,
};
/// Of all touches, the share of reuses from memory and of transfers below which neither matters.
const TOO_FEW: f64 = 1e-5;
/// Of the neighbours fetched, the share that is used below which fetching them is a waste.
const TOO_FEW_USED: f64 = 0.1;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// The view `reuse`.
    pub reuse: &'a Reuse,
    /// Table `reuse`, for the distances of pairs of lines.
    pub rows: &'a [ReuseBin],
    /// Table `caches`.
    pub caches: &'a [CacheCounts],
    /// Table `transfers`.
    pub transfers: &'a [TransferCount],
    /// Table `latencies`.
    pub latencies: &'a [Latency],
    /// Table `frames`.
    pub frames: &'a [Frame],
}

/// What to expect of fetching the neighbour of every line that misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It will save time.
    Helps,
    /// It will cost time.
    Hurts,
    /// Which of the two is within the doubt.
    Unclear,
    /// Hardly anything waits for memory or fights over lines, or neighbours are not used.
    NoMatter,
}

/// Whether fetching the neighbour of every line that misses will help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// What to expect.
    pub verdict: Verdict,
    /// Why, and what is not known, in a sentence or two.
    pub doubt: String,
    /// G = T_m - T_fs: `memory_wait_ns` less `sharing_wait_ns`. Of thread time, all threads together.
    pub gain_ns: f64,
    /// The lowest and the highest G that the counts of reuses and the latencies allow.
    pub gain_band: Interval,
    /// T_m: `memory_reuses` × `memory_ns`.
    pub memory_wait_ns: f64,
    /// T_fs: `false_transfers` × `transfer_ns`.
    pub sharing_wait_ns: f64,
    /// Reuses that the simulated hierarchy got from memory: no cache had kept the line.
    pub memory_reuses: f64,
    /// The same with what the stack distances of each thread say.
    pub memory_reuses_band: Interval,
    /// Transfers by false sharing.
    pub false_transfers: f64,
    /// Latency of a load from memory.
    pub memory_ns: Interval,
    /// Latency of a transfer.
    pub transfer_ns: Interval,
    /// What pairs of lines say; `null` if their reuse distances were not recorded.
    pub neighbours: Option<Neighbours>,
    /// By function, those with the largest waits first; at most 100.
    pub by_function: Vec<FunctionPrefetch>,
}

/// What fetching by pairs of lines changes, from reuse distances of pairs, each thread by itself in a cache of the last level's size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Misses by lines, first touches included.
    pub line_misses: f64,
    /// Misses by pairs of lines: as many neighbours would be fetched.
    pub pair_misses: f64,
    /// Misses that fetching by pairs avoids.
    pub avoided: f64,
    /// Of the neighbours fetched, the share that is used before it is lost, 0 to 1.
    pub used_share: f64,
    /// Touches that other threads' stores to the neighbour would invalidate and now do not.
    pub added_invalidations: f64,
    /// `avoided` × `memory_ns` less `added_invalidations` × `transfer_ns`.
    pub gain_ns: f64,
}

/// What to expect for one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionPrefetch {
    /// The function, demangled; an address when unknown.
    pub function: String,
    /// Its source file, empty if unknown.
    pub file: String,
    /// Its reuses that memory served.
    pub memory_reuses: f64,
    /// Transfers to it by false sharing.
    pub false_transfers: f64,
    /// Its part of G.
    pub gain_ns: f64,
}

/// What to expect of fetching neighbours; `None` if the recording does not have what it takes:
/// distances in lines, and a simulated hierarchy.
#[must_use]
pub fn prefetch(input: &Input<'_>) -> Option<Prefetch> {
    if input.reuse.private.unit != Unit::Line || input.caches.is_empty() {
        return None;
    }
    let last = input.caches.iter().map(|row| row.level).max()?;
    if last == CacheLevel::Unbounded {
        return None;
    }
    let mut rows = input.caches.iter();
    let total = rows.find(|row| row.level == last && row.subject == CacheSubject::Total);
    let memory_reuses = from_memory(total?);
    let by_distance =
        last_level_bytes(input.info, last).map(|bytes| input.reuse.private.reuses_from(bytes));
    let memory_reuses_band = by_distance
        .into_iter()
        .fold(Interval::exactly(memory_reuses), Interval::with);

    let transfers = input.transfers.iter();
    let false_transfers = transfers
        .filter(|row| row.sharing == Sharing::False)
        .map(|row| row.count)
        .sum();

    let measured_memory = input.info.exact.as_ref().and_then(|run| run.memory_ns);
    let memory_ns = measured_memory.map_or(USUAL_MEMORY_NS, Interval::exactly);
    let measured_transfer = transfer_latency(input.latencies);
    let transfer_ns = measured_transfer.map_or(USUAL_TRANSFER_NS, |(_, band)| band);
    let middle = |band: Interval| (band.low * band.high).sqrt();
    let memory_value = measured_memory.unwrap_or(middle(memory_ns));
    let transfer_value = measured_transfer.map_or(middle(transfer_ns), |(value, _)| value);

    let memory_wait_ns = memory_reuses * memory_value;
    let sharing_wait_ns = false_transfers * transfer_value;
    let gain_band = Interval {
        low: memory_reuses_band.low * memory_ns.low - false_transfers * transfer_ns.high,
        high: memory_reuses_band.high * memory_ns.high - false_transfers * transfer_ns.low,
    };
    let mut result = Prefetch {
        verdict: Verdict::Unclear,
        doubt: String::new(),
        gain_ns: memory_wait_ns - sharing_wait_ns,
        gain_band,
        memory_wait_ns,
        sharing_wait_ns,
        memory_reuses,
        memory_reuses_band,
        false_transfers,
        memory_ns,
        transfer_ns,
        neighbours: neighbours(input, last, memory_value, transfer_value),
        by_function: by_function(input, last, (memory_value, transfer_value)),
    };
    judge(&mut result, input.reuse.private.accesses);
    if measured_memory.is_none() || measured_transfer.is_none() {
        result.doubt += " Latencies were not all measured beside this run; usual ones stand in.";
    }
    Some(result)
}

/// Reuses that memory served: misses of the last level but for first touches and invalidations, as
/// far as memory served its misses.
fn from_memory(row: &CacheCounts) -> f64 {
    let misses =
        row.compulsory + row.capacity + row.conflict + row.true_sharing + row.false_sharing;
    let memory = row.from_local_dram + row.from_remote_dram;
    match misses > 0.0 {
        true => (row.capacity + row.conflict) * (memory / misses).min(1.0),
        false => 0.0,
    }
}

fn last_level_bytes(info: &RunInfo, last: CacheLevel) -> Option<u64> {
    let caches = &info.exact.as_ref()?.caches;
    let sizes = caches.iter().filter(|cache| cache.level == last);
    sizes.map(|cache| cache.size_bytes).max()
}

/// Median, lowest and highest time for a transfer that nobody is in the way of.
fn transfer_latency(latencies: &[Latency]) -> Option<(f64, Interval)> {
    let idle: Vec<f64> = latencies
        .iter()
        .map(|latency| latency.transfer_idle_ns)
        .filter(|ns| *ns > 0.0)
        .collect();
    Interval::of(&idle).and_then(|seen| Some((median(idle)?, seen)))
}

fn neighbours(
    input: &Input<'_>,
    last: CacheLevel,
    memory_ns: f64,
    transfer_ns: f64,
) -> Option<Neighbours> {
    let rows = input.rows.iter();
    let rows = rows.filter(|row| row.scope == ReuseScope::Private && row.unit == Unit::LinePair);
    let pairs = sum(rows, Unit::LinePair, input.info)?;
    let bytes = last_level_bytes(input.info, last)?;
    let lines = &input.reuse.private;
    let line_misses = lines.cold + lines.reuses_from(bytes);
    let pair_misses = pairs.cold + pairs.reuses_from(bytes);
    let avoided = (line_misses - pair_misses).max(0.0);
    let added_invalidations = (pairs.invalidated - lines.invalidated).max(0.0);
    Some(Neighbours {
        line_misses,
        pair_misses,
        avoided,
        used_share: match pair_misses > 0.0 {
            true => (avoided / pair_misses).min(1.0),
            false => 0.0,
        },
        added_invalidations,
        gain_ns: avoided * memory_ns - added_invalidations * transfer_ns,
    })
}

fn by_function(
    input: &Input<'_>,
    last: CacheLevel,
    (memory_ns, transfer_ns): (f64, f64),
) -> Vec<FunctionPrefetch> {
    let places = Places::new(input.frames);
    let mut functions: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    let mut add = |pid, ip, memory, sharing| {
        let place = places.at(pid, ip);
        let sum = functions.entry((place.function, place.file)).or_default();
        sum.0 += memory;
        sum.1 += sharing;
    };
    for row in input.caches {
        if let (true, CacheSubject::Instruction, Some(pid), Some(ip)) =
            (row.level == last, row.subject, row.pid, row.ip)
        {
            add(pid, ip, from_memory(row), 0.0);
        }
    }
    for row in input.transfers {
        if let (Sharing::False, Some(pid), Some(ip)) = (row.sharing, row.pid, row.to_ip) {
            add(pid, ip, 0.0, row.count);
        }
    }
    let mut rows: Vec<FunctionPrefetch> = functions
        .into_iter()
        .filter(|(_, (memory_reuses, false_transfers))| memory_reuses + false_transfers > 0.0)
        .map(
            |((function, file), (memory_reuses, false_transfers))| FunctionPrefetch {
                function,
                file,
                memory_reuses,
                false_transfers,
                gain_ns: memory_reuses * memory_ns - false_transfers * transfer_ns,
            },
        )
        .collect();
    let waits =
        |row: &FunctionPrefetch| row.memory_reuses * memory_ns + row.false_transfers * transfer_ns;
    rows.sort_by(|a, b| waits(b).total_cmp(&waits(a)));
    rows.truncate(MOST_ROWS);
    rows
}

/// Fills in the verdict and its doubt.
fn judge(result: &mut Prefetch, touches: f64) {
    let few = TOO_FEW * touches;
    let quiet = result.memory_reuses_band.high < few && result.false_transfers < few;
    let (verdict, doubt) = match result.neighbours {
        Some(pairs) if quiet && pairs.avoided < few && pairs.added_invalidations < few => (
            Verdict::NoMatter,
            "Hardly any access waits for memory or for a line that others write.",
        ),
        None if quiet => (
            Verdict::NoMatter,
            "Hardly any reuse goes to memory and no lines are fought over. First touches are not counted.",
        ),
        None if result.gain_band.low > 0.0 => (
            Verdict::Helps,
            "Memory is waited for longer than lines that others write. Whether the neighbours are used was not recorded.",
        ),
        None if result.gain_band.high < 0.0 => (
            Verdict::Hurts,
            "Lines that others write are waited for longer than memory. Whether the neighbours are used was not recorded.",
        ),
        Some(pairs) if pairs.gain_ns < 0.0 && result.gain_band.low <= 0.0 => (
            Verdict::Hurts,
            "The neighbours are written by other threads: to fetch them costs more transfers than it saves misses.",
        ),
        Some(pairs) if pairs.used_share < TOO_FEW_USED && pairs.added_invalidations < few => (
            Verdict::NoMatter,
            "Hardly any neighbour is used before it is lost: fetching it takes bandwidth and saves nothing.",
        ),
        Some(pairs) if pairs.gain_ns > 0.0 && quiet => (
            Verdict::Unclear,
            "Hardly any reuse goes to memory: neighbours are used after first touches alone, which other prefetchers of the processor may have fetched already.",
        ),
        Some(pairs) if pairs.gain_ns > 0.0 && result.gain_band.high > 0.0 => (
            Verdict::Helps,
            "Neighbours are used after most misses. Other prefetchers of the processor may have fetched them already.",
        ),
        Some(_) => (
            Verdict::Unclear,
            "Lines that threads fight over speak against it, the use of neighbours for it, or the other way round.",
        ),
        None => (
            Verdict::Unclear,
            "The waits for memory and for lines that others write are too near each other.",
        ),
    };
    result.verdict = verdict;
    result.doubt = doubt.to_owned();
}

#[cfg(test)]
#[path = "prefetch_tests.rs"]
mod tests;
