//! Single programs: those of SAM's table 1 and the parts of its mixes (sections 4.1 to 4.3).

use crate::assumptions::INTEL_TRANSFER_CYCLES;
use crate::program::{Pattern, Phase, Processes, Program};

const MIB: f64 = 1024.0 * 1024.0;

/// Transfers a useful cycle of a program of which `inter` a cycle were counted between sockets, `crossing` of its
/// transfers cross when it is spread over both, as Linux spreads it.
fn transfers(inter: f64, crossing: f64) -> f64 {
    let [near, _, far] = INTEL_TRANSFER_CYCLES;
    let mean = crossing * far + (1.0 - crossing) * near;
    inter / (crossing - inter * mean)
}

/// Misses a useful cycle of a program of which so many a cycle were counted, so many at once, in local memory.
fn misses(counted: f64, parallel: f64) -> f64 {
    counted / (1.0 - counted * 211.0 / parallel)
}

/// Of `threads` spread evenly over two sockets, each sharing with all, what crosses.
fn halves(threads: usize) -> f64 {
    let half = threads / 2;
    (threads - half) as f64 / (threads - 1).max(1) as f64
}

/// Two threads share (section 2.1); near the largest rate of coherence (section 4.1).
#[must_use]
pub fn hubench(threads: usize) -> Program {
    let phase = Phase::COMPUTES.sharing(transfers(1.3e-3, 1.0));
    Program::new("Hubench", threads, Pattern::Pairs, &[phase])
}

/// Two threads share, just above the threshold (section 4.1).
pub(super) fn lubench(threads: usize) -> Program {
    let phase = Phase::COMPUTES.sharing(transfers(2.6e-4, 1.0));
    Program::new("Lubench", threads, Pattern::Pairs, &[phase])
}

/// Copies memory; three saturate a socket (figure 2).
pub(super) fn membench(threads: usize) -> Program {
    let phase = Phase::COMPUTES.missing(misses(0.0155, 10.0), 10.0, 1.0 * MIB);
    Program::new("MemBench", threads, Pattern::Nobody, &[phase])
}

/// Computes.
pub(super) fn cpu(threads: usize) -> Program {
    Program::new("CPU", threads, Pattern::Nobody, &[Phase::COMPUTES]).in_processes(Processes::Each)
}

/// Programs of one thread, several at once, that load from memory: misses a cycle, misses at once.
fn spec(name: &str, copies: usize, counted: f64, parallel: f64) -> Program {
    let phase = Phase::COMPUTES.missing(misses(counted, parallel), parallel, 4.0 * MIB);
    Program::new(name, copies, Pattern::Nobody, &[phase]).in_processes(Processes::Each)
}

/// A program of SPEC CPU2006 in two copies, by its name in the paper; those not said to be memory bound compute.
pub(super) fn spec_pair(name: &str) -> Program {
    match name {
        "libq" => spec(name, 2, 0.013, 8.0),
        "milc" => spec(name, 2, 0.010, 6.0),
        "soplex" => spec(name, 2, 0.008, 4.0),
        "mcf" => spec(name, 2, 0.006, 3.0),
        "omnetpp" => spec(name, 2, 0.004, 2.0),
        _ => {
            Program::new(name, 2, Pattern::Nobody, &[Phase::COMPUTES]).in_processes(Processes::Each)
        }
    }
}

/// A program whose threads share without much effect: "CPU bound" in table 1, slightly above the threshold.
fn computing(name: &str, threads: usize, inter: f64) -> Program {
    let phase = Phase::COMPUTES
        .sharing(transfers(inter, halves(threads)))
        .on_common(4.0 * MIB, 3e-3);
    Program::new(
        name,
        threads,
        Pattern::All,
        &[phase.lasting(3.0), phase.lasting(0.4).with_extra(2)],
    )
}

/// A program on graphs that shares much: it builds (threads burst), then gathers and applies (section 4.2). The sharing
/// of gathering is `inter` transfers a cycle between sockets; the data are larger than a cache.
fn graph(name: &str, threads: usize, inter: f64, gathers: f64, applies: f64) -> Program {
    let rate = transfers(inter, halves(threads));
    let base = Phase::COMPUTES
        .missing(misses(1.5e-3, 3.0), 3.0, 0.5 * MIB)
        .on_common(12.0 * MIB, 4e-3);
    let build = base
        .sharing(rate * 0.2)
        .with_extra(threads.div_ceil(4))
        .lasting(0.4);
    let gather = base.sharing(rate).lasting(gathers);
    let apply = base.sharing(rate * 0.1).lasting(applies);
    Program::new(
        name,
        threads,
        Pattern::All,
        &[build, gather, apply, gather, apply],
    )
}

/// A program of table 1 or 2 by its name there.
#[must_use]
pub fn program(name: &str, threads: usize) -> Program {
    match name {
        "Hubench" => hubench(threads),
        "Lubench" => lubench(threads),
        "MemBench" => membench(threads),
        "CPU" => cpu(threads),
        "TunkRank" => graph(name, threads, 1.3e-3, 1.5, 0.6),
        "SGD" => graph(name, threads, 1.0e-3, 2.0, 0.4),
        "BSGD" => graph(name, threads, 1.0e-3, 1.6, 0.4),
        "SVD" => graph(name, threads, 1.2e-3, 1.8, 0.3),
        "LSGD" => graph(name, threads, 0.9e-3, 1.6, 0.5),
        "Canneal" | "RBM" | "PMF" => computing(name, threads, 3.0e-4),
        "Bodytrack" | "ALS small" => computing(name, threads, 2.6e-4),
        "ALS" => computing(name, threads, 2.8e-4),
        _ => spec_pair(name),
    }
}

/// Table 1: name, threads, and the migrations that SAM made for coherence and remote memory.
pub const TABLE_1: [(&str, usize, u32); 23] = [
    ("Hubench", 8, 4),
    ("Lubench", 8, 4),
    ("MemBench", 8, 0),
    ("MemBench", 6, 0),
    ("Canneal", 4, 11),
    ("Bodytrack", 4, 2),
    ("TunkRank", 4, 7),
    ("TunkRank", 10, 14),
    ("RBM", 4, 12),
    ("ALS small", 4, 1),
    ("ALS", 4, 9),
    ("ALS", 10, 10),
    ("SGD", 4, 14),
    ("SGD", 10, 17),
    ("BSGD", 4, 10),
    ("BSGD", 10, 23),
    ("SVD", 4, 13),
    ("SVD", 10, 31),
    ("PMF", 4, 20),
    ("LSGD", 4, 9),
    ("LSGD", 10, 21),
    ("SVD", 8, 28),
    ("SVD", 6, 24),
];

/// Table 2.
pub const TABLE_2: [&[(&str, usize)]; 26] = [
    &[("MemBench", 12), ("Hubench", 8)],
    &[("MemBench", 14), ("Hubench", 6)],
    &[("MemBench", 10), ("Hubench", 6), ("CPU", 4)],
    &[("libq", 2), ("bzip2", 2), ("sjeng", 2), ("omnetpp", 2)],
    &[("libq", 2), ("soplex", 2), ("gobmk", 2), ("hmmer", 2)],
    &[("mcf", 2), ("milc", 2), ("sjeng", 2), ("h264ref", 2)],
    &[("milc", 2), ("libq", 2), ("h264ref", 2), ("sjeng", 2)],
    &[
        ("mcf", 2),
        ("libq", 2),
        ("h264ref", 2),
        ("sjeng", 2),
        ("TunkRank", 4),
    ],
    &[("SGD", 10), ("BSGD", 10)],
    &[("SGD", 10), ("LSGD", 10)],
    &[("LSGD", 10), ("BSGD", 10)],
    &[("LSGD", 10), ("ALS", 10)],
    &[("SVD", 10), ("SGD", 10)],
    &[("SVD", 10), ("BSGD", 10)],
    &[("SVD", 10), ("LSGD", 10)],
    &[("SVD", 10), ("LSGD", 10)],
    &[("SGD", 20), ("BSGD", 20)],
    &[("SGD", 20), ("LSGD", 20)],
    &[("LSGD", 20), ("BSGD", 20)],
    &[("LSGD", 20), ("ALS", 20)],
    &[("SVD", 20), ("SGD", 20)],
    &[("SVD", 20), ("BSGD", 20)],
    &[("SVD", 20), ("LSGD", 20)],
    &[("BSGD", 16), ("MemBench", 10), ("CPU", 14)],
    &[("LSGD", 16), ("MemBench", 10), ("CPU", 14)],
    &[("SGD", 16), ("MemBench", 10), ("CPU", 14)],
];
