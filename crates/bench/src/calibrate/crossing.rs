//! Where a curve of costs reaches what matters, and where bandwidth ends to grow.

use serde::Serialize;

/// The share of a distributed run's time that distance may cost (SAM, section 2.1: "a degradation of >5%").
pub const COSTLY: f64 = 0.05;
/// How far below the highest bandwidth the threshold is (SAM, section 2.2).
pub const BELOW_MAXIMUM: f64 = 0.2;
/// Bandwidth that one more task adds no more to than this share of the highest is saturated.
const FLAT: f64 = 0.05;

/// Where the cost reaches [`COSTLY`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crossing {
    /// At so many coherence events a second.
    At(f64),
    /// Nowhere up to so many.
    NeverUpTo(f64),
    /// Already at so few.
    AlwaysFrom(f64),
}

/// Where `costs` (events a second, share of the time) reach [`COSTLY`]; `None` of fewer than two. Costs grow with the
/// rate, so what falls is noise, and neighbours that fall are one step (pool adjacent violators).
pub(super) fn crossing(costs: &[(f64, f64)]) -> Option<Crossing> {
    let mut sorted = costs.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&(lowest, _), &(highest, _)) = (sorted.first()?, sorted.last()?);
    if sorted.len() < 2 {
        return None;
    }
    let grown = growing(&sorted.iter().map(|it| it.1).collect::<Vec<_>>());
    let Some(above) = grown.iter().position(|&cost| cost >= COSTLY) else {
        return Some(Crossing::NeverUpTo(highest));
    };
    let Some(below) = above.checked_sub(1) else {
        return Some(Crossing::AlwaysFrom(lowest));
    };
    // The cost is the rate times what a transfer costs more, so it is linear between two points.
    let share = (COSTLY - grown[below]) / (grown[above] - grown[below]);
    let (from, to) = (sorted[below].0, sorted[above].0);
    Some(Crossing::At(from + share * (to - from)))
}

/// The nearest values that never fall.
fn growing(values: &[f64]) -> Vec<f64> {
    // Sum and number of each step.
    let mut steps: Vec<(f64, usize)> = Vec::new();
    let mean = |step: (f64, usize)| step.0 / step.1 as f64;
    for &value in values {
        let mut step = (value, 1);
        while let Some(&last) = steps.last() {
            if mean(last) <= mean(step) {
                break;
            }
            steps.pop();
            step = (last.0 + step.0, last.1 + step.1);
        }
        steps.push(step);
    }
    let repeated = steps
        .into_iter()
        .map(|step| std::iter::repeat_n(mean(step), step.1));
    repeated.flatten().collect()
}

/// Events a second from which on a transfer that costs `far_ns` instead of `near_ns` costs [`COSTLY`] of the time;
/// `None` where it does not cost more.
pub(super) fn computed_per_s(near_ns: f64, far_ns: f64) -> Option<f64> {
    let more_ns = far_ns - near_ns;
    (more_ns > 0.0).then(|| COSTLY / (more_ns * 1e-9))
}

/// The highest bandwidth and the number of tasks from which on it hardly grows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// The highest.
    pub highest_per_s: f64,
    /// The fewest tasks that come near to it.
    pub tasks: usize,
    /// Whether more tasks were tried in vain: else there may be more to be had than these CPUs reach.
    pub is_saturated: bool,
}

/// The knee of bandwidths (tasks, misses a second); `None` of none.
pub(super) fn knee(bandwidths: &[(usize, f64)]) -> Option<Knee> {
    let highest_per_s = bandwidths.iter().map(|it| it.1).reduce(f64::max)?;
    let near = bandwidths
        .iter()
        .filter(|it| it.1 >= highest_per_s * (1.0 - FLAT));
    let tasks = near.map(|it| it.0).min()?;
    let most = bandwidths.iter().map(|it| it.0).max()?;
    Some(Knee {
        highest_per_s,
        tasks,
        is_saturated: tasks < most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs at rates that double from 10,000, where a transfer costs so much more.
    fn curve(more_ns: f64, noise: &[f64]) -> Vec<(f64, f64)> {
        let rate = |at: usize| 1e4 * 2_f64.powi(at as i32);
        let noise = noise.iter().copied().chain(std::iter::repeat(0.0));
        let points = noise.take(10).enumerate();
        points
            .map(|(at, noise)| (rate(at), rate(at) * more_ns * 1e-9 + noise))
            .collect()
    }

    fn at(costs: &[(f64, f64)]) -> f64 {
        match crossing(costs) {
            Some(Crossing::At(rate)) => rate,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_linear_curve_crosses_where_the_formula_says() {
        for more_ns in [20.0, 60.0, 300.0] {
            let computed = computed_per_s(40.0, 40.0 + more_ns).unwrap();
            let measured = at(&curve(more_ns, &[]));
            assert!(
                (measured / computed - 1.0).abs() < 1e-9,
                "{measured} {computed}"
            );
        }
    }

    #[test]
    fn noise_moves_the_crossing_little_and_one_outlier_does_not_make_it() {
        let noise = [0.01, -0.02, 0.03, -0.01, 0.0, 0.012, -0.008, 0.004];
        let measured = at(&curve(60.0, &noise));
        assert!((500e3..1.2e6).contains(&measured), "{measured}");
        let mut costs = curve(60.0, &[]);
        costs[1].1 = 0.12; // A run in which something else happened.
        let measured = at(&costs);
        assert!((500e3..1.2e6).contains(&measured), "{measured}");
    }

    #[test]
    fn the_order_of_the_points_does_not_matter() {
        let mut costs = curve(60.0, &[]);
        let there = at(&costs);
        costs.reverse();
        assert_eq!(at(&costs), there);
    }

    #[test]
    fn a_curve_that_never_reaches_it_or_always_exceeds_it_has_no_crossing() {
        let flat = [(1e4, 0.001), (1e5, -0.002), (5e6, 0.02)];
        assert_eq!(crossing(&flat), Some(Crossing::NeverUpTo(5e6)));
        let steep = [(1e5, 0.2), (1e6, 0.5)];
        assert_eq!(crossing(&steep), Some(Crossing::AlwaysFrom(1e5)));
        assert_eq!(crossing(&[(1.0, 0.2)]), None);
        assert_eq!(crossing(&[]), None);
        assert_eq!(computed_per_s(60.0, 50.0), None);
    }

    #[test]
    fn values_that_grow_stay_and_others_are_pooled() {
        assert_eq!(growing(&[1.0, 2.0, 4.0]), [1.0, 2.0, 4.0]);
        assert_eq!(growing(&[3.0, 1.0, 4.0]), [2.0, 2.0, 4.0]);
        assert_eq!(growing(&[3.0, 2.0, 1.0]), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn bandwidth_ends_to_grow_at_its_knee() {
        let rising = [(1, 30e6), (2, 60e6), (4, 92e6), (8, 95e6), (10, 93e6)];
        let found = knee(&rising).unwrap();
        assert_eq!((found.tasks, found.is_saturated), (4, true));
        assert_eq!(found.highest_per_s, 95e6);
        let unsaturated = knee(&[(1, 30e6), (2, 60e6)]).unwrap();
        assert_eq!((unsaturated.tasks, unsaturated.is_saturated), (2, false));
        assert!(!knee(&[(1, 30e6)]).unwrap().is_saturated);
        assert_eq!(knee(&[]), None);
    }
}
