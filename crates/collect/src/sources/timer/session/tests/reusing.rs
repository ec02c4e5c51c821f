//! Words under watch until they are touched again.

use linewise_recording::{Address, ReuseOutcome, ReuseTrap, ReuseWatch};

use super::*;

#[test]
fn a_sampled_word_is_watched_until_it_was_touched_often_enough() {
    let kernel = kernel();
    busy(&kernel, 600);
    kernel.every((1..6000).map(|number| 100 * number + 7), |world, _| {
        for (cpu, tid) in [(0, TARGET), (1, SECOND)] {
            let word = LINE + 8 * u64::from(cpu);
            world.touched(cpu, (TARGET, tid), (word, true), &adding(word));
        }
    });
    ends(&kernel, 600, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.reuse = true);
    let watches: Vec<ReuseWatch> = recorded.rows();
    let traps: Vec<ReuseTrap> = recorded.rows();
    let complete = |watch: &&ReuseWatch| watch.outcome == ReuseOutcome::Complete;
    assert!(
        watches.iter().filter(complete).count() > 5,
        "{}",
        watches.len()
    );
    for watch in watches.iter().filter(complete) {
        let own = traps.iter().filter(|trap| trap.watch == watch.id);
        assert!(own.clone().count() >= 7);
        assert!(own.into_iter().all(|trap| trap.access_ip == Address(ADD)));
        assert!([LINE, LINE + 8].contains(&watch.address.0));
    }
    let described = recorded.open().info().reuse.unwrap();
    assert_eq!((described.slots, described.offset_ns), (2, 2_000.0));
    // Half of the watchpoints are left for lines.
    assert_eq!(recorded.open().info().watchpoint_bytes, 16);
}

#[test]
fn a_word_that_is_not_touched_again_is_given_up_at_the_end_or_with_its_thread() {
    let kernel = kernel();
    busy(&kernel, 300);
    kernel.at(150_300, |world| world.exit(TARGET, SECOND));
    ends(&kernel, 300, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.reuse = true);
    let watches: Vec<ReuseWatch> = recorded.rows();
    assert!(!watches.is_empty());
    assert!(
        watches
            .iter()
            .all(|watch| watch.outcome != ReuseOutcome::Complete)
    );
    assert!(recorded.rows::<ReuseTrap>().is_empty());
}

#[test]
fn a_watch_for_reuse_that_is_refused_is_a_loss() {
    let kernel = kernel();
    busy(&kernel, 300);
    kernel.with(|world| world.refusals.insert(Asked::Breakpoint, Denial::NoRegister));
    ends(&kernel, 300, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.reuse = true);
    let (_, detail) = recorded.loss("reuse-watch-refused").unwrap();
    assert!(detail.contains("No space left"), "{detail}");
}
