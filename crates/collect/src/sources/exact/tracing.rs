//! A command under the tracer, from its launch to its end.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use linewise_machine::process::{self, Ended, HeldChild, Manner};
use linewise_machine::signals::StopSignals;
use linewise_recording::Order;
use linewise_trace::{Both, Consumer, KeepTrace, TraceTables, TraceWriter};
use linewise_tracer::{Hold, Region, threshold};

use super::error::untraced_text;
use super::launch::Launch;
use super::stream::Stream;
use super::{ExactError, ExactOptions, ExactOutcome, ending, loss, only};
use crate::error::Error;
use crate::kernel::{Machine, Signals};
use crate::recorder::{Follower, follow};
use crate::target::family::Family;
use crate::target::life::{EndedBy, Life, Running};

/// How long the collector sleeps at most when there was nothing, or next to nothing, to read. A
/// writer wakes it when a quarter of its ring is full.
const LONG_NAP: Duration = Duration::from_millis(4);
const SHORT_NAP: Duration = Duration::from_millis(1);
/// Words that are next to nothing: reading on their writer's heels costs both more.
const LITTLE: u64 = 1 << 13;
/// How often the command is asked whether it has ended.
const ASK: Duration = Duration::from_millis(2);
/// The same once it was asked to end: its family is looked for, too.
const ASK_ENDING: Duration = Duration::from_millis(20);

/// Runs a command under the tracer and hands its accesses to `consumer`, until it ends as with [`crate::record`].
///
/// # Errors
/// [`Error::Exact`], [`Error::Wait`].
pub fn trace<C: Consumer>(
    options: &ExactOptions,
    signals: &StopSignals,
    consumer: &mut C,
) -> Result<ExactOutcome, Error> {
    let (mut tracing, running) = Tracing::begin(options, consumer)?;
    let mut life = Life::new(Machine, running, signals, options.duration);
    let (why, ended) = follow(&mut life, &mut tracing, &mut |_| {})?;
    Ok(tracing.close(why, ended)?)
}

/// A command under the tracer. When this is dropped the command runs on, untraced.
pub(super) struct Tracing<C> {
    region: Region,
    stream: Stream,
    /// Without it the target sees less surely that this process was killed.
    _hold: Option<Hold>,
    emulator: PathBuf,
    root: u32,
    /// Where the trace is kept, if it is.
    keep: Option<KeepTrace>,
    consumer: Both<C, Option<TraceWriter>>,
}

impl<C: Consumer> Tracing<C> {
    /// Launches the command; `consumer` begins when nothing stands in its way any more.
    ///
    /// # Errors
    /// See [`ExactError`]: nothing was run.
    pub(super) fn begin(
        options: &ExactOptions,
        consumer: C,
    ) -> Result<(Self, Running<Machine>), ExactError> {
        let region = Region::create().map_err(ExactError::Memory)?;
        let launch = Launch::find(&options.command, region.path().unwrap_or_default())?;
        region.set_threshold(threshold(options.one_line_in));
        let configuration = configuration(options, &launch)?;
        region
            .set_configuration(&configuration)
            .map_err(ExactError::Memory)?;
        let heap = options.heap.as_ref();
        let variables = heap.map_or(&[][..], |heap| &heap.environment);
        let (command, environment) = launch.command(process::environment(variables));
        let manner = Manner {
            fixed_addresses: true,
            output_to_errors: options.output_to_errors,
            ..Manner::default()
        };
        let keep = options.keep_trace.clone();
        let writer = keep.as_ref().map(|keep| {
            TraceWriter::create(keep).map_err(|source| ExactError::Keep {
                path: keep.path.clone(),
                source,
            })
        });
        let mut tracing = Self {
            stream: Stream::new(region.clone(), launch.program.machine),
            _hold: None,
            emulator: OsString::from_vec(launch.qemu.path.clone()).into(),
            root: 0,
            keep,
            consumer: Both(consumer, writer.transpose()?),
            region,
        };
        let before = options.adopt_orphans.then(|| Family::before(Machine));
        let held = HeldChild::fork(&command, environment, manner).map_err(ExactError::Start)?;
        tracing.root = held.pid();
        // After the fork, which wants a process of one thread, and before the target begins.
        tracing.consumer.begin().map_err(ExactError::Threads)?;
        tracing._hold = tracing.region.hold().ok();
        let child = held.release().map_err(ExactError::Start)?;
        let family = before.unwrap_or_else(|| Family::below(Machine, tracing.root));
        Ok((tracing, Running::Child(child, family)))
    }

    /// Who takes the accesses.
    pub(super) fn consumer(&mut self) -> &mut C {
        &mut self.consumer.0
    }

    /// Reads for so long, or, where `or_idle`, until there is nothing to read.
    fn read(&mut self, time: Duration, or_idle: bool) {
        let start = Instant::now();
        loop {
            let words = self.stream.round(&mut self.consumer, false);
            if or_idle && words == 0 || start.elapsed() > time {
                return;
            }
            if words < LITTLE {
                self.nap();
            }
        }
    }

    /// Sleeps until there is more to read.
    fn nap(&mut self) {
        self.region.prepare_sleep();
        match self.stream.round(&mut self.consumer, false) {
            0 => self.region.sleep(LONG_NAP),
            words if words < LITTLE => self.region.sleep(SHORT_NAP),
            _ => {}
        }
    }

    /// Reads what is left of a command that ended like this; what came of it.
    ///
    /// # Errors
    /// [`ExactError::NotInstalled`].
    pub(super) fn close(
        &mut self,
        why: EndedBy,
        ended: Option<Ended>,
    ) -> Result<ExactOutcome, ExactError> {
        let ended = ended.unwrap_or(Ended::Code(0));
        let (stream, root) = (&mut self.stream, self.root);
        let others = stream.others(root);
        // What others still write is as old as the command's end, or comes after it.
        self.region.detach();
        while stream.round(&mut self.consumer, true) > 0 {
            if others > 0 {
                break;
            }
        }
        if !self.region.installed() || stream.threads.is_empty() && why == EndedBy::TargetExited {
            return Err(ExactError::NotInstalled { ended });
        }
        stream.finish(&mut self.consumer);
        let ended = ending::of_the_program(ended, self.emulator.as_os_str().as_bytes());
        let vanished = stream.vanished(root);
        let mut outcome = outcome(stream, &self.region, (ended, why), others);
        if vanished > 0 {
            outcome.losses.push(loss(
                "untraced-program",
                vanished,
                "programs that took the place of traced ones and ran untraced, since the tracer could not begin in them"
                    .to_owned(),
            ));
        }
        outcome.emulator = self.emulator.clone();
        if let (Some(writer), Some(keep)) = (self.consumer.1.take(), &self.keep) {
            close_trace(writer, keep, &mut outcome);
        }
        Ok(outcome)
    }
}

impl<C> Drop for Tracing<C> {
    fn drop(&mut self) {
        self.region.detach();
        if let Some(writer) = &self.consumer.1 {
            writer.discard();
        }
    }
}

impl<C: Consumer, S: Signals> Follower<Machine, S> for Tracing<C> {
    fn wait(&mut self, _: &mut Life<'_, Machine, S>) -> Result<(), Error> {
        self.nap();
        self.read(ASK, true);
        Ok(())
    }

    fn take(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn progress(&self) -> (u64, usize) {
        let threads = self.stream.threads.len();
        (self.stream.totals.accesses, threads)
    }

    fn release(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn wait_for_the_end(&mut self, _: &mut Life<'_, Machine, S>) -> Result<(), Error> {
        self.read(ASK_ENDING, false);
        Ok(())
    }
}

/// What the plugin reads when it is loaded.
fn configuration(options: &ExactOptions, launch: &Launch) -> Result<Vec<u8>, ExactError> {
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
    if let Some(heap) = &options.heap {
        configuration.extend(format!("heap={}\0", heap.region).bytes());
        if heap.calls {
            configuration.extend(b"heap-returns=\0");
        }
    }
    Ok(configuration)
}

/// Completes a kept trace with what `outcome` knows; what is missing in it is a loss.
fn close_trace(mut writer: TraceWriter, keep: &KeepTrace, outcome: &mut ExactOutcome) {
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
    let path = keep.path.display();
    if let Some(error) = writer.error {
        let detail = format!("accesses that could not be kept: {path}: {error}");
        outcome
            .losses
            .push(loss("trace-not-kept", writer.missing, detail));
    } else if writer.missing > 0 {
        let most = keep.max_bytes;
        let detail =
            format!("accesses that were not kept: {path} had reached its limit of {most} bytes");
        outcome
            .losses
            .push(loss("trace-cut", writer.missing, detail));
    }
}

const SIGILL: i32 = 4;

/// What came of a trace.
pub(super) fn outcome(
    stream: &mut Stream,
    region: &Region,
    (ended, ended_by): (Ended, EndedBy),
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
        lose("untraced-program", 1, untraced_text(untraced));
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
        threads: std::mem::take(&mut stream.threads),
        counted: std::mem::take(&mut stream.counted),
        instructions: std::mem::take(&mut stream.code.instructions),
        maps: std::mem::take(&mut stream.code.maps),
        losses,
        emulator: PathBuf::new(),
    }
}
