//! The made-up report of an exact run: a program that walks over a table larger than its second
//! level, with counters on one line.

use std::collections::BTreeMap;

use linewise_recording::{CacheLevel, Unit};

use super::super::model::{
    Beyond, Bin, CacheMisses, CacheRow, CacheSize, CurvePoint, FunctionPrefetch, FunctionReuse,
    Histogram, Interval, Neighbours, PairPaths, PairReuse, PathReuse, PlaceCaches, Prefetch,
    Report, Reuse, ReuseSource, Served, SourcePlace, ThreadCaches, Touches, Verdict,
};

const CACHES: [(CacheLevel, u64, u32); 3] = [
    (CacheLevel::L1d, 48 << 10, 12),
    (CacheLevel::L2, 2 << 20, 16),
    (CacheLevel::L3, 32 << 20, 16),
];

/// `report` with everything that only an exact run has.
pub(crate) fn with_locality(mut report: Report) -> Report {
    let private = histogram(1.0, 0.0);
    let shared = Histogram {
        other_thread: 41e6,
        invalidated: 0.0,
        ..histogram(0.8, 1.0)
    };
    report.curve = curve(&private);
    report.curve_shared = curve(&shared);
    report.cache_sizes = CACHES
        .iter()
        .map(|&cache| size(cache, &private, &shared))
        .collect();
    report.caches = vec![
        level(0, [310e6, 1.1e6, 38e6, 6e6, 0.4e6, 12.2e6]),
        level(1, [31e6, 1.1e6, 9e6, 0.6e6, 0.4e6, 12.2e6]),
        level(2, [40e6, 0.9e6, 11e6, 1.3e6, 0.0, 0.0]),
    ];
    let place = |function: &str, line| SourcePlace {
        function: function.to_owned(),
        file: "/src/wordcount/table.c".to_owned(),
        line,
    };
    let (find, fill, count) = (
        place("table_find", 88),
        place("table_fill", 41),
        place("count_words", 31),
    );
    let (main, count_call) = (place("main", 17), place("count_words", 29));
    let parts = [(&find, 0.6), (&count, 0.3), (&fill, 0.1)];
    report.cache_misses = Some(cache_misses(&report.caches, parts));
    let touches = |count: f64, far: f64| Touches {
        count,
        invalidated: count * 0.01,
        bins: vec![Bin {
            from: 8192,
            to: 16_384,
            count,
        }],
        beyond: CACHES
            .iter()
            .zip([far, far * 0.4, far * 0.1])
            .map(|(&(level, ..), count)| Beyond { level, count })
            .collect(),
    };
    let pair = |used: &SourcePlace, reused: &SourcePlace, count, far| PairReuse {
        use_place: used.clone(),
        reuse_place: reused.clone(),
        touches: touches(count, far),
        paths: vec![PairPaths {
            use_calls: vec![main.clone()],
            reuse_calls: vec![count_call.clone(), main.clone()],
            count: count * 0.8,
        }],
    };
    report.prefetch = Some(prefetch());
    report.reuse = Some(Reuse {
        source: ReuseSource::Exact,
        rate: 1.0 / 64.0,
        by_thread: (41_312..41_316)
            .map(|tid: u32| (tid.to_string(), histogram(0.25, 0.0)))
            .collect::<BTreeMap<_, _>>(),
        private,
        shared: Some(shared),
        private_bytes: Some(Histogram {
            unit: Unit::Element,
            unit_bytes: 8,
            ..histogram(1.0, 0.0)
        }),
        shared_bytes: None,
        by_function: [("table_find", 140e6, 30e6), ("count_words", 90e6, 0.0)]
            .map(|(function, count, far)| FunctionReuse {
                function: function.to_owned(),
                file: "/src/wordcount/table.c".to_owned(),
                touches: touches(count, far),
            })
            .to_vec(),
        by_path: vec![PathReuse {
            function: "table_find".to_owned(),
            file: "/src/wordcount/table.c".to_owned(),
            calls: vec![count_call.clone(), main.clone()],
            touches: touches(120e6, 28e6),
        }],
        pairs: vec![
            pair(&find, &find, 90e6, 22e6),
            pair(&fill, &find, 50e6, 8e6),
            pair(&count, &count, 90e6, 0.0),
        ],
        shared_pairs: vec![pair(&fill, &find, 70e6, 9e6)],
        other_pairs: 31_000.0,
    });
    report
}

/// Misses of four threads that do the same, at places of which each has a part.
fn cache_misses(caches: &[CacheRow], places: [(&SourcePlace, f64); 3]) -> CacheMisses {
    CacheMisses {
        by_thread: (41_312..41_316)
            .map(|tid| ThreadCaches {
                tid,
                levels: caches.iter().map(|row| scaled(row, 0.25)).collect(),
            })
            .collect(),
        by_place: places
            .into_iter()
            .map(|(place, part)| PlaceCaches {
                place: place.clone(),
                levels: caches.iter().map(|row| scaled(row, part)).collect(),
            })
            .collect(),
        other_misses: 1_200.0,
    }
}

/// Touches near by, a hump at a megabyte, and a few from far away; `wide` moves the hump on.
fn histogram(scale: f64, wide: f64) -> Histogram {
    let hump = 14.0 + wide;
    let bins: Vec<Bin> = (0..22_u32)
        .map(|octave| {
            let x = f64::from(octave);
            let count = 300e6 * (-1.1 * x).exp() + 20e6 * (-(x - hump).powi(2) / 3.0).exp();
            Bin {
                from: if octave == 0 { 0 } else { 1 << (octave - 1) },
                to: 1 << octave,
                count: scale * count,
            }
        })
        .collect();
    let time_bins = bins
        .iter()
        .map(|bin| Bin {
            to: bin.to * 2,
            ..*bin
        })
        .collect();
    let (cold, invalidated) = (1.1e6 * scale, 12.6e6 * scale);
    Histogram {
        unit: Unit::Line,
        unit_bytes: 64,
        accesses: bins.iter().map(|bin| bin.count).sum::<f64>() + cold + invalidated,
        bins,
        time_bins,
        cold,
        invalidated,
        other_thread: 0.0,
        unfinished: 0.0,
    }
}

fn ratio(histogram: &Histogram, bytes: u64) -> f64 {
    let misses = histogram.reuses_from(bytes) + histogram.cold + histogram.invalidated;
    misses / histogram.accesses
}

fn curve(histogram: &Histogram) -> Vec<CurvePoint> {
    (0..22)
        .map(|octave| CurvePoint {
            bytes: 64 << octave,
            miss_ratio: ratio(histogram, 64 << octave),
        })
        .collect()
}

fn size(
    (level, bytes, ways): (CacheLevel, u64, u32),
    private: &Histogram,
    shared: &Histogram,
) -> CacheSize {
    let of_all = level == CacheLevel::L3;
    let miss_ratio = ratio(if of_all { shared } else { private }, bytes);
    CacheSize {
        level,
        bytes,
        ways,
        shared: of_all,
        miss_ratio,
        miss_ratio_error: Some(0.0004),
        simulated: Some(miss_ratio * 1.08),
    }
}

fn level(index: usize, counts: [f64; 6]) -> CacheRow {
    let (level, size_bytes, ways) = CACHES[index];
    let [
        hits,
        compulsory,
        capacity,
        conflict,
        true_sharing,
        false_sharing,
    ] = counts;
    CacheRow {
        level,
        size_bytes,
        ways,
        accesses: counts.iter().sum(),
        hits,
        compulsory,
        capacity,
        conflict,
        true_sharing,
        false_sharing,
        served: Served {
            l2: if index == 0 { 31e6 } else { 0.0 },
            local_dram: 13.2e6,
            ..Served::default()
        },
        upgrades: 0.0,
    }
}

fn scaled(row: &CacheRow, part: f64) -> CacheRow {
    CacheRow {
        accesses: row.accesses * part,
        hits: row.hits * part,
        compulsory: row.compulsory * part,
        capacity: row.capacity * part,
        conflict: row.conflict * part,
        true_sharing: row.true_sharing * part,
        false_sharing: row.false_sharing * part,
        ..row.clone()
    }
}

fn prefetch() -> Prefetch {
    let (memory_wait_ns, sharing_wait_ns) = (12.3e6 * 96.0, 12.2e6 * 41.0);
    Prefetch {
        verdict: Verdict::Helps,
        doubt:
            "Neighbours are used after most misses. Other prefetchers of the processor may have \
                fetched them already."
                .to_owned(),
        gain_ns: memory_wait_ns - sharing_wait_ns,
        gain_band: Interval {
            low: 0.3e9,
            high: 1.2e9,
        },
        memory_wait_ns,
        sharing_wait_ns,
        memory_reuses: 12.3e6,
        memory_reuses_band: Interval {
            low: 11.0e6,
            high: 12.3e6,
        },
        false_transfers: 12.2e6,
        memory_ns: Interval::exactly(96.0),
        transfer_ns: Interval {
            low: 38.0,
            high: 52.0,
        },
        neighbours: Some(Neighbours {
            line_misses: 13.4e6,
            pair_misses: 7.9e6,
            avoided: 5.5e6,
            used_share: 0.7,
            added_invalidations: 1_200.0,
            gain_ns: 5.5e6 * 96.0 - 1_200.0 * 41.0,
        }),
        by_function: vec![FunctionPrefetch {
            function: "table_find".to_owned(),
            file: "/src/wordcount/table.c".to_owned(),
            memory_reuses: 9.9e6,
            false_transfers: 0.0,
            gain_ns: 9.9e6 * 96.0,
        }],
    }
}
