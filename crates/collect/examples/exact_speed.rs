//! How many accesses the exact source records, hands out and analyses, per second of CPU time of
//! target and collector together.
//!
//! Method: trace the given command with a consumer of the given mode; read the CPU time of this
//! process and of its children (the target under QEMU) before and after. `cargo xtask slowdown` runs
//! it beside the bare program and cachegrind.
//!
//! | mode | what becomes of the accesses |
//! |---|---|
//! | `count` | added up |
//! | `lines` | one line in 64 is recorded, and goes through a reuse tracker |
//! | `shards` | all are recorded; a reuse tracker follows one line in 64 |
//! | `exact` | a reuse tracker follows all lines |
//! | `caches` | a coherent hierarchy, one core a thread |
//! | `all` | the last two |
//!
//! ```sh
//! cargo build --release -p linewise-tracer
//! cargo run --release -p linewise-collect --example exact_speed -- count ./program arguments
//! ```

use std::error::Error;
use std::ffi::OsString;

use linewise_cache::Access;
use linewise_cache::hierarchy::{CacheShape, Config, Hierarchy};
use linewise_cache::reuse::{Choice, ReuseOptions, ReuseTracker, Sampling};
use linewise_collect::exact::{ExactOptions, trace};
use linewise_machine::signals::StopSignals;
use linewise_trace::{Consumer, TracedAccess};

/// One line in so many, where lines are chosen.
const ONE_IN: u32 = 64;

#[derive(Default)]
struct Work {
    accesses: u64,
    addresses: u64,
    tracker: Option<ReuseTracker>,
    hierarchy: Option<Hierarchy>,
    batch: Vec<Access>,
}

impl Work {
    fn new(mode: &str) -> Result<Self, Box<dyn Error>> {
        let rate = 1.0 / f64::from(ONE_IN);
        let sampling = match mode {
            "count" | "caches" => None,
            "lines" => Some(Sampling::Thinned { rate }),
            "shards" => Some(Sampling::FixedRate {
                rate,
                choice: Choice::Hashed,
            }),
            "exact" | "all" => Some(Sampling::Exact),
            _ => return Err(format!("{mode}: no mode; see the head of the example").into()),
        };
        let tracker = sampling.map(|sampling| {
            ReuseTracker::new(&ReuseOptions {
                sampling,
                ..ReuseOptions::default()
            })
        });
        let private = |bytes, ways| CacheShape::new(bytes, ways);
        let machine = || {
            Config::uniform(1, 8, private(32 << 10, 8))
                .with_l2(private(1 << 20, 16))
                .with_llc(CacheShape::new(32 << 20, 16))
        };
        let hierarchy = ["caches", "all"]
            .contains(&mode)
            .then(|| Hierarchy::new(&machine()));
        Ok(Self {
            tracker: tracker.transpose()?,
            hierarchy: hierarchy.transpose()?,
            ..Self::default()
        })
    }
}

impl Consumer for Work {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.accesses += batch.len() as u64;
        if self.tracker.is_none() && self.hierarchy.is_none() {
            self.addresses = batch.iter().fold(self.addresses, |sum, access| {
                sum.wrapping_add(access.address)
            });
            return;
        }
        self.batch.clear();
        self.batch.extend(batch.iter().map(TracedAccess::access));
        if let Some(tracker) = &mut self.tracker {
            tracker.record(&self.batch);
        }
        if let Some(hierarchy) = &mut self.hierarchy {
            hierarchy.run(&self.batch);
        }
    }
}

/// CPU time of this process and of its ended children, in seconds, by the kernel's ticks.
fn cpu_seconds() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<f64> = fields
        .split(' ')
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // proc(5): utime, stime, cutime, cstime are fields 14 to 17; this starts at field 3, and a tick
    // is a hundredth of a second.
    Some((
        (fields.get(11)? + fields.get(12)?) / 100.0,
        (fields.get(13)? + fields.get(14)?) / 100.0,
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let mode = words.next().ok_or("usage: exact_speed MODE COMMAND")?;
    let mode = mode.to_string_lossy();
    let command: Vec<OsString> = words.collect();
    let mut work = Work::new(&mode)?;
    let mut options = ExactOptions::new(command);
    if mode == "lines" {
        options.one_line_in = ONE_IN;
    }
    let before = cpu_seconds().unwrap_or_default();
    let start = std::time::Instant::now();
    let outcome = trace(&options, &StopSignals::block()?, &mut work)?;
    let wall = start.elapsed().as_secs_f64();
    let after = cpu_seconds().unwrap_or_default();
    for loss in &outcome.losses {
        eprintln!("loss: {} {}: {}", loss.what, loss.count, loss.detail);
    }
    // Not the target's output, which may be anything.
    eprintln!(
        "{{\"accesses\": {}, \"wall_s\": {wall:.3}, \"target_cpu_s\": {:.2}, \"collector_cpu_s\": {:.2}, \
         \"waited_s\": {:.3}, \"waits\": {}, \"late\": {}, \"threads\": {}, \"sum\": \"{:x}\"}}",
        outcome.totals.accesses,
        after.1 - before.1,
        after.0 - before.0,
        outcome.waited_ns as f64 / 1e9,
        outcome.totals.waits,
        outcome.totals.late,
        outcome.threads.len(),
        work.addresses,
    );
    Ok(())
}
