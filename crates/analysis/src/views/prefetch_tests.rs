use super::super::exact_rows::{frame, info, instruction, reuse as row, total};
use super::super::reuse;
use super::*;
use linewise_recording::{Address, CpuId, Pid, Tid, Time, Touch};

fn latency(idle: f64) -> Latency {
    Latency {
        time: Time(0),
        cpu_a: CpuId(0),
        cpu_b: CpuId(1),
        round_trip_ns: idle * 2.0,
        transfer_idle_ns: idle,
        transfer_busy_ns: idle,
        busy_share: 0.5,
        transfer_crowded_ns: idle,
        crowded_share: 0.9,
        transfer_saturated_ns: idle,
        hit_ns: 5.0,
    }
}

fn moved(ip: u64, sharing: Sharing, count: f64) -> TransferCount {
    TransferCount {
        pid: Some(Pid(7)),
        line: Some(Address(0x4000)),
        from_tid: Some(Tid(11)),
        to_tid: Some(Tid(12)),
        from_ip: Some(Address(0x10)),
        from_operation: None,
        to_ip: Some(Address(ip)),
        to_operation: None,
        from_bytes: 0xff,
        to_bytes: 0xff00,
        from_block: None,
        to_block: None,
        sharing,
        count,
    }
}

/// A million touches of lines, of which `far` come back from beyond the last level.
fn lines(far: f64) -> Vec<ReuseBin> {
    vec![
        row(11, Touch::Reuse, 0, 1, 1e6 - far),
        row(11, Touch::Reuse, 4096, 4352, far),
        row(11, Touch::Cold, 0, 0, 1000.0),
    ]
}

/// The same by pairs of lines: `far` from beyond the last level, some invalidated.
fn pairs(far: f64, invalidated: f64) -> Vec<ReuseBin> {
    let mut rows = vec![
        row(11, Touch::Reuse, 0, 1, 1e6 - far),
        row(11, Touch::Reuse, 4096, 4352, far),
        row(11, Touch::Cold, 0, 0, 500.0),
        row(11, Touch::Invalidated, 0, 0, invalidated),
    ];
    for row in &mut rows {
        row.unit = Unit::LinePair;
    }
    rows
}

fn view(rows: &[ReuseBin], far: f64, transfers: &[TransferCount]) -> Prefetch {
    let info = info();
    let reuse = reuse::reuse(&reuse::Input {
        info: &info,
        reuse: rows,
        pairs: &[],
        call_paths: &[],
        caches: &[],
        frames: &[],
    });
    let all = total(CacheLevel::L2, [1000.0, far, 0.0]);
    let caches = [all.clone(), instruction(0x20, all)];
    prefetch(&Input {
        info: &info,
        reuse: &reuse.expect("rows"),
        rows,
        caches: &caches,
        transfers,
        latencies: &[latency(50.0), latency(40.0)],
        frames: &[frame(0x20, "sum", 9), frame(0x30, "count", 4)],
    })
    .expect("all tables")
}

#[test]
fn the_gain_is_what_memory_takes_less_what_false_sharing_takes() {
    let transfers = [
        moved(0x30, Sharing::False, 2000.0),
        moved(0x30, Sharing::True, 7000.0),
    ];
    let prefetch = view(&lines(3e4), 3e4, &transfers);
    assert_eq!(prefetch.memory_wait_ns, 3e4 * 100.0);
    // The median of two measurements lies between them.
    assert_eq!(prefetch.sharing_wait_ns, 2000.0 * 45.0);
    assert_eq!(prefetch.gain_ns, 3e6 - 9e4);
    assert_eq!(prefetch.gain_band.low, 3e6 - 2000.0 * 50.0);
    assert_eq!(prefetch.gain_band.high, 3e6 - 2000.0 * 40.0);
    assert_eq!(prefetch.verdict, Verdict::Helps);
    assert_eq!(prefetch.by_function[0].function, "sum");
    assert_eq!(prefetch.by_function[0].gain_ns, 3e6);
    assert_eq!(prefetch.by_function[1].function, "count");
    assert_eq!(prefetch.by_function[1].gain_ns, -9e4);
    let parts: f64 = prefetch.by_function.iter().map(|row| row.gain_ns).sum();
    assert_eq!(parts, prefetch.gain_ns);
}

#[test]
fn a_program_that_fights_over_lines_loses() {
    let transfers = [moved(0x30, Sharing::False, 9e5)];
    assert_eq!(view(&lines(20.0), 20.0, &transfers).verdict, Verdict::Hurts);
}

#[test]
fn where_the_waits_are_near_each_other_nothing_is_promised() {
    let transfers = [moved(0x30, Sharing::False, 7e4)];
    assert_eq!(view(&lines(3e4), 3e4, &transfers).verdict, Verdict::Unclear);
}

#[test]
fn a_program_that_stays_in_its_caches_does_not_care() {
    let prefetch = view(&lines(0.0), 0.0, &[]);
    assert_eq!(prefetch.verdict, Verdict::NoMatter);
    assert!(
        prefetch.doubt.contains("First touches"),
        "{}",
        prefetch.doubt
    );
}

#[test]
fn neighbours_that_are_not_used_save_nothing() {
    // Every miss of a line is a miss of its pair as well.
    let mut rows = lines(3e4);
    rows.extend(pairs(3e4, 0.0));
    let prefetch = view(&rows, 3e4, &[]);
    assert_eq!(prefetch.verdict, Verdict::NoMatter);
    let pairs = prefetch.neighbours.expect("pairs were recorded");
    assert_eq!((pairs.avoided, pairs.line_misses), (500.0, 31_000.0));
    assert!(pairs.used_share < 0.02);
}

#[test]
fn neighbours_that_are_used_save_half_of_the_misses() {
    let mut rows = lines(3e4);
    rows.extend(pairs(1.5e4, 0.0));
    let prefetch = view(&rows, 3e4, &[]);
    assert_eq!(prefetch.verdict, Verdict::Helps);
    let pairs = prefetch.neighbours.expect("pairs were recorded");
    assert_eq!((pairs.avoided, pairs.used_share), (15_500.0, 1.0));
    assert_eq!(pairs.gain_ns, 15_500.0 * 100.0);
}

#[test]
fn neighbours_that_others_write_cost_transfers() {
    // Threads with counters on neighbouring lines: no false sharing yet, and much in pairs.
    let mut rows = lines(10.0);
    rows.extend(pairs(10.0, 5e5));
    let prefetch = view(&rows, 0.0, &[]);
    assert_eq!(prefetch.verdict, Verdict::Hurts);
    let pairs = prefetch.neighbours.expect("pairs were recorded");
    assert_eq!(pairs.added_invalidations, 5e5);
    assert!(pairs.gain_ns < 0.0);
}

#[test]
fn a_latency_that_was_not_measured_is_said_to_be_assumed() {
    let mut info = info();
    info.exact.as_mut().expect("an exact run").memory_ns = None;
    let rows = lines(3e4);
    let reuse = reuse::reuse(&reuse::Input {
        info: &info,
        reuse: &rows,
        pairs: &[],
        call_paths: &[],
        caches: &[],
        frames: &[],
    });
    let input = Input {
        info: &info,
        reuse: &reuse.expect("rows"),
        rows: &rows,
        caches: &[total(CacheLevel::L2, [1000.0, 3e4, 0.0])],
        transfers: &[],
        latencies: &[],
        frames: &[],
    };
    let result = prefetch(&input).expect("all tables");
    assert!(
        result.doubt.contains("not all measured"),
        "{}",
        result.doubt
    );
    assert!(result.memory_ns.high > result.memory_ns.low);
    assert_eq!(
        prefetch(&Input {
            caches: &[],
            ..input
        }),
        None
    );
}

#[test]
fn what_saves_nothing_is_not_said_to_help() {
    // No reuse goes to memory; the neighbours of first touches are used.
    let rows: Vec<ReuseBin> = lines(0.0).into_iter().chain(pairs(0.0, 0.0)).collect();
    let found = view(&rows, 0.0, &[]);
    assert_eq!(found.gain_band, Interval::exactly(0.0));
    assert!(found.neighbours.expect("pairs").gain_ns > 0.0);
    assert_eq!(found.verdict, Verdict::Unclear);
}
