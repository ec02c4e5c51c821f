//! Threads and processes that come and go, rings that overflow, clocks that go wrong, and pauses.

use linewise_machine::records::Record;
use linewise_recording::{Address, Map, Sample, SampleClass, Switch, Thread, Time, UnknownReason};

use super::*;

/// When recordings begin, ns.
const BEGINNING: u64 = 1_000_000_000;

#[test]
fn threads_that_come_and_go_have_rows_with_what_they_used() {
    let kernel = kernel();
    two_threads(&kernel);
    let third = TARGET + 200;
    kernel.at(20_000, move |world| world.fork(TARGET, TARGET, third));
    kernel.at(21_000, move |world| {
        world.told(Record::Name {
            pid: TARGET,
            tid: third,
            name: "worker".to_owned(),
            exec: false,
            time: world.shown_ns(),
        });
    });
    for (us, out) in [(22_000, false), (25_000, true), (27_000, false)] {
        kernel.at(us, move |world| world.switched(1, (TARGET, third), out));
    }
    kernel.at(29_000, move |world| world.exit(TARGET, third));
    ends(&kernel, 100, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let threads: Vec<Thread> = recorded.rows();
    let worker = threads.iter().find(|thread| thread.tid.0 == third).unwrap();
    assert_eq!((worker.name.as_str(), worker.pid.0), ("worker", TARGET));
    assert_eq!(worker.start, Time(BEGINNING + 20_000_000));
    assert_eq!(worker.end, Time(BEGINNING + 29_000_000));
    assert_eq!(worker.cpu_time_ns, 5_000_000);
    let stays: Vec<Switch> = recorded.rows();
    let stays: Vec<u64> = (stays.iter().filter(|stay| stay.tid.0 == third))
        .map(|stay| stay.end.since(stay.start))
        .collect();
    assert_eq!(stays, [3_000_000, 2_000_000]);
}

#[test]
fn a_process_that_is_forked_and_runs_another_program_is_followed() {
    let kernel = kernel();
    let child = TARGET + 5;
    kernel.at(10, |world| {
        let process = world.process(TARGET);
        process.memory = vec![(CODE, code())];
        process.maps = vec![
            mapping(CODE, "/bin/program"),
            Mapping {
                shared: true,
                writable: true,
                inode: 77,
                ..mapping(LINE, "/dev/shm/common")
            },
        ];
    });
    kernel.every((1..60).map(|ms| 1000 * ms), |world, _| {
        world.works(TARGET, TARGET, 1_000_000);
        world.sampled(0, (TARGET, TARGET), &adding(LINE));
    });
    kernel.at(60_000, move |world| {
        world.fork(TARGET, child, child);
        world.process(child).memory = vec![(CODE, code())];
    });
    kernel.every((61..120).map(|ms| 1000 * ms), move |world, _| {
        world.works(child, child, 1_000_000);
        world.sampled(1, (child, child), &adding(LINE + 8));
    });
    kernel.at(120_000, move |world| {
        world.exec(child, "other");
        world.process(child).memory.clear();
        world.told(Record::Map {
            pid: child,
            start: CODE,
            length: 0x1000,
            offset: 0,
            path: "/bin/other".to_owned(),
            time: world.shown_ns(),
        });
    });
    kernel.at(121_500, move |world| {
        world.sampled(1, (child, child), &adding(LINE))
    });
    kernel.at(150_000, move |world| world.end(child, Ended::Code(0)));
    // Somebody else's process gets the number of one that is gone.
    kernel.at(160_000, move |world| {
        world.fork(OWN - 5, child, child);
        world.sampled(1, (child, child), &adding(LINE));
    });
    ends(&kernel, 200, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let threads: Vec<Thread> = recorded.rows();
    let of_child = threads.iter().find(|thread| thread.pid.0 == child).unwrap();
    assert_eq!(of_child.name, "program, then other");
    assert_eq!(of_child.end, Time(BEGINNING + 150_000_000));
    let samples: Vec<Sample> = recorded.rows();
    let of_child: Vec<&Sample> = samples.iter().filter(|it| it.pid.0 == child).collect();
    assert_eq!((samples.len(), of_child.len()), (59 + 60, 60));
    // Its old code is forgotten, and there is no file of the new one.
    assert_eq!(of_child[59].reason, Some(UnknownReason::CodeUnreadable));
    assert!(
        of_child[..59]
            .iter()
            .all(|it| it.class == SampleClass::Access)
    );
    let maps: Vec<Map> = recorded.rows();
    let of = |pid: u32, path: &str| {
        let same = |map: &&Map| (map.pid.0, map.path.as_str()) == (pid, path);
        maps.iter().filter(same).count()
    };
    assert_eq!(of(TARGET, "/bin/program"), 1);
    assert_eq!(
        (of(TARGET, "/dev/shm/common"), of(child, "/dev/shm/common")),
        (1, 1)
    );
    assert_eq!(of(child, "/bin/other"), 1);
}

#[test]
fn code_that_cannot_be_read_in_memory_is_read_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    std::fs::write(&path, code()).unwrap();
    let path = path.display().to_string();
    let kernel = kernel();
    kernel.at(10, move |world| {
        world.told(Record::Map {
            pid: TARGET,
            start: CODE,
            length: 0x1000,
            offset: 0,
            path,
            time: world.shown_ns(),
        });
    });
    kernel.at(1000, |world| {
        world.sampled(0, (TARGET, TARGET), &adding(LINE))
    });
    ends(&kernel, 20, Ended::Code(0));
    let samples: Vec<Sample> = record(&kernel, |_| {}).rows();
    assert_eq!(
        (samples[0].class, samples[0].address),
        (SampleClass::Access, Address(LINE))
    );
}

#[test]
fn what_a_full_ring_had_no_room_for_is_a_loss() {
    let kernel = kernel();
    kernel.with(|world| world.room = 5);
    two_threads(&kernel);
    // Twelve in a tick: five fit.
    kernel.every((0..12).map(|number| 20_000 + number), |world, _| {
        world.sampled(0, (TARGET, TARGET), &adding(LINE));
    });
    kernel.at(60_000, |world| {
        world.sampled(0, (TARGET, TARGET), &adding(LINE))
    });
    kernel.at(70_000, |world| world.throttle(0));
    ends(&kernel, 100, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    assert_eq!(recorded.outcome.observed, 6);
    assert_eq!(recorded.loss("ring-buffer-full").unwrap().0, 7);
    assert_eq!(recorded.loss("sampler-throttled").unwrap().0, 1);
}

#[test]
fn a_thread_in_the_kernel_that_waits_for_a_word_is_told_with_the_word() {
    let kernel = kernel();
    two_threads(&kernel);
    let waiting = |operation: u64| At {
        ip: BEHIND_FUTEX,
        in_kernel: true,
        registers: vec![(AX, -38_i64 as u64), (DI, LINE + 4), (SI, operation)],
        ..At::default()
    };
    for (us, operation) in [(20_000, 128), (21_000, 77)] {
        kernel.at(us, move |world| {
            world.sampled(0, (TARGET, TARGET), &waiting(operation));
        });
    }
    ends(&kernel, 50, Ended::Code(0));
    let samples: Vec<Sample> = record(&kernel, |_| {}).rows();
    assert!(samples.iter().all(|it| it.class == SampleClass::Kernel));
    let words: Vec<(Address, u32)> = samples.iter().map(|it| (it.address, it.size)).collect();
    assert_eq!(words, [(Address(LINE + 4), 4), (Address(0), 0)]);
}

#[test]
fn a_clock_that_stands_still_or_jumps_loses_no_sample_and_no_end() {
    let kernel = kernel();
    busy(&kernel, 300);
    kernel.at(50_500, |world| world.stands_at = Some(world.time_ns));
    kernel.at(150_500, |world| world.stands_at = None);
    // Suspended for a minute and a half.
    kernel.at(200_500, |world| world.time_ns += 90_000_000_000);
    kernel.at(95_000_000, |world| world.end(TARGET, Ended::Code(0)));
    let recorded = record(&kernel, |_| {});
    let samples: Vec<Sample> = recorded.rows();
    assert_eq!(samples.len(), 2 * 299);
    let stood = samples
        .iter()
        .filter(|it| it.time == Time(BEGINNING + 50_500_000));
    assert_eq!(stood.count(), 2 * 100);
    let recording = recorded.open();
    assert!(recording.info().complete);
    assert!(recording.info().end.since(recording.info().start) >= 90_000_000_000);
    let threads: Vec<Thread> = recorded.rows();
    assert!(threads.iter().all(|thread| thread.end >= thread.start));
}

/// A thread that comes to its CPU and leaves it very often until so many milliseconds after the beginning.
fn restless(kernel: &Invented, ms: u64) {
    two_threads(kernel);
    kernel.every((1..10 * ms).map(|number| 100 * number), |world, number| {
        world.switched(0, (TARGET, TARGET), false);
        if number % 16 == 0 {
            world.sampled(0, (TARGET, TARGET), &adding(LINE));
        }
    });
    kernel.every((1..10 * ms).map(|number| 100 * number + 90), |world, _| {
        world.works(TARGET, TARGET, 90_000);
        world.switched(0, (TARGET, TARGET), true);
    });
}

#[test]
fn where_switches_are_dear_samplers_of_threads_make_pauses() {
    let kernel = kernel_of_threads();
    kernel.with(|world| world.switch_ns = 5_000.0);
    restless(&kernel, 3000);
    ends(&kernel, 3000, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let (_, detail) = recorded.loss("sampled-part-time").unwrap();
    assert!(detail.contains("the sampler was on"), "{detail}");
    let samples: Vec<Sample> = recorded.rows();
    assert!(
        samples.len() < 3000 * 10 / 16 / 2,
        "no pauses: {}",
        samples.len()
    );
    // Those after a pause stand for it, and have a shorter period.
    let (first, last) = (samples[0].weight, samples[samples.len() - 1].weight);
    let fine = first / 8;
    assert!((fine * 3 / 2..first).contains(&last), "{first} {last}");
    let threads: Vec<Thread> = recorded.rows();
    let used = threads.iter().find(|it| it.tid.0 == TARGET).unwrap();
    // As the kernel counted it: 10 times a millisecond 90 µs.
    assert!(
        (2_400_000_000..2_800_000_000).contains(&used.cpu_time_ns),
        "{}",
        used.cpu_time_ns
    );
}

#[test]
fn where_switches_are_dear_their_recording_makes_pauses_and_sampling_goes_on() {
    let kernel = kernel();
    kernel.with(|world| world.switch_ns = 2_000.0);
    restless(&kernel, 3000);
    kernel.at(1_500_000, |world| {
        world.refusals.insert(Asked::Switches, Denial::NoFiles);
    });
    ends(&kernel, 3000, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let (_, detail) = recorded.loss("switches-part-time").unwrap();
    assert!(detail.contains("they were recorded"), "{detail}");
    assert_eq!(recorded.outcome.observed, 30_000_u64.div_ceil(16));
    let (_, detail) = recorded.loss("switches-not-recorded").unwrap();
    assert!(detail.contains("after a pause"), "{detail}");
    // It works in turns with others: its samples come with a longer period, and stand for more.
    let samples: Vec<Sample> = recorded.rows();
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    assert!(
        last.weight >= 3 * first.weight,
        "{} {}",
        first.weight,
        last.weight
    );
}

#[test]
fn of_threads_too_short_for_the_period_the_period_becomes_shorter() {
    let kernel = kernel_of_threads();
    two_threads(&kernel);
    kernel.every((20..900).map(|ms| 1000 * ms), |world, number| {
        let tid = TARGET + 1000 + number as u32;
        world.fork(TARGET, TARGET, tid);
        world.switched(1, (TARGET, tid), false);
    });
    kernel.every((20..900).map(|ms| 1000 * ms + 500), |world, number| {
        let tid = TARGET + 1000 + number as u32;
        world.works(TARGET, tid, 500_000);
        world.works(TARGET, TARGET, 500_000);
        world.sampled(1, (TARGET, TARGET), &adding(LINE));
        world.switched(1, (TARGET, tid), true);
        world.exit(TARGET, tid);
    });
    ends(&kernel, 900, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let (count, detail) = recorded.loss("threads-too-short").unwrap();
    assert!(
        count > 100 && detail.contains("500 µs each"),
        "{count} {detail}"
    );
    let samples: Vec<Sample> = recorded.rows();
    let weights = |of: &[Sample]| of.iter().map(|it| it.weight).min().unwrap();
    let (early, late) = (weights(&samples[..10]), weights(&samples[400..]));
    assert!(late * 4 < early, "{early} {late}");
}

#[test]
fn a_target_that_is_not_heard_of_gets_new_samplers() {
    let kernel = kernel_of_threads();
    two_threads(&kernel);
    kernel.every((20..600).map(|ms| 1000 * ms), |world, _| {
        world.works(TARGET, TARGET, 1_000_000);
    });
    ends(&kernel, 600, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let (count, detail) = recorded.loss("samplers-reopened").unwrap();
    assert!(
        count >= 2 && detail.contains("opened anew"),
        "{count} {detail}"
    );
}

#[test]
fn latencies_that_cannot_be_measured_are_a_loss_and_others_are_looked_at_again() {
    let kernel = kernel();
    busy(&kernel, 100);
    kernel.with(|world| world.refusals.insert(Asked::Latency, Denial::Other));
    ends(&kernel, 4000, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    assert!(recorded.loss("latency-not-measured").unwrap().0 >= 2);
    assert!(recorded.rows::<linewise_recording::Latency>().is_empty());

    let kernel = super::kernel();
    busy(&kernel, 100);
    ends(&kernel, 8000, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    assert!(recorded.loss("latency-not-measured").is_none());
    assert!(recorded.rows::<linewise_recording::Latency>().len() >= 8);
}

#[test]
fn a_thread_that_comes_back_from_a_call_was_in_the_kernel_where_that_is_sampled() {
    for (sample_by, class) in [
        (SampleBy::Cpu, SampleClass::Kernel),
        (SampleBy::Thread, SampleClass::Unknown),
    ] {
        let kernel = kernel();
        two_threads(&kernel);
        let at = At {
            ip: BEHIND_FUTEX,
            registers: vec![(AX, 0), (CX, BEHIND_FUTEX)],
            ..At::default()
        };
        kernel.at(20_000, move |world| {
            world.sampled(0, (TARGET, TARGET), &at);
        });
        ends(&kernel, 50, Ended::Code(0));
        let recorded = record(&kernel, |options| options.timer.sample_by = sample_by);
        let samples: Vec<Sample> = recorded.rows();
        let classes: Vec<SampleClass> = samples.iter().map(|it| it.class).collect();
        assert_eq!(classes, [class], "{sample_by:?}");
    }
}
