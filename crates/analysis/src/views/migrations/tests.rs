//! Invented stays, and what is shown of them.

use linewise_recording::{Address, CpuId, Pid};

use super::*;

const MS: u64 = 1_000_000;

fn stay(tid: u32, cpu: u32, start_ms: u64, length_ms: u64) -> Switch {
    Switch {
        tid: Tid(tid),
        cpu: CpuId(cpu),
        start: Time(start_ms * MS),
        end: Time((start_ms + length_ms) * MS),
    }
}

fn thread(tid: u32, name: &str) -> Thread {
    Thread {
        pid: Pid(1),
        tid: Tid(tid),
        name: name.to_owned(),
        start: Time(0),
        end: Time(9_000 * MS),
        cpu_time_ns: 0,
        stack_low: Address(0),
        stack_high: Address(0),
    }
}

/// Each goes from CPU to CPU every ten milliseconds.
fn wandering(threads: u32, cpus: u32) -> Vec<Switch> {
    let stays = |tid| (0..100).map(move |i| stay(tid, (tid + i as u32) % cpus, 10 * i, 10));
    (0..threads).flat_map(stays).collect()
}

#[test]
fn a_move_is_to_go_on_on_another_cpu() {
    let mut stays = vec![
        stay(7, 2, 30, 10),
        stay(7, 1, 0, 10),
        stay(7, 1, 10, 10),
        stay(7, 3, 50, 20),
        stay(7, 1, 40, 5),
    ];
    stays.push(stay(8, 5, 0, 30));
    let found = migrations(&stays, &[thread(7, "wanderer")]).unwrap();
    assert_eq!((found.moves, found.threads.len()), (3, 1));
    let row = &found.threads[0];
    assert_eq!((row.name.as_str(), row.cpus, row.moves), ("wanderer", 3, 3));
    let pair = |a, b, moves| CpuPair { a, b, moves };
    assert_eq!(row.between, [pair(1, 2, 2), pair(1, 3, 1)]);
    assert_eq!(row.recorded_ns, 55 * MS);
    assert_eq!(row.longest_cpu, 1);
    assert!((row.per_second - 3.0 / 0.07).abs() < 1e-6);
    assert!(!found.crowded);
    assert_eq!(found.section(), None, "three moves are no habit");
}

#[test]
fn threads_that_stay_say_nothing() {
    assert_eq!(migrations(&[], &[]), None);
    let stays = [stay(1, 0, 0, 900), stay(2, 1, 0, 900), stay(1, 0, 950, 10)];
    assert_eq!(migrations(&stays, &[]), None);
}

#[test]
fn threads_that_move_rarely_are_counted_and_not_shown() {
    let stays: Vec<Switch> = (0..30)
        .map(|i| stay(1, i as u32 % 2, 1_000 * i, 1_000))
        .collect();
    let found = migrations(&stays, &[]).unwrap();
    assert_eq!(found.moves, 29);
    assert_eq!(found.section(), None);
}

#[test]
fn moves_between_what_was_recorded_part_of_the_time_are_no_habit() {
    // A millisecond of each tenth of a second, on another CPU each time.
    let stays: Vec<Switch> = (0..60).map(|i| stay(1, i as u32 % 4, 100 * i, 1)).collect();
    let found = migrations(&stays, &[]).unwrap();
    assert_eq!(found.moves, 59);
    assert!(found.per_second < 10.0);
    assert_eq!(found.section(), None);
}

#[test]
fn threads_that_move_often_are_shown_with_what_to_do() {
    let found = migrations(&wandering(3, 4), &[thread(0, "a")]).unwrap();
    assert_eq!(found.moves, 3 * 99);
    let section = found.section().expect("99 moves a second");
    assert_eq!(section.table.expect("rows").rows.len(), 3);
    assert!(section.notes[0].contains("sched_setaffinity"));
    assert!(!found.crowded);
}

#[test]
fn threads_crowd_on_a_cpu_where_others_have_room() {
    let mut stays: Vec<Switch> = (0..4)
        .map(|i| stay(i, 3, 100 * u64::from(i), 100))
        .collect();
    let even: Vec<Switch> = (0..4).map(|i| stay(i, i, 0, 100)).collect();
    assert_eq!(migrations(&even, &[]), None);
    // All on the only one: another note says that.
    assert_eq!(migrations(&stays, &[]), None);
    stays.push(stay(4, 1, 0, 40));
    let found = migrations(&stays, &[]).unwrap();
    assert!(found.crowded);
    assert_eq!((found.busiest_cpu, found.threads_there), (3, 4));
    let section = found.section().expect("a crowd");
    assert_eq!(section.table, None, "nobody moved");
    assert!(section.notes[0].contains("crowd"));
}

#[test]
fn of_hundreds_of_threads_those_that_hardly_move_are_one_row() {
    let mut stays = wandering(5, 4);
    for tid in 1_000..1_400 {
        // One move each, of 896.
        stays.extend([stay(tid, 0, 0, 1), stay(tid, 1, 1, 1)]);
    }
    let often = wandering(300, 4);
    stays.extend(often.into_iter().map(|it| Switch {
        tid: Tid(it.tid.0 + 10_000),
        ..it
    }));
    let found = migrations(&stays, &[]).unwrap();
    assert_eq!(found.threads.len(), 705, "the JSON has them all");
    let table = found.section().and_then(|it| it.table).expect("rows");
    let (shown, rest) = table.bounded(usize::MAX);
    let rest = rest.expect("a row of the others");
    assert_eq!(shown.len(), 305);
    assert_eq!(rest.cells[0], Cell::text("and 400 more"));
    assert_eq!(rest.cells[2], Cell::Count(400.0));
    assert_eq!(rest.cells[3], Cell::Empty, "rates have no sum");
}
