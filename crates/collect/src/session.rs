//! A recording from its first to its last moment.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linewise_machine::facts::Facts;
use linewise_machine::perf::SamplerOptions;
use linewise_machine::probe::{self, SkidProbe, WatchpointCosts};
use linewise_machine::process::{self, Child, Ended, HeldChild, StopSignals};
use linewise_machine::{procfs, sysfs};
use linewise_recording::{CreateMode, FORMAT_VERSION, Loss, Overhead, Pid, RunInfo, Time, Writer};

use crate::budget::{Budget, Limits};
use crate::collector::Collector;
use crate::error::Error;
use crate::samplers::Samplers;

/// How often the rings are emptied and watches taken down.
const TICK: Duration = Duration::from_millis(8);

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// This command, launched here.
    Launch(Vec<OsString>),
    /// This process, already running.
    Attach(u32),
}

/// How to record it.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// What.
    pub target: Target,
    /// The recording's directory.
    pub directory: PathBuf,
    /// Whether an older recording there may be replaced.
    pub replace: bool,
    /// What recording may cost, as a share of the target's CPU time (0.02 is 2 %).
    pub overhead: f64,
    /// Samples a second of thread time, overriding the budget's choice.
    pub rate: Option<f64>,
    /// End after this long.
    pub duration: Option<Duration>,
}

/// How far a recording is, for a progress line.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since its start.
    pub elapsed: Duration,
    /// Samples so far.
    pub samples: u64,
    /// Threads alive.
    pub threads: usize,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the target ended, if it ended while recorded and was launched here.
    pub ended: Option<Ended>,
    /// Why the recording ended: `target-exited`, `duration` or `interrupted`.
    pub ended_by: &'static str,
    /// Samples recorded.
    pub samples: u64,
}

/// The target before its recording begins.
enum Beginning<'a> {
    Held(HeldChild, &'a [OsString]),
    Process(u32),
}

/// The target while it is recorded.
enum Running {
    Child(Child),
    Process,
}

/// Records until the target ends, the duration is over, or SIGINT, SIGTERM or SIGHUP comes. Call it
/// from the only thread of the process. The target is never stopped; nothing stays armed in it.
///
/// A launched target that is still running when its recording ends is asked to end (SIGTERM), and
/// waited for.
///
/// # Errors
/// See [`Error`]. When the command cannot be run, no recording is left behind.
pub fn record(
    options: &RecordOptions,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, Error> {
    // A child is forked before anything below changes what it would inherit: the limit of open
    // files, the time slice.
    let beginning = match &options.target {
        Target::Launch(command) => {
            Beginning::Held(HeldChild::fork(command).map_err(Error::Fork)?, command)
        }
        &Target::Attach(pid) => {
            procfs::threads(pid).map_err(|_| Error::NoSuchProcess { pid })?;
            Beginning::Process(pid)
        }
    };
    let _ = process::raise_open_files();
    // The rings want to be emptied on time though every CPU is busy.
    linewise_machine::affinity::prefer_short_slices();
    let skid = probe::skid_rule()?;
    let watchpoints = probe::watchpoint_costs();
    let signals = StopSignals::block().map_err(Error::Wait)?;
    let start = now();
    let limits = Limits {
        overhead: options.overhead,
        rate: options.rate,
    };
    let budget = Budget::new(limits, &skid, watchpoints.as_ref().ok(), start);
    let cpus = online_cpus();
    let sampler_options = SamplerOptions {
        period_ns: budget.period_ns(),
        enable_on_exec: matches!(options.target, Target::Launch(_)),
        inherit: true,
    };

    let (mut running, pid, samplers, writer, info) = match beginning {
        Beginning::Held(held, command) => {
            let pid = held.pid();
            let samplers = Samplers::open(pid, &cpus, sampler_options)?;
            let words = command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let info = describe(words, pid, true, start, &skid, watchpoints.as_ref().ok());
            let writer = create(options, &info)?;
            let child = release(held, command, &options.directory)?;
            (Running::Child(child), pid, samplers, writer, info)
        }
        Beginning::Process(pid) => {
            let samplers = attach(pid, &cpus, sampler_options)?;
            let words = procfs::command_line(pid).unwrap_or_default();
            let info = describe(words, pid, false, start, &skid, watchpoints.as_ref().ok());
            let writer = create(options, &info)?;
            (Running::Process, pid, samplers, writer, info)
        }
    };

    let mut collector = Collector::new(samplers, writer, info, budget, skid.rule, cpus);
    collector.found_process(pid);
    if let Err(error) = &watchpoints {
        collector.lose(
            "watchpoints-unavailable",
            1,
            format!("no line could be watched: {error}"),
        )?;
    }
    let ended_by = match run(
        options,
        &mut running,
        pid,
        &signals,
        &mut collector,
        &mut progress,
    ) {
        Ok(ended_by) => ended_by,
        Err(error) => {
            // It is the recording that failed: the target runs on to its end, unwatched.
            drop(collector);
            let ended_by = outlast(&mut running, &signals, options.duration, start)?;
            settle(running, pid, ended_by, &signals)?;
            return Err(error);
        }
    };
    let ended = settle(running, pid, ended_by, &signals)?;
    let samples = collector.samples();
    collector.finish(ended_by, ended)?;
    Ok(Outcome {
        ended,
        ended_by,
        samples,
    })
}

fn now() -> Time {
    Time(process::monotonic_ns())
}

fn online_cpus() -> Vec<u32> {
    let cpus: Vec<u32> = sysfs::read_topology(Path::new("/"))
        .map(|topology| topology.cpus.iter().map(|cpu| cpu.id).collect())
        .unwrap_or_default();
    if cpus.is_empty() {
        linewise_machine::affinity::allowed_cpus()
    } else {
        cpus
    }
}

fn create(options: &RecordOptions, info: &RunInfo) -> Result<Writer, Error> {
    let mode = if options.replace {
        CreateMode::Replace
    } else {
        CreateMode::New
    };
    Ok(Writer::create(&options.directory, info, mode)?)
}

/// Lets the held child run; takes the recording away again when it cannot.
fn release(held: HeldChild, command: &[OsString], directory: &Path) -> Result<Child, Error> {
    held.release().map_err(|source| {
        // Nothing was recorded; a leftover would only be in the way of the next try.
        let _ = std::fs::remove_dir_all(directory);
        let program = command
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default();
        match source.kind() {
            io::ErrorKind::NotFound => Error::NoSuchProgram { program },
            _ => Error::NotExecutable { program, source },
        }
    })
}

/// Opens samplers on every thread of a running process. Threads that begin meanwhile are found by
/// looking again until there are no new ones.
fn attach(pid: u32, cpus: &[u32], options: SamplerOptions) -> Result<Samplers, Error> {
    let mut samplers = Samplers::open(pid, cpus, options).map_err(|error| match error {
        Error::Sampler { source, .. } if source.raw_os_error() == Some(3) => {
            Error::NoSuchProcess { pid }
        }
        Error::Sampler { source, .. } if matches!(source.raw_os_error(), Some(1 | 13)) => {
            Error::NotPermitted { pid }
        }
        error => error,
    })?;
    samplers
        .enable()
        .map_err(crate::error::sampler("cannot start a sampler"))?;
    let mut known = vec![pid];
    loop {
        let threads = procfs::threads(pid).map_err(|_| Error::NoSuchProcess { pid })?;
        let new: Vec<u32> = threads
            .into_iter()
            .filter(|tid| !known.contains(tid))
            .collect();
        if new.is_empty() {
            return Ok(samplers);
        }
        for tid in new {
            match samplers.add(tid) {
                // Gone already: it needs no sampler.
                Err(error) if error.raw_os_error() == Some(3) => {}
                result => {
                    result.map_err(crate::error::sampler(
                        "cannot sample a thread of the process",
                    ))?;
                }
            }
            known.push(tid);
        }
    }
}

fn describe(
    command: Vec<String>,
    pid: u32,
    launched: bool,
    start: Time,
    skid: &SkidProbe,
    watchpoints: Option<&WatchpointCosts>,
) -> RunInfo {
    let facts = Facts::read(Path::new("/"), &[]);
    let topology = sysfs::read_topology(Path::new("/")).ok();
    let source_reason = match (&facts.pmus.core, facts.hypervisor.name()) {
        (Some(pmu), _) => {
            format!(
                "the timer works everywhere; the counters of {pmu} are not used by this version"
            )
        }
        (None, "") => "this machine shows no PMU".to_owned(),
        (None, name) => format!("no PMU in this virtual machine ({name})"),
    };
    RunInfo {
        format_version: FORMAT_VERSION,
        linewise_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: false,
        command,
        pid: Pid(pid),
        launched,
        source: "timer".to_owned(),
        source_reason,
        start,
        end: start,
        ended_by: String::new(),
        exit_code: None,
        exit_signal: None,
        // Watches know lines of eight chunks.
        line_size: topology
            .as_ref()
            .and_then(|topology| topology.line_size().map(u64::from))
            .filter(|&size| size == 64)
            .unwrap_or(64),
        cpus: topology
            .as_ref()
            .map_or(1, |topology| topology.cpus.len() as u32),
        watchpoint_bytes: watchpoints.map_or(0, |costs| costs.count * crate::watch::CHUNK as u32),
        cpu_model: facts.cpu_model.known().cloned().unwrap_or_default(),
        hypervisor: facts.hypervisor.name().to_owned(),
        kernel: facts.kernel_release.known().cloned().unwrap_or_default(),
        skid_rule: skid.rule.word().to_owned(),
        exposure_offset_ns: watchpoints.map_or(0.0, |costs| costs.exposure_offset_ns),
        overhead: Overhead::default(),
    }
}

fn run(
    options: &RecordOptions,
    running: &mut Running,
    pid: u32,
    signals: &StopSignals,
    collector: &mut Collector,
    progress: &mut impl FnMut(Progress),
) -> Result<&'static str, Error> {
    // Without a pidfd (before Linux 5.3) the target's end is noticed at the next tick.
    let pidfd = process::pidfd(pid).ok();
    let mut fds = vec![signals.raw_fd()];
    fds.extend(pidfd.as_ref().map(AsRawFd::as_raw_fd));
    let start = Instant::now();
    let mut shown = Instant::now();
    loop {
        process::wait_readable(&fds, TICK);
        let stop = signals.next();
        let gone = match running {
            Running::Child(child) => child.try_wait().map_err(Error::Wait)?.is_some(),
            // A process that nobody waits for can still be signalled after its end.
            Running::Process => {
                pidfd
                    .as_ref()
                    .is_some_and(|fd| process::wait_readable(&[fd.as_raw_fd()], Duration::ZERO))
                    || process::signal(pid, 0).is_err()
            }
        };
        collector.tick()?;
        if shown.elapsed() >= Duration::from_millis(500) {
            shown = Instant::now();
            progress(Progress {
                elapsed: start.elapsed(),
                samples: collector.samples(),
                threads: collector.threads_alive(),
            });
        }
        if gone {
            return Ok("target-exited");
        }
        if stop.is_some() {
            return Ok("interrupted");
        }
        if options
            .duration
            .is_some_and(|duration| start.elapsed() >= duration)
        {
            collector.stop();
            return Ok("duration");
        }
    }
}

/// Waits for what would have ended the recording of a launched target.
fn outlast(
    running: &mut Running,
    signals: &StopSignals,
    duration: Option<Duration>,
    start: Time,
) -> Result<&'static str, Error> {
    let Running::Child(child) = running else {
        return Ok("interrupted");
    };
    loop {
        if child.try_wait().map_err(Error::Wait)?.is_some() {
            return Ok("target-exited");
        }
        if signals.next().is_some() {
            return Ok("interrupted");
        }
        if duration.is_some_and(|duration| u128::from(now().since(start)) >= duration.as_nanos()) {
            return Ok("duration");
        }
        process::wait_readable(&[signals.raw_fd()], Duration::from_millis(20));
    }
}

/// Brings a launched target to its end; an attached one goes on untouched.
fn settle(
    running: Running,
    pid: u32,
    ended_by: &str,
    signals: &StopSignals,
) -> Result<Option<Ended>, Error> {
    let Running::Child(mut child) = running else {
        return Ok(None);
    };
    if let Some(ended) = child.try_wait().map_err(Error::Wait)? {
        return Ok(Some(ended));
    }
    // Ctrl-C reached the target by itself, from the terminal; SIGTERM and the end of the duration
    // did not. A target that is already ending does not mind another.
    if ended_by != "target-exited" {
        let _ = process::signal(pid, SIGTERM);
    }
    let asked = Instant::now();
    let mut killed = false;
    loop {
        if let Some(ended) = child.try_wait().map_err(Error::Wait)? {
            return Ok(Some(ended));
        }
        process::wait_readable(&[signals.raw_fd()], Duration::from_millis(20));
        // The user insists, or the target does not listen.
        if !killed && (signals.next().is_some() || asked.elapsed() > Duration::from_secs(10)) {
            let _ = process::signal(pid, SIGKILL);
            killed = true;
        }
    }
}

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A loss row.
pub(crate) fn loss(what: &str, count: u64, detail: String) -> Loss {
    Loss {
        time: now(),
        tid: None,
        what: what.to_owned(),
        count,
        detail,
    }
}
