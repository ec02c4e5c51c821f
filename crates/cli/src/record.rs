//! `linewise record` and `linewise run`: the main job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use linewise_collect::{
    EndedBy, Event, HeapWhen, Outcome, Progress, RecordOptions, SampleBy, Source, Target,
    TimerOptions, Wanted,
    exact::{ExactError, ExactRecordOptions},
};
use linewise_machine::procfs;
use linewise_machine::signals::StopSignals;

use crate::exact::{self, ExactArgs, SourceChoice};
use crate::report::{self, OutputArgs};
use crate::say::{ProgressLine, say};
use crate::scratch::{Scratch, ScratchFolder};
use crate::{exit, interrupt, panics};

/// What to record and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CollectArgs {
    /// The command to run and record
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "attach",
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    attach: AttachArgs,
    /// What to record with
    #[arg(help_heading = "What to record", long, value_enum, default_value_t = SourceChoice::Auto, value_name = "SOURCE")]
    source: SourceChoice,
    #[command(flatten)]
    exact: ExactArgs,
    /// With the timer: what recording may cost, as a share of the target's CPU time, 2% unless told otherwise
    #[arg(help_heading = "How much", long, value_name = "PERCENT", value_parser = parse_percent)]
    overhead: Option<f64>,
    /// With the timer: samples a second of thread time, instead of as many as the overhead allows
    #[arg(help_heading = "How much", long, value_name = "HZ", value_parser = parse_rate)]
    rate: Option<f64>,
    /// With the timer: what has one of its own, auto unless told otherwise
    ///
    /// Each CPU, which costs the command nothing when it switches threads, or each of its threads.
    #[arg(help_heading = "How much", long, value_enum, value_name = "WHAT")]
    sample_by: Option<SampleByArg>,
    /// End the recording after this long: 500ms, 30s, 5m
    ///
    /// A command started here is then asked to end (SIGTERM), with its children
    #[arg(help_heading = "How much", long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// With the timer: guard the target against traps that lose their reason, auto unless told otherwise
    ///
    /// Some hypervisors deliver such traps, and they would end the target.
    ///
    /// A guarded thread stops briefly at each of its signals and cannot be debugged meanwhile
    #[arg(help_heading = "How much", long, value_enum, value_name = "WHEN")]
    guard: Option<GuardWhen>,
    /// Name heap memory by where it was allocated; `run` does so by itself where a library can be loaded into the command
    ///
    /// A library loaded into the command tells of its blocks, or, with `--pid` and in static programs, probes on its allocator do (root, Linux 6.6). Without this `run` loads the library where that can be and probes nothing, and `record` does neither
    #[arg(help_heading = "What to record", long, value_enum, value_name = "WHEN")]
    heap: Option<HeapArg>,
    /// Follow objects from their allocation to their end and show their paths: of the types that are touched most, or those that NAME allocates
    ///
    /// NAME is a function of the program, or a name that it gave to objects; `auto` is without. Takes `--heap`, and turns it on
    #[arg(help_heading = "What to record", long, value_name = "NAME", num_args = 0..=1, default_missing_value = "auto", require_equals = true, conflicts_with = "attach")]
    flow: Option<String>,
    /// Replace a recording of the same name
    #[arg(help_heading = "The recording", long)]
    force: bool,
    /// No progress line, and no word where all went well
    #[arg(help_heading = "The recording", long, short)]
    quiet: bool,
}

impl CollectArgs {
    /// The same for running processes, for so long where nothing else is said.
    pub(crate) fn attached_to(&self, pid: Vec<u32>, duration: Duration) -> Self {
        Self {
            attach: AttachArgs {
                pid,
                name: Vec::new(),
            },
            duration: self.duration.or(Some(duration)),
            ..self.clone()
        }
    }
}

/// Which running processes to record.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "attach", multiple = true, conflicts_with = "command")]
pub(crate) struct AttachArgs {
    /// Record this running process instead of a command, and all that descend from it
    ///
    /// May be given several times, or with several numbers: 12,34
    #[arg(help_heading = "What to record", long, value_name = "PID", value_delimiter = ',', value_parser = report::whole_number::<u32>)]
    pid: Vec<u32>,
    /// Record the running processes of this name (of the program's file, or as `ps` shows it), and all that descend from them
    #[arg(help_heading = "What to record", long, value_name = "NAME")]
    name: Vec<String>,
}

impl AttachArgs {
    fn given(&self) -> bool {
        !self.pid.is_empty() || !self.name.is_empty()
    }

    /// The processes that were named.
    fn pids(&self) -> anyhow::Result<Vec<u32>> {
        let mut pids = self.pid.clone();
        for name in &self.name {
            let found = procfs::processes_of(name).context("cannot look for processes in /proc")?;
            if found.is_empty() {
                bail!("no process is called `{name}`: `ps -e` lists the names");
            }
            pids.extend(found);
        }
        Ok(pids)
    }
}

/// `--overhead` unless told otherwise.
const OVERHEAD: f64 = 0.02;

impl CollectArgs {
    /// The first option that was given though only the timer knows it, and why the exact source does not.
    fn of_the_timer(&self) -> Option<(&'static str, &'static str)> {
        let all = "the exact source sees every access (--lines 1/64 follows fewer)";
        [
            (self.overhead.is_some(), "--overhead", all),
            (self.rate.is_some(), "--rate", all),
            (
                self.sample_by.is_some(),
                "--sample-by",
                "the exact source takes no samples",
            ),
            (
                self.guard.is_some(),
                "--guard",
                "the exact source sets no traps",
            ),
            (
                matches!(self.heap, Some(HeapArg::Marks)),
                "--heap marks",
                "the exact source takes no samples that marks could tell apart",
            ),
        ]
        .into_iter()
        .find_map(|(given, option, reason)| given.then_some((option, reason)))
    }

    /// How the timer records.
    fn timer_source(&self) -> anyhow::Result<TimerOptions> {
        if let Some(option) = self.exact.given() {
            bail!("{option} is an option of the exact source: add --source exact");
        }
        let reuse = self.exact.samples_reuse()?;
        if self.flow.is_some() && reuse {
            bail!(
                "--flow and --reuse sampled want the same watchpoints: record one after the other"
            );
        }
        Ok(TimerOptions {
            overhead: self.overhead.unwrap_or(OVERHEAD),
            rate: self.rate,
            guard: match self.guard {
                None | Some(GuardWhen::Auto) => None,
                Some(GuardWhen::On) => Some(true),
                Some(GuardWhen::Off) => Some(false),
            },
            reuse,
            sample_by: match self.sample_by {
                None | Some(SampleByArg::Auto) => SampleBy::Auto,
                Some(SampleByArg::Cpu) => SampleBy::Cpu,
                Some(SampleByArg::Thread) => SampleBy::Thread,
            },
        })
    }

    /// How the exact source records into `directory`.
    fn exact_source(&self, directory: &Path) -> anyhow::Result<ExactRecordOptions> {
        if self.attach.given() {
            return Err(linewise_collect::Error::from(ExactError::Attach).into());
        }
        if let Some((option, reason)) = self.of_the_timer() {
            bail!(
                "{option} is an option of the timer: {reason}, so leave it out, or --source exact"
            );
        }
        self.exact.source(directory, self.force)
    }

    /// Whose objects are followed, if any.
    fn wanted(&self) -> Option<Wanted> {
        self.flow.as_deref().map(|name| match name {
            "auto" => Wanted::Most,
            name => Wanted::Named(name.to_owned()),
        })
    }

    /// Whether heap blocks are recorded, where nobody asked for that and nothing needs it `unasked`.
    fn heap(&self, unasked: HeapWhen) -> HeapWhen {
        match self.heap {
            Some(HeapArg::On) => HeapWhen::All,
            Some(HeapArg::Auto) => HeapWhen::Auto,
            _ if self.flow.is_some() => HeapWhen::Auto,
            Some(HeapArg::Marks) => HeapWhen::Marks,
            Some(HeapArg::Off) => HeapWhen::Never,
            None => unasked,
        }
    }
}

/// What has a sampler of its own.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SampleByArg {
    /// Each CPU where that is allowed (root, CAP_PERFMON, kernel.perf_event_paranoid at 0 or below), otherwise each thread
    Auto,
    /// Each CPU, whoever runs there; what others do is not kept
    Cpu,
    /// Each thread
    Thread,
}

/// When the target is guarded.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum GuardWhen {
    /// In virtual machines on Intel processors, where it is known to be needed
    Auto,
    /// Always
    On,
    /// Never
    Off,
}

/// Whether heap blocks are recorded.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HeapArg {
    /// As many blocks as a part of the overhead pays for
    Auto,
    /// Every block, whatever it costs
    On,
    /// No blocks, but what the program marks with linewise.h: sessions and phases
    Marks,
    /// Nothing is loaded into the command, nothing probed
    Off,
}

/// Arguments of `linewise record`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    collect: CollectArgs,
    /// Name of the recording; a directory NAME.linewise is made
    #[arg(
        help_heading = "The recording",
        help_heading = "The recording",
        long,
        short,
        default_value = "run",
        value_name = "NAME"
    )]
    output: PathBuf,
}

/// Arguments of `linewise run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    collect: CollectArgs,
    /// Keep the recording under this name; it is thrown away otherwise
    #[arg(
        help_heading = "The recording",
        help_heading = "The recording",
        long,
        short,
        value_name = "NAME"
    )]
    output: Option<PathBuf>,
    #[command(flatten)]
    show: OutputArgs,
}

pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 50.0 => Ok(percent / 100.0),
        Ok(_) => Err("it must lie above 0 and at most at 50 %".to_owned()),
        Err(_) => Err("a percentage is wanted, like 2%".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=20_000.0).contains(&rate) => Ok(rate),
        Ok(_) => Err("it must lie between 1 and 20000".to_owned()),
        Err(_) => Err("a number of samples a second is wanted, like 500".to_owned()),
    }
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| "a time is wanted, like 30s or 500ms".to_owned())?;
    let scale = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit of time: use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * scale)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "the time must be positive and not too long".to_owned())
}

/// Records, names what was found, and says where the recording is.
pub(crate) fn record(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let directory = linewise_recording::recording_path(&args.output);
    let (outcome, failed) = collect(&args.collect, (HeapWhen::Never, false), &directory, None)?;
    let place = directory.display();
    if outcome.failure.is_none() && args.collect.quiet {
        return Ok(exit_code(&args.collect, &outcome, failed));
    }
    if outcome.failure.is_none() {
        let what = match args.collect.source {
            SourceChoice::Exact => "accesses measured",
            SourceChoice::Auto | SourceChoice::Timer => "samples",
        };
        say(&format!(
            "{} {what} in {place}; see `linewise report {place}`",
            exact::thousands(outcome.observed)
        ));
    } else if linewise_recording::Recording::open(&directory).is_ok() {
        say(&format!(
            "the recording is cut short; see `linewise report {place}`"
        ));
    }
    Ok(exit_code(&args.collect, &outcome, failed))
}

/// Records and reports.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    args.show.check()?;
    if args.collect.exact.keeps_trace() && args.output.is_none() {
        bail!("--keep-trace puts the trace beside the recording: say where with --output NAME");
    }
    let (output, show) = (args.output.as_deref(), &args.show);
    record_and_show(&args.collect, output, show.takes_standard_output(), |it| {
        report::show(it, show)
    })
}

/// Records into `output`, or where nobody finds it, and shows what was recorded. The command's output goes where its errors
/// go if what is shown takes its place.
pub(crate) fn record_and_show(
    args: &CollectArgs,
    output: Option<&Path>,
    output_to_errors: bool,
    show: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let scratch;
    let (directory, to_remove) = match output {
        Some(name) => (linewise_recording::recording_path(name), None),
        None => {
            scratch = Scratch::new()?;
            (scratch.path().join("run.linewise"), Some(scratch.place()))
        }
    };
    let heap = (HeapWhen::Loaded, output_to_errors);
    let (outcome, unresolved) = collect(args, heap, &directory, to_remove)?;
    if outcome.failure.is_some() && linewise_recording::Recording::open(&directory).is_err() {
        // It was told; there is nothing to show.
        return Ok(exit_code(args, &outcome, unresolved));
    }
    let failed = match panics::caught(|| show(&directory)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(exit::report_failure(&error)),
        Err(bug) => {
            let kept = match output {
                Some(_) => format!("what was recorded is in {}", directory.display()),
                None => "what was recorded is thrown away; --output NAME keeps it".to_owned(),
            };
            say(&format!("{bug}; {kept}"));
            Some(exit::LINEWISE_FAILED.into())
        }
    };
    Ok(exit_code(args, &outcome, failed.or(unresolved)))
}

/// The target's own exit code, whatever failed of ours, where it ended by itself or by a signal that reached us both.
fn exit_code(args: &CollectArgs, outcome: &Outcome, failed: Option<ExitCode>) -> ExitCode {
    // A target that we asked to end after --duration did not fail.
    let asked = outcome.ended_by == EndedBy::Duration || args.attach.given();
    match (outcome.ended, &outcome.failure, failed) {
        (Some(ended), _, _) if !asked => exit::of_target(Some(ended)),
        (_, Some(_), _) => exit::LINEWISE_FAILED.into(),
        (_, None, Some(code)) => code,
        (_, None, None) => ExitCode::SUCCESS,
    }
}

/// Records into `directory` and resolves names there, with heap blocks `unasked` where `--heap` does not say, and the command's output where its
/// errors go if the report's takes its place. A signal that comes later ends linewise, and
/// removes `scratch`. With it the exit code for names that could not be resolved.
fn collect(
    args: &CollectArgs,
    (unasked, output_to_errors): (HeapWhen, bool),
    directory: &Path,
    scratch: Option<Arc<ScratchFolder>>,
) -> anyhow::Result<(Outcome, Option<ExitCode>)> {
    let source = match args.source {
        SourceChoice::Exact => Source::Exact(args.exact_source(directory)?),
        SourceChoice::Auto | SourceChoice::Timer => Source::Timer(args.timer_source()?),
    };
    let target = match args.attach.given() {
        true => Target::Attach(args.attach.pids()?),
        false => Target::Launch(args.command.clone()),
    };
    let options = RecordOptions {
        target,
        directory: directory.to_owned(),
        replace: args.force,
        duration: args.duration,
        output_to_errors,
        heap: args.heap(unasked),
        flow: args.wanted(),
    };
    // The target's terminal is its own: a progress line only where it does not mix with output.
    let afterwards = ProgressLine {
        shown: !args.quiet && ProgressLine::on_a_terminal().shown,
    };
    let progress = ProgressLine {
        shown: afterwards.shown && args.attach.given(),
    };
    let signals = StopSignals::block().context("cannot wait for signals")?;
    let outcome = linewise_collect::record(&options, &source, &signals, |event| {
        match event {
            Event::Progress(now) => {
                panics::where_a_test_wants_it("collect");
                return progress.show(&progress_text(&now));
            }
            Event::Warning(_) | Event::Failed(_) | Event::CutShort(_) => progress.clear(),
        }
        tell(event, matches!(options.target, Target::Launch(_)));
    })?;
    progress.clear();
    interrupt::end_at_once(signals, scratch);
    let unresolved = afterwards.during("looking up names", || {
        resolve(directory, outcome.failure.is_none())
    });
    Ok((outcome, unresolved))
}

/// Says what happened; `launched` says whether the program goes on without its recording.
fn tell(event: Event<'_>, launched: bool) {
    match event {
        Event::Progress(_) => {}
        Event::Warning(text) => say(text),
        Event::Failed(error) | Event::CutShort(error) => {
            let place = match error {
                linewise_collect::Error::Bug { .. } => panics::place(),
                _ => String::new(),
            };
            let rest = match (&event, launched) {
                (Event::Failed(_), true) => "; the program runs on, unrecorded",
                _ => "",
            };
            say(&format!("{}{place}{rest}", exit::chain(error)));
        }
    }
}

/// Resolves names now, so that the recording can be carried to another machine. What fails is said and leaves it without
/// them; what is not `whole` may fail in silence.
fn resolve(directory: &Path, whole: bool) -> Option<ExitCode> {
    match panics::caught(|| report::resolve(directory)) {
        Ok(Err(error)) if whole => {
            let error = error.context("recorded, but the names could not be resolved");
            Some(exit::report_failure(&error))
        }
        Ok(_) => None,
        Err(bug) => {
            let place = directory.display();
            say(&format!("{bug}; {place} is recorded, without names"));
            Some(exit::LINEWISE_FAILED.into())
        }
    }
}

fn progress_text(progress: &Progress) -> String {
    format!(
        "recording for {:.0} s: {} samples, {} threads (Ctrl-C ends it)",
        progress.elapsed.as_secs_f64(),
        progress.observed,
        progress.threads
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_times_are_read_as_people_write_them() {
        assert_eq!(parse_percent("2%"), Ok(0.02));
        assert_eq!(parse_percent("0.5"), Ok(0.005));
        assert!(parse_percent("0").is_err());
        assert!(parse_percent("90%").is_err());
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("-1s").is_err());
    }
}
