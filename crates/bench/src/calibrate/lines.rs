//! What it costs that lines move, and that memory is far.

use super::pairs::{Distance, Lacking};
use super::samples::Spread;
use super::sweep::{Comparison, Measured, SharingSample, SpeedupPoint};
use serde::Serialize;

/// What it costs that lines move.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lines {
    /// The distances that were measured, the nearest first.
    pub measured: Vec<Measured>,
    /// Those that this machine, or this process, does not have.
    pub lacking: Vec<Lacking>,
    /// An access to a line that stays where it is, ns; `None` if it could not be measured.
    pub hit_ns: Option<f64>,
    /// Figure 1: pairs of distances.
    pub comparisons: Vec<Comparison>,
    /// Two threads that do nothing but share (SAM, section 4.1), in each comparison.
    pub hubench: Vec<Named>,
    /// Two threads that share at a rate close to the threshold, of the comparison that it is of; `None` where no curve
    /// reaches it.
    pub lubench: Option<Named>,
    /// Every run.
    pub samples: Vec<SharingSample>,
}

/// A point that has a name, and what it compares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Named {
    /// The threads consolidated.
    pub near: Distance,
    /// The threads distributed.
    pub far: Distance,
    /// What was measured.
    #[serde(flatten)]
    pub point: SpeedupPoint,
}

impl Lines {
    /// What a transfer takes, ns: half a round trip. At no distance it is an access to a line that stays.
    pub(super) fn transfer_ns(&self, distance: Distance) -> Option<f64> {
        if distance == Distance::Unshared {
            return self.hit_ns;
        }
        let mut measured = self.measured.iter();
        let found = measured.find(|it| it.pair.distance == distance)?;
        Some(found.round_trip_ns?.median / 2.0)
    }
}

/// Loads from the memory of a node, by a CPU there and one elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RemoteLoads {
    /// The CPU beside the memory.
    pub local_cpu: u32,
    /// The other.
    pub remote_cpu: u32,
    /// A load by the first, ns.
    pub local_ns: Spread,
    /// A load by the other, ns.
    pub remote_ns: Spread,
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::pairs::Pair;
    use super::super::sweep::tests::samples;
    use super::super::sweep::{compare, select, to_compare};
    use super::*;

    /// A machine that has these distances, at such costs of a transfer.
    pub(crate) fn lines(distances: &[(Distance, f64)]) -> Lines {
        let samples = samples(distances, &[0.0, 100.0, 400.0, 1600.0, 6400.0, 25_600.0]);
        let pair = |&(distance, _): &(Distance, f64)| Pair {
            distance,
            cpus: [0, 1],
        };
        let pairs: Vec<Pair> = distances.iter().map(pair).collect();
        let (measured, counting) = select(&pairs, &samples);
        let comparisons: Vec<Comparison> = to_compare(&pairs)
            .into_iter()
            .map(|both| compare(both, &counting))
            .collect();
        let named = |it: &Comparison| {
            let point = *it.points.first()?;
            let (near, far) = (it.near, it.far);
            Some(Named { near, far, point })
        };
        Lines {
            lacking: vec![Lacking {
                distance: Distance::SameSocket,
                why: "no socket has several last-level caches".to_owned(),
            }],
            hit_ns: distances.first().map(|it| it.1),
            hubench: comparisons.iter().filter_map(named).collect(),
            lubench: comparisons.first().and_then(named),
            measured,
            comparisons,
            samples,
        }
    }
}
