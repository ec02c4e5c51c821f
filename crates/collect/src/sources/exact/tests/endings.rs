//! That the target's end is its own, and that nobody waits for ever.

use std::time::Duration;

use linewise_machine::process::Ended;

use super::*;

#[test]
fn exit_codes_and_signals_are_the_targets_own() {
    let programs = Programs::new();
    let program = programs.compile("endings");
    for (arguments, ended) in [
        (&["code", "7"][..], Ended::Code(7)),
        (&["exit", "9"], Ended::Code(9)),
        (&["signal", "6"], Ended::Signal(6)),
        (&["signal", "15"], Ended::Signal(15)),
        (&["signal", "9"], Ended::Signal(9)),
        (&["fault"], Ended::Signal(11)),
    ] {
        let Some((counts, outcome)) = count(&program, arguments) else {
            return;
        };
        assert_eq!(outcome.ended, ended, "{arguments:?}");
        assert_eq!(outcome.ended_by, EndedBy::TargetExited);
        assert!(counts.accesses > 1000);
    }
}

#[test]
fn an_illegal_instruction_is_explained() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the program is for x86-64");
        return;
    }
    let programs = Programs::new();
    let Some((_, outcome)) = count(&programs.compile("endings"), &["illegal"]) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Signal(4));
    assert!(
        outcome
            .losses
            .iter()
            .any(|loss| loss.detail.contains("AVX-512")),
        "{:?}",
        outcome.losses
    );
}

#[test]
fn after_the_duration_the_target_is_asked_to_end() {
    let programs = Programs::new();
    let mut options = ExactOptions::new(command(&programs.compile("endings"), &["for-ever"]));
    options.duration = Some(Duration::from_millis(300));
    let mut counts = Counts::default();
    let Some(outcome) = try_trace(&options, &mut counts) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Signal(15));
    assert_eq!(outcome.ended_by, EndedBy::Duration);
    assert!(counts.accesses > 10_000);
}

#[test]
fn what_cannot_be_traced_is_named_with_what_to_do() {
    let trace_it = |name: &str| {
        trace(
            &ExactOptions::new(vec![name.into()]),
            &StopSignals::block().unwrap(),
            &mut Counts::default(),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(trace_it("no-such-program-anywhere").contains("no such program"));
    assert!(trace_it("/etc/passwd").contains("not executable"));
}

#[test]
fn without_a_thread_to_measure_with_the_target_does_not_begin() {
    struct Alone;
    impl Consumer for Alone {
        fn begin(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::WouldBlock.into())
        }
        fn accesses(&mut self, _: &[TracedAccess]) {}
    }
    let programs = Programs::new();
    let made = programs.path().join("made");
    let words = ["-c", &format!("echo > {}", made.display())];
    let options = ExactOptions::new(command(Path::new("/bin/sh"), &words));
    match trace(&options, &StopSignals::block().unwrap(), &mut Alone) {
        Err(error @ Error::Exact(ExactError::NoQemu { .. })) => println!("skipped: {error}"),
        Err(error @ Error::Exact(ExactError::Threads(_))) => {
            assert!(error.to_string().contains("ulimit -u"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!made.exists());
}
