//! Lines that are so many that hardly any of them was sampled or watched more than once: a table of locks, a pool of
//! nodes, the counts of objects.
//!
//! Of one such line samples and watches say next to nothing; of all that the same instructions touch they say as much as
//! of one hot line. So they are taken together, as one that stands for N:
//!
//! ```text
//! transfers to A  =  min( W / V(0), N r )
//! ```
//!
//! with the time W of A at all of them, the rate r at which the others come to one, by the watches of all, and N by A. Chao's
//! estimate from those that were seen once and twice. Nodes that stay with their thread are told apart by r, whatever W is. The
//! lines that trapped carry the result: they are a random choice of those that move.
//!
//! Of more lines than a private cache holds the rest has left it before the other thread comes, which is no contention; of four
//! times as many nothing is counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{Address, CacheLevel, Pid, RunInfo, Tid, Trap, Watch};

use super::super::Clusters;
use super::super::encounter::{Encounter, Encounters, at_most, by_watch};
use super::super::lines_seen::LinesSeen;
use super::kinds::UNKNOWN;
use super::phases::wilson;
use super::stays::{Input, LineStays, Lines, RunningSlices};
use super::{Basis, Estimate, Flow, LineSharing, Together, Z90};

/// A line with fewer watches says nothing by itself.
const FEW_WATCHES: u64 = 3;
/// So many of them are taken together, of which so many trapped.
const LEAST_LINES: usize = 16;
const LEAST_TRAPPED: usize = 3;
/// Waits for different lines pass beside each other, as those for one line do not: at least this share of what one at a time
/// would cost is lost.
const BESIDE: f64 = 0.5;
/// Where a private cache holds less than this share of the lines, they wait for memory.
const LEAST_PRIVATE: f64 = 0.25;

/// Lines that are known together.
pub(super) struct Scattered {
    /// What was sampled and met at all of them.
    pub(super) stays: LineStays,
    pub(super) met: HashMap<Tid, Encounter>,
    /// The share of their transfers that is true, by what a thread touches of a line where another was sampled.
    pub(super) truly: Estimate,
    /// How many there are.
    pub(super) count: Estimate,
    /// The share of them that a private cache holds: the others have left it when another thread comes.
    private: Estimate,
    /// Those that trapped, and all.
    pub(super) trapped: Vec<(Pid, Address)>,
    pub(super) all: Vec<(Pid, Address)>,
}

/// Bytes of a core's private cache, of its usual size where nothing is told.
pub(crate) fn private_bytes(info: &RunInfo) -> u64 {
    let private = (info.caches.iter()).find(|it| it.level == CacheLevel::L2);
    private.map_or(1 << 20, |it| it.size_bytes)
}

/// The lines of which little is known each, by the instructions that touch them, as far as they say something together.
pub(super) fn scattered(
    input: &Input<'_>,
    lines: &Lines,
    met: &Encounters,
    running: &RunningSlices,
) -> Vec<Scattered> {
    let watches = |key: &(Pid, Address)| met.get(key).map_or(0, |it| sum(it, |it| it.watches));
    let few: Vec<(Pid, Address)> = (lines.keys().copied())
        .filter(|key| watches(key) < FEW_WATCHES)
        .collect();
    let pairs = pairs(input);
    by_instructions(&few, lines, met)
        .into_iter()
        .filter_map(|all| Scattered::of(all, input, lines, met, running, &pairs))
        .collect()
}

fn sum(met: &HashMap<Tid, Encounter>, of: impl Fn(&Encounter) -> u64) -> u64 {
    met.values().map(of).sum()
}

/// Sorts lines by what touches them: instructions that were seen at one line belong together.
fn by_instructions(
    few: &[(Pid, Address)],
    lines: &Lines,
    met: &Encounters,
) -> Vec<Vec<(Pid, Address)>> {
    let mut numbers: HashMap<(Pid, Address), usize> = HashMap::new();
    let mut number = |pid, ip| {
        let next = numbers.len();
        *numbers.entry((pid, ip)).or_insert(next)
    };
    let mut instructions = |key: &(Pid, Address)| -> BTreeSet<usize> {
        let sampled = lines[key].threads.values().flat_map(|it| it.places.keys());
        let trapped = met.get(key).into_iter().flat_map(HashMap::values);
        let all = sampled.chain(trapped.flat_map(|it| it.accesses.keys()));
        all.map(|it| number(it.pid, it.ip)).collect()
    };
    let at_line: Vec<BTreeSet<usize>> = few.iter().map(&mut instructions).collect();
    let mut clusters = Clusters::apart(numbers.len());
    for these in &at_line {
        for pair in these.iter().collect::<Vec<_>>().windows(2) {
            if clusters.of(*pair[0]) != clusters.of(*pair[1]) {
                clusters.join(*pair[0], *pair[1]);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<(Pid, Address)>> = BTreeMap::new();
    for (key, these) in few.iter().zip(&at_line) {
        if let Some(&first) = these.first() {
            groups.entry(clusters.of(first)).or_default().push(*key);
        }
    }
    groups.into_values().collect()
}

/// By line, how often a thread that came there touched what another was sampled at, and only other bytes.
type Pairs = HashMap<(Pid, Address), [u32; 2]>;

fn pairs(input: &Input<'_>) -> Pairs {
    let by_watch = by_watch(input.traps);
    let mut pairs = Pairs::new();
    for watch in input.watches {
        let Some(traps) = by_watch.get(&watch.id) else {
            continue;
        };
        let chunk = watch.address.0 % input.info.line_size.min(64) / 8;
        let meets = |trap: &&Trap| overlap(watch, trap);
        // What a goroutine took along to another thread is nobody else's.
        let user = input.goroutines.last_user(watch.publisher, watch.armed);
        let is_own = |trap: &&Trap| input.goroutines.user(trap.tid, trap.time) == user;
        if traps.iter().all(is_own) {
            continue;
        }
        let kind = match traps.iter().any(meets) {
            true => 0,
            // Where it was not watched, nobody knows.
            false if watch.chunks & (1 << chunk) == 0 => continue,
            false => 1,
        };
        let (pid, address) = input.shared.home(watch.pid, watch.address);
        pairs
            .entry((pid, address.line(input.info.line_size)))
            .or_default()[kind] += 1;
    }
    pairs
}

fn overlap(watch: &Watch, trap: &Trap) -> bool {
    let end = |address: Address, size: u32| address.0 + u64::from(size.max(1));
    watch.address.0 < end(trap.address, trap.size)
        && trap.address.0 < end(watch.address, watch.size)
}

impl Scattered {
    fn of(
        all: Vec<(Pid, Address)>,
        input: &Input<'_>,
        lines: &Lines,
        met: &Encounters,
        running: &RunningSlices,
        pairs: &Pairs,
    ) -> Option<Self> {
        let traps =
            |key: &&(Pid, Address)| met.get(key).is_some_and(|it| sum(it, |it| it.traps) > 0);
        let trapped: Vec<(Pid, Address)> = all.iter().filter(traps).copied().collect();
        if all.len() < LEAST_LINES || trapped.len() < LEAST_TRAPPED {
            return None;
        }
        let line_size = input.info.line_size.max(1);
        let mut seen = LinesSeen::default();
        let mut stays = LineStays::default();
        let mut together: HashMap<Tid, Encounter> = HashMap::new();
        for key in &all {
            let line = &lines[key];
            stays.add(line);
            let samples: u64 = line.threads.values().map(|stay| stay.samples).sum();
            (0..samples).for_each(|_| seen.add(key.1.0 / line_size));
            for (tid, encounter) in met.get(key).into_iter().flatten() {
                together.entry(*tid).or_default().add(encounter);
            }
        }
        let count = seen.count();
        let fit = private_bytes(input.info) as f64 / line_size as f64;
        stays.settle(running);
        stays.more_lines = count.value - 1.0;
        let [same, other] = all
            .iter()
            .filter_map(|key| pairs.get(key))
            .fold([0, 0], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        Some(Self {
            stays,
            met: together,
            truly: share(same, other),
            count,
            private: Estimate {
                value: (fit / count.value).min(1.0),
                low: if count.low <= fit { 1.0 } else { 0.0 },
                high: (fit / count.low).min(1.0),
            },
            trapped,
            all,
        })
    }

    /// Whether a private cache holds enough of them for threads to be in each other's way.
    pub(super) fn is_contended(&self) -> bool {
        self.private.value >= LEAST_PRIVATE
    }

    /// Thread time at all of them, ns.
    fn spent_ns(&self) -> f64 {
        self.stays.threads.values().map(|stay| stay.weight_ns).sum()
    }

    /// What their transfers cost of the time at them.
    pub(super) fn lost(&self, whole: &LineSharing) -> Together {
        let cost_ns = whole.cost_ns.value * self.private.value;
        let lost = (cost_ns / self.spent_ns().max(1.0)).min(1.0);
        let (truly, falsely) = (whole.true_transfers(), whole.false_transfers());
        let part = lost / (truly + falsely).max(f64::MIN_POSITIVE);
        Together {
            lines: self.all.clone(),
            truly: part * truly,
            falsely: part * falsely,
        }
    }

    /// What was found of all together, as that of the lines that trapped.
    pub(super) fn part<'a>(
        &'a self,
        whole: &'a LineSharing,
        lines: &'a Lines,
        met: &'a Encounters,
    ) -> impl Iterator<Item = LineSharing> + 'a {
        let traps = |key: &(Pid, Address)| sum(&met[key], |it| it.traps) as f64;
        let all: f64 = self.trapped.iter().map(traps).sum();
        // Of a rate that so few traps tell of, and of lines that are not all seen.
        let (fewest, most) = ((all - Z90 * all.sqrt()).max(0.2 * all), at_most(all));
        let error = Estimate {
            value: 1.0,
            low: fewest / all * self.count.low / self.count.value,
            high: most / all * self.count.high / self.count.value,
        };
        let error = error.times(self.private);
        let mut cost_ns = whole.cost_ns.times(error);
        cost_ns.low *= BESIDE;
        cost_ns.high = cost_ns.high.min(self.spent_ns()).max(cost_ns.value);
        self.trapped.iter().map(move |key| {
            let share = Estimate::exactly(traps(key) / all);
            let flow = |it: &Flow| Flow {
                true_sharing: it.true_sharing * share.value,
                false_sharing: it.false_sharing * share.value,
                ..*it
            };
            let cpus = |(pair, (truly, falsely)): (&_, &(f64, f64))| {
                (*pair, (truly * share.value, falsely * share.value))
            };
            let Basis::Sampled { samples, .. } = whole.basis else {
                unreachable!("made of samples");
            };
            LineSharing {
                pid: key.0,
                line: key.1,
                transfers: whole.transfers.times(error).times(share),
                cost_ns: cost_ns.times(share),
                flows: whole.flows.iter().map(flow).collect(),
                false_share: whole.false_share,
                cpu_flows: whole.cpu_flows.iter().map(cpus).collect(),
                places: lines[key].places(&met[key]),
                basis: Basis::Sampled {
                    samples: (samples as f64 * share.value).round() as u64,
                    watches: sum(&met[key], |it| it.watches),
                    traps: sum(&met[key], |it| it.traps),
                },
            }
        })
    }
}

/// The share of the first of two counts.
fn share(same: u32, other: u32) -> Estimate {
    match same + other {
        few if (few as usize) < LEAST_TRAPPED => UNKNOWN,
        all => wilson(same.into(), all.into()),
    }
}
