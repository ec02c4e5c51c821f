//! A recording from its first to its last moment.

use std::time::Duration;

use linewise_machine::process::Ended;
use linewise_machine::signals::StopSignals;
use linewise_recording::{Latency, Time};

use crate::bug;
use crate::error::Error;
use crate::kernel::{Kernel, Machine, Signals, TargetChild};
use crate::latencies::Latencies;
use crate::options::{Event, HeapWhen, Progress, RecordOptions, Target};
use crate::sources::timer::attach::{Attachment, of_processes};
use crate::sources::timer::collector::{Collector, FlowRecorder, ReuseSampling};
use crate::target::family::Family;
use crate::target::heap::HeapRecorder;

mod begin;
mod prepare;
mod settle;

use begin::{BegunRecording, Running, begin};
use prepare::{Beginning, TargetAtHand, heap_recorder, heap_source, measure, prepare};
use settle::{outlast, settle};

/// From one progress line to the next, ns.
const PROGRESS_NS: u64 = 500_000_000;

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
    tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    record_by(&Machine, options, signals, tell)
}

/// As [`record`], by any kernel.
fn record_by<K: Kernel>(
    kernel: &K,
    options: &RecordOptions,
    signals: &impl Signals,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let translated = of_processes(kernel, options, &mut tell)?;
    let options = translated.as_ref().unwrap_or(options);
    let heap = heap_source(kernel, options);
    let TargetAtHand {
        beginning,
        family,
        facts,
        guard,
    } = prepare(kernel, options, heap.as_ref())?;
    let changes = kernel.block_changes().map_err(Error::Wait)?;
    let open_files = kernel.raise_open_files();
    // The rings want to be emptied on time though every CPU is busy.
    kernel.prefer_short_slices();
    let mut measured = measure(kernel, options, &beginning)?;
    let latencies = match beginning {
        Beginning::Held(..) => Some(Latencies::before_the_target(kernel)),
        // It would be slowed down without a word in the account.
        Beginning::Processes(_) => None,
    };
    // Probes are there before the program's first instruction.
    let heap =
        heap.map(|source| heap_recorder(kernel, source?, beginning.pid(), &measured.cpus, options));
    let BegunRecording {
        running,
        members,
        samplers,
        writer,
        info,
        left_out,
    } = begin(
        kernel,
        options,
        beginning,
        &mut measured,
        &facts,
        open_files,
    )?;
    let mut session = LiveRecording {
        kernel,
        options,
        signals,
        running,
        family,
        start: measured.start,
    };
    let writer = match writer {
        Ok(writer) => writer,
        Err(error) => return session.run_out(error, tell),
    };
    let mut collector = Collector::new(
        kernel.clone(),
        samplers,
        writer,
        info,
        (measured.budget, &measured.costs),
        measured.cpus,
        guard,
    );
    let found = FirstFacts {
        members,
        latencies,
        reuse: measured.reuse,
        heap,
        flow: (options.flow.clone()).map(|wanted| FlowRecorder::new(wanted, measured.taken)),
        left_out,
        unwatched: measured.watchpoints.err().map(|error| error.to_string()),
    };
    let recorded = bug::caught(|| {
        found.give(&mut collector, options, &mut tell)?;
        let ended_by = session.run(&changes, &mut collector, &mut tell)?;
        // The target is asked to end, if at all, when nobody stands in its way.
        collector.release()?;
        Ok(ended_by)
    });
    match recorded {
        Ok(ended_by) => session.finish(collector, ended_by, tell),
        Err(error) => {
            bug::drop_caught(collector);
            session.run_out(error, tell)
        }
    }
}

/// What a collector begins with.
struct FirstFacts<K: Kernel> {
    members: Vec<u32>,
    latencies: Option<(Latencies, Vec<Latency>)>,
    reuse: Option<Result<ReuseSampling<K>, String>>,
    heap: Option<Result<HeapRecorder<K>, String>>,
    flow: Option<FlowRecorder<K>>,
    left_out: Vec<(u64, String)>,
    /// Why no line can be watched.
    unwatched: Option<String>,
}

impl<K: Kernel> FirstFacts<K> {
    /// Gives it to the collector, and tells what will not be seen.
    fn give(
        self,
        collector: &mut Collector<K>,
        options: &RecordOptions,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Error> {
        for &member in &self.members {
            collector.found_process(member);
        }
        if let Some((latencies, rows)) = self.latencies {
            collector.know_latencies(latencies, rows)?;
        }
        match self.reuse {
            Some(Ok(reuse)) => collector.sample_reuse(reuse),
            Some(Err(reason)) => collector.lose("reuse-not-sampled", 1, reason)?,
            None => {}
        }
        if let Some(heap) = self.heap {
            give_heap(collector, heap, &self.members, options, tell)?;
        }
        if let Some(flow) = self.flow {
            collector.follow_objects(flow);
        }
        for (threads, reason) in self.left_out {
            tell(Event::Warning(&reason));
            collector.lose("threads-not-sampled", threads, reason)?;
        }
        if let Some(error) = self.unwatched {
            collector.lose(
                "watchpoints-unavailable",
                1,
                format!("no line could be watched: {error}"),
            )?;
        }
        Ok(())
    }
}

/// Has heap blocks recorded, or tells why they are not.
fn give_heap<K: Kernel>(
    collector: &mut Collector<K>,
    heap: Result<HeapRecorder<K>, String>,
    members: &[u32],
    options: &RecordOptions,
    tell: &mut impl FnMut(Event<'_>),
) -> Result<(), Error> {
    match heap {
        Ok(heap) => {
            collector.record_heap(heap);
            if let (Target::Attach(_), [pid, others @ ..]) = (&options.target, members)
                && !others.is_empty()
            {
                let reason = format!(
                    "heap blocks of process {pid} alone are recorded: probes are placed in one process, and {} more are followed",
                    others.len()
                );
                tell(Event::Warning(&reason));
                collector.lose("heap-not-recorded", others.len() as u64, reason)?;
            }
        }
        Err(reason) => {
            let mut reason = format!("heap blocks are not recorded: {reason}");
            if options.flow.is_some() {
                reason.push_str("; so objects are not followed either");
            }
            if options.heap != HeapWhen::Loaded {
                tell(Event::Warning(&reason));
            }
            collector.lose("heap-not-recorded", 1, reason)?;
        }
    }
    Ok(())
}

/// A target that runs while it is recorded.
struct LiveRecording<'a, K: Kernel, S> {
    kernel: &'a K,
    options: &'a RecordOptions,
    signals: &'a S,
    running: Running<K>,
    family: Family<K>,
    /// When what the machine costs was measured.
    start: Time,
}

impl<K: Kernel, S: Signals> LiveRecording<'_, K, S> {
    /// Ticks until the recording ends; why it does.
    fn run(
        &mut self,
        changes: &K::Changes,
        collector: &mut Collector<K>,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<&'static str, Error> {
        let start = self.kernel.now();
        let mut shown = start;
        loop {
            self.wait(changes, collector)?;
            collector.hear_guard()?;
            let gone = self.is_gone();
            // Looked at after the target's end: Ctrl-C reaches both, and then it is what ended it.
            let stop = self.is_to_end();
            collector.tick()?;
            let now = self.kernel.now();
            let elapsed = Duration::from_nanos(now.since(start));
            if now.since(shown) >= PROGRESS_NS {
                shown = now;
                tell(Event::Progress(Progress {
                    elapsed,
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
            let duration = self.options.duration;
            if duration.is_some_and(|duration| elapsed >= duration) {
                collector.stop();
                return Ok("duration");
            }
        }
    }

    /// Waits until something happens or a tick is due, and takes note of children that ended.
    fn wait(&mut self, changes: &K::Changes, collector: &mut Collector<K>) -> Result<(), Error> {
        let kernel = self.kernel;
        let mut fds = vec![self.signals.raw_fd(), kernel.changes_fd(changes)];
        fds.extend(collector.guard_fd());
        if let Running::Processes(attachments) = &self.running {
            // Of one that has ended it is readable for good.
            let alive = attachments.iter().filter(|it| !it.has_ended);
            fds.extend(alive.filter_map(Attachment::raw_fd));
        }
        kernel.wait_readable(&fds, collector.until_next_tick());
        kernel.clear_changes(changes);
        loop {
            match (kernel.next_change(), &mut self.running) {
                (Ok(Some((pid, change))), Running::Child(child)) => child.note(pid, change),
                (Ok(Some(_)), Running::Processes(_)) => {}
                (Err(error), Running::Child(child)) if child.ended().is_none() => {
                    return Err(Error::Wait(error));
                }
                (Ok(None) | Err(_), _) => return Ok(()),
            }
        }
    }

    fn is_gone(&mut self) -> bool {
        match &mut self.running {
            Running::Child(child) => child.ended().is_some(),
            Running::Processes(attachments) => {
                attachments.iter_mut().for_each(|it| it.look(self.kernel));
                attachments.iter().all(|it| it.has_ended)
            }
        }
    }

    /// Whether a signal came that ends the recording: any, of an attached target.
    fn is_to_end(&self) -> bool {
        self.signals.next().is_some_and(|came| match &self.running {
            Running::Child(child) => self.kernel.pass_on(came, child.pid()),
            Running::Processes(_) => true,
        })
    }

    /// Brings the target to its end, if that is asked for, and completes the recording.
    fn finish(
        mut self,
        collector: Collector<K>,
        ended_by: &'static str,
        mut tell: impl FnMut(Event<'_>),
    ) -> Result<Outcome, Error> {
        let ended = self.settle(ended_by)?;
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

    /// It is the recording that failed: the target runs on to its end, unwatched.
    fn run_out(mut self, error: Error, mut tell: impl FnMut(Event<'_>)) -> Result<Outcome, Error> {
        tell(Event::Failed(&error));
        let ended_by = outlast(
            self.kernel,
            &mut self.running,
            &self.family,
            self.signals,
            self.options.duration,
            self.start,
        )?;
        let ended = self.settle(ended_by)?;
        Ok(Outcome {
            ended,
            ended_by,
            samples: 0,
            failure: Some(error),
        })
    }

    fn settle(&mut self, ended_by: &str) -> Result<Option<Ended>, Error> {
        settle(
            self.kernel,
            &mut self.running,
            &self.family,
            ended_by,
            self.signals,
        )
    }
}

#[cfg(test)]
mod tests;
