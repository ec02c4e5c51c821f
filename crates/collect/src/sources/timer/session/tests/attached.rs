//! Processes that run already.

use linewise_machine::signals::Heard;
use linewise_recording::{Sample, Thread};

use super::*;

/// Two processes that run: one of two threads, and one with a child.
const FIRST: u32 = TARGET + 1000;
const OTHER: u32 = TARGET + 2000;
const CHILD: u32 = TARGET + 3000;

fn running(kernel: &Invented) {
    kernel.with(|world| {
        world.make(FIRST, 1, "first").memory = vec![(CODE, code())];
        world.thread(FIRST, FIRST + 1).name = "helper".to_owned();
        world.make(OTHER, 1, "other").memory = vec![(CODE, code())];
        world.make(CHILD, OTHER, "child").memory = vec![(CODE, code())];
    });
    kernel.every((200..1000).map(|ms| 1000 * ms), |world, _| {
        for (cpu, pid, tid) in [
            (0, FIRST, FIRST),
            (1, FIRST, FIRST + 1),
            (0, OTHER, OTHER),
            (1, CHILD, CHILD),
            (1, OWN, OWN),
        ] {
            if world.processes.contains_key(&pid) && pid != OWN {
                world.works(pid, tid, 500_000);
            }
            if pid != OWN || world.refusals.is_empty() {
                world.sampled(cpu, (pid, tid), &adding(LINE));
            }
        }
    });
}

fn attach_to(pids: &[u32]) -> impl FnOnce(&mut Options) {
    let target = Target::Attach(pids.to_vec());
    move |options| options.common.target = target
}

#[test]
fn several_processes_are_recorded_with_what_descends_from_them_until_the_last_ends() {
    for kernel in [kernel(), kernel_of_threads()] {
        running(&kernel);
        kernel.at(500_000, |world| drop(world.processes.remove(&FIRST)));
        kernel.at(800_000, |world| world.end(OTHER, Ended::Code(0)));
        let recorded = record(&kernel, attach_to(&[FIRST, OTHER]));
        assert_eq!(recorded.outcome.ended, None);
        assert_eq!(recorded.outcome.ended_by, EndedBy::TargetExited);
        let threads: Vec<Thread> = recorded.rows();
        let mut names: Vec<&str> = threads.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["child", "first", "helper", "other"]);
        let samples: Vec<Sample> = recorded.rows();
        for pid in [FIRST, OTHER, CHILD] {
            assert!(samples.iter().any(|sample| sample.pid.0 == pid), "{pid}");
        }
        // Nobody else's.
        assert!(samples.iter().all(|sample| sample.pid.0 != OWN));
        let recording = recorded.open();
        assert!(recording.info().complete && !recording.info().launched);
        assert_eq!(recording.info().command, ["first"]);
        assert_eq!(
            kernel.with(|world| world.sent.len()),
            0,
            "nobody is asked to end"
        );
    }
}

#[test]
fn any_signal_ends_the_recording_and_leaves_the_process_alone() {
    let kernel = kernel();
    running(&kernel);
    kernel.at(400_000, |world| {
        world.signals.push_back(Heard {
            signal: 2,
            by_terminal: true,
        });
    });
    let recorded = record(&kernel, attach_to(&[FIRST]));
    assert_eq!(
        (recorded.outcome.ended_by, recorded.outcome.ended),
        (EndedBy::Interrupted, None)
    );
    assert!(kernel.with(|world| world.processes.contains_key(&FIRST)));
    assert!(recorded.outcome.observed > 300);
    let recorded = record(&kernel, |options| {
        attach_to(&[FIRST])(options);
        options.common.duration = Some(ms(100));
    });
    assert_eq!(recorded.outcome.ended_by, EndedBy::Duration);
}

#[test]
fn a_thread_stands_for_its_process_and_one_that_is_named_twice_counts_once() {
    let kernel = kernel();
    running(&kernel);
    kernel.at(300_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = record(&kernel, attach_to(&[FIRST + 1, FIRST]));
    let warning = format!("warning {} is a thread of process {FIRST}", FIRST + 1);
    assert!(
        recorded.told.iter().any(|told| told.starts_with(&warning)),
        "{:?}",
        recorded.told
    );
    assert_eq!(recorded.open().info().pid.0, FIRST);
}

#[test]
fn what_cannot_be_attached_to_is_named() {
    let kernel = kernel_of_threads();
    running(&kernel);
    let zombie = FIRST + 50;
    let thread_of_kernel = FIRST + 60;
    kernel.with(|world| {
        world.make(zombie, 1, "zombie").ended = true;
        world.make(thread_of_kernel, 2, "kworker").of_kernel = true;
        world.process(OTHER).foreign = true;
    });
    let error = refused(&kernel, attach_to(&[4_999_999]));
    assert!(
        matches!(error, Error::NoSuchProcess { pid: 4_999_999 }),
        "{error}"
    );
    let error = refused(&kernel, attach_to(&[zombie]));
    assert!(matches!(error, Error::ProcessEnded { .. }), "{error}");
    let error = refused(&kernel, attach_to(&[thread_of_kernel]));
    assert!(error.to_string().contains("kworker"), "{error}");
    let error = refused(&kernel, attach_to(&[OTHER]));
    assert!(
        matches!(error, Error::NotPermitted { pid: OTHER }),
        "{error}"
    );
    let error = refused(&kernel, attach_to(&[FIRST, OTHER]));
    assert!(
        matches!(error, Error::NotPermitted { pid: OTHER }),
        "{error}"
    );
    // It ends between the first look and the samplers.
    let kernel = kernel_of_threads();
    kernel.with(|world| drop(world.make(FIRST, 1, "first").threads.remove(&FIRST)));
    let error = refused(&kernel, attach_to(&[FIRST]));
    assert!(
        matches!(error, Error::NoSuchProcess { pid: FIRST }),
        "{error}"
    );
}

#[test]
fn threads_that_no_sampler_is_left_for_are_counted_and_so_are_those_of_others() {
    let kernel = kernel_of_threads();
    running(&kernel);
    kernel.with(|world| {
        for number in 0..20 {
            world.thread(FIRST, FIRST + 10 + number).cpu_ns = u64::from(number);
        }
        world.make(FIRST + 500, FIRST, "su").foreign = true;
        // Four files of the first thread's, and room for eight more threads.
        world.open_files = 96 + 4 + 8 * 4;
    });
    kernel.at(300_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = record(&kernel, attach_to(&[FIRST]));
    let (count, detail) = recorded.loss("threads-not-sampled").unwrap();
    assert!(detail.contains("raise it with `ulimit -n"), "{detail}");
    assert!((12..=15).contains(&count), "{count} {detail}");
    assert!(
        recorded.told.iter().any(|told| told.contains("ulimit -n")),
        "{:?}",
        recorded.told
    );

    let kernel = kernel_of_threads();
    running(&kernel);
    kernel.with(|world| world.make(FIRST + 500, FIRST, "su").foreign = true);
    kernel.at(300_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = record(&kernel, attach_to(&[FIRST]));
    let (count, detail) = recorded.loss("threads-not-sampled").unwrap();
    assert!(
        count == 1 && detail.contains("another user's"),
        "{count} {detail}"
    );
}

#[test]
fn the_heap_of_a_process_whose_allocator_cannot_be_probed_is_told_as_not_recorded() {
    let kernel = kernel();
    running(&kernel);
    kernel.at(300_000, |world| world.end(FIRST, Ended::Code(0)));
    let recorded = record(&kernel, |options| {
        attach_to(&[FIRST])(options);
        options.common.heap = HeapWhen::Auto;
        options.common.flow = Some(crate::Wanted::Most);
    });
    let (_, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(detail.contains("heap blocks are not recorded"), "{detail}");
    assert!(
        detail.ends_with("so objects are not followed either"),
        "{detail}"
    );
    assert!(recorded.told.contains(&format!("warning {detail}")));
}

#[test]
fn a_process_that_switches_very_often_is_sampled_with_a_shorter_period() {
    let period = |switches: u64| {
        let kernel = kernel_of_threads();
        running(&kernel);
        kernel.with(|world| world.switch_ns = 20_000.0);
        kernel.every((1..100).map(|ms| 1000 * ms), move |world, _| {
            let thread = world.thread(FIRST, FIRST);
            thread.cpu_ns += 500_000;
            thread.stays += switches;
        });
        kernel.at(250_000, |world| world.end(FIRST, Ended::Code(0)));
        let samples: Vec<Sample> = record(&kernel, attach_to(&[FIRST])).rows();
        samples[0].weight
    };
    let (seldom, often) = (period(0), period(50));
    assert_eq!(often, seldom / 8);
}
