//! Sampled distances against exact ones, and converted ones against measured ones.

use linewise_cache::reuse::{
    Choice, Chooser, Chosen, Grouping, Histogram, ReuseOptions, ReuseProfile, ReuseTracker,
    Sampling, stack_from_time,
};
use linewise_cache::{Access, Kind, MissRatioCurve, line_hash};
use proptest::prelude::*;

fn tracked(accesses: &[Access], grouping: Grouping, sampling: Sampling) -> ReuseProfile {
    let options = ReuseOptions {
        grouping,
        sampling,
        ..ReuseOptions::default()
    };
    let mut tracker = ReuseTracker::new(&options).expect("valid");
    for slice in accesses.chunks(1000) {
        tracker.record(slice);
    }
    tracker.profile()
}

/// `count` accesses to lines chosen by a function of the step and a random number.
fn stream(count: u64, line: impl Fn(u64, u64) -> u64) -> Vec<Access> {
    let access = |step: u64| {
        let random = line_hash(step + (1 << 50));
        Access {
            address: (1 << 40) + line(step, random) * 64,
            size: 8,
            kind: if random >> 60 == 0 {
                Kind::Store
            } else {
                Kind::Load
            },
            thread: (random >> 58 & 3) as u16,
            site: 0,
        }
    };
    (0..count).map(access).collect()
}

/// Line ranks with P(rank) falling as 1/rank.
fn zipf(random: u64, lines: u64) -> u64 {
    let share = (random >> 11) as f64 / (1u64 << 53) as f64;
    ((lines as f64).powf(share) as u64).min(lines - 1)
}

fn mixed(count: u64) -> Vec<Access> {
    stream(count, |step, random| match random & 3 {
        0 => 500_000 + step / 8 % 60_000,
        1 => 700_000 + (random >> 8) % 30_000,
        _ => line_hash(zipf(random, 200_000)) >> 40,
    })
}

const TOGETHER: fn() -> Grouping = || Grouping::Shared(vec![0; 4]);
const CHOICES: [Choice; 2] = [Choice::Hashed, Choice::Stratified];

#[test]
fn shards_converges_to_exact_as_the_share_grows() {
    let accesses = mixed(1_500_000);
    let exact = MissRatioCurve::new(
        &tracked(&accesses, TOGETHER(), Sampling::Exact).total.stack,
        64,
    );
    for choice in CHOICES {
        let error = |rate: f64| {
            let sampling = Sampling::FixedRate { rate, choice };
            let profile = tracked(&accesses, TOGETHER(), sampling);
            assert!((profile.total.stack.mass() - 1_500_000.0).abs() < 0.01);
            assert!((profile.total.time.mass() - 1_500_000.0).abs() < 0.01);
            let curve = MissRatioCurve::new(&profile.total.stack, 64);
            let sizes: Vec<u64> = (16..=26).map(|log| 1 << log).collect();
            let errors = sizes
                .iter()
                .map(|&bytes| (curve.at(bytes).ratio() - exact.at(bytes).ratio()).abs());
            errors.sum::<f64>() / sizes.len() as f64
        };
        let errors: Vec<f64> = [1.0 / 64.0, 1.0 / 8.0, 1.0].map(error).to_vec();
        println!("{choice:?}: mean absolute error of the miss ratio {errors:?}");
        assert!(errors[0] < 0.02, "{choice:?} {errors:?}");
        assert!(errors[1] < 0.01, "{choice:?} {errors:?}");
        assert!(errors[2] < 1e-9, "{choice:?} {errors:?}");
    }
}

#[test]
fn the_standard_error_holds_the_truth_and_is_none_when_exact() {
    let accesses = mixed(1_000_000);
    let exact = tracked(&accesses, TOGETHER(), Sampling::Exact);
    assert_eq!(exact.miss_ratio_error(1000), None);
    let truth = MissRatioCurve::new(&exact.total.stack, 64);
    for choice in CHOICES {
        let sampling = Sampling::FixedRate {
            rate: 1.0 / 32.0,
            choice,
        };
        let profile = tracked(&accesses, TOGETHER(), sampling);
        let curve = MissRatioCurve::new(&profile.total.stack, 64);
        for lines in [4_000u64, 16_000, 64_000, 128_000] {
            let error = profile.miss_ratio_error(lines).expect("sampled");
            let difference = (curve.at(lines * 64).ratio() - truth.at(lines * 64).ratio()).abs();
            println!("{choice:?} {lines} lines: off by {difference:.4}, standard error {error:.4}");
            assert!(error > 0.0 && error < 0.1);
            assert!(
                difference < 4.0 * error + 0.005,
                "{lines}: {difference} against {error}"
            );
        }
    }
}

#[test]
fn fixed_size_stays_near_exact_after_its_share_was_lowered() {
    let accesses = mixed(1_500_000);
    let exact = MissRatioCurve::new(
        &tracked(&accesses, TOGETHER(), Sampling::Exact).total.stack,
        64,
    );
    for choice in CHOICES {
        let sampling = Sampling::FixedSize {
            entries: 8_192,
            rate: 1.0,
            choice,
        };
        let profile = tracked(&accesses, TOGETHER(), sampling);
        assert!(profile.entries <= 8_192);
        assert!(profile.rate < 0.1, "{}", profile.rate);
        assert!((profile.total.stack.mass() - 1_500_000.0).abs() < 0.01);
        let curve = MissRatioCurve::new(&profile.total.stack, 64);
        for log in 18..=25 {
            let difference = (curve.at(1 << log).ratio() - exact.at(1 << log).ratio()).abs();
            assert!(difference < 0.04, "{choice:?} 2^{log} bytes: {difference}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn fixed_size_is_fixed_rate_while_it_is_not_full(
        seed in 0u64..1000,
        lines in 100u64..8000,
        share in 1u32..=8,
        stratified: bool,
    ) {
        let choice = CHOICES[usize::from(stratified)];
        let rate = 1.0 / f64::from(share);
        let accesses = stream(5_000, |_, random| line_hash(random ^ seed) % lines);
        let fixed_rate = tracked(&accesses, Grouping::Private, Sampling::FixedRate { rate, choice });
        let sampling = Sampling::FixedSize { entries: 100_000, rate, choice };
        prop_assert_eq!(&fixed_rate, &tracked(&accesses, Grouping::Private, sampling));
        if share == 1 {
            let exact = tracked(&accesses, Grouping::Private, Sampling::Exact);
            prop_assert_eq!(exact.total, fixed_rate.total);
        }
    }

    /// Whatever is evicted, and by however many groups it was used, the rest stays consistent.
    #[test]
    fn fixed_size_never_holds_more_than_it_may(
        seed in 0u64..1000,
        lines in 500u64..20_000,
        stratified: bool,
    ) {
        let choice = CHOICES[usize::from(stratified)];
        let accesses = stream(30_000, |_, random| line_hash(random ^ seed) % lines);
        let sampling = Sampling::FixedSize { entries: 1024, rate: 1.0, choice };
        let options = ReuseOptions { sampling, ..ReuseOptions::default() };
        let mut tracker = ReuseTracker::new(&options).expect("valid");
        for slice in accesses.chunks(100) {
            tracker.record(slice);
            prop_assert!(tracker.entries() <= 1024);
        }
        let profile = tracker.profile();
        prop_assert!((profile.total.stack.mass() - 30_000.0).abs() < 1e-3);
        for thread in &profile.by_thread {
            prop_assert!((thread.stack.mass() - thread.accesses()).abs() < 1e-3);
        }
    }
}

/// One thread's time distances, converted, against its stack distances.
#[track_caller]
fn converted(name: &str, line: impl Fn(u64, u64) -> u64, accuracy: f64, miss_ratio: f64) {
    let mut accesses = stream(1_000_000, line);
    for access in &mut accesses {
        access.thread = 0;
    }
    let distances = tracked(&accesses, Grouping::Private, Sampling::Exact).total;
    let units = distances.time.cold as u64;
    let stack = stack_from_time(&distances.time, units);
    assert!(
        (stack.mass() - 1_000_000.0).abs() < 0.5,
        "{name}: mass {}",
        stack.mass()
    );
    let s = distances.stack.accuracy_by_octave(&stack);
    let worst = (6..=24)
        .map(|log| {
            let at =
                |histogram: &Histogram| MissRatioCurve::new(histogram, 64).at(1 << log).ratio();
            (at(&stack) - at(&distances.stack)).abs()
        })
        .fold(0.0, f64::max);
    println!("{name}: S {s:.3}, worst error of the miss ratio {worst:.4}");
    assert!(s >= accuracy, "{name}: S {s}");
    assert!(worst <= miss_ratio, "{name}: miss ratio off by {worst}");
}

#[test]
fn time_distances_become_stack_distances_on_random_cyclic_and_mixed_patterns() {
    converted("random", |_, random| random % 5_000, 0.97, 0.02);
    converted("cyclic", |step, _| step % 5_000, 0.999, 0.001);
    converted("one line", |_, _| 0, 0.999, 0.001);
    converted("zipf", |_, random| zipf(random, 50_000), 0.95, 0.03);
    converted(
        "mixed",
        |step, random| match random & 3 {
            0 => 100_000 + step / 4 % 3_000,
            1 => 200_000 + (random >> 8) % 8_000,
            _ => zipf(random, 20_000),
        },
        0.93,
        0.05,
    );
}

#[test]
fn trackers_for_whom_accesses_were_chosen_measure_what_those_measure_that_choose() {
    let mut accesses = mixed(60_000);
    // Some reach into the next line.
    for (step, access) in accesses.iter_mut().enumerate() {
        access.address += line_hash(step as u64) % 64;
    }
    let several = Grouping::Shared(vec![1, 0, 1, 2]);
    for choice in CHOICES {
        for grouping in [Grouping::Private, TOGETHER(), several.clone()] {
            let tracker = |granularity_bytes, sampling| {
                ReuseTracker::new(&ReuseOptions {
                    granularity_bytes,
                    grouping: grouping.clone(),
                    sampling,
                    ..ReuseOptions::default()
                })
                .expect("valid")
            };
            let rate = 1.0 / 16.0;
            let lines = tracker(64, Sampling::FixedRate { rate, choice });
            let pairs = tracker(
                128,
                Sampling::FixedSize {
                    entries: 1024,
                    rate,
                    choice,
                },
            );
            let mut chooser = Chooser::new(&[&lines, &pairs]).expect("they follow a share");
            let mut chosen = Chosen::default();
            for tracker in [lines, pairs] {
                let (mut choosing, mut told) = (tracker.clone(), tracker);
                let mut looked_at = 0;
                for slice in accesses.chunks(1000) {
                    choosing.record(slice);
                    chosen.note(slice.iter().map(|access| {
                        let chosen = chooser.chooses(access.address, access.size);
                        looked_at += u32::from(chosen);
                        (access.thread, 1, chosen)
                    }));
                    told.record_chosen(slice, &chosen);
                }
                assert_eq!(choosing.profile(), told.profile());
                assert!(
                    (7_000..25_000).contains(&looked_at),
                    "{looked_at} of 60,000"
                );
            }
        }
    }
}

#[test]
fn nothing_is_chosen_for_trackers_of_which_one_follows_everything() {
    let exact = ReuseTracker::new(&ReuseOptions::default()).expect("valid");
    assert!(Chooser::new(&[&exact]).is_none());
    assert!(Chooser::new(&[]).is_none());
}
