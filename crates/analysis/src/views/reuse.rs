//! View `reuse`: how much does a program touch between a use of a line and the next use of it?
//!
//! From the table `reuse` of an exact run, whose rows are histograms by thread: private reuse (each
//! thread by itself) and shared reuse (the threads behind one last-level cache as one stream). From
//! `reuse_pairs`: which place in the source comes back to what which other one used, and from
//! beyond which cache. The definitions are those of ReuseTracker (Sasongko, Chabbi, Marzijarani,
//! Unat, 2021: sections 6.2.1 and 6.2.2 of the thesis version).
//!
//! A private reuse does not depend on how the threads interleave, but whether another thread's store
//! came in between does, and shared distances do. So everything is counted in the equal-rate order
//! where there is one, and the histograms of the observed order stand beside it.
//!
//! Where distances were measured on a sample of the lines, a single line that threads fight over may
//! be missing from it, and with it most of the invalidations. The simulated caches saw every line, and
//! a miss by sharing of the first level is an invalidated touch of private reuse (of the last level:
//! of shared reuse). So their number stands in where it is larger, taken from the smallest distances,
//! to which the sampling has attributed whatever it missed.

use std::collections::{BTreeMap, HashMap};

use linewise_recording::{
    CacheCounts, CacheLevel, CacheSubject, Frame, Measure, Order, Pid, ReuseBin, ReusePairBin,
    ReuseScope, RunInfo, Touch, Unit,
};
use serde::{Deserialize, Serialize};

use super::band::Band;
use super::place::{Places, SourcePlace};

/// Functions and pairs of places that a result names; the rest is a sum.
const MOST_ROWS: usize = 100;

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// Table `reuse`.
    pub reuse: &'a [ReuseBin],
    /// Table `reuse_pairs`.
    pub pairs: &'a [ReusePairBin],
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
    /// The order of the accesses that everything but `observed` is counted in: `equal-rate` where it was simulated.
    pub order: Order,
    /// The share of the lines for which distances were measured, 0 to 1; counts are scaled back.
    pub rate: f64,
    /// Each thread by itself, all of them added.
    pub private: Histogram,
    /// The threads behind each last-level cache as one stream; `null` if that was not recorded.
    pub shared: Option<Histogram>,
    /// Private reuse of each thread, by thread id.
    pub by_thread: std::collections::BTreeMap<String, Histogram>,
    /// The same bytes instead of the same line, each thread by itself; `null` if not recorded.
    pub private_bytes: Option<Histogram>,
    /// The same bytes, behind each last-level cache; `null` if not recorded.
    pub shared_bytes: Option<Histogram>,
    /// The observed order, where everything else is in the equal-rate order; `null` if it was not recorded.
    pub observed: Option<OrderReuse>,
    /// Functions that come back to lines, those whose touches need the largest caches first; at most 100.
    pub by_function: Vec<FunctionReuse>,
    /// Pairs of places, in private reuse: one used a line, the other comes back to it; as sorted as the functions, at most 100.
    pub pairs: Vec<PairReuse>,
    /// The same for shared reuse, where the use may be another thread's.
    pub shared_pairs: Vec<PairReuse>,
    /// Touches in private reuse by pairs that have no row of their own.
    pub other_pairs: f64,
}

/// Histograms of one order of the accesses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderReuse {
    /// Each thread by itself, all of them added.
    pub private: Histogram,
    /// The threads behind each last-level cache as one stream; `null` if that was not recorded.
    pub shared: Option<Histogram>,
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
    /// `invalidated` in both orders of the accesses.
    pub invalidated_band: Band,
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

/// Touches by one place of what another one used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairReuse {
    /// The place that used.
    pub use_place: SourcePlace,
    /// The place that comes back.
    pub reuse_place: SourcePlace,
    /// The touches.
    pub touches: Touches,
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
    let order = main_order(input.reuse.iter().map(|row| row.order))?;
    let rows = Rows {
        rows: input.reuse,
        unit: match input.reuse.iter().any(|row| row.unit == Unit::Line) {
            true => Unit::Line,
            false => input.reuse[0].unit,
        },
        line_size: input.info.line_size,
    };
    let private = rows.histogram(order, ReuseScope::Private, rows.unit)?;
    let in_bytes = |scope| match rows.unit {
        Unit::Byte => None,
        _ => rows.histogram(order, scope, Unit::Byte),
    };
    let mut result = Reuse {
        source: ReuseSource::Exact,
        order,
        rate: input.info.exact.as_ref().map_or(1.0, |run| {
            run.reuse_rate / f64::from(run.one_line_in.max(1))
        }),
        private,
        shared: rows.histogram(order, ReuseScope::Shared, rows.unit),
        by_thread: rows.by_thread(order),
        private_bytes: in_bytes(ReuseScope::Private),
        shared_bytes: in_bytes(ReuseScope::Shared),
        observed: None,
        by_function: Vec::new(),
        pairs: Vec::new(),
        shared_pairs: Vec::new(),
        other_pairs: 0.0,
    };
    let simulated = Simulated {
        rows: match result.rate < 1.0 && rows.unit == Unit::Line {
            true => input.caches,
            false => &[],
        },
    };
    simulated.complete(&mut result.private, result.shared.as_mut(), order);
    if let Some((first, _)) = simulated.levels(order) {
        for (tid, histogram) in &mut result.by_thread {
            histogram.complete(simulated.invalidations(order, first, Some(tid)));
        }
    }
    if order != Order::Observed
        && let Some(mut private) = rows.histogram(Order::Observed, ReuseScope::Private, rows.unit)
    {
        let mut shared = rows.histogram(Order::Observed, ReuseScope::Shared, rows.unit);
        simulated.complete(&mut private, shared.as_mut(), Order::Observed);
        widen(&mut result.private, Some(&private));
        if let Some(histogram) = &mut result.shared {
            widen(histogram, shared.as_ref());
        }
        result.observed = Some(OrderReuse { private, shared });
    }
    places(input, order, rows.unit, &mut result);
    Some(result)
}

/// The order to show first: equal rate does not depend on how busy the machine was.
pub(super) fn main_order(orders: impl Iterator<Item = Order>) -> Option<Order> {
    orders.max_by_key(|order| *order == Order::EqualRate)
}

fn widen(histogram: &mut Histogram, observed: Option<&Histogram>) {
    if let Some(observed) = observed {
        histogram.invalidated_band = histogram.invalidated_band.with(observed.invalidated);
    }
}

/// What the simulated caches say of a sampled run; no rows for any other.
struct Simulated<'a> {
    rows: &'a [CacheCounts],
}

impl Simulated<'_> {
    fn complete(&self, private: &mut Histogram, shared: Option<&mut Histogram>, order: Order) {
        let Some((first, last)) = self.levels(order) else {
            return;
        };
        private.complete(self.invalidations(order, first, None));
        if let Some(shared) = shared {
            shared.complete(self.invalidations(order, last, None));
        }
    }

    /// The first and the last level that was simulated.
    fn levels(&self, order: Order) -> Option<(CacheLevel, CacheLevel)> {
        let rows = self.rows.iter().filter(|row| row.order == order);
        let levels = rows.map(|row| row.level);
        Some((levels.clone().min()?, levels.max()?))
    }

    /// Misses by sharing of a level, of all threads or of one.
    fn invalidations(&self, order: Order, level: CacheLevel, tid: Option<&str>) -> f64 {
        self.rows
            .iter()
            .filter(|row| row.order == order && row.level == level)
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
        self.invalidated_band = Band::of(self.invalidated);
    }
}

/// Rows of the table, and the unit that is shown.
struct Rows<'a> {
    rows: &'a [ReuseBin],
    unit: Unit,
    line_size: u64,
}

impl<'a> Rows<'a> {
    fn of(
        &self,
        order: Order,
        scope: ReuseScope,
        unit: Unit,
    ) -> impl Iterator<Item = &'a ReuseBin> + use<'a> {
        self.rows
            .iter()
            .filter(move |row| row.order == order && row.scope == scope && row.unit == unit)
    }

    fn histogram(&self, order: Order, scope: ReuseScope, unit: Unit) -> Option<Histogram> {
        sum(self.of(order, scope, unit), unit, self.line_size)
    }

    fn by_thread(&self, order: Order) -> BTreeMap<String, Histogram> {
        let mut threads: BTreeMap<u32, Vec<&ReuseBin>> = BTreeMap::new();
        for row in self.of(order, ReuseScope::Private, self.unit) {
            if let Some(tid) = row.tid {
                threads.entry(tid.0).or_default().push(row);
            }
        }
        let histogram = |(tid, rows): (u32, Vec<&ReuseBin>)| {
            Some((
                tid.to_string(),
                sum(rows.into_iter(), self.unit, self.line_size)?,
            ))
        };
        threads.into_iter().filter_map(histogram).collect()
    }
}

/// The histogram that rows add up to; `None` if there is no row.
pub(super) fn sum<'a>(
    rows: impl Iterator<Item = &'a ReuseBin>,
    unit: Unit,
    line_size: u64,
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
        unit_bytes: bytes_of(unit, line_size),
        bins: bins(stack),
        time_bins: bins(time),
        cold,
        invalidated,
        invalidated_band: Band::of(invalidated),
        other_thread: of(|sums| sums.other_thread),
        unfinished: 0.0,
        accesses: of(|sums| sums.bins.values().sum()) + cold + invalidated,
    })
}

/// Bytes of a unit, at least one.
pub(super) fn bytes_of(unit: Unit, line_size: u64) -> u64 {
    match unit {
        Unit::Byte => 1,
        Unit::Chunk => 8,
        Unit::Line => line_size.max(1),
        Unit::LinePair => 2 * line_size.max(1),
    }
}

/// Fills in which functions and pairs of places touch what.
fn places(input: &Input<'_>, order: Order, unit: Unit, result: &mut Reuse) {
    let caches: Vec<(CacheLevel, u64)> = input.info.exact.as_ref().map_or_else(Vec::new, |run| {
        let unit_bytes = bytes_of(unit, input.info.line_size);
        run.caches
            .iter()
            .map(|cache| (cache.level, cache.size_bytes / unit_bytes))
            .collect()
    });
    let places = Places::new(input.frames);
    for scope in [ReuseScope::Private, ReuseScope::Shared] {
        let rows = input.pairs.iter().filter(|row| {
            row.order == order
                && row.scope == scope
                && row.unit == unit
                && row.measure == Measure::Stack
        });
        let mut resolved: HashMap<(Pid, u64), SourcePlace> = HashMap::new();
        let mut place = |pid: Pid, address: linewise_recording::Address| {
            resolved
                .entry((pid, address.0))
                .or_insert_with(|| places.at(pid, address))
                .clone()
        };
        let mut pairs: BTreeMap<(SourcePlace, SourcePlace), Touches> = BTreeMap::new();
        let mut functions: BTreeMap<(String, String), Touches> = BTreeMap::new();
        let mut other = 0.0;
        for row in rows {
            let (Some(pid), Some(used), Some(reused)) = (row.pid, row.use_ip, row.reuse_ip) else {
                other += row.count;
                continue;
            };
            let (used, reused) = (place(pid, used), place(pid, reused));
            let function = (reused.function.clone(), reused.file.clone());
            add(functions.entry(function).or_default(), row, &caches);
            add(pairs.entry((used, reused)).or_default(), row, &caches);
        }
        let pairs = pairs
            .into_iter()
            .map(|((used, reused), touches)| PairReuse {
                use_place: used,
                reuse_place: reused,
                touches,
            });
        let (pairs, rest) = heaviest(pairs.collect(), |pair| &pair.touches);
        match scope {
            ReuseScope::Shared => result.shared_pairs = pairs,
            ReuseScope::Private => {
                result.pairs = pairs;
                result.other_pairs = other + rest;
                let functions =
                    functions
                        .into_iter()
                        .map(|((function, file), touches)| FunctionReuse {
                            function,
                            file,
                            touches,
                        });
                result.by_function = heaviest(functions.collect(), |function: &FunctionReuse| {
                    &function.touches
                })
                .0;
            }
        }
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
