//! The whole way from tables to a report.

use std::collections::{BTreeMap, BTreeSet};

use linewise_recording::{
    CacheLevel, ExactRun, Latency, ObjectKind, Order, Repeat, RunInfo, SampleClass, SharedMemory,
    Tables, Tid,
};

use crate::advice::{Advice, advise, allocate_aligned, beside_a_declaration, is_of_elements};
use crate::command::command_line;
use crate::details::{Details, code};
use crate::locality;
use crate::model::{
    Finding, FindingKind, Interval, Lost, Matrix, ObjectRow, Repeated, Report, Run, SCHEMA,
    Samples, Sharing, Transfers,
};
use crate::quantity::median;
use crate::replaced;
use crate::resolve::Files;
use crate::runtime::Runtimes;
use crate::users::Goroutines;
use crate::views::calls::calls;
use crate::views::remapped::of_the_same_memory;
use crate::views::run_coverage::{ENOUGH_SAMPLES, RunCoverage, cpu_time_ns, thread_ns};
use crate::views::sampled_reuse::ExactCounts;
use crate::views::sharing::{
    ERRORS, ExactInput, Followed, Input, LineSharing, SharingView, ThreadTime, exact,
    private_bytes, sharing, spread,
};
use crate::views::threads::thread_rows;
use crate::views::timeline::{ContendedTime, timeline};
use crate::views::types::{Group, Layout, TypeRow};
use crate::views::{Views, flow, misses, types, working_set};

/// CPU time from which on threads should have been sampled, ns.
const BUSY_NS: u64 = 200_000_000;
/// Switches recorded for this share of the CPU time tell how threads meet.
const MOSTLY_TOLD: f64 = 0.5;

/// Everything that a recording says.
#[must_use]
pub fn analyse(info: &RunInfo, tables: &Tables) -> Report {
    analyse_with(info, tables, None)
}

/// As [`analyse`], with what an exact run of the same program counted: by its rates the times between
/// sampled uses and reuses become distances.
#[must_use]
pub fn analyse_with(info: &RunInfo, tables: &Tables, exact: Option<&ExactCounts>) -> Report {
    let shared = SharedMemory::of(&tables.maps);
    let goroutines = Goroutines::new(&tables.goroutines);
    let sharing = sharing_of(info, tables, &shared, &goroutines);
    report_of(info, tables, exact, &shared, &goroutines, &sharing)
}

/// As [`analyse_with`], with what only a page has room for. Sources and machine code come from `files`.
#[must_use]
pub fn analyse_for_page(
    info: &RunInfo,
    tables: &Tables,
    exact: Option<&ExactCounts>,
    files: &dyn Files,
) -> (Report, Details) {
    let shared = SharedMemory::of(&tables.maps);
    let goroutines = Goroutines::new(&tables.goroutines);
    let sharing = sharing_of(info, tables, &shared, &goroutines);
    let report = report_of(info, tables, exact, &shared, &goroutines, &sharing);
    let lost = ContendedTime::new(info, &sharing.0, &shared);
    let details = Details {
        calls: calls(info, tables, |sample| lost.ns(sample)),
        code: code(
            report.views.hot.as_deref().unwrap_or_default(),
            tables,
            files,
        ),
    };
    (report, details)
}

fn report_of(
    info: &RunInfo,
    tables: &Tables,
    exact: Option<&ExactCounts>,
    shared: &SharedMemory,
    goroutines: &Goroutines,
    (view, time): &(SharingView, ThreadTime),
) -> Report {
    let advice = advise(view, tables, info, time, shared, goroutines);
    let samples = count_samples(info, tables);
    let coverage = RunCoverage::of(info, tables, shared);
    let in_use = working_set::Input {
        info,
        typed: &tables.typed_accesses,
        samples: &tables.samples,
        blocks: &tables.heap_blocks,
        uses: &tables.block_uses,
        contents: &tables.cache_contents,
        stacks: &tables.stacks,
        frames: &tables.frames,
    };
    let mut report = Report {
        schema: SCHEMA,
        run: describe_run(info, tables),
        sharing: sum_sharing(info, view, tables),
        notes: notes(info, tables, &samples, &coverage, view, &advice),
        timeline: if info.exact.is_some() {
            Vec::new()
        } else {
            timeline(info, tables, &ContendedTime::new(info, view, shared))
        },
        findings: advice.findings,
        losses: losses(tables),
        samples,
        coverage,
        reuse: None,
        sampled_reuse: None,
        curve: Vec::new(),
        curve_shared: Vec::new(),
        cache_sizes: Vec::new(),
        caches: Vec::new(),
        cache_misses: None,
        prefetch: None,
        types: Vec::new(),
        type_coverage: None,
        misses: misses::misses(&misses::Input {
            info,
            typed: &tables.typed_accesses,
            samples: &tables.samples,
            caches: &tables.caches,
            sharing: view,
            shared,
        }),
        working_set: working_set::working_set(&in_use),
        flow: flow::flow(&flow::Input {
            steps: &tables.path_traces,
            typed: &tables.typed_accesses,
            stacks: &tables.stacks,
            frames: &tables.frames,
            level_ns: (info.exact.as_ref()).map_or_else(Default::default, |run| run.level_ns),
        }),
        views: Views::of(info, tables),
    };
    if let Some(profile) = types::types(&types::Input {
        line_size: info.line_size,
        typed: &tables.typed_accesses,
        members: &tables.type_members,
        samples: &tables.samples,
        watches: &tables.watches,
        traps: &tables.traps,
        caches: &tables.caches,
        transfers: &tables.transfers,
        threads: &tables.threads,
        maps: &tables.maps,
        shared,
        goroutines,
        frames: &tables.frames,
        thread_ns: thread_ns(tables),
    }) {
        report.types = profile.types;
        report.type_coverage = Some(profile.coverage);
        let allocations = working_set::allocations(&in_use);
        for row in &mut report.types {
            if let Some(found) = allocations.get(&row.name) {
                row.objects += found.blocks_seen;
                row.allocated_at.clone_from(&found.allocated_at);
            }
        }
        // What a finding is about moves, even if no trap of its own told so.
        let findings = report.findings.iter();
        let votes = findings.flat_map(|it| &it.object.type_votes);
        let votes = votes.filter(|it| it.share >= 0.1);
        let found: BTreeSet<&str> = votes.map(|it| it.name.as_str()).collect();
        for row in &mut report.types {
            row.bounces |= found.contains(row.name.as_str());
        }
        propose_layouts(&mut report, private_bytes(info), info.line_size);
    }
    remedies_of_runtimes(&mut report, &Runtimes::of(&tables.maps), !info.launched);
    report.notes.extend(replaced::note(info.complete, tables));
    locality::fill(&mut report, info, tables);
    if info.exact.is_none() {
        locality::fill_sampled(&mut report, info, tables, exact);
    }
    report
}

/// Tells of code without a name what its own runtime does about it; the processes go on if `runs`.
fn remedies_of_runtimes(report: &mut Report, runtimes: &Runtimes, runs: bool) {
    let accesses = report.findings.iter_mut().flat_map(|it| &mut it.accesses);
    let of_findings = accesses.map(|it| (&mut it.missing, it.language.as_str()));
    let hot = report.views.hot.iter_mut().flatten();
    let types = report
        .type_coverage
        .iter_mut()
        .flat_map(|it| &mut it.missing);
    let of_types = types.map(|it| (&mut it.reason, ""));
    let all = of_findings
        .chain(hot.map(|it| (&mut it.missing, "")))
        .chain(of_types);
    for (missing, language) in all {
        if let Some(remedy) = runtimes.remedy(missing, language, runs) {
            *missing = remedy;
        }
    }
}

/// Whether an object can be of a type: it is named so, and what is touched of it are its members. Structs without a name
/// are all named the same.
fn is_type_of(row: &TypeRow, object: &ObjectRow) -> bool {
    let members = row.fields.iter().filter(|it| !it.padding);
    let members: Vec<&str> = members.map(|it| it.name.as_str()).collect();
    row.name == object.accessed_type && are_members(&members, &object.field)
}

/// Whether all paths in a list begin with a member.
fn are_members(members: &[&str], paths: &str) -> bool {
    let is_member = |path: &str| {
        let first = path.split(['.', '[']).next().unwrap_or(path);
        let is_of = |it: &&str| it.trim_start_matches("__") == first.trim_start_matches("__");
        // A base class has no name, a field of a tuple only a number.
        members.iter().any(|it| it.is_empty() || is_of(it))
    };
    let mut paths = paths.split([',', '|']).map(str::trim);
    paths.all(|path| path.is_empty() || is_member(path))
}

/// An array that becomes so much larger is another one to a cache.
const GROWN: f64 = 1.25;

/// Where the use of a type suggests a layout, that is the source to paste for its false sharing.
///
/// A type that no such finding names keeps its layout: nothing is known to move.
fn propose_layouts(report: &mut Report, private_bytes: u64, line_bytes: u64) {
    let is_moved = |finding: &Finding| {
        finding.kind == FindingKind::FalseSharing
            && !is_of_elements(&finding.change, &finding.object)
    };
    for row in &mut report.types {
        let mut gain: Option<Interval> = None;
        for finding in &report.findings {
            if is_moved(finding) && is_type_of(row, &finding.object) {
                let gain = gain.get_or_insert_default();
                gain.low += finding.expected_gain.low;
                gain.high = (gain.high + finding.expected_gain.high).min(1.0);
            }
        }
        row.layout = row.layout.take().filter(|_| gain.is_some());
        if let (Some(layout), Some(gain)) = (&mut row.layout, gain) {
            // It is the change that these findings propose, and saves what they say.
            (layout.saves_at_least, layout.saves_at_most) = (gain.low.min(gain.high), gain.high);
        }
    }
    for finding in &mut report.findings {
        let mut rows = (report.types.iter()).filter(|row| is_type_of(row, &finding.object));
        // Of several that it may be, none is known to be it.
        let row = rows.next().filter(|_| rows.next().is_none());
        let layout = row
            .and_then(|row| row.layout.as_ref())
            .filter(|layout| !layout.source.is_empty() && parts(layout, &finding.change));
        if let Some(layout) = layout
            && is_moved(finding)
        {
            // A stack or a mapping is no array of them.
            let elements = match finding.object.kind {
                ObjectKind::Static | ObjectKind::Heap => {
                    (finding.object.size / layout.size_before.max(1)).max(1)
                }
                ObjectKind::Stack | ObjectKind::Mapping => 1,
            };
            let grown = elements.saturating_mul(layout.size_after);
            let by_much = grown as f64 > GROWN * finding.object.size as f64;
            if elements > 1 && grown > private_bytes && by_much {
                finding.change = format!(
                    "Keep what each thread writes in an array of its own. With lines of its own each of the {elements} elements would be {} bytes instead of {}, {} bytes in all, which no private cache holds.",
                    layout.size_after, layout.size_before, grown
                );
                finding.change_source.clear();
                continue;
            }
            let allocate = allocate_aligned(&finding.object, &finding.accesses, line_bytes);
            if let Some(change) = allocate.filter(|_| layout.size_after == layout.size_before) {
                (finding.change, finding.change_source) = (change.text, change.source);
                continue;
            }
            finding.change_source.clone_from(&layout.source);
            leave_to_declaration(&mut finding.change);
            let doubt = beside_a_declaration(&finding.accesses);
            if !finding.doubt.is_empty() {
                finding.doubt.push(' ');
            }
            finding.doubt.push_str(doubt);
        }
    }
}

/// Leaves what to align to the declaration that stands below a sentence: it may move others, or more.
fn leave_to_declaration(change: &mut String) {
    let how = [" Align `", " Put ", " Give `"];
    if let Some(at) = how.iter().filter_map(|how| change.find(how)).min() {
        change.truncate(at);
        change.push_str(" The declaration below parts them.");
    }
}

/// Whether a layout parts the two members of which a sentence says that they lie on one line, as far as it names them.
fn parts(layout: &Layout, change: &str) -> bool {
    let named = change.strip_prefix("Move `").map_or("", |_| change);
    let mut named = named.split('`').skip(1).step_by(2);
    let member = |path: &str| path.split(['.', '[']).next().unwrap_or(path).to_owned();
    let [Some(first), Some(second)] = [named.next(), named.next()].map(|it| it.map(member)) else {
        return true;
    };
    let holds_both = |group: &Group| {
        [&first, &second]
            .iter()
            .all(|it| group.members.contains(it))
    };
    first == second || !layout.groups.iter().any(holds_both)
}

/// The sharing of a run, and the thread time of which its costs are a share, as its source tells.
pub(crate) fn sharing_of(
    info: &RunInfo,
    tables: &Tables,
    shared: &SharedMemory,
    goroutines: &Goroutines,
) -> (SharingView, ThreadTime) {
    if info.exact.is_some() {
        return exact(&ExactInput {
            info,
            transfers: &tables.transfers,
            caches: &tables.caches,
            latencies: &tables.latencies,
        });
    }
    let view = sharing(&Input {
        info,
        samples: &tables.samples,
        watches: &tables.watches,
        traps: &of_the_same_memory(tables),
        switches: &tables.switches,
        blocked_loads: &tables.blocked_loads,
        latencies: &tables.latencies,
        shared,
        goroutines,
    });
    (view, ThreadTime::Measured(thread_ns(tables)))
}

/// How little of a run samples tell of, if most of it passed in the kernel.
fn in_the_kernel(samples: &Samples, tables: &Tables) -> Option<String> {
    const LITTLE: f64 = 0.5;
    let used_ns = cpu_time_ns(tables);
    let sampled: u64 = tables.samples.iter().map(|sample| sample.weight).sum();
    let (seen, all) = match samples.kernel {
        Some(_) => (samples.in_user_code() as f64, samples.total as f64),
        None => (sampled as f64, used_ns as f64),
    };
    let is_little = samples.total > 0 && used_ns > BUSY_NS && seen < LITTLE * all;
    let percent = seen / all * 100.0;
    is_little.then(|| match samples.kernel {
        Some(_) => format!(
            "{:.0} % of the threads' time passed in the kernel, where no line is watched: this report is about the other {percent:.0} %.",
            100.0 - percent
        ),
        None => format!(
            "Samples tell of {percent:.0} % of the CPU time. The rest passed in the kernel, most likely, which is sampled for root and with CAP_PERFMON only."
        ),
    })
}

fn count_samples(info: &RunInfo, tables: &Tables) -> Samples {
    if let Some(exact) = &info.exact {
        return Samples {
            total: exact.followed,
            accesses: exact.followed,
            ..Samples::default()
        };
    }
    let mut samples = Samples {
        total: tables.samples.len() as u64,
        ..Samples::default()
    };
    let mut compute = 0;
    for sample in &tables.samples {
        match sample.class {
            SampleClass::Access => samples.accesses += 1,
            SampleClass::Compute => compute += 1,
            SampleClass::Kernel => *samples.kernel.get_or_insert_default() += 1,
            SampleClass::Unknown => {
                let reason = sample.reason.map_or("not-recorded", |reason| reason.word());
                *samples.unknown.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
    samples.compute = Some(compute);
    samples
}

fn describe_run(info: &RunInfo, tables: &Tables) -> Run {
    let trips: Vec<f64> = tables
        .latencies
        .iter()
        .map(|latency| latency.round_trip_ns)
        .collect();
    let command = command_line(&info.command, info.launched);
    let virtual_on = if info.hypervisor.is_empty() {
        String::new()
    } else {
        format!(" on {}", info.hypervisor)
    };
    Run {
        command: if info.launched {
            command
        } else {
            format!("pid {} ({command})", info.pid)
        },
        source: info.source,
        source_reason: info.source_reason.clone(),
        duration_ns: info.end.since(info.start),
        threads: thread_rows(info, tables),
        round_trip_range_ns: Interval::of(&trips),
        round_trip_ns: median(trips),
        // Of a recording that was cut short before its account was written nothing is known.
        overhead: (info.exact.is_none() && (info.complete || info.overhead.budget > 0.0))
            .then(|| info.overhead.clone()),
        one_line_in: info.exact.as_ref().map(|exact| exact.one_line_in.max(1)),
        order: info.exact.as_ref().map(|exact| exact.order),
        repeated: info.exact.as_ref().and_then(repeated),
        waited_ns: info.exact.as_ref().map(|exact| exact.waited_ns),
        machine: format!(
            "{}, {} CPUs{virtual_on}, Linux {}",
            info.cpu_model, info.cpus, info.kernel
        ),
        complete: info.complete,
        exit_code: info.exit_code,
        exit_signal: info.exit_signal,
    }
}

fn repeated(exact: &ExactRun) -> Option<Repeated> {
    let (first, again) = (&exact.sums, &exact.repeats);
    let interval = |first: f64, of: fn(&Repeat) -> f64| {
        spread(first, &again.iter().map(of).collect::<Vec<f64>>()).interval()
    };
    (!again.is_empty()).then(|| Repeated {
        runs: again.len() as u64 + 1,
        accesses: interval(exact.accesses, |it| it.accesses),
        transfers: interval(first.true_sharing + first.false_sharing, |it| it.transfers),
    })
}

fn sum_sharing(info: &RunInfo, view: &SharingView, tables: &Tables) -> Sharing {
    let mut transfers = Transfers {
        true_sharing: view.others.true_sharing,
        false_sharing: view.others.false_sharing,
        ..Transfers::default()
    };
    for line in &view.lines {
        transfers.true_sharing += line.true_transfers();
        transfers.false_sharing += line.false_transfers();
        transfers.interval.low += line.transfers.low;
        transfers.interval.high += line.transfers.high;
    }
    if let Some(exact) = &info.exact {
        let sum = transfers.true_sharing + transfers.false_sharing;
        let error = ERRORS * exact.sums.transfers_error.unwrap_or(0.0);
        let seen = repeated(exact).map_or(Interval::exactly(sum), |it| it.transfers);
        transfers.interval = Interval {
            low: (seen.low - error).max(0.0),
            high: seen.high + error,
        };
    }
    // Threads that do not share would only make the matrix large: those that do, and the others
    // while there are few.
    let sharing: std::collections::BTreeSet<Tid> = view
        .lines
        .iter()
        .flat_map(|line| &line.flows)
        .flat_map(|flow| [flow.to, flow.from])
        .collect();
    let few = tables.threads.len() <= 64;
    let threads: Vec<u32> = tables
        .threads
        .iter()
        .filter(|thread| sharing.contains(&thread.tid) || (few && thread.cpu_time_ns > 0))
        .map(|thread| thread.tid.0)
        .collect();
    let index: BTreeMap<u32, usize> = threads
        .iter()
        .enumerate()
        .map(|(i, &tid)| (tid, i))
        .collect();
    let mut matrix = square(threads.len());
    // Of an exact run that followed a share of the lines, each stands for so many.
    let scale = f64::from(Followed::of(info).one_in());
    for flow in view.lines.iter().flat_map(|line| &line.flows) {
        if let (Some(&to), Some(&from)) = (index.get(&flow.to.0), index.get(&flow.from.0)) {
            let (true_sharing, false_sharing) = (flow.true_sharing, flow.false_sharing);
            add(
                &mut matrix,
                to,
                from,
                scale * true_sharing,
                scale * false_sharing,
            );
        }
    }
    let (cpus, cpu_matrix) = sum_cpus(&view.lines, tables);
    Sharing {
        transfers,
        threads,
        matrix,
        cpus,
        cpu_matrix,
        uncounted_lines: view.taking_turns + view.unmet + view.of_one_goroutine,
        spread_lines: view.spread,
    }
}

fn sum_cpus(lines: &[LineSharing], tables: &Tables) -> (Vec<u32>, Matrix) {
    let mut cpus: Vec<u32> = tables.samples.iter().map(|sample| sample.cpu.0).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let index: BTreeMap<u32, usize> = cpus.iter().enumerate().map(|(i, &cpu)| (cpu, i)).collect();
    let mut matrix = square(cpus.len());
    for (&(a, b), &(true_sharing, false_sharing)) in lines.iter().flat_map(|line| &line.cpu_flows) {
        if let (Some(&a), Some(&b)) = (index.get(&a.0), index.get(&b.0)) {
            add(&mut matrix, a, b, true_sharing, false_sharing);
        }
    }
    (cpus, matrix)
}

fn square(size: usize) -> Matrix {
    Matrix {
        true_sharing: vec![vec![0.0; size]; size],
        false_sharing: vec![vec![0.0; size]; size],
    }
}

/// Adds transfers between two rows, whichever way they went: the matrix stays symmetric.
fn add(matrix: &mut Matrix, a: usize, b: usize, true_sharing: f64, false_sharing: f64) {
    for (a, b) in [(a, b), (b, a)] {
        matrix.true_sharing[a][b] += true_sharing;
        matrix.false_sharing[a][b] += false_sharing;
    }
}

fn losses(tables: &Tables) -> BTreeMap<String, Lost> {
    let mut losses: BTreeMap<String, Lost> = BTreeMap::new();
    for loss in &tables.losses {
        let entry = losses.entry(loss.what.clone()).or_insert(Lost {
            count: 0,
            detail: loss.detail.clone(),
        });
        entry.count += loss.count;
    }
    losses
}

fn notes(
    info: &RunInfo,
    tables: &Tables,
    samples: &Samples,
    coverage: &RunCoverage,
    view: &SharingView,
    advice: &Advice,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !info.complete {
        let why = match info.ended_by.as_str() {
            "disk-full" => "the disk was full",
            "quota-used-up" => "the disk quota was used up",
            "write-failed" => "it could not be written further",
            _ => "linewise was killed before it could end it",
        };
        notes.push(format!(
            "The recording was cut short: {why}. What was written until then is shown; of heap blocks that is those that had been freed."
        ));
    }
    if let Some(exact) = &info.exact {
        // Of SIGILL, SIGBUS, SIGFPE and SIGSEGV.
        if let Some(signal) = info.exit_signal.filter(|it| matches!(it, 4 | 7 | 8 | 11)) {
            notes.push(format!(
                "The program ended by signal {signal} under the emulator. If it does not by itself, that is the emulator's fault, which cannot do all that a machine does (`pthread_cancel`, AVX-512): `qemu-{} PROGRAM` shows it without linewise; `--source timer` records it as it is.",
                std::env::consts::ARCH
            ));
        }
        notes.extend(exact_notes(exact, view, tables));
        return notes;
    }
    let used_ns = cpu_time_ns(tables);
    if samples.total == 0 && used_ns > BUSY_NS {
        notes.push(format!(
            "No sample came, though the threads used {:.1} s of CPU time: nothing is known of them, which is not the same as no finding. `linewise doctor` says whether samples can be taken here.",
            used_ns as f64 * 1e-9
        ));
    } else if samples.in_user_code() < ENOUGH_SAMPLES {
        let says = if advice.findings.is_empty() {
            "Too short to say anything"
        } else {
            "Too short to find more, or to know it well"
        };
        let run_ns = info.end.since(info.start);
        let hardly_ran = match used_ns < run_ns / 50 {
            true => format!(
                " It hardly ran: {:.1} ms of CPU time in {:.1} s; its threads slept, or are stopped.",
                used_ns as f64 * 1e-6,
                run_ns as f64 * 1e-9
            ),
            false => String::new(),
        };
        notes.push(format!(
            "{says}: {} samples of its own code, at least {ENOUGH_SAMPLES} are needed.{hardly_ran} Run the program for longer, give it more work, or raise `--overhead` or `--rate`.",
            samples.in_user_code()
        ));
    }
    notes.extend(in_the_kernel(samples, tables));
    let cpus: std::collections::BTreeSet<u32> =
        tables.samples.iter().map(|sample| sample.cpu.0).collect();
    let busy = tables
        .threads
        .iter()
        .filter(|thread| thread.cpu_time_ns > 1_000_000)
        .count();
    if cpus.len() == 1 && busy > 1 {
        notes.push(format!(
            "All {busy} threads ran on CPU {} alone: a line that only one CPU uses is never transferred, so no sharing can cost anything here. On more CPUs it may.",
            cpus.first().copied().unwrap_or(0)
        ));
    } else if advice.findings.is_empty() && view.of_one_goroutine > 0 {
        notes.push(format!(
            "{} of the lines seen that several threads use are each of one goroutine, which goes from thread to thread: nobody shares them.",
            view.of_one_goroutine
        ));
    } else if advice.findings.is_empty() && view.taking_turns > 0 {
        let told = coverage.switches.unwrap_or(0.0);
        let lines = view.taking_turns;
        notes.push(match told >= MOSTLY_TOLD {
            true => format!(
                "Threads share {lines} of the lines seen, but hardly ever at the same time on different CPUs: they take turns. Such lines may move at each turn, which is not counted."
            ),
            false => format!(
                "Threads share {lines} of the lines seen. Who ran when was recorded for {:.0} % of their CPU time; in that they were hardly ever on different CPUs at once, which says little of the rest.",
                told * 100.0
            ),
        });
    }
    if view.no_latency {
        notes.push(
            "The latency between CPUs could not be measured, so costs and transfers are not known: let linewise use at least two CPUs.".to_owned(),
        );
    }
    if moved(&tables.latencies) {
        notes.push(
            "The latency between CPUs changed during the run, as it does in virtual machines: compare this run only with runs of a like round trip.".to_owned(),
        );
    }
    notes
}

/// What the reader of an exact run must know.
fn exact_notes(exact: &ExactRun, view: &SharingView, tables: &Tables) -> Vec<String> {
    let mut notes = Vec::new();
    if exact.followed == 0 {
        notes.push(match &exact.only {
            Some(only) => format!(
                "Not one access was followed: nothing of `{only}` ran, or it is not called that."
            ),
            None => "Not one access was followed.".to_owned(),
        });
    }
    if exact.one_line_in > 1 {
        notes.push(format!(
            "One line in {0} was followed. Sums are scaled back to all lines, with the error that the choice brings; a finding stands for its object's lines that were not followed, and what lies on such lines alone is missing: without --lines 1/{0} everything is seen.",
            exact.one_line_in
        ));
    }
    if (tables.caches.iter()).any(|row| row.level == CacheLevel::Unbounded) {
        notes.push(
            "The sizes of caches were not simulated: transfers are those between caches that never lose a line for want of room, an upper bound. How many accesses miss at each size is told by the curve, from the reuse of the followed lines; --caches simulates every level, and tells why accesses miss and what prefetching would bring.".to_owned(),
        );
    }
    if exact.order == Order::AsRun {
        notes.push(
            "The order of the threads is the emulator's own (`--order as-run`, or `--only`): on another run, or on cores that run at full speed, they may meet much oftener or less often.".to_owned(),
        );
    }
    if view.no_latency && (!view.lines.is_empty() || view.others.all() > 0.0) {
        notes.push(
            "The latency between CPUs could not be measured, so costs are taken from 25 to 250 ns a transfer, which holds for most machines: let linewise use at least two CPUs.".to_owned(),
        );
    }
    notes
}

/// Whether the round trip changed by more than its noise.
fn moved(latencies: &[Latency]) -> bool {
    let mut trips: Vec<f64> = latencies
        .iter()
        .map(|latency| latency.round_trip_ns)
        .collect();
    trips.sort_by(f64::total_cmp);
    let at = |share: f64| {
        trips
            .get((share * (trips.len().max(1) - 1) as f64) as usize)
            .copied()
    };
    match (at(0.1), at(0.9)) {
        (Some(low), Some(high)) => trips.len() >= 3 && high > 2.5 * low,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_stands_below_a_change_where_it_parts_what_that_names() {
        let group = |members: &[&str]| Group {
            why: String::new(),
            members: members.iter().map(|&it| it.to_owned()).collect(),
        };
        let layout = |groups: &[&[&str]]| Layout {
            groups: groups.iter().map(|it| group(it)).collect(),
            size_before: 32,
            size_after: 128,
            padding_before: 0,
            padding_after: 96,
            saves_at_most: 0.0,
            saves_at_least: 0.0,
            source: "struct s { };".to_owned(),
        };
        let mut change = "Move `recvd` to another line than `stats.sent`: they lie on one line and different threads use them. Put 64 bytes of padding between them, or put fields between them.".to_owned();
        let apart = layout(&[&["recvd", "id"], &["stats"]]);
        let together = layout(&[&["id"], &["recvd", "stats"]]);
        assert!(parts(&apart, &change) && !parts(&together, &change));
        assert!(parts(
            &together,
            "Different threads use different bytes of one line."
        ));
        leave_to_declaration(&mut change);
        let left = "Move `recvd` to another line than `stats.sent`: they lie on one line and different threads use them. The declaration below parts them.";
        assert_eq!(change, left);
    }

    #[test]
    fn structs_without_a_name_are_told_apart_by_their_members() {
        let barrier = ["missing", "sense", "crossings"];
        assert!(are_members(&barrier, "missing, sense"));
        assert!(!are_members(&["sense"], "missing, sense"));
        assert!(!are_members(&barrier, "head[].next"));
        assert!(are_members(&["__0"], "0[].hits | 0[].misses"));
        assert!(are_members(&barrier, ""));
        assert!(are_members(&["", "own"], "of_its_base"));
    }
}
