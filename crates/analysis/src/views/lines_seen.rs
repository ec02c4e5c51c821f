//! The lines that samples saw in use, and how they lie in the sets of a cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linewise_recording::{CacheLevel, RunInfo, SimulatedCache};

use super::sharing::Estimate;

/// A set is crowded with so many times the mean of all sets (DProf's factor).
const CROWDED: f64 = 2.0;
/// How likely it is at most that any set of a cache is taken for crowded by chance.
const CHANCE: f64 = 0.01;
/// With a larger mean of lines in a set no set has [`CROWDED`] times as many by chance.
const CHANCY: f64 = 100.0;
/// A line that so many samples see on average is come back to.
const COME_BACK: u64 = 2;
/// Bytes and ways of a first level of which nothing is told.
const USUAL: (u64, u64) = (32 << 10, 8);

/// A first-level cache.
pub(super) struct Shape {
    /// Lines that it holds.
    pub(super) lines: u64,
    ways: u64,
}

impl Shape {
    /// The first level of the recorded machine.
    pub(super) fn of(info: &RunInfo) -> Self {
        let first = |cache: &&SimulatedCache| cache.level == CacheLevel::L1d;
        let told = info.caches.iter().find(first);
        let (bytes, ways) = told.map_or(USUAL, |cache| (cache.size_bytes, cache.ways.into()));
        let lines = (bytes / info.line_size.max(1)).max(1);
        Self {
            lines,
            ways: if ways == 0 { lines } else { ways.min(lines) },
        }
    }

    fn sets(&self) -> u64 {
        (self.lines / self.ways).max(1)
    }

    /// The set of the line with this number.
    pub(super) fn set(&self, line: u64) -> u64 {
        line % self.sets()
    }
}

/// Lines by number (address over size), with how often each was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct LinesSeen(HashMap<u64, u64>);

impl LinesSeen {
    /// One sample at `line`.
    pub(super) fn add(&mut self, line: u64) {
        *self.0.entry(line).or_default() += 1;
    }

    /// How many were seen.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many there are, those that no sample saw included: Chao's estimate from those that were seen once and twice with
    /// its 90 % interval (A. Chao, *Estimating the Population Size for Capture-Recapture Data with Unequal Catchability*,
    /// Biometrics 1987). It counts lines that are seldom touched too low.
    pub(super) fn count(&self) -> Estimate {
        const Z: f64 = 1.645;
        let count = |times: u64| self.0.values().filter(|it| **it == times).count() as f64;
        let (once, twice) = (count(1), count(2));
        let seen = self.0.len() as f64;
        let unseen = once * (once - 1.0) / (2.0 * (twice + 1.0));
        if unseen <= 0.0 {
            return Estimate::exactly(seen);
        }
        let variance = match twice > 0.0 {
            true => {
                let ratio = once / twice;
                twice * (ratio.powi(4) / 4.0 + ratio.powi(3) + ratio.powi(2) / 2.0)
            }
            false => {
                unseen + once * (2.0 * once - 1.0).powi(2) / 4.0
                    - once.powi(4) / (4.0 * (seen + unseen))
            }
        };
        let spread = (Z * (1.0 + variance.max(0.0) / unseen.powi(2)).ln().sqrt()).exp();
        Estimate {
            value: seen + unseen,
            low: seen + unseen / spread,
            high: seen + unseen * spread,
        }
    }

    /// How many there are at least: the lower end of [`Self::count`].
    pub(super) fn estimate(&self) -> f64 {
        self.count().low
    }

    /// Where there are more lines than a cache holds, those that a thread comes back to before it touched as many others as
    /// fit half of it: much oftener than to the mean line, and few are as hot. They stay there, whatever else goes through it.
    pub(super) fn hot_of_too_many(&self, cache_lines: u64) -> Option<BTreeSet<u64>> {
        const OFTEN: f64 = 5.0;
        const HOTTER: f64 = 4.0;
        let all = self.estimate();
        if all <= cache_lines as f64 {
            return None;
        }
        let samples: u64 = self.0.values().sum();
        let least = OFTEN.max(HOTTER * samples as f64 / all);
        let mut hot: Vec<(u64, u64)> = self.0.iter().map(|(&line, &times)| (times, line)).collect();
        hot.retain(|&(times, _)| times as f64 >= least);
        hot.sort_unstable_by(|a, b| b.cmp(a));
        hot.truncate((cache_lines / 2) as usize);
        Some(hot.into_iter().map(|(_, line)| line).collect())
    }

    /// The sets with more lines than ways and far more than their share, each with its lines. Samples that see a
    /// part of the lines scatter: a set counts only if chance hardly fills any set so (Poisson, Bonferroni). And only if its
    /// lines were come back to: of a long array that is gone through once samples see lines of few sets, where as many
    /// lines lie between two of them as a set's distance has.
    pub(super) fn crowded(&self, shape: &Shape) -> BTreeMap<u64, Vec<u64>> {
        let mut sets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for line in self.0.keys() {
            sets.entry(shape.set(*line)).or_default().push(*line);
        }
        let mean = self.0.len() as f64 / shape.sets() as f64;
        let by_chance = CHANCE / shape.sets() as f64;
        sets.retain(|_, lines| {
            let seen = lines.len() as u64;
            let samples: u64 = lines.iter().map(|line| self.0[line]).sum();
            seen > shape.ways
                && samples >= COME_BACK * seen
                && seen as f64 > CROWDED * mean
                && (mean > CHANCY || at_least(seen, mean) < by_chance)
        });
        sets
    }
}

/// How likely a count of so many or more is where `mean` are expected (Poisson), 0 to 1. For means of up to some
/// hundreds: of larger ones `exp` leaves nothing.
fn at_least(count: u64, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut fewer = 0.0;
    for number in 0..count {
        fewer += term;
        term *= mean / (number + 1) as f64;
    }
    (1.0 - fewer).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 sets of 12 ways.
    const SHAPE: Shape = Shape {
        lines: 768,
        ways: 12,
    };

    #[test]
    fn how_many_lines_there_are_is_a_lower_end() {
        // 190 of 1,031 lines that are equally likely: as often as 19 times in 20 not more than there are.
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % 1031
        };
        let (mut too_many, mut sum) = (0, 0.0);
        for _ in 0..100 {
            let mut seen = LinesSeen::default();
            (0..190).for_each(|_| seen.add(next()));
            too_many += u32::from(seen.estimate() > 1031.0);
            sum += seen.estimate();
        }
        assert!(too_many <= 12, "{too_many}");
        assert!(sum / 100.0 > 500.0, "{sum}");
    }

    #[test]
    fn lines_that_are_touched_all_the_time_stay_beside_a_stream_and_those_of_a_sweep_do_not() {
        let mut seen = LinesSeen::default();
        for i in 0..600 {
            seen.add(if i % 3 == 0 { 1000 + i } else { i % 3 });
        }
        assert_eq!(seen.hot_of_too_many(768), Some(BTreeSet::from([1, 2])));
        let mut sweep = LinesSeen::default();
        (0..20_000).for_each(|i| sweep.add(i % 2000));
        assert_eq!(sweep.hot_of_too_many(768), Some(BTreeSet::new()));
    }

    #[test]
    fn the_tail_of_poisson_is_as_tables_have_it() {
        assert!((at_least(1, 1.0) - 0.632_120_6).abs() < 1e-6);
        assert!((at_least(13, 6.5) - 0.016_027).abs() < 1e-5);
        assert_eq!(at_least(0, 3.0), 1.0);
    }

    #[test]
    fn a_long_array_that_is_gone_through_in_step_with_the_samples_crowds_nothing() {
        let mut seen = LinesSeen::default();
        (0..300).for_each(|i| seen.add(i * 64 + i / 40));
        assert!(seen.crowded(&SHAPE).is_empty());
        // The same lines again and again do.
        (0..900).for_each(|i| seen.add(i % 300 * 64 + i % 300 / 40));
        assert!(!seen.crowded(&SHAPE).is_empty());
    }

    #[test]
    fn a_set_that_a_few_samples_happened_to_hit_more_often_is_not_crowded() {
        // 16,384 lines, evenly over all sets, of which 416 were seen: one set has 14 of them, the mean is 6.5.
        let mut by_chance = LinesSeen::default();
        for line in 0..402 {
            by_chance.add(line * 64 + line % 62);
        }
        for line in 500..514 {
            by_chance.add(line * 64 + 63);
        }
        assert!(by_chance.crowded(&SHAPE).is_empty());
        // As many in one set where the others have next to none.
        let mut stride = LinesSeen::default();
        for sample in 0..28 {
            stride.add(sample % 14 * 64 + 63);
        }
        stride.add(1);
        assert_eq!(stride.crowded(&SHAPE).keys().collect::<Vec<_>>(), [&63]);
    }
}
