//! Accesses per nanosecond, by place: how many an exact run of the same program counted there, over
//! the thread time that the samples found there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{
    Address, CacheSubject, Frame, Pid, RunInfo, Sample, SimulatedCache, Tables, Tid, Time,
};

/// What an exact run knows that samples do not: how many accesses there are, and where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactCounts {
    /// Its command.
    pub command: Vec<String>,
    /// Accesses of all instructions.
    pub accesses: f64,
    /// The caches that it simulated.
    pub caches: Vec<SimulatedCache>,
    /// By function, then line: accesses of the instructions that the recording names.
    places: BTreeMap<Function, BTreeMap<u32, f64>>,
}

/// A function as it stands in the program, with what is inlined into it: its name and file.
type Function = (String, String);

/// Samples that lines must have to have a rate of their own.
const ENOUGH: u32 = 16;
/// Lines that are no farther apart belong together: the body of one loop.
const NEAR: u32 = 1;

/// The outermost frames of addresses.
struct Outermost<'a>(HashMap<(Pid, Address), &'a Frame>);

impl<'a> Outermost<'a> {
    fn new(frames: &'a [Frame]) -> Self {
        let mut outermost: HashMap<(Pid, Address), &Frame> = HashMap::new();
        for frame in frames {
            let kept = outermost.entry((frame.pid, frame.address)).or_insert(frame);
            if frame.depth > kept.depth {
                *kept = frame;
            }
        }
        Self(outermost)
    }

    fn at(&self, pid: Pid, address: Address) -> Option<(Function, u32)> {
        let frame = self.0.get(&(pid, address))?;
        (!frame.function.is_empty())
            .then(|| ((frame.function.clone(), frame.file.clone()), frame.line))
    }
}

impl ExactCounts {
    /// What an exact recording counted; `None` if it is none.
    #[must_use]
    pub fn new(info: &RunInfo, tables: &Tables) -> Option<Self> {
        let run = info.exact.as_ref()?;
        let first = tables.caches.iter().map(|row| row.level).min()?;
        let outermost = Outermost::new(&tables.frames);
        let mut places: BTreeMap<Function, BTreeMap<u32, f64>> = BTreeMap::new();
        for row in &tables.caches {
            let counted = row.level == first && row.subject == CacheSubject::Instruction;
            if let (true, Some(pid), Some(ip)) = (counted, row.pid, row.ip)
                && let Some((function, line)) = outermost.at(pid, ip)
            {
                let lines = places.entry(function).or_default();
                *lines.entry(line).or_default() += row.loads + row.stores + row.updates;
            }
        }
        Some(Self {
            command: info.command.clone(),
            accesses: run.accesses,
            caches: run.caches.clone(),
            places,
        })
    }

    /// The same for a run that does `times` as much of the same.
    #[must_use]
    pub fn scaled(mut self, times: f64) -> Self {
        self.accesses *= times;
        for count in self.places.values_mut().flat_map(BTreeMap::values_mut) {
            *count *= times;
        }
        self
    }

    fn known(&self) -> f64 {
        self.places.values().flat_map(BTreeMap::values).sum()
    }
}

/// Rates of the places of a run.
pub(super) struct Rates {
    /// Accesses a nanosecond by address.
    by_address: HashMap<(Pid, Address), f64>,
    /// By thread and time: thread time and accesses of the samples, added up from the first on.
    by_thread: HashMap<Tid, Vec<(Time, f64, f64)>>,
    /// Accesses a nanosecond of the whole run.
    mean: f64,
    /// The share of the accesses whose function is known.
    pub(super) known_share: f64,
}

/// The instruction of which a sample is.
fn address_of(sample: &Sample) -> Address {
    match sample.access_ip {
        Address(0) => sample.ip,
        ip => ip,
    }
}

/// Samples whose mean rate is taken for a time too short to have that many of its own.
const NEIGHBOURS: usize = 8;

impl Rates {
    /// `lost_ns` of the threads' time went into samples and traps, and not into accesses.
    pub(super) fn new(
        counts: &ExactCounts,
        samples: &[Sample],
        frames: &[Frame],
        lost_ns: f64,
    ) -> Self {
        let sampled_ns: f64 = samples.iter().map(|sample| sample.weight as f64).sum();
        // More than half is not lost, whatever the estimates say.
        let kept = 1.0 - (lost_ns / sampled_ns.max(1.0)).min(0.5);
        let time_of = |sample: &Sample| sample.weight as f64 * kept;
        let outermost = Outermost::new(frames);
        // By function and line: thread time, and samples.
        let mut times: BTreeMap<Function, BTreeMap<u32, (f64, u32)>> = BTreeMap::new();
        let mut all_ns = 0.0;
        let mut places: HashMap<(Pid, Address), Option<(Function, u32)>> = HashMap::new();
        for sample in samples {
            let at = (sample.pid, address_of(sample));
            let place = places.entry(at).or_insert_with(|| outermost.at(at.0, at.1));
            all_ns += time_of(sample);
            if let Some((function, line)) = place {
                let lines = times.entry(function.clone()).or_default();
                let time = lines.entry(*line).or_default();
                time.0 += time_of(sample);
                time.1 += 1;
            }
        }
        let known = counts.known();
        let shared = counts.places.iter().filter_map(|(function, lines)| {
            let times = times.get(function)?;
            Some((function.clone(), line_rates(lines, times)))
        });
        let by_line: BTreeMap<Function, BTreeMap<u32, f64>> = shared.collect();
        // What no named instruction did was done by functions that have none.
        let named_ns: f64 = by_line
            .keys()
            .filter_map(|function| times.get(function))
            .flat_map(BTreeMap::values)
            .map(|time| time.0)
            .sum();
        let rest = match all_ns - named_ns {
            ns if ns > 0.0 => (counts.accesses - known).max(0.0) / ns,
            _ => 0.0,
        };
        let rate_of = |place: &Option<(Function, u32)>| {
            let rate = |(function, line): &(Function, u32)| {
                by_line.get(function).and_then(|lines| lines.get(line))
            };
            place.as_ref().and_then(rate).copied().unwrap_or(rest)
        };
        let by_address: HashMap<(Pid, Address), f64> = places
            .iter()
            .map(|(&at, place)| (at, rate_of(place)))
            .collect();
        let mut by_thread: HashMap<Tid, Vec<(Time, f64, f64)>> = HashMap::new();
        for sample in samples {
            let rate = by_address.get(&(sample.pid, address_of(sample)));
            let ns = time_of(sample);
            let of = by_thread.entry(sample.tid).or_default();
            of.push((sample.time, ns, ns * rate.copied().unwrap_or(rest)));
        }
        for sums in by_thread.values_mut() {
            sums.sort_by_key(|&(time, ..)| time);
            let (mut ns, mut accesses) = (0.0, 0.0);
            for sum in sums.iter_mut() {
                ns += sum.1;
                accesses += sum.2;
                (sum.1, sum.2) = (ns, accesses);
            }
        }
        Self {
            by_address,
            by_thread,
            mean: if all_ns > 0.0 {
                counts.accesses / all_ns
            } else {
                0.0
            },
            known_share: match counts.accesses {
                all if all > 0.0 => (known / all).min(1.0),
                _ => 0.0,
            },
        }
    }

    /// Accesses a nanosecond at the instruction of a sample.
    pub(super) fn at(&self, pid: Pid, address: Address) -> f64 {
        self.by_address
            .get(&(pid, address))
            .copied()
            .unwrap_or(self.mean)
    }

    /// Accesses a nanosecond of a thread between two moments: the mean over its samples in between
    /// and, where they are few, beside.
    pub(super) fn between(&self, tid: Tid, start: Time, end: Time) -> f64 {
        let Some(sums) = self.by_thread.get(&tid).filter(|sums| !sums.is_empty()) else {
            return self.mean;
        };
        let mut first = sums.partition_point(|&(time, ..)| time < start);
        let mut last = sums.partition_point(|&(time, ..)| time < end);
        while last - first < NEIGHBOURS.min(sums.len()) {
            let before = first.checked_sub(1).map(|at| start.since(sums[at].0));
            let after = sums.get(last).map(|&(time, ..)| time.since(end));
            match (before, after) {
                (Some(before), Some(after)) if before <= after => first -= 1,
                (Some(_), None) => first -= 1,
                _ => last += 1,
            }
        }
        let until = |index: usize| {
            let behind = index.checked_sub(1).map(|at| sums[at]);
            behind.map_or((0.0, 0.0), |(_, ns, accesses)| (ns, accesses))
        };
        let (from, to) = (until(first), until(last));
        match to.0 - from.0 {
            ns if ns > 0.0 => (to.1 - from.1) / ns,
            _ => self.mean,
        }
    }
}

/// The rates of the lines of one function.
///
/// A sample may name the instruction beside the one that waited, and the lines of one loop share its
/// time in no way that is theirs. So lines near each other count as one, and what has either accesses or
/// time alone counts with the nearest that has both.
fn line_rates(
    accesses: &BTreeMap<u32, f64>,
    times: &BTreeMap<u32, (f64, u32)>,
) -> BTreeMap<u32, f64> {
    let lines: BTreeSet<u32> = accesses.keys().chain(times.keys()).copied().collect();
    // First line, last line, accesses, time, samples.
    let mut blocks: Vec<(u32, u32, f64, f64, u32)> = Vec::new();
    for line in lines {
        let count = accesses.get(&line).copied().unwrap_or(0.0);
        let (ns, samples) = times.get(&line).copied().unwrap_or_default();
        match blocks.last_mut() {
            Some(block) if line - block.1 <= NEAR => {
                block.1 = line;
                block.2 += count;
                block.3 += ns;
                block.4 += samples;
            }
            _ => blocks.push((line, line, count, ns, samples)),
        }
    }
    let has_both = |block: &&(u32, u32, f64, f64, u32)| block.2 > 0.0 && block.4 >= ENOUGH;
    let seeds: Vec<u32> = blocks
        .iter()
        .filter(has_both)
        .map(|block| block.0)
        .collect();
    let nearest = |line: u32| {
        let near = seeds.iter().copied();
        near.min_by_key(|of| of.abs_diff(line)).unwrap_or(0)
    };
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for &(first, _, count, ns, _) in &blocks {
        let sum = sums.entry(nearest(first)).or_default();
        sum.0 += count;
        sum.1 += ns;
    }
    let rate_of = |line: u32| {
        let block = blocks
            .iter()
            .find(|block| (block.0..=block.1).contains(&line));
        let sum = block.and_then(|block| sums.get(&nearest(block.0)));
        sum.map_or(0.0, |&(count, ns)| if ns > 0.0 { count / ns } else { 0.0 })
    };
    times.keys().map(|&line| (line, rate_of(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_time_or_without_accesses_counts_with_its_nearest_neighbour() {
        let accesses = BTreeMap::from([(10, 100.0), (11, 50.0), (40, 1_000.0)]);
        let times = BTreeMap::from([(9, (50.0, 30)), (10, (100.0, 100)), (40, (20.0, 100))]);
        let rates = line_rates(&accesses, &times);
        assert_eq!(rates[&9], 1.0);
        assert_eq!(rates[&10], 1.0);
        assert_eq!(rates[&40], 50.0);
    }

    #[test]
    fn the_time_of_one_loop_is_shared_by_its_lines() {
        // The load waits for what the store did: nearly all samples name one of them.
        let accesses = BTreeMap::from([(50, 100.0), (51, 100.0)]);
        let times = BTreeMap::from([(50, (390.0, 390)), (51, (20.0, 20))]);
        let rates = line_rates(&accesses, &times);
        assert_eq!(rates[&50], rates[&51]);
        assert!((rates[&50] - 200.0 / 410.0).abs() < 1e-12);
    }

    #[test]
    fn a_function_whose_lines_are_not_known_has_one_rate() {
        let accesses = BTreeMap::from([(0, 300.0)]);
        let times = BTreeMap::from([(0, (100.0, 50))]);
        assert_eq!(line_rates(&accesses, &times)[&0], 3.0);
    }
}
