//! Waits with a known rate behind them.

use super::*;
use linewise_recording::{CpuId, StackId, WatchOutcome};

const OFFSET: f64 = 20_000.0;

fn watch(id: u64, chunks: u8, closed_ns: u64) -> Watch {
    Watch {
        id,
        armed: Time(1_000_000),
        closed: Time(1_000_000 + closed_ns),
        pid: Pid(1),
        tid: Tid(2),
        publisher: Tid(1),
        address: Address(0x1000),
        size: 8,
        operation: Operation::Store,
        chunks,
        publisher_cpu: CpuId(0),
        outcome: WatchOutcome::Trapped,
        exposure_ns: closed_ns,
    }
}

fn trap(watch: u64, chunk: u8, wait_ns: u64, cpu: u32) -> Trap {
    Trap {
        watch,
        chunk,
        exposure_ns: OFFSET as u64 + wait_ns,
        time: Time(1_000_000 + OFFSET as u64 + wait_ns),
        pid: Pid(1),
        tid: Tid(2),
        cpu: CpuId(cpu),
        access_ip: Address(0x40_0000),
        address: Address(0x1000 + 8 * u64::from(chunk)),
        size: 8,
        operation: Operation::Load,
        locked: false,
        stack: StackId(0),
    }
}

fn one(watches: &[Watch], traps: &[Trap]) -> Encounter {
    one_with(watches, traps, &[])
}

fn one_with(watches: &[Watch], traps: &[Trap], switches: &[Switch]) -> Encounter {
    let at_once = AtOnce {
        exposure_ns: OFFSET,
        delay_ns: 10_000.0,
    };
    let (stays, shared) = (Stays::new(switches), SharedMemory::default());
    let found = encounters(
        watches,
        traps,
        64,
        at_once,
        &stays,
        &shared,
        &Goroutines::default(),
    );
    found[&(Pid(1), Address(0x1000))][&Tid(2)].clone()
}

#[test]
fn a_thread_that_is_always_there_is_present_though_half_of_the_line_is_watched() {
    // Every watch has four chunks; the thread touches chunk 3, which half of them include.
    let watches: Vec<Watch> = (0..100)
        .map(|id| watch(id, if id % 2 == 0 { 0x0f } else { 0xf0 }, 8_000_000))
        .collect();
    let traps: Vec<Trap> = (0..100).step_by(2).map(|id| trap(id, 3, 50, 1)).collect();
    let presence = one(&watches, &traps).presence();
    assert!((presence - 1.0).abs() < 1e-9, "{presence}");
}

#[test]
fn a_thread_that_comes_a_thousand_times_a_second_is_not_present() {
    // Waits of an exponential distribution with mean 1 ms, at its quantiles.
    let wait = |i: u64| (-((i as f64 + 0.5) / 200.0).ln() * 1e6) as u64;
    let watches: Vec<Watch> = (0..200).map(|id| watch(id, 1, wait(id) + 25_000)).collect();
    let traps: Vec<Trap> = (0..200).map(|id| trap(id, 0, wait(id), 1)).collect();
    let encounter = one(&watches, &traps);
    assert!(encounter.presence() < 0.02, "{}", encounter.presence());
    let rate = encounter.absent_rate();
    assert!((700.0..1400.0).contains(&rate), "{rate}");
}

#[test]
fn waits_that_the_machine_stretched_just_beyond_the_limit_do_not_make_a_thread_absent() {
    let wait = |id: u64| {
        if id.is_multiple_of(10) {
            43_000
        } else {
            12_000
        }
    };
    let watches: Vec<Watch> = (0..40).map(|id| watch(id, 1, wait(id))).collect();
    let traps: Vec<Trap> = (0..40).map(|id| trap(id, 0, wait(id), 1)).collect();
    let presence = one(&watches, &traps).presence();
    assert!(presence > 0.8, "{presence}");
}

#[test]
fn a_trap_is_not_late_for_the_one_before_it_that_stopped_the_thread() {
    let watches: Vec<Watch> = (0..40).map(|id| watch(id, 0b101, 60_000)).collect();
    let first = (0..40).map(|id| trap(id, 0, 30_000, 1));
    let second = (0..40).map(|id| trap(id, 2, 47_000, 1));
    let alone: Vec<Trap> = second.clone().collect();
    let both: Vec<Trap> = first.chain(second).collect();
    assert!(one(&watches, &both).is_often_at(2));
    assert!(!one(&watches, &alone).is_often_at(2));
}

/// Stays of the watched thread.
fn stay(start: u64, end: u64) -> Switch {
    Switch {
        tid: Tid(2),
        cpu: CpuId(1),
        start: Time(start),
        end: Time(end),
    }
}

#[test]
fn arming_that_took_long_is_no_absence_where_the_thread_is_known_to_have_run_but_shortly() {
    let watches: Vec<Watch> = (0..40).map(|id| watch(id, 1, 100_000)).collect();
    let mut traps: Vec<Trap> = (0..40).map(|id| trap(id, 0, 60_000, 1)).collect();
    for trap in &mut traps {
        // 1.2 ms after it was armed, of which it ran for 15 µs at the end.
        trap.time = Time(2_200_000);
    }
    let counted = one(&watches, &traps).presence();
    assert!(counted < 0.1, "{counted}");
    let stays = [stay(0, 900_000), stay(2_185_000, 3_000_000)];
    let known = one_with(&watches, &traps, &stays).presence();
    assert!((known - 1.0).abs() < 1e-9, "{known}");
}

#[test]
fn a_thread_that_comes_whenever_it_wakes_may_come_seldom() {
    let mut watches: Vec<Watch> = (0..15).map(|id| watch(id, 1, 8_000_000)).collect();
    let mut woken: Vec<Trap> = (0..4).map(|id| trap(id, 0, 50, 1)).collect();
    for (watch, trap) in watches.iter_mut().zip(&mut woken) {
        watch.armed = Time(150_000_000);
        trap.time = Time(151_015_000);
    }
    let stays = [stay(0, 149_900_000), stay(151_000_000, 200_000_000)];
    let most = |switches| one_with(&watches, &woken, switches).most_at(0, Operation::Update);
    assert!(most(&stays) < 1000.0, "{}", most(&stays));
    assert_eq!(most(&[]), f64::INFINITY, "at work whenever it was watched");
}

#[test]
fn stays_that_hold_less_than_the_kernel_counted_are_not_all() {
    let watches: Vec<Watch> = (0..40).map(|id| watch(id, 1, 1_000_000)).collect();
    let mut traps: Vec<Trap> = (0..40).map(|id| trap(id, 0, 900_000, 1)).collect();
    for trap in &mut traps {
        trap.time = Time(2_200_000);
    }
    let presence = one_with(&watches, &traps, &[stay(2_185_000, 3_000_000)]).presence();
    assert!(presence < 0.1, "{presence}");
}

#[test]
fn two_loads_do_not_meet() {
    let mut loads = watch(1, 1, 8_000_000);
    loads.operation = Operation::Load;
    assert_eq!(one(&[loads], &[trap(1, 0, 50, 1)]).traps, 0);
}

#[test]
fn a_watch_in_which_the_thread_hardly_ran_says_nothing() {
    let mut idle: Vec<Watch> = (0..50).map(|id| watch(id, 1, 8_000_000)).collect();
    for watch in &mut idle {
        watch.exposure_ns = OFFSET as u64;
    }
    idle.push(watch(50, 1, 8_000_000));
    assert_eq!(one(&idle, &[trap(50, 0, 50, 1)]).presence(), 1.0);
}

#[test]
fn a_thread_is_elsewhere_while_it_stays_on_another_cpu() {
    let switches = [stay(500, 900), stay(100, 300)];
    let stays = Stays::new(&switches);
    assert!(stays.elsewhere(Tid(2), CpuId(0), Time(200)));
    assert!(!stays.elsewhere(Tid(2), CpuId(0), Time(400)), "off its CPU");
    assert!(
        !stays.elsewhere(Tid(2), CpuId(1), Time(200)),
        "on the same CPU"
    );
    assert!(
        stays.elsewhere(Tid(9), CpuId(0), Time(200)),
        "nothing is known of it"
    );
}

#[test]
fn threads_take_turns_that_overlap_for_less_than_a_fiftieth_of_the_time_of_either() {
    let stay = |tid, cpu, start, end| Switch {
        tid: Tid(tid),
        cpu: CpuId(cpu),
        start: Time(start),
        end: Time(end),
    };
    // By turns of 1,000, each of which begins `early` before the other's ends.
    let turns = |early: u64, cpus: [u32; 2]| -> Vec<Switch> {
        (1..20u64)
            .map(|turn| {
                let of = (turn % 2) as u32;
                stay(
                    of,
                    cpus[of as usize],
                    turn * 1000 - early,
                    turn * 1000 + 1000,
                )
            })
            .collect()
    };
    let take_turns = |switches: &[Switch], a, b| Stays::new(switches).take_turns(Tid(a), Tid(b));
    assert!(take_turns(&turns(0, [0, 1]), 0, 1));
    assert!(take_turns(&turns(9, [0, 1]), 0, 1));
    assert!(!take_turns(&turns(30, [0, 1]), 0, 1));
    assert!(take_turns(&turns(30, [0, 0]), 0, 1), "on one CPU");
    assert!(
        !take_turns(&turns(0, [0, 1]), 0, 9),
        "nothing is known of 9"
    );
    // One that is seldom on a CPU, but beside the other whenever it is.
    let mut visits = vec![stay(0, 0, 0, 100_000)];
    visits.extend((0..5).map(|visit| stay(1, 1, visit * 1000, visit * 1000 + 100)));
    assert!(!take_turns(&visits, 0, 1));
    assert!(!take_turns(&visits, 1, 0));
}
