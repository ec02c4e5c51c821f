//! Miss-ratio curves: how many touches miss in an LRU cache, by its size.

use linewise_topology::{CacheKind, Topology};

use crate::reuse::Histogram;

/// Shares of all touches that miss, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Misses {
    /// First touches.
    pub cold: f64,
    /// Another core (or cache) has stored to the line meanwhile: no cache is large enough.
    pub invalidated: f64,
    /// As many other lines as the cache holds came in between: a larger cache would hit.
    pub capacity: f64,
}

impl Misses {
    /// The miss ratio.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.cold + self.invalidated + self.capacity
    }
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Size of the cache.
    pub bytes: u64,
    /// What misses in it.
    pub misses: Misses,
}

/// A cache of a machine on the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveMark {
    /// Level; 1 is the nearest to the core.
    pub level: u32,
    /// Data or unified.
    pub kind: CacheKind,
    /// Its size, and what misses in one like it.
    pub point: CurvePoint,
}

/// Which share of touches misses in a fully associative cache with LRU replacement, for every size
/// at once: a touch with stack distance d hits if the cache holds more than d lines (Mattson,
/// Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies, 1970).
///
/// Sets of few ways, other replacement, prefetching and the halves of an inclusive hierarchy are
/// not in it.
///
/// ```
/// use linewise_cache::MissRatioCurve;
/// use linewise_cache::reuse::Histogram;
/// use linewise_topology::synthetic;
///
/// let mut stack = Histogram::new();
/// stack.add_cold(100.0);
/// stack.add_invalidated(100.0);
/// stack.add(1000, 800.0); // 64,000 bytes in between
/// let curve = MissRatioCurve::new(&stack, 64);
/// assert_eq!(curve.at(32 << 10).ratio(), 1.0);
/// assert_eq!(curve.at(1 << 20).ratio(), 0.2);
/// let marks = curve.marks(&synthetic::two_sockets_of_ten());
/// assert_eq!(marks[0].level, 1);
/// assert_eq!(marks[0].point.misses.capacity, 0.8);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    stack: Histogram,
    unit_bytes: u32,
}

impl MissRatioCurve {
    /// The curve of stack distances in units of `unit_bytes` bytes. Units other than a machine's
    /// lines show what a cache with such lines would do.
    #[must_use]
    pub fn new(stack: &Histogram, unit_bytes: u32) -> Self {
        Self {
            stack: stack.clone(),
            unit_bytes: unit_bytes.max(1),
        }
    }

    /// What misses in a cache of `bytes` bytes. Zero everywhere if nothing was touched.
    #[must_use]
    pub fn at(&self, bytes: u64) -> Misses {
        let units = bytes / u64::from(self.unit_bytes);
        self.misses(self.stack.reuses_from(units))
    }

    /// The curve as points: at one line, then wherever it may fall, up to the size from which on
    /// nothing changes.
    #[must_use]
    pub fn points(&self) -> Vec<CurvePoint> {
        let mut remaining = self.stack.reuses();
        let point = |units: u64, remaining| CurvePoint {
            bytes: units.saturating_mul(u64::from(self.unit_bytes)),
            misses: self.misses(remaining),
        };
        let mut points = Vec::new();
        for bin in self.stack.bins() {
            // Falls from here on, and not before.
            if points
                .last()
                .is_none_or(|last: &CurvePoint| last.bytes < point(bin.from, 0.0).bytes)
                && bin.from > 0
            {
                points.push(point(bin.from, remaining));
            }
            remaining = (remaining - bin.count).max(0.0);
            points.push(point(bin.to, remaining));
        }
        if points.is_empty() {
            points.push(point(1, 0.0));
        }
        points
    }

    /// The data caches of a machine on the curve, by level; one of each level, kind and size.
    #[must_use]
    pub fn marks(&self, machine: &Topology) -> Vec<CurveMark> {
        let mut sizes: Vec<(u32, CacheKind, u64)> = machine
            .caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction)
            .filter_map(|cache| Some((cache.level, cache.kind, cache.size_bytes?)))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mark = |(level, kind, bytes)| CurveMark {
            level,
            kind,
            point: CurvePoint {
                bytes,
                misses: self.at(bytes),
            },
        };
        sizes.into_iter().map(mark).collect()
    }

    fn misses(&self, capacity: f64) -> Misses {
        let touches = self.stack.accesses;
        if touches == 0.0 {
            return Misses::default();
        }
        Misses {
            cold: self.stack.cold / touches,
            invalidated: self.stack.invalidated / touches,
            capacity: capacity / touches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_topology::synthetic;

    fn curve() -> MissRatioCurve {
        let mut stack = Histogram::new();
        stack.add(0, 10.0);
        stack.add(7, 20.0);
        stack.add(600, 30.0);
        stack.add(1 << 20, 25.0);
        stack.add_cold(10.0);
        stack.add_invalidated(5.0);
        MissRatioCurve::new(&stack, 64)
    }

    #[test]
    fn a_touch_hits_if_the_cache_holds_more_than_its_distance() {
        let curve = curve();
        assert_eq!(curve.at(0).capacity, 0.85);
        assert_eq!(curve.at(64).capacity, 0.75);
        assert_eq!(curve.at(7 * 64).capacity, 0.75);
        assert_eq!(curve.at(8 * 64).capacity, 0.55);
        assert_eq!(curve.at(1 << 40).capacity, 0.0);
        assert!((curve.at(1 << 40).ratio() - 0.15).abs() < 1e-12);
    }

    #[test]
    fn the_points_fall_and_agree_with_the_curve() {
        let curve = curve();
        let points = curve.points();
        assert!(
            points.is_sorted_by(|a, b| a.bytes < b.bytes && a.misses.capacity >= b.misses.capacity)
        );
        for point in &points {
            assert!((point.misses.ratio() - curve.at(point.bytes).ratio()).abs() < 1e-12);
        }
        assert_eq!(points[points.len() - 1].misses.capacity, 0.0);
    }

    #[test]
    fn the_marks_are_the_data_caches_once_each_by_level() {
        let marks = curve().marks(&synthetic::epyc_of_eight_ccxs());
        let levels: Vec<u32> = marks.iter().map(|mark| mark.level).collect();
        assert_eq!(levels, [1, 2, 3]);
        assert!(marks.is_sorted_by(|a, b| a.point.misses.ratio() >= b.point.misses.ratio()));
        assert!(curve().marks(&Topology::default()).is_empty());
    }

    #[test]
    fn an_empty_histogram_misses_nothing() {
        let curve = MissRatioCurve::new(&Histogram::new(), 64);
        assert_eq!(curve.at(64).ratio(), 0.0);
        assert_eq!(curve.points().len(), 1);
    }
}
