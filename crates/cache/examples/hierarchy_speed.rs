//! How many accesses a second of CPU time can be simulated?
//!
//! Method: streams that hit, that miss, and that share, each simulated several times on several
//! machines after a first round that is not counted; the fastest and the median round are printed
//! in millions of accesses a second of this thread's CPU time (from `/proc/thread-self/schedstat`,
//! which counts in ticks of up to 4 ms), so that other processes disturb little. All
//! classification is on; there is no other mode.
//!
//! Finding, on two busy CPUs of a virtual machine: hits of the line used last cost about 12 ns,
//! other hits 25 ns, misses that the second level serves about 120 ns. Lines at random in a
//! footprint whose records exceed the host's second-level cache cost 400 ns, most of it the host's
//! own cache and TLB misses (a quarter less with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`).
//!
//! ```text
//! stream                                 machine          best M/s    median L1 miss  LLC m.
//! walk 16 KiB, one thread                2 sockets x 10       83.4      83.3    0.0%    0.0%
//! random in 16 KiB, one thread           2 sockets x 10       41.7      41.7    0.0%    0.0%
//! random lines in 128 KiB                vm, 2 cores          11.9      11.6   62.5%    0.0%
//! every line of 128 MiB in order         vm, 2 cores           5.3       5.0  100.0%  100.0%
//! random lines in 16 MiB                 vm, 2 cores           2.3       2.1   99.7%    2.2%
//! ```
//!
//! ```text
//! cargo run --release -p linewise-cache --example hierarchy_speed
//! cargo run --release -p linewise-cache --example hierarchy_speed -- walk order
//! ```
//!
//! Words on the command line choose the streams whose names contain one of them; a number is that
//! of the accesses in a round.

use std::process::ExitCode;

use linewise_cache::hierarchy::{CacheShape, Config, Hierarchy, Level, Report};
use linewise_cache::{Access, Kind};
use linewise_topology::synthetic;

const ACCESSES: u64 = 1 << 22;
const ROUNDS: usize = 5;

/// CPU time of this thread, ns.
fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// Makes the `i`th access of a stream.
type Maker = fn(u64, &mut Dice) -> Access;

fn access(address: u64, kind: Kind, thread: u64, site: u64) -> Access {
    Access {
        address,
        size: 8,
        kind,
        thread: thread as u16,
        site: site as u32,
    }
}

fn load_or_store(i: u64) -> Kind {
    if i % 4 == 3 { Kind::Store } else { Kind::Load }
}

const STREAMS: [(&str, Maker); 9] = [
    ("walk 16 KiB, one thread", |i, _| {
        access(0x10_0000 + i * 8 % (16 << 10), load_or_store(i), 0, i % 8)
    }),
    ("random in 16 KiB, one thread", |i, dice| {
        access(
            0x10_0000 + dice.below(2 << 10) * 8,
            load_or_store(i),
            0,
            i % 8,
        )
    }),
    ("walk 16 KiB, a thread a core, in turn", |i, _| {
        let thread = i % 2;
        let at = i / 2 * 8 % (16 << 10);
        access((thread + 1) << 24 | at, load_or_store(i), thread, i % 8)
    }),
    ("stack and 1 MiB, nine to one", |i, dice| {
        let at = if i % 10 == 0 {
            0x100_0000 + dice.below(16 << 10) * 64
        } else {
            0x10_0000 + dice.below(512) * 8
        };
        access(at, load_or_store(i), 0, i % 8)
    }),
    ("random lines in 128 KiB", |i, dice| {
        access(
            0x100_0000 + dice.below(2 << 10) * 64,
            load_or_store(i),
            0,
            i % 8,
        )
    }),
    ("random lines in 16 MiB", |i, dice| {
        access(
            0x100_0000 + dice.below(256 << 10) * 64,
            load_or_store(i),
            0,
            i % 8,
        )
    }),
    ("every line of 128 MiB in order", |i, _| {
        access(
            0x1000_0000 + i * 64 % (128 << 20),
            load_or_store(i),
            0,
            i % 8,
        )
    }),
    ("random lines in 256 MiB", |i, dice| {
        access(
            0x1000_0000 + dice.below(4 << 20) * 64,
            load_or_store(i),
            0,
            i % 8,
        )
    }),
    ("two threads update one line", |i, _| {
        access(0x10_0000 + i % 2 * 8, Kind::Update, i % 2, i % 2)
    }),
];

fn stream(make: Maker) -> Vec<Access> {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    (0..accesses()).map(|i| make(i, &mut dice)).collect()
}

/// Whether a stream is asked for on the command line; all are if none is.
fn wanted(name: &str) -> bool {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| word.parse::<u64>().is_err())
        .peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// Accesses of a stream: the number on the command line, if there is one.
fn accesses() -> u64 {
    std::env::args()
        .find_map(|word| word.parse().ok())
        .unwrap_or(ACCESSES)
}

/// Fastest and median speed in accesses a second of CPU time, and the report.
fn measure(config: &Config, accesses: &[Access]) -> Option<(f64, f64, Report)> {
    let mut hierarchy = Hierarchy::new(config).ok()?;
    hierarchy.run(accesses);
    let mut speeds = Vec::new();
    for _ in 0..ROUNDS {
        let before = cpu_ns()?;
        hierarchy.run(accesses);
        let spent = cpu_ns()?.saturating_sub(before).max(1);
        speeds.push(accesses.len() as f64 * 1e9 / spent as f64);
    }
    speeds.sort_by(f64::total_cmp);
    Some((speeds[ROUNDS - 1], speeds[ROUNDS / 2], hierarchy.finish()))
}

fn main() -> ExitCode {
    if cpu_ns().is_none() {
        eprintln!("/proc/thread-self/schedstat cannot be read; CPU time is measured with it");
        return ExitCode::FAILURE;
    }
    let mut machines = Vec::new();
    for (name, topology) in [
        ("vm, 2 cores", synthetic::virtual_machine_of_two()),
        ("2 sockets x 10", synthetic::two_sockets_of_ten()),
        ("EPYC, 8 CCXs", synthetic::epyc_of_eight_ccxs()),
    ] {
        match Config::from_topology(&topology) {
            Ok(config) => machines.push((name, config)),
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    machines.push((
        "cachegrind",
        Config::cachegrind(CacheShape::new(32 << 10, 8), CacheShape::new(8 << 20, 16)),
    ));
    println!(
        "{:<38} {:<15} {:>9} {:>9} {:>7} {:>7} {:>10}",
        "stream", "machine", "best M/s", "median", "L1 miss", "LLC m.", "transfers"
    );
    for (stream_name, make) in STREAMS {
        if !wanted(stream_name) {
            continue;
        }
        let accesses = stream(make);
        for (name, config) in &machines {
            let Some((best, median, report)) = measure(config, &accesses) else {
                continue;
            };
            let share = |level| {
                100.0 * report.total.misses(level) as f64 / report.total.accesses().max(1) as f64
            };
            println!(
                "{stream_name:<38} {name:<15} {:>9.1} {:>9.1} {:>6.1}% {:>6.1}% {:>10}",
                best / 1e6,
                median / 1e6,
                share(Level::L1),
                share(Level::Llc),
                report.core_transfers.total().total(),
            );
        }
    }
    ExitCode::SUCCESS
}
