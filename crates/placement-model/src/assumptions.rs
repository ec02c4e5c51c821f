//! What the model takes for granted, each figure with its source. None was chosen by what comes out.

/// An assumption: what, how much, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Assumption {
    /// What is assumed.
    pub what: &'static str,
    /// How much, with its unit.
    pub value: &'static str,
    /// Where it was measured, or why it is so.
    pub source: &'static str,
}

/// Cycles a second of the paper's processors (SAM, section 4).
pub(crate) const IVY_BRIDGE_HZ: f64 = 2.2e9;
/// Cycles until a modified line comes from the same die, and from one hop away (SOSP 2013). These machines have one
/// last-level cache a socket, so nothing is between.
pub(crate) const INTEL_TRANSFER_CYCLES: [f64; 3] = [109.0, 109.0, 289.0];
/// Local memory, ns (Molka and others, 2015).
pub(crate) const INTEL_LOCAL_NS: f64 = 96.0;
/// Memory of the other socket, ns (Molka and others, 2015).
pub(crate) const INTEL_REMOTE_NS: f64 = 146.0;
/// Lines a second of one socket's memory: SAM's threshold is 20 % below it (section 2.2).
pub(crate) const IVY_BRIDGE_LINES: f64 = 75e6 / 0.8;
/// Cycles a second of the machines of chiplets.
pub(crate) const CHIPLET_HZ: f64 = 3.0e9;
/// Within a core complex, between two of a socket (AnandTech), between sockets (docs/measured).
pub(crate) const CHIPLET_TRANSFER_NS: [f64; 3] = [17.0, 80.0, 200.0];
/// Local memory, ns (AnandTech, Rome, NPS1, random).
pub(crate) const CHIPLET_LOCAL_NS: f64 = 122.0;
/// Memory of the other socket, ns: farther by the ratio of the Intel machine.
pub(crate) const CHIPLET_REMOTE_NS: f64 = 185.0;
/// Lines a second of a socket's memory: 0.8 of eight channels of DDR4-3200.
pub(crate) const CHIPLET_LINES: f64 = 0.8 * 204.8e9 / 64.0;
/// Share of its speed that a task keeps beside another on the same core: throughput of two is 1.2 of one.
pub(crate) const SMT_SPEED: f64 = 0.6;
/// Lines that come at once while caches fill after a move.
pub(crate) const WARM_UP_PARALLEL: f64 = 4.0;
/// Share of a moved task's lines that are modified, so that they come from the old cache and not from memory.
pub(crate) const DIRTY: f64 = 0.3;
/// Bytes of a line.
pub(crate) const LINE_BYTES: f64 = 64.0;
/// Counters: deviation of a rate in an interval, as share of it.
pub(crate) const COUNTER_NOISE: f64 = 0.08;
/// Counters: deviation of transfers within a socket, as share of the misses of private caches from which they are the rest.
pub(crate) const REST_NOISE: f64 = 0.03;
/// Sampled sharing: transfers seen in an interval, on the whole machine.
pub(crate) const SAMPLES: f64 = 100.0;
/// Sampled sharing: what of the last interval's estimate stays in the next.
pub(crate) const MEMORY: f64 = 0.8;

/// All of them, as they stand in `docs/design/placement-model.md`.
pub const ASSUMPTIONS: &[Assumption] = &[
    Assumption {
        what: "a line from another core, Intel: same socket, other socket",
        value: "109, 289 cycles",
        source: "David, Guerraoui, Trigonakis: Everything you always wanted to know about synchronization, SOSP 2013, \
                 table 2, Xeon, loads of modified lines. Their difference of 180 cycles agrees with SAM's own threshold \
                 (section 2.1: 2.5e-4 events a cycle cost 5 %, so 200 cycles an event)",
    },
    Assumption {
        what: "memory, Intel: local, remote",
        value: "96, 146 ns",
        source: "Molka, Hackenberg, Schöne, Nagel: Cache coherence protocol and memory performance of the Intel \
                 Haswell-EP architecture, ICPP 2015",
    },
    Assumption {
        what: "lines a second of a socket's memory, Intel",
        value: "93.75 million",
        source: "SAM, section 2.2: the threshold of 75 million is 20 % below",
    },
    Assumption {
        what: "a line from another core, chiplets: same LLC, other LLC, other socket",
        value: "17, 80, 200 ns",
        source: "AnandTech, Ryzen 7950X: 15 to 19 and up to 79.5 ns; docs/measured.md: half of the round trip of 340 to \
                 460 ns of the development machine in its far state. Servers between complexes are slower than this, \
                 so the figure speaks against the placer",
    },
    Assumption {
        what: "memory, chiplets: local, remote",
        value: "122, 185 ns",
        source: "AnandTech, EPYC 7742, 128 MiB at random, NPS1; remote by the ratio of the Intel machine",
    },
    Assumption {
        what: "lines a second of a socket's memory, chiplets",
        value: "2,560 million",
        source: "0.8 of eight channels of DDR4-3200 (JEDEC JESD79-4)",
    },
    Assumption {
        what: "waiting for memory",
        value: "service time x u / (2 (1 - u))",
        source: "M/D/1 queue (Pollaczek, Khinchine), u the used share of the memory's lines a second",
    },
    Assumption {
        what: "speed beside another task on the core",
        value: "0.6 of computing; waiting is not slowed",
        source: "Tuck, Tullsen: Initial observations of the simultaneous multithreading Pentium 4, PACT 2003: 1.2 times \
                 the throughput",
    },
    Assumption {
        what: "an LLC that does not hold all working sets",
        value: "accesses miss in proportion to what does not fit",
        source: "random replacement; a program's common data count once in each LLC where it runs",
    },
    Assumption {
        what: "after a move",
        value: "private caches, or the working set if the LLC changes, come anew, four lines at once; 0.3 are modified \
                and count as transfers",
        source: "Li, Ding, Shen: Quantifying the cost of context switch, ExpCS 2007: up to 1.5 ms",
    },
    Assumption {
        what: "pages",
        value: "stay where they were touched first: a task's own where it was born, common ones where the program's \
                first task was",
        source: "Linux without automatic balancing; SAM moves no pages",
    },
    Assumption {
        what: "counters",
        value: "8 % deviation in an interval; transfers within the socket are a rest, 3 % of private misses",
        source: "SAM, section 2.3: seven events by turns in two iterations of a tick of 1 ms, so 50 of 100 parts are \
                 seen; a rest is less certain than a count",
    },
    Assumption {
        what: "sampled sharing",
        value: "100 transfers seen an interval on the whole machine, drawn in proportion; the estimate halves in 0.3 s",
        source: "assumed of a light recording, not measured",
    },
    Assumption {
        what: "threads of a program",
        value: "do not wait for each other but at the ends of phases",
        source: "the paper tells nothing of waiting; a slow thread would cost more if they did",
    },
];
