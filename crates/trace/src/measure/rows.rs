//! From what was measured to the rows of the recording.

use std::collections::{BTreeMap, HashMap};

use linewise_cache::Kind;
use linewise_cache::hierarchy::{Class, Counts, Level, Served};
use linewise_cache::reuse::{Distances, Histogram};
use linewise_recording::{
    Address, CacheCounts, CacheLevel, CacheSubject, Measure, Operation, ReuseBin, ReusePairBin,
    ReuseScope, Sharing, SimulationSums, Tables, Touch, TransferCount,
};

use super::machine::Model;
use super::measures::{Measured, Tracked};
use super::names::Names;
use super::paths::{CallPaths, PathRows};
use crate::access::GUEST_BITS;

/// Instructions that have rows of their own.
const INSTRUCTIONS: usize = 1024;

/// Appends the rows; the paths that they name go to `paths`.
pub(crate) fn append(
    tables: &mut Tables,
    paths: &mut PathRows,
    measured: &Measured,
    names: &Names<'_>,
) {
    append_caches(&mut tables.caches, measured, names);
    append_transfers(&mut tables.transfers, measured, names);
    for tracked in &measured.reuse {
        append_reuse(&mut tables.reuse, tracked, names);
        if tracked.by_pairs {
            let calls = Calls {
                paths: measured.paths.as_ref(),
                rows: paths,
            };
            append_pairs(&mut tables.reuse_pairs, tracked, calls, names);
        }
    }
}

/// The sums for `run.json`.
pub(crate) fn sums(measured: &Measured, names: &Names<'_>) -> SimulationSums {
    let scale = names.scale();
    let report = &measured.report;
    let transfers = report.core_transfers.total();
    let scaled = |count: u64| count as f64 * scale;
    // Horvitz and Thompson's variance of a total when each line is chosen by itself with one
    // probability: the sum of (1 - p) / p^2 of the squares.
    let squares: f64 = report
        .lines
        .iter()
        .map(|line| (line.transfers.total() as f64).powi(2))
        .sum();
    SimulationSums {
        true_sharing: scaled(transfers.true_sharing),
        false_sharing: scaled(transfers.false_sharing),
        transfers_error: (names.trace.one_line_in > 1)
            .then(|| (squares * (1.0 - 1.0 / scale)).sqrt() * scale),
        intra_socket_supplied: scaled(report.intra_socket.supplied),
        intra_socket_upgrades: scaled(report.intra_socket.upgrades),
        inter_socket_supplied: scaled(report.inter_socket.supplied),
        inter_socket_upgrades: scaled(report.inter_socket.upgrades),
        invalidations: scaled(
            report.intra_socket.invalidations + report.inter_socket.invalidations,
        ),
        written_back: scaled(report.write_backs.to_memory),
    }
}

/// What a level is called, what comes before it, and who serves what it misses.
struct Asked {
    level: Level,
    name: CacheLevel,
    before: &'static [Served],
    serves: &'static [Served],
}

fn levels(model: &Model) -> Vec<Asked> {
    if !model.simulated {
        return vec![Asked {
            level: Level::L1,
            name: CacheLevel::Unbounded,
            before: &[],
            serves: &[Served::L1],
        }];
    }
    let second = model.config.cores.iter().any(|core| core.l2.is_some());
    let mut levels = vec![Asked {
        level: Level::L1,
        name: CacheLevel::L1d,
        before: &[],
        serves: &[Served::L1],
    }];
    if second {
        levels.push(Asked {
            level: Level::L2,
            name: CacheLevel::L2,
            before: &[Served::L1],
            serves: &[Served::L2],
        });
    }
    levels.push(Asked {
        level: Level::Llc,
        name: model.last_level,
        before: &[Served::L1, Served::L2],
        serves: &[Served::Llc, Served::Peer],
    });
    levels
}

fn row(asked: &Asked, counts: &Counts, scale: f64) -> CacheCounts {
    let of_kind = |kind| -> f64 {
        let all = counts.of_kind(kind);
        let nearer: u64 = asked
            .before
            .iter()
            .map(|&by| counts.served_of_kind(kind, by))
            .sum();
        (all - nearer) as f64 * scale
    };
    let class = |class| counts.class(asked.level, class) as f64 * scale;
    let from = |by| {
        if asked.before.contains(&by) || asked.serves.contains(&by) {
            0.0
        } else {
            counts.served(by) as f64 * scale
        }
    };
    let upgrades = if asked.level == Level::L1 {
        counts.upgrades() as f64 * scale
    } else {
        0.0
    };
    CacheCounts {
        level: asked.name,
        subject: CacheSubject::Total,
        cache: None,
        tid: None,
        pid: None,
        ip: None,
        loads: of_kind(Kind::Load),
        stores: of_kind(Kind::Store),
        updates: of_kind(Kind::Update),
        hits: counts.hits(asked.level) as f64 * scale,
        compulsory: class(Class::Compulsory),
        capacity: class(Class::Capacity),
        conflict: class(Class::Conflict),
        true_sharing: class(Class::TrueSharing),
        false_sharing: class(Class::FalseSharing),
        from_l2: from(Served::L2),
        from_llc: from(Served::Llc),
        from_peer: from(Served::Peer),
        from_other_group: from(Served::OtherGroup),
        from_other_socket: from(Served::OtherSocket),
        from_local_dram: from(Served::LocalDram),
        from_remote_dram: from(Served::RemoteDram),
        upgrades,
    }
}

fn append_caches(rows: &mut Vec<CacheCounts>, measured: &Measured, names: &Names<'_>) {
    let report = &measured.report;
    let scale = names.scale();
    // Those that miss most; ties by number, so that the order is always the same.
    let mut sites: Vec<u32> = (0..report.sites.len() as u32)
        .filter(|&site| report.sites[site as usize].accesses() > 0)
        .collect();
    sites.sort_by_key(|&site| {
        let counts = &report.sites[site as usize];
        let weight = (counts.misses(Level::L1), counts.accesses());
        (std::cmp::Reverse(weight), site)
    });
    let (shown, rest) = sites.split_at(sites.len().min(INSTRUCTIONS));
    let mut others = report.other_sites;
    for &site in rest {
        others += &report.sites[site as usize];
    }
    for asked in &levels(names.trace.model) {
        rows.push(row(asked, &report.total, scale));
        for (thread, counts) in (0u16..).zip(&report.threads) {
            let cache = if asked.level == Level::Llc {
                names.trace.model.group(thread)
            } else {
                names.trace.model.core(thread)
            };
            if counts.accesses() > 0 {
                rows.push(CacheCounts {
                    subject: CacheSubject::Thread,
                    cache: Some(cache),
                    tid: names.tid(thread),
                    ..row(asked, counts, scale)
                });
            }
        }
        for &site in shown {
            rows.push(CacheCounts {
                subject: CacheSubject::Instruction,
                pid: names.pid(site),
                ip: names.ip(site),
                ..row(asked, &report.sites[site as usize], scale)
            });
        }
        if others.accesses() > 0 {
            rows.push(CacheCounts {
                subject: CacheSubject::OtherInstructions,
                ..row(asked, &others, scale)
            });
        }
    }
}

/// What an instruction does to memory; `None` if it was not counted by itself.
fn operation(counts: &Counts) -> Option<Operation> {
    let did = |kind| counts.of_kind(kind) > 0;
    match (did(Kind::Load), did(Kind::Store), did(Kind::Update)) {
        (false, false, false) => None,
        (true, false, false) => Some(Operation::Load),
        (false, true, false) => Some(Operation::Store),
        _ => Some(Operation::Update),
    }
}

fn append_transfers(rows: &mut Vec<TransferCount>, measured: &Measured, names: &Names<'_>) {
    let operation = |site: u32| operation(measured.report.sites.get(site as usize)?);
    let bit_shift = names
        .trace
        .model
        .config
        .line_bytes
        .trailing_zeros()
        .saturating_sub(6);
    let block = |line: u64, bytes: u64| names.blocks?.at(line, bytes, bit_shift);
    let mut shown = [0u64; 2];
    for &(key, moved) in &measured.moves {
        shown[usize::from(key.is_true)] += moved.count;
        rows.push(TransferCount {
            pid: names
                .pid_of(key.line)
                .or_else(|| names.pid_of_thread(key.to_thread)),
            line: Some(Address(key.line & ((1 << GUEST_BITS) - 1))),
            from_tid: names.tid(key.from_thread),
            to_tid: names.tid(key.to_thread),
            from_ip: names.ip(key.from_site),
            from_operation: operation(key.from_site),
            to_ip: names.ip(key.to_site),
            to_operation: operation(key.to_site),
            from_bytes: moved.from_bytes,
            to_bytes: moved.to_bytes,
            from_block: block(key.line, moved.from_bytes),
            to_block: block(key.line, moved.to_bytes),
            sharing: if key.is_true {
                Sharing::True
            } else {
                Sharing::False
            },
            count: moved.count as f64,
        });
    }
    let others = measured.other_moves;
    for (sharing, seen, others) in [
        (Sharing::True, shown[1], others.true_sharing),
        (Sharing::False, shown[0], others.false_sharing),
    ] {
        // The share that was not followed has as many for each that was.
        let count = (seen + others) as f64 * names.scale() - seen as f64;
        if count > 0.0 {
            rows.push(TransferCount {
                pid: None,
                line: None,
                from_tid: None,
                to_tid: None,
                from_ip: None,
                from_operation: None,
                to_ip: None,
                to_operation: None,
                from_bytes: 0,
                to_bytes: 0,
                from_block: None,
                to_block: None,
                sharing,
                count,
            });
        }
    }
}

/// The rows of a histogram: what touch, from, to, how many.
fn bins(histogram: &Histogram) -> Vec<(Touch, u64, u64, f64)> {
    let without = [
        (Touch::Cold, 0, 0, histogram.cold),
        (Touch::Invalidated, 0, 0, histogram.invalidated),
    ];
    histogram
        .bins()
        .map(|bin| (Touch::Reuse, bin.from, bin.to, bin.count))
        .chain(without)
        .filter(|&(_, _, _, count)| count > 0.0)
        .collect()
}

fn append_reuse(
    rows: &mut Vec<ReuseBin>,
    &Tracked {
        scope,
        unit,
        ref profile,
        ..
    }: &Tracked,
    names: &Names<'_>,
) {
    let mut errors: HashMap<u64, Option<f64>> = HashMap::new();
    let mut error = |measure, from| {
        if measure == Measure::Time {
            return None;
        }
        *errors
            .entry(from)
            .or_insert_with(|| profile.miss_ratio_error(from))
    };
    for (thread, distances) in (0u16..).zip(&profile.by_thread) {
        let cache = (scope == ReuseScope::Shared).then(|| names.trace.model.group(thread));
        for (measure, histogram) in both(distances) {
            for (touch, from, to, count) in bins(histogram) {
                rows.push(ReuseBin {
                    scope,
                    cache,
                    tid: names.tid(thread),
                    measure,
                    unit,
                    touch,
                    from,
                    to,
                    count,
                    miss_ratio_error: error(measure, from),
                });
            }
        }
    }
    if scope == ReuseScope::Shared {
        for (measure, histogram) in both(&profile.other_thread) {
            for bin in histogram.bins() {
                rows.push(ReuseBin {
                    scope,
                    cache: None,
                    tid: None,
                    measure,
                    unit,
                    touch: Touch::OtherThread,
                    from: bin.from,
                    to: bin.to,
                    count: bin.count,
                    miss_ratio_error: None,
                });
            }
        }
    }
}

fn both(distances: &Distances) -> [(Measure, &Histogram); 2] {
    [
        (Measure::Stack, &distances.stack),
        (Measure::Time, &distances.time),
    ]
}

/// The octave of a distance: 0, 1, 2 to 4, 4 to 8, ...
fn octave(distance: u64) -> (u64, u64) {
    match distance {
        0 => (0, 1),
        _ => {
            let from = 1 << distance.ilog2();
            (from, from.saturating_mul(2))
        }
    }
}

/// What the sites of reuse are, and where their paths get rows.
struct Calls<'a> {
    /// `None` where sites are instructions.
    paths: Option<&'a CallPaths>,
    rows: &'a mut PathRows,
}

impl Calls<'_> {
    /// The instruction of a site, and the row of its path.
    fn of(&mut self, site: u32, names: &Names<'_>) -> (u32, Option<u32>) {
        match self.paths {
            Some(paths) => (paths.site(site), self.rows.of(paths, site, names)),
            None => (site, None),
        }
    }
}

fn append_pairs(
    rows: &mut Vec<ReusePairBin>,
    &Tracked {
        scope,
        unit,
        ref profile,
        ..
    }: &Tracked,
    mut calls: Calls<'_>,
    names: &Names<'_>,
) {
    let mut append = |pair: Option<(u32, u32)>, distances: &Distances| {
        let (used, reused) = match pair {
            Some((used, reused)) => (Some(calls.of(used, names)), Some(calls.of(reused, names))),
            None => (None, None),
        };
        let ip = |place: Option<(u32, _)>| place.and_then(|(site, _)| names.ip(site));
        let path = |place: Option<(_, Option<u32>)>| place.and_then(|(_, path)| path);
        for (measure, histogram) in both(distances) {
            let mut octaves: BTreeMap<(Touch, u64, u64), f64> = BTreeMap::new();
            for (touch, from, to, count) in bins(histogram) {
                let (from, to) = match touch {
                    Touch::Reuse => octave(from),
                    _ => (from, to),
                };
                *octaves.entry((touch, from, to)).or_default() += count;
            }
            for ((touch, from, to), count) in octaves {
                rows.push(ReusePairBin {
                    scope,
                    pid: reused.and_then(|(site, _)| names.pid(site)),
                    use_ip: ip(used),
                    use_path: path(used),
                    reuse_ip: ip(reused),
                    reuse_path: path(reused),
                    measure,
                    unit,
                    touch,
                    from,
                    to,
                    count,
                });
            }
        }
    };
    for pair in &profile.by_pair {
        append(Some((pair.use_site, pair.reuse_site)), &pair.distances);
    }
    append(None, &profile.other_pairs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octaves_hold_their_distances_and_leave_no_gap() {
        for distance in (0..100).chain([1 << 40, (1 << 40) - 1]) {
            let (from, to) = octave(distance);
            assert!(from <= distance && distance < to, "{distance}");
        }
        assert_eq!(octave(4), (4, 8));
        assert_eq!(octave(u64::MAX).0, 1 << 63);
    }
}
