//! View `curve`: which share of all touches would miss in a cache of this size, for every size?
//!
//! From the LRU stack distances of the view `reuse`: a touch hits if the cache holds more lines than
//! came in between (Mattson, Gecsei, Slutz, Traiger, 1970). Beside it, at the sizes of the simulated
//! caches, what the simulation of their sets and ways counted. Where the two part, the sets, the
//! replacement or the coherence of the hierarchy is the reason.

use linewise_cache::MissRatioCurve;
use linewise_cache::reuse::Histogram as Distances;
use linewise_recording::{
    CacheCounts, CacheLevel, CacheSubject, Measure, ReuseBin, RunInfo, SimulatedCache, Unit,
};
use serde::{Deserialize, Serialize};

use super::reuse::{Histogram, Reuse};

/// The tables that the view needs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `run.json`.
    pub info: &'a RunInfo,
    /// The view `reuse`.
    pub reuse: &'a Reuse,
    /// Table `reuse`, for the errors of its rows.
    pub rows: &'a [ReuseBin],
    /// Table `caches`.
    pub caches: &'a [CacheCounts],
    /// The caches to mark: those that were simulated.
    pub marks: &'a [SimulatedCache],
}

/// Miss ratios of caches of every size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissRatios {
    /// Of a cache for each thread, all threads together.
    pub private: Vec<CurvePoint>,
    /// Of one cache for the threads behind each last level.
    pub shared: Vec<CurvePoint>,
    /// The simulated caches on the curves, the nearest to the core first.
    pub sizes: Vec<CacheSize>,
}

/// A point of a miss-ratio curve, which falls in straight lines from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Size of the cache.
    pub bytes: u64,
    /// The share of all touches that misses in it, 0 to 1.
    pub miss_ratio: f64,
}

/// A simulated cache on the miss-ratio curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheSize {
    /// The level.
    pub level: CacheLevel,
    /// Size of one such cache.
    pub bytes: u64,
    /// Its ways; 0 is fully associative.
    pub ways: u32,
    /// Whether several cores share it: then it lies on the curve of shared reuse.
    pub shared: bool,
    /// Miss ratio by the curve: misses as a share of all touches, not of those that ask this level.
    pub miss_ratio: f64,
    /// Standard error of it from the sampling of the lines; `null` if all were followed.
    pub miss_ratio_error: Option<f64>,
    /// The same share by the simulation; `null` if it has no such level.
    pub simulated: Option<f64>,
}

/// The miss-ratio curves of a recording, at the granularity of lines or, where reuse was sampled, of
/// chunks; empty if it has only others.
#[must_use]
pub fn miss_ratios(input: &Input<'_>) -> MissRatios {
    if !matches!(input.reuse.private.unit, Unit::Line | Unit::Chunk) {
        return MissRatios::default();
    }
    let unit = u32::try_from(input.reuse.private.unit_bytes).unwrap_or(64);
    let curve = |histogram: &Histogram| MissRatioCurve::new(&distances(histogram), unit.max(1));
    let private = curve(&input.reuse.private);
    let shared = input.reuse.shared.as_ref().map(curve);
    let caches = input.marks;
    MissRatios {
        private: points(&private),
        shared: shared.as_ref().map(points).unwrap_or_default(),
        sizes: caches
            .iter()
            .map(|cache| {
                let of_all = shared.as_ref().filter(|_| cache.cores > 1);
                mark(input, cache, of_all.unwrap_or(&private), of_all.is_some())
            })
            .collect(),
    }
}

fn points(curve: &MissRatioCurve) -> Vec<CurvePoint> {
    let point = |point: linewise_cache::CurvePoint| CurvePoint {
        bytes: point.bytes,
        miss_ratio: point.misses.ratio(),
    };
    curve.points().into_iter().map(point).collect()
}

/// The histogram as the cache model counts it.
fn distances(histogram: &Histogram) -> Distances {
    let mut distances = Distances::new();
    for bin in &histogram.bins {
        distances.add(bin.from, bin.count);
    }
    // What was not seen to its end is taken to miss everywhere.
    distances.add_cold(histogram.cold + histogram.unfinished);
    distances.add_invalidated(histogram.invalidated);
    distances
}

fn mark(
    input: &Input<'_>,
    cache: &SimulatedCache,
    curve: &MissRatioCurve,
    shared: bool,
) -> CacheSize {
    CacheSize {
        level: cache.level,
        bytes: cache.size_bytes,
        ways: cache.ways,
        shared,
        miss_ratio: curve.at(cache.size_bytes).ratio(),
        miss_ratio_error: error_at(input.rows, cache.size_bytes / input.info.line_size.max(1)),
        simulated: simulated_ratio(input.caches, cache.level),
    }
}

/// Misses of a level as a share of all accesses: of those that ask the first level.
fn simulated_ratio(rows: &[CacheCounts], level: CacheLevel) -> Option<f64> {
    let total = |level| {
        rows.iter()
            .find(|row| row.subject == CacheSubject::Total && row.level == level)
    };
    let first = rows.iter().map(|row| row.level).min()?;
    let all = total(first).map(|row| row.loads + row.stores + row.updates)?;
    let row = total(level)?;
    let misses =
        row.compulsory + row.capacity + row.conflict + row.true_sharing + row.false_sharing;
    (all > 0.0).then(|| misses / all)
}

/// The error that stands at the bin of `units`, or at the nearest below.
fn error_at(rows: &[ReuseBin], units: u64) -> Option<f64> {
    rows.iter()
        .filter(|row| row.unit == Unit::Line && row.measure == Measure::Stack && row.from <= units)
        .filter_map(|row| Some((row.from, row.miss_ratio_error?)))
        .max_by_key(|&(from, _)| from)
        .map(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::super::exact_rows::{info, reuse as row, total};
    use super::super::reuse;
    use super::*;
    use linewise_recording::{ReuseScope, Touch};

    fn rows() -> Vec<ReuseBin> {
        let mut rows = vec![
            row(11, Touch::Reuse, 0, 1, 80.0),
            row(11, Touch::Reuse, 100, 104, 15.0),
            row(11, Touch::Cold, 0, 0, 5.0),
        ];
        rows[1].miss_ratio_error = Some(0.01);
        // Two threads together touch more in between.
        rows.extend(rows.clone().into_iter().map(|row| ReuseBin {
            scope: ReuseScope::Shared,
            from: row.from * 20,
            to: if row.to > 1 { row.to * 20 } else { row.to },
            ..row
        }));
        rows
    }

    fn view(caches: &[CacheCounts]) -> MissRatios {
        let (info, rows) = (info(), rows());
        let reuse = reuse::reuse(&reuse::Input {
            info: &info,
            reuse: &rows,
            pairs: &[],
            call_paths: &[],
            caches: &[],
            frames: &[],
        });
        miss_ratios(&Input {
            info: &info,
            reuse: &reuse.expect("rows"),
            rows: &rows,
            caches,
            marks: &info.exact.as_ref().expect("an exact run").caches,
        })
    }

    #[test]
    fn a_curve_falls_from_all_but_the_nearest_reuses_to_the_first_touches() {
        let ratios = view(&[]);
        let ends = (ratios.private.first(), ratios.private.last());
        let ratio = |point: Option<&CurvePoint>| point.map(|point| point.miss_ratio);
        assert_eq!(ratio(ends.0), Some(0.2));
        assert_eq!(ratio(ends.1), Some(0.05));
        assert!(
            ratios
                .private
                .is_sorted_by(|a, b| { a.bytes < b.bytes && a.miss_ratio >= b.miss_ratio })
        );
    }

    #[test]
    fn a_private_cache_is_on_the_private_curve_and_a_shared_one_on_the_shared() {
        let [first, second] = &view(&[]).sizes[..] else {
            panic!("two caches");
        };
        assert_eq!((first.shared, first.miss_ratio), (false, 0.2));
        // 1024 lines hold what one thread touches in between, not what both do.
        assert_eq!((second.shared, second.miss_ratio), (true, 0.2));
        assert_eq!(
            (first.miss_ratio_error, second.miss_ratio_error),
            (None, Some(0.01))
        );
        assert_eq!(first.simulated, None);
    }

    #[test]
    fn the_simulation_stands_beside_as_a_share_of_all_accesses() {
        let caches = [
            total(CacheLevel::L1d, [80.0, 15.0, 5.0]),
            total(CacheLevel::L2, [10.0, 10.0, 0.0]),
        ];
        let sizes = view(&caches).sizes;
        assert_eq!(sizes[0].simulated, Some(0.2));
        assert_eq!(sizes[1].simulated, Some(0.1));
    }
}
