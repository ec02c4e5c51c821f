//! How many accesses the exact source records and hands out, per second of CPU time of target and
//! collector together.
//!
//! Method: trace the given command with a consumer that only adds addresses up; read the CPU time of
//! this process and of its children (the target under QEMU) before and after.
//!
//! ```sh
//! cargo build --release -p linewise-tracer
//! cargo run --release -p linewise-collect --example exact_speed -- ./program arguments
//! ```

use std::ffi::OsString;

use linewise_collect::exact::{Consumer, ExactOptions, TracedAccess, trace};

#[derive(Default)]
struct Sum {
    accesses: u64,
    addresses: u64,
}

impl Consumer for Sum {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.accesses += batch.len() as u64;
        self.addresses = batch.iter().fold(self.addresses, |sum, access| {
            sum.wrapping_add(access.address)
        });
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut options = ExactOptions::new(command);
    if let Some(one_in) = std::env::var("ONE_LINE_IN")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        options.one_line_in = one_in;
    }
    let mut sum = Sum::default();
    let before = cpu_seconds().unwrap_or_default();
    let start = std::time::Instant::now();
    let outcome = trace(&options, &mut sum)?;
    let wall = start.elapsed().as_secs_f64();
    let after = cpu_seconds().unwrap_or_default();
    let (own, target) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{} accesses, {:.2} s wall, CPU: target {target:.2} s, collector {own:.2} s: {:.1} million a \
         second of CPU time; waited {:.3} s in {} waits; {} late; {} instructions, {} threads; sum {:x}",
        outcome.totals.accesses,
        wall,
        outcome.totals.accesses as f64 / (own + target) / 1e6,
        outcome.waited_ns as f64 / 1e9,
        outcome.totals.waits,
        outcome.totals.late,
        outcome.instructions.len(),
        outcome.threads.len(),
        sum.addresses,
    );
    for loss in &outcome.losses {
        println!("loss: {} {}: {}", loss.what, loss.count, loss.detail);
    }
    println!("ended: {:?}", outcome.ended);
    Ok(())
}
