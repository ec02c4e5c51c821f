//! Recordings that fail: the target goes on, and how it ended is known.

use linewise_recording::{Sample, Thread};

use super::*;

/// Nothing more can be written to the recording.
fn fill_the_disk(folder: &std::path::Path) {
    std::fs::rename(folder.join("recording"), folder.join("gone")).unwrap();
    let _ = std::fs::remove_dir_all(folder.join("gone"));
}

fn record_into(folder: &tempfile::TempDir, kernel: &Invented) -> (Outcome, Vec<String>) {
    let mut told = Vec::new();
    let mut options = options(folder);
    options.common.duration = Some(ms(5_000));
    let outcome = record_by(
        kernel,
        (&options.common, &options.timer),
        kernel,
        |event| match event {
            Event::Failed(error) => told.push(format!("failed {error}")),
            Event::CutShort(error) => told.push(format!("cut short {error}")),
            Event::Progress(_) | Event::Warning(_) => {}
        },
    );
    assert_eq!(kernel.with(|world| world.open()), 0);
    (outcome.unwrap(), told)
}

/// So long by a real clock that the writer is due to write.
fn until_the_writer_is_due() {
    std::thread::sleep(ms(1_050));
}

#[test]
fn where_nothing_can_be_written_any_more_the_target_runs_on_unwatched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let kernel = kernel();
    busy(&kernel, 400);
    kernel.at(200_000, move |_| {
        fill_the_disk(&path);
        until_the_writer_is_due();
    });
    kernel.at(300_000, |world| {
        assert_eq!((world.armed(), world.open()), (Vec::new(), 0));
    });
    ends(&kernel, 400, Ended::Code(7));
    let (outcome, told) = record_into(&folder, &kernel);
    assert!(
        matches!(outcome.failure, Some(Error::Recording(_))),
        "{told:?}"
    );
    assert_eq!(
        (outcome.ended, outcome.ended_by),
        (Some(Ended::Code(7)), EndedBy::TargetExited)
    );
    assert!(
        told.len() == 1 && told[0].starts_with("failed "),
        "{told:?}"
    );
}

#[test]
fn a_recording_that_cannot_be_completed_is_cut_short_and_the_exit_code_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let kernel = kernel();
    busy(&kernel, 100);
    kernel.at(90_000, move |_| fill_the_disk(&path));
    ends(&kernel, 100, Ended::Code(4));
    let (outcome, told) = record_into(&folder, &kernel);
    assert!(
        matches!(outcome.failure, Some(Error::Recording(_))),
        "{told:?}"
    );
    assert_eq!(outcome.ended, Some(Ended::Code(4)));
    assert!(
        told.len() == 1 && told[0].starts_with("cut short "),
        "{told:?}"
    );
}

#[test]
fn a_panic_takes_neither_the_target_nor_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = kernel();
    busy(&kernel, 400);
    kernel.at(100_000, |_| until_the_writer_is_due());
    kernel.at(200_000, |_| panic!("an invented bug"));
    ends(&kernel, 400, Ended::Code(5));
    let (outcome, told) = record_into(&folder, &kernel);
    assert!(
        matches!(outcome.failure, Some(Error::Bug { .. })),
        "{told:?}"
    );
    assert_eq!(outcome.ended, Some(Ended::Code(5)));
    assert!(told[0].contains("an invented bug"), "{told:?}");
    // What was flushed can be read.
    let recording = Recording::open(&folder.path().join("recording")).unwrap();
    assert!(!recording.info().complete);
    assert!(recording.read::<Sample>().unwrap().len() > 100);
    assert_eq!(recording.read::<Thread>().unwrap().len(), 2);
    assert!(recording.info().overhead.samples_per_second > 0.0);
}

#[test]
fn the_time_and_signals_of_a_target_count_though_its_recording_has_failed() {
    let record = |script: &dyn Fn(&Invented)| {
        let folder = tempfile::tempdir().unwrap();
        let kernel = kernel();
        kernel.at(100_000, |_| panic!("an invented bug"));
        script(&kernel);
        let (outcome, _) = record_into(&folder, &kernel);
        assert!(outcome.failure.is_some());
        (outcome.ended_by, outcome.ended)
    };
    let terminated = Some(Ended::Signal(15));
    assert_eq!(record(&|_| {}), (EndedBy::Duration, terminated));
    let by_signal = record(&|kernel| {
        kernel.at(200_000, |world| {
            world.signals.push_back(linewise_machine::signals::Heard {
                signal: 15,
                by_terminal: false,
            });
        });
    });
    assert_eq!(by_signal, (EndedBy::Interrupted, terminated));
}

#[test]
fn a_place_that_is_taken_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("recording"), "a file").unwrap();
    let kernel = kernel();
    let options = options(&folder);
    let outcome = record_by(&kernel, (&options.common, &options.timer), &kernel, |_| {});
    assert!(matches!(outcome, Err(Error::Recording(_))));
    assert_eq!(kernel.with(|world| world.endings.len()), 0);
}
