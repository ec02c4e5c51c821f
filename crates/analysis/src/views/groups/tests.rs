use linewise_recording::{Address, CpuId, Operation, Pid, Sample, Tables, Thread, Time};
use linewise_topology::{Topology, synthetic};
use serde_json::json;

use super::super::encounter::Touch;
use super::super::sampled_rows;
use super::super::sharing::{Basis, Flow, LineSharing, Place, SharingView, TurnLine};
use super::*;

/// Threads from 1 on that used the whole second.
fn tables(threads: u32) -> Tables {
    let thread = |tid| Thread {
        pid: Pid(1),
        tid: Tid(tid),
        name: format!("worker-{tid}"),
        start: Time(0),
        end: Time(1_000_000_000),
        cpu_time_ns: 1_000_000_000,
        stack_low: Address(0),
        stack_high: Address(0),
    };
    Tables {
        threads: (1..=threads).map(thread).collect(),
        ..Tables::default()
    }
}

fn info() -> RunInfo {
    serde_json::from_value(json!({
        "format_version": 2, "linewise_version": "", "complete": true, "command": ["./pairs"], "pid": 1,
        "launched": true, "source": "timer", "source_reason": "", "start": 0, "end": 1_000_000_000,
        "ended_by": "target-exited", "exit_code": 0, "exit_signal": null, "line_size": 64,
        "cpus": 2, "watchpoint_bytes": 32, "cpu_model": "", "hypervisor": "", "kernel": "",
        "skid_rule": "", "overhead": linewise_recording::Overhead::default(),
    }))
    .unwrap()
}

/// A line over which two threads fight.
fn line(number: u64, one: u32, other: u32, transfers: f64) -> LineSharing {
    let flow = |to, from| Flow {
        to: Tid(to),
        from: Tid(from),
        true_sharing: transfers / 2.0,
        false_sharing: 0.0,
    };
    let estimate = |value: f64| Estimate {
        value,
        low: value / 2.0,
        high: value * 2.0,
    };
    LineSharing {
        pid: Pid(1),
        line: Address(number * 64),
        transfers: estimate(transfers),
        cost_ns: estimate(transfers * 50.0),
        flows: vec![flow(one, other), flow(other, one)],
        false_share: Estimate::default(),
        cpu_flows: BTreeMap::new(),
        places: Vec::new(),
        basis: Basis::Traced,
    }
}

fn view(lines: Vec<LineSharing>) -> SharingView {
    SharingView {
        lines,
        ..SharingView::default()
    }
}

fn found(tables: &Tables, sharing: &SharingView, machine: Option<&Topology>) -> ThreadGroups {
    let info = info();
    let time = ThreadTime::Measured(4e9);
    thread_groups(&GroupsInput {
        info: &info,
        tables,
        sharing,
        time: &time,
        machine,
    })
    .groups
}

fn members(groups: &ThreadGroups) -> Vec<Vec<u32>> {
    groups.groups.iter().map(|it| it.threads.clone()).collect()
}

/// Two pairs, and what all have in common a little.
fn two_pairs() -> SharingView {
    view(vec![
        line(1, 1, 3, 1e6),
        line(2, 2, 4, 8e5),
        line(3, 1, 2, 2e3),
        line(4, 3, 4, 2e3),
    ])
}

/// One sample of each thread on a CPU.
fn samples(cpus: &[(u32, u32)]) -> Vec<Sample> {
    let sample = |&(tid, cpu)| Sample {
        cpu: CpuId(cpu),
        ..sampled_rows::sample(tid, 0x40, 64)
    };
    cpus.iter().map(sample).collect()
}

#[test]
fn two_pairs_among_four_are_two_groups_with_their_part_of_what_the_lines_tell() {
    let groups = found(&tables(4), &two_pairs(), None);
    assert_eq!(members(&groups), [vec![1, 3], vec![2, 4]]);
    let first = &groups.groups[0];
    assert_eq!(
        (first.transfers, first.lines, first.hot_bytes),
        (1e6, 1, 64)
    );
    assert_eq!((first.interval.low, first.interval.high), (5e5, 2e6));
    // 50 ms of two threads' two seconds.
    assert!((first.cost - 0.025).abs() < 1e-9, "{}", first.cost);
    assert!((first.outside - 4e3).abs() < 1e-6);
    assert_eq!(groups.pairs.len(), 4);
}

#[test]
fn threads_that_take_turns_at_a_line_belong_together_and_those_that_only_read_do_not() {
    let touch = |operation| Touch {
        pid: Pid(1),
        ip: Address(0x40),
        address: Address(64),
        size: 8,
        operation,
        locked: false,
        goroutine: None,
    };
    let place = |tid, operation| Place {
        tid: Tid(tid),
        touch: touch(operation),
        weight: 5e8,
        samples: 50,
        traps: 5,
    };
    let turns = |number: u64, operation| TurnLine {
        pid: Pid(1),
        line: Address(number * 64),
        places: vec![
            place(1 + number as u32, operation),
            place(2 + number as u32, Operation::Load),
        ],
    };
    let sharing = SharingView {
        turns: vec![turns(0, Operation::Update), turns(2, Operation::Load)],
        ..SharingView::default()
    };
    let groups = found(&tables(4), &sharing, None);
    assert_eq!(members(&groups), [vec![1, 2]]);
    let group = &groups.groups[0];
    assert_eq!((group.transfers, group.cost), (0.0, 0.0));
    // In half a second of each, at half of the usual round trip.
    assert!((group.in_turns - 1e7).abs() < 1.0, "{}", group.in_turns);
    assert!(group.elsewhere[0].interval.high > 0.2);
}

#[test]
fn each_group_goes_below_a_cache_of_its_own_if_it_was_spread() {
    let machine = synthetic::epyc_of_eight_ccxs();
    let spread = Tables {
        samples: samples(&[(1, 0), (3, 8), (2, 16), (4, 24)]),
        ..tables(4)
    };
    let mut sharing = two_pairs();
    for (line, cpus) in sharing.lines.iter_mut().zip([(0, 8), (16, 24)]) {
        line.cpu_flows
            .insert((CpuId(cpus.0), CpuId(cpus.1)), (1.0, 0.0));
    }
    let groups = found(&spread, &sharing, Some(&machine));
    assert_eq!(groups.advice.verdict, PlacementVerdict::Move);
    let places: Vec<&GroupPlace> = groups
        .groups
        .iter()
        .filter_map(|it| it.place.as_ref())
        .collect();
    assert_eq!(places.len(), 2);
    assert_ne!(places[0].cpus, places[1].cpus);
    assert!(
        places
            .iter()
            .all(|it| it.distance == Distance::Llc && !it.is_there)
    );
    // Below one cache a way is 2.5 times shorter than where they ran.
    let first = &groups.groups[0];
    assert!((first.cost / first.elsewhere[0].cost - 2.5).abs() < 1e-6);
    assert!(!groups.latencies[1].measured);
}

#[test]
fn what_should_not_be_moved_is_said_with_its_reason() {
    use PlacementVerdict as It;
    let verdict = |tables: &Tables, sharing: &SharingView, machine: Option<&Topology>| {
        found(tables, sharing, machine).advice.verdict
    };
    let many = Tables {
        samples: samples(&[(1, 0); 200]),
        ..tables(1)
    };
    assert_eq!(
        verdict(&Tables::default(), &view(vec![]), None),
        It::TooLittleSeen
    );
    assert_eq!(verdict(&tables(1), &view(vec![]), None), It::TooLittleSeen);
    assert_eq!(verdict(&many, &view(vec![]), None), It::NothingShared);
    let one_llc = synthetic::virtual_machine_of_two();
    assert_eq!(
        verdict(&tables(4), &two_pairs(), Some(&one_llc)),
        It::OneLlc
    );
    assert_eq!(verdict(&tables(4), &two_pairs(), None), It::MachineUnknown);
    let machine = synthetic::epyc_of_eight_ccxs();
    let together = Tables {
        samples: samples(&[(1, 0), (3, 1), (2, 8), (4, 9)]),
        ..tables(4)
    };
    assert_eq!(
        verdict(&together, &two_pairs(), Some(&machine)),
        It::AlreadyThere
    );
    let ring = (1..=64)
        .map(|it| line(it.into(), it, it % 64 + 1, 1e6))
        .collect();
    assert_eq!(
        verdict(&tables(64), &view(ring), Some(&machine)),
        It::AllWithAll
    );
    let cheap = view(vec![line(1, 1, 2, 5e3)]);
    let apart = Tables {
        samples: samples(&[(1, 0), (2, 8)]),
        ..tables(2)
    };
    assert_eq!(verdict(&apart, &cheap, Some(&machine)), It::TooCheap);
}

#[test]
fn what_only_begins_and_ends_together_makes_no_group() {
    let groups = found(&tables(2), &view(vec![line(1, 1, 2, 999.0)]), None);
    assert_eq!(members(&groups), Vec::<Vec<u32>>::new());
    assert_eq!(groups.pairs.len(), 1);
}

#[test]
fn five_thousand_threads_are_grouped_and_none_is_lost() {
    let pairs = (1..=2_500).map(|it| line(it.into(), it, it + 2_500, 1e4));
    let groups = found(
        &tables(5_000),
        &view(pairs.collect()),
        Some(&synthetic::epyc_of_eight_ccxs()),
    );
    assert_eq!(groups.groups.len(), 2_500);
    assert_eq!(groups.threads.len(), 5_000);
    let placed = groups.groups.iter().filter(|it| it.place.is_some()).count();
    // They need more CPUs than there are, so each cache has its share of them: of 625 threads no half of a pair.
    assert_eq!(placed, 2_496);
    let mut below: BTreeMap<&str, usize> = BTreeMap::new();
    for place in groups.groups.iter().filter_map(|it| it.place.as_ref()) {
        *below.entry(place.cpus.as_str()).or_default() += 1;
    }
    assert_eq!(below.len(), 8, "{below:?}");
    assert!(below.values().all(|it| *it == 312), "{below:?}");
}

/// Two pairs on different caches of one machine: one costs much there, one next to nothing.
fn dear_and_cheap() -> (Tables, SharingView) {
    let spread = Tables {
        samples: samples(&[(1, 0), (3, 8), (2, 16), (4, 24)]),
        ..tables(4)
    };
    let mut sharing = view(vec![line(1, 1, 3, 1e6), line(2, 2, 4, 5e4)]);
    for (line, cpus) in sharing.lines.iter_mut().zip([(0, 8), (16, 24)]) {
        line.cpu_flows
            .insert((CpuId(cpus.0), CpuId(cpus.1)), (1.0, 0.0));
    }
    (spread, sharing)
}

#[test]
fn each_group_moves_for_its_own_gain() {
    let (spread, sharing) = dear_and_cheap();
    let machine = synthetic::epyc_of_eight_ccxs();
    let groups = found(&spread, &sharing, Some(&machine));
    assert_eq!(groups.advice.verdict, PlacementVerdict::Move);
    let [dear, cheap] = &groups.groups[..] else {
        panic!("{:?}", members(&groups));
    };
    // 2.5 % of its time, of which 0.4 are left below one cache; half and twice that by the interval of the line.
    assert_eq!(dear.verdict, PlacementVerdict::Move);
    assert!((dear.gain - 0.015).abs() < 1e-9, "{}", dear.gain);
    let Interval { low, high } = dear.gain_interval;
    assert!((low - 0.0075).abs() < 1e-9 && (high - 0.03).abs() < 1e-9);
    assert_eq!(cheap.verdict, PlacementVerdict::TooCheap);
    assert!((cheap.gain - 0.000_75).abs() < 1e-9, "{}", cheap.gain);
    assert!(cheap.place.is_some());
}

#[test]
fn pairs_that_have_to_share_cpus_are_placed_as_the_placer_does() {
    // A socket for each of two CPUs: two pairs need twice what there is.
    let mut machine = synthetic::two_sockets_of_ten();
    machine.cpus.retain(|cpu| cpu.id % 10 == 0);
    for cache in &mut machine.caches {
        cache.cpus = cache.cpus.iter().filter(|cpu| cpu % 10 == 0).collect();
    }
    machine.caches.retain(|cache| !cache.cpus.is_empty());
    let spread = Tables {
        samples: samples(&[(1, 0), (3, 10), (2, 0), (4, 10)]),
        ..tables(4)
    };
    let groups = found(&spread, &two_pairs(), Some(&machine));
    let places = groups.groups.iter().map(|it| it.place.as_ref());
    let cpus: Option<Vec<&str>> = places.map(|it| Some(it?.cpus.as_str())).collect();
    let mut cpus = cpus.unwrap();
    cpus.sort_unstable();
    assert_eq!(cpus, ["0", "10"]);
}
