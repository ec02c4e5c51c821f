//! `linewise bench reuse`: programs that count their own reuse distances run under the exact source,
//! as any program would, and what they counted is printed beside what the trackers made of the
//! accesses.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use linewise_bench::reuse::{
    ACCESS_BYTES, Estimate, Kind, Mode, ReuseRow, ReuseSpec, ReuseTruth, Scope, Size, WALK,
    reuse_json, reuse_table, run_reuse,
};
use linewise_cache::Access;
use linewise_cache::reuse::{Choice, Grouping, ReuseOptions, ReuseTracker, Sampling};
use linewise_collect::exact::{ExactError, ExactOptions, trace};
use linewise_machine::signals::StopSignals;
use linewise_recording::write_file;
use linewise_trace::{Consumer, TracedAccess};

use crate::say::{ProgressLine, out, out_line};
use crate::scratch::Scratch;

/// Arguments of `linewise bench reuse`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReuseArgs {
    /// Only programs whose names contain one of these: `Short-RD`, `Case 2`, single, multi-thread,
    /// invalidation, ring, scan
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Only these numbers of threads, 1 to 64; 1, 2, 4 and 8 if not given
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// The sizes of the tables, up to 2.5 billion accesses each, instead of small ones
    #[arg(long)]
    full: bool,
    /// Each program with one number of threads; exit code 1 when an accuracy is below its bar
    #[arg(long, conflicts_with_all = ["full", "threads"])]
    gate: bool,
    /// The cases of RIBench at full speed and in the sizes of the tables, with reuse sampled; 2 threads unless told otherwise
    #[arg(long, conflicts_with_all = ["gate", "full"])]
    native: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of the program that is traced.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProgramArgs {
    /// Its name
    name: String,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// One walk at a time
    #[arg(long)]
    turns: bool,
    /// The size of the tables
    #[arg(long)]
    full: bool,
    /// Repetitions of all loops of a case of RIBench
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    outer: Option<u64>,
    /// Where to write the truth, instead of the standard output
    #[arg(long)]
    output: Option<std::path::PathBuf>,
}

const THREADS: [u32; 4] = [1, 2, 4, 8];

fn size(full: bool) -> Size {
    if full { Size::Full } else { Size::Small }
}

/// Runs one program in this process.
pub(super) fn run_program(args: &ProgramArgs) -> anyhow::Result<ExitCode> {
    let (name, threads) = (&args.name, args.threads as usize);
    let mut spec = ReuseSpec::new(name, size(args.full), threads, args.turns)
        .with_context(|| format!("there is no program `{name}`"))?;
    if let (Some(outer), Kind::RiBench(parameters)) = (args.outer, &mut spec.kind) {
        parameters.outer = outer;
    }
    let line = run_reuse(&spec).to_json_line();
    match &args.output {
        Some(path) => write_file(path, line.as_bytes())?,
        None => out_line(&line)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures all programs that are asked for.
pub(super) fn run(args: &ReuseArgs) -> anyhow::Result<ExitCode> {
    let specs = specs(args);
    anyhow::ensure!(
        !specs.is_empty(),
        "no program is left: loosen --only, --threads"
    );
    if args.native {
        return super::reuse_native::run(&super::reuse_native::cases(specs), args.json);
    }
    let scratch = Scratch::new()?;
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
        match measure(spec, args.full, &scratch.path()) {
            Ok(row) => rows.push(row),
            Err(error) => match error.downcast_ref() {
                Some(linewise_collect::Error::Exact(ExactError::NoQemu { .. })) if args.gate => {
                    out_line(format_args!("\nskipped: {error:#}"))?;
                    return Ok(ExitCode::SUCCESS);
                }
                _ => return Err(error),
            },
        }
    }
    line.clear();
    if args.json {
        out_line(format_args!("{:#}", reuse_json(&rows)))?;
    } else {
        out(format_args!("{}", reuse_table(&rows)))?;
    }
    let judged = rows
        .iter()
        .flat_map(|row| &row.scores)
        .filter(|score| score.bar.is_some());
    let missed: usize = rows.iter().map(|row| row.missed().len()).sum();
    if !args.gate {
        return Ok(ExitCode::SUCCESS);
    }
    let passed = judged.count() - missed;
    if !args.json {
        out_line(format_args!("reuse: {passed} passed, {missed} failed"))?;
    }
    Ok(if missed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The programs to run, in the order of the table.
fn specs(args: &ReuseArgs) -> Vec<ReuseSpec> {
    let mut specs: Vec<ReuseSpec> = Vec::new();
    for (number, name) in ReuseSpec::names().enumerate() {
        if !args.only.is_empty() && !args.only.iter().any(|only| name.contains(only.as_str())) {
            continue;
        }
        let threads = if args.gate {
            // Neighbours in the tables are alike: each gets another number of threads.
            vec![THREADS[(number + number / 4) % 4]]
        } else if args.native && args.threads.is_empty() {
            vec![2]
        } else if args.threads.is_empty() {
            THREADS.to_vec()
        } else {
            args.threads.clone()
        };
        for threads in threads {
            let spec = ReuseSpec::new(name, size(args.full), threads as usize, false);
            // Some run with a number of threads of their own.
            specs.extend(spec.filter(|spec| !specs.contains(spec)));
        }
    }
    specs
}

/// Runs one program under the tracer, once as it is and once with its threads taking turns.
fn measure(spec: &ReuseSpec, full: bool, scratch: &Path) -> anyhow::Result<ReuseRow> {
    let mut row = ReuseRow::new(spec);
    // Where threads take turns at any rate, one run tells all.
    let always = !spec.wants_turns();
    let spec = ReuseSpec {
        turns: always,
        ..spec.clone()
    };
    traced(&spec, full, scratch, &mut row, Part::of(always))?;
    if !always {
        let turns = ReuseSpec {
            turns: true,
            ..spec
        };
        traced(&turns, full, scratch, &mut row, Part::Turns)?;
    }
    Ok(row)
}

/// What one run is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Free,
    Turns,
}

impl Part {
    fn of(always: bool) -> Self {
        if always { Self::All } else { Self::Free }
    }
}

fn traced(
    spec: &ReuseSpec,
    full: bool,
    scratch: &Path,
    row: &mut ReuseRow,
    part: Part,
) -> anyhow::Result<()> {
    let linewise = std::env::current_exe().context("cannot find linewise itself")?;
    let output = scratch.join("truth.json");
    let mut command: Vec<OsString> = vec![linewise.into()];
    command.extend(["bench", "reuse-program", spec.name, "--threads"].map(Into::into));
    command.push(spec.threads.to_string().into());
    command.extend(spec.turns.then(|| "--turns".into()));
    command.extend(full.then(|| "--full".into()));
    command.push("--output".into());
    command.push(output.as_os_str().into());
    let options = ExactOptions {
        only: Some(WALK.to_owned()),
        ..ExactOptions::new(command)
    };
    let mut trackers = Trackers::new(part)?;
    let signals = StopSignals::block().context("cannot wait for signals")?;
    let outcome = trace(&options, &signals, &mut trackers)?;
    let name = spec.name;
    let text = fs::read_to_string(&output)
        .with_context(|| format!("{name} left no truth and ended with {:?}", outcome.ended))?;
    let truth = ReuseTruth::from_output(&text)?;
    if let Some(loss) = outcome.losses.first() {
        anyhow::bail!("{name}: {} {}", loss.count, loss.detail);
    }
    anyhow::ensure!(
        trackers.accesses == truth.accesses,
        "{name} counted {} accesses of its own, and {} were traced",
        truth.accesses,
        trackers.accesses
    );
    row.add(&truth, &trackers.estimates());
    Ok(())
}

/// All trackers of one run.
struct Trackers {
    trackers: Vec<(Scope, Mode, ReuseTracker)>,
    batch: Vec<Access>,
    accesses: u64,
}

/// One in so many units is followed when sampled.
const RATE: f64 = 1.0 / 64.0;

impl Trackers {
    fn new(part: Part) -> anyhow::Result<Self> {
        let scopes: &[Scope] = match part {
            Part::All => &[Scope::Temporal, Scope::Spatial, Scope::Shared],
            Part::Free => &[Scope::Temporal, Scope::Spatial],
            Part::Turns => &[Scope::Spatial, Scope::Shared],
        };
        let mut trackers = Vec::new();
        for &scope in scopes {
            for (mode, sampling) in [
                (Mode::Exact, Sampling::Exact),
                (Mode::Stratified, share(Choice::Stratified)),
                (Mode::Hashed, share(Choice::Hashed)),
            ] {
                let options = ReuseOptions {
                    granularity_bytes: if scope == Scope::Spatial { 64 } else { 8 },
                    grouping: if scope == Scope::Shared {
                        Grouping::Shared(vec![0; 256])
                    } else {
                        Grouping::Private
                    },
                    sampling,
                    ..ReuseOptions::default()
                };
                trackers.push((scope, mode, ReuseTracker::new(&options)?));
            }
        }
        Ok(Self {
            trackers,
            batch: Vec::new(),
            accesses: 0,
        })
    }

    fn estimates(&self) -> Vec<Estimate> {
        let estimates = self.trackers.iter();
        estimates
            .map(|(scope, mode, tracker)| Estimate {
                scope: *scope,
                mode: *mode,
                distances: tracker.profile().unadjusted,
            })
            .collect()
    }
}

fn share(choice: Choice) -> Sampling {
    Sampling::FixedRate { rate: RATE, choice }
}

impl Consumer for Trackers {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.batch.clear();
        let own = batch.iter().filter(|access| access.size == ACCESS_BYTES);
        self.batch.extend(own.map(TracedAccess::access));
        self.accesses += self.batch.len() as u64;
        for (_, _, tracker) in &mut self.trackers {
            tracker.record(&self.batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ReuseArgs {
        ReuseArgs {
            only: Vec::new(),
            threads: Vec::new(),
            full: false,
            gate: false,
            native: false,
            json: false,
        }
    }

    #[test]
    fn the_gate_has_every_program_once_and_every_number_of_threads() {
        let gate = specs(&ReuseArgs {
            gate: true,
            ..args()
        });
        assert_eq!(gate.len(), 25);
        for threads in THREADS {
            let of = |table: &str| {
                let with = |spec: &&ReuseSpec| spec.threads == threads as usize;
                let mut cases = gate.iter().filter(|spec| spec.name.contains(table));
                cases.any(|spec| with(&spec))
            };
            assert!(of("Short") && of("Long") && of("Case"), "{threads} threads");
        }
        assert_eq!(specs(&args()).len(), 4 * 23 + 2);
    }
}
