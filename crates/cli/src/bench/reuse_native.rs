//! `linewise bench reuse --native`: RIBench at full speed with sampled reuse, beside what the programs
//! counted themselves.
//!
//! Each case runs three times: natively for a moment, to see how often it must be repeated to last
//! long enough; under the exact source, which gives the accesses of each place; and natively with
//! `--reuse sampled`, whose histogram is judged by the accuracy S of the truth of that very run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, ensure};
use linewise_analysis::{ExactCounts, analyse_with};
use linewise_bench::reuse::{Kind, ReuseSpec, ReuseTruth, WALK};
use linewise_cache::reuse::Histogram;
use linewise_recording::Recording;
use serde::Serialize;

use crate::say::{ProgressLine, out, out_line};
use crate::scratch::Scratch;

/// What each run is to last, s.
const SECONDS: f64 = 8.0;
/// What recording may cost: more than by default, so that 8 s are enough.
const OVERHEAD: &str = "20%";
/// Repetitions of the first and of the exact run.
const FEW: u64 = 10;
/// The exact run of a long case does less: its places have the same rates.
const LONG: u64 = 1;

/// One case.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    threads: usize,
    /// Accesses of the sampled run.
    accesses: u64,
    /// Uses that were seen to their end, each thread by itself.
    uses: u64,
    /// S of the distances in accesses, by octave: the mean over all positions of the octaves' edges, so
    /// that no distance of a case gains or loses by lying near one.
    mean: f64,
    /// The same with edges at the powers of two.
    octaves: f64,
    /// Of all touches, the share after a store from elsewhere: truth, and as sampled.
    invalidated: [f64; 2],
    /// The share of uses not seen to their end.
    unfinished: f64,
    /// Times below that are not told apart, ns.
    resolution_ns: f64,
    /// Nanoseconds of a thread for an access, on average.
    access_ns: f64,
}

/// Measures all cases.
pub(super) fn run(specs: &[ReuseSpec], json: bool) -> anyhow::Result<ExitCode> {
    let line = ProgressLine::on_a_terminal();
    let mut rows = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        line.show(&format!(
            "{} of {}: {}, {} threads",
            i + 1,
            specs.len(),
            spec.name,
            spec.threads
        ));
        let scratch = Scratch::new()?;
        rows.push(measure(spec, &scratch.path()).with_context(|| spec.name.to_owned())?);
    }
    line.clear();
    if json {
        out_line(format_args!(
            "{:#}",
            serde_json::json!({ "reuse_native": rows })
        ))?;
    } else {
        out(format_args!("{}", table(&rows)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row]) -> String {
    let mut table = format!(
        "{:<28}{:>4}{:>10}{:>8}{:>10}{:>8}{:>9}{:>14}{:>8}{:>9}\n",
        "program",
        "thr",
        "accesses",
        "uses",
        "ns/access",
        "S",
        "S at 2^n",
        "inv. (true)",
        "unfin.",
        "resol."
    );
    for row in rows {
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        let invalidated = format!(
            "{} ({})",
            percent(row.invalidated[1]),
            percent(row.invalidated[0])
        );
        let _ = writeln!(
            table,
            "{:<28}{:>4}{:>9.0}M{:>8}{:>10.3}{:>8.3}{:>9.3}{invalidated:>14}{:>8}{:>6.0} ns",
            row.name,
            row.threads,
            row.accesses as f64 / 1e6,
            row.uses,
            row.access_ns,
            row.mean,
            row.octaves,
            percent(row.unfinished),
            row.resolution_ns,
        );
    }
    let mean = |of: &dyn Fn(&&Row) -> bool| {
        let scores: Vec<f64> = rows.iter().filter(of).map(|row| row.mean).collect();
        scores.iter().sum::<f64>() / scores.len().max(1) as f64
    };
    let _ = writeln!(
        table,
        "S by octave: {:.3} on average; {:.3} of the short cases, {:.3} of the long ones",
        mean(&|_| true),
        mean(&|row| row.name.starts_with("Short")),
        mean(&|row| row.name.starts_with("Long")),
    );
    table
}

fn program(spec: &ReuseSpec, outer: u64, output: &Path) -> anyhow::Result<Vec<OsString>> {
    let linewise = std::env::current_exe().context("cannot find linewise itself")?;
    let mut command: Vec<OsString> = vec![linewise.into()];
    command.extend(["bench", "reuse-program", spec.name, "--full", "--threads"].map(Into::into));
    command.push(spec.threads.to_string().into());
    command.extend(["--outer".into(), outer.to_string().into()]);
    command.extend(["--output".into(), output.as_os_str().to_owned()]);
    Ok(command)
}

fn succeed(command: &[OsString]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("an empty command")?;
    let output = Command::new(program).args(arguments).output()?;
    ensure!(
        output.status.success(),
        "it ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn record(options: &[&str], directory: &Path, command: Vec<OsString>) -> anyhow::Result<Recording> {
    let linewise = std::env::current_exe().context("cannot find linewise itself")?;
    let mut all: Vec<OsString> = vec![linewise.into(), "record".into(), "--quiet".into()];
    all.extend(options.iter().map(Into::into));
    all.extend([
        "--output".into(),
        directory.as_os_str().to_owned(),
        "--".into(),
    ]);
    all.extend(command);
    succeed(&all)?;
    Ok(Recording::open(directory)?)
}

fn measure(spec: &ReuseSpec, scratch: &Path) -> anyhow::Result<Row> {
    let output = scratch.join("truth.json");
    let start = Instant::now();
    succeed(&program(spec, FEW, &output)?)?;
    let seconds = start.elapsed().as_secs_f64().max(0.001);
    let outer = ((FEW as f64 * SECONDS / seconds).ceil() as u64).max(FEW);

    let few = if spec.name.starts_with("Long") {
        LONG
    } else {
        FEW
    };
    let options = ["--source", "exact", "--reuse", "none", "--only", WALK];
    let exact = record(
        &options,
        &scratch.join("exact.linewise"),
        program(spec, few, &output)?,
    )?;
    let counts = ExactCounts::new(exact.info(), &exact.tables()?)
        .context("the exact run counted nothing")?
        .scaled(outer as f64 / few as f64);

    let options = [
        "--source",
        "timer",
        "--reuse",
        "sampled",
        "--overhead",
        OVERHEAD,
    ];
    let native = record(
        &options,
        &scratch.join("native.linewise"),
        program(spec, outer, &output)?,
    )?;
    let truth = ReuseTruth::from_output(&fs::read_to_string(&output)?)?;
    let tables = native.tables()?;
    let report = analyse_with(native.info(), &tables, Some(&counts));
    let (Some(reuse), Some(sampled)) = (report.reuse, report.sampled_reuse) else {
        anyhow::bail!("no reuse was sampled: {:?}", report.losses);
    };
    let mut measured = Histogram::new();
    for bin in &reuse.private.time_bins {
        measured.add(bin.from, bin.count);
    }
    let expected = truth.temporal.distances().time;
    let thread_ns: u64 = tables.samples.iter().map(|sample| sample.weight).sum();
    Ok(Row {
        name: spec.name,
        threads: spec.threads,
        accesses: truth.accesses,
        uses: sampled.private.uses,
        mean: mean_accuracy(&expected, &measured),
        octaves: expected.accuracy_by_octave(&measured),
        invalidated: [
            expected.invalidated / expected.mass().max(1.0),
            reuse.private.invalidated / reuse.private.accesses.max(1.0),
        ],
        unfinished: sampled.private.unfinished,
        resolution_ns: sampled.resolution_ns,
        access_ns: thread_ns as f64 / truth.accesses.max(1) as f64,
    })
}

/// Positions of the edges of octaves.
const POSITIONS: u32 = 16;

/// The accuracy S by octave, averaged over positions of the octaves' edges.
fn mean_accuracy(truth: &Histogram, measured: &Histogram) -> f64 {
    let of = |position| {
        let shares = |histogram: &Histogram| {
            let all = histogram.reuses();
            let mut octaves: BTreeMap<u32, f64> = BTreeMap::new();
            for bin in histogram.bins() {
                let middle = ((bin.from + bin.to) as f64 / 2.0).max(1.0);
                let octave = middle.log2() + f64::from(position) / f64::from(POSITIONS);
                *octaves.entry(octave as u32).or_default() += bin.count / all;
            }
            octaves
        };
        let (truth, measured) = (shares(truth), shares(measured));
        let octaves: BTreeSet<&u32> = truth.keys().chain(measured.keys()).collect();
        let share = |of: &BTreeMap<u32, f64>, octave| of.get(octave).copied().unwrap_or(0.0);
        let differences = octaves
            .into_iter()
            .map(|octave| (share(&truth, octave) - share(&measured, octave)).abs());
        1.0 - differences.sum::<f64>() / 2.0
    };
    (0..POSITIONS).map(of).sum::<f64>() / f64::from(POSITIONS)
}

/// The cases of the tables among the programs.
pub(super) fn cases(specs: Vec<ReuseSpec>) -> Vec<ReuseSpec> {
    let is_case = |spec: &ReuseSpec| matches!(spec.kind, Kind::RiBench(_));
    specs.into_iter().filter(is_case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_over_all_edges_falls_with_the_error_and_does_not_know_where_edges_are() {
        let at = |distance| {
            let mut histogram = Histogram::new();
            histogram.add(distance, 5.0);
            histogram
        };
        for truth in [10_000, 16_000, 16_383, 16_384, 23_000] {
            let score =
                |factor: f64| mean_accuracy(&at(truth), &at((truth as f64 * factor) as u64));
            assert!((score(1.0) - 1.0).abs() < 1e-9);
            assert!(
                (0.80..0.95).contains(&score(1.1)),
                "{truth}: {}",
                score(1.1)
            );
            assert!(
                (0.40..0.60).contains(&score(1.41)),
                "{truth}: {}",
                score(1.41)
            );
            assert!(score(2.2) < 1e-9);
        }
    }
}
