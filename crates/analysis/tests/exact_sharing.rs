//! From the tables of an exact run to findings, and to what the reports say of them.

use linewise_analysis::analyse;
use linewise_analysis::model::{FindingKind, Interval, Report};
use linewise_analysis::report::{html, terminal};
use linewise_recording::{
    Address, CpuId, ExactRun, Field, Frame, Latency, Object, ObjectKind, Order, Overhead, Pid,
    Repeat, RepeatedLine, RunInfo, Sharing, Tables, Thread, Tid, Time, TransferCount,
};

const PID: Pid = Pid(100);
const COUNTERS: u64 = 0x40_4000;

fn info(accesses: u64) -> RunInfo {
    serde_json::from_value(serde_json::json!({
        "format_version": 1, "linewise_version": "", "complete": true, "command": ["./count"],
        "pid": 100, "launched": true, "source": "exact", "source_reason": "asked for",
        "start": 0, "end": 1_000_000_000, "ended_by": "target-exited", "exit_code": 0,
        "exit_signal": null, "line_size": 64, "cpus": 2, "watchpoint_bytes": 0, "cpu_model": "",
        "hypervisor": "", "kernel": "", "skid_rule": "", "overhead": Overhead::default(),
        "exact": ExactRun {
            accesses: accesses as f64,
            followed: accesses,
            one_line_in: 1,
            ..ExactRun::default()
        },
    }))
    .unwrap()
}

/// Two threads that take a line from each other `count` times each way, each at a counter of its own.
fn tables(count: f64) -> Tables {
    let mut tables = Tables::default();
    for tid in [101, 102] {
        tables.threads.push(Thread {
            pid: PID,
            tid: Tid(tid),
            name: "worker".to_owned(),
            start: Time(0),
            end: Time(1_000_000_000),
            cpu_time_ns: 0,
            stack_low: Address(0),
            stack_high: Address(0),
        });
        let ip = Address(0x40_1000 + u64::from(tid));
        tables.frames.push(Frame {
            pid: PID,
            address: ip,
            depth: 0,
            function: "count".to_owned(),
            file: "/src/count.c".to_owned(),
            line: tid,
            module: String::new(),
            reason: String::new(),
        });
        let place = u64::from(tid - 101);
        tables.fields.push(Field {
            pid: PID,
            object: Address(COUNTERS),
            offset: place * 8,
            size: 8,
            path: format!("counters[{place}].hits"),
            type_name: "long".to_owned(),
        });
        tables.transfers.push(TransferCount {
            pid: Some(PID),
            line: Some(Address(COUNTERS)),
            from_tid: Some(Tid(203 - tid)),
            to_tid: Some(Tid(tid)),
            from_ip: Some(Address(0x40_1000 + u64::from(203 - tid))),
            from_operation: None,
            to_ip: Some(ip),
            to_operation: None,
            from_bytes: 0xff << (8 * (1 - place)),
            to_bytes: 0xff << (8 * place),
            from_block: None,
            to_block: None,
            sharing: Sharing::False,
            count,
        });
    }
    tables.objects.push(Object {
        pid: PID,
        address: Address(COUNTERS),
        size: 16,
        kind: ObjectKind::Static,
        name: "counters".to_owned(),
        type_name: "struct counter[2]".to_owned(),
        declared_at: "/src/count.c:3".to_owned(),
    });
    tables.latencies.push(Latency {
        time: Time(0),
        cpu_a: CpuId(0),
        cpu_b: CpuId(1),
        round_trip_ns: 100.0,
        transfer_idle_ns: 55.0,
        transfer_busy_ns: 60.0,
        busy_share: 0.5,
        transfer_crowded_ns: 70.0,
        crowded_share: 0.9,
        transfer_saturated_ns: 105.0,
        hit_ns: 5.0,
    });
    tables
}

fn report(accesses: u64, count: f64) -> Report {
    analyse(&info(accesses), &tables(count))
}

#[test]
fn a_fought_over_line_is_a_finding_as_from_samples() {
    let report = report(1_000_000, 100_000.0);
    let [finding] = &report.findings[..] else {
        panic!("{:#?}", report.findings)
    };
    assert_eq!(finding.kind, FindingKind::FalseSharing);
    assert_eq!(finding.object.name, "counters");
    assert_eq!((finding.transfers, finding.false_share), (200_000.0, 1.0));
    assert_eq!(finding.transfers_interval, Interval::exactly(200_000.0));
    assert_eq!(
        report.sharing.transfers.interval,
        Interval::exactly(200_000.0)
    );
    // 200,000 times 50 ns beside a million accesses of 1 ns.
    assert_eq!(finding.cost.ns, 10e6);
    assert!((finding.cost.share - 10.0 / 11.0).abs() < 1e-9);
    assert_eq!(finding.evidence.accesses, Some(200_000));
    assert_eq!(finding.evidence.samples, None);
    let places: Vec<_> = finding
        .accesses
        .iter()
        .map(|access| (access.tid, access.line, access.offset, access.size))
        .collect();
    assert_eq!(places, [(101, 101, 0, 8), (102, 102, 8, 8)]);
    assert!(finding.change.contains("`counters`"), "{}", finding.change);
    let cell = report.sharing.matrix.false_sharing[0][1];
    assert_eq!(cell, 200_000.0);
    assert!(report.sharing.cpus.is_empty() && report.timeline.is_empty());
    assert!(report.run.overhead.is_none() && report.notes.is_empty());

    let text = terminal::render(&report, &terminal::TerminalOptions::default());
    assert!(text.contains("200 k, all by false sharing"), "{text}");
    let page = html::render(&report);
    assert!(page.contains("Transfers: 200 k, all by false sharing."));
}

#[test]
fn whose_order_of_the_threads_it_is_is_said() {
    let mut info = info(1_000_000);
    let mut said = |order| {
        info.exact.as_mut().unwrap().order = order;
        let report = analyse(&info, &tables(100_000.0));
        assert_eq!(report.run.order, Some(order));
        let text = terminal::render(&report, &terminal::TerminalOptions::default());
        (report.notes.join(" "), text)
    };
    let (notes, text) = said(Order::EqualRate);
    assert!(notes.is_empty(), "{notes}");
    assert!(text.contains("all threads at equal rate"), "{text}");
    let (notes, text) = said(Order::AsRun);
    assert!(notes.contains("the emulator's own"), "{notes}");
    assert!(text.contains("as the emulator ran the threads"), "{text}");
}

#[test]
fn of_several_runs_it_is_said_between_what_their_counts_lie() {
    let mut info = info(1_000_000);
    let run = |accesses, transfers| Repeat {
        accesses,
        transfers,
        lines: vec![RepeatedLine {
            pid: PID,
            line: Address(COUNTERS),
            transfers,
        }],
    };
    info.exact.as_mut().unwrap().sums.false_sharing = 200_000.0;
    info.exact.as_mut().unwrap().repeats =
        vec![run(1_000_026.0, 199_999.0), run(1_000_000.0, 200_001.0)];
    let report = analyse(&info, &tables(100_000.0));
    let finding = &report.findings[0];
    let interval = Interval {
        low: 199_999.0,
        high: 200_001.0,
    };
    assert_eq!(finding.transfers, 200_000.0);
    assert_eq!(finding.transfers_interval, interval);
    let text = terminal::render(&report, &terminal::TerminalOptions::default());
    assert!(text.contains("200 k (199,999..200,001), all"), "{text}");
    assert!(
        text.contains("3 runs: 1,000,000..1,000,026 accesses, 199,999..200,001"),
        "{text}"
    );
    assert!(html::render(&report).contains("200 k (199,999..200,001)"));
}

#[test]
fn what_threads_hand_to_each_other_at_their_start_is_none() {
    // A tiny program, of which it is a large share all the same.
    let report = report(20_000, 400.0);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    assert_eq!(report.sharing.transfers.false_sharing, 800.0);
}

#[test]
fn a_line_that_moves_seldom_in_a_long_run_is_none() {
    assert!(report(1_000_000_000, 10_000.0).findings.is_empty());
}

#[test]
fn lines_that_are_handed_over_once_are_none_however_many_they_are() {
    let mut tables = Tables::default();
    for line in 0..2_000 {
        let mut of_one = self::tables(1.0);
        for row in &mut of_one.transfers {
            row.line = Some(Address(COUNTERS + 64 * line));
        }
        tables.transfers.append(&mut of_one.transfers);
        if line == 0 {
            of_one.objects[0].size = 2_000 * 64;
            tables = Tables {
                transfers: tables.transfers,
                ..of_one
            };
        }
    }
    let mut info = info(1_000_000);
    assert_eq!(analyse(&info, &tables).findings.len(), 0);
    // Each stands for 64 of the object.
    info.exact.as_mut().unwrap().one_line_in = 64;
    assert_eq!(analyse(&info, &tables).findings.len(), 0);
    for row in &mut tables.transfers {
        row.count *= 10.0;
    }
    assert_eq!(analyse(&info, &tables).findings.len(), 1);
    info.exact.as_mut().unwrap().one_line_in = 1;
    assert_eq!(analyse(&info, &tables).findings.len(), 1);
}

#[test]
fn a_run_of_which_nothing_was_followed_says_so() {
    let report = analyse(&info(0), &Tables::default());
    assert!(
        report.notes[0].contains("Not one access"),
        "{:?}",
        report.notes
    );
}
