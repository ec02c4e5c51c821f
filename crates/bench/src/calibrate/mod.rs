//! This machine's thresholds: from which rate of coherence, of remote loads and of misses on it pays to move a thread.
//!
//! The microbenchmarks of SAM (Srikanthan, Dwarkadas, Shen: Data Sharing or Resource Contention, USENIX ATC 2015,
//! sections 2.1, 2.2 and 4.1), without hardware counters:
//!
//! ```text
//! Hubench, Lubench   two threads share data, at a near-maximum rate and close to the threshold;
//! and all between    the program counts the coherence events itself: a line came if another wrote what is read
//! MemBench           tasks on one node copy memory, a line of each row or whole rows;
//!                    each line is two misses: it is read, and the one that it is copied to is read to be owned
//! ```
//!
//! Every two CPUs that are as far apart as the machine has it are compared, in turns; the round trip is measured beside
//! every run, and only runs of one state of the machine, whose threads had the CPUs to themselves, are in a figure.
//!
//! Distance costs the share of the distributed threads' time that they would not need near to each other: at r events
//! a second of CPU time, each of which takes L ns instead of l, that is r (L - l). So 5 % are reached at 0.05 / (L - l),
//! which stands in where the machine does not have the distance.

mod bandwidth;
mod crossing;
mod error;
mod json;
mod lines;
mod memory;
mod page;
mod pairs;
mod result;
mod samples;
mod sharing;
mod spec;
mod sweep;
mod table;
mod thresholds;
mod together;

pub use bandwidth::{Bandwidth, BandwidthPoint, MemorySample};
pub use crossing::{BELOW_MAXIMUM, COSTLY, Crossing, Knee};
pub use error::CalibrateError;
pub use json::calibration_json;
pub use lines::{Lines, Named, RemoteLoads};
pub use memory::Pattern;
pub use page::calibration_page;
pub use pairs::{Distance, Lacking, Pair};
pub use result::Calibration;
pub use samples::{Beside, LeftOut, QUIET_PERCENT, Spread};
pub use spec::CalibrationSpec;
pub use sweep::{Comparison, Measured, SharingSample, SpeedupPoint};
pub use table::calibration_table;
pub use thresholds::Threshold;

use bandwidth::{Found, Node, task_counts};
use linewise_machine::affinity::allowed_cpus;
use linewise_machine::latency::measure_line_costs;
use linewise_machine::sysfs::read_topology;
use linewise_topology::Topology;
use pairs::{Pairs, pairs};
use samples::Trips;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};
use sweep::{compare, pause_for, select, take_turns, to_compare};

/// How far a calibration is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is measured now.
    pub now: &'static str,
    /// The share that is done, from 0 to 1.
    pub share: f64,
}

/// The share of the time limit that sharing may take; the rest is for memory.
const FOR_SHARING: f64 = 0.65;
/// Lubench's rate by the threshold's (SAM, section 4.1: 2.6e-4 and section 2.1: 2.5e-4 events a cycle).
const LUBENCH: f64 = 1.04;

/// Calibrates this machine, on the CPUs where this process may run. `progress` is told before each round of runs, and may
/// end it.
///
/// # Errors
/// Threads could not be created or pinned, or `progress` ended it.
pub fn run_calibration(
    spec: &CalibrationSpec,
    progress: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Calibration, CalibrateError> {
    let topology = read_topology(Path::new("/")).unwrap_or_default();
    let allowed = allowed_cpus();
    if allowed.is_empty() {
        return Err(CalibrateError::NoCpu);
    }
    let mut session = Session {
        spec,
        begun: Instant::now(),
        progress,
        trips: Trips::default(),
        notes: Vec::new(),
    };
    if allowed.len() < topology.cpus.len() {
        session.notes.push(format!(
            "this process may run on {} of {} CPUs, and nothing else was measured; see `taskset -p $$`",
            allowed.len(),
            topology.cpus.len()
        ));
    }
    let lines = session.lines(&topology, &allowed)?;
    let (bandwidth, remote_loads) = session.memory(&topology, &allowed)?;
    let seconds = session.begun.elapsed().as_secs_f64();
    Ok(Calibration::new(
        lines,
        bandwidth,
        remote_loads,
        session.notes,
        seconds,
    ))
}

/// A calibration under way.
struct Session<'a, P> {
    spec: &'a CalibrationSpec,
    begun: Instant,
    progress: P,
    trips: Trips,
    notes: Vec<String>,
}

impl<P: FnMut(&Progress) -> ControlFlow<()>> Session<'_, P> {
    fn tell(&mut self, now: &'static str, share: f64) -> Result<(), CalibrateError> {
        match (self.progress)(&Progress { now, share }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CalibrateError::Interrupted),
        }
    }

    /// Whether there is time for another repeat, by the share of the limit; the first is always made.
    fn has_time(&mut self, repeat: usize, repeats: usize, share: f64, what: &str) -> bool {
        let is_late = self.begun.elapsed() > self.spec.limit.mul_f64(share);
        if repeat == 0 || !is_late {
            return true;
        }
        let times = if repeat == 1 { "time" } else { "times" };
        self.notes.push(format!(
            "{what} was measured {repeat} {times} instead of {repeats}, because the machine was slow"
        ));
        false
    }

    /// Figure 1, Hubench and Lubench.
    fn lines(&mut self, topology: &Topology, allowed: &[u32]) -> Result<Lines, CalibrateError> {
        let Pairs {
            found,
            lacking,
            guessed,
        } = pairs(topology, allowed);
        let Some(nearest) = found.first() else {
            return Ok(Lines {
                lacking,
                ..Lines::default()
            });
        };
        if guessed {
            self.notes.push(
                "the machine does not tell which CPUs share a last-level cache; its CPUs are taken to share one"
                    .to_owned(),
            );
        }
        const ROUNDS: u32 = 60;
        let [cpu_a, cpu_b] = nearest.cpus;
        let costs = measure_line_costs(cpu_a, cpu_b, ROUNDS, Duration::from_secs(1)).ok();
        let step_ns = sharing::step_ns(cpu_a)?;
        let pauses: Vec<f64> = self.spec.pauses_ns.iter().map(|&it| it as f64).collect();
        let mut samples = Vec::new();
        self.sweep(&found, &pauses, step_ns, &mut samples)?;
        let (_, counting) = select(&found, &samples);
        let both = to_compare(&found);
        let mut comparisons: Vec<Comparison> =
            both.iter().map(|&it| compare(it, &counting)).collect();
        let named = |it: &Comparison, point: SpeedupPoint| Named {
            near: it.near,
            far: it.far,
            point,
        };
        let hubench = comparisons.iter().filter_map(|it| {
            let least = it.points.first().filter(|point| point.pause_ns == 0.0);
            least.map(|point| named(it, *point))
        });
        let hubench = hubench.collect();
        let lubench = self.lubench(&found, &comparisons, step_ns, &mut samples)?;
        let (measured, counting) = select(&found, &samples);
        comparisons = both.iter().map(|&it| compare(it, &counting)).collect();
        let lubench = lubench.and_then(|pause_ns| {
            let outermost = comparisons.last()?;
            let mut points = outermost.points.iter();
            let point = points.find(|point| point.pause_ns == pause_ns)?;
            Some(named(outermost, *point))
        });
        Ok(Lines {
            measured,
            lacking,
            hit_ns: costs.map(|costs| costs.hit_ns),
            comparisons,
            hubench,
            lubench,
            samples,
        })
    }

    /// Every pair with every pause, in turns.
    fn sweep(
        &mut self,
        pairs: &[Pair],
        pauses_ns: &[f64],
        step_ns: f64,
        samples: &mut Vec<SharingSample>,
    ) -> Result<(), CalibrateError> {
        let (repeats, seconds) = (self.spec.sharing_repeats, self.spec.sharing_seconds);
        for repeat in 0..repeats {
            if !self.has_time(repeat, repeats, FOR_SHARING, "sharing") {
                break;
            }
            for (at, &pause_ns) in pauses_ns.iter().enumerate() {
                let done = (repeat * pauses_ns.len() + at) as f64;
                let all = (repeats * pauses_ns.len()) as f64;
                self.tell("sharing", done / all * FOR_SHARING)?;
                let steps = (pause_ns / step_ns).round() as u64;
                let pause = (pause_ns, steps);
                take_turns(pairs, pause, repeat, seconds, &mut self.trips, samples)?;
            }
        }
        Ok(())
    }

    /// Runs close to the threshold of the outermost comparison, and the pause that they were made with.
    fn lubench(
        &mut self,
        pairs: &[Pair],
        comparisons: &[Comparison],
        step_ns: f64,
        samples: &mut Vec<SharingSample>,
    ) -> Result<Option<f64>, CalibrateError> {
        let outermost = comparisons.last();
        let threshold = outermost.and_then(|it| match it.crossing {
            Some(Crossing::At(per_s)) => Some(per_s),
            _ => None,
        });
        let pause_ns = outermost
            .zip(threshold)
            .and_then(|(it, per_s)| pause_for(&it.points, per_s * LUBENCH));
        let Some(pause_ns) = pause_ns.map(f64::round) else {
            return Ok(None);
        };
        self.sweep(pairs, &[pause_ns], step_ns, samples)?;
        Ok(Some(pause_ns))
    }

    /// Figure 2, and loads from other nodes.
    fn memory(
        &mut self,
        topology: &Topology,
        allowed: &[u32],
    ) -> Result<(Option<Bandwidth>, Option<RemoteLoads>), CalibrateError> {
        self.tell("memory", FOR_SHARING)?;
        let mut node = match Node::find(topology, allowed, self.spec)? {
            Found::Node(node) => node,
            Found::NoMemory => {
                self.notes.push(
                    "the kernel gave no memory to copy, so that bandwidth was not measured; free some, or raise ulimit -v"
                        .to_owned(),
                );
                return Ok((None, None));
            }
        };
        let (repeats, seconds) = (self.spec.memory_repeats, self.spec.memory_seconds);
        let counts = task_counts(node.cpus.len(), self.spec.task_counts);
        for repeat in 0..repeats {
            if !self.has_time(repeat, repeats, 1.0, "bandwidth") {
                break;
            }
            let done = repeat as f64 / repeats as f64;
            self.tell("bandwidth", FOR_SHARING + (1.0 - FOR_SHARING) * done)?;
            for &tasks in &counts {
                for pattern in Pattern::ALL {
                    node.run(pattern, tasks, seconds, &mut self.trips)?;
                }
            }
        }
        let remote_loads = self.remote_loads(topology, allowed, &mut node)?;
        Ok((Some(node.finish()), remote_loads))
    }

    /// Loads from the memory that was copied, by a CPU beside it and one of another node, in turns; `None` on one node.
    fn remote_loads(
        &mut self,
        topology: &Topology,
        allowed: &[u32],
        node: &mut Node,
    ) -> Result<Option<RemoteLoads>, CalibrateError> {
        let of = |cpu: u32| topology.cpu(cpu).and_then(|it| it.node);
        let local_cpu = node.cpus[0];
        let elsewhere = |cpu: &u32| of(*cpu).is_some() && of(*cpu) != of(local_cpu);
        let Some(remote_cpu) = allowed.iter().copied().find(elsewhere) else {
            return Ok(None);
        };
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for _ in 0..self.spec.memory_repeats {
            self.tell("remote memory", 1.0)?;
            for (cpu, loads) in [(local_cpu, &mut local), (remote_cpu, &mut remote)] {
                let (ns, waited_percent) = node.memory.load_ns(cpu, self.spec.memory_seconds)?;
                if waited_percent <= QUIET_PERCENT {
                    loads.push(ns);
                }
            }
        }
        Ok(Spread::of(&local)
            .zip(Spread::of(&remote))
            .map(|(local_ns, remote_ns)| RemoteLoads {
                local_cpu,
                remote_cpu,
                local_ns,
                remote_ns,
            }))
    }
}
