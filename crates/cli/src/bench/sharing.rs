//! `linewise bench sharing`: each benchmark runs under the collector, as any program would, and
//! what it counted itself is printed beside what linewise estimated.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use linewise_analysis::model::Report;
use linewise_bench::{
    Comparison, Measured, Repeat, Truth, Workload, WorkloadSpec, sharing_json, sharing_table,
};
use linewise_recording::Recording;

use crate::say::{ProgressLine, out, out_line};
use crate::scratch::Scratch;

/// Arguments of `linewise bench sharing`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SharingArgs {
    /// Only these benchmarks: write-volume, write-volume-plain, false-sharing, read-write,
    /// point-to-point, migratory, producer-consumer, one-cpu, no-sharing, alternating
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<Workload>,
    /// Only these fractions, 0 to 1
    #[arg(long, value_delimiter = ',', value_name = "FRACTIONS")]
    fractions: Vec<f64>,
    /// Only this many threads
    #[arg(long)]
    threads: Option<usize>,
    /// Runs of each benchmark
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    repeats: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// What recording may cost, in percent
    #[arg(long, default_value = "2%", value_name = "PERCENT")]
    overhead: String,
    /// A short choice of benchmarks, with 2.5 times the error allowed, 5 times where threads outnumber CPUs;
    /// exit code 1 when one fails
    #[arg(long)]
    gate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much larger an error the gate allows: it runs on machines that other things run on, in few
/// and short runs.
const GATE_SLACK: f64 = 2.5;
/// The same where threads outnumber CPUs: two pairs that swap without a pause then differ in what a
/// transfer takes them by up to 1.4 times, which differs from run to run. A matrix that takes one
/// thread for another, or that spreads the transfers over all, is wrong by 1, ten times the bar.
const GATE_SLACK_CROWDED: f64 = 5.0;
/// How often the gate measures a benchmark again that missed its bar: a machine that flips its
/// latency in the middle of the runs is no fault of the code, one that misses every time is.
const GATE_TRIES: u32 = 3;

pub(super) fn run(args: &SharingArgs) -> anyhow::Result<ExitCode> {
    let cpus = linewise_machine::affinity::allowed_cpus().len();
    if cpus < 2 {
        out_line(format_args!(
            "skipped: sharing needs two CPUs, and this process may use only {cpus}"
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let specs = specs(args);
    anyhow::ensure!(
        !specs.is_empty(),
        "no benchmark is left: loosen --only, --fractions, --threads"
    );
    let mut rows = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        let place = format!("{} of {}", i + 1, specs.len());
        let mut row = compare(spec, args, &place)?;
        for _ in 0..GATE_TRIES {
            let slack = gate_slack(&row, cpus);
            if !args.gate || row.bars.iter().all(|bar| bar.passes_with(slack)) {
                break;
            }
            row = compare(spec, args, &place)?;
        }
        rows.push(row);
    }
    ProgressLine::on_a_terminal().clear();
    if args.json {
        out_line(format_args!("{:#}", sharing_json(&rows)))?;
    } else {
        out(format_args!("{}", sharing_table(&rows)))?;
    }
    Ok(if args.gate {
        gate(&rows, cpus)?
    } else {
        ExitCode::SUCCESS
    })
}

/// All runs of one benchmark.
fn compare(spec: &WorkloadSpec, args: &SharingArgs, place: &str) -> anyhow::Result<Comparison> {
    let mut repeats = Vec::new();
    for run in 1..=repeats_of(args) {
        let now = format!("{place}: {} {:.1}, run {run}", spec.workload, spec.fraction);
        ProgressLine::on_a_terminal().show(&now);
        let spec = WorkloadSpec {
            seed: u64::from(run),
            ..spec.clone()
        };
        repeats.push(measure(&spec, &args.overhead)?);
    }
    Comparison::new(repeats).context("a benchmark needs at least one run")
}

fn repeats_of(args: &SharingArgs) -> u32 {
    if args.gate {
        args.repeats.min(3)
    } else {
        args.repeats
    }
}

/// How much larger an error of a benchmark the gate allows on so many CPUs.
fn gate_slack(row: &Comparison, cpus: usize) -> f64 {
    if row.threads > cpus {
        GATE_SLACK_CROWDED
    } else {
        GATE_SLACK
    }
}

/// Prints what failed, and counts.
fn gate(rows: &[Comparison], cpus: usize) -> anyhow::Result<ExitCode> {
    let (mut passed, mut failed) = (0, 0);
    for row in rows {
        for bar in &row.bars {
            if bar.passes_with(gate_slack(row, cpus)) {
                passed += 1;
            } else {
                failed += 1;
                out_line(format_args!(
                    "FAILED {} {:.1}, {} threads: {} is {:.3}, the bar is {:.3}",
                    row.workload, row.fraction, row.threads, bar.what, bar.value, bar.limit
                ))?;
            }
        }
    }
    out_line(format_args!("accuracy: {passed} passed, {failed} failed"))?;
    Ok(if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The benchmarks to run, in the order of the table.
fn specs(args: &SharingArgs) -> Vec<WorkloadSpec> {
    let tenths: Vec<f64> = (0..=10).map(|tenth| f64::from(tenth) / 10.0).collect();
    let few = vec![0.2, 0.6, 1.0];
    let all: Vec<(Workload, usize, Vec<f64>)> = if args.gate {
        vec![
            (Workload::WriteVolume, 2, vec![0.0, 0.3, 1.0]),
            (Workload::WriteVolumePlain, 2, vec![0.5]),
            (Workload::FalseSharing, 2, vec![0.0, 0.5, 1.0]),
            (Workload::PointToPoint, 4, vec![1.0]),
            (Workload::OneCpu, 2, vec![1.0]),
            (Workload::Alternating, 2, vec![1.0]),
        ]
    } else {
        vec![
            (Workload::WriteVolume, 2, tenths.clone()),
            (Workload::OneCpu, 2, vec![1.0]),
            (Workload::NoSharing, 2, vec![0.0]),
            (Workload::Alternating, 2, vec![1.0]),
            (Workload::WriteVolumePlain, 2, few.clone()),
            (Workload::ReadWrite, 2, few.clone()),
            (Workload::Migratory, 2, few.clone()),
            (Workload::ProducerConsumer, 2, few.clone()),
            (Workload::FalseSharing, 2, tenths.clone()),
            (Workload::FalseSharing, 8, vec![0.0, 0.2, 0.5, 0.8, 1.0]),
            (Workload::PointToPoint, 4, few),
        ]
    };
    let mut specs = Vec::new();
    for (workload, threads, fractions) in all {
        if !args.only.is_empty() && !args.only.contains(&workload) {
            continue;
        }
        if args.threads.is_some_and(|wanted| wanted != threads) {
            continue;
        }
        let fractions = if args.fractions.is_empty() {
            fractions
        } else {
            args.fractions.clone()
        };
        for fraction in fractions {
            specs.push(WorkloadSpec {
                threads,
                fraction,
                seconds: args.seconds,
                ..WorkloadSpec::new(workload)
            });
        }
    }
    specs
}

/// Runs one benchmark under `linewise record` and compares.
fn measure(spec: &WorkloadSpec, overhead: &str) -> anyhow::Result<Repeat> {
    let scratch = Scratch::new()?;
    let directory = scratch.path().join("bench.linewise");
    let linewise = std::env::current_exe().context("cannot find linewise itself")?;
    let output = Command::new(&linewise)
        .args(["record", "--quiet", "--overhead", overhead, "--output"])
        .arg(&directory)
        .arg("--")
        .arg(&linewise)
        .args(["bench", "workload", spec.workload.name()])
        .args(["--threads", &spec.threads.to_string()])
        .args(["--fraction", &spec.fraction.to_string()])
        .args(["--seconds", &spec.seconds.to_string()])
        .args(["--seed", &spec.seed.to_string()])
        .stderr(Stdio::piped())
        .output()
        .context("cannot run linewise for the benchmark")?;
    anyhow::ensure!(
        output.status.success(),
        "the benchmark {} failed ({}): {}",
        spec.workload,
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let truth = Truth::from_output(&String::from_utf8_lossy(&output.stdout))?;
    let contradictions = truth.contradictions();
    anyhow::ensure!(
        contradictions.is_empty(),
        "the benchmark {} contradicts itself: {}",
        spec.workload,
        contradictions.join("; ")
    );
    let report = report_of(&directory)?;
    Ok(Repeat {
        measured: measured(&report),
        round_trip_ns: report.run.round_trip_ns,
        truth,
    })
}

fn report_of(directory: &Path) -> anyhow::Result<Report> {
    let recording = Recording::open(directory)?;
    let tables = recording.tables()?;
    Ok(linewise_analysis::analyse(recording.info(), &tables))
}

fn measured(report: &Report) -> Measured {
    let transfers = &report.sharing.transfers;
    let all = transfers.true_sharing + transfers.false_sharing;
    let matrix = &report.sharing.matrix;
    Measured {
        transfers: all,
        low: transfers.interval.low,
        high: transfers.interval.high,
        false_share: (all > 0.0).then(|| transfers.false_sharing / all),
        threads: report.sharing.threads.clone(),
        matrix: matrix
            .true_sharing
            .iter()
            .zip(&matrix.false_sharing)
            .map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect())
            .collect(),
        findings: report.findings.len(),
    }
}
