//! `--pid`: processes that are gone, somebody else's, left running, or end meanwhile.

use std::process::Command;

use crate::util::{BINARY, Place, alive, as_somebody_else, signal, threads};

#[test]
fn a_process_that_is_gone_is_named() {
    let place = Place::new();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for pid in [gone.id().to_string(), "0".to_owned(), u32::MAX.to_string()] {
        let output = place.finish(&mut place.linewise(["run", "--pid", &pid]));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(
            output
                .stderr
                .contains(&format!("there is no process {pid}")),
            "{}",
            output.stderr
        );
    }
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    let place = Place::new();
    let Some(mut command) = as_somebody_else(&place) else {
        return;
    };
    crate::util::open_to_all(&place);
    let pid = std::process::id().to_string();
    let output = place.finish(command.args([BINARY, "run", "--pid", &pid]));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains(&format!("process {pid} is not yours to record")),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("as its owner or as root"),
        "{}",
        output.stderr
    );
    assert!(place.leftovers().is_empty());
}

#[test]
fn an_attached_process_outlives_its_recording() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let mut running = place.start(place.command(target).args(["take-after", "enough"]));
    let pid = running.child.id().to_string();
    let output =
        place.finish(&mut place.linewise(["run", "--json", "--pid", &pid, "--duration", "500ms"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(threads(&output.json()).len(), 3, "{}", output.stdout);
    assert!(running.child.try_wait().unwrap().is_none(), "it was ended");
    std::fs::write(place.path("enough"), "").unwrap();
    // Its two threads get all their four debug registers: nothing stayed armed.
    assert_eq!(running.finish().code, Some(8));
}

#[test]
fn an_attached_process_that_ends_ends_its_recording_though_nobody_waits_for_it() {
    let place = Place::new();
    let mut child = place.command("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let running = place.start(&mut place.linewise(["record", "-o", "end", "--pid", &pid]));
    crate::util::until("the recording to begin", || {
        place.path("end.linewise/run.json").exists().then_some(())
    });
    signal(&pid, "TERM");
    crate::util::until("the process to end", || (!alive(&pid)).then_some(()));
    let output = running.finish();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    child.wait().unwrap();
}

#[test]
fn threads_beyond_the_limit_of_open_files_are_counted_and_the_others_sampled() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let running = place.start(place.command(target).args(["crowd", "enough"]));
    let pid = running.child.id().to_string();
    crate::util::until("300 threads", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        (tasks.count() == 301).then_some(())
    });
    // The threads work for half a millisecond at a time: the period has to be shorter, whatever a
    // sample was measured to cost.
    let script = "ulimit -n 200 && exec \"$0\" run --json --sample-by thread --rate 10000 --pid $1 --duration 1s";
    let output = place.finish(place.command("sh").args(["-c", script, BINARY, &pid]));
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let report = output.json();
    let lost = &report["losses"]["threads-not-sampled"];
    let count = lost["count"].as_u64().unwrap_or(0);
    assert!((1..301).contains(&count), "{:#}", report["losses"]);
    let reason = lost["detail"].as_str().unwrap();
    assert!(
        reason.contains("of the 301 threads") && reason.contains("raise it with `ulimit -n "),
        "{reason}"
    );
    assert!(output.stderr.contains(reason), "{}", output.stderr);
    assert!(crate::util::total_samples(&report) > 0);
    assert_eq!(running.finish().code, Some(12));
}
