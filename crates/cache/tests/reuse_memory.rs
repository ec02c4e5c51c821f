//! How much is remembered of each line, by capacity.

use linewise_cache::reuse::{Choice, Grouping, ReuseOptions, ReuseTracker, Sampling};
use linewise_cache::{Access, Kind};

/// One load of each line of a range.
fn loads(lines: std::ops::Range<u64>, thread: u16) -> Vec<Access> {
    let load = |line| Access {
        address: line * 64,
        size: 8,
        kind: Kind::Load,
        thread,
        site: 0,
    };
    lines.map(load).collect()
}

#[test]
fn exact_distances_take_at_most_48_bytes_a_line_at_every_footprint() {
    let mut tracker = ReuseTracker::new(&ReuseOptions::default()).expect("valid");
    let step = 5_000;
    let mut worst = 0.0f64;
    for start in (0..1_500_000u64).step_by(step as usize) {
        tracker.record(&loads(start..start + step, 0));
        // Back again, so that the order is packed at its usual size.
        tracker.record(&loads(start / 2..start / 2 + step, 0));
        if tracker.entries() >= 20_000 {
            worst = worst.max(tracker.footprint_bytes() as f64 / tracker.entries() as f64);
        }
    }
    assert_eq!(tracker.entries(), 1_500_000);
    assert!(worst <= 48.0, "{worst} bytes a line");
    assert!(
        worst > 28.0,
        "{worst} bytes a line is less than an entry has"
    );
}

#[test]
fn lines_shared_by_several_threads_take_as_much_for_each() {
    let mut tracker = ReuseTracker::new(&ReuseOptions::default()).expect("valid");
    for thread in 0..8 {
        for start in (0..100_000).step_by(10_000) {
            tracker.record(&loads(start..start + 10_000, thread));
        }
    }
    assert_eq!(tracker.entries(), 800_000);
    let bytes = tracker.footprint_bytes() as f64 / 800_000.0;
    assert!(bytes <= 48.0, "{bytes} bytes for a line and thread");
}

#[test]
fn fixed_size_sampling_stays_within_64_mb_whatever_the_footprint() {
    for choice in [Choice::Hashed, Choice::Stratified] {
        let Sampling::FixedSize { entries, rate, .. } = Sampling::bounded() else {
            panic!("bounded sampling has a fixed size");
        };
        for threads in [1, 8] {
            let options = ReuseOptions {
                grouping: Grouping::Private,
                sampling: Sampling::FixedSize {
                    entries,
                    rate,
                    choice,
                },
                ..ReuseOptions::default()
            };
            let mut tracker = ReuseTracker::new(&options).expect("valid");
            let mut worst = 0;
            for start in (0..6_000_000u64).step_by(50_000) {
                let thread = (start / 50_000 % threads) as u16;
                tracker.record(&loads(start..start + 50_000, thread));
                worst = worst.max(tracker.memory_bytes());
                assert!(tracker.entries() <= entries);
            }
            assert!(worst <= 64 << 20, "{worst} bytes");
            assert!(tracker.rate() < 0.2, "the threshold was never lowered");
            assert!(tracker.entries() > entries / 2);
        }
    }
}
