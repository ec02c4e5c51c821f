//! From time distances to stack distances, by the model of Shen, Shaw, Meeker, Ding: Locality
//! approximation using time, POPL 2007.
//!
//! Of N units, pick one other than the reused one. Its last touch before a random moment lies τ
//! back if the moment is in one of its reuse intervals longer than τ, at that place; so with the
//! time distances D of all reuses
//!
//! ```text
//! p(d) = Σ (τ = 1..d) P(D ≥ τ) / (N - 1)
//! ```
//!
//! is the chance that it was touched within the d accesses between a use and its reuse. (The paper
//! counts a distance as the difference of two times, one more than the accesses in between.) Units
//! are taken as independent, so the number touched, the stack distance, is binomial:
//!
//! ```text
//! P(k | d) = C(N - 1, k) p(d)^k (1 - p(d))^(N - 1 - k)
//! ```
//!
//! Besides, a stack distance is at least 1 where d is, and at most d.

use super::histogram::{Bin, Histogram, bin_of, bin_start};

/// Pieces into which a bin of time distances is divided: within it, p(d) is taken at the middles.
const PIECES: u64 = 16;
/// Binomial distributions with a smaller mean are summed, others taken as normal.
const NORMAL_FROM: f64 = 64.0;

/// Estimates the stack distances of a stream of accesses from its time distances.
///
/// `time` holds time distances of one thread or group (accesses in between); `units` is how many
/// distinct units it touches, which is [`Histogram::cold`] where the whole stream was counted. Cold
/// and invalidated touches stay as they are. The model assumes that a unit's touches are spread
/// alike over the whole stream and independent of the others'; a program with phases of very
/// different footprints should be converted phase by phase.
#[must_use]
pub fn stack_from_time(time: &Histogram, units: u64) -> Histogram {
    let mut stack = Histogram::new();
    stack.add_cold(time.cold);
    stack.add_invalidated(time.invalidated);
    let reuses = time.reuses();
    let others = units.saturating_sub(1);
    // Σ P(D ≥ τ) over τ = 1..=behind, and the reuses at distances above.
    let mut sum = 0.0;
    let mut behind = 0;
    let mut remaining = reuses;
    for bin in time.bins() {
        let Bin { from, to, count } = bin;
        let first = from.max(1);
        sum += first.saturating_sub(1).saturating_sub(behind) as f64 * remaining / reuses;
        behind = first - 1;
        let width = (to - from) as f64;
        let beyond = remaining - count;
        // The sum at a distance of this bin, its touches spread evenly over its distances.
        let sum_at = |distance: u64| {
            let terms = (distance - behind) as f64;
            let inside = terms * (to - first) as f64 - terms * (terms - 1.0) / 2.0;
            sum + (terms * beyond + inside * count / width) / reuses
        };
        let pieces = PIECES.min(to - from);
        for piece in 0..pieces {
            let middle = from + ((to - from) * (2 * piece + 1) / (2 * pieces)).min(to - from - 1);
            let chance = if middle == 0 || others == 0 {
                0.0
            } else {
                (sum_at(middle) / others as f64).min(1.0)
            };
            spread(&mut stack, count / pieces as f64, middle, others, chance);
        }
        sum = sum_at(to - 1);
        behind = to - 1;
        remaining = beyond;
    }
    stack
}

/// Adds `count` reuses with the time distance `time`, when each of `others` units was touched in
/// between with the given chance.
fn spread(stack: &mut Histogram, count: f64, time: u64, others: u64, chance: f64) {
    let most = time.min(others);
    let least = most.min(1);
    let mean = others as f64 * chance;
    let deviation = (mean * (1.0 - chance)).sqrt();
    if deviation < 0.1 || most == least {
        stack.add((mean.round() as u64).clamp(least, most), count);
    } else if mean < NORMAL_FROM {
        let odds = chance / (1.0 - chance);
        let mut probability = (others as f64 * (-chance).ln_1p()).exp();
        let mut left = 1.0;
        for distance in 0..most {
            if distance >= least {
                let part = probability.min(left);
                // What is below the least distance was kept in `left`, and goes to the least.
                let part = if distance == least {
                    1.0 - left + part
                } else {
                    part
                };
                stack.add(distance, part * count);
            }
            left -= probability.min(left);
            if left < 1e-9 {
                return;
            }
            probability *= odds * (others - distance) as f64 / (distance + 1) as f64;
        }
        stack.add(most, left * count);
    } else {
        // Half a unit more or less makes the steps of the binomial meet the normal curve.
        let below = |distance: u64| normal((distance as f64 - 0.5 - mean) / deviation);
        let start = (mean - 6.0 * deviation).max(least as f64) as u64;
        let mut before = 0.0;
        for bin in bin_of(start.min(most))..=bin_of(most) {
            let end = bin_start(bin + 1);
            let now = if end > most { 1.0 } else { below(end) };
            if now > before {
                stack.add(bin_start(bin), (now - before) * count);
            }
            before = now;
            if 1.0 - now < 1e-12 {
                break;
            }
        }
    }
}

/// The standard normal distribution up to `x`, to 1e-7 (Abramowitz, Stegun: Handbook of
/// Mathematical Functions, 26.2.17).
fn normal(x: f64) -> f64 {
    const FACTORS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = FACTORS
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_has_its_known_values() {
        for (x, expected) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746),
            (-1.96, 0.024_997_895),
            (4.0, 0.999_968_329),
        ] {
            assert!((normal(x) - expected).abs() < 1e-7, "{x}");
        }
    }

    #[test]
    fn a_spread_keeps_its_count_and_its_mean() {
        for (time, others, chance) in [
            (1u64, 9u64, 0.05),
            (40, 50, 0.3),
            (3000, 2000, 0.2),
            (5000, 4000, 0.999),
        ] {
            let mut stack = Histogram::new();
            spread(&mut stack, 7.0, time, others, chance);
            assert!(
                (stack.mass() - 7.0).abs() < 1e-6,
                "{time} {others} {chance}"
            );
            let mean: f64 = stack
                .bins()
                .map(|bin| bin.count * (bin.from + bin.to - 1) as f64 / 2.0)
                .sum::<f64>()
                / 7.0;
            let expected = (others as f64 * chance).max(1.0);
            assert!(
                (mean / expected - 1.0).abs() < 0.05,
                "{mean} for {expected}"
            );
        }
    }
}
