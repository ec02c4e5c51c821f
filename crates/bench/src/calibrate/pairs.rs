//! A pair of CPUs for each distance that the machine has.

use linewise_topology::{Proximity, Topology};
use serde::Serialize;

/// How far lines travel between two threads, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// Not at all: each thread has lines of its own.
    Unshared,
    /// Between hyperthreads of a core, whose private caches are one.
    SameCore,
    /// Between cores below one last-level cache.
    SameLlc,
    /// Between last-level caches of a socket.
    SameSocket,
    /// Between sockets.
    OtherSocket,
}

impl Distance {
    /// Those between two CPUs.
    const OF_PAIRS: [Self; 4] = [
        Self::SameCore,
        Self::SameLlc,
        Self::SameSocket,
        Self::OtherSocket,
    ];

    /// The words that stand for it in every output.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Unshared => "not sharing",
            Self::SameCore => "same core",
            Self::SameLlc => "same LLC",
            Self::SameSocket => "same socket",
            Self::OtherSocket => "other socket",
        }
    }

    fn of(proximity: Proximity) -> Option<Self> {
        match proximity {
            Proximity::SameCpu => None,
            Proximity::SameCore => Some(Self::SameCore),
            Proximity::SameLlc => Some(Self::SameLlc),
            Proximity::SameSocket => Some(Self::SameSocket),
            Proximity::OtherSocket => Some(Self::OtherSocket),
        }
    }

    /// Why a machine has no such pair.
    fn absence(self) -> &'static str {
        match self {
            Self::Unshared => "",
            Self::SameCore => "no core has hyperthreads",
            Self::SameLlc => "no two cores are known to be below one last-level cache",
            Self::SameSocket => "no socket has several last-level caches",
            Self::OtherSocket => "it has one socket",
        }
    }
}

/// Two CPUs at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// How far they are apart.
    pub distance: Distance,
    /// The CPUs.
    pub cpus: [u32; 2],
}

/// A distance that cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lacking {
    /// Which.
    pub distance: Distance,
    /// Why, as a clause.
    pub why: String,
}

/// The pairs to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    /// By distance; [`Distance::Unshared`] is on the CPUs of the nearest pair of cores.
    pub(super) found: Vec<Pair>,
    pub(super) lacking: Vec<Lacking>,
    /// Whether the machine does not tell how far the pair is apart that stands for one LLC.
    pub(super) guessed: bool,
}

/// CPUs from which distances are looked for: machines repeat themselves, and all pairs of hundreds of CPUs take long.
const LOOKED_FROM: usize = 16;

/// Pairs among `allowed`.
pub(super) fn pairs(topology: &Topology, allowed: &[u32]) -> Pairs {
    let mut pairs = Pairs::default();
    let [first, second, ..] = *allowed else {
        let why = "this process may run on one CPU only; see `taskset -p $$`".to_owned();
        let lacking = Distance::OF_PAIRS.map(|distance| Lacking {
            distance,
            why: why.clone(),
        });
        pairs.lacking = lacking.into();
        return pairs;
    };
    let everywhere: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
    for distance in Distance::OF_PAIRS {
        if let Some(cpus) = find(topology, allowed, distance) {
            pairs.found.push(Pair { distance, cpus });
        } else {
            let exists = find(topology, &everywhere, distance).is_some();
            let why = if exists {
                "this process may not run on such CPUs; see `taskset -p $$`"
            } else {
                distance.absence()
            };
            pairs.lacking.push(Lacking {
                distance,
                why: why.to_owned(),
            });
        }
    }
    if pairs.found.is_empty() {
        // A machine that hides its caches: the nearest that two CPUs can be without being one core.
        let distance = Distance::SameLlc;
        pairs.guessed = true;
        pairs.lacking.retain(|it| it.distance != distance);
        pairs.found.push(Pair {
            distance,
            cpus: [first, second],
        });
    }
    let of_cores = pairs
        .found
        .iter()
        .find(|pair| pair.distance > Distance::SameCore);
    if let Some(&Pair { cpus, .. }) = of_cores {
        let distance = Distance::Unshared;
        pairs.found.insert(0, Pair { distance, cpus });
    }
    pairs
}

fn find(topology: &Topology, among: &[u32], distance: Distance) -> Option<[u32; 2]> {
    among.iter().take(LOOKED_FROM).find_map(|&a| {
        let there = |b: u32| topology.proximity(a, b).and_then(Distance::of) == Some(distance);
        among
            .iter()
            .copied()
            .find(|&b| there(b))
            .map(|b| [a.min(b), a.max(b)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linewise_topology::synthetic;

    fn found(topology: &Topology, allowed: &[u32]) -> Vec<(Distance, [u32; 2])> {
        let pairs = pairs(topology, allowed);
        pairs
            .found
            .iter()
            .map(|pair| (pair.distance, pair.cpus))
            .collect()
    }

    #[test]
    fn each_distance_of_the_machine_has_a_pair() {
        let machine = synthetic::two_sockets_of_ten_with_hyperthreads();
        let all: Vec<u32> = (0..40).collect();
        assert_eq!(
            found(&machine, &all),
            [
                (Distance::Unshared, [0, 1]),
                (Distance::SameCore, [0, 20]),
                (Distance::SameLlc, [0, 1]),
                (Distance::OtherSocket, [0, 10]),
            ]
        );
        let ccxs = synthetic::epyc_of_eight_ccxs();
        let all: Vec<u32> = ccxs.cpus.iter().map(|cpu| cpu.id).collect();
        let distances: Vec<Distance> = found(&ccxs, &all).into_iter().map(|it| it.0).collect();
        assert!(distances.contains(&Distance::SameSocket), "{distances:?}");
    }

    #[test]
    fn what_is_lacking_has_its_reason() {
        let machine = synthetic::two_sockets_of_ten_with_hyperthreads();
        let few = pairs(&machine, &[0, 1]);
        let why = |distance| {
            let mut lacking = few.lacking.iter();
            let it = lacking.find(|it| it.distance == distance);
            it.map_or("", |it| it.why.as_str())
        };
        assert!(why(Distance::OtherSocket).contains("taskset"));
        assert!(why(Distance::SameSocket).contains("several last-level caches"));
        let one = pairs(&machine, &[3]);
        assert!(one.found.is_empty());
        assert_eq!(one.lacking.len(), 4);
    }

    #[test]
    fn cpus_of_a_machine_that_hides_its_caches_count_as_near() {
        let mut machine = synthetic::two_sockets_of_ten();
        machine.caches.clear();
        let hidden = pairs(&machine, &[0, 1]);
        assert!(hidden.guessed);
        let distances: Vec<Distance> = hidden.found.iter().map(|pair| pair.distance).collect();
        assert_eq!(distances, [Distance::Unshared, Distance::SameLlc]);
    }
}
