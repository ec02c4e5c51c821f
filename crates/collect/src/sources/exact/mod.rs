//! The exact source: every access of every thread, in one order, while the program runs under
//! QEMU's user-mode emulation.
//!
//! ```text
//! qemu-user + plugin ─ rings ─► Stream ─ TracedAccess, TracedEvent ─► Consumer
//! ```
//!
//! Nothing is kept unless it is asked for. The target runs in a process of its own and waits when
//! this one falls behind. What it does in the kernel (a `read` into its memory) is not seen.

mod batch;
mod code;
mod emulator;
mod ending;
mod error;
mod launch;
mod only;
mod pieces;
mod reading;
mod record;
mod stream;
#[cfg(test)]
mod tests;
mod totals;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use linewise_machine::process::{self, Child, Ended, HeldChild, Manner, monotonic_ns};
use linewise_machine::signals::StopSignals;
use linewise_recording::{Loss, Map, Order, Time};
use linewise_trace::{
    Both, Consumer, ExactThread, Instruction, KeepTrace, TraceTables, TraceWriter,
};
use linewise_tracer::{Region, threshold};

pub use emulator::{check_descriptors, plugin};
pub use error::ExactError;
pub use record::{ExactRecordOptions, ExactRecorded, record_exact};
pub use totals::Totals;

#[cfg(fuzzing)]
pub(crate) use record::fuzzing::Reader as FuzzedReader;

use crate::target::family::{Ending, Family};
use launch::Launch;
use stream::Stream;

/// What to trace.
#[derive(Clone, Debug)]
pub struct ExactOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Record one line in so many, chosen by their hash; 1 for all.
    pub one_line_in: u32,
    /// Record only the code of this module or function: `NAME` is a function of the program, or a
    /// module by its file's name (`libc` also for `libc.so.6`); `PATH` with a slash is a module;
    /// `PATH:FUNCTION` a function of it.
    pub only: Option<String>,
    /// Leave out what a thread does to a line while no other touches it: such accesses are counted
    /// ([`ExactOutcome::counted`]), sampled by instruction ([`Consumer::sampled`]), and summed up when another
    /// thread comes ([`Consumer::handover`]). Of these units, size in bytes (a power of two) and one in
    /// how many, as [`Choice::Stratified`](linewise_cache::reuse::Choice) chooses them, all accesses are
    /// told nevertheless. `None` tells all; so does a share of the lines.
    pub leave_own: Option<Vec<(u32, u32)>>,
    /// In which order threads make their accesses to what they share; see [`Self::effective_order`].
    pub order: Order,
    /// Load the heap recorder into the program.
    pub heap: Option<HeapLoading>,
    /// Keep the trace.
    pub keep_trace: Option<KeepTrace>,
    /// Take the place of init for the command's orphans, so that they end with it. Only where this process has no other
    /// children: it is not to be told of their end.
    pub adopt_orphans: bool,
    /// End after this long.
    pub duration: Option<Duration>,
}

impl ExactOptions {
    /// Traces all of a command.
    #[must_use]
    pub fn new(command: Vec<OsString>) -> Self {
        Self {
            command,
            one_line_in: 1,
            only: None,
            leave_own: None,
            order: Order::default(),
            heap: None,
            keep_trace: None,
            adopt_orphans: false,
            duration: None,
        }
    }

    /// The order that accesses come in: only where the tracer sees all that threads do, it can make one.
    #[must_use]
    pub fn effective_order(&self) -> Order {
        match self.only {
            Some(_) => Order::AsRun,
            None => self.order,
        }
    }
}

/// How the heap recorder is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapLoading {
    /// Variables of the program's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The path of the memory with the rules by which stacks are walked.
    pub region: String,
    /// Whether calls are followed, through the recorder too.
    pub calls: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct ExactOutcome {
    /// How the command ended.
    pub ended: Ended,
    /// Why the trace ended: `target-exited`, `duration` or `interrupted`.
    pub ended_by: &'static str,
    /// Sums.
    pub totals: Totals,
    /// The threads, by their numbers in the accesses.
    pub threads: Vec<ExactThread>,
    /// By thread: its loads, stores and updates, and the lines that it was the first to touch and had for
    /// itself. Zero where no accesses are left out.
    pub counted: Vec<([u64; 3], u64)>,
    /// The instructions, by their numbers in the accesses.
    pub instructions: Vec<Instruction>,
    /// What the target mapped.
    pub maps: Vec<Map>,
    /// Time that threads waited for this process, in ns, all together.
    pub waited_ns: u64,
    /// What is not in the trace.
    pub losses: Vec<Loss>,
    /// The emulator's path.
    pub emulator: PathBuf,
}

/// How long the collector sleeps at most when there was nothing, or next to nothing, to read. A
/// writer wakes it when a quarter of its ring is full.
const LONG_NAP: Duration = Duration::from_millis(4);
const SHORT_NAP: Duration = Duration::from_millis(1);
/// Words that are next to nothing: reading on their writer's heels costs both more.
const LITTLE: u64 = 1 << 13;
/// How often the command is asked whether it has ended.
const ASK_NS: u64 = 2_000_000;
/// The same once it was asked to end: its family is looked for, too.
const ASK_ENDING_NS: u64 = 20_000_000;

/// Runs a command under the tracer and hands its accesses to `consumer` until it ends, the duration
/// is over, or SIGTERM is among `signals`; the others it gets ([`Heard::pass_on`]). Where it has not ended by itself, it is
/// asked to (SIGTERM), with all that [descends from it](ExactOptions::adopt_orphans), and waited for; after ten seconds of its duration, or when SIGTERM
/// comes again, all are killed.
///
/// [`Heard::pass_on`]: linewise_machine::signals::Heard::pass_on
///
/// # Errors
/// See [`ExactError`].
pub fn trace<C: Consumer>(
    options: &ExactOptions,
    signals: &StopSignals,
    consumer: &mut C,
) -> Result<ExactOutcome, ExactError> {
    let Some(keep) = &options.keep_trace else {
        return trace_to(options, signals, consumer);
    };
    let no_file = |source| ExactError::Keep {
        path: keep.path.clone(),
        source,
    };
    let writer = TraceWriter::create(keep).map_err(no_file)?;
    let mut both = Both(consumer, writer);
    let traced = trace_to(options, signals, &mut both);
    let mut writer = both.1;
    let mut outcome = traced.inspect_err(|_| writer.discard())?;
    let tables = TraceTables {
        threads: std::mem::take(&mut outcome.threads),
        instructions: std::mem::take(&mut outcome.instructions),
        maps: std::mem::take(&mut outcome.maps),
    };
    writer.close(&tables);
    TraceTables {
        threads: outcome.threads,
        instructions: outcome.instructions,
        maps: outcome.maps,
    } = tables;
    if let Some(error) = writer.error {
        outcome.losses.push(loss(
            "trace-not-kept",
            writer.missing,
            format!(
                "accesses that could not be kept: {}: {error}",
                keep.path.display()
            ),
        ));
    } else if writer.missing > 0 {
        outcome.losses.push(loss(
            "trace-cut",
            writer.missing,
            format!(
                "accesses that were not kept: {} had reached its limit of {} bytes",
                keep.path.display(),
                keep.max_bytes
            ),
        ));
    }
    Ok(outcome)
}

fn loss(what: &str, count: u64, detail: String) -> Loss {
    Loss::new(Time(monotonic_ns()), what, count, detail)
}

fn trace_to<C: Consumer>(
    options: &ExactOptions,
    signals: &StopSignals,
    consumer: &mut C,
) -> Result<ExactOutcome, ExactError> {
    let region = Region::create().map_err(ExactError::Memory)?;
    let launch = Launch::find(&options.command, region.path().unwrap_or_default())?;
    region.set_threshold(threshold(options.one_line_in));
    let only = match &options.only {
        Some(only) => only::configuration(only, &launch.program.path)?,
        None => Vec::new(),
    };
    let mut configuration = launch.configuration(&only);
    if let Some(units) = &options.leave_own {
        configuration.extend(b"leave-own=\0");
        for (bytes, one_in) in units {
            configuration.extend(format!("whole={bytes}/{one_in}\0").bytes());
        }
    }
    if options.effective_order() == Order::EqualRate {
        configuration.extend(b"order=made\0");
    }
    let mut environment = &[][..];
    if let Some(heap) = &options.heap {
        environment = &heap.environment;
        configuration.extend(format!("heap={}\0", heap.region).bytes());
        if heap.calls {
            configuration.extend(b"heap-returns=\0");
        }
    }
    region
        .set_configuration(&configuration)
        .map_err(ExactError::Memory)?;
    let (command, environment) = launch.command(process::environment(environment));
    let manner = Manner {
        fixed_addresses: true,
        ..Manner::default()
    };
    let before = options.adopt_orphans.then(Family::before_the_first);
    let held = HeldChild::fork(&command, environment, manner).map_err(ExactError::Start)?;
    let root = held.pid();
    // After the fork, which wants a process of one thread, and before the target begins.
    consumer.begin().map_err(ExactError::Threads)?;
    let mut stream = Stream::new(region.clone(), launch.program.machine);
    // Without it the target sees less surely that this process was killed.
    let _hold = region.hold().ok();
    let mut child = held.release().map_err(ExactError::Start)?;

    let family = before.unwrap_or_else(|| Family::below(root));
    let (ended, ended_by) = follow(
        options,
        signals,
        (&region, &mut stream),
        (&mut child, &family),
        consumer,
    )?;
    let others = stream.others(root);
    // What others still write is as old as the command's end, or comes after it.
    region.detach();
    while stream.round(consumer, true) > 0 {
        if others > 0 {
            break;
        }
    }
    if !region.installed() || stream.threads.is_empty() && ended_by == "target-exited" {
        return Err(ExactError::NotInstalled { ended });
    }
    stream.finish(consumer);
    let ended = ending::of_the_program(ended, &launch.qemu.path);
    let vanished = stream.vanished(root);
    let mut outcome = outcome(stream, &region, (ended, ended_by), others);
    if vanished > 0 {
        outcome.losses.push(loss(
            "untraced-program",
            vanished,
            "programs that took the place of traced ones and ran untraced, since the tracer could not begin in them"
                .to_owned(),
        ));
    }
    outcome.emulator = OsString::from_vec(launch.qemu.path).into();
    Ok(outcome)
}

/// Reads what the command does until it has ended, by itself or because it was to: how, and why.
fn follow<C: Consumer>(
    options: &ExactOptions,
    signals: &StopSignals,
    (region, stream): (&Region, &mut Stream),
    (child, family): (&mut Child, &Family),
    consumer: &mut C,
) -> Result<(Ended, &'static str), ExactError> {
    let root = child.pid();
    let start = monotonic_ns();
    let mut asked = start;
    let mut ending: Option<(Ending, &'static str)> = None;
    loop {
        let words = stream.round(consumer, false);
        let now = monotonic_ns();
        let is_due = match ending {
            None => words == 0 || now - asked > ASK_NS,
            Some(_) => now - asked > ASK_ENDING_NS,
        };
        if is_due {
            asked = now;
            family.reap(child);
            let interrupted = || signals.next().is_some_and(|came| came.pass_on(root));
            if let Some((ending, ended_by)) = &mut ending {
                if interrupted() {
                    ending.insist();
                }
                let ended = ending.look(child, || family.members());
                if let Some(ended) = ended.map_err(ExactError::Wait)? {
                    return Ok((ended, ended_by));
                }
            } else {
                if let Some(ended) = child.try_wait().map_err(ExactError::Wait)? {
                    return Ok((ended, "target-exited"));
                }
                let over = options
                    .duration
                    .is_some_and(|duration| u128::from(now - start) >= duration.as_nanos());
                let ended_by = match (interrupted(), over) {
                    (true, _) => Some("interrupted"),
                    (false, true) => Some("duration"),
                    (false, false) => None,
                };
                if let Some(ended_by) = ended_by {
                    let asking = Ending::ask(child, &family.members(), ended_by == "duration");
                    ending = Some((asking.map_err(ExactError::Wait)?, ended_by));
                }
            }
        }
        if words < LITTLE {
            region.prepare_sleep();
            match stream.round(consumer, false) {
                0 => region.sleep(LONG_NAP),
                words if words < LITTLE => region.sleep(SHORT_NAP),
                _ => {}
            }
        }
    }
}

const SIGILL: i32 = 4;

fn outcome(
    stream: Stream,
    region: &Region,
    (ended, ended_by): (Ended, &'static str),
    others: usize,
) -> ExactOutcome {
    let mut losses = Vec::new();
    let mut lose = |what: &str, count: u64, detail: String| {
        if count > 0 {
            losses.push(loss(what, count, detail));
        }
    };
    let totals = stream.totals;
    lose(
        "no-ring",
        region.unrecorded(),
        "accesses of threads or processes beyond the 4,096 that can be traced at a time".to_owned(),
    );
    lose(
        "order-forced",
        region.forced(),
        "times that a thread that did not get on for two seconds, or waited in a call that was not expected to wait, was not \
         waited for by the others, or that this QEMU has not what making an order takes: from there on the order is the \
         machine's"
            .to_owned(),
    );
    lose(
        "order-by-the-kernel",
        region.came_back(),
        "times that a thread came back from a wait that the kernel ended (a sleep, a poll, a pipe, a process), or a process came to \
         memory that others use already: its place in the order is the machine's, so counts may differ from run to run; --repeat N \
         tells by how much"
            .to_owned(),
    );
    lose(
        "malformed",
        totals.malformed + stream.code.malformed,
        "records of the tracer that made no sense: the target wrote over the shared memory"
            .to_owned(),
    );
    lose(
        "unexplained",
        totals.unexplained,
        "accesses by code that the tracer never described".to_owned(),
    );
    lose(
        "unnumbered",
        totals.unnumbered,
        "records of threads and processes beyond the 65,535 that can be told apart".to_owned(),
    );
    lose(
        "unowned",
        totals.unowned,
        "lines whose first thread was not known yet when another came: what it did to them before is not told"
            .to_owned(),
    );
    lose(
        "still-running",
        others as u64,
        "processes that went on after the command had ended, from then on untraced".to_owned(),
    );
    lose(
        "other-namespace",
        stream.strangers,
        "processes in other namespaces of process ids that had ended before they were looked for: their threads have neither \
         names nor stacks, and what only /proc tells of their memory is missing"
            .to_owned(),
    );
    let [instructions, maps] = stream.code.dropped;
    lose(
        "instructions-dropped",
        instructions,
        "instructions that there was no room for beside four million others: their accesses are unexplained".to_owned(),
    );
    lose(
        "maps-dropped",
        maps,
        "mappings that there was no room for beside half a million others: what lies there has no name".to_owned(),
    );
    lose(
        "untraced-program",
        stream.code.more_untraced,
        "further programs that ran untraced".to_owned(),
    );
    for untraced in &stream.code.untraced {
        lose("untraced-program", 1, error::untraced_text(untraced));
    }
    lose(
        "illegal-instruction",
        u64::from(ended == Ended::Signal(SIGILL)),
        "the target ended by SIGILL: QEMU emulates no AVX-512 (nor, before 7.2, AVX); build it for \
             x86-64-v3 or less, or let it choose at run time"
            .to_owned(),
    );
    ExactOutcome {
        ended,
        ended_by,
        totals,
        waited_ns: stream.threads.iter().map(|thread| thread.waited_ns).sum(),
        threads: stream.threads,
        counted: stream.counted,
        instructions: stream.code.instructions,
        maps: stream.code.maps,
        losses,
        emulator: PathBuf::new(),
    }
}
