//! The view on invented transfers with a known answer.

use super::*;
use linewise_recording::{CacheLevel, CpuId, ExactRun, Time};

const LINE: Address = Address(0x1000);
const IPS: [Address; 2] = [Address(0x40_0001), Address(0x40_0002)];
const LOW: u64 = 0xff;
const HIGH: u64 = 0xff00;

fn info() -> RunInfo {
    serde_json::from_value(serde_json::json!({
        "format_version": 1, "linewise_version": "", "complete": true, "command": [], "pid": 1,
        "launched": true, "source": "exact", "source_reason": "", "start": 0, "end": 1_000_000,
        "ended_by": "target-exited", "exit_code": 0, "exit_signal": null, "line_size": 64,
        "cpus": 2, "watchpoint_bytes": 0, "cpu_model": "", "hypervisor": "", "kernel": "",
        "skid_rule": "", "overhead": linewise_recording::Overhead::default(),
        "exact": ExactRun { accesses: 1e6, followed: 1_000_000, ..ExactRun::default() },
    }))
    .unwrap()
}

fn latency(idle_ns: f64, saturated_ns: f64) -> Latency {
    Latency {
        time: Time(0),
        cpu_a: CpuId(0),
        cpu_b: CpuId(1),
        round_trip_ns: 2.0 * idle_ns,
        transfer_idle_ns: idle_ns,
        transfer_busy_ns: idle_ns,
        busy_share: 0.5,
        transfer_crowded_ns: saturated_ns,
        crowded_share: 0.9,
        transfer_saturated_ns: saturated_ns,
        hit_ns: 5.0,
    }
}

/// Transfers of the line to a thread (1 or 2) from the other.
fn moved(to: u32, sharing: Sharing, count: f64) -> TransferCount {
    let (to, from) = (to as usize, 3 - to as usize);
    let bytes = |thread: usize| if thread == 1 { LOW } else { HIGH };
    TransferCount {
        pid: Some(Pid(1)),
        line: Some(LINE),
        from_tid: Some(Tid(from as u32)),
        to_tid: Some(Tid(to as u32)),
        from_ip: Some(IPS[from - 1]),
        from_operation: None,
        to_ip: Some(IPS[to - 1]),
        to_operation: None,
        from_bytes: bytes(from),
        to_bytes: bytes(to),
        from_block: None,
        to_block: None,
        sharing,
        count,
    }
}

fn of_caches(ip: Address, loads: f64, stores: f64) -> CacheCounts {
    CacheCounts {
        level: CacheLevel::L1d,
        subject: CacheSubject::Instruction,
        cache: None,
        tid: None,
        pid: Some(Pid(1)),
        ip: Some(ip),
        loads,
        stores,
        updates: 0.0,
        hits: loads + stores,
        compulsory: 0.0,
        capacity: 0.0,
        conflict: 0.0,
        true_sharing: 0.0,
        false_sharing: 0.0,
        from_l2: 0.0,
        from_llc: 0.0,
        from_peer: 0.0,
        from_other_group: 0.0,
        from_other_socket: 0.0,
        from_local_dram: 0.0,
        from_remote_dram: 0.0,
        upgrades: 0.0,
    }
}

fn view(transfers: &[TransferCount], latencies: &[Latency]) -> (SharingView, ThreadTime) {
    exact(&ExactInput {
        info: &info(),
        transfers,
        caches: &[of_caches(IPS[0], 9.0, 0.0), of_caches(IPS[1], 0.0, 9.0)],
        latencies,
    })
}

fn fight() -> Vec<TransferCount> {
    vec![
        moved(1, Sharing::False, 40_000.0),
        moved(2, Sharing::False, 30_000.0),
        moved(2, Sharing::True, 10_000.0),
    ]
}

#[test]
fn transfers_are_counted_and_cost_what_one_takes_in_any_state_of_the_machine() {
    let (view, _) = view(&fight(), &[latency(105.0, 205.0), latency(55.0, 65.0)]);
    let [line] = &view.lines[..] else {
        panic!("{} lines", view.lines.len())
    };
    assert_eq!(line.transfers, Estimate::exactly(80_000.0));
    assert_eq!(
        (line.true_transfers(), line.false_transfers()),
        (10_000.0, 70_000.0)
    );
    // The median of the transfers is 75 ns, the cheapest 50, the dearest 200.
    assert_eq!(
        line.cost_ns,
        Estimate {
            value: 6e6,
            low: 4e6,
            high: 16e6
        }
    );
    assert_eq!(line.basis, Basis::Traced);
    assert!(!view.no_latency);
}

#[test]
fn both_sides_are_places_with_what_they_do_and_where_on_the_line() {
    let (view, _) = view(&fight(), &[latency(105.0, 205.0)]);
    let places: Vec<_> = view.lines[0]
        .places
        .iter()
        .map(|place| {
            let touch = &place.touch;
            (
                place.tid.0,
                touch.address.0,
                touch.size,
                touch.operation,
                place.weight,
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            (1, 0x1000, 8, Operation::Load, 40_000.0),
            (2, 0x1008, 8, Operation::Store, 40_000.0),
        ]
    );
}

#[test]
fn a_cost_is_a_share_of_the_accesses_and_the_costs_together() {
    let (view, time) = view(&fight(), &[latency(105.0, 205.0)]);
    // 8 ms lost beside a million accesses of 1 ns.
    let share = time.share(view.lines[0].cost_ns);
    assert!((share.value - 8.0 / 9.0).abs() < 1e-9, "{share:?}");
    assert!(
        share.low < share.value && share.high > share.value,
        "{share:?}"
    );
}

#[test]
fn transfers_without_a_line_are_summed_and_cost_time() {
    let mut rows = fight();
    rows.push(TransferCount {
        pid: None,
        line: None,
        from_tid: None,
        to_tid: None,
        from_ip: None,
        to_ip: None,
        ..moved(1, Sharing::True, 500.0)
    });
    let (view, time) = view(&rows, &[latency(105.0, 205.0)]);
    assert_eq!(view.lines.len(), 1);
    assert_eq!(
        (view.others.true_sharing, view.others.false_sharing),
        (500.0, 0.0)
    );
    let ThreadTime::Modelled { lost, .. } = time else {
        panic!("{time:?}")
    };
    assert_eq!(lost.value, 8e6 + 500.0 * 100.0);
}

#[test]
fn without_a_latency_the_price_is_an_assumed_one_and_that_is_told() {
    let (view, _) = view(&fight(), &[]);
    assert!(view.no_latency);
    let cost = view.lines[0].cost_ns;
    assert!(cost.low < cost.value && cost.value < cost.high, "{cost:?}");
}
