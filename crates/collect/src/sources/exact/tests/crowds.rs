//! Many threads, and processes that make others.

use linewise_machine::process::Ended;

use super::*;

#[test]
fn two_hundred_threads_at_a_time_are_traced() {
    let programs = Programs::new();
    let Some((counts, outcome)) = count(&programs.compile("threads"), &["200", "200", "5003"])
    else {
        return;
    };
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    assert_eq!(outcome.threads.len(), 201);
    assert_eq!(counts.with(8, [5003, 5003, 0]).len(), 200);
}

#[test]
fn two_thousand_threads_that_come_and_go_are_traced() {
    let programs = Programs::new();
    let Some((counts, outcome)) = count(&programs.compile("threads"), &["8", "2000", "307"]) else {
        return;
    };
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
    assert_eq!(outcome.threads.len(), 2001);
    assert_eq!(counts.with(8, [307, 307, 0]).len(), 2000);
}

#[test]
fn a_consumer_that_is_slow_loses_nothing_and_the_waiting_is_reported() {
    struct Slow(Counts);
    impl Consumer for Slow {
        fn accesses(&mut self, batch: &[TracedAccess]) {
            if self.0.accesses.is_multiple_of(64) {
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            self.0.accesses(batch);
        }
    }
    let programs = Programs::new();
    let options = ExactOptions::new(command(&programs.compile("threads"), &["2", "2", "300007"]));
    let mut slow = Slow(Counts::default());
    let Some(outcome) = try_trace(&options, &mut slow) else {
        return;
    };
    assert_eq!(slow.0.with(8, [300_007, 300_007, 0]).len(), 2);
    assert!(outcome.waited_ns > 0, "{:?}", outcome.totals);
    assert!(outcome.totals.waits > 0);
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
}

#[test]
fn a_forked_child_is_traced_in_an_address_space_of_its_own() {
    let programs = Programs::new();
    let Some((counts, outcome)) = count(&programs.compile("family"), &["fork"]) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Code(5));
    let parents = counts.with(8, [0, 0, 2003]);
    let childs = counts.with(8, [0, 0, 3001]);
    assert_eq!((parents.len(), childs.len()), (1, 1));
    assert_eq!(parents[0], childs[0] & ((1 << 48) - 1));
    assert_ne!(parents[0], childs[0]);
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
}

#[test]
fn a_program_that_replaces_itself_is_traced_before_and_after() {
    let programs = Programs::new();
    let family = programs.compile("family");
    let arguments = ["exec", family.to_str().unwrap(), "fork"];
    let Some((counts, outcome)) = count(&family, &arguments) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Code(5));
    for times in [1009, 2003, 3001] {
        assert_eq!(counts.with(8, [0, 0, times]).len(), 1, "{times}");
    }
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
}

#[test]
fn a_shell_script_and_what_it_runs_are_traced() {
    let programs = Programs::new();
    let family = programs.compile("family");
    let script = programs.path().join("script");
    std::fs::write(
        &script,
        format!(
            "#!/bin/sh\n{0} fork\n{0} fork | cat\nexec {0} fork\n",
            family.display()
        ),
    )
    .unwrap();
    let mut rights = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o755);
    std::fs::set_permissions(&script, rights).unwrap();
    let Some((counts, outcome)) = count(&script, &[]) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Code(5));
    assert_eq!(counts.with(8, [0, 0, 2003]).len(), 3);
    assert_eq!(counts.with(8, [0, 0, 3001]).len(), 3);
    assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
}

#[test]
fn a_program_that_cannot_be_traced_is_a_loss() {
    let programs = Programs::new();
    let family = programs.compile("family");
    let private = programs.path().join("private");
    std::fs::copy("/bin/true", &private).unwrap();
    let mut rights = std::fs::metadata(&private).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o4755);
    std::fs::set_permissions(&private, rights).unwrap();
    let arguments = ["exec", private.to_str().unwrap()];
    let Some((_, outcome)) = count(&family, &arguments) else {
        return;
    };
    assert_eq!(outcome.ended, Ended::Code(0), "it ran all the same");
    assert!(
        outcome
            .losses
            .iter()
            .any(|loss| loss.what == "untraced-program" && loss.detail.contains("private")),
        "{:?}",
        outcome.losses
    );
}
