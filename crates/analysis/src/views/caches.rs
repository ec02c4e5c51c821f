//! View `caches`: what does each level of the cache hierarchy serve, and why does it miss?
//!
//! From the table `caches` of an exact run: the accesses of the program, sent through the simulated
//! hierarchy. The classes of misses are those of Hill and Smith (compulsory, capacity, conflict) and
//! of Dubois and others (true and false sharing).

use std::collections::BTreeMap;

use linewise_recording::{CacheCounts, CacheLevel, CacheSubject, Frame, RunInfo};
use serde::{Deserialize, Serialize};

use super::place::{Places, SourcePlace};

/// Places that a result names; the rest is a sum.
const MOST_ROWS: usize = 100;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `caches`.
    pub caches: &'a [CacheCounts],
    /// Table `frames`.
    pub frames: &'a [Frame],
}

/// What the simulated caches did.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// All accesses, by level, the nearest to the core first.
    pub levels: Vec<CacheRow>,
    /// Whose misses.
    pub misses: CacheMisses,
}

/// Whose accesses missed in the simulated caches, and where in the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheMisses {
    /// Every thread that accessed memory.
    pub by_thread: Vec<ThreadCaches>,
    /// Places in the source, those with the most misses over all levels first; at most 100.
    pub by_place: Vec<PlaceCaches>,
    /// Misses at places that have no row here, over all levels.
    pub other_misses: f64,
}

/// What a level of the simulated hierarchy did with the accesses that asked it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheRow {
    /// The level.
    pub level: CacheLevel,
    /// Bytes of one such cache; 0 if unknown.
    pub size_bytes: u64,
    /// Its ways; 0 is fully associative.
    pub ways: u32,
    /// Accesses that asked it: `hits` and the five classes of misses.
    pub accesses: f64,
    /// Accesses that it served.
    pub hits: f64,
    /// Misses: it never had the line.
    pub compulsory: f64,
    /// Misses: a fully associative cache of its size would have lost the line too.
    pub capacity: f64,
    /// Misses: a fully associative cache of its size would still have the line.
    pub conflict: f64,
    /// Misses: invalidated by a store to bytes that the core goes on to touch.
    pub true_sharing: f64,
    /// Misses: invalidated by stores to other bytes of the line.
    pub false_sharing: f64,
    /// Who served the misses.
    pub served: Served,
    /// Hits of stores that had to take the line from other caches; counted at the first level.
    pub upgrades: f64,
}

/// Who served the misses of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// The core's second level.
    pub l2: f64,
    /// The last level of the core's group.
    pub llc: f64,
    /// Another core of the group.
    pub peer: f64,
    /// Another group of the socket.
    pub other_group: f64,
    /// Another socket.
    pub other_socket: f64,
    /// Memory of the core's node.
    pub local_dram: f64,
    /// Memory of another node.
    pub remote_dram: f64,
}

/// What the caches did for one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCaches {
    /// The thread.
    pub tid: u32,
    /// Its accesses, by level.
    pub levels: Vec<CacheRow>,
}

/// What the caches did for one place in the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceCaches {
    /// The place.
    pub place: SourcePlace,
    /// Its accesses, by level.
    pub levels: Vec<CacheRow>,
}

impl CacheRow {
    /// Misses of every class.
    #[must_use]
    pub fn misses(&self) -> f64 {
        self.classes().iter().map(|(_, count)| count).sum()
    }

    /// The five classes of misses: word, count.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, f64); 5] {
        [
            ("compulsory", self.compulsory),
            ("capacity", self.capacity),
            ("conflict", self.conflict),
            ("true sharing", self.true_sharing),
            ("false sharing", self.false_sharing),
        ]
    }
}

/// Counts of one subject, by level.
type Levels = BTreeMap<CacheLevel, CacheRow>;

/// What the simulated caches of a recording did; `None` if it has none.
#[must_use]
pub fn caches(input: &Input<'_>) -> Option<Caches> {
    if input.caches.is_empty() {
        return None;
    }
    let places = Places::new(input.frames);
    let mut total = Levels::default();
    let mut threads: BTreeMap<u32, Levels> = BTreeMap::new();
    let mut by_place: BTreeMap<SourcePlace, Levels> = BTreeMap::new();
    let mut others = Levels::default();
    for row in input.caches {
        let levels = match (row.subject, row.tid, row.pid, row.ip) {
            (CacheSubject::Total, ..) => &mut total,
            (CacheSubject::Thread, Some(tid), ..) => threads.entry(tid.0).or_default(),
            (CacheSubject::Instruction, _, Some(pid), Some(ip)) => {
                by_place.entry(places.at(pid, ip)).or_default()
            }
            _ => &mut others,
        };
        add(levels, row, input.info);
    }
    let finish = |levels: Levels| -> Vec<CacheRow> { levels.into_values().collect() };
    let misses = |levels: &[CacheRow]| -> f64 { levels.iter().map(CacheRow::misses).sum() };
    let mut by_place: Vec<PlaceCaches> = by_place
        .into_iter()
        .map(|(place, levels)| PlaceCaches {
            place,
            levels: finish(levels),
        })
        .collect();
    // A miss that goes farther counts once for each level that it passes.
    by_place.sort_by(|a, b| misses(&b.levels).total_cmp(&misses(&a.levels)));
    let rest: f64 = by_place
        .iter()
        .skip(MOST_ROWS)
        .map(|place| misses(&place.levels))
        .sum();
    by_place.truncate(MOST_ROWS);
    Some(Caches {
        levels: finish(total),
        misses: CacheMisses {
            by_thread: threads
                .into_iter()
                .map(|(tid, levels)| ThreadCaches {
                    tid,
                    levels: finish(levels),
                })
                .collect(),
            by_place,
            other_misses: misses(&finish(others)) + rest,
        },
    })
}

/// Adds what a level said to the accesses of a subject.
fn add(levels: &mut Levels, row: &CacheCounts, info: &RunInfo) {
    let sum = levels
        .entry(row.level)
        .or_insert_with(|| none_asked(row.level, info));
    let counts = [
        (&mut sum.hits, row.hits),
        (&mut sum.compulsory, row.compulsory),
        (&mut sum.capacity, row.capacity),
        (&mut sum.conflict, row.conflict),
        (&mut sum.true_sharing, row.true_sharing),
        (&mut sum.false_sharing, row.false_sharing),
    ];
    for (count, more) in counts {
        *count += more;
        sum.accesses += more;
    }
    let served = &mut sum.served;
    served.l2 += row.from_l2;
    served.llc += row.from_llc;
    served.peer += row.from_peer;
    served.other_group += row.from_other_group;
    served.other_socket += row.from_other_socket;
    served.local_dram += row.from_local_dram;
    served.remote_dram += row.from_remote_dram;
    sum.upgrades += row.upgrades;
}

/// A level that nobody asked.
fn none_asked(level: CacheLevel, info: &RunInfo) -> CacheRow {
    let simulated = info.exact.as_ref().map_or(&[][..], |run| &run.caches);
    let shape = simulated.iter().find(|cache| cache.level == level);
    CacheRow {
        level,
        size_bytes: shape.map_or(0, |cache| cache.size_bytes),
        ways: shape.map_or(0, |cache| cache.ways),
        accesses: 0.0,
        hits: 0.0,
        compulsory: 0.0,
        capacity: 0.0,
        conflict: 0.0,
        true_sharing: 0.0,
        false_sharing: 0.0,
        served: Served::default(),
        upgrades: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::exact_rows::{frame, info, instruction, total};
    use super::*;

    fn view(rows: &[CacheCounts]) -> Option<Caches> {
        caches(&Input {
            info: &info(),
            caches: rows,
            frames: &[frame(0x10, "fill", 3), frame(0x14, "fill", 3)],
        })
    }

    #[test]
    fn each_level_has_its_counts() {
        let caches = view(&[
            total(CacheLevel::L1d, [60.0, 8.0, 32.0]),
            total(CacheLevel::L2, [5.0, 3.0, 0.0]),
        ])
        .expect("rows");
        let first = &caches.levels[0];
        assert_eq!((first.level, first.size_bytes), (CacheLevel::L1d, 4096));
        assert_eq!(
            (first.hits, first.false_sharing, first.accesses),
            (60.0, 32.0, 100.0)
        );
        assert_eq!(first.accesses, first.hits + first.misses());
        assert_eq!(caches.levels[1].capacity, 3.0);
    }

    #[test]
    fn instructions_of_one_line_of_source_are_one_place_and_the_rest_is_counted() {
        let row = |counts| total(CacheLevel::L1d, counts);
        let caches = view(&[
            row([90.0, 10.0, 0.0]),
            instruction(0x10, row([1.0, 4.0, 0.0])),
            instruction(0x14, row([1.0, 2.0, 0.0])),
            instruction(0x99, row([5.0, 1.0, 0.0])),
            CacheCounts {
                subject: CacheSubject::OtherInstructions,
                ..row([83.0, 3.0, 0.0])
            },
            CacheCounts {
                subject: CacheSubject::Thread,
                tid: Some(linewise_recording::Tid(11)),
                ..row([90.0, 10.0, 0.0])
            },
        ])
        .expect("rows");
        let places = &caches.misses.by_place;
        assert_eq!(
            (
                places[0].place.function.as_str(),
                places[0].levels[0].capacity
            ),
            ("fill", 6.0)
        );
        assert_eq!(places[1].place.function, "0x99");
        assert_eq!(caches.misses.other_misses, 3.0);
        let named: f64 = places.iter().map(|place| place.levels[0].misses()).sum();
        assert_eq!(
            named + caches.misses.other_misses,
            caches.levels[0].misses()
        );
        assert_eq!(caches.misses.by_thread[0].tid, 11);
    }

    #[test]
    fn a_recording_without_rows_has_no_view() {
        assert_eq!(view(&[]), None);
    }
}
