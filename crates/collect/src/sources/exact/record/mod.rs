//! Recording an exact run: measure while the program runs, and write what came of it.

mod blocks;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod options;
mod places;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use linewise_machine::facts::{Facts, random_id};
use linewise_machine::memory_latency::{cache_latency, memory_latency};
use linewise_machine::process::{Ended, monotonic_ns};
use linewise_machine::signals::StopSignals;
use linewise_recording::{
    CacheLevel, ExactRun, FORMAT_VERSION, Latency, LevelLatencies, Loss, Overhead, Pid, Repeat,
    RunInfo, Source, Tables, Time, Writer,
};
use linewise_trace::measure::{MeasureError, Measuring, Model, Results, THIS_MACHINE, Trace};
use linewise_trace::{Both, Consumer, EventKind, TracedAccess, TracedEvent};

use super::tracing::Tracing;
use super::{ExactError, ExactOutcome, HeapLoading, effective_order, emulator, loss};
use crate::error::Error;
use crate::kernel::{Machine, Signals};
use crate::latencies;
use crate::options::{Event, HeapWhen, RecordOptions, Target};
use crate::recorder::{Follower, Outcome, Recorder, carry, follow};
use crate::target::life::{EndedBy, Life, Running};

pub use options::ExactRecordOptions;

use blocks::Teller;
use options::Run;
use places::Places;

/// As [`crate::record`], by the exact source.
///
/// # Errors
/// [`crate::Error::Exact`] when the command cannot be traced or its machine not be simulated,
/// [`crate::Error::Recording`] when there is no place for the recording. Then nothing was run.
pub(crate) fn record(
    options: &RecordOptions,
    source: &ExactRecordOptions,
    signals: &StopSignals,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Outcome, Error> {
    let Target::Launch(command) = &options.target else {
        return Err(ExactError::Attach.into());
    };
    let run = Run {
        command,
        common: options,
        source,
    };
    let model = Model::new(&source.machine, source.one_line_in, source.simulates())
        .map_err(|error| ExactError::Measure(MeasureError::Machine(error)))?;
    linewise_recording::check_place(&options.directory, options.mode())?;
    let mut heap_losses = Vec::new();
    let loading = heap(run, &mut heap_losses);
    if options.heap != HeapWhen::Loaded {
        for loss in &heap_losses {
            tell(Event::Warning(&loss.detail));
        }
    }
    let beginning = Beginning {
        options,
        info: describe(run, &model),
        writer: None,
        places: Places::default(),
    };
    let (tracing, running) = measured(run, &model, loading, beginning, true)?;
    let life = Life::new(Machine, running, signals, options.duration);
    let recorder = ExactRecorder {
        run,
        signals,
        model: &model,
        heap_losses,
        tracing,
        outcome: None,
    };
    carry(life, recorder, tell)
}

/// Who takes the accesses of a run: something beside, and the measurements until they are complete.
type Measured<B> = Both<B, Option<Measuring<Teller>>>;

/// Launches the command, to be measured.
fn measured<B: Consumer>(
    run: Run<'_>,
    model: &Model,
    loading: Option<(linewise_heap::Region, HeapLoading)>,
    beside: B,
    keep: bool,
) -> Result<(Tracing<Measured<B>>, Running<Machine>), ExactError> {
    let (region, loading) = loading.unzip();
    let teller = region.map(|region| Teller::new(region, run.common.flow.clone()));
    let measuring = Measuring::new(model, &run.measures(), teller).map_err(ExactError::Measure)?;
    let traced = run.traced(model.config.line_bytes, loading, keep);
    Tracing::begin(&traced, Both(beside, Some(measuring)))
}

/// What came of a traced command, and of its measurements.
fn results<B: Consumer>(
    tracing: &mut Tracing<Measured<B>>,
    outcome: &ExactOutcome,
) -> Option<Results> {
    let measuring = tracing.consumer().1.take();
    measuring.map(|measuring| measuring.finish(&outcome.counted))
}

/// The exact source at work.
struct ExactRecorder<'a> {
    run: Run<'a>,
    signals: &'a StopSignals,
    model: &'a Model,
    heap_losses: Vec<Loss>,
    tracing: Tracing<Measured<Beginning<'a>>>,
    /// Once it is closed.
    outcome: Option<ExactOutcome>,
}

impl<S: Signals> Follower<Machine, S> for ExactRecorder<'_> {
    fn wait(&mut self, life: &mut Life<'_, Machine, S>) -> Result<(), Error> {
        self.tracing.wait(life)
    }

    fn take(&mut self) -> Result<(), Error> {
        let writer = &mut self.tracing.consumer().0.writer;
        match writer.take_if(|writer| writer.is_err()) {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn progress(&self) -> (u64, usize) {
        Follower::<Machine, S>::progress(&self.tracing)
    }

    fn release(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn wait_for_the_end(&mut self, life: &mut Life<'_, Machine, S>) -> Result<(), Error> {
        self.tracing.wait_for_the_end(life)
    }
}

impl<S: Signals> Recorder<Machine, S> for ExactRecorder<'_> {
    fn begin(&mut self, _: &mut impl FnMut(Event<'_>)) -> Result<(), Error> {
        Ok(())
    }

    fn close(&mut self, why: EndedBy, ended: Option<Ended>) -> Result<Option<Ended>, Error> {
        let outcome = self.tracing.close(why, ended)?;
        let ended = outcome.ended;
        self.outcome = Some(outcome);
        Ok(Some(ended))
    }

    fn finish(mut self, _: EndedBy, _: Option<Ended>) -> Result<(), Error> {
        let Some(outcome) = &self.outcome else {
            return Ok(());
        };
        let Some(results) = results(&mut self.tracing, outcome) else {
            return Ok(());
        };
        let Beginning {
            writer,
            places,
            info,
            options,
        } = &mut self.tracing.consumer().0;
        let writer = match writer.take() {
            Some(writer) => writer?,
            None => Writer::create(&options.directory, info, options.mode())?,
        };
        let trace = measured_trace(outcome, self.model, self.run.source.one_line_in);
        let mut tables = tables(outcome, &results, &trace, places, self.run.command);
        tables.latencies = latencies(&mut tables.losses);
        tables.losses.append(&mut self.heap_losses);
        complete(info, outcome, &results, &trace, &tables.latencies);
        if let Some(exact) = &mut info.exact {
            let losses = &mut tables.losses;
            exact.repeats = repeated(
                self.run,
                self.signals,
                (outcome, &results, self.model),
                losses,
            );
        }
        write(writer, info, tables)
    }
}

/// Runs the command again, as often as it is asked for and it ends by itself.
fn repeated(
    run: Run<'_>,
    signals: &StopSignals,
    (outcome, first, model): (&ExactOutcome, &Results, &Model),
    losses: &mut Vec<Loss>,
) -> Vec<Repeat> {
    let mut ended_by = outcome.ended_by;
    let mut repeats = Vec::new();
    for _ in 1..run.source.repeat {
        if ended_by != EndedBy::TargetExited {
            break;
        }
        let (again, results) = match once_more(run, signals, model) {
            Ok(again) => again,
            Err(error) => {
                losses.push(loss("not-repeated", 1, error.to_string()));
                break;
            }
        };
        ended_by = again.ended_by;
        let Some(results) = results else { break };
        let (accesses, transfers, lines) = results.beside(first, &outcome.threads);
        let scale = f64::from(run.source.one_line_in);
        repeats.push(Repeat {
            accesses: accesses as f64 * scale,
            transfers: transfers as f64 * scale,
            lines,
        });
    }
    repeats
}

fn once_more(
    run: Run<'_>,
    signals: &StopSignals,
    model: &Model,
) -> Result<(ExactOutcome, Option<Results>), Error> {
    let loading = heap(run, &mut Vec::new());
    let (mut tracing, running) = measured(run, model, loading, Nobody, false)?;
    let mut life = Life::new(Machine, running, signals, run.common.duration);
    let (why, ended) = follow(&mut life, &mut tracing, &mut |_| {})?;
    let outcome = tracing.close(why, ended)?;
    let results = results(&mut tracing, &outcome);
    Ok((outcome, results))
}

/// Who wants no accesses.
struct Nobody;

impl Consumer for Nobody {
    fn accesses(&mut self, _: &[TracedAccess]) {}
}

/// What the heap recorder needs, if it is wanted; why it cannot be loaded is a loss.
fn heap(run: Run<'_>, losses: &mut Vec<Loss>) -> Option<(linewise_heap::Region, HeapLoading)> {
    if matches!(run.common.heap, HeapWhen::Never | HeapWhen::Marks) {
        return None;
    }
    let loaded = crate::target::heap::load(run.command).and_then(|loading| {
        let environment = loading.environment(linewise_heap::TRACED);
        // QEMU splits its own list of variables at commas.
        let has_comma = |value: &std::ffi::OsString| value.as_encoded_bytes().contains(&b',');
        match environment.iter().find(|(_, value)| has_comma(value)) {
            None => Ok((loading, environment)),
            Some((_, value)) => Err(format!(
                "QEMU takes no library whose path has a comma: {}",
                value.display()
            )),
        }
    });
    match loaded {
        Ok((loading, environment)) => {
            let told = HeapLoading {
                environment,
                region: loading.region.path(),
                calls: run.source.follows_calls(),
            };
            Some((loading.region, told))
        }
        Err(reason) => {
            let mut detail = format!("heap blocks are not recorded: {reason}");
            if run.common.flow.is_some() {
                detail.push_str("; so objects are not followed either");
            }
            losses.push(loss("heap-not-recorded", 1, detail));
            None
        }
    }
}

fn write(mut writer: Writer, info: &RunInfo, tables: Tables) -> Result<(), Error> {
    push(&mut writer, tables, info.heap.is_some())?;
    Ok(writer.finish(info)?)
}

/// With those of the heap if its recorder was loaded.
fn push(writer: &mut Writer, tables: Tables, heap: bool) -> Result<(), Error> {
    writer.push(tables.threads)?;
    writer.push(tables.maps)?;
    writer.push(tables.losses)?;
    writer.push(tables.latencies)?;
    writer.push(tables.reuse)?;
    writer.push(tables.reuse_pairs)?;
    writer.push(tables.call_paths)?;
    writer.push(tables.caches)?;
    writer.push(tables.transfers)?;
    writer.push(tables.cache_contents)?;
    if heap {
        writer.push(tables.stacks)?;
        writer.push(tables.heap_blocks)?;
        writer.push(tables.block_uses)?;
        writer.push(tables.path_traces)?;
    }
    Ok(())
}

/// Creates the recording when the command has begun, and learns what lies where in it.
struct Beginning<'a> {
    options: &'a RecordOptions,
    info: RunInfo,
    writer: Option<Result<Writer, Error>>,
    places: Places,
}

impl Consumer for Beginning<'_> {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.places.passed(batch);
    }

    fn event(&mut self, event: &TracedEvent) {
        if event.kind == EventKind::ThreadStarted && self.writer.is_none() {
            self.info.pid = Pid(event.a as u32);
            let (directory, mode) = (&self.options.directory, self.options.mode());
            let writer = Writer::create(directory, &self.info, mode);
            self.writer = Some(writer.map_err(Error::Recording));
        }
        self.places.event(event);
    }
}

fn describe(run: Run<'_>, model: &Model) -> RunInfo {
    let source = run.source;
    let facts = Facts::read(Path::new("/"), &[]);
    let start = Time(monotonic_ns());
    RunInfo {
        format_version: FORMAT_VERSION,
        id: random_id(Path::new("/"))
            .known()
            .cloned()
            .unwrap_or_default(),
        linewise_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: false,
        command: run.common.target.command_line(&Machine, 0),
        pid: Pid(0),
        launched: true,
        source: Source::Exact,
        source_reason: source.reason.clone(),
        start,
        end: start,
        ended_by: String::new(),
        exit_code: None,
        exit_signal: None,
        line_size: u64::from(model.config.line_bytes),
        cpus: source.machine.topology.cpus.len() as u32,
        watchpoint_bytes: 0,
        host: facts.host.known().cloned().unwrap_or_default(),
        boot_id: facts.boot_id.known().cloned().unwrap_or_default(),
        cpu_model: facts.cpu_model.known().cloned().unwrap_or_default(),
        hypervisor: facts.hypervisor.name().to_owned(),
        kernel: facts.kernel_release.known().cloned().unwrap_or_default(),
        skid_rule: String::new(),
        exposure_offset_ns: 0.0,
        trap_delay_ns: 0.0,
        overhead: Overhead::default(),
        reuse: None,
        heap: None,
        caches: Vec::new(),
        exact: Some(ExactRun {
            order: effective_order(source.order, source.only.as_deref()),
            one_line_in: source.one_line_in,
            element_bytes: source.element_bytes,
            call_paths: source.follows_calls(),
            only: source.only.clone(),
            trace: source
                .keep_trace
                .as_ref()
                .map(|keep| keep.path.display().to_string()),
            machine: source.machine.name.clone(),
            caches: model.caches.clone(),
            assumptions: model.assumptions.clone(),
            ..ExactRun::default()
        }),
    }
}

/// Fills in what is known at the end.
fn complete(
    info: &mut RunInfo,
    outcome: &ExactOutcome,
    results: &Results,
    trace: &Trace<'_>,
    latencies: &[Latency],
) {
    info.end = Time(monotonic_ns());
    info.ended_by = outcome.ended_by.word().to_owned();
    match outcome.ended {
        Ended::Code(code) => info.exit_code = Some(code),
        Ended::Signal(signal) => info.exit_signal = Some(signal),
    }
    if let Some(thread) = outcome.threads.first() {
        info.pid = thread.pid;
    }
    info.overhead.collector_cpu_ns = linewise_machine::process::own_cpu_time_ns();
    info.overhead.collector_rss_bytes = linewise_machine::procfs::own_peak_resident_bytes();
    let Some(exact) = &mut info.exact else { return };
    exact.memory_ns = memory_latency(MEMORY_LATENCY_BUDGET);
    if exact.machine == THIS_MACHINE && trace.model.simulated {
        exact.level_ns = level_latencies(exact, latencies);
    }
    exact.emulator = emulator::version(&outcome.emulator);
    exact.followed = results.followed();
    exact.accesses = exact.followed as f64 * f64::from(exact.one_line_in);
    exact.late = outcome.totals.late;
    exact.waits = outcome.totals.waits;
    exact.waited_ns = outcome.waited_ns;
    exact.reuse_rate = match (results.reuse_rate(), exact.one_line_in) {
        // Of the lines that the trace holds all are tracked.
        (rate, 2..) if rate > 0.0 => 1.0,
        (rate, _) => rate,
    };
    exact.sums = results.sums(trace);
    if let Some(heap) = results.heap_run() {
        info.heap = Some(heap);
    }
}

/// What the measurements need to know of the trace.
fn measured_trace<'a>(outcome: &'a ExactOutcome, model: &'a Model, one_line_in: u32) -> Trace<'a> {
    Trace {
        threads: &outcome.threads,
        instructions: &outcome.instructions,
        one_line_in,
        model,
        end: Time(monotonic_ns()),
    }
}

/// What a load takes by the level that serves it. Each cache is measured with twice what the one before it holds, or
/// half of what it holds itself if that is less: a virtual machine may have little of a last level for itself.
fn level_latencies(exact: &ExactRun, lines: &[Latency]) -> LevelLatencies {
    let bytes = |level: CacheLevel| {
        let caches = exact.caches.iter().filter(|cache| cache.level == level);
        caches.map(|cache| cache.size_bytes).min()
    };
    let mut before = 0;
    let mut measured = |level: CacheLevel| {
        let own = bytes(level)?;
        let set = if before == 0 {
            own / 2
        } else {
            (2 * before).min(own / 2)
        };
        let larger = set > before;
        before = own;
        larger.then(|| cache_latency(set, MEMORY_LATENCY_BUDGET))?
    };
    let l1 = measured(CacheLevel::L1d);
    let second = measured(CacheLevel::L2);
    let last = measured(CacheLevel::L4).or_else(|| measured(CacheLevel::L3));
    let mut halves: Vec<f64> = lines.iter().map(|row| row.round_trip_ns / 2.0).collect();
    halves.sort_by(f64::total_cmp);
    LevelLatencies {
        l1,
        // Without a third level it is the last one.
        l2: last.and(second),
        llc: last.or(second),
        core: halves.get(halves.len() / 2).copied(),
        memory: exact.memory_ns,
    }
}

/// How long the latency of a level is measured.
const MEMORY_LATENCY_BUDGET: Duration = Duration::from_millis(20);
/// How often that of lines is tried, for at most 20 ms each.
const LATENCY_TRIES: u32 = 5;
/// Pairs of CPUs whose latency is measured.
const LATENCY_PAIRS: usize = 8;

/// The costs of a line between neighbouring CPUs of this machine, measured when the target has
/// ended: while it runs every CPU is busy with the emulation.
fn latencies(losses: &mut Vec<Loss>) -> Vec<Latency> {
    let allowed = linewise_machine::affinity::allowed_cpus();
    let mut rows = Vec::new();
    for pair in allowed.windows(2).take(LATENCY_PAIRS) {
        // A CPU may be busy for the moment, with what the target left behind if nothing else.
        let measure = || latencies::measured(Time(monotonic_ns()), (pair[0], pair[1]));
        let measured = (1..LATENCY_TRIES).find_map(|_| measure().ok());
        match measured.map_or_else(measure, Ok) {
            Ok(row) => rows.push(row),
            Err(error) => losses.push(loss("latency-not-measured", 1, error.to_string())),
        }
    }
    rows
}

fn tables(
    outcome: &ExactOutcome,
    results: &Results,
    trace: &Trace<'_>,
    places: &Places,
    command: &[OsString],
) -> Tables {
    let mut tables = results.tables(trace);
    tables.maps = places.maps(&outcome.maps);
    tables.threads = places.threads(&outcome.threads, command);
    tables.losses.extend(outcome.losses.iter().cloned());
    tables
}
