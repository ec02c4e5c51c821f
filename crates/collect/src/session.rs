//! A recording from its first to its last moment.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use linewise_machine::facts::Facts;
use linewise_machine::guard::{self, Guard};
use linewise_machine::perf::SamplerOptions;
use linewise_machine::probe::{self, AtSwitch};
use linewise_machine::process::{self, Child, Ended, HeldChild, Manner};
use linewise_machine::retrap::retrap_time;
use linewise_machine::signals::{ChangeSignal, StopSignals};
use linewise_machine::sysfs;
use linewise_recording::{CreateMode, Loss, Pid, RunInfo, Time, Writer};

use crate::attach::{Attachment, attach, family as family_of, of_processes, switches_are_dear};
use crate::budget::{Budget, Costs, Limits};
use crate::bug;
use crate::collector::{Collector, FlowRecorder, ReuseSampling};
use crate::description::describe;
use crate::error::Error;
use crate::family::{Ending, Family};
use crate::heap::{self, HeapRecorder, Source};
use crate::latencies::Latencies;
use crate::options::{Event, HeapWhen, Progress, RecordOptions, SampleBy, Target};
use crate::samplers::Samplers;
use crate::samplers::cpus::CpuSamplers;
use crate::samplers::threads::{ThreadSamplers, finer_period_ns};

/// Places of 8 bytes that an object is watched at, at most.
const MOST_PLACES: u32 = 3;

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// How the target ended, if it ended while recorded and was launched here.
    pub ended: Option<Ended>,
    /// Why the recording ended: `target-exited`, `duration` or `interrupted`.
    pub ended_by: &'static str,
    /// Samples recorded.
    pub samples: u64,
    /// Why the recording is not whole: [`Event::Failed`] or [`Event::CutShort`] told so at that moment. What was
    /// flushed until then can be read.
    pub failure: Option<Error>,
}

/// The target before its recording begins.
enum Beginning<'a> {
    Held(HeldChild, &'a [OsString]),
    Processes(&'a [u32]),
}

impl Beginning<'_> {
    fn pid(&self) -> u32 {
        match self {
            Self::Held(held, _) => held.pid(),
            Self::Processes(pids) => pids.first().copied().unwrap_or(0),
        }
    }
}

/// The target while it is recorded.
enum Running {
    Child(Child),
    Processes(Vec<Attachment>),
}

/// Records until the target ends (of named processes the last), the duration is over, or one of `signals` asks for that: any,
/// of a target that ran before; SIGTERM, of a launched one, which gets the others ([`Heard::pass_on`]). Call it from the only
/// thread of the process. The target is never stopped; nothing stays armed in it.
///
/// [`Heard::pass_on`]: linewise_machine::signals::Heard::pass_on
///
/// A launched target that is still running when its recording ends is asked to end (SIGTERM) with
/// all processes that descend from it, and waited for. From here on this process is the one that
/// orphans of its descendants come to.
///
/// # Errors
/// See [`Error`]. When the command cannot be run, no recording is left behind, and an older one that
/// was to be replaced is still there. A failure after the target has begun is no error but part of
/// the [`Outcome`].
pub fn record(
    options: &RecordOptions,
    signals: &StopSignals,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let translated = of_processes(options, &mut tell)?;
    let options = translated.as_ref().unwrap_or(options);
    let heap = heap_source(options);
    let facts = Facts::read(Path::new("/"), &[]);
    let guarded = options.guard.unwrap_or_else(|| guard::needed(&facts));
    // First, so that it holds nothing of what is opened below.
    let guard = guarded
        .then(Guard::start)
        .transpose()
        .map_err(Error::Fork)?;
    // A child is forked before anything below changes what it would inherit: the limit of open
    // files, the time slice.
    let (beginning, family) = match &options.target {
        Target::Launch(command) => {
            let family = Family::before_the_first();
            let environment = match &heap {
                Some(Ok(Source::Load(loading))) => loading.environment(&loading.region.path()),
                _ => Vec::new(),
            };
            let manner = Manner {
                tracer: guard.as_ref().map(Guard::pid),
                ..Manner::default()
            };
            let environment = process::environment(&environment);
            let held = HeldChild::fork(command, environment, manner).map_err(Error::Fork)?;
            (Beginning::Held(held, command), family)
        }
        Target::Attach(pids) => (Beginning::Processes(pids), Family::none()),
    };
    let changes = ChangeSignal::block().map_err(Error::Wait)?;
    let open_files = process::raise_open_files();
    // The rings want to be emptied on time though every CPU is busy.
    linewise_machine::affinity::prefer_short_slices();
    let watchpoints = probe::watchpoint_costs();
    let registers = watchpoints.as_ref().map_or(0, |watch| watch.count);
    // Who has watchpoints of its own leaves some: reuses half of them, objects one, since three places at a time show
    // three pairs for little more than two show one.
    let taken = match (options.reuse, options.flow.is_some()) {
        (true, _) => registers / 2,
        (false, true) => registers.saturating_sub(1).min(MOST_PLACES),
        (false, false) => 0,
    };
    let reuse = options.reuse.then(|| reuse_sampling(taken));
    let start = now();
    let limits = Limits {
        overhead: options.overhead,
        rate: options.rate,
    };
    let skid = probe::skid_rule()?;
    let cpus = online_cpus();
    let mut sampler_options = SamplerOptions {
        period_ns: limits.period_ns(skid.sample_ns),
        enable_on_exec: matches!(options.target, Target::Launch(_)),
        inherit: true,
    };
    let of_cpus = || CpuSamplers::open(beginning.pid(), &cpus, sampler_options);
    let of_cpus = match options.sample_by {
        SampleBy::Auto => of_cpus().ok(),
        SampleBy::Cpu => Some(of_cpus()?),
        SampleBy::Thread => None,
    };
    let switch_ns = |period_ns| {
        probe::switch_cost_ns(match of_cpus {
            Some(_) => AtSwitch::Records,
            None => AtSwitch::Timers { period_ns },
        })
    };
    let mut costs = Costs {
        skid,
        watchpoints: watchpoints.as_ref().ok().copied(),
        switch_ns: switch_ns(sampler_options.period_ns)?,
        armed_switch_ns: armed_switch_ns(registers),
    };
    if let Beginning::Processes(pids) = beginning
        && of_cpus.is_none()
        && options.rate.is_none()
        && switches_are_dear(&family_of(pids), costs.switch_ns, options.overhead)
    {
        sampler_options.period_ns = finer_period_ns(sampler_options.period_ns);
        costs.switch_ns = switch_ns(sampler_options.period_ns)?;
    }
    let budget = Budget::new(limits, &costs, sampler_options.period_ns, start);

    let latencies = match beginning {
        Beginning::Held(..) => Some(Latencies::before_the_target()),
        // It would be slowed down without a word in the account.
        Beginning::Processes(_) => None,
    };
    // Probes are there before the program's first instruction.
    let heap = heap.map(|source| heap_recorder(source?, beginning.pid(), &cpus, options));
    let mut left_out = Vec::new();
    let mut members = vec![beginning.pid()];
    let info = |pid, samplers: &Samplers| RunInfo {
        command: options.target.command_line(pid),
        pid: Pid(pid),
        launched: matches!(options.target, Target::Launch(_)),
        // What was measured of the machine before is no part of the run.
        ..describe(samplers.what(), now(), &facts, &costs, taken)
    };
    let (mut running, pid, samplers, writer, info) = match beginning {
        Beginning::Held(held, command) => {
            let pid = held.pid();
            let samplers = match of_cpus {
                Some(samplers) => Samplers::Cpus(samplers.started()?),
                None => Samplers::Threads(ThreadSamplers::open(pid, &cpus, sampler_options)?),
            };
            let info = info(pid, &samplers);
            let (child, writer) = begin(held, command, options, &info)?;
            let writer = match writer {
                Ok(writer) => writer,
                Err(error) => {
                    let mut running = Running::Child(child);
                    return run_out(error, &mut running, &family, options, signals, start, tell);
                }
            };
            (Running::Child(child), pid, samplers, writer, info)
        }
        Beginning::Processes(pids) => {
            let samplers = match of_cpus {
                Some(samplers) => {
                    let mut samplers = samplers.started()?;
                    // Whoever is forked from now on is told of.
                    members = family_of(pids);
                    samplers.follow(&members);
                    Samplers::Cpus(samplers)
                }
                None => {
                    let attached = attach(pids, &cpus, sampler_options, open_files)?;
                    left_out = attached.left_out;
                    members = family_of(pids);
                    Samplers::Threads(attached.samplers)
                }
            };
            let pid = members[0];
            let info = info(pid, &samplers);
            let writer = Writer::create(&options.directory, &info, mode(options))?;
            let attachments = pids.iter().copied().map(Attachment::to).collect();
            (Running::Processes(attachments), pid, samplers, writer, info)
        }
    };

    let mut collector = Collector::new(samplers, writer, info, budget, &costs, cpus, guard);
    let recorded = bug::caught(|| {
        for &member in &members {
            collector.found_process(member);
        }
        if let Some((latencies, rows)) = latencies {
            collector.know_latencies(latencies, rows)?;
        }
        match reuse {
            Some(Ok(reuse)) => collector.sample_reuse(reuse),
            Some(Err(reason)) => collector.lose("reuse-not-sampled", 1, reason)?,
            None => {}
        }
        match heap {
            Some(Ok(heap)) => {
                collector.record_heap(heap);
                if let (Target::Attach(_), others @ 1..) = (&options.target, members.len() - 1) {
                    let reason = format!(
                        "heap blocks of process {pid} alone are recorded: probes are placed in one process, and {others} more are followed"
                    );
                    tell(Event::Warning(&reason));
                    collector.lose("heap-not-recorded", others as u64, reason)?;
                }
            }
            Some(Err(reason)) => {
                let mut reason = format!("heap blocks are not recorded: {reason}");
                if options.flow.is_some() {
                    reason.push_str("; so objects are not followed either");
                }
                if options.heap != HeapWhen::Loaded {
                    tell(Event::Warning(&reason));
                }
                collector.lose("heap-not-recorded", 1, reason)?;
            }
            None => {}
        }
        if let Some(wanted) = &options.flow {
            collector.follow_objects(FlowRecorder::new(wanted.clone(), taken));
        }
        for (threads, reason) in left_out {
            tell(Event::Warning(&reason));
            collector.lose("threads-not-sampled", threads, reason)?;
        }
        if let Err(error) = &watchpoints {
            collector.lose(
                "watchpoints-unavailable",
                1,
                format!("no line could be watched: {error}"),
            )?;
        }
        let ended_by = run(
            options,
            &mut running,
            signals,
            &changes,
            &mut collector,
            &mut tell,
        )?;
        // The target is asked to end, if at all, when nobody stands in its way.
        collector.release()?;
        Ok(ended_by)
    });
    let ended_by = match recorded {
        Ok(ended_by) => ended_by,
        Err(error) => {
            bug::drop_caught(collector);
            return run_out(error, &mut running, &family, options, signals, start, tell);
        }
    };
    let ended = settle(&mut running, &family, ended_by, signals)?;
    let samples = collector.samples();
    // The target has ended: how is known, and is not lost with the rest.
    let failure = bug::caught(|| collector.finish(ended_by, ended)).err();
    if let Some(error) = &failure {
        tell(Event::CutShort(error));
    }
    Ok(Outcome {
        ended,
        ended_by,
        samples,
        failure,
    })
}

/// Who tells of the target's heap blocks, or why nobody can; `None` where nobody asked for it.
fn heap_source(options: &RecordOptions) -> Option<Result<Source, String>> {
    match (&options.target, options.heap) {
        (_, HeapWhen::Never) | (Target::Attach(_), HeapWhen::Loaded) => None,
        (Target::Attach(pids), _) => pids.first().map(|&pid| heap::attaching(pid)),
        (Target::Launch(command), when) => Some(heap::loading(command, when != HeapWhen::Loaded)),
    }
}

/// The heap recorder of a target that waits for its first instruction, or runs.
fn heap_recorder(
    source: Source,
    pid: u32,
    cpus: &[u32],
    options: &RecordOptions,
) -> Result<HeapRecorder, String> {
    let overhead = (options.heap != HeapWhen::All).then_some(options.overhead);
    match source {
        Source::Load(loading) => {
            Ok(HeapRecorder::loaded(loading.region, overhead).unseen(loading.unseen))
        }
        Source::Probe { allocators, reason } => {
            let attached = matches!(options.target, Target::Attach(_));
            heap::probing((pid, attached), allocators, &reason, cpus, overhead)
        }
    }
}

/// It is the recording that failed: the target runs on to its end, unwatched.
fn run_out(
    error: Error,
    running: &mut Running,
    family: &Family,
    options: &RecordOptions,
    signals: &StopSignals,
    start: Time,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    tell(Event::Failed(&error));
    let ended_by = outlast(running, family, signals, options.duration, start)?;
    let ended = settle(running, family, ended_by, signals)?;
    Ok(Outcome {
        ended,
        ended_by,
        samples: 0,
        failure: Some(error),
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

fn mode(options: &RecordOptions) -> CreateMode {
    if options.replace {
        CreateMode::Replace
    } else {
        CreateMode::New
    }
}

/// Lets the held child run and creates its recording: before the child runs where that loses
/// nothing, and as soon as it runs where an older recording gives way. The inner error is that of
/// creating it when the child runs already.
fn begin(
    held: HeldChild,
    command: &[OsString],
    options: &RecordOptions,
    info: &RunInfo,
) -> Result<(Child, Result<Writer, Error>), Error> {
    let directory = &options.directory;
    let create = || Ok(Writer::create(directory, info, mode(options))?);
    if linewise_recording::check_place(directory, mode(options))? {
        let child = release(held, command)?;
        return Ok((child, create()));
    }
    let writer = create()?;
    match release(held, command) {
        Ok(child) => Ok((child, Ok(writer))),
        Err(error) => {
            writer.discard();
            Err(error)
        }
    }
}

/// What a switch costs more with that many watchpoints armed, ns.
fn armed_switch_ns(count: u32) -> f64 {
    // Where they cannot be armed nothing is.
    probe::switch_cost_ns(AtSwitch::Watchpoints { count }).unwrap_or(0.0)
}

/// What sampled reuse needs to know of this machine, or why there can be none.
fn reuse_sampling(slots: u32) -> Result<ReuseSampling, String> {
    if slots == 0 {
        return Err(
            "reuse was not sampled: threads have fewer than two watchpoints here".to_owned(),
        );
    }
    /// Breakpoints that the first measurement takes.
    const FIRST: u32 = 16;
    let time = retrap_time(FIRST).map_err(|error| format!("reuse was not sampled: {error}"))?;
    // Without a topology all CPUs are taken as near.
    let topology = sysfs::read_topology(Path::new("/"));
    let groups = topology.map_or_else(|_| Vec::new(), |topology| topology.llc_groups());
    Ok(ReuseSampling::new(slots, time, groups))
}

fn release(held: HeldChild, command: &[OsString]) -> Result<Child, Error> {
    held.release().map_err(|source| {
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

fn run(
    options: &RecordOptions,
    running: &mut Running,
    signals: &StopSignals,
    changes: &ChangeSignal,
    collector: &mut Collector,
    tell: &mut impl FnMut(Event<'_>),
) -> Result<&'static str, Error> {
    let start = Instant::now();
    let mut shown = Instant::now();
    loop {
        let mut fds = vec![signals.raw_fd(), changes.raw_fd()];
        fds.extend(collector.guard_fd());
        if let Running::Processes(attachments) = running {
            // Of one that has ended it is readable for good.
            let alive = attachments.iter().filter(|it| !it.has_ended);
            fds.extend(alive.filter_map(Attachment::raw_fd));
        }
        process::wait_readable(&fds, collector.until_next_tick());
        changes.clear();
        loop {
            match process::next_change() {
                Ok(Some((pid, change))) => {
                    if let Running::Child(child) = running {
                        child.note(pid, change);
                    }
                }
                Ok(None) => break,
                Err(error) => match running {
                    Running::Child(child) if child.ended().is_none() => {
                        return Err(Error::Wait(error));
                    }
                    _ => break,
                },
            }
        }
        collector.hear_guard()?;
        let gone = match running {
            Running::Child(child) => child.ended().is_some(),
            Running::Processes(attachments) => {
                attachments.iter_mut().for_each(Attachment::look);
                attachments.iter().all(|it| it.has_ended)
            }
        };
        // Looked at after the target's end: Ctrl-C reaches both, and then it is what ended it.
        let stop = is_to_end(running, signals);
        collector.tick()?;
        if shown.elapsed() >= Duration::from_millis(500) {
            shown = Instant::now();
            tell(Event::Progress(Progress {
                elapsed: start.elapsed(),
                samples: collector.samples(),
                threads: collector.threads_alive(),
            }));
        }
        if stop {
            return Ok("interrupted");
        }
        if gone {
            return Ok("target-exited");
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

/// Whether a signal came that ends the recording: any, of an attached target.
fn is_to_end(running: &Running, signals: &StopSignals) -> bool {
    signals.next().is_some_and(|came| match running {
        Running::Child(child) => came.pass_on(child.pid()),
        Running::Processes(_) => true,
    })
}

/// Waits for what would have ended the recording of a launched target.
fn outlast(
    running: &mut Running,
    family: &Family,
    signals: &StopSignals,
    duration: Option<Duration>,
    start: Time,
) -> Result<&'static str, Error> {
    let Running::Child(child) = running else {
        return Ok("interrupted");
    };
    loop {
        family.reap(child);
        let gone = child.try_wait().map_err(Error::Wait)?.is_some();
        if signals.next().is_some_and(|came| came.pass_on(child.pid())) {
            return Ok("interrupted");
        }
        if gone {
            return Ok("target-exited");
        }
        if duration.is_some_and(|duration| u128::from(now().since(start)) >= duration.as_nanos()) {
            return Ok("duration");
        }
        process::wait_readable(&[signals.raw_fd()], Duration::from_millis(20));
    }
}

/// Brings a launched target to its end, with all that descends from it; an attached one goes on
/// untouched, and so does what a target left behind when it ended by itself.
fn settle(
    running: &mut Running,
    family: &Family,
    ended_by: &str,
    signals: &StopSignals,
) -> Result<Option<Ended>, Error> {
    let Running::Child(child) = running else {
        return Ok(None);
    };
    if ended_by == "target-exited" {
        return child.wait().map(Some).map_err(Error::Wait);
    }
    let wait = Error::Wait;
    let by_duration = ended_by == "duration";
    let mut ending = Ending::ask(child, &family.members(), by_duration).map_err(wait)?;
    loop {
        family.reap(child);
        if let Some(ended) = ending.look(child, || family.members()).map_err(wait)? {
            return Ok(Some(ended));
        }
        process::wait_readable(&[signals.raw_fd()], Duration::from_millis(20));
        if signals.next().is_some_and(|came| came.pass_on(child.pid())) {
            ending.insist();
        }
    }
}

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
