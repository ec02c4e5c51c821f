//! Figure 2 of SAM: the bandwidth of a node's memory by number of tasks, at low and at high hit ratios of the row buffer.

use super::crossing::{BELOW_MAXIMUM, Knee, knee};
use super::error::CalibrateError;
use super::memory::{LINE_BYTES, MISSES_A_LINE, Memory, Pattern};
use super::samples::{Beside, LeftOut, Spread, Trips, kept};
use super::spec::CalibrationSpec;
use crate::states::Span;
use linewise_machine::buffer::{Pages, available_bytes};
use linewise_topology::{CacheKind, Topology};
use serde::Serialize;

/// One run of tasks that copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemorySample {
    /// How much of a row they copied at once.
    pub pattern: Pattern,
    /// How many they were.
    pub tasks: usize,
    /// Misses of the last-level cache a second, of all of them: two for each copied line.
    pub misses_per_s: f64,
    /// What was beside it.
    #[serde(flatten)]
    pub beside: Beside,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BandwidthPoint {
    /// How much of a row was copied at once.
    pub pattern: Pattern,
    /// Tasks.
    pub tasks: usize,
    /// Misses of the last-level cache a second, of all tasks: counted as two for each copied line.
    pub misses_per_s: Spread,
    /// Bytes copied a second.
    pub copied_bytes_per_s: f64,
}

/// The bandwidth of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// The CPUs that the tasks were on, in the order in which they were taken.
    pub cpus: Vec<u32>,
    /// The node's number; `None` where the machine has no nodes.
    pub node: Option<u32>,
    /// Bytes that were copied from and to.
    pub memory_bytes: u64,
    /// Bytes of the last-level caches of the node; `None` where the machine does not tell.
    pub cache_bytes: Option<u64>,
    /// What the memory consists of.
    pub pages: &'static str,
    /// Low ratio first, by tasks.
    pub points: Vec<BandwidthPoint>,
    /// Where the low ratio's curve ends to grow; `None` without points.
    pub knee: Option<Knee>,
    /// Misses a second of a node at which its memory is nearly saturated: 20 % below the low ratio's highest.
    pub threshold_per_s: Option<f64>,
    /// The state that the figures were made in, where there are several.
    pub state: Option<Span>,
    /// Runs that are in no figure.
    pub left_out: LeftOut,
    /// Every run.
    pub samples: Vec<MemorySample>,
}

/// The CPUs of the node (or socket) of the first of `allowed`, one of each core before any other of it.
pub(super) fn cpus_of_node(topology: &Topology, allowed: &[u32]) -> (Option<u32>, Vec<u32>) {
    let Some(&first) = allowed.first() else {
        return (None, Vec::new());
    };
    let place = |cpu: u32| {
        let cpu = topology.cpu(cpu)?;
        cpu.node.or(cpu.socket)
    };
    let here = allowed
        .iter()
        .copied()
        .filter(|&cpu| place(cpu) == place(first));
    let mut cores = Vec::new();
    let (mut fresh, mut siblings) = (Vec::new(), Vec::new());
    for cpu in here {
        let core = topology.cpu(cpu).and_then(|it| it.core);
        if core.is_some() && cores.contains(&core) {
            siblings.push(cpu);
        } else {
            cores.push(core);
            fresh.push(cpu);
        }
    }
    fresh.extend(siblings);
    (topology.cpu(first).and_then(|it| it.node), fresh)
}

/// Numbers of tasks from 1 to `most`, no more than `wanted` of them, ever wider apart.
pub(super) fn task_counts(most: usize, wanted: usize) -> Vec<usize> {
    let steps = wanted.max(2) - 1;
    let at = |step: usize| (most as f64).powf(step as f64 / steps as f64).round() as usize;
    let mut counts: Vec<usize> = if most <= wanted {
        (1..=most).collect()
    } else {
        (0..=steps).map(at).collect()
    };
    counts.dedup();
    counts
}

/// Bytes of all last-level caches above these CPUs.
fn cache_bytes(topology: &Topology, cpus: &[u32]) -> Option<u64> {
    let holds_data = |kind| kind != CacheKind::Instruction;
    let data = || topology.caches.iter().filter(|it| holds_data(it.kind));
    let last = data().map(|it| it.level).max()?;
    let above =
        data().filter(|it| it.level == last && cpus.iter().any(|&cpu| it.cpus.contains(cpu)));
    let sizes: Option<Vec<u64>> = above.map(|it| it.size_bytes).collect();
    sizes.map(|sizes| sizes.iter().sum())
}

/// Bytes to copy from and to: three times the caches, but no more than a quarter of what there is.
fn bytes(caches: Option<u64>, most: u64) -> u64 {
    const UNKNOWN_CACHE: u64 = 128 << 20;
    const LEAST: u64 = 256 << 20;
    let wanted = caches.unwrap_or(UNKNOWN_CACHE).saturating_mul(3).max(LEAST);
    let there = available_bytes().map_or(wanted, |bytes| bytes / 4);
    wanted.min(most).min(there)
}

/// What is being measured: a node and its memory.
pub(super) struct Node {
    number: Option<u32>,
    pub(super) cpus: Vec<u32>,
    caches: Option<u64>,
    pub(super) memory: Memory,
    samples: Vec<MemorySample>,
}

/// Whether memory was to be had.
pub(super) enum Found {
    Node(Node),
    /// Not even a little.
    NoMemory,
}

impl Node {
    /// The node of the first CPU, with memory for its tasks.
    pub(super) fn find(
        topology: &Topology,
        allowed: &[u32],
        spec: &CalibrationSpec,
    ) -> Result<Found, CalibrateError> {
        let (number, cpus) = cpus_of_node(topology, allowed);
        let Some(&first) = cpus.first() else {
            return Err(CalibrateError::NoCpu);
        };
        let caches = cache_bytes(topology, &cpus);
        let bytes = bytes(caches, spec.memory_bytes);
        let Some(memory) = Memory::new(first, cpus.len(), bytes)? else {
            return Ok(Found::NoMemory);
        };
        Ok(Found::Node(Self {
            number,
            cpus,
            caches,
            memory,
            samples: Vec::new(),
        }))
    }

    /// Makes a run.
    pub(super) fn run(
        &mut self,
        pattern: Pattern,
        tasks: usize,
        seconds: f64,
        trips: &mut Trips,
    ) -> Result<(), CalibrateError> {
        let (memory, cpus) = (&mut self.memory, &self.cpus);
        let run = || memory.copy(&cpus[..tasks.min(cpus.len())], pattern, seconds);
        let (lines_per_s, beside) = trips.around(cpus, run)?;
        self.samples.push(MemorySample {
            pattern,
            tasks,
            misses_per_s: lines_per_s * MISSES_A_LINE,
            beside,
        });
        Ok(())
    }

    /// Its figures.
    pub(super) fn finish(self) -> Bandwidth {
        let besides: Vec<Beside> = self.samples.iter().map(|it| it.beside).collect();
        let kept = kept(&besides);
        let counting = self.samples.iter().zip(&kept.which);
        let counting = counting.filter(|(_, counts)| **counts).map(|(it, _)| it);
        let points = points(&counting.collect::<Vec<_>>());
        let low = points.iter().filter(|it| it.pattern == Pattern::Low);
        let low = low.map(|it| (it.tasks, it.misses_per_s.median));
        let knee = knee(&low.collect::<Vec<_>>());
        Bandwidth {
            node: self.number,
            memory_bytes: self.memory.bytes(),
            cache_bytes: self.caches,
            pages: self.memory.pages().words(),
            threshold_per_s: knee.map(|knee| knee.highest_per_s * (1.0 - BELOW_MAXIMUM)),
            knee,
            points,
            state: kept.state,
            left_out: kept.left_out,
            cpus: self.cpus,
            samples: self.samples,
        }
    }
}

impl Bandwidth {
    /// What limits what its figures mean, in sentences without full stops.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.pages == Pages::Small.words() {
            doubts.push(
                "no huge pages were to be had: low-RBHR copies also wait for address translation, and the bandwidth is \
                 too low; allow them (madvise in /sys/kernel/mm/transparent_hugepage/enabled)"
                    .to_owned(),
            );
        }
        if let Some(caches) = self.cache_bytes
            && self.memory_bytes < caches.saturating_mul(2)
        {
            doubts.push(format!(
                "{} MiB were copied, less than twice the caches ({} MiB), which may have served a part of it: the \
                 bandwidth may be too high; free memory or raise its limit",
                self.memory_bytes >> 20,
                caches >> 20
            ));
        }
        if let Some(knee) = self.knee
            && !knee.is_saturated
        {
            doubts.push(match knee.tasks {
                1 => "one task alone may not saturate the memory, which may have more bandwidth"
                    .to_owned(),
                tasks => format!(
                    "bandwidth still grew with the last of {tasks} tasks: the maximum is what these CPUs reach, and the \
                     memory may have more"
                ),
            });
        }
        doubts
    }
}

fn points(counting: &[&MemorySample]) -> Vec<BandwidthPoint> {
    let mut kinds: Vec<(Pattern, usize)> =
        counting.iter().map(|it| (it.pattern, it.tasks)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let point = |(pattern, tasks)| {
        let here = counting
            .iter()
            .filter(|it| (it.pattern, it.tasks) == (pattern, tasks));
        let rates: Vec<f64> = here.map(|it| it.misses_per_s).collect();
        let misses_per_s = Spread::of(&rates)?;
        Some(BandwidthPoint {
            pattern,
            tasks,
            misses_per_s,
            copied_bytes_per_s: misses_per_s.median / MISSES_A_LINE * LINE_BYTES,
        })
    };
    kinds.into_iter().filter_map(point).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use linewise_topology::synthetic;

    /// A run that nobody disturbed.
    fn sample(pattern: Pattern, tasks: usize, misses_per_s: f64) -> MemorySample {
        MemorySample {
            pattern,
            tasks,
            misses_per_s,
            beside: Beside {
                waited_percent: 0.0,
                round_trips_ns: None,
            },
        }
    }

    /// Of two tasks, of which the second adds little.
    pub(crate) fn bandwidth() -> Bandwidth {
        let sample = |(pattern, tasks, misses_per_s)| sample(pattern, tasks, misses_per_s);
        let samples = [
            (Pattern::Low, 1, 60e6),
            (Pattern::Low, 2, 62e6),
            (Pattern::High, 1, 150e6),
            (Pattern::High, 2, 160e6),
        ];
        let samples: Vec<MemorySample> = samples.into_iter().map(sample).collect();
        let knee = knee(&[(1, 60e6), (2, 62e6)]);
        Bandwidth {
            cpus: vec![0, 1],
            node: Some(0),
            memory_bytes: 256 << 20,
            cache_bytes: Some(480 << 20),
            pages: Pages::Small.words(),
            points: points(&samples.iter().collect::<Vec<_>>()),
            threshold_per_s: knee.map(|knee| knee.highest_per_s * (1.0 - BELOW_MAXIMUM)),
            knee,
            state: None,
            left_out: LeftOut::default(),
            samples,
        }
    }

    #[test]
    fn small_pages_little_memory_and_few_cpus_are_doubts() {
        let mut few = bandwidth();
        let doubts = few.doubts();
        assert_eq!(doubts.len(), 2, "{doubts:?}");
        assert!(doubts[0].contains("no huge pages") && doubts[1].contains("256 MiB"));
        few.pages = Pages::Huge.words();
        few.cache_bytes = None;
        few.knee = knee(&[(1, 60e6), (2, 120e6)]);
        let doubts = few.doubts();
        assert!(
            doubts.len() == 1 && doubts[0].contains("still grew"),
            "{doubts:?}"
        );
    }

    #[test]
    fn tasks_are_on_one_socket_and_hyperthreads_come_last() {
        let machine = synthetic::two_sockets_of_ten_with_hyperthreads();
        let all: Vec<u32> = (0..40).collect();
        let (_, cpus) = cpus_of_node(&machine, &all);
        let wanted: Vec<u32> = (0..10).chain(20..30).collect();
        assert_eq!(cpus, wanted);
        assert_eq!(cpus_of_node(&machine, &[12, 13, 1]).1, [12, 13]);
        assert_eq!(cpus_of_node(&machine, &[]).1, Vec::<u32>::new());
    }

    #[test]
    fn numbers_of_tasks_begin_with_one_and_end_with_all() {
        assert_eq!(task_counts(1, 10), [1]);
        assert_eq!(task_counts(4, 10), [1, 2, 3, 4]);
        for (most, wanted) in [(20, 10), (64, 4), (500, 10), (11, 10)] {
            let counts = task_counts(most, wanted);
            assert!(counts.len() <= wanted, "{counts:?}");
            assert_eq!((counts[0], counts[counts.len() - 1]), (1, most));
            assert!(counts.is_sorted_by(|a, b| a < b), "{counts:?}");
        }
    }

    #[test]
    fn all_caches_of_the_node_are_counted() {
        let machine = synthetic::epyc_of_eight_ccxs();
        let all: Vec<u32> = machine.cpus.iter().map(|it| it.id).collect();
        let one = cache_bytes(&machine, &all[..1]).unwrap();
        assert_eq!(cache_bytes(&machine, &all), Some(8 * one));
        assert!(bytes(Some(1 << 40), 1 << 30) <= 1 << 30);
        assert!(bytes(None, u64::MAX) <= 384 << 20);
    }

    #[test]
    fn points_are_medians_by_pattern_and_tasks() {
        let all = [
            sample(Pattern::High, 1, 50.0),
            sample(Pattern::Low, 1, 10.0),
            sample(Pattern::Low, 2, 20.0),
            sample(Pattern::Low, 1, 30.0),
        ];
        let points = points(&all.iter().collect::<Vec<_>>());
        let medians: Vec<f64> = points.iter().map(|it| it.misses_per_s.median).collect();
        assert_eq!(medians, [20.0, 20.0, 50.0]);
        assert_eq!(points[0].copied_bytes_per_s, 640.0);
    }
}
