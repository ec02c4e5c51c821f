//! Targets that are launched: how they begin and end.

use linewise_machine::signals::Heard;
use linewise_recording::{
    Address, AddressOrigin, Latency, Operation, Sample, SampleClass, Stack, Thread,
};

use super::*;

#[test]
fn a_launched_target_is_recorded_from_its_first_to_its_last_moment() {
    let kernel = kernel();
    busy(&kernel, 1200);
    ends(&kernel, 1200, Ended::Code(3));
    let recorded = record(&kernel, |_| {});
    assert_eq!(recorded.outcome.ended, Some(Ended::Code(3)));
    assert_eq!(recorded.outcome.ended_by, EndedBy::TargetExited);
    assert!(recorded.outcome.failure.is_none());
    assert!(recorded.told.contains(&"progress 2".to_owned()));

    let recording = recorded.open();
    let info = recording.info();
    assert!(info.complete && info.launched);
    assert_eq!((info.exit_code, info.exit_signal), (Some(3), None));
    assert_eq!(
        (info.pid.0, info.command.clone()),
        (TARGET, vec!["program".to_owned()])
    );
    assert!(
        info.source_reason.ends_with("each CPU is sampled"),
        "{}",
        info.source_reason
    );
    assert_eq!(
        (info.id.as_str(), info.cpus, info.watchpoint_bytes),
        ("invented", 2, 32)
    );
    assert!(info.end.since(info.start) >= 1_200_000_000);

    let samples: Vec<Sample> = recorded.rows();
    assert_eq!(samples.len() as u64, recorded.outcome.observed);
    assert_eq!(samples.len(), 2 * 1199);
    for sample in &samples {
        let word = LINE + 8 * u64::from(sample.cpu.0);
        assert_eq!(
            (sample.class, sample.access_ip),
            (SampleClass::Access, Address(ADD))
        );
        assert_eq!((sample.address, sample.size), (Address(word), 8));
        assert_eq!(sample.operation, Some(Operation::Update));
        assert_eq!(sample.origin, Some(AddressOrigin::Registers));
        assert!(sample.locked && sample.weight > 100_000);
    }
    let stacks: Vec<Stack> = recorded.rows();
    assert_eq!(stacks.len(), 1);
    assert_eq!(stacks[0].frames, [Address(BEHIND_ADD), Address(CODE + 3)]);
    let threads: Vec<Thread> = recorded.rows();
    let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["program", "program"]);
    assert_eq!(threads[0].stack_low, Address(0x7fff_0000));
    assert!(recorded.rows::<Latency>().len() >= 3);
}

#[test]
fn a_target_that_ends_at_once_leaves_a_whole_recording() {
    let kernel = kernel();
    ends(&kernel, 0, Ended::Signal(11));
    let recorded = record(&kernel, |_| {});
    assert_eq!(recorded.outcome.ended, Some(Ended::Signal(11)));
    assert_eq!(
        (recorded.outcome.observed, recorded.outcome.ended_by),
        (0, EndedBy::TargetExited)
    );
    let recording = recorded.open();
    assert!(recording.info().complete);
    assert_eq!(recording.info().exit_signal, Some(11));
    let threads: Vec<Thread> = recorded.rows();
    assert_eq!(threads.len(), 1);
}

#[test]
fn a_target_whose_time_is_over_is_asked_to_end_with_all_that_descend_from_it() {
    let kernel = kernel();
    busy(&kernel, 1000);
    let child = TARGET + 7;
    kernel.at(50_000, move |world| world.fork(TARGET, child, child));
    let recorded = record(&kernel, |options| options.common.duration = Some(ms(200)));
    assert_eq!(recorded.outcome.ended_by, EndedBy::Duration);
    assert_eq!(recorded.outcome.ended, Some(Ended::Signal(15)));
    assert_eq!(recorded.open().info().ended_by, "duration");
    let mut sent = kernel.with(|world| world.sent.clone());
    sent.sort_unstable();
    assert_eq!(sent, [(TARGET, 15), (child, 15)]);
    let samples: Vec<Sample> = recorded.rows();
    assert!((380..=440).contains(&samples.len()), "{}", samples.len());
}

#[test]
fn a_target_that_does_not_end_when_its_time_is_over_is_killed_after_ten_seconds() {
    let kernel = kernel();
    kernel.at(10, |world| world.process(TARGET).stubborn = true);
    let recorded = record(&kernel, |options| options.common.duration = Some(ms(100)));
    assert_eq!(recorded.outcome.ended, Some(Ended::Signal(9)));
    let took = kernel.with(|world| world.time_ns) - 1_000_000_000;
    assert!((10_100_000_000..10_400_000_000).contains(&took), "{took}");
}

fn heard(signal: i32) -> Heard {
    Heard {
        signal,
        by_terminal: false,
    }
}

#[test]
fn what_is_not_for_us_is_passed_on_and_who_insists_has_the_target_killed() {
    let kernel = kernel();
    busy(&kernel, 400);
    kernel.at(20, |world| world.process(TARGET).stubborn = true);
    for (us, signal) in [(50_000, 10), (100_000, 15), (100_500, 15), (400_000, 15)] {
        kernel.at(us, move |world| world.signals.push_back(heard(signal)));
    }
    let recorded = record(&kernel, |_| {});
    assert_eq!(recorded.outcome.ended_by, EndedBy::Interrupted);
    assert_eq!(recorded.outcome.ended, Some(Ended::Signal(9)));
    let took = kernel.with(|world| world.time_ns) - 1_000_000_000;
    assert!(
        took >= 400_000_000,
        "the echo of a signal does not insist: {took}"
    );
    let sent = kernel.with(|world| world.sent.clone());
    assert_eq!(sent[..2], [(TARGET, 10), (TARGET, 15)]);
    let samples: Vec<Sample> = recorded.rows();
    assert!((190..=230).contains(&samples.len()), "{}", samples.len());
}

#[test]
fn what_cannot_be_started_leaves_nothing_behind() {
    let refusing = |asked, refusal| {
        let kernel = kernel();
        kernel.with(|world| world.refusals.insert(asked, refusal));
        refused(&kernel, |_| {})
    };
    let error = refusing(Asked::Exec, Denial::NotPermitted);
    assert!(matches!(error, Error::NotExecutable { .. }), "{error}");
    let error = refusing(Asked::Fork, Denial::NoMemory);
    assert!(matches!(error, Error::Fork(_)), "{error}");
}

#[test]
fn threads_are_sampled_where_cpus_may_not_be() {
    let kernel = kernel_of_threads();
    busy(&kernel, 100);
    ends(&kernel, 100, Ended::Code(0));
    let recorded = record(&kernel, |_| {});
    let recording = recorded.open();
    assert!(
        recording
            .info()
            .source_reason
            .ends_with("each thread is sampled")
    );
    assert_eq!(recorded.outcome.observed, 2 * 99);

    let error = refused(&kernel_of_threads(), |options| {
        options.timer.sample_by = SampleBy::Cpu;
    });
    let text = error.to_string();
    assert!(text.contains("--sample-by thread"), "{text}");
}

#[test]
fn who_may_sample_nothing_is_told_what_to_do() {
    let refusing = |refusal| {
        let kernel = kernel_of_threads();
        kernel.with(|world| world.refusals.insert(Asked::SamplerOfThread, refusal));
        refused(&kernel, |_| {}).to_string()
    };
    let text = refusing(Denial::NotPermitted);
    assert!(text.contains("kernel.perf_event_paranoid"), "{text}");
    let text = refusing(Denial::NoFiles);
    assert!(text.contains("ulimit -n"), "{text}");
}

#[test]
fn a_heap_that_nobody_tells_of_is_a_loss_and_no_object_is_followed() {
    let kernel = kernel();
    busy(&kernel, 50);
    ends(&kernel, 50, Ended::Code(0));
    // Whether or not the recorder is installed here: nobody loads it into an invented target.
    let recorded = record(&kernel, |options| {
        options.common.heap = HeapWhen::Loaded;
        options.common.flow = Some(crate::Wanted::Most);
    });
    let (count, detail) = recorded.loss("heap-not-recorded").unwrap();
    assert!(count == 1 && detail.contains("heap"), "{detail}");
    assert_eq!(recorded.outcome.observed, 2 * 49);
    // One watchpoint is left for lines.
    assert_eq!(recorded.open().info().watchpoint_bytes, 8);
}

#[test]
fn a_cpu_that_is_offline_is_left_out_and_a_ring_is_as_large_as_may_be() {
    for sample_by in [SampleBy::Cpu, SampleBy::Thread] {
        let kernel = kernel();
        kernel.with(|world| {
            world.offline.insert(1);
            world.refusals.insert(Asked::Ring, Denial::NotPermitted);
        });
        busy(&kernel, 100);
        ends(&kernel, 100, Ended::Code(0));
        let recorded = record(&kernel, |options| options.timer.sample_by = sample_by);
        assert_eq!(recorded.outcome.observed, 99, "{sample_by:?}");
    }
}

#[test]
fn a_machine_that_tells_nothing_of_its_shape_is_sampled_all_the_same() {
    let kernel = kernel();
    kernel.with(|world| world.topology = None);
    busy(&kernel, 50);
    ends(&kernel, 50, Ended::Code(0));
    let recorded = record(&kernel, |options| options.timer.rate = Some(100.0));
    let samples: Vec<Sample> = recorded.rows();
    assert_eq!(samples.len(), 2 * 49);
    assert!(samples.iter().all(|sample| sample.weight == 10_000_000));
    assert_eq!(recorded.open().info().line_size, 64);
}

#[test]
fn an_older_recording_gives_way_only_to_a_target_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder);
    options.common.replace = true;
    let record =
        |kernel: &Invented| record_by(kernel, (&options.common, &options.timer), kernel, |_| {});
    let first = kernel();
    ends(&first, 10, Ended::Code(1));
    record(&first).unwrap();
    let exit_code = || {
        Recording::open(&options.common.directory)
            .unwrap()
            .info()
            .exit_code
    };
    let second = kernel();
    second.with(|world| world.refusals.insert(Asked::Exec, Denial::Other));
    record(&second).unwrap_err();
    assert_eq!(exit_code(), Some(1));
    let third = kernel();
    ends(&third, 10, Ended::Code(2));
    record(&third).unwrap();
    assert_eq!(exit_code(), Some(2));
}
