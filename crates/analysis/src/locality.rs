//! The part of a report that only an exact run has: reuse distances, miss-ratio curves, what the
//! simulated caches did, and whether fetching neighbouring lines would help.

use linewise_recording::{RunInfo, Tables};

use crate::model::Report;
use crate::views::sampled_reuse::{self, ExactCounts};
use crate::views::{caches, miss_ratio, prefetch, reuse};

/// Adds what the tables of an exact run say; nothing if there are none.
pub(crate) fn fill(report: &mut Report, info: &RunInfo, tables: &Tables) {
    let reuse = reuse::reuse(&reuse::Input {
        info,
        reuse: &tables.reuse,
        pairs: &tables.reuse_pairs,
        call_paths: &tables.call_paths,
        caches: &tables.caches,
        frames: &tables.frames,
    });
    if let Some(reuse) = &reuse {
        let ratios = miss_ratio::miss_ratios(&miss_ratio::Input {
            info,
            reuse,
            rows: &tables.reuse,
            caches: &tables.caches,
            marks: info.exact.as_ref().map_or(&[][..], |run| &run.caches),
        });
        report.curve = ratios.private;
        report.curve_shared = ratios.shared;
        report.cache_sizes = ratios.sizes;
        report.prefetch = prefetch::prefetch(&prefetch::Input {
            info,
            reuse,
            rows: &tables.reuse,
            caches: &tables.caches,
            transfers: &tables.transfers,
            latencies: &tables.latencies,
            frames: &tables.frames,
        });
    }
    report.reuse = reuse;
    let caches = caches::caches(&caches::Input {
        info,
        caches: &tables.caches,
        frames: &tables.frames,
    });
    if let Some(caches) = caches {
        report.caches = caches.levels;
        report.cache_misses = Some(caches.misses);
    }
}

/// Adds what sampled addresses say of reuse; nothing if none were watched. `exact` are the counts of an
/// exact run of the same program.
pub(crate) fn fill_sampled(
    report: &mut Report,
    info: &RunInfo,
    tables: &Tables,
    exact: Option<&ExactCounts>,
) {
    let Some(result) = sampled_reuse::sampled_reuse(&sampled_reuse::Input {
        info,
        watches: &tables.reuse_watches,
        traps: &tables.reuse_traps,
        samples: &tables.samples,
        switches: &tables.switches,
        frames: &tables.frames,
        exact,
    }) else {
        return;
    };
    report.sampled_reuse = Some(result.times);
    if let Some(reuse) = &result.reuse {
        let ratios = miss_ratio::miss_ratios(&miss_ratio::Input {
            info,
            reuse,
            rows: &[],
            caches: &[],
            marks: exact.map_or(&[][..], |counts| &counts.caches),
        });
        report.curve = ratios.private;
        report.curve_shared = ratios.shared;
        report.cache_sizes = ratios.sizes;
    }
    report.reuse = result.reuse;
}
