//! What a line's way costs, by how far apart its users are.

use linewise_recording::Latency;
use linewise_topology::{Proximity, Topology};
use serde::{Deserialize, Serialize};

use super::super::sharing::Estimate;
use super::input::GroupsInput;
use super::pairs::PairSum;
use crate::quantity::{Interval, median};

/// A round trip below one last-level cache where none was measured, ns.
const USUAL_NS: f64 = 100.0;

/// How far apart threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// Below one last-level cache.
    Llc,
    /// On one socket, below different last-level caches.
    Socket,
    /// On different sockets.
    Apart,
}

impl Distance {
    const ALL: [Self; 3] = [Self::Llc, Self::Socket, Self::Apart];

    /// What a way takes on usual machines, by that below one last-level cache: from Intel's meshes to AMD's chiplets.
    fn usual_ratio(self) -> Estimate {
        let (value, low, high) = match self {
            Self::Llc => (1.0, 1.0, 1.0),
            Self::Socket => (2.5, 1.5, 4.0),
            Self::Apart => (5.0, 2.5, 8.0),
        };
        Estimate { value, low, high }
    }

    /// That of two CPUs. Hyperthreads of a core count as near.
    fn between(machine: Option<&Topology>, a: u32, b: u32) -> Option<Self> {
        // Without the machine's shape all are taken to be as near as they were measured.
        let Some(machine) = machine else {
            return Some(Self::Llc);
        };
        Some(match machine.proximity(a, b)? {
            Proximity::SameCpu => return None,
            Proximity::SameCore | Proximity::SameLlc => Self::Llc,
            Proximity::SameSocket => Self::Socket,
            Proximity::OtherSocket => Self::Apart,
        })
    }
}

/// What a line's way costs at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelLatency {
    /// The distance.
    pub distance: Distance,
    /// A line's way there and back, ns.
    pub round_trip_ns: f64,
    /// Between what it lies, ns.
    pub interval: Interval,
    /// Whether it was measured beside the recording; else it is taken from the nearest that was, by the ratios of usual
    /// machines.
    pub measured: bool,
    /// How many pairs of CPUs were measured at this distance; of one the interval is no more than its round trip.
    pub measurements: u64,
}

/// What a group's transfers would cost at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistanceCost {
    /// The distance between its threads.
    pub distance: Distance,
    /// The cost, in the unit of the group's.
    pub cost: f64,
    /// Its interval.
    pub interval: Interval,
}

/// The latencies of a machine, by distance.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Of each distance that the machine has.
    pub levels: Vec<LevelLatency>,
}

impl Latencies {
    /// Those that were measured, and the others by usual ratios.
    pub(super) fn of(rows: &[Latency], machine: Option<&Topology>) -> Self {
        let measured = |distance: Distance| -> Vec<f64> {
            let of = |row: &&Latency| {
                Distance::between(machine, row.cpu_a.0, row.cpu_b.0) == Some(distance)
            };
            let rows = rows.iter().filter(of).map(|row| row.round_trip_ns);
            rows.filter(|ns| ns.is_finite() && *ns > 0.0).collect()
        };
        let all = Distance::ALL.map(|distance| (distance, measured(distance)));
        let known = all.iter().find_map(|(distance, trips)| {
            let trip = median(trips.iter().copied())?;
            Some(trip / distance.usual_ratio().value)
        });
        let base_ns = known.unwrap_or(USUAL_NS);
        let level = |(distance, trips): &(Distance, Vec<f64>)| {
            let ratio = distance.usual_ratio();
            let (trip, interval) = match (median(trips.iter().copied()), Interval::of(trips)) {
                (Some(trip), Some(interval)) => (trip, interval),
                _ => (
                    base_ns * ratio.value,
                    Interval {
                        low: base_ns * ratio.low,
                        high: base_ns * ratio.high,
                    },
                ),
            };
            LevelLatency {
                distance: *distance,
                round_trip_ns: trip,
                interval,
                measured: !trips.is_empty(),
                measurements: trips.len() as u64,
            }
        };
        let there = distances(machine);
        Self {
            levels: (all.iter().filter(|(it, _)| there.contains(it)))
                .map(level)
                .collect(),
        }
    }

    /// What a transfer takes at least: half of the shortest way there and back, ns.
    pub(super) fn now_ns(&self) -> f64 {
        self.levels.first().map_or(USUAL_NS, |it| it.round_trip_ns) / 2.0
    }

    /// What the transfers of a group would cost at each distance, with those that it escapes by taking turns.
    pub(super) fn costs(
        &self,
        inner: &PairSum,
        input: &GroupsInput<'_>,
        share: impl Fn(Estimate) -> Estimate,
    ) -> Vec<DistanceCost> {
        let now_ns = self.mean_ns(inner, input);
        let at = |level: &LevelLatency| {
            let ratio = |ns: f64| ns / now_ns;
            let factor = match level.measured {
                true => Estimate::exactly(ratio(level.round_trip_ns)),
                false => Estimate {
                    value: ratio(level.round_trip_ns),
                    low: ratio(level.interval.low),
                    high: ratio(level.interval.high),
                },
            };
            let mut cost_ns = inner.cost_ns.times(factor);
            // Whether threads that take turns would meet elsewhere nobody knows: from never to always.
            let turns_ns = inner.in_turns * level.round_trip_ns / 2.0;
            cost_ns.add(Estimate {
                value: turns_ns / 2.0,
                low: 0.0,
                high: turns_ns,
            });
            let cost = share(cost_ns);
            DistanceCost {
                distance: level.distance,
                cost: cost.value,
                interval: cost.interval(),
            }
        };
        self.levels.iter().map(at).collect()
    }

    /// The round trip at which the transfers of a group took place, ns.
    fn mean_ns(&self, inner: &PairSum, input: &GroupsInput<'_>) -> f64 {
        let nearest = 2.0 * self.now_ns();
        // The cores of an emulated run are a model's.
        if input.info.source.is_emulated() {
            return nearest;
        }
        let (mut sum, mut weight) = (0.0, 0.0);
        for (&(a, b), &transfers) in &inner.cpus {
            let distance = Distance::between(input.machine, a.0, b.0);
            let level = self.levels.iter().find(|it| Some(it.distance) == distance);
            if let Some(level) = level {
                sum += transfers * level.round_trip_ns;
                weight += transfers;
            }
        }
        match weight > 0.0 {
            true => sum / weight,
            false => nearest,
        }
    }
}

/// The distances that a machine has.
fn distances(machine: Option<&Topology>) -> Vec<Distance> {
    let Some(machine) = machine else {
        return vec![Distance::Llc];
    };
    let (llcs, sockets) = (machine.llc_groups(), machine.sockets());
    let has_several = |socket: &linewise_topology::CpuSet| {
        let inside = llcs
            .iter()
            .filter(|llc| !llc.intersection(socket).is_empty());
        inside.count() > 1
    };
    let mut found = vec![Distance::Llc];
    if sockets.iter().any(has_several) {
        found.push(Distance::Socket);
    }
    if sockets.len() > 1 {
        found.push(Distance::Apart);
    }
    found
}
