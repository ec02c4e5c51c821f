//! The placement model held against simulated coherence: kept traces of real programs, replayed at several placements.
//!
//! The model is given what each thread does on a socket of its own, and foretells the placements: there every line
//! that another thread had comes from its caches, also one that a cache in common would have kept. The order of the accesses is that of the trace wherever the threads are: what a program would do in
//! another order, because it is slower elsewhere, neither of the two knows.

use std::fmt::Write as _;
use std::path::Path;

use linewise_cache::Access;
use linewise_cache::hierarchy::{Config, ConfigError, Hierarchy, Report, Served};
use linewise_placement_model::{MachineKind, Phase, SimulatedMachine, Thread, thread_costs};
use linewise_topology::{
    Topology,
    synthetic::{self, Shape},
};
use linewise_trace::{Consumer, Piece, TraceError, TraceReader, TracedAccess};
use serde::Serialize;

/// Cores of a socket of the machine.
const CORES: u32 = 10;
/// A thread with a smaller share of the accesses than this is left where the first is: it waits.
const IDLE: f64 = 1e-3;
/// Placements whose costs differ by less are as good as each other.
const ALIKE: f64 = 0.01;
/// Counts of less than this share of all that comes from other cores are not compared.
const FEW: f64 = 0.01;

/// Why a trace cannot be held against the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The machine cannot be simulated.
    #[error(transparent)]
    Machine(#[from] ConfigError),
    /// There is nobody to place.
    #[error(
        "it has {0} threads that do anything; from 2 to 10 can be placed on two sockets of ten cores"
    )]
    Threads(usize),
}

/// A placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All on one socket.
    Together,
    /// The first half on one socket, the second on the other.
    Halves,
    /// One on this socket, the next on the other.
    Alternating,
    /// The last alone on the other.
    LastApart,
}

impl Placement {
    /// All.
    pub const ALL: [Self; 4] = [
        Self::Together,
        Self::Halves,
        Self::Alternating,
        Self::LastApart,
    ];

    /// The socket of one of so many threads.
    fn socket(self, thread: usize, count: usize) -> u32 {
        u32::from(match self {
            Self::Together => false,
            Self::Halves => thread >= count / 2,
            Self::Alternating => thread % 2 == 1,
            Self::LastApart => thread + 1 == count,
        })
    }

    /// A CPU for each thread that works, each on a core of its own; the others are with the first.
    fn cpus(self, works: &[bool]) -> Vec<u32> {
        let count = works.iter().filter(|&&works| works).count();
        let mut used = [0_u32; 2];
        let mut at = 0;
        let cpu = |&works: &bool| {
            if !works {
                return 0;
            }
            let socket = self.socket(at, count);
            at += 1;
            let core = used[socket as usize];
            used[socket as usize] += 1;
            socket * CORES + core
        };
        works.iter().map(cpu).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Halves => "halves",
            Self::Alternating => "alternating",
            Self::LastApart => "last apart",
        }
    }
}

/// What simulated caches or the model say of one placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Said {
    /// Requests that cores of the other socket had to answer: lines and rights to store.
    pub between_sockets: f64,
    /// The same of all other cores.
    pub between_cores: f64,
    /// Cycles of all threads.
    pub cycles: f64,
}

/// One placement of one program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// Which.
    pub placement: Placement,
    /// What the caches counted.
    pub simulated: Said,
    /// What the model foretold.
    pub modelled: Said,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// Its threads that did anything.
    pub threads: usize,
    /// Accesses of the trace.
    pub accesses: u64,
    /// The trace has all of the program.
    pub complete: bool,
    /// By placement.
    pub placements: Vec<Placed>,
}

impl Replayed {
    /// Whether the model has the placements in the order of the simulated costs: of each two that differ by more than
    /// a hundredth the same is better.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        let mut pairs = (0..self.placements.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs.all(|(a, b)| {
            let [a, b] = [a, b].map(|at| &self.placements[at]);
            let simulated = a.simulated.cycles / b.simulated.cycles - 1.0;
            let modelled = a.modelled.cycles / b.modelled.cycles - 1.0;
            simulated.abs() < ALIKE || simulated.signum() == modelled.signum()
        })
    }

    /// By how much of the simulated counts between sockets the model is off, at worst; `None` where there are few.
    #[must_use]
    pub fn worst_count(&self) -> Option<f64> {
        let counts = self.placements.iter().filter_map(|one| {
            let simulated = one.simulated.between_sockets;
            let all = simulated + one.simulated.between_cores;
            (simulated > FEW * all).then(|| (one.modelled.between_sockets / simulated - 1.0).abs())
        });
        counts.max_by(f64::total_cmp)
    }
}

/// Replays a kept trace at all placements.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(path: &Path) -> Result<Replayed, ReplayError> {
    let (counts, complete) = count(path)?;
    let all: u64 = counts.iter().sum();
    let does = |&count: &u64| count as f64 > IDLE * all as f64;
    let works: Vec<bool> = counts.iter().map(does).collect();
    let threads = works.iter().filter(|&&works| works).count();
    if !(2..=CORES as usize).contains(&threads) {
        return Err(ReplayError::Threads(threads));
    }
    let costs = MachineKind::TwoSockets.build();
    let two = synthetic::two_sockets_of_ten();
    let cpus = Placement::ALL.map(|placement| placement.cpus(&works));
    let placed = cpus.iter().map(|cpus| hierarchy(&two, cpus));
    let mut caches = Caches {
        alone: alone(&works)?,
        placed: placed.collect::<Result<_, _>>()?,
    };
    TraceReader::open(path)?.replay(&mut caches)?;
    let profiles = profiles(&caches.alone.finish(), &counts);
    let reports = caches.placed.into_iter().map(Hierarchy::finish);
    let placed = |((placement, cpus), report): ((Placement, &Vec<u32>), Report)| Placed {
        placement,
        simulated: counted(&report, all, &costs),
        modelled: foretold(&profiles, &counts, cpus, &costs),
    };
    let placements = Placement::ALL
        .into_iter()
        .zip(&cpus)
        .zip(reports)
        .map(placed);
    Ok(Replayed {
        threads,
        accesses: all,
        complete,
        placements: placements.collect(),
    })
}

/// Accesses by thread, and whether the trace has all of the program.
fn count(path: &Path) -> Result<(Vec<u64>, bool), ReplayError> {
    let mut counts = Vec::new();
    let mut all = false;
    let mut reader = TraceReader::open(path)?;
    while let Some(piece) = reader.piece()? {
        match piece {
            Piece::Accesses(accesses) => {
                for access in accesses {
                    let thread = usize::from(access.thread);
                    if thread >= counts.len() {
                        counts.resize(thread + 1, 0);
                    }
                    // Those that are not told count as well: their lines are the thread's own.
                    counts[thread] += 1 + u64::from(access.before);
                }
            }
            Piece::End { complete } => all = complete,
            Piece::Event(_) | Piece::Tables(_) => {}
        }
    }
    Ok((counts, all))
}

/// The caches of machines to which the same happens.
struct Caches {
    alone: Hierarchy,
    placed: Vec<Hierarchy>,
}

impl Consumer for Caches {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        let accesses: Vec<Access> = batch.iter().map(TracedAccess::access).collect();
        self.alone.run(&accesses);
        self.placed.iter_mut().for_each(|it| it.run(&accesses));
    }
}

/// Each thread that works on a socket of its own, the others with the first.
fn alone(works: &[bool]) -> Result<Hierarchy, ConfigError> {
    let shape = Shape {
        sockets: CORES,
        cores_per_llc: 1,
        // What a thread had stays in its own caches until another wants it.
        l2_bytes: synthetic::TWO_SOCKETS_OF_TEN.l3_bytes,
        ..synthetic::TWO_SOCKETS_OF_TEN
    };
    let mut next = 0;
    let cpus = works.iter().map(|&works| {
        next += u32::from(works);
        if works { next - 1 } else { 0 }
    });
    hierarchy(&shape.build(), &cpus.collect::<Vec<_>>())
}

fn hierarchy(topology: &Topology, cpus: &[u32]) -> Result<Hierarchy, ConfigError> {
    let mut config = Config::from_topology(topology)?;
    config.place(cpus)?;
    Hierarchy::new(&config)
}

/// What each thread does, by its counts: an access is a useful cycle.
fn profiles(report: &Report, counts: &[u64]) -> Vec<Thread> {
    let profile = |(at, &accesses): (usize, &u64)| {
        let served = report.threads.get(at).copied().unwrap_or_default();
        let rate = |all: &[Served]| {
            let count: u64 = all.iter().map(|&by| served.served(by)).sum();
            count as f64 / accesses.max(1) as f64
        };
        // Its lines come from who had them; a right to store is asked of who read them.
        let lines = rate(&[Served::Peer, Served::OtherGroup, Served::OtherSocket]);
        let rights = served.upgrades() as f64 / accesses.max(1) as f64;
        let moved = |from: usize, to: usize| {
            let moved = report.thread_transfers.get(from as u16, to as u16);
            moved.total() as f64
        };
        let others = || (0..counts.len()).filter(|&other| other != at);
        let came: f64 = others().map(|other| moved(other, at)).sum();
        let went: f64 = others().map(|other| moved(at, other)).sum();
        let partners = others().map(|other| {
            let line = lines * moved(other, at) / came.max(1.0);
            let right = rights * moved(at, other) / went.max(1.0);
            (other as u32, line + right)
        });
        Thread {
            phase: Phase {
                transfers: lines + rights,
                misses: rate(&[Served::LocalDram, Served::RemoteDram]),
                accesses: rate(&[Served::Llc]),
                ..Phase::COMPUTES
            },
            partners: partners.filter(|&(_, part)| part > 0.0).collect(),
        }
    };
    counts.iter().enumerate().map(profile).collect()
}

/// What caches counted, and what that costs by the model's latencies.
fn counted(report: &Report, accesses: u64, machine: &SimulatedMachine) -> Said {
    let costs = &machine.costs;
    let served = |by| report.total.served(by) as f64;
    let [near, _, far] = costs.transfer_cycles;
    let memory = served(Served::LocalDram) * costs.local_cycles
        + served(Served::RemoteDram) * costs.remote_cycles;
    let between_sockets = report.inter_socket.events() as f64;
    let between_cores = report.intra_socket.events() as f64;
    Said {
        between_sockets,
        between_cores,
        cycles: accesses as f64
            + between_cores * near
            + between_sockets * far
            + memory / Phase::COMPUTES.parallel,
    }
}

fn foretold(threads: &[Thread], counts: &[u64], cpus: &[u32], machine: &SimulatedMachine) -> Said {
    let mut said = Said::default();
    for (cost, &accesses) in thread_costs(machine, threads, cpus).iter().zip(counts) {
        let [core, llc, socket] = cost.transfers.map(|rate| rate * accesses as f64);
        said.between_sockets += socket;
        said.between_cores += core + llc;
        said.cycles += cost.cycles * accesses as f64;
    }
    said
}

/// The figures of some programs, by name, 80 columns wide.
#[must_use]
pub fn replay_table(programs: &[(String, Replayed)]) -> String {
    let mut out = String::from(
        "Replayed on two sockets of ten cores; requests that cores of the other socket answer\n",
    );
    for (name, replayed) in programs {
        let (threads, accesses) = (replayed.threads, replayed.accesses);
        let _ = write!(out, "\n{name}: {threads} threads, {accesses} accesses");
        out.push_str(if replayed.complete {
            "\n"
        } else {
            ", cut off\n"
        });
        out.push_str("  placement      simulated    modelled       simulated cost   modelled\n");
        let best = |of: fn(&Placed) -> f64| {
            let costs = replayed.placements.iter().map(of);
            costs.fold(f64::INFINITY, f64::min)
        };
        let simulated = best(|one| one.simulated.cycles);
        let modelled = best(|one| one.modelled.cycles);
        for one in &replayed.placements {
            let _ = writeln!(
                out,
                "  {:12} {:11.0} {:11.0} {:>20.3} {:>10.3}",
                one.placement.name(),
                one.simulated.between_sockets,
                one.modelled.between_sockets,
                one.simulated.cycles / simulated,
                one.modelled.cycles / modelled,
            );
        }
        let order = if replayed.is_ordered() {
            "right"
        } else {
            "WRONG"
        };
        let counts = replayed.worst_count().map_or_else(
            || "few requests between sockets".to_owned(),
            |worst| format!("counts off by {:.1} % at most", worst * 100.0),
        );
        let _ = writeln!(out, "  order {order}, {counts}");
    }
    out
}

#[cfg(test)]
mod tests {
    use linewise_cache::Kind;
    use linewise_trace::{KeepTrace, TraceTables, TraceWriter};

    use super::*;

    fn kept(name: &str, accesses: &[TracedAccess]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("{name}-{}.trace", std::process::id()));
        let keep = KeepTrace {
            path: path.clone(),
            max_bytes: u64::MAX,
        };
        let mut writer = TraceWriter::create(&keep).unwrap();
        writer.accesses(accesses);
        writer.close(&TraceTables::default());
        path
    }

    /// Thread `thread` stores to a word of the line with this number.
    fn store(thread: u16, line: u64) -> TracedAccess {
        TracedAccess {
            address: 0x10_0000 + line * 64,
            time_ns: 0,
            site: 0,
            before: 0,
            size: 8,
            thread,
            kind: Kind::Store,
            orders: false,
        }
    }

    #[test]
    fn two_pairs_that_share_a_line_each_are_best_where_no_pair_is_cut() {
        // Threads 0 and 2 share, 1 and 3.
        let round = [store(0, 1), store(1, 2), store(2, 1), store(3, 2)];
        let path = kept("pairs", &round.repeat(5_000));
        let replayed = replay(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(replayed.complete && replayed.is_ordered(), "{replayed:?}");
        assert_eq!((replayed.threads, replayed.accesses), (4, 20_000));
        let of = |placement| {
            let mut all = replayed.placements.iter();
            *all.find(|one| one.placement == placement).unwrap()
        };
        // Every access finds its line with the other; of the last apart half of them.
        let halves = of(Placement::Halves);
        assert!(
            (halves.simulated.between_sockets / 20_000.0 - 1.0).abs() < 0.01,
            "{halves:?}"
        );
        let last = of(Placement::LastApart);
        assert!(
            (last.simulated.between_sockets / 10_000.0 - 1.0).abs() < 0.01,
            "{last:?}"
        );
        assert!(of(Placement::Alternating).simulated.between_sockets < 10.0);
        assert!(replayed.worst_count().unwrap() < 0.01, "{replayed:?}");
        assert!(replay_table(&[("pairs".to_owned(), replayed)]).contains("order right"));
    }

    #[test]
    fn one_thread_is_nobody_to_place() {
        let path = kept("alone", &[store(0, 1), store(0, 2)]);
        let error = replay(&path).unwrap_err();
        std::fs::remove_file(path).unwrap();
        assert!(matches!(error, ReplayError::Threads(1)), "{error}");
    }
}
