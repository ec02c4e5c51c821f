//! `linewise bench`: linewise against benchmarks with known answers, and its remedies against what
//! they replace.

mod accesstest;
mod fetch_add;
mod fibres;
mod placement;
mod reuse;
mod reuse_native;
mod rtt;
mod sharing;
mod time;

use std::process::ExitCode;

use clap::Subcommand;
use linewise_bench::{Workload, WorkloadSpec, run_workload};

use crate::say::out_line;

/// Arguments of `linewise bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Clone, Debug, Subcommand)]
enum Benchmark {
    /// Sharing that counts its own transfers, beside what linewise estimates of it
    Sharing(sharing::SharingArgs),
    /// Programs whose reuse distances are known, beside what the exact source measures of them
    Reuse(reuse::ReuseArgs),
    /// Run one program of `bench reuse` alone and print its truth as a line of JSON
    #[command(hide = true)]
    ReuseProgram(reuse::ProgramArgs),
    /// Increments of shared variables by locks, atomics, channels and delegation, side by side
    FetchAdd(fetch_add::FetchAddArgs),
    /// Switching, moving and beginning fibres
    Fibres(fibres::FibresArgs),
    /// Phases of a session loop and their working sets, executed in place and delegated
    Accesstest(Box<accesstest::AccesstestArgs>),
    /// Policies that place threads, on simulated machines
    Placement(placement::PlacementArgs),
    /// The core-to-core round trip of every two CPUs
    Rtt(rtt::RttArgs),
    /// Run one benchmark alone and print its truth as a line of JSON
    Workload(WorkloadArgs),
}

/// Arguments of `linewise bench workload`.
#[derive(Clone, Debug, clap::Args)]
struct WorkloadArgs {
    /// Its name: write-volume, false-sharing, read-write, point-to-point, migratory, ...
    workload: Workload,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Fraction, 0 to 1
    #[arg(long, default_value_t = 1.0)]
    fraction: f64,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs a benchmark.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.benchmark {
        Benchmark::Sharing(args) => sharing::run(&args),
        Benchmark::Reuse(args) => reuse::run(&args),
        Benchmark::ReuseProgram(args) => reuse::run_program(&args),
        Benchmark::FetchAdd(args) => fetch_add::run(&args),
        Benchmark::Fibres(args) => fibres::run(&args),
        Benchmark::Accesstest(args) => accesstest::run(&args),
        Benchmark::Placement(args) => placement::run(&args),
        Benchmark::Rtt(args) => rtt::run(&args),
        Benchmark::Workload(args) => {
            let truth = run_workload(&WorkloadSpec {
                workload: args.workload,
                threads: args.threads,
                fraction: args.fraction,
                seconds: args.seconds,
                seed: args.seed,
                cpus: Vec::new(),
            })?;
            out_line(format_args!("{}", truth.to_json_line()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
