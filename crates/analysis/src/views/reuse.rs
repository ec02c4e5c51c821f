//! View `reuse`: how much does a program touch between a use of a line and the next use of it?
//!
//! From the table `reuse` of an exact run, whose rows are histograms by thread: private reuse (each
//! thread by itself) and shared reuse (the threads behind one last-level cache as one stream). From
//! `reuse_pairs` and `call_paths`: which place in the source, called by whom, comes back to what which
//! other one used, and from beyond which cache. The definitions are those of ReuseTracker (Sasongko, Chabbi, Marzijarani,
//! Unat, 2021: sections 6.2.1 and 6.2.2 of the thesis version).
//!
//! Where distances were measured on a sample of the lines, a single line that threads fight over may
//! be missing from it, and with it most of the invalidations. The simulated caches saw every line, and
//! a miss by sharing of the first level is an invalidated touch of private reuse (of the last level:
//! of shared reuse). So their number stands in where it is larger, taken from the smallest distances,
//! to which the sampling has attributed whatever it missed.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{
    Address, CacheCounts, CacheLevel, CacheSubject, CallPath, Frame, Measure, Pid, ReuseBin,
    ReusePairBin, ReuseScope, RunInfo, Touch, Unit,
};
use serde::{Deserialize, Serialize};

use super::place::{Places, SourcePlace};

/// Functions and pairs of places that a result names; the rest is a sum.
const MOST_ROWS: usize = 100;
/// Pairs of call paths of a pair of places that are named.
const MOST_PATHS: usize = 3;
/// Calls of a path that are named, the innermost; deeper ones are of a runtime or of recursion.
const MOST_CALLS: usize = 64;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `reuse`.
    pub reuse: &'a [ReuseBin],
    /// Table `reuse_pairs`.
    pub pairs: &'a [ReusePairBin],
    /// Table `call_paths`.
    pub call_paths: &'a [CallPath],
    /// Table `caches`.
    pub caches: &'a [CacheCounts],
    /// Table `frames`.
    pub frames: &'a [Frame],
}

/// Where reuse distances come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReuseSource {
    /// Every access of an exact run.
    #[serde(rename = "exact")]
    Exact,
    /// Sampled addresses of a run at full speed, watched until they were touched again.
    #[serde(rename = "sampled")]
    Sampled,
}

/// Reuse distances: of an exact run, or of sampled addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reuse {
    /// Where they come from. What is sampled is an estimate; the report's `sampled_reuse` says what it rests on.
    pub source: ReuseSource,
    /// The share of the lines for which distances were measured, 0 to 1; counts are scaled back.
    pub rate: f64,
    /// Each thread by itself, all of them added.
    pub private: Histogram,
    /// The threads behind each last-level cache as one stream; `null` if that was not recorded.
    pub shared: Option<Histogram>,
    /// Private reuse of each thread, by thread id.
    pub by_thread: std::collections::BTreeMap<String, Histogram>,
    /// The same bytes instead of the same line, in units of one byte or of the elements that were asked for, each thread by itself; `null` if not recorded.
    pub private_bytes: Option<Histogram>,
    /// The same bytes, behind each last-level cache; `null` if not recorded.
    pub shared_bytes: Option<Histogram>,
    /// Functions that come back to lines, those whose touches need the largest caches first; at most 100.
    pub by_function: Vec<FunctionReuse>,
    /// The same functions by the calls that led to them, as sorted; at most 100, none where no calls were followed.
    #[serde(default)]
    pub by_path: Vec<PathReuse>,
    /// Pairs of places, in private reuse: one used a line, the other comes back to it; as sorted as the functions, at most 100.
    pub pairs: Vec<PairReuse>,
    /// The same for shared reuse, where the use may be another thread's.
    pub shared_pairs: Vec<PairReuse>,
    /// Touches in private reuse by pairs that have no row of their own.
    pub other_pairs: f64,
}

/// How often which distance was seen, and how often there was none. `accesses` is the sum of the bins, `cold`, `invalidated` and `unfinished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// What is used and reused.
    pub unit: Unit,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Reuses by LRU stack distance: distinct units touched in between.
    pub bins: Vec<Bin>,
    /// The same reuses by time distance: accesses in between.
    pub time_bins: Vec<Bin>,
    /// First touches.
    pub cold: f64,
    /// Touches whose earlier use a store from elsewhere had ended.
    pub invalidated: f64,
    /// Of the reuses, those after a use by another thread of the same cache; 0 in private reuse.
    pub other_thread: f64,
    /// Uses of sampled addresses that were not seen to their end: farther than watches lasted, or never used again; 0 of an exact run.
    #[serde(default)]
    pub unfinished: f64,
    /// All touches: an access that reaches into the next unit touches both.
    pub accesses: f64,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// The smallest distance in it.
    pub from: u64,
    /// The first distance above it.
    pub to: u64,
    /// Touches.
    pub count: f64,
}

/// Touches by one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionReuse {
    /// The function, demangled; an address when unknown.
    pub function: String,
    /// Its source file, empty if unknown.
    pub file: String,
    /// Its touches, but for the first touch of each line.
    pub touches: Touches,
}

/// Touches by one function that was reached by the same calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReuse {
    /// The function, demangled; an address when unknown.
    pub function: String,
    /// Its source file, empty if unknown.
    pub file: String,
    /// Where it was called, then where its caller was called, and so on to the first call of the thread that was seen. A call from a function that is on the path already is left out with what it led to.
    pub calls: Vec<SourcePlace>,
    /// Its touches, but for the first touch of each line.
    pub touches: Touches,
}

/// Touches by one place of what another one used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairReuse {
    /// The place that used.
    pub use_place: SourcePlace,
    /// The place that comes back.
    pub reuse_place: SourcePlace,
    /// The touches.
    pub touches: Touches,
    /// The calls that led to most of them, the most first; at most three, none where no calls were followed.
    #[serde(default)]
    pub paths: Vec<PairPaths>,
}

/// The calls that led to a use and to its reuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairPaths {
    /// Calls that led to the use, the innermost first.
    pub use_calls: Vec<SourcePlace>,
    /// Calls that led to the reuse, likewise.
    pub reuse_calls: Vec<SourcePlace>,
    /// Touches.
    pub count: f64,
}

/// Touches that come back to a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Touches {
    /// All of them.
    pub count: f64,
    /// Of them, those whose earlier use a store from elsewhere had ended.
    pub invalidated: f64,
    /// The others by LRU stack distance, in octaves.
    pub bins: Vec<Bin>,
    /// For each simulated cache, the nearest to the core first: how many find no such cache large enough.
    pub beyond: Vec<Beyond>,
}

/// Touches from beyond a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beyond {
    /// The level.
    pub level: CacheLevel,
    /// Touches for which as many other lines as it holds came in between.
    pub count: f64,
}

impl Histogram {
    /// All reuses.
    #[must_use]
    pub fn reuses(&self) -> f64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// Reuses at `bytes` bytes of distinct units or beyond: those that a fully associative LRU cache
    /// of this size misses. Inside a bin the distances are taken as spread evenly.
    #[must_use]
    pub fn reuses_from(&self, bytes: u64) -> f64 {
        let units = bytes / self.unit_bytes.max(1);
        let beyond = |bin: &Bin| bin.count * share_from(bin.from, bin.to, units);
        self.bins.iter().map(beyond).sum()
    }
}

impl Touches {
    /// Touches that miss in some cache, counted once for each cache they miss in: what the rows are
    /// sorted by.
    fn weight(&self) -> f64 {
        let beyond: f64 = self.beyond.iter().map(|beyond| beyond.count).sum();
        beyond + self.invalidated * (self.beyond.len().max(1) as f64)
    }
}

/// The reuse distances of a recording; `None` if it has none.
#[must_use]
pub fn reuse(input: &Input<'_>) -> Option<Reuse> {
    let any = input.reuse.first()?;
    let rows = Rows {
        rows: input.reuse,
        unit: match input.reuse.iter().any(|row| row.unit == Unit::Line) {
            true => Unit::Line,
            false => any.unit,
        },
        info: input.info,
    };
    let private = rows.histogram(ReuseScope::Private, rows.unit)?;
    let in_bytes = |scope| {
        let mut smaller = [Unit::Byte, Unit::Element]
            .into_iter()
            .filter(|&unit| unit != rows.unit);
        smaller.find_map(|unit| rows.histogram(scope, unit))
    };
    let mut result = Reuse {
        source: ReuseSource::Exact,
        rate: input.info.exact.as_ref().map_or(1.0, |run| {
            run.reuse_rate / f64::from(run.one_line_in.max(1))
        }),
        private,
        shared: rows.histogram(ReuseScope::Shared, rows.unit),
        by_thread: rows.by_thread(),
        private_bytes: in_bytes(ReuseScope::Private),
        shared_bytes: in_bytes(ReuseScope::Shared),
        by_function: Vec::new(),
        by_path: Vec::new(),
        pairs: Vec::new(),
        shared_pairs: Vec::new(),
        other_pairs: 0.0,
    };
    if result.rate < 1.0 && rows.unit == Unit::Line {
        complete(&mut result, input.caches);
    }
    places(input, rows.unit, &mut result);
    Some(result)
}

/// Adds the invalidations that a sample of the lines may miss, as the simulated caches counted them.
fn complete(result: &mut Reuse, caches: &[CacheCounts]) {
    let levels = caches.iter().map(|row| row.level);
    let (Some(first), Some(last)) = (levels.clone().min(), levels.max()) else {
        return;
    };
    result.private.complete(invalidations(caches, first, None));
    // Caches without bounds are private ones.
    if let Some(shared) = result.shared.as_mut()
        && last != CacheLevel::Unbounded
    {
        shared.complete(invalidations(caches, last, None));
    }
    for (tid, histogram) in &mut result.by_thread {
        histogram.complete(invalidations(caches, first, Some(tid)));
    }
}

/// Misses by sharing of a level, of all threads or of one.
fn invalidations(caches: &[CacheCounts], level: CacheLevel, tid: Option<&str>) -> f64 {
    caches
        .iter()
        .filter(|row| row.level == level)
        .filter(|row| match tid {
            None => row.subject == CacheSubject::Total,
            Some(tid) => {
                row.subject == CacheSubject::Thread
                    && row.tid.is_some_and(|of| of.to_string() == tid)
            }
        })
        .map(|row| row.true_sharing + row.false_sharing)
        .sum()
}

impl Histogram {
    /// Makes the invalidated touches as many as these at least, instead of the nearest reuses.
    fn complete(&mut self, invalidated: f64) {
        let missing = (invalidated - self.invalidated).clamp(0.0, self.reuses());
        for bins in [&mut self.bins, &mut self.time_bins] {
            let mut left = missing;
            for bin in bins.iter_mut() {
                let taken = left.min(bin.count);
                bin.count -= taken;
                left -= taken;
            }
            bins.retain(|bin| bin.count > 0.0);
        }
        self.invalidated += missing;
    }
}

/// Rows of the table, and the unit that is shown.
struct Rows<'a> {
    rows: &'a [ReuseBin],
    unit: Unit,
    info: &'a RunInfo,
}

impl<'a> Rows<'a> {
    fn of(&self, scope: ReuseScope, unit: Unit) -> impl Iterator<Item = &'a ReuseBin> + use<'a> {
        self.rows
            .iter()
            .filter(move |row| row.scope == scope && row.unit == unit)
    }

    fn histogram(&self, scope: ReuseScope, unit: Unit) -> Option<Histogram> {
        sum(self.of(scope, unit), unit, self.info)
    }

    fn by_thread(&self) -> BTreeMap<String, Histogram> {
        let mut threads: BTreeMap<u32, Vec<&ReuseBin>> = BTreeMap::new();
        for row in self.of(ReuseScope::Private, self.unit) {
            if let Some(tid) = row.tid {
                threads.entry(tid.0).or_default().push(row);
            }
        }
        let histogram = |(tid, rows): (u32, Vec<&ReuseBin>)| {
            Some((
                tid.to_string(),
                sum(rows.into_iter(), self.unit, self.info)?,
            ))
        };
        threads.into_iter().filter_map(histogram).collect()
    }
}

/// The histogram that rows add up to; `None` if there is no row.
pub(super) fn sum<'a>(
    rows: impl Iterator<Item = &'a ReuseBin>,
    unit: Unit,
    info: &RunInfo,
) -> Option<Histogram> {
    // The touches without a distance may stand in the rows of both measures: one of them counts.
    #[derive(Default)]
    struct Sums {
        bins: BTreeMap<(u64, u64), f64>,
        cold: f64,
        invalidated: f64,
        other_thread: f64,
        rows: usize,
    }
    let mut measures: [Sums; 2] = Default::default();
    for row in rows {
        let sums = &mut measures[usize::from(row.measure == Measure::Time)];
        sums.rows += 1;
        match row.touch {
            Touch::Reuse => *sums.bins.entry((row.from, row.to)).or_default() += row.count,
            Touch::Cold => sums.cold += row.count,
            Touch::Invalidated => sums.invalidated += row.count,
            Touch::OtherThread => sums.other_thread += row.count,
        }
    }
    let [stack, time] = &measures;
    let of = |value: fn(&Sums) -> f64| value(stack).max(value(time));
    if stack.rows + time.rows == 0 {
        return None;
    }
    let bins = |sums: &Sums| -> Vec<Bin> {
        let bin = |(&(from, to), &count): (&(u64, u64), &f64)| Bin { from, to, count };
        sums.bins.iter().map(bin).collect()
    };
    let (cold, invalidated) = (of(|sums| sums.cold), of(|sums| sums.invalidated));
    Some(Histogram {
        unit,
        unit_bytes: bytes_of(unit, info),
        bins: bins(stack),
        time_bins: bins(time),
        cold,
        invalidated,
        other_thread: of(|sums| sums.other_thread),
        unfinished: 0.0,
        accesses: of(|sums| sums.bins.values().sum()) + cold + invalidated,
    })
}

/// Bytes of a unit, at least one.
fn bytes_of(unit: Unit, info: &RunInfo) -> u64 {
    let element = info.exact.as_ref().and_then(|run| run.element_bytes);
    match unit {
        Unit::Byte => 1,
        Unit::Element => u64::from(element.unwrap_or(1)),
        Unit::Chunk => 8,
        Unit::Line => info.line_size.max(1),
        Unit::LinePair => 2 * info.line_size.max(1),
    }
}

/// Fills in which functions and pairs of places touch what.
fn places(input: &Input<'_>, unit: Unit, result: &mut Reuse) {
    let caches: Vec<(CacheLevel, u64)> = input.info.exact.as_ref().map_or_else(Vec::new, |run| {
        let unit_bytes = bytes_of(unit, input.info);
        run.caches
            .iter()
            .map(|cache| (cache.level, cache.size_bytes / unit_bytes))
            .collect()
    });
    let mut sources = Sources {
        places: Places::new(input.frames),
        resolved: HashMap::new(),
        paths: input
            .call_paths
            .iter()
            .map(|path| (path.id, path))
            .collect(),
    };
    for scope in [ReuseScope::Private, ReuseScope::Shared] {
        let rows = input
            .pairs
            .iter()
            .filter(|row| row.scope == scope && row.unit == unit && row.measure == Measure::Stack);
        let mut pairs: BTreeMap<(SourcePlace, SourcePlace), Pair> = BTreeMap::new();
        let mut functions: BTreeMap<(String, String), Touches> = BTreeMap::new();
        let mut paths: BTreeMap<(u32, String, String), Touches> = BTreeMap::new();
        let mut other = 0.0;
        for row in rows {
            let (Some(pid), Some(used), Some(reused)) = (row.pid, row.use_ip, row.reuse_ip) else {
                other += row.count;
                continue;
            };
            let (used, reused) = (sources.place(pid, used), sources.place(pid, reused));
            let (function, file) = (reused.function.clone(), reused.file.clone());
            if let Some(path) = row.reuse_path {
                let key = (path, function.clone(), file.clone());
                add(paths.entry(key).or_default(), row, &caches);
            }
            add(functions.entry((function, file)).or_default(), row, &caches);
            let pair = pairs.entry((used, reused)).or_default();
            add(&mut pair.touches, row, &caches);
            *pair
                .paths
                .entry((row.use_path, row.reuse_path))
                .or_default() += row.count;
        }
        let (pairs, rest) = heaviest(pairs.into_iter().collect(), |(_, pair): &(_, Pair)| {
            &pair.touches
        });
        let pairs = pairs
            .into_iter()
            .map(|((use_place, reuse_place), pair)| PairReuse {
                use_place,
                reuse_place,
                paths: pair.named(&mut sources),
                touches: pair.touches,
            })
            .collect();
        if scope == ReuseScope::Shared {
            result.shared_pairs = pairs;
            continue;
        }
        result.pairs = pairs;
        result.other_pairs = other + rest;
        let functions = functions
            .into_iter()
            .map(|((function, file), touches)| FunctionReuse {
                function,
                file,
                touches,
            });
        result.by_function = heaviest(functions.collect(), |row: &FunctionReuse| &row.touches).0;
        let paths = heaviest(paths.into_iter().collect(), |(_, touches)| touches).0;
        result.by_path = paths
            .into_iter()
            .map(|((path, function, file), touches)| PathReuse {
                function,
                file,
                calls: sources.calls(Some(path)),
                touches,
            })
            .collect();
    }
}

/// Where instructions stand, and the calls of paths.
struct Sources<'a> {
    places: Places<'a>,
    resolved: HashMap<(Pid, Address), SourcePlace>,
    paths: HashMap<u32, &'a CallPath>,
}

impl Sources<'_> {
    fn place(&mut self, pid: Pid, ip: Address) -> SourcePlace {
        let known = self.resolved.entry((pid, ip));
        known.or_insert_with(|| self.places.at(pid, ip)).clone()
    }

    /// The calls of a path, the innermost first.
    fn calls(&mut self, path: Option<u32>) -> Vec<SourcePlace> {
        let paths = &self.paths;
        let of = |id: Option<u32>| id.and_then(|id| paths.get(&id).copied());
        // A damaged recording may have a path that leads back to itself.
        let calls: Vec<&CallPath> = std::iter::successors(of(path), |path| of(path.caller))
            .take(MOST_CALLS)
            .collect();
        calls
            .into_iter()
            .map(|path| self.place(path.pid, path.call_ip))
            .collect()
    }
}

/// A pair of places under construction.
#[derive(Default)]
struct Pair {
    touches: Touches,
    /// Touches by the paths of the use and of the reuse.
    paths: BTreeMap<(Option<u32>, Option<u32>), f64>,
}

impl Pair {
    /// The paths of most touches.
    fn named(&self, sources: &mut Sources<'_>) -> Vec<PairPaths> {
        let known = |path: &(Option<u32>, Option<u32>)| path.0.is_some() || path.1.is_some();
        let mut paths: Vec<_> = self.paths.iter().filter(|(path, _)| known(path)).collect();
        paths.sort_by(|a, b| b.1.total_cmp(a.1));
        paths
            .into_iter()
            .take(MOST_PATHS)
            .map(|(&(used, reused), &count)| PairPaths {
                use_calls: sources.calls(used),
                reuse_calls: sources.calls(reused),
                count,
            })
            .collect()
    }
}

fn add(touches: &mut Touches, row: &ReusePairBin, caches: &[(CacheLevel, u64)]) {
    if touches.beyond.is_empty() {
        touches.beyond = caches
            .iter()
            .map(|&(level, _)| Beyond { level, count: 0.0 })
            .collect();
    }
    touches.count += row.count;
    match row.touch {
        Touch::Invalidated => touches.invalidated += row.count,
        Touch::Reuse => {
            match touches.bins.iter_mut().find(|bin| bin.from == row.from) {
                Some(bin) => bin.count += row.count,
                None => touches.bins.push(Bin {
                    from: row.from,
                    to: row.to,
                    count: row.count,
                }),
            }
            for (beyond, &(_, units)) in touches.beyond.iter_mut().zip(caches) {
                beyond.count += row.count * share_from(row.from, row.to, units);
            }
        }
        Touch::Cold | Touch::OtherThread => {}
    }
}

/// The share of the distances of a bin that are at `units` or beyond, taken as spread evenly.
pub(super) fn share_from(from: u64, to: u64, units: u64) -> f64 {
    if units <= from {
        return 1.0;
    }
    match to.saturating_sub(units) {
        0 => 0.0,
        above => above as f64 / (to - from) as f64,
    }
}

/// The rows that matter most, and how many touches the others have.
pub(super) fn heaviest<T>(mut rows: Vec<T>, touches: impl Fn(&T) -> &Touches) -> (Vec<T>, f64) {
    rows.sort_by(|a, b| {
        let (a, b) = (touches(a), touches(b));
        let by_weight = b.weight().total_cmp(&a.weight());
        by_weight.then(b.count.total_cmp(&a.count))
    });
    let rest = rows
        .iter()
        .skip(MOST_ROWS)
        .map(|row| touches(row).count)
        .sum();
    rows.truncate(MOST_ROWS);
    (rows, rest)
}

#[cfg(test)]
#[path = "reuse_tests.rs"]
mod tests;
