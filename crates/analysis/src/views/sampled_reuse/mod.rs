//! View `reuse` of a run at full speed: how long is it from a use of an address to the next use?
//!
//! From the tables `reuse_watches` and `reuse_traps`: sampled addresses were watched in their threads
//! until they were touched again (ReuseTracker: Sasongko, Chabbi, Marzijarani, Unat, 2021; sections
//! 6.4.1 and 6.4.2 of the thesis version). What is measured is time. It becomes accesses by the rates
//! that an exact run of the same program gives for each place, and accesses become LRU stack distances
//! by the model of Shen, Shaw, Meeker, Ding (2007).
//!
//! Three things would bend the histogram and are taken out of it:
//!
//! - A timer samples an access in proportion to how long it waits, not to how often it comes. With the
//!   rate of its place each counts as one over its time; without an exact run it stays as it is, and
//!   the result says so.
//! - Long intervals are cut off more often, by the reservoir and by the end of the recording: each that
//!   was seen to its end counts as one over the chance of that (see [`intervals`]).
//! - The time that samples and other traps took in between is not the program's.
//!
//! What stays: a watch shows as many uses as it has shots, so addresses that come in bursts with long
//! pauses show too many of the short intervals; and times below the scatter of two traps are not told
//! apart.

mod intervals;
mod rates;

use std::collections::{BTreeMap, HashMap};

use linewise_cache::reuse::{Histogram as Distances, stack_from_time};
use linewise_recording::{
    Frame, ReuseOutcome, ReuseScope, ReuseTrap, ReuseWatch, RunInfo, Sample, Switch, Tid, Time,
    Unit,
};
use serde::{Deserialize, Serialize};

use super::place::{Places, SourcePlace};
use super::reuse::{
    Bin, FunctionReuse, Histogram, PairReuse, Reuse, ReuseSource, Touches, heaviest,
};
use intervals::{Fate, Interruptions, Intervals, ReuseInterval};
pub use rates::ExactCounts;
use rates::Rates;

/// Bytes of what one watchpoint covers.
const CHUNK_BYTES: u64 = 8;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `reuse_watches`.
    pub watches: &'a [ReuseWatch],
    /// Table `reuse_traps`.
    pub traps: &'a [ReuseTrap],
    /// Table `samples`.
    pub samples: &'a [Sample],
    /// Table `switches`.
    pub switches: &'a [Switch],
    /// Table `frames`.
    pub frames: &'a [Frame],
    /// What an exact run of the same program counted, if there is one.
    pub exact: Option<&'a ExactCounts>,
}

/// Reuse times of sampled addresses, and what they rest on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledReuse {
    /// Sampled addresses that were watched.
    pub watches: u64,
    /// Of them, those that were seen to the last of the uses that a watch can show.
    pub complete: u64,
    /// Of them, those that gave way to a later sample.
    pub replaced: u64,
    /// Of them, those that were still waited for when the recording or their thread ended.
    pub ended: u64,
    /// Uses whose reuse, or whose end by a store from elsewhere, was seen.
    pub uses: u64,
    /// Shorter times are not told apart, ns.
    pub resolution_ns: f64,
    /// Each thread by itself.
    pub private: ReuseTimes,
    /// The threads behind each last-level cache as one stream; `null` if only one thread ran.
    pub shared: Option<ReuseTimes>,
    /// The command of the exact run by whose rates times became accesses; `null` without one.
    pub rate_from: Option<String>,
    /// Of the accesses of that run, the share whose functions it names, 0 to 1; `null` likewise.
    pub known_share: Option<f64>,
    /// What this cannot tell, and what to do about it.
    pub doubt: String,
}

/// Times between uses and reuses, each with its share of all uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReuseTimes {
    /// Reuses by the time that the thread ran in between (shared: all threads together), ns. `count` is a share of all uses.
    pub bins: Vec<Bin>,
    /// The share of uses that a store from elsewhere ended.
    pub invalidated: f64,
    /// The share of uses that were not seen to their end: farther than watches lasted, or never used again.
    pub unfinished: f64,
    /// Uses seen to their end.
    pub uses: u64,
}

/// What was measured: the times, and with the rates of an exact run the distances.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledResult {
    /// The times.
    pub times: SampledReuse,
    /// The distances.
    pub reuse: Option<Reuse>,
}

/// The sampled reuse of a recording; `None` if there is none.
#[must_use]
pub fn sampled_reuse(input: &Input<'_>) -> Option<SampledResult> {
    let facts = input.info.reuse.as_ref()?;
    let offset_ns = intervals::trap_offset(input.watches, input.traps, facts.offset_ns);
    let sample_ns = input.info.overhead.sample_ns;
    let lost = Interruptions::new(input.samples, sample_ns, input.traps, offset_ns);
    let rates = input.exact.map(|counts| {
        let rates = Rates::new(counts, input.samples, input.frames, lost.all());
        (counts, rates)
    });
    let mut found = intervals::intervals(input.watches, input.traps);
    if let Some((_, rates)) = &rates {
        weigh_by_accesses(&mut found, rates);
    }
    let stays = Stays::new(input.switches);
    let measured: Vec<Measured<'_>> = found
        .seen
        .iter()
        .map(|interval| {
            measure(
                interval,
                &lost,
                &stays,
                rates.as_ref().map(|(_, rates)| rates),
            )
        })
        .collect();
    let sums = |scope| Sums::new(scope, &measured, &found);
    let (private, shared) = (sums(ReuseScope::Private), sums(ReuseScope::Shared));
    let outcome = |outcome| {
        let of = input
            .watches
            .iter()
            .filter(|watch| watch.outcome == outcome);
        of.count() as u64
    };
    let times = SampledReuse {
        watches: input.watches.len() as u64,
        complete: outcome(ReuseOutcome::Complete),
        replaced: outcome(ReuseOutcome::Replaced),
        ended: outcome(ReuseOutcome::Ended),
        uses: found.seen.len() as u64,
        resolution_ns: 2.0 * facts.deviation_ns,
        private: private.times(),
        shared: (shared.all > 0.0).then(|| shared.times()),
        rate_from: rates.as_ref().map(|(counts, _)| counts.command.join(" ")),
        known_share: rates.as_ref().map(|(_, rates)| rates.known_share),
        doubt: doubt(input, &found, rates.as_ref().map(|(_, rates)| rates)),
    };
    let reuse = rates.as_ref().map(|(counts, _)| Reuse {
        source: ReuseSource::Sampled,
        rate: 1.0,
        private: private.histogram(counts.accesses),
        shared: (shared.all > 0.0).then(|| shared.histogram(counts.accesses)),
        by_thread: by_thread(&measured, &found, counts.accesses),
        private_bytes: None,
        shared_bytes: None,
        by_function: by_function(input, &measured, &private, counts.accesses),
        by_path: Vec::new(),
        pairs: pairs(
            input,
            &measured,
            &private,
            ReuseScope::Private,
            counts.accesses,
        ),
        shared_pairs: pairs(
            input,
            &measured,
            &shared,
            ReuseScope::Shared,
            counts.accesses,
        ),
        other_pairs: 0.0,
    });
    Some(SampledResult { times, reuse })
}

/// What the reader must know.
fn doubt(input: &Input<'_>, found: &Intervals, rates: Option<&Rates>) -> String {
    let mut words = Vec::new();
    if found.seen.is_empty() {
        words.push(
            "No address was seen to be used again: record for longer, or allow more --overhead."
                .to_owned(),
        );
    }
    match rates {
        None => words.push(
            "Times, not distances, and in proportion to how long accesses wait: without counters \
             only an exact run of the same program knows how many accesses there are. Record one \
             with `--source exact` and give it to `linewise report` with --rate-from."
                .to_owned(),
        ),
        Some(rates) => {
            if rates.known_share < 0.9 {
                words.push(format!(
                    "The exact run names the functions of {:.0} % of its accesses; the rest counts with one rate.",
                    rates.known_share * 100.0
                ));
            }
            if input
                .exact
                .is_some_and(|counts| !same(&counts.command, &input.info.command))
            {
                words.push("The rates are of another command: distances are off by as much as its work differs.".to_owned());
            }
            words.push(
                "Distances are estimated from times, at the mean speed of each place in the source: \
                 where that varies, so do they. A unit is 8 bytes, so neighbours on a line do not \
                 count as reuses."
                    .to_owned(),
            );
        }
    }
    words.join(" ")
}

/// Whether two commands run the same: the program may stand elsewhere.
fn same(a: &[String], b: &[String]) -> bool {
    let name = |command: &[String]| {
        let first = command.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or_default().to_owned()
    };
    name(a) == name(b) && a.get(1..) == b.get(1..)
}

/// Turns weights that are in proportion to time into such in proportion to accesses.
fn weigh_by_accesses(found: &mut Intervals, rates: &Rates) {
    for interval in &mut found.seen {
        interval.weight *= rates.at(interval.pid, interval.sample_ip);
    }
    for (_, pid, ip, weight) in &mut found.all {
        *weight *= rates.at(*pid, *ip);
    }
}

/// Where threads were when.
struct Stays {
    /// By thread, sorted: start, end.
    of_thread: HashMap<Tid, Vec<(Time, Time)>>,
}

impl Stays {
    fn new(switches: &[Switch]) -> Self {
        let mut of_thread: HashMap<Tid, Vec<(Time, Time)>> = HashMap::new();
        for stay in switches {
            let of = of_thread.entry(stay.tid).or_default();
            of.push((stay.start, stay.end));
        }
        for stays in of_thread.values_mut() {
            stays.sort_unstable();
        }
        Self { of_thread }
    }

    /// For each thread, how long it ran between two moments, ns.
    fn between(&self, start: Time, end: Time) -> impl Iterator<Item = (Tid, f64)> {
        self.of_thread.iter().filter_map(move |(&tid, stays)| {
            let first = stays.partition_point(|&(_, left)| left <= start);
            let ns: u64 = stays[first..]
                .iter()
                .take_while(|&&(came, _)| came < end)
                .map(|&(came, left)| left.min(end).since(came.max(start)))
                .sum();
            (ns > 0).then_some((tid, ns as f64))
        })
    }
}

/// An interval with its length.
struct Measured<'a> {
    interval: &'a ReuseInterval,
    ns: f64,
    /// Accesses in between; 0 without rates.
    accesses: u64,
}

fn measure<'a>(
    interval: &'a ReuseInterval,
    lost: &Interruptions,
    stays: &Stays,
    rates: Option<&Rates>,
) -> Measured<'a> {
    let ReuseInterval {
        tid, start, end, ..
    } = *interval;
    let without = |tid, ns: f64| (ns - lost.between(tid, start, end)).max(0.0);
    let rate = |tid| rates.map_or(0.0, |rates| rates.between(tid, start, end));
    let (ns, accesses) = match interval.running_ns {
        Some(running) => {
            let ns = without(tid, running as f64);
            (ns, ns * rate(tid))
        }
        None => stays
            .between(start, end)
            .map(|(tid, ns)| {
                let ns = without(tid, ns);
                (ns, ns * rate(tid))
            })
            .fold((0.0, 0.0), |sum, each| (sum.0 + each.0, sum.1 + each.1)),
    };
    Measured {
        interval,
        ns,
        // The reuse itself is not in between.
        accesses: (accesses.round() as u64).saturating_sub(1),
    }
}

/// Intervals of one scope, added up by weight.
struct Sums {
    ns: Distances,
    accesses: Distances,
    invalidated: f64,
    /// The weight of all uses, seen to their end or not.
    all: f64,
    seen: u64,
}

impl Sums {
    fn new(scope: ReuseScope, measured: &[Measured<'_>], found: &Intervals) -> Self {
        let of_scope = measured.iter().filter(|of| of.interval.scope == scope);
        let all = found.all.iter().filter(|(of, ..)| *of == scope);
        Self::of(of_scope, all.map(|(.., weight)| weight).sum())
    }

    fn of<'a>(measured: impl Iterator<Item = &'a Measured<'a>>, all: f64) -> Self {
        let mut sums = Self {
            ns: Distances::new(),
            accesses: Distances::new(),
            invalidated: 0.0,
            all,
            seen: 0,
        };
        for of in measured {
            sums.seen += 1;
            match of.interval.fate {
                Fate::Invalidated => sums.invalidated += of.interval.weight,
                Fate::Reused(_) => {
                    sums.ns.add(of.ns as u64, of.interval.weight);
                    sums.accesses.add(of.accesses, of.interval.weight);
                }
            }
        }
        // Weights are estimates: together they can be more than there were.
        sums.all = sums.all.max(sums.ns.reuses() + sums.invalidated);
        sums
    }

    fn unfinished(&self) -> f64 {
        (self.all - self.ns.reuses() - self.invalidated).max(0.0)
    }

    fn times(&self) -> ReuseTimes {
        let share = |weight: f64| {
            if self.all > 0.0 {
                weight / self.all
            } else {
                0.0
            }
        };
        ReuseTimes {
            bins: bins(&self.ns, share(1.0)),
            invalidated: share(self.invalidated),
            unfinished: share(self.unfinished()),
            uses: self.seen,
        }
    }

    /// The same as touches, of which there are `touches`.
    fn histogram(&self, touches: f64) -> Histogram {
        let scale = if self.all > 0.0 {
            touches / self.all
        } else {
            0.0
        };
        let mut time = self.accesses.clone();
        time.add_invalidated(self.invalidated);
        // Units that a distance beyond all others could have touched.
        let stack = stack_from_time(&time, footprint(&time));
        Histogram {
            unit: Unit::Chunk,
            unit_bytes: CHUNK_BYTES,
            bins: bins(&stack, scale),
            time_bins: bins(&time, scale),
            cold: 0.0,
            invalidated: self.invalidated * scale,
            other_thread: 0.0,
            unfinished: self.unfinished() * scale,
            accesses: self.all * scale,
        }
    }
}

/// Distinct units in as many accesses as the longest distance has: the sum of the chances that a
/// reuse is longer than each shorter distance (the mean of Shen's binomial).
fn footprint(time: &Distances) -> u64 {
    let all = time.reuses();
    let mut remaining = all;
    let mut behind = 0;
    let mut sum = 0.0;
    for bin in time.bins() {
        sum += (bin.from - behind) as f64 * remaining / all.max(f64::MIN_POSITIVE);
        sum +=
            (bin.to - bin.from) as f64 * (remaining - bin.count / 2.0) / all.max(f64::MIN_POSITIVE);
        behind = bin.to;
        remaining -= bin.count;
    }
    sum.ceil() as u64 + 2
}

fn bins(distances: &Distances, scale: f64) -> Vec<Bin> {
    let bin = |bin: linewise_cache::reuse::Bin| Bin {
        from: bin.from,
        to: bin.to,
        count: bin.count * scale,
    };
    distances.bins().map(bin).collect()
}

fn by_thread(
    measured: &[Measured<'_>],
    found: &Intervals,
    touches: f64,
) -> BTreeMap<String, Histogram> {
    let private = || {
        let of = measured.iter();
        of.filter(|of| of.interval.scope == ReuseScope::Private)
    };
    let mut threads: Vec<Tid> = private().map(|of| of.interval.tid).collect();
    threads.sort_unstable();
    threads.dedup();
    let all = found.all.iter();
    let all: f64 = all
        .filter(|(scope, ..)| *scope == ReuseScope::Private)
        .map(|(.., weight)| weight)
        .sum();
    let histogram = |tid: Tid| {
        let own = || private().filter(|of| of.interval.tid == tid);
        let weight: f64 = own().map(|of| of.interval.weight).sum();
        let part = if all > 0.0 { weight / all } else { 0.0 };
        let histogram = Sums::of(own(), weight).histogram(touches * part);
        (tid.to_string(), histogram)
    };
    threads.into_iter().map(histogram).collect()
}

/// What every interval of one scope adds to a list of touches.
fn add(touches: &mut Touches, of: &Measured<'_>, scale: f64) {
    let count = of.interval.weight * scale;
    touches.count += count;
    match of.interval.fate {
        Fate::Invalidated => touches.invalidated += count,
        Fate::Reused(_) => {
            let from = match of.accesses {
                0 => 0,
                accesses => 1 << accesses.ilog2(),
            };
            let to = (from * 2).max(1);
            match touches.bins.iter_mut().find(|bin| bin.from == from) {
                Some(bin) => bin.count += count,
                None => touches.bins.push(Bin { from, to, count }),
            }
        }
    }
}

fn scale_of(sums: &Sums, touches: f64) -> f64 {
    if sums.all > 0.0 {
        touches / sums.all
    } else {
        0.0
    }
}

fn by_function(
    input: &Input<'_>,
    measured: &[Measured<'_>],
    sums: &Sums,
    touches: f64,
) -> Vec<FunctionReuse> {
    let places = Places::new(input.frames);
    let mut functions: BTreeMap<(String, String), Touches> = BTreeMap::new();
    for of in measured {
        if of.interval.scope == ReuseScope::Private {
            let place = places.at(of.interval.pid, of.interval.reuse_ip);
            let function = functions.entry((place.function, place.file)).or_default();
            add(function, of, scale_of(sums, touches));
        }
    }
    let rows = functions
        .into_iter()
        .map(|((function, file), touches)| FunctionReuse {
            function,
            file,
            touches,
        });
    heaviest(rows.collect(), |row: &FunctionReuse| &row.touches).0
}

fn pairs(
    input: &Input<'_>,
    measured: &[Measured<'_>],
    sums: &Sums,
    scope: ReuseScope,
    touches: f64,
) -> Vec<PairReuse> {
    let places = Places::new(input.frames);
    let mut pairs: BTreeMap<(SourcePlace, SourcePlace), Touches> = BTreeMap::new();
    for of in measured.iter().filter(|of| of.interval.scope == scope) {
        let at = |ip| places.at(of.interval.pid, ip);
        let pair = (at(of.interval.use_ip), at(of.interval.reuse_ip));
        add(pairs.entry(pair).or_default(), of, scale_of(sums, touches));
    }
    let rows = pairs
        .into_iter()
        .map(|((use_place, reuse_place), touches)| PairReuse {
            paths: Vec::new(),
            use_place,
            reuse_place,
            touches,
        });
    heaviest(rows.collect(), |row: &PairReuse| &row.touches).0
}

#[cfg(test)]
mod tests;
