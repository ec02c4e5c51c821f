//! Small sums over the locality of a report that more than one renderer prints: distances by
//! octave, and which cache would be large enough.

use super::model::{CacheSize, Histogram, Report, ReuseTimes, SampledReuse, Verdict};
use super::text;

use std::fmt::Write as _;

/// Reuses in one octave of distances.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Octave {
    /// Reuses.
    pub(crate) count: f64,
    /// Reuses by the cache that is large enough for them: index into the caches, or their number
    /// for none.
    pub(crate) by_cache: [f64; MOST_CACHES + 1],
}

/// Caches that are told apart; no machine has more levels.
pub(crate) const MOST_CACHES: usize = 4;
/// Octaves of a 64-bit distance: 0, then 1, 2 to 3, 4 to 7, ...
pub(crate) const OCTAVES: usize = 65;

impl Octave {
    /// The cache that is large enough for most of it.
    pub(crate) fn cache(&self) -> usize {
        let cells = self.by_cache.iter().enumerate();
        cells
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map_or(0, |(at, _)| at)
    }
}

/// The octave of a distance.
pub(crate) fn octave_of(distance: u64) -> usize {
    64 - distance.leading_zeros() as usize
}

/// The smallest distance of an octave, in units.
pub(crate) fn octave_start(octave: usize) -> u64 {
    match octave {
        0 => 0,
        octave => 1 << (octave - 1).min(63),
    }
}

/// The reuses by stack distance, in octaves up to the last that holds any.
pub(crate) fn octaves(histogram: &Histogram, caches: &[CacheSize]) -> Vec<Octave> {
    let mut octaves = vec![Octave::default(); OCTAVES];
    for bin in &histogram.bins {
        let octave = &mut octaves[octave_of(bin.from)];
        let bytes = bin.from.saturating_mul(histogram.unit_bytes);
        let enough = caches.iter().take(MOST_CACHES);
        let cache = enough.clone().position(|cache| bytes < cache.bytes);
        octave.count += bin.count;
        octave.by_cache[cache.unwrap_or(enough.len())] += bin.count;
    }
    let used = octaves.iter().rposition(|octave| octave.count > 0.0);
    octaves.truncate(used.map_or(0, |last| last + 1));
    octaves
}

/// A cache in words: `L2 2 MiB`.
pub(crate) fn cache_name(cache: &CacheSize) -> String {
    let size = text::binary_bytes(cache.bytes);
    format!("{} {size}", cache.level.word())
}

/// What comes of a touch of each kind, by cache, in words.
pub(crate) fn beyond_heads(report: &Report) -> Vec<String> {
    let heads = report.cache_sizes.iter();
    heads
        .map(|cache| format!("beyond {}", cache.level.word()))
        .collect()
}

/// The bytes of a unit in words.
pub(crate) fn bytes_words(bytes: u64) -> String {
    match bytes {
        1 => "single bytes".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// A verdict about fetching neighbouring lines, as a sentence.
pub(crate) fn prefetch_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Helps => "Adjacent-line prefetch will help this program.",
        Verdict::Hurts => "Adjacent-line prefetch will slow this program down.",
        Verdict::Unclear => "Whether adjacent-line prefetch helps cannot be told.",
        Verdict::NoMatter => "Adjacent-line prefetch does not matter to this program.",
    }
}

/// `part` as a share of `whole`, 0 if there is none.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    match whole > 0.0 {
        true => part / whole,
        false => 0.0,
    }
}

/// What sampled reuse rests on and found, in sentences.
pub(crate) fn sampled_words(sampled: &SampledReuse) -> String {
    let times = |who: &str, times: &ReuseTimes| {
        let at = |share| text::nanoseconds(within(times, share));
        format!(
            "{who}: {}, half of the reuses within {}, 9 of 10 within {}; {} ended by a store from \
             elsewhere, {} not seen to their end.",
            text::plural(times.uses, "use"),
            at(0.5),
            at(0.9),
            text::percent(times.invalidated),
            text::percent(times.unfinished),
        )
    };
    let mut words = format!(
        "{} watched until they were touched again. {}",
        text::plural(sampled.watches, "sampled address"),
        times("Each thread", &sampled.private)
    );
    if let Some(shared) = &sampled.shared {
        words += " ";
        words += &times("Per last level", shared);
    }
    let below = text::nanoseconds(sampled.resolution_ns);
    let _ = write!(words, " Times below {below} are not told apart.");
    words
}

/// The time within which that share of the reuses come, ns.
fn within(times: &ReuseTimes, share: f64) -> f64 {
    let all: f64 = times.bins.iter().map(|bin| bin.count).sum();
    let mut before = 0.0;
    for bin in &times.bins {
        if before + bin.count >= share * all {
            let part = (share * all - before) / bin.count.max(f64::MIN_POSITIVE);
            return bin.from as f64 + part * (bin.to - bin.from) as f64;
        }
        before += bin.count;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn octaves_hold_all_reuses_and_know_the_cache_that_is_large_enough() {
        let report = sample::traced();
        let reuse = report.reuse.expect("an exact run has reuse");
        let octaves = octaves(&reuse.private, &report.cache_sizes);
        let sum: f64 = octaves.iter().map(|octave| octave.count).sum();
        assert!((sum - reuse.private.reuses()).abs() < 1e-6 * sum);
        let caches: Vec<usize> = octaves
            .iter()
            .filter(|octave| octave.count > 0.0)
            .map(Octave::cache)
            .collect();
        assert!(caches.is_sorted(), "{caches:?}");
        assert_eq!(caches.first(), Some(&0));
    }

    #[test]
    fn an_octave_begins_where_its_distances_do() {
        assert_eq!([0, 1, 2, 3, 4, 1023].map(octave_of), [0, 1, 2, 2, 3, 10]);
        assert_eq!(octave_of(u64::MAX), OCTAVES - 1);
        for octave in 0..OCTAVES {
            assert_eq!(octave_of(octave_start(octave)), octave);
        }
    }
}
