//! Histograms of distances with log-linear bins.

/// Bins of one octave; distances below `2 * STEPS` have a bin of their own.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;

/// One bin of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Smallest distance in it.
    pub from: u64,
    /// First distance above it.
    pub to: u64,
    /// Touches in it; a fraction where they were estimated from a sample.
    pub count: f64,
}

/// How often which distance was seen, and how often there was none.
///
/// Distances below 32 are counted one by one; above, each octave has 16 bins of equal width, so a
/// bin is at most 1/16 as wide as its lower end. The mass is always complete: the counts of all
/// bins, [`cold`](Self::cold) and [`invalidated`](Self::invalidated) add up to
/// [`accesses`](Self::accesses).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: Vec<f64>,
    /// First touches: nothing was there to be reused.
    pub cold: f64,
    /// Touches whose earlier use a store from elsewhere had ended.
    pub invalidated: f64,
    /// All touches, counted independently of the bins.
    pub accesses: f64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `count` reuses at `distance`.
    #[inline]
    pub fn add(&mut self, distance: u64, count: f64) {
        self.accesses += count;
        self.add_bin(bin_of(distance), count);
    }

    /// Counts `count` first touches.
    pub fn add_cold(&mut self, count: f64) {
        self.accesses += count;
        self.cold += count;
    }

    /// Counts `count` touches whose earlier use was invalidated.
    pub fn add_invalidated(&mut self, count: f64) {
        self.accesses += count;
        self.invalidated += count;
    }

    /// Adds everything that the other histogram counted.
    pub fn merge(&mut self, other: &Self) {
        for (bin, &count) in other.counts.iter().enumerate() {
            if count != 0.0 {
                self.add_bin(bin, count);
            }
        }
        self.cold += other.cold;
        self.invalidated += other.invalidated;
        self.accesses += other.accesses;
    }

    /// The bins that hold something, by distance.
    pub fn bins(&self) -> impl DoubleEndedIterator<Item = Bin> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count != 0.0)
            .map(|(bin, &count)| Bin {
                from: bin_start(bin),
                to: bin_start(bin + 1),
                count,
            })
    }

    /// All reuses: the sum over the bins.
    #[must_use]
    pub fn reuses(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// Everything that is in a bin, cold or invalidated; equals [`accesses`](Self::accesses) but
    /// for the rounding of estimated counts.
    #[must_use]
    pub fn mass(&self) -> f64 {
        self.reuses() + self.cold + self.invalidated
    }

    /// Reuses at `distance` or beyond. Inside a bin the distances are taken as spread evenly.
    #[must_use]
    pub fn reuses_from(&self, distance: u64) -> f64 {
        let bin = bin_of(distance);
        let beyond: f64 = self.counts.iter().skip(bin + 1).sum();
        let (from, to) = (bin_start(bin), bin_start(bin + 1));
        let share = (to - distance) as f64 / (to - from) as f64;
        beyond + self.counts.get(bin).copied().unwrap_or(0.0) * share
    }

    /// The accuracy S of an estimate of this histogram: 1 less half the sum of the differences of
    /// the fractions of reuses in each bin. 1 means alike, 0 disjoint. (Shen et al., POPL 2007;
    /// used for ReuseTracker, section 6.5.1.) Two histograms without any reuse are alike.
    #[must_use]
    pub fn accuracy(&self, estimate: &Self) -> f64 {
        accuracy(&self.counts, &estimate.counts)
    }

    /// As [`accuracy`](Self::accuracy), with one bin for each octave (0, 1, 2..4, 4..8, ...), which
    /// is how the histograms of the literature are drawn.
    #[must_use]
    pub fn accuracy_by_octave(&self, estimate: &Self) -> f64 {
        accuracy(&self.octaves(), &estimate.octaves())
    }

    fn octaves(&self) -> Vec<f64> {
        let mut octaves = vec![0.0; 65];
        for bin in self.bins() {
            octaves[64 - bin.from.leading_zeros() as usize] += bin.count;
        }
        octaves
    }

    #[inline]
    pub(super) fn add_bin(&mut self, bin: usize, count: f64) {
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0.0);
        }
        self.counts[bin] += count;
    }

    /// Makes the mass greater by `difference`: what is
    /// missing goes to the smallest distance; what is too much is taken from the smallest
    /// distances on, and no bin becomes negative.
    pub(super) fn adjust(&mut self, difference: f64) {
        if difference >= 0.0 {
            if difference > 0.0 {
                self.add_bin(0, difference);
            }
            return;
        }
        let mut excess = -difference;
        let rest = [&mut self.invalidated, &mut self.cold];
        for count in self.counts.iter_mut().chain(rest) {
            let taken = excess.min(*count);
            *count -= taken;
            excess -= taken;
        }
    }

    /// Heap memory, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<f64>()
    }
}

fn accuracy(truth: &[f64], estimate: &[f64]) -> f64 {
    let (all, all_estimated): (f64, f64) = (truth.iter().sum(), estimate.iter().sum());
    if all == 0.0 || all_estimated == 0.0 {
        return if all == all_estimated { 1.0 } else { 0.0 };
    }
    let difference: f64 = (0..truth.len().max(estimate.len()))
        .map(|bin| {
            let of = |counts: &[f64]| counts.get(bin).copied().unwrap_or(0.0);
            (of(truth) / all - of(estimate) / all_estimated).abs()
        })
        .sum();
    1.0 - difference / 2.0
}

/// The bin of a distance.
#[inline]
pub(super) fn bin_of(distance: u64) -> usize {
    if distance < STEPS {
        return distance as usize;
    }
    let octave = 63 - distance.leading_zeros() - STEP_BITS;
    ((u64::from(octave) << STEP_BITS) + (distance >> octave)) as usize
}

/// The smallest distance of a bin; the end of the last bin saturates.
pub(super) fn bin_start(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < 2 * STEPS {
        return bin;
    }
    let octave = (bin >> STEP_BITS) - 1;
    let step = STEPS + (bin & (STEPS - 1));
    if octave > u64::from(63 - STEP_BITS) {
        return u64::MAX;
    }
    step << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_lies_in_its_bin_and_bins_leave_no_gap() {
        for exponent in 0..63 {
            for offset in [0u64, 1, 2, 3, 7, 1000] {
                let distance = (1u64 << exponent).wrapping_add(offset).wrapping_sub(1);
                let bin = bin_of(distance);
                assert!(bin_start(bin) <= distance, "{distance}");
                assert!(distance < bin_start(bin + 1), "{distance}");
            }
        }
        assert!((0..900).all(|bin| bin_of(bin_start(bin)) == bin));
        assert!((32..900).all(|bin| {
            let (from, to) = (bin_start(bin), bin_start(bin + 1));
            (to - from) * STEPS <= from
        }));
        assert_eq!(bin_start(bin_of(u64::MAX) + 1), u64::MAX);
    }

    #[test]
    fn the_accuracy_is_one_for_equal_shapes_and_zero_for_disjoint_ones() {
        let mut truth = Histogram::new();
        truth.add(10, 1.0);
        truth.add(1000, 3.0);
        let mut same = Histogram::new();
        same.add(10, 20.0);
        same.add(1000, 60.0);
        assert!((truth.accuracy(&same) - 1.0).abs() < 1e-12);
        let mut other = Histogram::new();
        other.add(500, 4.0);
        assert_eq!(truth.accuracy(&other), 0.0);
        let mut half = Histogram::new();
        half.add(1000, 1.0);
        assert!((truth.accuracy(&half) - 0.75).abs() < 1e-12);
        assert_eq!(truth.accuracy(&Histogram::new()), 0.0);
    }

    #[test]
    fn an_adjustment_never_makes_a_count_negative() {
        let mut histogram = Histogram::new();
        histogram.add(0, 2.0);
        histogram.add(5, 3.0);
        histogram.add_cold(1.0);
        histogram.adjust(-4.0);
        assert_eq!(histogram.mass(), 2.0);
        assert!(histogram.bins().all(|bin| bin.count > 0.0));
        histogram.adjust(1.5);
        assert_eq!(histogram.mass(), 3.5);
    }

    #[test]
    fn reuses_beyond_a_distance_are_counted_in_part_inside_a_bin() {
        let mut histogram = Histogram::new();
        histogram.add(64, 8.0);
        assert_eq!(histogram.reuses_from(64), 8.0);
        assert_eq!(histogram.reuses_from(66), 4.0);
        assert_eq!(histogram.reuses_from(68), 0.0);
        assert_eq!(histogram.reuses_from(0), 8.0);
    }
}
