//! View `misses`: why does the first-level cache miss, type by type?
//!
//! From an exact run that simulated caches (`--caches`) every miss has its class (table `caches`). From samples the
//! classes are those of DProf's rules (Pesterev, 2010, section 4.3), in thread time at the accesses
//! instead of misses, each thread with a cache of its own:
//!
//! - *Invalidation*: another CPU writes the line between. That is what view `sharing` estimates: of the time
//!   at a line the part that its transfers cost, true and false as the transfers are.
//! - *Conflict*: the line lies in an associativity set with more lines than ways, and twice the mean of
//!   all sets, and that is not by chance: samples see a part of the lines, and of few lines some set always has twice
//!   as many as the mean.
//! - *Capacity*: the thread's lines are more than the cache holds. Samples see a part of the lines; how many
//!   there are at least is told by those that were seen once and twice.
//! - There are no compulsory misses, and everything else hits: lines that a thread comes back to all the time, too, whatever
//!   goes through its cache meanwhile.
//!
//! Sets are told by virtual addresses, which is right for first-level caches whose ways are no larger than
//! a page.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, CacheCounts, CacheLevel, CacheSubject, Pid, RunInfo, Sample, SampleClass,
    SharedMemory, Tid, TypedAccess,
};
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::lines_seen::{LinesSeen, Shape};
use super::sharing::SharingView;

/// Types that a result names, at most.
const MOST_TYPES: usize = 100;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `typed_accesses`.
    pub typed: &'a [TypedAccess],
    /// Table `samples`.
    pub samples: &'a [Sample],
    /// Table `caches`, of an exact run.
    pub caches: &'a [CacheCounts],
    /// View `sharing` of the same run.
    pub sharing: &'a SharingView,
    /// Which memory processes share.
    pub shared: &'a SharedMemory,
}

/// Why the first-level cache misses at accesses to a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MissRow {
    /// The type; empty for all accesses whose type is not known.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Of a type without fields the member or static variable that leads to these, as in `types[].reached`; else the field is not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Its share of the misses of all types, 0 to 1; from samples of the thread time that misses take.
    pub share: f64,
    /// Of its misses, the share that the cache never had, 0 to 1; from samples always 0.
    pub compulsory: f64,
    /// The share that a fully associative cache of the size would have lost too.
    pub capacity: f64,
    /// The share that such a cache would still have.
    pub conflict: f64,
    /// The share that others invalidated by writing the same bytes.
    pub true_sharing: f64,
    /// The share that others invalidated by writing other bytes of the line.
    pub false_sharing: f64,
}

/// Misses, or the time that they take, by class: in the order of the fields of [`MissRow`].
type Classes = [f64; 5];
const COMPULSORY: usize = 0;
const CAPACITY: usize = 1;
const CONFLICT: usize = 2;
const TRUE: usize = 3;
const FALSE: usize = 4;

/// The types with the most misses first; at most 100. Empty without typed accesses.
#[must_use]
pub fn misses(input: &Input<'_>) -> Vec<MissRow> {
    if input.typed.is_empty() {
        return Vec::new();
    }
    let typed: HashMap<(Pid, Address), Kind<'_>> = input
        .typed
        .iter()
        .map(|row| ((row.pid, row.ip), Kind::of(row)))
        .collect();
    let kind = |pid: Pid, ip: Address| typed.get(&(pid, ip)).copied().unwrap_or_default();
    let mut by_kind: BTreeMap<Kind<'_>, Classes> = BTreeMap::new();
    let mut add = |kind, classes: Classes| {
        let sums = by_kind.entry(kind).or_default();
        for (sum, class) in sums.iter_mut().zip(classes) {
            *sum += class;
        }
    };
    match input.info.exact {
        Some(_) => counted(input.caches, |place, classes| {
            let kind = place.map_or_else(Kind::default, |(pid, ip)| kind(pid, ip));
            add(kind, classes);
        }),
        None => sampled(input, |sample, classes| {
            add(kind(sample.pid, sample.access_ip), classes);
        }),
    }
    let all: f64 = by_kind.values().flatten().sum();
    let mut rows: Vec<MissRow> = by_kind
        .into_iter()
        .map(|(kind, classes)| (kind, classes, classes.iter().sum::<f64>()))
        .filter(|(_, _, misses)| *misses > 0.0)
        .map(|(kind, classes, misses)| {
            let [compulsory, capacity, conflict, true_sharing, false_sharing] =
                classes.map(|class| class / misses);
            MissRow {
                type_name: kind.type_name.to_owned(),
                through: kind.through.to_owned(),
                share: misses / all,
                compulsory,
                capacity,
                conflict,
                true_sharing,
                false_sharing,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows.truncate(MOST_TYPES);
    rows
}

/// The misses of an exact run at the first level, by instruction; `None` for those of all that have no row.
fn counted(rows: &[CacheCounts], mut add: impl FnMut(Option<(Pid, Address)>, Classes)) {
    for row in rows.iter().filter(|row| row.level == CacheLevel::L1d) {
        let mut classes = [0.0; 5];
        classes[COMPULSORY] = row.compulsory;
        classes[CAPACITY] = row.capacity;
        classes[CONFLICT] = row.conflict;
        classes[TRUE] = row.true_sharing;
        classes[FALSE] = row.false_sharing;
        match row.subject {
            CacheSubject::Instruction => add(row.pid.zip(row.ip), classes),
            CacheSubject::OtherInstructions => add(None, classes),
            CacheSubject::Total | CacheSubject::Thread => {}
        }
    }
}

/// What a thread does to a first-level cache of its own.
struct Thread {
    /// The sets that hold far more than their share.
    crowded: BTreeSet<u64>,
    /// Where there are more lines than the cache holds, those that stay in it all the same.
    staying: Option<BTreeSet<u64>>,
}

/// The thread time that sampled accesses wait for misses, by DProf's rules.
fn sampled<'a>(input: &Input<'a>, mut add: impl FnMut(&'a Sample, Classes)) {
    let line_size = input.info.line_size;
    let shape = Shape::of(input.info);
    let accesses = || {
        let samples = input.samples.iter();
        samples.filter(|sample| sample.class == SampleClass::Access)
    };
    let mut threads: HashMap<Tid, LinesSeen> = HashMap::new();
    for sample in accesses() {
        let line = sample.address.line(line_size).0 / line_size;
        threads.entry(sample.tid).or_default().add(line);
    }
    let full: HashMap<Tid, Thread> = threads
        .iter()
        .map(|(tid, lines)| {
            let thread = Thread {
                crowded: lines.crowded(&shape).into_keys().collect(),
                staying: lines.hot_of_too_many(shape.lines),
            };
            (*tid, thread)
        })
        .collect();
    let mut invalidated: HashMap<(Pid, Address), (f64, f64)> = input
        .sharing
        .lines
        .iter()
        .map(|line| {
            let time: f64 = line.places.iter().map(|place| place.weight).sum();
            let lost = (line.cost_ns.value / time.max(1.0)).min(1.0);
            let (truly, falsely) = (line.true_transfers(), line.false_transfers());
            let part = lost / (truly + falsely).max(f64::MIN_POSITIVE);
            ((line.pid, line.line), (part * truly, part * falsely))
        })
        .collect();
    for some in &input.sharing.together {
        let lost = (some.truly, some.falsely);
        invalidated.extend(some.lines.iter().map(|line| (*line, lost)));
    }
    for sample in accesses() {
        let line = sample.address.line(line_size);
        let (home, address) = input.shared.home(sample.pid, sample.address);
        let (truly, falsely) = invalidated
            .get(&(home, address.line(line_size)))
            .copied()
            .unwrap_or_default();
        let time = sample.weight as f64;
        let mut classes = [0.0; 5];
        classes[TRUE] = truly * time;
        classes[FALSE] = falsely * time;
        let rest = (1.0 - truly - falsely).max(0.0) * time;
        if let Some(thread) = full.get(&sample.tid) {
            if thread.crowded.contains(&shape.set(line.0 / line_size)) {
                classes[CONFLICT] = rest;
            } else if let Some(staying) = &thread.staying
                && !staying.contains(&(line.0 / line_size))
            {
                classes[CAPACITY] = rest;
            }
        }
        add(sample, classes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use linewise_recording::Operation;

    use super::super::exact_rows;
    use super::super::sampled_rows::{PID, sample, typed};
    use super::super::sharing::{Basis, Estimate, Flow, LineSharing, Place, Together};
    use super::super::{Touch, exact_rows::total};
    use super::*;

    /// What samples at `addresses`, all by the instruction `0x10`, say of `struct a`.
    fn of_samples(addresses: impl Iterator<Item = u64>, sharing: &SharingView) -> Vec<MissRow> {
        let samples: Vec<Sample> = addresses.map(|address| sample(1, 0x10, address)).collect();
        misses(&Input {
            info: &RunInfo {
                exact: None,
                ..exact_rows::info()
            },
            typed: &[typed(0x10, "struct a")],
            samples: &samples,
            caches: &[],
            sharing,
            shared: &SharedMemory::default(),
        })
    }

    #[test]
    fn a_few_crowded_sets_are_conflicts_and_many_lines_are_too_much() {
        let none = SharingView::default();
        // Twelve lines of one set, again and again.
        let stride = of_samples((0..600).map(|i| i % 12 * 4096), &none);
        assert_eq!((stride.len(), stride[0].conflict), (1, 1.0));
        // A thousand times as many lines as the cache has, each seen once at most.
        let random = of_samples((0..600).map(|i| i * 977 * 64), &none);
        assert_eq!((random.len(), random[0].capacity), (1, 1.0));
        // What fits does not miss.
        assert_eq!(of_samples((0..600).map(|i| i % 100 * 64), &none), []);
    }

    #[test]
    fn lines_that_are_known_together_are_lost_to_others_by_the_part_that_all_are() {
        let addresses = || (0..600).map(|i| i * 977 * 64);
        let together = Together {
            lines: addresses().map(|it| (PID, Address(it))).collect(),
            truly: 0.5,
            falsely: 0.25,
        };
        let view = SharingView {
            together: vec![together],
            ..SharingView::default()
        };
        let rows = of_samples(addresses(), &view);
        let MissRow {
            true_sharing,
            false_sharing,
            capacity,
            ..
        } = rows[0];
        assert_eq!([true_sharing, false_sharing, capacity], [0.5, 0.25, 0.25]);
    }

    #[test]
    fn the_part_of_the_time_that_transfers_cost_is_invalidations() {
        let line = LineSharing {
            pid: PID,
            line: Address(0x1000),
            transfers: Estimate::default(),
            cost_ns: Estimate {
                value: 30_000.0,
                low: 0.0,
                high: 60_000.0,
            },
            flows: vec![Flow {
                to: Tid(1),
                from: Tid(2),
                true_sharing: 10.0,
                false_sharing: 30.0,
            }],
            false_share: Estimate::exactly(0.75),
            cpu_flows: BTreeMap::new(),
            places: vec![Place {
                tid: Tid(1),
                touch: Touch {
                    pid: Pid(1),
                    ip: Address(0x10),
                    address: Address(0x1000),
                    size: 8,
                    operation: Operation::Load,
                    locked: false,
                    goroutine: None,
                },
                weight: 60_000.0,
                samples: 600,
                traps: 9,
            }],
            basis: Basis::Sampled {
                samples: 600,
                watches: 9,
                traps: 9,
            },
        };
        let sharing = SharingView {
            lines: vec![line],
            ..SharingView::default()
        };
        let rows = of_samples((0..600).map(|_| 0x1000), &sharing);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].true_sharing, rows[0].false_sharing), (0.25, 0.75));
        assert_eq!(rows[0].share, 1.0);
    }

    #[test]
    fn arrays_of_numbers_have_a_row_for_each_member_that_leads_to_them() {
        let number = |ip, through: &str| TypedAccess {
            path: String::new(),
            through: through.to_owned(),
            ..typed(ip, "unsigned int")
        };
        let samples: Vec<Sample> = (0..900)
            .map(|i| sample(1, 0x10 + i % 3 * 0x10, i * 977 * 64))
            .collect();
        let rows = misses(&Input {
            info: &RunInfo {
                exact: None,
                ..exact_rows::info()
            },
            typed: &[
                number(0x10, "matcher.hash"),
                number(0x20, "matcher.chain"),
                number(0x30, "end (local)"),
            ],
            samples: &samples,
            caches: &[],
            sharing: &SharingView::default(),
            shared: &SharedMemory::default(),
        });
        let mut through: Vec<&str> = rows.iter().map(|row| row.through.as_str()).collect();
        through.sort_unstable();
        assert_eq!(through, ["", "matcher.chain", "matcher.hash"]);
        assert!(rows.iter().all(|row| row.type_name == "unsigned int"));
    }

    #[test]
    fn an_exact_run_counts_them_and_what_has_no_type_has_a_row() {
        let row = |subject, ip: u64, [compulsory, capacity, conflict]: [f64; 3]| CacheCounts {
            subject,
            pid: Some(PID),
            ip: Some(Address(ip)),
            compulsory,
            capacity,
            conflict,
            ..total(CacheLevel::L1d, [0.0; 3])
        };
        let instruction = CacheSubject::Instruction;
        let rows = misses(&Input {
            info: &exact_rows::info(),
            typed: &[typed(0x10, "struct a"), typed(0x20, "struct b")],
            samples: &[],
            caches: &[
                row(CacheSubject::Total, 0, [1.0, 70.0, 29.0]),
                row(instruction, 0x10, [1.0, 0.0, 19.0]),
                row(instruction, 0x20, [0.0, 70.0, 0.0]),
                row(CacheSubject::OtherInstructions, 0, [0.0, 0.0, 10.0]),
            ],
            sharing: &SharingView::default(),
            shared: &SharedMemory::default(),
        });
        let said: Vec<_> = rows
            .iter()
            .map(|row| (row.type_name.as_str(), row.share, row.conflict))
            .collect();
        assert_eq!(
            said,
            [
                ("struct b", 0.7, 0.0),
                ("struct a", 0.2, 0.95),
                ("", 0.1, 1.0)
            ]
        );
        assert_eq!(rows[1].compulsory, 0.05);
    }
}
