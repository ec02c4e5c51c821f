use super::super::exact_rows::{frame, info, pair, reuse as row, total};
use super::*;

fn view(rows: &[ReuseBin], pairs: &[ReusePairBin]) -> Option<Reuse> {
    reuse(&Input {
        info: &info(),
        reuse: rows,
        pairs,
        call_paths: &[call(0, None, 0x30), call(1, Some(0), 0x34)],
        caches: &[],
        frames: &[
            frame(0x10, "fill", 3),
            frame(0x20, "sum", 9),
            frame(0x24, "sum", 9),
            frame(0x30, "main", 20),
            frame(0x34, "each", 15),
        ],
    })
}

fn call(id: u32, caller: Option<u32>, ip: u64) -> CallPath {
    CallPath {
        id,
        pid: Pid(7),
        caller,
        call_ip: Address(ip),
    }
}

fn two_threads() -> Vec<ReuseBin> {
    vec![
        row(11, Touch::Reuse, 0, 1, 70.0),
        row(11, Touch::Reuse, 96, 100, 20.0),
        row(11, Touch::Cold, 0, 0, 5.0),
        row(12, Touch::Reuse, 0, 1, 30.0),
        row(12, Touch::Invalidated, 0, 0, 2.0),
    ]
}

#[test]
fn a_histogram_adds_up_its_threads_and_keeps_its_mass() {
    let reuse = view(&two_threads(), &[]).expect("rows");
    let all = &reuse.private;
    assert_eq!(
        all.bins[0],
        Bin {
            from: 0,
            to: 1,
            count: 100.0
        }
    );
    assert_eq!((all.cold, all.invalidated, all.accesses), (5.0, 2.0, 127.0));
    assert_eq!(all.reuses() + all.cold + all.invalidated, all.accesses);
    let threads: f64 = reuse.by_thread.values().map(|thread| thread.accesses).sum();
    assert_eq!(threads, all.accesses);
    assert_eq!(reuse.by_thread["12"].invalidated, 2.0);
    assert_eq!(reuse.shared, None);
}

#[test]
fn touches_without_a_distance_count_once_whichever_measures_were_recorded() {
    let mut rows = two_threads();
    let time = |row: &ReuseBin| ReuseBin {
        measure: Measure::Time,
        ..row.clone()
    };
    rows.extend(rows.clone().iter().map(time));
    let all = view(&rows, &[]).expect("rows").private;
    assert_eq!((all.cold, all.invalidated, all.accesses), (5.0, 2.0, 127.0));
    assert_eq!(all.time_bins, all.bins);
}

#[test]
fn what_another_thread_had_used_is_counted_in_shared_reuse() {
    let mut rows = two_threads();
    let of_shared = |row: &ReuseBin| ReuseBin {
        scope: ReuseScope::Shared,
        ..row.clone()
    };
    rows.extend(rows.clone().iter().map(of_shared));
    rows.push(ReuseBin {
        scope: ReuseScope::Shared,
        tid: None,
        ..row(0, Touch::OtherThread, 0, 1, 40.0)
    });
    let reuse = view(&rows, &[]).expect("rows");
    assert_eq!(reuse.private.accesses, 127.0);
    let shared = reuse.shared.expect("shared rows");
    assert_eq!((shared.accesses, shared.other_thread), (127.0, 40.0));
}

#[test]
fn who_comes_back_from_afar_is_named_first_and_by_function() {
    let pairs = [
        pair(0x10, 0x10, 0, 1, 9000.0),
        pair(0x10, 0x20, 2048, 4096, 100.0),
        // The same places in the source, and half of it fits into the first level.
        pair(0x10, 0x24, 32, 96, 10.0),
        ReusePairBin {
            pid: None,
            use_ip: None,
            reuse_ip: None,
            ..pair(0, 0, 8, 16, 33.0)
        },
    ];
    let reuse = view(&two_threads(), &pairs).expect("rows");
    assert_eq!(reuse.other_pairs, 33.0);
    let first = &reuse.pairs[0];
    assert_eq!(
        (first.use_place.function.as_str(), first.use_place.line),
        ("fill", 3)
    );
    assert_eq!(first.reuse_place.function, "sum");
    assert_eq!(first.touches.count, 110.0);
    let beyond: Vec<f64> = first
        .touches
        .beyond
        .iter()
        .map(|beyond| beyond.count)
        .collect();
    assert_eq!(beyond, [105.0, 100.0]);
    assert_eq!(reuse.by_function[0].function, "sum");
    assert_eq!(reuse.by_function[1].touches.count, 9000.0);
    assert_eq!(reuse.by_function[1].touches.beyond[0].count, 0.0);
}

#[test]
fn a_cache_of_exactly_the_distance_misses() {
    let all = view(&two_threads(), &[]).expect("rows").private;
    assert_eq!(all.reuses_from(0), 120.0);
    assert_eq!(all.reuses_from(64), 20.0);
    assert_eq!(all.reuses_from(96 * 64), 20.0);
    assert_eq!(all.reuses_from(98 * 64), 10.0);
    assert_eq!(all.reuses_from(100 * 64), 0.0);
}

#[test]
fn a_recording_without_rows_has_no_view() {
    assert_eq!(view(&[], &[]), None);
}

#[test]
fn a_line_that_the_sample_has_not_got_is_known_from_the_simulation() {
    let caches = [
        total(CacheLevel::L1d, [60.0, 20.0, 40.0]),
        total(CacheLevel::L2, [60.0, 3.0, 0.0]),
        CacheCounts {
            subject: CacheSubject::Thread,
            tid: Some(linewise_recording::Tid(12)),
            ..total(CacheLevel::L1d, [20.0, 0.0, 25.0])
        },
    ];
    let view = |reuse_rate| {
        let mut info = info();
        info.exact.as_mut().expect("an exact run").reuse_rate = reuse_rate;
        reuse(&Input {
            info: &info,
            reuse: &two_threads(),
            pairs: &[],
            call_paths: &[],
            caches: &caches,
            frames: &[],
        })
        .expect("rows")
    };
    let sampled = view(0.5);
    assert_eq!(
        (sampled.private.invalidated, sampled.private.accesses),
        (40.0, 127.0)
    );
    assert_eq!(sampled.private.bins[0].count, 62.0);
    assert_eq!(sampled.private.reuses() + 40.0 + 5.0, 127.0);
    assert_eq!(sampled.by_thread["12"].invalidated, 25.0);
    assert_eq!(sampled.by_thread["11"].invalidated, 0.0);
    assert_eq!(view(1.0).private.invalidated, 2.0);
}

#[test]
fn a_function_is_told_by_the_calls_that_led_to_it() {
    let called = |path, count| ReusePairBin {
        use_path: Some(0),
        reuse_path: path,
        ..pair(0x10, 0x20, 2048, 4096, count)
    };
    let pairs = [
        called(Some(1), 100.0),
        called(Some(0), 20.0),
        called(None, 3.0),
    ];
    let reuse = view(&two_threads(), &pairs).expect("rows");
    let paths: Vec<(Vec<&str>, f64)> = reuse
        .by_path
        .iter()
        .map(|path| {
            let calls = path.calls.iter().map(|call| call.function.as_str());
            (calls.collect(), path.touches.count)
        })
        .collect();
    assert_eq!(paths, [(vec!["each", "main"], 100.0), (vec!["main"], 20.0)]);
    assert_eq!(reuse.by_function[0].touches.count, 123.0);
    let [pair] = &reuse.pairs[..] else {
        panic!("one pair of places");
    };
    assert_eq!(pair.touches.count, 123.0);
    let counts: Vec<f64> = pair.paths.iter().map(|paths| paths.count).collect();
    assert_eq!(counts, [100.0, 20.0, 3.0]);
    assert_eq!(pair.paths[0].reuse_calls.len(), 2);
    assert_eq!(pair.paths[0].use_calls[0].line, 20);
}

#[test]
fn a_path_that_leads_back_to_itself_ends() {
    let rows = [ReusePairBin {
        reuse_path: Some(5),
        ..pair(0x10, 0x20, 2048, 4096, 1.0)
    }];
    let reuse = reuse(&Input {
        info: &info(),
        reuse: &two_threads(),
        pairs: &rows,
        call_paths: &[call(5, Some(5), 0x30)],
        caches: &[],
        frames: &[],
    });
    assert_eq!(reuse.expect("rows").by_path[0].calls.len(), MOST_CALLS);
}

#[test]
fn elements_stand_beside_lines() {
    let mut rows = two_threads();
    rows.push(ReuseBin {
        unit: Unit::Element,
        ..row(11, Touch::Reuse, 512, 528, 12.0)
    });
    let mut info = info();
    info.exact.as_mut().expect("an exact run").element_bytes = Some(8);
    let reuse = reuse(&Input {
        info: &info,
        reuse: &rows,
        pairs: &[],
        call_paths: &[],
        caches: &[],
        frames: &[],
    });
    let reuse = reuse.expect("rows");
    assert_eq!(reuse.private.accesses, 127.0);
    let elements = reuse.private_bytes.expect("rows of elements");
    assert_eq!((elements.unit_bytes, elements.accesses), (8, 12.0));
    assert_eq!(elements.reuses_from(4096), 12.0);
    assert_eq!(reuse.shared_bytes, None);
}
