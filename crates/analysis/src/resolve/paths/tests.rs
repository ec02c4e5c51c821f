use linewise_recording::Time;

use super::*;

/// What happens to an object on a path: place, instruction, thread.
type Script = &'static [(u64, u64, u32)];

/// Thread 1 makes it and thread 2 reads it; the instructions at 0x30 loop.
const HANDED: Script = &[
    (0, 0x10, 1),
    (8, 0x14, 1),
    (16, 0x30, 1),
    (16, 0x34, 1),
    (16, 0x30, 1),
    (16, 0x34, 1),
    (8, 0x40, 2),
    (0, 0x44, 2),
];
/// Thread 1 drops it after a last look.
const DROPPED: Script = &[
    (0, 0x10, 1),
    (8, 0x14, 1),
    (16, 0x30, 1),
    (16, 0x34, 1),
    (0, 0x50, 1),
];

/// Histories of all pairs of three places: of ten objects each, seven are handed over.
fn tables(cut: bool) -> Tables {
    let mut tables = Tables::default();
    let mut id = 0;
    for pair in [(0, 8), (0, 16), (8, 16)] {
        for object in 0..10 {
            id += 1;
            let script = if object < 7 { HANDED } else { DROPPED };
            // Every second of the longer ones is cut short by the end of its watch.
            let short = cut && object < 7 && object % 2 == 0;
            let freed_by = if object < 7 { Tid(2) } else { Tid(1) };
            tables.histories.push(History {
                id,
                pid: Pid(7),
                address: Address(0x1000),
                size: 24,
                label: String::new(),
                stack: StackId(3),
                allocated: Time(1000 + 100_000 * id),
                allocated_by: Tid(1),
                freed: (!short).then_some(Time(9000 + 100_000 * id)),
                freed_by: (!short).then_some(freed_by),
                offset: pair.0,
                other_offset: Some(pair.1),
                outcome: match short {
                    true => HistoryOutcome::Unfinished,
                    false => HistoryOutcome::Whole,
                },
            });
            for (index, &(offset, ip, tid)) in script.iter().enumerate() {
                if (offset == pair.0 || offset == pair.1) && !(short && index > 6) {
                    tables.history_accesses.push(HistoryAccess {
                        history: id,
                        time: Time(1000 + 100_000 * id + 100 * index as u64),
                        tid: Tid(tid),
                        cpu: CpuId(tid),
                        offset,
                        access_ip: Address(ip),
                        operation: Some(Operation::Load),
                    });
                }
            }
        }
    }
    tables
}

fn sequence(rows: &[PathStep], path: u64) -> Vec<(u64, u64, bool)> {
    let accessed = |row: &&PathStep| row.path == path && row.event == PathEvent::Accessed;
    rows.iter()
        .filter(accessed)
        .map(|row| (row.offset, row.ip.0, row.thread_change))
        .collect()
}

#[test]
fn pairs_of_places_become_paths_in_order_with_their_frequencies() {
    let rows = path_traces(&tables(false), &[]);
    let expected = [
        (0, 0x10, false),
        (8, 0x14, false),
        (16, 0x30, false),
        (16, 0x34, false),
        (8, 0x40, true),
        (0, 0x44, false),
    ];
    assert_eq!(sequence(&rows, 1), expected);
    assert_eq!(
        sequence(&rows, 2),
        [
            (0, 0x10, false),
            (8, 0x14, false),
            (16, 0x30, false),
            (16, 0x34, false),
            (0, 0x50, false)
        ]
    );
    let of = |path| rows.iter().find(|row| row.path == path).unwrap();
    assert!((of(1).frequency - 0.7).abs() < 1e-6, "{}", of(1).frequency);
    assert!((of(2).frequency - 0.3).abs() < 1e-6, "{}", of(2).frequency);
    assert_eq!((of(1).histories, of(2).histories), (21, 9));
    assert_eq!(rows.iter().map(|row| row.path).max(), Some(2));
    let looped = rows.iter().find(|row| row.path == 1 && row.ip.0 == 0x30);
    assert_eq!(looped.unwrap().times, 2.0);
    let last = rows.iter().rfind(|row| row.path == 1).unwrap();
    assert_eq!(
        (last.event, last.thread, last.thread_change),
        (PathEvent::Freed, 1, false)
    );
    let changed = rows
        .iter()
        .find(|row| row.path == 1 && row.ip.0 == 0x40)
        .unwrap();
    assert_eq!(changed.cpu_change, 1.0);
}

#[test]
fn histories_that_were_cut_short_count_for_the_paths_that_they_begin() {
    let rows = path_traces(&tables(true), &[]);
    // Without them it would be a half; those that saw the last thread are certain.
    let handed = rows.iter().find(|row| row.ip.0 == 0x40).unwrap();
    assert!(
        (handed.frequency - 0.7).abs() < 0.12,
        "{}",
        handed.frequency
    );
    assert_eq!(handed.histories, 9);
}

#[test]
fn what_nobody_saw_whole_has_no_path() {
    let mut tables = tables(false);
    for history in &mut tables.histories {
        history.outcome = HistoryOutcome::Hot;
    }
    assert_eq!(path_traces(&tables, &[]), []);
    assert_eq!(path_traces(&Tables::default(), &[]), []);
}

#[test]
fn loops_are_folded_and_their_rounds_counted() {
    let seen = |ip| Seen {
        token: Token {
            ip: Address(ip),
            thread: 0,
        },
        operation: None,
        time: 0,
        cpu_changed: false,
        times: 1,
    };
    let mut folded = Vec::new();
    for ip in [9, 1, 2, 1, 2, 1, 2, 5, 5, 5] {
        folded.push(seen(ip));
        fold(&mut folded);
    }
    let found: Vec<_> = folded.iter().map(|it| (it.token.ip.0, it.times)).collect();
    assert_eq!(found, [(9, 1), (1, 3), (2, 3), (5, 3)]);
}

/// Histories of three of six places at a time, as a watch of three places tells them. A life of way `w` touches place
/// `w` once more than the others do; of a hundred lives `shares` tells how many go each way.
fn of_ways(shares: &[u64], lives: u64) -> Tables {
    let mut tables = Tables::default();
    let mut seed = 12_345_u64;
    let mut random = move |below: u64| {
        // SplitMix64: neighbouring numbers of simpler generators go together.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    };
    for life in 0..lives {
        let (mut way, mut left) = (0, random(100));
        while left >= shares[way] {
            left -= shares[way];
            way += 1;
        }
        let mut places: Vec<u64> = (0..6).collect();
        while places.len() > 3 {
            places.remove(random(places.len() as u64) as usize);
        }
        let allocated = Time(1_000_000 * (life + 1));
        let row = |id, offset: u64, other: Option<u64>| History {
            id,
            pid: Pid(7),
            address: Address(0x1000),
            size: 48,
            label: String::new(),
            stack: StackId(3),
            allocated,
            allocated_by: Tid(1),
            freed: Some(Time(allocated.0 + 9_000)),
            freed_by: Some(Tid(1)),
            offset: 8 * offset,
            other_offset: other.map(|other| 8 * other),
            outcome: HistoryOutcome::Whole,
        };
        tables.histories.extend([
            row(2 * life, places[0], Some(places[1])),
            row(2 * life + 1, places[2], None),
        ]);
        for (index, &place) in places.iter().enumerate() {
            let special = (way as u64 == place).then_some(0x100 + place);
            for (nth, ip) in [Some(0x10 + place), special]
                .into_iter()
                .flatten()
                .enumerate()
            {
                tables.history_accesses.push(HistoryAccess {
                    history: 2 * life + index as u64 / 2,
                    time: Time(allocated.0 + 100 * (place + 1) + 1_000 * nth as u64),
                    tid: Tid(1),
                    cpu: CpuId(0),
                    offset: 8 * place,
                    access_ip: Address(ip),
                    operation: None,
                });
            }
        }
    }
    tables
}

#[test]
fn rare_paths_are_found_before_each_pair_has_seen_them_and_stay_apart() {
    // The rarest way is seen three times in so many lives, which is fewer than there are pairs with its place.
    let shares = [40, 25, 18, 10, 4, 3];
    let rows = path_traces(&of_ways(&shares, 200), &[]);
    let paths = rows.iter().map(|row| row.path).max().unwrap_or(0);
    let ways: Vec<Vec<u64>> = (1..=paths)
        .map(|path| {
            let of_path = rows.iter().filter(|row| row.path == path);
            let special = of_path.filter(|row| row.ip.0 >= 0x100);
            special.map(|row| row.ip.0 - 0x100).collect()
        })
        .collect();
    // Each path goes one way, and each way is gone.
    assert!(ways.iter().all(|ways| ways.len() == 1), "{ways:?}");
    let mut gone: Vec<u64> = ways.concat();
    gone.sort_unstable();
    assert_eq!(gone, [0, 1, 2, 3, 4, 5], "{ways:?}");
    for (way, share) in shares.iter().enumerate() {
        let path = ways.iter().position(|it| it[0] == way as u64).unwrap() as u64 + 1;
        let found = rows.iter().find(|row| row.path == path).unwrap().frequency;
        assert!(
            (found - *share as f64 / 100.0).abs() < 0.12,
            "way {way}: {found}"
        );
    }
}
