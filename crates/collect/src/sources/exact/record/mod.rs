//! Recording an exact run: measure while the program runs, and write what came of it.

mod blocks;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod options;
mod places;

use std::path::Path;
use std::time::Duration;

use linewise_machine::facts::{Facts, random_id};
use linewise_machine::memory_latency::{cache_latency, memory_latency};
use linewise_machine::process::{Ended, monotonic_ns};
use linewise_machine::signals::StopSignals;
use linewise_recording::{
    CacheLevel, CreateMode, ExactRun, FORMAT_VERSION, Latency, LevelLatencies, Loss, Overhead, Pid,
    Repeat, RunInfo, Source, Tables, Time, Writer,
};

use linewise_trace::measure::{MeasureError, Measuring, Model, Results, THIS_MACHINE, Trace};
use linewise_trace::{Both, Consumer, EventKind, TracedAccess, TracedEvent};

use super::{ExactError, ExactOptions, ExactOutcome, HeapLoading, emulator, loss, trace};
use crate::latencies;
use crate::options::{Event, HeapWhen};

pub use options::ExactRecordOptions;

use blocks::Teller;
use places::Places;

/// What came of it.
#[derive(Debug)]
pub struct ExactRecorded {
    /// How the command ended.
    pub ended: Ended,
    /// Why the recording ended: `target-exited`, `duration` or `interrupted`.
    pub ended_by: &'static str,
    /// Accesses that were followed.
    pub accesses: u64,
    /// How long threads of the command waited for this process, in ns, all together.
    pub waited_ns: u64,
    /// Why there is no whole recording: [`Event::Failed`] told so at that moment.
    pub failure: Option<crate::Error>,
}

/// Runs a command under the tracer, measures it, and writes the recording.
///
/// What `signals` do, and what becomes of a target that is still running when its recording ends, is as with [`trace`]. Call
/// this from the only thread of the process.
///
/// # Errors
/// [`crate::Error::Exact`] when the command cannot be traced or its machine not be simulated,
/// [`crate::Error::Recording`] when there is no place for the recording. Then nothing was run. A
/// failure to write after the command has begun is no error but part of what is returned.
pub fn record_exact(
    options: &ExactRecordOptions,
    signals: &StopSignals,
    mut tell: impl FnMut(Event<'_>),
) -> Result<ExactRecorded, crate::Error> {
    let unmeasurable = |error| crate::Error::Exact(ExactError::Measure(error));
    let model = Model::new(&options.machine, options.one_line_in(), options.simulates())
        .map_err(|error| unmeasurable(MeasureError::Machine(error)))?;
    let wanted = options.measures();
    Measuring::<Teller>::new(&model, &wanted, None).map_err(unmeasurable)?;
    let mode = if options.replace {
        CreateMode::Replace
    } else {
        CreateMode::New
    };
    linewise_recording::check_place(&options.directory, mode)?;

    let mut heap_losses = Vec::new();
    let loading = heap(options, &mut heap_losses);
    if options.heap != HeapWhen::Loaded {
        for loss in &heap_losses {
            tell(Event::Warning(&loss.detail));
        }
    }
    let mut info = describe(options, &model);
    let mut beginning = Beginning {
        directory: &options.directory,
        info: &mut info,
        mode,
        writer: None,
        tell: &mut tell,
        places: Places::default(),
    };
    let traced = options.trace.clone();
    let (outcome, results) = measured(options, signals, traced, &model, loading, &mut beginning)?;
    let Beginning { writer, places, .. } = beginning;

    let recorded = |failure| ExactRecorded {
        ended: outcome.ended,
        ended_by: outcome.ended_by,
        accesses: results.followed(),
        waited_ns: outcome.waited_ns,
        failure,
    };
    let writer = match writer {
        Some(Ok(writer)) => writer,
        // It was told when it happened.
        Some(Err(error)) => return Ok(recorded(Some(error))),
        None => match Writer::create(&options.directory, &info, mode) {
            Ok(writer) => writer,
            Err(error) => {
                let error = error.into();
                tell(Event::CutShort(&error));
                return Ok(recorded(Some(error)));
            }
        },
    };
    let measured = measured_trace(&outcome, &model, options.one_line_in());
    let mut tables = tables(&outcome, &results, &measured, &places, options);
    tables.latencies = latencies(&mut tables.losses);
    tables.losses.append(&mut heap_losses);
    complete(&mut info, &outcome, &results, &measured, &tables.latencies);
    if let Some(exact) = &mut info.exact {
        let losses = &mut tables.losses;
        exact.repeats = repeated(options, signals, (&outcome, &results, &model), losses);
    }
    let failure = write(writer, &info, tables).err();
    if let Some(error) = &failure {
        tell(Event::CutShort(error));
    }
    Ok(recorded(failure))
}

/// Runs the command, and measures it.
fn measured(
    options: &ExactRecordOptions,
    signals: &StopSignals,
    mut traced: ExactOptions,
    model: &Model,
    loading: Option<(linewise_heap::Region, HeapLoading)>,
    beside: &mut impl Consumer,
) -> Result<(ExactOutcome, Results), ExactError> {
    let teller = loading.map(|(region, loading)| {
        traced.heap = Some(loading);
        Teller::new(region, options.flow.clone())
    });
    let measuring = Measuring::new(model, &options.measures(), teller);
    let mut measuring = measuring.map_err(ExactError::Measure)?;
    traced.leave_own = options.leaves_own(model.config.line_bytes);
    let outcome = trace(&traced, signals, &mut Both(beside, &mut measuring))?;
    let results = measuring.finish(&outcome.counted);
    Ok((outcome, results))
}

/// Runs the command again, as often as it is asked for and it ends by itself.
fn repeated(
    options: &ExactRecordOptions,
    signals: &StopSignals,
    (outcome, first, model): (&ExactOutcome, &Results, &Model),
    losses: &mut Vec<Loss>,
) -> Vec<Repeat> {
    let trace = ExactOptions {
        keep_trace: None,
        ..options.trace.clone()
    };
    let mut ended_by = outcome.ended_by;
    let mut repeats = Vec::new();
    for _ in 1..options.repeat {
        if ended_by != "target-exited" {
            break;
        }
        let loading = heap(options, &mut Vec::new());
        let again = measured(options, signals, trace.clone(), model, loading, &mut Nobody);
        let (again, results) = match again {
            Ok(again) => again,
            Err(error) => {
                losses.push(loss("not-repeated", 1, error.to_string()));
                break;
            }
        };
        ended_by = again.ended_by;
        let (accesses, transfers, lines) = results.beside(first, &outcome.threads);
        let scale = f64::from(options.one_line_in());
        repeats.push(Repeat {
            accesses: accesses as f64 * scale,
            transfers: transfers as f64 * scale,
            lines,
        });
    }
    repeats
}

/// Who wants no accesses.
struct Nobody;

impl Consumer for Nobody {
    fn accesses(&mut self, _: &[TracedAccess]) {}
}

/// What the heap recorder needs, if it is wanted; why it cannot be loaded is a loss.
fn heap(
    options: &ExactRecordOptions,
    losses: &mut Vec<Loss>,
) -> Option<(linewise_heap::Region, HeapLoading)> {
    if options.heap == HeapWhen::Never {
        return None;
    }
    let loaded = crate::target::heap::load(&options.trace.command).and_then(|loading| {
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
                calls: options.follows_calls(),
            };
            Some((loading.region, told))
        }
        Err(reason) => {
            let mut detail = format!("heap blocks are not recorded: {reason}");
            if options.flow.is_some() {
                detail.push_str("; so objects are not followed either");
            }
            losses.push(loss("heap-not-recorded", 1, detail));
            None
        }
    }
}

fn write(mut writer: Writer, info: &RunInfo, tables: Tables) -> Result<(), crate::Error> {
    push(&mut writer, tables, info.heap.is_some())?;
    Ok(writer.finish(info)?)
}

/// With those of the heap if its recorder was loaded.
fn push(writer: &mut Writer, tables: Tables, heap: bool) -> Result<(), crate::Error> {
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
struct Beginning<'a, T> {
    directory: &'a Path,
    info: &'a mut RunInfo,
    mode: CreateMode,
    writer: Option<Result<Writer, crate::Error>>,
    tell: &'a mut T,
    places: Places,
}

impl<T: FnMut(Event<'_>)> Consumer for Beginning<'_, T> {
    fn accesses(&mut self, batch: &[TracedAccess]) {
        self.places.passed(batch);
    }

    fn event(&mut self, event: &TracedEvent) {
        if event.kind == EventKind::ThreadStarted && self.writer.is_none() {
            self.info.pid = Pid(event.a as u32);
            let writer = Writer::create(self.directory, self.info, self.mode)
                .map_err(crate::Error::Recording);
            if let Err(error) = &writer {
                (self.tell)(Event::Failed(error));
            }
            self.writer = Some(writer);
        }
        self.places.event(event);
    }
}

fn describe(options: &ExactRecordOptions, model: &Model) -> RunInfo {
    let facts = Facts::read(Path::new("/"), &[]);
    let start = Time(monotonic_ns());
    let words = &options.trace.command;
    RunInfo {
        format_version: FORMAT_VERSION,
        id: random_id(Path::new("/"))
            .known()
            .cloned()
            .unwrap_or_default(),
        linewise_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: false,
        command: words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        pid: Pid(0),
        launched: true,
        source: Source::Exact,
        source_reason: options.reason.clone(),
        start,
        end: start,
        ended_by: String::new(),
        exit_code: None,
        exit_signal: None,
        line_size: u64::from(model.config.line_bytes),
        cpus: options.machine.topology.cpus.len() as u32,
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
            order: options.trace.effective_order(),
            one_line_in: options.one_line_in(),
            element_bytes: options.element_bytes,
            call_paths: options.follows_calls(),
            only: options.trace.only.clone(),
            trace: options
                .trace
                .keep_trace
                .as_ref()
                .map(|keep| keep.path.display().to_string()),
            machine: options.machine.name.clone(),
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
    info.ended_by = outcome.ended_by.to_owned();
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
    options: &ExactRecordOptions,
) -> Tables {
    let mut tables = results.tables(trace);
    tables.maps = places.maps(&outcome.maps);
    tables.threads = places.threads(&outcome.threads, &options.trace.command);
    tables.losses.extend(outcome.losses.iter().cloned());
    tables
}
