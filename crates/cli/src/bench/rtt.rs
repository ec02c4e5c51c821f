//! `linewise bench rtt`: the ping-pong between every two CPUs.

use std::process::ExitCode;
use std::time::Duration;

use linewise_bench::{RoundTrips, rtt_json, rtt_table};
use linewise_machine::affinity::allowed_cpus;
use linewise_machine::latency::measure_round_trip;

use crate::say::{out, out_line};

/// Arguments of `linewise bench rtt`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RttArgs {
    /// Measurements of each pair
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..10_000))]
    repeats: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one measurement takes.
const BUDGET: Duration = Duration::from_millis(10);

pub(super) fn run(args: &RttArgs) -> anyhow::Result<ExitCode> {
    let cpus = allowed_cpus();
    anyhow::ensure!(
        cpus.len() >= 2,
        "a round trip needs two CPUs, and this process may use only {}; see `taskset -p $$`",
        cpus.len()
    );
    let mut pairs = Vec::new();
    for (i, &cpu_a) in cpus.iter().enumerate() {
        for &cpu_b in &cpus[i + 1..] {
            let mut round_trips_ns = Vec::new();
            for _ in 0..args.repeats {
                round_trips_ns.push(measure_round_trip(cpu_a, cpu_b, BUDGET)?.median_ns);
            }
            pairs.push(RoundTrips {
                cpu_a,
                cpu_b,
                round_trips_ns,
            });
        }
    }
    if args.json {
        out_line(format_args!("{:#}", rtt_json(&pairs)))?;
    } else {
        out(format_args!("{}", rtt_table(&pairs)))?;
    }
    Ok(ExitCode::SUCCESS)
}
