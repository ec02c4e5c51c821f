//! The exact tracker against the definitions.

mod reuse_oracle;

use linewise_cache::reuse::{
    Attribution, Grouping, Histogram, Outcome, ReuseOptions, ReuseProfile, ReuseTracker,
};
use linewise_cache::{Access, Kind};
use proptest::prelude::*;
use reuse_oracle::{access, outcomes};

fn options(granularity_bytes: u32, grouping: Grouping) -> ReuseOptions {
    ReuseOptions {
        granularity_bytes,
        grouping,
        attribution: Attribution {
            sites: true,
            pairs: 1000,
        },
        ..ReuseOptions::default()
    }
}

/// What the tracker says, in slices of the given length.
fn tracked(
    options: &ReuseOptions,
    accesses: &[Access],
    slice: usize,
) -> (Vec<Outcome>, ReuseProfile) {
    let mut tracker = ReuseTracker::new(options).expect("the options are valid");
    let mut seen = Vec::new();
    for slice in accesses.chunks(slice) {
        tracker.record_each(slice, |touch| seen.push(touch.outcome));
    }
    (seen, tracker.profile())
}

/// A stream over few addresses, so that everything meets; some accesses reach over several units.
fn streams(addresses: u64, threads: u16, length: usize) -> impl Strategy<Value = Vec<Access>> {
    let kind = prop_oneof![3 => Just(Kind::Load), 1 => Just(Kind::Store), 1 => Just(Kind::Update)];
    let size = prop_oneof![4 => 1u16..=8, 1 => 9u16..200];
    let one = (0..threads, 0..addresses, size, kind, 0u32..5)
        .prop_map(|(thread, address, size, kind, site)| access(thread, address, size, kind, site));
    prop::collection::vec(one, 1..length)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn private_reuse_is_as_defined(
        accesses in streams(1500, 4, 250),
        granularity in 0u32..=8,
        slice in 1usize..300,
    ) {
        let granularity = 1u32 << granularity;
        let expected = outcomes(&accesses, u64::from(granularity), &|thread| u32::from(thread));
        let (seen, _) = tracked(&options(granularity, Grouping::Private), &accesses, slice);
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn reuse_behind_shared_caches_is_as_defined(
        accesses in streams(2000, 6, 250),
        caches in prop::collection::vec(0u16..3, 0..=6),
        slice in 1usize..300,
    ) {
        let group_of = |thread: u16| match caches.get(usize::from(thread)) {
            Some(&cache) => u32::from(cache),
            None => 1000 + u32::from(thread),
        };
        let expected = outcomes(&accesses, 64, &group_of);
        let (seen, profile) = tracked(&options(64, Grouping::Shared(caches.clone())), &accesses, slice);
        prop_assert_eq!(&seen, &expected);
        let other_thread = expected
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Reuse { same_thread: false, .. }))
            .count();
        prop_assert_eq!(profile.other_thread.stack.reuses(), other_thread as f64);
    }

    #[test]
    fn one_thread_behind_each_cache_is_private(accesses in streams(2000, 5, 300)) {
        let (private, in_private) = tracked(&options(64, Grouping::Private), &accesses, 50);
        let caches = Grouping::Shared(vec![4, 3, 2, 1, 0]);
        let (shared, in_shared) = tracked(&options(64, caches), &accesses, 50);
        prop_assert_eq!(private, shared);
        prop_assert_eq!(in_private.total, in_shared.total);
        prop_assert_eq!(in_shared.other_thread.accesses(), 0.0);
    }

    #[test]
    fn every_part_has_the_mass_of_its_touches(accesses in streams(3000, 4, 300), log in 0u32..=12) {
        let granularity = 1u64 << log;
        let touches = |access: &Access| {
            (access.address + u64::from(access.size) - 1) / granularity - access.address / granularity + 1
        };
        let all: u64 = accesses.iter().map(touches).sum();
        let (_, profile) = tracked(&options(1 << log, Grouping::Private), &accesses, 64);
        let whole = |histogram: &Histogram| histogram.mass() == histogram.accesses;
        for part in [&profile.total.time, &profile.total.stack] {
            prop_assert_eq!(part.accesses, all as f64);
            prop_assert!(whole(part));
        }
        for (thread, part) in profile.by_thread.iter().enumerate() {
            let its: u64 = accesses.iter().filter(|access| usize::from(access.thread) == thread).map(touches).sum();
            prop_assert_eq!(part.accesses(), its as f64);
            prop_assert!(whole(&part.time) && whole(&part.stack));
        }
        let sites: f64 = profile.by_site.iter().map(|site| site.distances.stack.mass()).sum();
        prop_assert_eq!(sites, all as f64);
        let pairs: f64 = profile.by_pair.iter().map(|pair| pair.distances.stack.mass()).sum();
        prop_assert_eq!(pairs + profile.other_pairs.accesses() + profile.total.stack.cold, all as f64);
        let caches: f64 = profile.by_cache.iter().map(|cache| cache.distances.time.mass()).sum();
        prop_assert_eq!(caches, all as f64);
        prop_assert_eq!(profile.adjusted, 0.0);
    }

    #[test]
    fn a_bound_on_pairs_loses_none(accesses in streams(3000, 3, 400), bound in 1usize..6) {
        let mut limited = options(64, Grouping::Private);
        limited.attribution.pairs = bound;
        let (_, all) = tracked(&options(64, Grouping::Private), &accesses, 64);
        let (_, some) = tracked(&limited, &accesses, 64);
        prop_assert!(some.by_pair.len() <= bound);
        let sum = |profile: &ReuseProfile| {
            let mut sum = profile.other_pairs.clone();
            for pair in &profile.by_pair {
                sum.merge(&pair.distances);
            }
            sum
        };
        prop_assert_eq!(sum(&all), sum(&some));
        // No more pairs than are followed: then the shown ones are the greatest, and complete.
        if all.by_pair.len() <= 4 * bound {
            let shown = bound.min(all.by_pair.len());
            prop_assert_eq!(&all.by_pair[..shown], &some.by_pair[..]);
        }
    }
}

/// Table 6.2 and table 6.3: every order of two accesses, on the same core, on another of the same
/// cache, and behind another cache; then the first one's thread comes back.
#[test]
fn pairs_of_accesses_are_classified_as_in_the_tables() {
    let shared = Grouping::Shared(vec![0, 0, 1]);
    for first in [Kind::Load, Kind::Store] {
        for second in [Kind::Load, Kind::Store] {
            let pair = |thread| [access(0, 8, 8, first, 0), access(thread, 8, 8, second, 1)];
            let last = |grouping: &Grouping, thread, back| {
                let mut accesses = pair(thread).to_vec();
                if back {
                    accesses.push(access(0, 8, 8, Kind::Load, 2));
                }
                let (seen, _) = tracked(&options(64, grouping.clone()), &accesses, 8);
                seen[seen.len() - 1]
            };
            let reuse = |outcome| matches!(outcome, Outcome::Reuse { .. });
            let of_same = |outcome| {
                matches!(
                    outcome,
                    Outcome::Reuse {
                        same_thread: true,
                        ..
                    }
                )
            };
            let writes = second == Kind::Store;

            assert!(of_same(last(&Grouping::Private, 0, false)));
            assert_eq!(last(&Grouping::Private, 1, false), Outcome::Cold);
            assert_eq!(reuse(last(&Grouping::Private, 1, true)), !writes);

            assert!(of_same(last(&shared, 0, false)));
            let across = last(&shared, 1, false);
            assert!(reuse(across) && !of_same(across));
            assert_eq!(last(&shared, 2, false), Outcome::Cold);
            assert_eq!(reuse(last(&shared, 2, true)), !writes);
        }
    }
}

/// The examples of sections 6 and 6.2.1.
#[test]
fn the_examples_of_the_definition_come_out() {
    let stream = |names: &str| -> Vec<Access> {
        let line = |name: char| access(0, u64::from(u32::from(name)) * 64, 8, Kind::Load, 0);
        names.chars().map(line).collect()
    };
    let last = |names| {
        *tracked(&options(64, Grouping::Private), &stream(names), 64)
            .0
            .last()
            .expect("not empty")
    };
    let distances = |outcome| match outcome {
        Outcome::Reuse { time, stack, .. } => (time, stack),
        other => panic!("{other:?} is no reuse"),
    };
    assert_eq!(distances(last("abcbda")), (4, 3));
    assert_eq!(distances(last("abcbdda")), (5, 3));
    assert_eq!(distances(last("aa")), (0, 0));
}

/// Long streams cross every level of the order of recency and pack it many times.
#[test]
fn long_streams_of_known_distance_stay_exact_through_packing() {
    let lines = 150_000u64;
    let mut tracker = ReuseTracker::new(&options(64, Grouping::Private)).expect("valid");
    for round in 0..6 {
        let slice: Vec<Access> = (0..lines)
            .flat_map(|line| {
                // Thread 0 scans; thread 1 goes through the first 1000 lines of its own.
                [
                    access(0, line * 64, 8, Kind::Load, 0),
                    access(1, (1 << 40) + line % 1000 * 64, 8, Kind::Load, 1),
                ]
            })
            .collect();
        tracker.record_each(&slice, |touch| {
            let thread = slice[touch.index].thread;
            match touch.outcome {
                Outcome::Cold => assert_eq!(round, 0),
                Outcome::Invalidated { .. } => panic!("nobody stores"),
                Outcome::Reuse { time, stack, .. } => {
                    let expected = if thread == 0 { lines - 1 } else { 999 };
                    assert_eq!((time, stack), (expected, expected));
                }
            }
        });
    }
    assert_eq!(tracker.entries(), 151_000);
}

#[test]
fn options_out_of_range_are_refused_with_what_to_use_instead() {
    for granularity_bytes in [0, 3, 8192] {
        let wrong = ReuseOptions {
            granularity_bytes,
            ..ReuseOptions::default()
        };
        let error = ReuseTracker::new(&wrong).err().expect("is refused");
        assert!(error.to_string().contains("use 64"), "{error}");
    }
}
