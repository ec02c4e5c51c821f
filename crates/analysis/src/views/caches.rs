//! View `caches`: what does each level of the cache hierarchy serve, and why does it miss?
//!
//! From the table `caches` of an exact run: the accesses of the program, sent through the simulated
//! hierarchy in two orders. The first order is the equal-rate one, which does not depend on how busy
//! the machine was; every count has the band of both, because the sharing of lines depends on how
//! threads interleave. The classes of misses are those of Hill and Smith (compulsory, capacity,
//! conflict) and of Dubois and others (true and false sharing).

use std::collections::BTreeMap;

use linewise_recording::{CacheCounts, CacheLevel, CacheSubject, Frame, Order, RunInfo};
use serde::{Deserialize, Serialize};

use super::band::Band;
use super::place::{Places, SourcePlace};
use super::reuse::main_order;

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
    /// The order of the accesses that the counts are of; their bands have both.
    pub order: Order,
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
    /// The same counts in both orders of the accesses.
    pub band: CacheBands,
    /// Who served the misses.
    pub served: Served,
    /// Hits of stores that had to take the line from other caches; counted at the first level.
    pub upgrades: f64,
}

/// The counts of a [`CacheRow`] in both orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheBands {
    /// Accesses that asked.
    pub accesses: Band,
    /// Accesses served.
    pub hits: Band,
    /// Compulsory misses.
    pub compulsory: Band,
    /// Capacity misses.
    pub capacity: Band,
    /// Conflict misses.
    pub conflict: Band,
    /// Misses by true sharing.
    pub true_sharing: Band,
    /// Misses by false sharing.
    pub false_sharing: Band,
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
        self.classes().iter().map(|(_, count, _)| count).sum()
    }

    /// The five classes of misses: word, count, count in both orders.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, f64, Band); 5] {
        let band = &self.band;
        [
            ("compulsory", self.compulsory, band.compulsory),
            ("capacity", self.capacity, band.capacity),
            ("conflict", self.conflict, band.conflict),
            ("true sharing", self.true_sharing, band.true_sharing),
            ("false sharing", self.false_sharing, band.false_sharing),
        ]
    }
}

/// What the simulated caches of a recording did; `None` if it has none.
#[must_use]
pub fn caches(input: &Input<'_>) -> Option<Caches> {
    let order = main_order(input.caches.iter().map(|row| row.order))?;
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
        levels.add(row);
    }
    let finish = |levels: Levels| levels.rows(order, input.info);
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
            order,
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

/// Counts of one subject, by level and order.
#[derive(Default)]
struct Levels {
    counts: BTreeMap<(CacheLevel, Order), Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    hits: f64,
    classes: [f64; 5],
    served: Served,
    upgrades: f64,
}

impl Counts {
    fn accesses(&self) -> f64 {
        self.hits + self.classes.iter().sum::<f64>()
    }
}

impl Levels {
    fn add(&mut self, row: &CacheCounts) {
        let counts = self.counts.entry((row.level, row.order)).or_default();
        counts.hits += row.hits;
        let classes = [
            row.compulsory,
            row.capacity,
            row.conflict,
            row.true_sharing,
            row.false_sharing,
        ];
        for (sum, count) in counts.classes.iter_mut().zip(classes) {
            *sum += count;
        }
        let served = &mut counts.served;
        served.l2 += row.from_l2;
        served.llc += row.from_llc;
        served.peer += row.from_peer;
        served.other_group += row.from_other_group;
        served.other_socket += row.from_other_socket;
        served.local_dram += row.from_local_dram;
        served.remote_dram += row.from_remote_dram;
        counts.upgrades += row.upgrades;
    }

    /// The counts of `order`, with bands over all orders, by level.
    fn rows(&self, order: Order, info: &RunInfo) -> Vec<CacheRow> {
        let simulated = info.exact.as_ref().map_or(&[][..], |run| &run.caches);
        let mut levels: Vec<CacheLevel> = self.counts.keys().map(|&(level, _)| level).collect();
        levels.dedup();
        let row = |level: CacheLevel| {
            let of = |order| self.counts.get(&(level, order)).copied();
            // A subject that one order has and the other has not is zero there.
            let counts = of(order).unwrap_or_default();
            let orders = Order::ALL
                .iter()
                .filter(|&&order| self.has(order))
                .map(|&order| of(order).unwrap_or_default());
            let band = |value: &dyn Fn(&Counts) -> f64| {
                orders
                    .clone()
                    .fold(Band::of(value(&counts)), |band, counts| {
                        band.with(value(&counts))
                    })
            };
            let class = |class: usize| band(&|counts| counts.classes[class]);
            let shape = simulated.iter().find(|cache| cache.level == level);
            let [compulsory, capacity, conflict, true_sharing, false_sharing] = counts.classes;
            CacheRow {
                level,
                size_bytes: shape.map_or(0, |cache| cache.size_bytes),
                ways: shape.map_or(0, |cache| cache.ways),
                accesses: counts.accesses(),
                hits: counts.hits,
                compulsory,
                capacity,
                conflict,
                true_sharing,
                false_sharing,
                band: CacheBands {
                    accesses: band(&Counts::accesses),
                    hits: band(&|counts| counts.hits),
                    compulsory: class(0),
                    capacity: class(1),
                    conflict: class(2),
                    true_sharing: class(3),
                    false_sharing: class(4),
                },
                served: counts.served,
                upgrades: counts.upgrades,
            }
        };
        levels.into_iter().map(row).collect()
    }

    fn has(&self, order: Order) -> bool {
        self.counts.keys().any(|&(_, of)| of == order)
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
    fn each_level_has_its_counts_at_equal_rate_and_a_band_over_both_orders() {
        let caches = view(&[
            total(Order::Observed, CacheLevel::L1d, [90.0, 8.0, 2.0]),
            total(Order::EqualRate, CacheLevel::L1d, [60.0, 8.0, 32.0]),
            total(Order::EqualRate, CacheLevel::L2, [5.0, 3.0, 0.0]),
        ])
        .expect("rows");
        let first = &caches.levels[0];
        assert_eq!((first.level, first.size_bytes), (CacheLevel::L1d, 4096));
        assert_eq!(
            (first.hits, first.false_sharing, first.accesses),
            (60.0, 32.0, 100.0)
        );
        assert_eq!(first.accesses, first.hits + first.misses());
        assert_eq!(
            first.band.false_sharing,
            Band {
                low: 2.0,
                high: 32.0
            }
        );
        assert_eq!(first.band.capacity, Band::of(8.0));
        // The observed order never asked the second level.
        assert_eq!(
            caches.levels[1].band.capacity,
            Band {
                low: 0.0,
                high: 3.0
            }
        );
    }

    #[test]
    fn instructions_of_one_line_of_source_are_one_place_and_the_rest_is_counted() {
        let row = |counts| total(Order::EqualRate, CacheLevel::L1d, counts);
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
