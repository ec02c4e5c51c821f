//! Counts what valgrind's cachegrind counts, from the accesses of the exact source: references and
//! misses of a first-level data cache and of a last level behind it, as a line of JSON. `cargo xtask
//! cachegrind` compares the two.
//!
//! ```sh
//! cargo build --release -p linewise-tracer
//! cargo run --release -p linewise-collect --example exact_counts -- 32768,8 8388608,16 ./program
//! ```
//!
//! Each cache is given as bytes and ways; a line has 64 bytes.

use std::ffi::OsString;

use linewise_cache::hierarchy::{CacheShape, Config, Hierarchy, Level};
use linewise_cache::{Access, Kind};
use linewise_collect::exact::{ExactOptions, trace};
use linewise_machine::signals::StopSignals;
use linewise_trace::{Consumer, TracedAccess};

struct Simulation {
    hierarchy: Hierarchy,
    batch: Vec<Access>,
    loads: u64,
    stores: u64,
    updates: u64,
}

impl Consumer for Simulation {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.batch.clear();
        self.batch.extend(batch.iter().map(TracedAccess::access));
        for access in &self.batch {
            match access.kind {
                Kind::Load => self.loads += 1,
                Kind::Store => self.stores += 1,
                Kind::Update => self.updates += 1,
            }
        }
        self.hierarchy.run(&self.batch);
    }
}

fn shape(text: &str) -> Result<CacheShape, Box<dyn std::error::Error>> {
    let (bytes, ways) = text.split_once(',').ok_or("a cache is BYTES,WAYS")?;
    Ok(CacheShape::new(bytes.parse()?, ways.parse()?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut cache = || -> Result<CacheShape, Box<dyn std::error::Error>> {
        let word = words
            .next()
            .ok_or("usage: exact_counts D1 LL COMMAND, a cache is BYTES,WAYS")?;
        shape(&word.to_string_lossy())
    };
    let config = Config::cachegrind(cache()?, cache()?);
    let command: Vec<OsString> = words.collect();
    let mut simulation = Simulation {
        hierarchy: Hierarchy::new(&config)?,
        batch: Vec::new(),
        loads: 0,
        stores: 0,
        updates: 0,
    };
    let outcome = trace(
        &ExactOptions::new(command),
        &StopSignals::block()?,
        &mut simulation,
    )?;
    for loss in &outcome.losses {
        eprintln!("loss: {} {}: {}", loss.what, loss.count, loss.detail);
    }
    let report = simulation.hierarchy.finish();
    // Not the target's output, which may be anything.
    eprintln!(
        "{{\"loads\": {}, \"stores\": {}, \"updates\": {}, \"d1_misses\": {}, \"ll_misses\": {}, \
         \"threads\": {}, \"losses\": {}}}",
        simulation.loads,
        simulation.stores,
        simulation.updates,
        report.total.misses(Level::L1),
        report.total.misses(Level::Llc),
        outcome.threads.len(),
        outcome.losses.len(),
    );
    Ok(())
}
