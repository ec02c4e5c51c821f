//! `--guard`: threads that are traced while they are watched.

use std::fs;

use crate::util::{Place, signal, until};

/// Of each thread of a process: its state's letter and who traces it.
fn threads(pid: &str) -> Vec<(String, u32)> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
                .unwrap()
                .to_owned()
        };
        threads.push((field("State:"), field("TracerPid:").parse().unwrap()));
    }
    threads
}

fn traced(pid: &str) -> bool {
    threads(pid).iter().any(|(_, tracer)| *tracer != 0)
}

#[test]
fn a_trap_without_its_reason_does_not_end_a_guarded_target() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    // Eleven seconds for each of its threads to be watched for the first time, and so guarded: other tests keep the CPUs busy.
    let output = place.finish(
        place
            .linewise(["run", "--guard", "on", "--"])
            .arg(target)
            .args(["lost-trap", "12"]),
    );
    assert_eq!(output.code, Some(14), "{}{}", output.stdout, output.stderr);
    assert!(
        output.words().contains("traps-without-reason"),
        "{}",
        output.stdout
    );
}

#[test]
fn without_a_guard_it_ends_the_target_as_it_would_alone() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let output = place.finish(
        place
            .linewise(["run", "--guard", "off", "--"])
            .arg(target)
            .args(["lost-trap", "2"]),
    );
    assert_eq!(output.code, Some(128 + 5), "{}", output.stderr);
}

#[test]
fn a_guarded_target_gets_all_its_signals() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let output = place.finish(
        place
            .linewise(["record", "--guard", "on", "--"])
            .arg(target)
            .args(["signals", "1"]),
    );
    assert_eq!(output.code, Some(15), "{}", output.stderr);
    let (said, heard) = output.stdout.trim().split_once(' ').unwrap();
    assert_eq!(said, heard);
    assert_ne!(said, "0");
}

#[test]
fn a_guarded_process_stops_and_goes_on_when_told_and_is_let_go_at_the_end() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let fighting = place.start(place.command(target).args(["fight", "40"]));
    let pid = fighting.child.id().to_string();
    for killed in [false, true] {
        let recording = place.start(&mut place.interruptible([
            "record", "--guard", "on", "--force", "-o", "guarded", "--pid", &pid,
        ]));
        until("a thread to be guarded", || traced(&pid).then_some(()));
        signal(&pid, "STOP");
        until("all threads to stop", || {
            threads(&pid)
                .iter()
                .all(|(state, _)| state.eq_ignore_ascii_case("t"))
                .then_some(())
        });
        signal(&pid, "CONT");
        until("a thread to run again", || {
            threads(&pid)
                .iter()
                .any(|(state, _)| state == "R")
                .then_some(())
        });
        let recorder = recording.child.id().to_string();
        signal(&recorder, if killed { "KILL" } else { "INT" });
        let output = recording.finish();
        assert_eq!(output.code, (!killed).then_some(0), "{}", output.stderr);
        // The guard of a collector that was killed lets go once what that had armed is gone.
        until("the threads to be let go", || (!traced(&pid)).then_some(()));
        until("a thread to run untraced", || {
            threads(&pid)
                .iter()
                .any(|(state, _)| state == "R")
                .then_some(())
        });
    }
    signal(&pid, "TERM");
    assert_eq!(fighting.finish().code, None);
}

/// The child of a recorder that runs the target.
fn target_of(recorder: &str) -> String {
    until("the target", || {
        let children = fs::read_to_string(format!("/proc/{recorder}/task/{recorder}/children"));
        let children = children.unwrap_or_default();
        let mut children = children.split_whitespace();
        let is_target = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "target\n")
        };
        children.find(is_target).map(str::to_owned)
    })
}

/// The guard of a target, once it has one.
fn guard_of(pid: &str) -> String {
    until("a thread to be guarded", || {
        let traced = threads(pid).into_iter().find(|(_, tracer)| *tracer != 0);
        traced.map(|(_, tracer)| tracer.to_string())
    })
}

#[test]
fn a_collector_that_stands_still_holds_nobody_up() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let recording = place.start(
        place
            .linewise(["record", "--guard", "on", "--"])
            .arg(target)
            .args(["signals", "3"]),
    );
    let recorder = recording.child.id().to_string();
    let guarded = target_of(&recorder);
    guard_of(&guarded);
    signal(&recorder, "STOP");
    until("the target to end", || {
        threads(&guarded)
            .iter()
            .all(|(state, _)| state == "Z")
            .then_some(())
    });
    signal(&recorder, "CONT");
    let output = recording.finish();
    assert_eq!(output.code, Some(15), "{}", output.stderr);
    let (said, heard) = output.stdout.trim().split_once(' ').unwrap();
    assert_eq!(said, heard);
}

#[test]
fn a_guard_that_stands_still_is_ended_and_nothing_is_watched_any_more() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    for how in ["STOP", "KILL"] {
        let recording = place.start(
            place
                .linewise(["run", "--guard", "on", "--"])
                .arg(&target)
                .args(["signals", "3"]),
        );
        let recorder = recording.child.id().to_string();
        let guarded = target_of(&recorder);
        let guard = guard_of(&guarded);
        signal(&guard, how);
        until("the guard to end", || {
            (!fs::exists(format!("/proc/{guard}")).unwrap()).then_some(())
        });
        let output = recording.finish();
        assert_eq!(output.code, Some(15), "{how}: {}", output.stderr);
        assert!(
            output.words().contains("threads-not-guarded"),
            "{how}: {}",
            output.stdout
        );
    }
}

#[test]
fn a_guard_ends_with_its_collector() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let fighting = place.start(place.command(target).args(["fight", "40"]));
    let pid = fighting.child.id().to_string();
    let recording = place
        .start(&mut place.linewise(["record", "--guard", "on", "-o", "guarded", "--pid", &pid]));
    let guard = guard_of(&pid);
    signal(&recording.child.id().to_string(), "KILL");
    recording.finish();
    until("the guard to end", || {
        (!fs::exists(format!("/proc/{guard}")).unwrap()).then_some(())
    });
    assert!(!traced(&pid));
    signal(&pid, "TERM");
    assert_eq!(fighting.finish().code, None);
}
