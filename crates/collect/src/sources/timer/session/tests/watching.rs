//! Lines under watch, and instructions that are waited for.

use linewise_machine::guard::{News, Unguarded};
use linewise_recording::{
    Address, AddressOrigin, Operation, Sample, SampleClass, Trap, UnknownReason, Watch,
    WatchOutcome,
};

use super::*;

/// Whoever is watched touches its own word.
fn touching(kernel: &Invented, ms: u64) {
    kernel.every((1..4 * ms).map(|number| 250 * number + 7), |world, _| {
        for (cpu, tid) in [(0, TARGET), (1, SECOND)] {
            let word = LINE + 8 * u64::from(cpu);
            world.touched(cpu, (TARGET, tid), (word, true), &adding(word));
        }
    });
}

#[test]
fn a_line_that_two_threads_use_is_watched_in_each_and_its_traps_name_the_access() {
    let kernel = kernel();
    busy(&kernel, 600);
    touching(&kernel, 600);
    ends(&kernel, 600, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let watches: Vec<Watch> = recorded.rows();
    let traps: Vec<Trap> = recorded.rows();
    let trapped = |watch: &&Watch| watch.outcome == WatchOutcome::Trapped;
    assert!(
        watches.iter().filter(trapped).count() > 20,
        "{}",
        watches.len()
    );
    for watch in &watches {
        assert_ne!(watch.tid, watch.publisher);
        assert_eq!(watch.address.0 & !63, LINE);
        assert!((1..=4).contains(&watch.chunks.count_ones()));
        let own = traps.iter().filter(|trap| trap.watch == watch.id).count();
        assert_eq!(own > 0, watch.outcome == WatchOutcome::Trapped);
    }
    for trap in &traps {
        let word = LINE + if trap.tid.0 == SECOND { 8 } else { 0 };
        assert_eq!(
            (trap.access_ip, trap.address),
            (Address(ADD), Address(word))
        );
        assert_eq!((trap.operation, trap.locked), (Operation::Update, true));
        assert_eq!(trap.exposure_ns, 1000);
    }
    assert!(recorded.open().info().overhead.watches_per_second > 10.0);
}

#[test]
fn a_watch_that_nobody_comes_to_is_given_up_and_one_at_the_end_has_not_seen_all() {
    let kernel = kernel();
    busy(&kernel, 600);
    ends(&kernel, 600, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let watches: Vec<Watch> = recorded.rows();
    assert!(watches.len() > 5, "{}", watches.len());
    for watch in &watches {
        assert_ne!(watch.outcome, WatchOutcome::Trapped);
        assert_eq!(watch.exposure_ns, 7_000);
        if watch.outcome == WatchOutcome::Expired {
            let armed_ns = watch.closed.since(watch.armed);
            assert!((5_000_000..20_000_000).contains(&armed_ns), "{armed_ns}");
        }
    }
    assert!(recorded.rows::<Trap>().is_empty());
}

#[test]
fn a_thread_that_switches_often_is_watched_for_a_shorter_time() {
    let kernel = kernel();
    busy(&kernel, 600);
    kernel.with(|world| world.armed_switch_ns = 10_000.0);
    kernel.every((1..6000).map(|number| 100 * number + 3), |world, number| {
        let out = number % 2 == 1;
        world.switched(0, (TARGET, TARGET), out);
        world.switched(1, (TARGET, SECOND), out);
    });
    ends(&kernel, 600, Ended::Code(0));
    let watches: Vec<Watch> = record(&kernel, |_| {}).rows();
    let short = watches
        .iter()
        .filter(|watch| watch.closed.since(watch.armed) < 5_000_000);
    assert!(short.count() > 5, "{}", watches.len());
}

fn refusing(refusal: Denial) -> Recorded {
    let kernel = kernel();
    busy(&kernel, 300);
    kernel.with(|world| world.refusals.insert(Asked::Breakpoint, refusal));
    ends(&kernel, 300, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    assert!(recorded.rows::<Watch>().is_empty());
    assert_eq!(recorded.outcome.observed, 2 * 299);
    recorded
}

#[test]
fn a_watchpoint_that_is_refused_is_a_loss_with_its_reason_unless_the_thread_is_gone() {
    let (count, detail) = refusing(Denial::NoRegister)
        .loss("watchpoint-refused")
        .unwrap();
    assert!(count > 1 && detail.contains("by a debugger"), "{detail}");
    let (_, detail) = refusing(Denial::NotPermitted)
        .loss("watchpoint-refused")
        .unwrap();
    assert!(
        detail.contains("the kernel refused a watchpoint: Permission"),
        "{detail}"
    );
    assert_eq!(
        refusing(Denial::NoSuchThread).loss("watchpoint-refused"),
        None
    );
}

#[test]
fn where_watchpoints_cannot_be_had_it_is_told_and_sampling_goes_on() {
    let kernel = kernel();
    busy(&kernel, 100);
    kernel.with(|world| world.refusals.insert(Asked::Probe, Denial::NotPermitted));
    ends(&kernel, 100, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.reuse = true);
    let (_, detail) = recorded.loss("watchpoints-unavailable").unwrap();
    assert!(detail.contains("an invented probe that fails"), "{detail}");
    let (_, detail) = recorded.loss("reuse-not-sampled").unwrap();
    assert!(detail.contains("fewer than two watchpoints"), "{detail}");
    assert_eq!(recorded.open().info().watchpoint_bytes, 0);
    assert_eq!(recorded.outcome.observed, 2 * 99);
}

/// A thread that was interrupted behind its load of a word, whose address it has overwritten.
fn loading() -> At {
    At {
        ip: BEHIND_LOAD,
        registers: vec![(AX, 1)],
        ..At::default()
    }
}

fn samples_of_loads(again: bool) -> Vec<Sample> {
    let kernel = kernel();
    two_threads(&kernel);
    kernel.every((1..300).map(|ms| 1000 * ms), |world, number| {
        world.works(TARGET, TARGET, 1_000_000);
        if number % 40 == 5 {
            world.sampled(0, (TARGET, TARGET), &loading());
        }
    });
    if again {
        kernel.every((1..1000).map(|number| 300 * number + 5), |world, _| {
            let before = At {
                ip: LOAD,
                registers: vec![(AX, LINE + 16)],
                ..At::default()
            };
            world.ran(0, (TARGET, TARGET), &before);
        });
    }
    ends(&kernel, 320, Ended::Code(0));
    record(&kernel, |_| {}).rows()
}

#[test]
fn an_address_that_was_overwritten_is_seen_when_the_instruction_runs_again() {
    let samples = samples_of_loads(true);
    let seen = samples.iter().filter(|it| it.class == SampleClass::Access);
    assert!(
        seen.clone().count() > 3,
        "{:?}",
        &samples[..samples.len().min(4)]
    );
    for sample in seen {
        assert_eq!(
            (sample.access_ip, sample.address),
            (Address(LOAD), Address(LINE + 16))
        );
        assert_eq!(sample.origin, Some(AddressOrigin::Breakpoint));
        assert_eq!(sample.operation, Some(Operation::Load));
    }
}

#[test]
fn an_instruction_that_does_not_run_again_leaves_its_sample_without_an_address() {
    let samples = samples_of_loads(false);
    let expired = Some(UnknownReason::BreakpointExpired);
    assert!(
        samples.iter().all(|it| it.class == SampleClass::Unknown),
        "{:?}",
        &samples[..4]
    );
    assert!(
        samples.iter().filter(|it| it.reason == expired).count() > 3,
        "{:?}",
        &samples[..samples.len().min(4)]
    );
}

#[test]
fn who_finds_no_free_register_waits_and_then_stays_unknown() {
    let kernel = kernel();
    two_threads(&kernel);
    // Two at a time: there is one place to wait in.
    kernel.every((10..60).map(|ms| 2000 * ms), |world, _| {
        world.works(TARGET, TARGET, 2_000_000);
        world.sampled(0, (TARGET, TARGET), &loading());
        world.sampled(0, (TARGET, TARGET), &loading());
    });
    kernel.with(|world| world.refusals.insert(Asked::Breakpoint, Denial::NoRegister));
    ends(&kernel, 200, Ended::Code(0));
    let samples: Vec<Sample> = record(&kernel, |_| {}).rows();
    assert_eq!(samples.len(), 100);
    let overwritten = Some(UnknownReason::AddressOverwritten);
    assert!(
        samples.iter().all(|it| it.reason == overwritten),
        "{:?}",
        &samples[..4]
    );
}

fn guarded(script: impl FnOnce(&Invented)) -> Recorded {
    let kernel = kernel();
    busy(&kernel, 400);
    script(&kernel);
    ends(&kernel, 400, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.guard = Some(true));
    assert!(kernel.with(|world| world.guarded.is_empty()));
    recorded
}

#[test]
fn a_thread_that_cannot_be_guarded_is_not_watched() {
    for (reason, words) in [
        (Unguarded::Forbidden, "may not be traced"),
        (Unguarded::TooMany, "more threads are guarded"),
    ] {
        let recorded = guarded(|kernel| {
            // From a time on at which it is known as free.
            kernel.every((20..400).map(|ms| 1000 * ms + 3), move |world, number| {
                if number == 0 {
                    world.left.insert(SECOND, reason);
                }
            });
        });
        let watches: Vec<Watch> = recorded.rows();
        let late = watches.iter().filter(|it| it.armed.0 > 1_030_000_000);
        assert!(late.clone().count() > 3);
        assert!(late.into_iter().all(|watch| watch.tid.0 == TARGET));
        // The guard refuses before it is asked, or tells when it is.
        if let Some((_, detail)) = recorded.loss("threads-not-guarded") {
            assert!(detail.contains(words), "{detail}");
        }
    }
}

#[test]
fn a_busy_thread_is_let_go_and_without_a_guard_nothing_is_watched_any_more() {
    let recorded = guarded(|kernel| {
        kernel.at(100_000, |world| world.news.push(News::Busy(SECOND)));
        kernel.at(200_000, |world| {
            world.guard_gone = true;
            world.news.push(News::Ended);
        });
        kernel.with(|world| world.held_back = 2);
    });
    let (count, detail) = recorded.loss("threads-not-guarded").unwrap();
    assert!(
        count == 2 && detail.contains("get many signals"),
        "{count} {detail}"
    );
    assert_eq!(recorded.loss("traps-without-reason").unwrap().0, 2);
    let watches: Vec<Watch> = recorded.rows();
    assert!(watches.iter().all(|it| it.armed.0 < 1_200_000_000));
    let late = watches.iter().filter(|it| it.armed.0 > 1_100_100_000);
    assert!(late.into_iter().all(|watch| watch.tid.0 == TARGET));
    assert!(!watches.is_empty());
}
