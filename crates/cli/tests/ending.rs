//! How a recording ends: its time is over, a signal comes, or the collector is killed.

use std::fs;

use crate::util::{Place, alive, signal, total_samples, until};

/// A shell command that says its process id and becomes the target.
const SAY_PID: &str = "echo $$ > pid; exec ./target fight 40";

#[test]
fn a_duration_ends_the_target_and_gives_0() {
    let place = Place::new();
    let Some(_) = place.target() else { return };
    let output = place.finish(&mut place.linewise([
        "run",
        "--json",
        "--duration",
        "400ms",
        "--",
        "sh",
        "-c",
        SAY_PID,
    ]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let report = output.json();
    assert_eq!(report["run"]["exit_signal"], 15);
    assert!(total_samples(&report) > 0);
    assert!(!alive(&place.wait_for("pid")), "the target was left behind");
    assert!(place.leftovers().is_empty());
}

#[test]
fn sigint_and_sigterm_end_a_recording_that_still_reports() {
    let place = Place::new();
    let Some(_) = place.target() else { return };
    for name in ["INT", "TERM"] {
        let running =
            place.start(&mut place.linewise(["run", "--json", "--", "sh", "-c", SAY_PID]));
        let target = place.wait_for("pid");
        signal(&running.child.id().to_string(), name);
        let output = running.finish();
        assert_eq!(output.code, Some(128 + 15), "{}", output.stderr);
        assert_eq!(output.json()["run"]["complete"], true);
        assert!(!alive(&target), "the target was left behind");
        assert!(place.leftovers().is_empty());
        fs::remove_file(place.path("pid")).unwrap();
    }
}

#[test]
fn a_second_signal_ends_a_target_that_does_not_listen() {
    let place = Place::new();
    let script = "trap 'echo asked > asked' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let running = place.start(&mut place.linewise(["run", "--json", "--", "sh", "-c", script]));
    let target = place.wait_for("pid");
    let own = running.child.id().to_string();
    signal(&own, "TERM");
    place.wait_for("asked");
    assert!(alive(&target));
    signal(&own, "TERM");
    let output = running.finish();
    assert_eq!(output.code, Some(128 + 9), "{}", output.stderr);
    assert!(!alive(&target));
}

#[test]
fn a_killed_collector_leaves_the_target_untouched_and_a_recording_that_says_so() {
    let place = Place::new();
    let Some(_) = place.target() else { return };
    let script = "./target take-after enough; echo $? > code";
    let mut running =
        place.start(&mut place.linewise(["record", "-o", "killed", "--", "sh", "-c", script]));
    let recording = place.path("killed.linewise");
    until("samples on the disk", || {
        let mut names = fs::read_dir(&recording)
            .ok()?
            .map(|entry| entry.unwrap().file_name());
        names
            .any(|name| name.to_string_lossy().starts_with("samples."))
            .then_some(())
    });
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    fs::write(place.path("enough"), "").unwrap();
    // The code is how many debug registers its two threads then got: all of them.
    assert_eq!(place.wait_for("code"), "8");

    let output = place.finish(&mut place.linewise(["report", "killed.linewise"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output.words().contains("The recording was cut short"),
        "{}",
        output.stdout
    );
    let output = place.finish(&mut place.linewise(["report", "--json", "killed.linewise"]));
    let report = output.json();
    assert_eq!(report["run"]["complete"], false);
    assert!(total_samples(&report) > 0);
}
