//! The accuracy S on RIBench, whose distances are known. `--nocapture` prints it for every case.

use linewise_cache::Access;
use linewise_cache::reuse::ribench::{CASES, ELEMENT_BYTES, Parameters};
use linewise_cache::reuse::{Choice, ReuseOptions, ReuseProfile, ReuseTracker, Sampling};

fn tracked(parameters: &Parameters, threads: u16, sampling: Sampling) -> ReuseProfile {
    let options = ReuseOptions {
        granularity_bytes: ELEMENT_BYTES,
        sampling,
        ..ReuseOptions::default()
    };
    let mut tracker = ReuseTracker::new(&options).expect("valid");
    let mut stream = parameters.stream(threads);
    let mut slice: Vec<Access> = Vec::with_capacity(1 << 14);
    loop {
        slice.clear();
        slice.extend(stream.by_ref().take(1 << 14));
        if slice.is_empty() {
            return tracker.profile();
        }
        tracker.record(&slice);
    }
}

/// The parameters on arrays of a hundredth (long: a ten-thousandth) and three repetitions.
fn small(parameters: &Parameters) -> Parameters {
    let long = parameters.loops[4].elements > 100_000;
    let mut small = parameters.smaller(if long { 5_000 } else { 50 });
    small.outer = 3;
    small
}

#[test]
fn exact_tracking_finds_every_distance_of_every_case_for_one_to_eight_threads() {
    for case in CASES {
        for threads in [1, 2, 4, 8] {
            let parameters = small(&case.parameters);
            let profile = tracked(&parameters, threads, Sampling::Exact);
            let expected = parameters.expected(threads);
            assert_eq!(
                profile.total.accesses(),
                parameters.accesses(threads) as f64
            );
            // Not only S >= 0.99: every count of every bin.
            assert_eq!(profile.total, expected, "{}, {threads} threads", case.name);
            assert!(expected.time.accuracy(&profile.total.time) >= 0.99);
        }
    }
}

#[test]
fn table_6_4_agrees_with_the_listing_but_for_the_first_pass_of_each_repetition() {
    for case in CASES {
        let parameters = small(&case.parameters);
        let (table, listing) = (parameters.by_the_table(8), parameters.expected(8).time);
        let first_passes: u64 = parameters.loops.iter().map(|each| each.elements).sum();
        let differ = 8.0 * (parameters.outer * first_passes) as f64;
        let in_table_only: f64 = table
            .bins()
            .map(|bin| {
                let same = listing.bins().find(|other| other.from == bin.from);
                (bin.count - same.map_or(0.0, |other| other.count)).max(0.0)
            })
            .sum();
        assert!(in_table_only <= differ, "{}", case.name);
        assert_eq!(
            table.reuses() - listing.reuses(),
            differ / parameters.outer as f64
        );
    }
}

/// S of an estimate at 1 in 64: of the time distances bin by bin (they are counted exactly, only
/// their weights are estimated), and of the stack distances by octave, as the literature draws.
fn sampled(parameters: &Parameters, threads: u16, choice: Choice) -> (f64, f64) {
    let rate = 1.0 / 64.0;
    let profile = tracked(parameters, threads, Sampling::FixedRate { rate, choice });
    let expected = parameters.expected(threads);
    (
        expected.time.accuracy(&profile.unadjusted.time),
        expected.stack.accuracy_by_octave(&profile.unadjusted.stack),
    )
}

#[test]
fn one_in_64_is_accurate_where_the_arrays_are_large_enough_for_it() {
    println!(
        "{:<30}{:>8}{:>16}{:>16}{:>16}{:>16}",
        "case", "threads", "hashed time", "stack", "strat. time", "stack"
    );
    let mut worst = [1.0f64; 4];
    for case in CASES {
        let long = case.parameters.loops[4].elements > 100_000;
        for threads in [1, 8] {
            // The long cases on a twenty-fifth of their arrays, so four times the short ones.
            let mut parameters = if long {
                case.parameters.smaller(25)
            } else {
                case.parameters
            };
            if long {
                for each in &mut parameters.loops {
                    each.passes = each.passes.div_ceil(8);
                }
            }
            parameters.outer = 2;
            let hashed = sampled(&parameters, threads, Choice::Hashed);
            let stratified = sampled(&parameters, threads, Choice::Stratified);
            println!(
                "{:<30}{threads:>8}{:>16.3}{:>16.3}{:>16.3}{:>16.3}",
                case.name, hashed.0, hashed.1, stratified.0, stratified.1
            );
            let all = [hashed.0, hashed.1, stratified.0, stratified.1];
            for (worst, s) in worst.iter_mut().zip(all) {
                *worst = worst.min(s);
            }
        }
    }
    println!("worst: {worst:.3?}");
    assert!(
        worst[2] >= 0.95 && worst[3] >= 0.95,
        "stratified: {worst:?}"
    );
    // Chosen one by one, the elements followed of an array of 500 or 1,000 are 8 or 16, give or take
    // 3 or 4, so the weights are off by a quarter. Its stack distances scatter as much, and those
    // of the cases lie 2 % below powers of two, so half of them come out in the next octave.
    assert!(worst[0] >= 0.80, "hashed: {worst:?}");
}
