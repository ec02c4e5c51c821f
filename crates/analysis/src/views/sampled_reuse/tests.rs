use super::intervals::{Lasting, intervals, trap_offset};
use super::*;
use linewise_recording::{Address, CpuId, Operation, Pid, SampledReuse as Facts, StackId};

const OFFSET: u64 = 12_000;

fn watch(id: u64, scope: ReuseScope, outcome: ReuseOutcome, closed: u64) -> ReuseWatch {
    ReuseWatch {
        id,
        scope,
        pid: Pid(1),
        tid: Tid(1),
        address: Address(0x1000),
        sample_ip: Address(0x40),
        weight_ns: 250_000,
        armed: Time(0),
        closed: Time(closed),
        outcome,
        shots: 7,
        others: 1,
        unwatched: 0,
    }
}

fn trap(watch: u64, tid: u32, time: u64, loads: bool) -> ReuseTrap {
    ReuseTrap {
        watch,
        time: Time(time),
        tid: Tid(tid),
        cpu: CpuId(0),
        running_ns: time,
        loads,
        access_ip: Address(0x40),
        operation: (!loads).then_some(Operation::Store),
    }
}

/// The traps of a watch whose chunk is touched every `period` ns, but for the time of the traps.
fn touched_every(watch: u64, period: u64) -> Vec<ReuseTrap> {
    (1..=7)
        .map(|n| trap(watch, 1, n * (period + OFFSET), true))
        .collect()
}

fn info() -> RunInfo {
    RunInfo {
        exact: None,
        reuse: Some(Facts {
            slots: 2,
            offset_ns: OFFSET as f64,
            deviation_ns: 200.0,
            offered: 10,
        }),
        ..super::super::exact_rows::info()
    }
}

fn view(watches: &[ReuseWatch], traps: &[ReuseTrap]) -> SampledReuse {
    let input = Input {
        info: &info(),
        watches,
        traps,
        samples: &[],
        switches: &[],
        frames: &[],
        exact: None,
    };
    sampled_reuse(&input).expect("sampled").times
}

fn mass(times: &ReuseTimes) -> f64 {
    let bins: f64 = times.bins.iter().map(|bin| bin.count).sum();
    bins + times.invalidated + times.unfinished
}

#[test]
fn a_known_reuse_time_comes_out_without_the_time_of_the_traps() {
    let watches = [watch(
        1,
        ReuseScope::Private,
        ReuseOutcome::Complete,
        1 << 40,
    )];
    let times = view(&watches, &touched_every(1, 50_000)).private;
    assert_eq!(times.uses, 5);
    let [bin] = times.bins[..] else {
        panic!("one bin: {times:?}");
    };
    assert!(bin.from <= 50_000 && 50_000 < bin.to, "{bin:?}");
    assert!((mass(&times) - 1.0).abs() < 1e-9);
}

#[test]
fn a_store_of_another_thread_ends_a_use_and_a_load_does_not() {
    let watches = [watch(
        1,
        ReuseScope::Private,
        ReuseOutcome::Replaced,
        1 << 40,
    )];
    let traps = [
        trap(1, 1, 100_000, true),
        trap(1, 2, 150_000, false),
        trap(1, 1, 200_000, true),
        trap(1, 1, 300_000, true),
    ];
    let found = intervals(&watches, &traps);
    let fates: Vec<Fate> = found.seen.iter().map(|interval| interval.fate).collect();
    assert_eq!(fates, [Fate::Invalidated, Fate::Reused(false)]);
}

#[test]
fn a_thread_that_has_stored_as_often_as_can_be_seen_is_taken_to_go_on() {
    let watches = [watch(
        1,
        ReuseScope::Private,
        ReuseOutcome::Replaced,
        1 << 40,
    )];
    let mut traps: Vec<ReuseTrap> = (1..=7).map(|n| trap(1, 2, n * 1000, false)).collect();
    traps.push(trap(1, 1, 100_000, true));
    traps.push(trap(1, 1, 200_000, true));
    let found = intervals(&watches, &traps);
    assert_eq!(found.seen[0].fate, Fate::Invalidated);
}

#[test]
fn behind_one_cache_the_next_thread_reuses_what_the_first_used() {
    let watches = [watch(
        1,
        ReuseScope::Shared,
        ReuseOutcome::Replaced,
        1 << 40,
    )];
    let traps = [
        trap(1, 1, 100_000, true),
        trap(1, 2, 150_000, true),
        trap(1, 3, 160_000, false),
        trap(1, 1, 200_000, true),
    ];
    let found = intervals(&watches, &traps);
    let fates: Vec<Fate> = found.seen.iter().map(|interval| interval.fate).collect();
    assert_eq!(fates, [Fate::Reused(true), Fate::Invalidated]);
}

#[test]
fn what_the_reservoir_takes_away_is_made_up_for() {
    // Half of the watches are taken away at 200 µs, when only the near ones are through.
    let mut watches = Vec::new();
    let mut traps = Vec::new();
    for id in 0..400u64 {
        let (period, far) = if id % 2 == 0 {
            (1_000, false)
        } else {
            (100_000, true)
        };
        let mut all = touched_every(id, period);
        // Each in a thread of its own: traps of others take time from no other.
        let tid = Tid(id as u32 + 1);
        all.iter_mut().for_each(|trap| trap.tid = tid);
        let end = all[6].time.0;
        let taken = far && id % 4 == 1;
        let (outcome, closed) = match taken {
            true => (ReuseOutcome::Replaced, 200_000),
            false => (ReuseOutcome::Complete, end),
        };
        watches.push(ReuseWatch {
            tid,
            ..watch(id, ReuseScope::Private, outcome, closed)
        });
        traps.extend(all.into_iter().filter(|trap| trap.time.0 <= closed));
    }
    let times = view(&watches, &traps).private;
    let near: f64 = times
        .bins
        .iter()
        .filter(|bin| bin.to < 10_000)
        .map(|bin| bin.count)
        .sum();
    let far: f64 = times
        .bins
        .iter()
        .filter(|bin| bin.from > 10_000)
        .map(|bin| bin.count)
        .sum();
    assert!((near - 0.5).abs() < 0.01, "{near}");
    assert!((far - 0.5).abs() < 0.02, "{far}");
    assert!((mass(&times) - 1.0).abs() < 1e-9);
}

#[test]
fn what_is_never_used_again_stays_unfinished_and_is_not_called_cold() {
    let watches = [
        watch(1, ReuseScope::Private, ReuseOutcome::Complete, 1 << 40),
        watch(2, ReuseScope::Private, ReuseOutcome::Ended, 1 << 41),
    ];
    let times = view(&watches, &touched_every(1, 50_000)).private;
    assert!((times.unfinished - 0.5).abs() < 1e-9, "{times:?}");
}

#[test]
fn the_chance_to_last_is_that_of_kaplan_and_meier() {
    // Of four, one is taken at 10, one is complete at 20, one is taken at 30, one is complete at 40.
    let lasting = Lasting::new([(10, true), (20, false), (30, true), (40, false)].into_iter());
    assert_eq!(lasting.until(10), 1.0);
    assert_eq!(lasting.until(11), 0.75);
    assert_eq!(lasting.until(30), 0.75);
    assert_eq!(lasting.until(31), 0.375);
}

#[test]
fn the_time_of_a_trap_is_what_was_measured_unless_the_run_shows_less() {
    let watches = [watch(
        1,
        ReuseScope::Private,
        ReuseOutcome::Complete,
        1 << 40,
    )];
    let offset = OFFSET as f64;
    assert_eq!(
        trap_offset(&watches, &touched_every(1, 500), offset),
        offset
    );
    assert_eq!(
        trap_offset(&watches, &touched_every(1, 500), offset + 1_500.0),
        offset + 500.0
    );
    assert_eq!(trap_offset(&[], &[], offset), offset);
}

#[test]
fn with_the_rate_of_an_exact_run_times_become_distances_and_mass_becomes_accesses() {
    let watches = [watch(
        1,
        ReuseScope::Private,
        ReuseOutcome::Complete,
        1 << 40,
    )];
    let traps = touched_every(1, 50_000);
    let frames = [Frame {
        pid: Pid(1),
        address: Address(0x40),
        depth: 0,
        function: "walk".to_owned(),
        file: "walk.c".to_owned(),
        line: 3,
        module: String::new(),
        reason: String::new(),
    }];
    let samples: Vec<Sample> = (0..40)
        .map(|n| Sample {
            time: Time(n * 250_000),
            pid: Pid(1),
            tid: Tid(1),
            cpu: CpuId(0),
            ip: Address(0x40),
            sp: Address(0),
            stack: StackId(0),
            weight: 250_000,
            class: linewise_recording::SampleClass::Access,
            access_ip: Address(0x40),
            address: Address(0x1000),
            size: 8,
            operation: Some(Operation::Load),
            locked: false,
            origin: None,
            reason: None,
        })
        .collect();
    let (exact_info, mut exact_tables) = (
        super::super::exact_rows::info(),
        linewise_recording::Tables::default(),
    );
    let mut row =
        super::super::exact_rows::total(linewise_recording::CacheLevel::L1d, [20e6, 0.0, 0.0]);
    row.subject = linewise_recording::CacheSubject::Instruction;
    (row.pid, row.ip) = (Some(Pid(1)), Some(Address(0x40)));
    exact_tables.caches.push(row);
    exact_tables.frames = frames.to_vec();
    let mut counts = ExactCounts::new(&exact_info, &exact_tables).expect("an exact run");
    let accesses = exact_tables.caches[0].loads
        + exact_tables.caches[0].stores
        + exact_tables.caches[0].updates;
    counts.accesses = accesses;
    let (mut info, run_ns) = (info(), 40.0 * 250_000.0);
    info.overhead.sample_ns = 0.0;
    let result = sampled_reuse(&Input {
        info: &info,
        watches: &watches,
        traps: &traps,
        samples: &samples,
        switches: &[],
        frames: &frames,
        exact: Some(&counts),
    })
    .expect("sampled");
    let reuse = result.reuse.expect("rates are known");
    assert_eq!(reuse.source, ReuseSource::Sampled);
    // The traps took their part of the time of the run.
    let rate = accesses / (run_ns - 7.0 * OFFSET as f64);
    let expected = 50_000.0 * rate;
    let [bin] = reuse.private.time_bins[..] else {
        panic!("one bin: {:?}", reuse.private);
    };
    assert!(
        bin.from as f64 <= expected && expected <= bin.to as f64 + 1.0,
        "{expected} in {bin:?}"
    );
    let histogram = &reuse.private;
    let all = histogram.reuses() + histogram.cold + histogram.invalidated + histogram.unfinished;
    assert!((all / histogram.accesses - 1.0).abs() < 1e-6);
    assert!((histogram.accesses / accesses - 1.0).abs() < 1e-6);
}
