//! `linewise bench fetch-add`: increments of shared variables behind locks, by an atomic
//! instruction, through channels, and delegated.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use linewise_bench::fetch_add::{
    FetchAddSpec, Operation, Progress, fetch_add_by_threads, fetch_add_counts, fetch_add_json,
    fetch_add_page, fetch_add_table, run_fetch_add,
};
use linewise_recording::write_file;

use super::time::minutes;
use crate::say::{ProgressLine, out, out_line};

/// Threads pick one of N variables of 64 bytes at random and increment it, each contender by its
/// own means: locks, an atomic instruction, channels, delegation.
///
/// Every increment's answer is checked. Contenders take turns; a figure is the harmonic mean of the
/// samples, and holds only samples made in one state of the machine, by the core-to-core round trip
/// measured beside each. The whole experiment takes hours: the number of contenders times variables
/// times samples times seconds. `--only`, `--variables`, `--samples` and `--seconds` make it short.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FetchAddArgs {
    /// Numbers of variables, 1 to 4194304; powers of four if not given
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    variables: Vec<usize>,
    /// Only contenders whose names contain one of these: pthread-mutex, pthread-spin, std-mutex,
    /// parking-lot, ticket, mcs, atomic, channel, ffwd, gepard, fibres, async-1s and so on (dedicated
    /// servers), flat-queue, flat-blocked, flat-fast-path, flat-bound, flat-doorbell
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// What is done to a variable: add (the fast server), sqrt (the slow one)
    #[arg(long, value_delimiter = ',', value_parser = operation, default_value = "add")]
    operation: Vec<Operation>,
    /// Threads, servers among them; as many as CPUs if not given. Several numbers make an experiment of
    /// each
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    threads: Vec<usize>,
    /// CPUs that the threads are pinned to in turn, servers first
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Seconds of a sample
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Samples of each figure
    #[arg(long, default_value_t = 10)]
    samples: usize,
    /// Request lines between a client and a server, 1 to 32; several make a contender of each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "16",
        value_name = "NUMBERS"
    )]
    request_lines: Vec<usize>,
    /// Lines of requests that wait in a client for each server, 0 to write request lines directly;
    /// twice the request lines if not given
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    queue_length: Vec<usize>,
    /// Calls on its own shard after which a thread serves, for flat-bound
    #[arg(long, default_value_t = 64, value_name = "CALLS")]
    bound: u32,
    /// Besides, the same with four threads on one CPU: two clients and two servers, or four that do
    /// both
    #[arg(long)]
    one_cpu: bool,
    /// Read the clock for every line, for request latency and server time in the JSON; costs speed
    #[arg(long)]
    timed: bool,
    /// Keep the requests of each delegating client in order, also those to different servers
    #[arg(long)]
    ordered: bool,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON, with every sample
    #[arg(long)]
    json: bool,
}

fn operation(name: &str) -> Result<Operation, String> {
    let mut all = Operation::ALL.into_iter();
    all.find(|operation| operation.name() == name)
        .ok_or_else(|| "there are add and sqrt".to_owned())
}

pub(super) fn run(args: &FetchAddArgs) -> anyhow::Result<ExitCode> {
    let spec = spec(args);
    let line = ProgressLine::on_a_terminal();
    let make = |spec: &FetchAddSpec| {
        let experiment = run_fetch_add(spec, |progress| line.show(&told(progress, args.seconds)));
        line.clear();
        experiment
    };
    let experiment = make(&spec)?;
    let mut others = Vec::new();
    for &threads in args.threads.iter().skip(1) {
        let spec = FetchAddSpec {
            threads,
            ..spec.clone()
        };
        others.push(make(&spec)?);
    }
    let one_cpu = if args.one_cpu {
        Some(make(&spec.on_one_cpu()?)?)
    } else {
        None
    };
    if let Some(path) = &args.html {
        write_file(
            path,
            fetch_add_page(&experiment, others.iter().chain(&one_cpu)).as_bytes(),
        )
        .with_context(|| format!("cannot write the page {}", path.display()))?;
    }
    if args.json {
        out_line(format_args!(
            "{:#}",
            fetch_add_json(&experiment, one_cpu.as_ref(), &others)
        ))?;
    } else {
        let all: Vec<_> = std::iter::once(&experiment).chain(&others).collect();
        for (number, one) in all.iter().copied().chain(&one_cpu).enumerate() {
            let between = if number > 0 { "\n" } else { "" };
            out(format_args!(
                "{between}{}\n{}",
                fetch_add_table(one),
                fetch_add_counts(one)
            ))?;
        }
        out(format_args!("\n{}", fetch_add_by_threads(&all)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn spec(args: &FetchAddArgs) -> FetchAddSpec {
    let usual = FetchAddSpec::default();
    FetchAddSpec {
        variables: if args.variables.is_empty() {
            usual.variables
        } else {
            args.variables.clone()
        },
        operations: args.operation.clone(),
        only: args.only.clone(),
        threads: args.threads.first().copied().unwrap_or(usual.threads),
        cpus: args.cpus.clone(),
        seconds: args.seconds,
        samples: args.samples,
        request_lines: args.request_lines.clone(),
        queue_lengths: args.queue_length.clone(),
        bound: args.bound,
        timed: args.timed,
        ordered: args.ordered,
        seed: args.seed,
    }
}

fn told(progress: &Progress, seconds: f64) -> String {
    let left = Duration::from_secs_f64((progress.of - progress.done) as f64 * seconds);
    let (contender, operation, variables) = progress.now;
    format!(
        "{} of {}, about {} to go: {contender}, {} among {variables}",
        progress.done + 1,
        progress.of,
        minutes(left),
        operation.name(),
    )
}
