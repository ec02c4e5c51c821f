//! A recording by the timer: what its collector begins with, and its turns.

use linewise_machine::process::Ended;
use linewise_recording::Latency;

use crate::error::Error;
use crate::kernel::{Kernel, Signals};
use crate::latencies::Latencies;
use crate::options::{Event, HeapWhen, RecordOptions, Target, TimerOptions};
use crate::recorder::{Follower, Outcome, Recorder, carry, failed};
use crate::sources::timer::attach::of_processes;
use crate::sources::timer::collector::{Collector, FlowRecorder, ReuseSampling};
use crate::target::heap::HeapRecorder;
use crate::target::life::{EndedBy, Life};

mod begin;
mod prepare;

use begin::{BegunRecording, begin};
use prepare::{Beginning, TargetAtHand, heap_recorder, heap_source, measure, prepare};

/// As [`crate::record`], by the timer on any kernel.
pub(crate) fn record<K: Kernel>(
    kernel: &K,
    (options, source): (&RecordOptions, &TimerOptions),
    signals: &impl Signals,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let translated = of_processes(kernel, options, &mut tell)?;
    let options = translated.as_ref().unwrap_or(options);
    let heap = heap_source(kernel, options);
    let TargetAtHand {
        beginning,
        facts,
        guard,
    } = prepare(kernel, options, source, heap.as_ref())?;
    let changes = kernel.block_changes().map_err(Error::Wait)?;
    let open_files = kernel.raise_open_files();
    // The rings want to be emptied on time though every CPU is busy.
    kernel.prefer_short_slices();
    let mut measured = measure(kernel, (options, source), &beginning)?;
    let latencies = match beginning {
        Beginning::Held(..) => Some(Latencies::before_the_target(kernel)),
        // It would be slowed down without a word in the account.
        Beginning::Processes(_) => None,
    };
    // Probes are there before the program's first instruction.
    let heap = heap.map(|found| {
        let overhead = (options.heap != HeapWhen::All).then_some(source.overhead);
        let heap = (found?, overhead);
        heap_recorder(kernel, heap, beginning.pid(), &measured.cpus, options)
    });
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
    let life = Life::new(kernel.clone(), running, signals, options.duration);
    let writer = match writer {
        Ok(writer) => writer,
        Err(error) => return failed(life, error, 0, tell),
    };
    let collector = Collector::new(
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
    let recorder = TimerRecorder {
        kernel,
        options,
        changes,
        found: Some(found),
        collector,
    };
    carry(life, recorder, tell)
}

/// The timer at work.
struct TimerRecorder<'a, K: Kernel> {
    kernel: &'a K,
    options: &'a RecordOptions,
    changes: K::Changes,
    /// Until the collector has it.
    found: Option<FirstFacts<K>>,
    collector: Collector<K>,
}

impl<K: Kernel, S: Signals> Follower<K, S> for TimerRecorder<'_, K> {
    fn wait(&mut self, life: &mut Life<'_, K, S>) -> Result<(), Error> {
        let mut fds = life.fds();
        fds.push(self.kernel.changes_fd(&self.changes));
        fds.extend(self.collector.guard_fd());
        let until = self.collector.until_next_tick();
        self.kernel.wait_readable(&fds, until);
        self.kernel.clear_changes(&self.changes);
        life.hear_of_children()?;
        self.collector.hear_guard()
    }

    fn take(&mut self) -> Result<(), Error> {
        self.collector.tick()
    }

    fn progress(&self) -> (u64, usize) {
        (self.collector.samples(), self.collector.threads_alive())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.collector.release()
    }

    fn wait_for_the_end(&mut self, life: &mut Life<'_, K, S>) -> Result<(), Error> {
        life.pause();
        Ok(())
    }
}

impl<K: Kernel, S: Signals> Recorder<K, S> for TimerRecorder<'_, K> {
    fn begin(&mut self, tell: &mut impl FnMut(Event<'_>)) -> Result<(), Error> {
        match self.found.take() {
            Some(found) => found.give(&mut self.collector, self.options, tell),
            None => Ok(()),
        }
    }

    fn close(&mut self, _: EndedBy, ended: Option<Ended>) -> Result<Option<Ended>, Error> {
        Ok(ended)
    }

    fn finish(self, why: EndedBy, ended: Option<Ended>) -> Result<(), Error> {
        self.collector.finish(why.word(), ended)
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
        collector.found_all()
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
            let (what, loss) = match options.heap {
                HeapWhen::Marks => ("sessions and phases", "marks-not-recorded"),
                _ => ("heap blocks", "heap-not-recorded"),
            };
            let mut reason = format!("{what} are not recorded: {reason}");
            if options.flow.is_some() {
                reason.push_str("; so objects are not followed either");
            }
            if options.heap != HeapWhen::Loaded {
                tell(Event::Warning(&reason));
            }
            collector.lose(loss, 1, reason)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
