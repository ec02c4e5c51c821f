//! The core-to-core round trips: which pairs are measured, in what order, and what is left out.
//!
//! A machine of hundreds of CPUs has more pairs than five seconds can measure. So pairs are taken
//! in turn from each proximity class (hyperthreads, one LLC, one socket, other socket): however
//! early the time is up, every class has been looked at, and what is left is listed with a reason.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linewise_machine::facts::Facts;
use linewise_topology::{Proximity, Topology};
use serde::Serialize;

use super::measure::{Measure, RoundTripNs};

/// The least and the most time for one pair.
const PAIR_AT_LEAST: Duration = Duration::from_millis(2);
const PAIR_AT_MOST: Duration = Duration::from_millis(200);

/// Core-to-core round trips, ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RoundTrips {
    /// The CPUs of the matrices' rows and columns.
    pub cpus: Vec<u32>,
    /// Median; `null` on the diagonal and where nothing was measured.
    pub median_ns: Vec<Vec<Option<f64>>>,
    /// 10th percentile, likewise.
    pub low_ns: Vec<Vec<Option<f64>>>,
    /// 90th percentile, likewise.
    pub high_ns: Vec<Vec<Option<f64>>>,
    /// The same by how near the CPUs are, the nearest first.
    pub by_proximity: Vec<ProximityRow>,
    /// The pairs that were not measured, and why.
    pub unmeasured: Vec<Unmeasured>,
    /// Why there is no matrix at all; empty when there is one.
    pub note: String,
}

/// All measured pairs of one proximity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProximityRow {
    /// `same-core`, `same-llc`, `same-socket`, `other-socket`, `unknown`.
    pub proximity: &'static str,
    /// How many pairs were measured.
    pub measured: usize,
    /// How many there are.
    pub pairs: usize,
    /// Median of the medians; `null` when none was measured.
    pub median_ns: Option<f64>,
    /// Lowest median.
    pub lowest_ns: Option<f64>,
    /// Highest median.
    pub highest_ns: Option<f64>,
}

/// A pair that was not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Unmeasured {
    /// The lower CPU.
    pub cpu_a: u32,
    /// The higher one.
    pub cpu_b: u32,
    /// Why.
    pub reason: String,
}

type Pair = (usize, usize);

impl RoundTrips {
    /// Measures as many pairs as `budget` allows of the CPUs that this process may use.
    pub(crate) fn measure(
        facts: &Facts,
        topology: &Topology,
        measure: &mut dyn Measure,
        budget: Duration,
    ) -> Self {
        let mut usable = topology.cpu_set();
        if let Some(allowed) = facts.allowed_cpus.known() {
            usable = usable.intersection(allowed);
        }
        let cpus: Vec<u32> = usable.iter().collect();
        let empty = vec![vec![None; cpus.len()]; cpus.len()];
        let mut trips = Self {
            median_ns: empty.clone(),
            low_ns: empty.clone(),
            high_ns: empty,
            by_proximity: Vec::new(),
            unmeasured: Vec::new(),
            note: String::new(),
            cpus,
        };
        if trips.cpus.len() < 2 {
            "this process may use one CPU only: no line can move; give it a second one \
             (taskset, the container's CPU set, or the virtual machine's size)"
                .clone_into(&mut trips.note);
            return trips;
        }

        let classes = classes(topology, &trips.cpus);
        let order = in_turn(&classes);
        let share = budget / u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
        let pair_budget = share.clamp(PAIR_AT_LEAST, PAIR_AT_MOST);
        let start = Instant::now();
        for (row, column) in order {
            let (cpu_a, cpu_b) = (trips.cpus[row], trips.cpus[column]);
            let outcome = if start.elapsed() > budget {
                Err("the time for measuring was up".to_owned())
            } else {
                measure.round_trip(cpu_a, cpu_b, pair_budget)
            };
            match outcome {
                Ok(trip) => trips.fill(row, column, trip),
                Err(reason) => trips.unmeasured.push(Unmeasured {
                    cpu_a,
                    cpu_b,
                    reason,
                }),
            }
        }
        trips.by_proximity = classes
            .iter()
            .map(|(class, pairs)| trips.summary(*class, pairs))
            .collect();
        trips
    }

    fn fill(&mut self, row: usize, column: usize, trip: RoundTripNs) {
        for (row, column) in [(row, column), (column, row)] {
            self.median_ns[row][column] = Some(trip.median);
            self.low_ns[row][column] = Some(trip.low);
            self.high_ns[row][column] = Some(trip.high);
        }
    }

    fn summary(&self, class: Class, pairs: &[Pair]) -> ProximityRow {
        let mut medians: Vec<f64> = pairs
            .iter()
            .filter_map(|&(row, column)| self.median_ns[row][column])
            .collect();
        medians.sort_by(f64::total_cmp);
        ProximityRow {
            proximity: class.0.map_or("unknown", Proximity::word),
            measured: medians.len(),
            pairs: pairs.len(),
            median_ns: medians.get(medians.len() / 2).copied(),
            lowest_ns: medians.first().copied(),
            highest_ns: medians.last().copied(),
        }
    }
}

/// A proximity, or `None` where the machine does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class(Option<Proximity>);

fn classes(topology: &Topology, cpus: &[u32]) -> BTreeMap<Class, Vec<Pair>> {
    let mut classes = BTreeMap::<Class, Vec<Pair>>::new();
    for row in 0..cpus.len() {
        for column in row + 1..cpus.len() {
            let proximity = topology.proximity(cpus[row], cpus[column]);
            classes
                .entry(Class(proximity))
                .or_default()
                .push((row, column));
        }
    }
    classes
}

/// One pair of each class after the other, until all are through.
fn in_turn(classes: &BTreeMap<Class, Vec<Pair>>) -> Vec<Pair> {
    let longest = classes.values().map(Vec::len).max().unwrap_or_default();
    (0..longest)
        .flat_map(|turn| classes.values().filter_map(move |pairs| pairs.get(turn)))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::examine::tests::{examine, healthy};
    use super::*;
    use linewise_topology::synthetic;

    #[test]
    fn the_matrix_is_symmetric_and_its_diagonal_empty() {
        let trips = examine("two-sockets-8cpu", healthy()).round_trips;
        assert_eq!(trips.cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
        for row in 0..8 {
            assert_eq!(trips.median_ns[row][row], None);
            for column in 0..8 {
                assert_eq!(trips.median_ns[row][column], trips.median_ns[column][row]);
            }
        }
        let classes: Vec<_> = trips
            .by_proximity
            .iter()
            .map(|row| (row.proximity, row.measured, row.pairs))
            .collect();
        assert_eq!(
            classes,
            [
                ("same-core", 4, 4),
                ("same-llc", 8, 8),
                ("other-socket", 16, 16)
            ]
        );
    }

    #[test]
    fn every_proximity_is_looked_at_before_any_is_finished() {
        let machine = synthetic::epyc_of_eight_ccxs();
        let cpus: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        let order = in_turn(&classes(&machine, &cpus));
        assert_eq!(order.len(), 128 * 127 / 2);
        let first: Vec<_> = order[..3]
            .iter()
            .filter_map(|&(a, b)| machine.proximity(cpus[a], cpus[b]))
            .collect();
        assert_eq!(
            first,
            [
                Proximity::SameCore,
                Proximity::SameLlc,
                Proximity::SameSocket
            ]
        );
    }

    #[test]
    fn when_the_time_is_up_the_rest_is_listed_with_the_reason() {
        struct Slow;
        impl Measure for Slow {
            fn round_trip(&mut self, _: u32, _: u32, _: Duration) -> Result<RoundTripNs, String> {
                std::thread::sleep(Duration::from_millis(2));
                Ok(RoundTripNs {
                    median: 100.0,
                    low: 90.0,
                    high: 110.0,
                })
            }
            fn watchpoints(&mut self) -> Result<super::super::WatchpointProbe, String> {
                Err(String::new())
            }
            fn sampler(&mut self) -> Result<super::super::SamplerProbe, String> {
                Err(String::new())
            }
        }
        let machine = synthetic::two_sockets_of_ten();
        let facts = Facts::read(std::path::Path::new("no-such-tree"), &[]);
        let trips = RoundTrips::measure(&facts, &machine, &mut Slow, Duration::from_millis(1));
        let measured: usize = trips.by_proximity.iter().map(|row| row.measured).sum();
        assert_eq!(measured + trips.unmeasured.len(), 190);
        assert!(measured >= 1 && !trips.unmeasured.is_empty());
        assert!(trips.unmeasured[0].reason.contains("time"));
    }

    #[test]
    fn one_cpu_has_no_matrix_and_says_so() {
        let mut machine = synthetic::virtual_machine_of_two();
        machine.cpus.truncate(1);
        let facts = Facts::read(std::path::Path::new("no-such-tree"), &[]);
        let trips = RoundTrips::measure(&facts, &machine, &mut healthy(), Duration::ZERO);
        assert!(trips.note.contains("one CPU"), "{}", trips.note);
        assert!(trips.by_proximity.is_empty());
    }
}
