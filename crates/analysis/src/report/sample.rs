//! Made-up reports for the tests of the renderers and for the example that prints them: an
//! everyday one, a hostile one, a crowd, and two that find nothing.

use std::collections::BTreeMap;

use linewise_recording::{ObjectKind, Operation, Order, Overhead, Source};

use super::model::{
    AccessRow, Bin, CallChain, Cost, Evidence, Finding, FindingKind, HotCallee, HotFunction,
    Interval, LineField, LineRow, Lost, Matrix, ObjectRow, Repeated, Report, ReuseTimes, Run,
    RunCoverage, SCHEMA, SampledReuse, Samples, Sharing, ThreadRow, TimelineBin, Transfers,
    TypeVote, Unlisted, Views,
};

/// A name that tries everything: markup, a terminal escape, a C1 control, a direction override.
pub(crate) const HOSTILE: &str = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>\u{1b}[2J\u{9b}31m\u{202e}gnp";

#[path = "sample_calls.rs"]
pub(crate) mod sample_calls;
#[path = "sample_exact.rs"]
mod sample_exact;
#[path = "sample_types.rs"]
mod sample_types;
#[path = "sample_views.rs"]
mod sample_views;

const SECOND: u64 = 1_000_000_000;

/// How much of the everyday run was seen.
const SEEN: RunCoverage = RunCoverage {
    samples: Some(0.93),
    kernel: Some(0.017),
    switches: Some(1.0),
    watches: Some(0.88),
    at_once: Some(0.9),
};

fn interval(low: f64, high: f64) -> Interval {
    Interval { low, high }
}

fn thread(tid: u32, name: &str, cpu_time_ns: u64) -> ThreadRow {
    ThreadRow {
        tid,
        pid: 41_310,
        name: name.to_owned(),
        cpu_time_ns,
        accesses: None,
    }
}

/// A program with a false and a true sharing, four workers, and the usual losses.
pub(crate) fn everyday() -> Report {
    let threads = vec![
        thread(41_312, "worker-0", 3_130_000_000),
        thread(41_313, "worker-1", 3_090_000_000),
        thread(41_314, "worker-2", 2_880_000_000),
        thread(41_315, "worker-3", 2_850_000_000),
        thread(41_311, "counters", 12_000_000),
    ];
    Report {
        schema: SCHEMA,
        run: Run {
            command: "./counters --threads 4 --seconds 3".to_owned(),
            source: Source::Timer,
            source_reason: "this VM has no PMU; the timer needs none".to_owned(),
            duration_ns: 3_204_000_000,
            threads,
            round_trip_ns: Some(82.4),
            round_trip_range_ns: Some(interval(71.0, 338.0)),
            overhead: Some(Overhead {
                budget: 0.02,
                estimated: 0.0143,
                sample_ns: 4_100.0,
                arm_ns: 21_300.0,
                trap_ns: 14_200.0,
                watch_ns: 45_000.0,
                samples_per_second: 997.0,
                watches_per_second: 410.0,
                collector_cpu_ns: 210_000_000,
                collector_rss_bytes: 18_400_000,
            }),
            one_line_in: None,
            order: None,
            repeated: None,
            waited_ns: None,
            machine: "AMD EPYC 7763, 4 CPUs, KVM, Linux 6.18.2".to_owned(),
            complete: true,
            exit_code: Some(0),
            exit_signal: None,
        },
        sharing: Sharing {
            transfers: Transfers {
                true_sharing: 1_620_000.0,
                false_sharing: 13_400_000.0,
                interval: interval(12_100_000.0, 18_200_000.0),
            },
            threads: vec![41_311, 41_312, 41_313, 41_314, 41_315],
            matrix: Matrix {
                true_sharing: symmetric(5, &[(1, 2, 410e3), (1, 3, 620e3), (3, 4, 590e3)]),
                false_sharing: symmetric(5, &[(1, 2, 6.1e6), (2, 3, 0.9e6), (3, 4, 6.4e6)]),
            },
            cpus: vec![0, 1, 2, 3],
            uncounted_lines: 0,
            spread_lines: 0,
            cpu_matrix: Matrix {
                true_sharing: symmetric(4, &[(0, 1, 410e3), (0, 2, 620e3), (2, 3, 590e3)]),
                false_sharing: symmetric(4, &[(0, 1, 6.1e6), (1, 2, 0.9e6), (2, 3, 6.4e6)]),
            },
        },
        findings: vec![counters(), queue_lock()],
        samples: Samples {
            total: 12_034,
            accesses: 8_211,
            compute: Some(3_200),
            kernel: Some(204),
            unknown: BTreeMap::from([
                ("address-overwritten".to_owned(), 301),
                ("block-start".to_owned(), 118),
            ]),
        },
        coverage: SEEN,
        losses: BTreeMap::from([(
            "ring-buffer-full".to_owned(),
            Lost {
                count: 17,
                detail: "17 samples were lost because the collector came too late".to_owned(),
            },
        )]),
        notes: Vec::new(),
        timeline: timeline(64, 0.41),
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
        misses: Vec::new(),
        working_set: Vec::new(),
        flow: Vec::new(),
        views: Views {
            hot: Some(hot()),
            ..Views::default()
        },
    }
}

/// The same with hostile and endless names wherever a name can be.
pub(crate) fn hostile() -> Report {
    let mut report = everyday();
    let endless = "a_very_long_namespace::".repeat(12);
    report.run.command = format!("./{HOSTILE} {endless}");
    report.run.source_reason = HOSTILE.to_owned();
    report.run.machine = format!("{HOSTILE} {endless}");
    report.notes = vec![format!("{HOSTILE} {endless}")];
    for thread in &mut report.run.threads {
        thread.name = HOSTILE.to_owned();
    }
    for finding in &mut report.findings {
        finding.object.name = format!("{HOSTILE}{endless}");
        finding.object.type_name = format!("{endless}{HOSTILE}");
        finding.object.declared_at = format!("{HOSTILE}:12");
        finding.object.accessed_type = format!("{HOSTILE}{endless}");
        finding.object.field = format!("{endless}{HOSTILE}");
        finding.object.type_votes = vec![vote(HOSTILE, 0.5), vote(&endless, 0.5)];
        finding.change = format!("{HOSTILE} {endless}");
        finding.change_source = format!("    struct {HOSTILE} {{\n\tint {endless};\n}};");
        finding.doubt = HOSTILE.to_owned();
        for field in finding.lines.iter_mut().flat_map(|line| &mut line.fields) {
            field.path = format!("{endless}{HOSTILE}");
            field.type_name = HOSTILE.to_owned();
        }
        for access in &mut finding.accesses {
            access.thread_name = HOSTILE.to_owned();
            access.function = format!("{endless}{HOSTILE}");
            access.file = format!("/{HOSTILE}/{endless}.c");
            access.field = HOSTILE.to_owned();
            access.inlined_into = vec![HOSTILE.to_owned()];
            access.called_from = vec![chain(0.5, &[HOSTILE, &endless])];
            access.missing = HOSTILE.to_owned();
        }
    }
    sample_types::with_types(&mut report);
    sample_types::make_hostile(&mut report, &endless);
    let exact = sample_exact::with_locality(report.clone());
    (report.curve, report.curve_shared) = (exact.curve, exact.curve_shared);
    (report.cache_sizes, report.caches) = (exact.cache_sizes, exact.caches);
    report.reuse = exact.reuse.map(|mut reuse| {
        let places = reuse.pairs.iter_mut().chain(&mut reuse.shared_pairs);
        for place in places.flat_map(|pair| [&mut pair.use_place, &mut pair.reuse_place]) {
            place.function = format!("{endless}{HOSTILE}");
            place.file = format!("/{HOSTILE}/{endless}.c");
        }
        for function in &mut reuse.by_function {
            function.function = HOSTILE.to_owned();
            function.file = format!("/{HOSTILE}");
        }
        let thread = reuse.by_thread["41312"].clone();
        reuse.by_thread.insert(HOSTILE.to_owned(), thread);
        reuse
    });
    report.cache_misses = exact.cache_misses.map(|mut misses| {
        for place in &mut misses.by_place {
            place.place.function = format!("{HOSTILE}{endless}");
            place.place.file = HOSTILE.to_owned();
        }
        misses
    });
    report.prefetch = exact.prefetch.map(|mut prefetch| {
        prefetch.doubt = HOSTILE.to_owned();
        prefetch.by_function[0].function = HOSTILE.to_owned();
        prefetch.by_function[0].file = HOSTILE.to_owned();
        prefetch
    });
    report.views = sample_views::hostile(&endless);
    report.samples.unknown.insert(HOSTILE.to_owned(), 3);
    report.losses.insert(
        HOSTILE.to_owned(),
        Lost {
            count: 1,
            detail: HOSTILE.to_owned(),
        },
    );
    report
}

/// Three functions, of which one spends its time in a library's.
fn hot() -> Vec<HotFunction> {
    let function = |function: &str, file: &str, line, share, threads| HotFunction {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
        share,
        threads,
        module: "/usr/local/bin/server".to_owned(),
        ..HotFunction::default()
    };
    vec![
        function("worker", "/src/server/worker.c", 118, 0.62, 4),
        HotFunction {
            inside: vec![HotCallee {
                function: "memcpy".to_owned(),
                module: "/usr/lib/libc.so.6".to_owned(),
                share: 0.24,
            }],
            ..function("reply", "/src/server/reply.c", 40, 0.3, 4)
        },
        function("server+0x4120", "", 0, 0.08, 1),
    ]
}

/// A run in which nothing was worth a finding.
pub(crate) fn quiet() -> Report {
    let mut report = everyday();
    report.findings.clear();
    report.sharing.transfers = Transfers {
        true_sharing: 812.0,
        false_sharing: 0.0,
        interval: interval(90.0, 4_100.0),
    };
    report.sharing.matrix = Matrix {
        true_sharing: symmetric(5, &[(1, 2, 812.0)]),
        false_sharing: symmetric(5, &[]),
    };
    report.sharing.cpu_matrix = Matrix {
        true_sharing: symmetric(4, &[(0, 1, 812.0)]),
        false_sharing: symmetric(4, &[]),
    };
    report.losses.clear();
    report.timeline = timeline(64, 0.002);
    report
}

/// A run that ended before it could say anything.
pub(crate) fn too_short() -> Report {
    let mut report = quiet();
    report.run.duration_ns = 11_000_000;
    report.run.threads = vec![thread(700, "true", 9_000_000)];
    report.run.round_trip_ns = None;
    report.run.round_trip_range_ns = None;
    report.run.complete = false;
    report.run.exit_code = None;
    report.run.exit_signal = Some(11);
    report.samples = Samples {
        total: 4,
        accesses: 1,
        compute: Some(3),
        kernel: None,
        unknown: BTreeMap::new(),
    };
    report.coverage.kernel = None;
    report.coverage.watches = None;
    report.sharing = Sharing::default();
    report.timeline.clear();
    report.notes = vec![
        "Too short: 4 samples in 11 ms say nothing about sharing. Run it for a second or more, \
         or raise --overhead."
            .to_owned(),
    ];
    report
}

/// The same program in an exact run: counted transfers, and nothing of what only a timer knows.
pub(crate) fn traced() -> Report {
    let mut report = everyday();
    let run = &mut report.run;
    run.source = Source::Exact;
    run.one_line_in = Some(1);
    run.order = Some(Order::EqualRate);
    run.repeated = Some(Repeated {
        runs: 3,
        accesses: interval(118_204_311.0, 118_204_337.0),
        transfers: Interval::exactly(15_020_000.0),
    });
    run.waited_ns = Some(412_000_000);
    run.source_reason = "asked for".to_owned();
    run.overhead = None;
    for (thread, accesses) in run.threads.iter_mut().zip([31, 30, 28, 28, 1]) {
        thread.accesses = Some(accesses * 1_000_000);
    }
    report.samples = Samples {
        total: 118_204_311,
        accesses: 118_204_311,
        ..Samples::default()
    };
    report.coverage = RunCoverage::default();
    report.sharing.transfers.interval = Interval::exactly(15_020_000.0);
    report.sharing.cpus.clear();
    report.sharing.cpu_matrix = Matrix::default();
    for finding in &mut report.findings {
        finding.transfers_interval = Interval::exactly(finding.transfers);
        finding.evidence = Evidence {
            accesses: Some(finding.transfers as u64),
            ..Evidence::default()
        };
        finding.doubt = "The cost is that of a model.".to_owned();
        for access in &mut finding.accesses {
            access.called_from.clear();
        }
    }
    report.losses.clear();
    report.timeline.clear();
    sample_exact::with_locality(report)
}

/// An everyday report of whose long lists most rows are next to nothing: threads, losses, reasons, types.
pub(crate) fn many_rows(rows: u32) -> Report {
    let mut report = profiled();
    let threads = (0..rows).map(|i| thread(60_000 + i, &format!("idle-{i}"), 1_000));
    report.run.threads.extend(threads);
    let pattern = report.types[0].clone();
    for i in 0..rows {
        let kind = format!("kind-{i:03}");
        let lost = Lost {
            count: 1,
            detail: kind.clone(),
        };
        report.samples.unknown.insert(format!("reason-{i:03}"), 1);
        let mut slight = pattern.clone();
        slight.name = format!("slight_{i:03}");
        slight.cost.share = 1e-6;
        report.types.push(slight);
        report.losses.insert(kind, lost);
    }
    report
        .samples
        .unknown
        .insert("common".to_owned(), 1_000_000);
    report
        .losses
        .entry("ring-buffer-full".to_owned())
        .and_modify(|lost| lost.count = 1_000_000);
    report
}

/// `count` threads that all take one lock, and many finding besides.
pub(crate) fn crowd(count: u32) -> Report {
    let mut report = everyday();
    report.run.threads = (0..count)
        .map(|i| thread(50_000 + i, &format!("rayon-{i}"), SECOND / u64::from(i + 1)))
        .collect();
    report.sharing.threads = report.run.threads.iter().map(|t| t.tid).collect();
    let size = report.run.threads.len();
    let weight = |i: usize, j: usize| {
        if i == j {
            0.0
        } else {
            4e6 / ((i + 1) * (j + 1)) as f64
        }
    };
    let matrix: Vec<Vec<f64>> = (0..size)
        .map(|i| (0..size).map(|j| weight(i, j)).collect())
        .collect();
    report.sharing.matrix = Matrix {
        false_sharing: matrix
            .iter()
            .map(|row| row.iter().map(|v| v / 9.0).collect())
            .collect(),
        true_sharing: matrix,
    };
    let mut lock = queue_lock();
    let pattern = lock.accesses[0].clone();
    lock.accesses = report
        .run
        .threads
        .iter()
        .map(|t| AccessRow {
            tid: t.tid,
            thread_name: t.name.clone(),
            share: 1.0 / f64::from(count),
            ..pattern.clone()
        })
        .collect();
    report.findings = (1..=12)
        .map(|rank| Finding {
            rank,
            ..lock.clone()
        })
        .collect();
    report
}

fn symmetric(size: usize, cells: &[(usize, usize, f64)]) -> Vec<Vec<f64>> {
    let mut rows = vec![vec![0.0; size]; size];
    for &(i, j, value) in cells {
        rows[i][j] = value;
        rows[j][i] = value;
    }
    rows
}

fn timeline(bins: u64, contended: f64) -> Vec<TimelineBin> {
    let length_ns = 50_000_000;
    (0..bins)
        .map(|i| {
            let x = i as f64 / bins as f64;
            let thread_ns = length_ns as f64 * 4.0;
            let wave = 0.75 + 0.25 * (x * 19.0).sin();
            let ramp = if x < 0.15 { x / 0.15 } else { 1.0 };
            TimelineBin {
                start_ns: i * length_ns,
                length_ns,
                thread_ns,
                contended_ns: thread_ns * (contended * wave * ramp).min(1.0),
                round_trip_ns: match i {
                    20..=26 => 0.0,
                    40..=49 => 338.0,
                    _ => 74.0 + 8.0 * (x * 40.0).cos(),
                },
            }
        })
        .collect()
}

/// One place in the source: function, file and line.
type Place<'a> = (&'a str, &'a str, u32);

fn access(
    (tid, thread_name): (u32, &str),
    (function, file, line): Place<'_>,
    op: Operation,
    (offset, size, field): (u32, u32, &str),
    share: f64,
) -> AccessRow {
    AccessRow {
        tid,
        thread_name: thread_name.to_owned(),
        goroutine: None,
        function: function.to_owned(),
        file: file.to_owned(),
        line,
        own: None,
        ends_scope: false,
        language: String::new(),
        inlined_into: Vec::new(),
        called_from: Vec::new(),
        op,
        offset,
        size,
        field: field.to_owned(),
        share,
        line_address: 0x4040c0,
        missing: String::new(),
    }
}

fn chain(share: f64, callers: &[&str]) -> CallChain {
    CallChain {
        share,
        callers: callers.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn field(offset: u32, size: u32, path: &str, type_name: &str) -> LineField {
    LineField {
        offset,
        size,
        path: path.to_owned(),
        type_name: type_name.to_owned(),
    }
}

fn vote(name: &str, share: f64) -> TypeVote {
    TypeVote {
        part: false,
        name: name.to_owned(),
        share,
    }
}

fn counters() -> Finding {
    let place = ("count_words", "/src/wordcount/counters.c", 31);
    let main = ("report_progress", "/src/wordcount/main.c", 118);
    let names = ["worker-0", "worker-1", "worker-2", "worker-3"];
    let shares = [0.31, 0.27, 0.2, 0.16];
    let mut accesses: Vec<AccessRow> = (0..4u32)
        .zip(names)
        .zip(shares)
        .map(|((i, name), share)| {
            let path = format!("counters[{i}].hits");
            access(
                (41_312 + i, name),
                place,
                Operation::Update,
                (i * 16, 8, &path),
                share,
            )
        })
        .collect();
    accesses.push(access(
        (41_311, "counters"),
        main,
        Operation::Load,
        (0, 8, "counters[0].hits"),
        0.06,
    ));
    for access in &mut accesses[..4] {
        access.inlined_into = vec!["worker".to_owned()];
    }
    Finding {
        rank: 1,
        kind: FindingKind::FalseSharing,
        cost: Cost {
            ns: 4.5e9,
            share: 0.376,
            interval: interval(0.312, 0.443),
        },
        transfers: 13_400_000.0,
        transfers_interval: interval(10_900_000.0, 16_100_000.0),
        false_share: 0.97,
        false_share_interval: Interval::exactly(0.97),
        object: ObjectRow {
            kind: ObjectKind::Static,
            name: "counters".to_owned(),
            type_name: "struct counter[8]".to_owned(),
            address: 0x4040c0,
            size: 128,
            declared_at: "/src/wordcount/main.c:12".to_owned(),
            allocated_at: Vec::new(),
            type_allocated_at: Vec::new(),
            count: 1,
            accessed_type: String::new(),
            type_owner: String::new(),
            field: String::new(),
            reached_through: String::new(),
            type_votes: Vec::new(),
        },
        lines: vec![LineRow {
            address: 0x4040c0,
            size: 64,
            offset_in_object: 0,
            transfers: 13_400_000.0,
            fields: (0..4)
                .flat_map(|i| {
                    [
                        field(i * 16, 8, &format!("counters[{i}].hits"), "long"),
                        field(i * 16 + 8, 4, &format!("counters[{i}].id"), "int"),
                    ]
                })
                .collect(),
        }],
        accesses,
        line_count: 1,
        unlisted: Unlisted::default(),
        change: "Give each element of `counters` a line of its own: align `struct counter` to \
                 64 bytes, so that every thread counts on a line that no other thread writes."
            .to_owned(),
        change_source: "struct counter {\n    long hits;\n    int id;\n} \
                        __attribute__((aligned(64)));"
            .to_owned(),
        expected_gain: interval(0.30, 0.44),
        doubt: "The loop of `count_words` has no other access to compare with, so the lower end \
                rests on the transfers alone."
            .to_owned(),
        evidence: Evidence {
            samples: Some(812),
            watches: Some(300),
            traps: Some(121),
            accesses: None,
        },
    }
}

fn queue_lock() -> Finding {
    let push = (
        "core::sync::atomic::AtomicUsize::compare_exchange_weak",
        "/rustc/library/core/src/sync/atomic.rs",
        3_702,
    );
    let pop = ("queue_pop", "/src/wordcount/queue.c", 57);
    let mut accesses = vec![
        access(
            (41_312, "worker-0"),
            push,
            Operation::Update,
            (20, 4, "lock"),
            0.58,
        ),
        access(
            (41_314, "worker-2"),
            pop,
            Operation::Load,
            (20, 4, "lock"),
            0.42,
        ),
    ];
    accesses[1].missing =
        "libqueue.so has no line table: install libqueue-dbgsym or build it with -g".to_owned();
    accesses[1].called_from = vec![
        chain(
            0.71,
            &[
                "next_page (/src/wordcount/pages.c:88)",
                "count_words (/src/wordcount/counters.c:24)",
            ],
        ),
        chain(0.29, &["steal (/src/wordcount/pages.c:131)"]),
    ];
    for access in &mut accesses {
        access.line_address = 0x7f32_1c00_1240;
    }
    Finding {
        rank: 2,
        kind: FindingKind::TrueSharing,
        cost: Cost {
            ns: 0.5e9,
            share: 0.041,
            interval: interval(0.012, 0.078),
        },
        transfers: 1_620_000.0,
        transfers_interval: interval(1_100_000.0, 2_300_000.0),
        false_share: 0.0,
        false_share_interval: Interval::default(),
        object: ObjectRow {
            kind: ObjectKind::Heap,
            name: "heap".to_owned(),
            type_name: String::new(),
            address: 0x7f32_1c00_1250,
            size: 0,
            declared_at: String::new(),
            allocated_at: Vec::new(),
            type_allocated_at: Vec::new(),
            count: 1,
            accessed_type: "struct queue".to_owned(),
            type_owner: String::new(),
            field: "lock".to_owned(),
            reached_through: "server.queues[]".to_owned(),
            type_votes: vec![vote("struct queue", 0.92), vote("struct node", 0.08)],
        },
        lines: vec![LineRow {
            address: 0x7f32_1c00_1240,
            size: 64,
            offset_in_object: -16,
            transfers: 1_620_000.0,
            fields: vec![field(20, 4, "", "")],
        }],
        accesses,
        line_count: 1,
        unlisted: Unlisted::default(),
        change: "worker-0 and worker-2 both need these bytes. Take the lock less often, for \
                 example for a batch of items, or give each thread a queue of its own."
            .to_owned(),
        change_source: String::new(),
        expected_gain: interval(0.0, 0.078),
        doubt: String::new(),
        evidence: Evidence {
            samples: Some(94),
            watches: Some(71),
            traps: Some(40),
            accesses: None,
        },
    }
}

/// An everyday report with a data profile and the paths of objects.
pub(crate) fn profiled() -> Report {
    let mut report = everyday();
    sample_types::with_types(&mut report);
    report
}

/// An everyday report with reuse sampled, but no exact run beside it.
pub(crate) fn with_reuse_times() -> Report {
    let bin = |from: u64, count| Bin {
        from,
        to: from * 17 / 16,
        count,
    };
    Report {
        sampled_reuse: Some(SampledReuse {
            watches: 480,
            complete: 300,
            replaced: 170,
            ended: 10,
            uses: 2_100,
            resolution_ns: 520.0,
            private: ReuseTimes {
                bins: vec![bin(1 << 10, 0.5), bin(1 << 16, 0.3), bin(1 << 22, 0.1)],
                invalidated: 0.06,
                unfinished: 0.04,
                uses: 2_100,
            },
            shared: None,
            rate_from: None,
            known_share: None,
            doubt: "Times, not distances: give an exact run with --rate-from.".to_owned(),
        }),
        ..everyday()
    }
}
