//! How a recording ends: its time is over, a signal comes, or the collector is killed.

use std::fs;

use linewise_recording::Recording;
use serde_json::Value;

use crate::util::{Place, alive, pipe, signal, total_samples, until};

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
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let running =
            place.start(&mut place.interruptible(["run", "--json", "--", "sh", "-c", SAY_PID]));
        let target = place.wait_for("pid");
        signal(&running.child.id().to_string(), name);
        let output = running.finish();
        assert_eq!(output.code, Some(128 + number), "{}", output.stderr);
        assert_eq!(output.json()["run"]["complete"], true);
        assert!(!alive(&target), "the target was left behind");
        assert!(place.leftovers().is_empty());
        fs::remove_file(place.path("pid")).unwrap();
    }
}

/// A script with two children and an orphan, which say their process ids.
const FAMILY: &str = "sleep 100 & echo $! > first; (sleep 100 & echo $! > orphan)
    sleep 100 & echo $! > second; wait";

#[test]
fn a_script_that_is_ended_leaves_none_of_its_children_behind() {
    for how in ["duration", "TERM"] {
        let place = Place::new();
        let mut command = place.linewise(["record", "-o", "family"]);
        if how == "duration" {
            command.args(["--duration", "400ms"]);
        }
        let running = place.start(command.args(["--", "sh", "-c", FAMILY]));
        let family = ["first", "orphan", "second"].map(|name| place.wait_for(name));
        if how != "duration" {
            signal(&running.child.id().to_string(), how);
        }
        let output = running.finish();
        let code = if how == "duration" { 0 } else { 128 + 15 };
        assert_eq!(output.code, Some(code), "{how}: {}", output.stderr);
        for pid in family {
            assert!(!alive(&pid), "{how}: {pid} was left behind");
        }
    }
}

#[test]
fn a_target_gets_the_signals_that_its_recorder_is_sent_and_no_others() {
    let script =
        "for name in HUP INT QUIT USR1 USR2 ALRM; do trap \"echo $name >> heard\" $name; done
        echo $$ > pid; while [ ! -e enough ]; do sleep 0.02; done; exit 9";
    let place = Place::new();
    let running =
        place.start(&mut place.interruptible(["record", "-o", "made", "--", "bash", "-c", script]));
    place.wait_for("pid");
    let mut all = String::new();
    for name in ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM"] {
        signal(&running.child.id().to_string(), name);
        all += &format!("{name}\n");
        until("the signal", || {
            fs::read_to_string(place.path("heard"))
                .ok()
                .filter(|heard| *heard == all)
        });
    }
    fs::write(place.path("enough"), "").unwrap();
    let output = running.finish();
    assert_eq!(output.code, Some(9), "{}", output.stderr);
    assert_eq!(fs::read_to_string(place.path("heard")).unwrap(), all);
}

#[test]
fn ctrl_c_reaches_a_target_once_and_one_that_lives_on_is_recorded_on() {
    let place = Place::new();
    let script =
        "trap 'echo INT >> heard' INT; trap 'echo TERM >> heard; exit 1' TERM; echo $$ > pid
        while [ ! -e enough ]; do sleep 0.02; done; exit 9";
    fs::write(place.path("script"), script).unwrap();
    // A terminal of its own, whose line discipline sends the signal.
    let python = "import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while not os.path.exists('pid'):
    time.sleep(0.02)
time.sleep(0.1)
os.write(terminal, b'\\x03')
while not os.path.exists('heard'):
    time.sleep(0.02)
time.sleep(0.3)
open('enough', 'w').close()
try:
    while os.read(terminal, 4096):
        pass
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    // Who runs tests in the background has Ctrl-C ignored, and it is not heard in a shell then.
    let output = place.finish(place.command("env").args([
        "--default-signal=INT,QUIT",
        "python3",
        "-c",
        python,
        crate::util::BINARY,
        "record",
        "-o",
        "made",
        "--",
        "bash",
        "script",
    ]));
    assert_eq!(output.code, Some(9), "{}", output.stderr);
    assert_eq!(fs::read_to_string(place.path("heard")).unwrap(), "INT\n");
}

#[test]
fn a_child_that_does_not_listen_is_killed_when_the_user_insists() {
    let place = Place::new();
    let script = r#"sh -c "trap '' TERM; echo \$\$ > deaf; while :; do sleep 0.05; done" & wait"#;
    let running =
        place.start(&mut place.linewise(["record", "-o", "deaf", "--", "sh", "-c", script]));
    let deaf = place.wait_for("deaf");
    let own = running.child.id().to_string();
    signal(&own, "TERM");
    // The script itself is gone at once, and the recording waits for its child.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&own, "TERM");
    let output = running.finish();
    assert_eq!(output.code, Some(128 + 15), "{}", output.stderr);
    assert!(!alive(&deaf), "it was left behind");
}

#[test]
fn what_a_target_leaves_behind_by_itself_goes_on() {
    let place = Place::new();
    let script = "sleep 100 & echo $! > daemon; exit 6";
    let output =
        place.finish(&mut place.linewise(["record", "-o", "daemon", "--", "sh", "-c", script]));
    assert_eq!(output.code, Some(6), "{}", output.stderr);
    let daemon = place.wait_for("daemon");
    assert!(alive(&daemon), "it was ended");
    signal(&daemon, "KILL");
}

/// Waits until the recording below `directory` has ended properly.
fn until_complete(recording: &std::path::Path) {
    until("the recording to end", || {
        let text = fs::read_to_string(recording.join("run.json")).ok()?;
        let run: serde_json::Value = serde_json::from_str(&text).ok()?;
        (run["complete"] == true).then_some(())
    });
}

#[test]
fn a_signal_while_the_report_is_made_ends_linewise_at_once() {
    use std::os::unix::process::ExitStatusExt;
    for kept in [true, false] {
        let place = Place::new();
        // A report to a pipe that nobody reads is never done.
        pipe(&place.path("report"));
        let mut command = place.interruptible(["run", "--report-to", "report"]);
        if kept {
            command.args(["-o", "kept"]);
        }
        let mut running = place.start(command.args(["--", "true"]));
        let recording = if kept {
            place.path("kept.linewise")
        } else {
            until("the scratch folder", || place.leftovers().pop()).join("run.linewise")
        };
        until_complete(&recording);
        // One that comes before the report is begun belongs to the recording.
        let own = running.child.id().to_string();
        let status = until("the end", || {
            signal(&own, "INT");
            std::thread::sleep(std::time::Duration::from_millis(20));
            running.child.try_wait().unwrap()
        });
        assert_eq!(status.signal(), Some(2));
        assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
        if kept {
            let output = place.finish(&mut place.linewise(["report", "--json", "kept.linewise"]));
            assert_eq!(output.json()["run"]["complete"], true, "{}", output.stderr);
        }
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_and_nothing_else() {
    let place = Place::new();
    let mut running =
        place.start(&mut place.linewise(["run", "--", "sh", "-c", "echo $$ > pid; sleep 100"]));
    let target = place.wait_for("pid");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    signal(&target, "KILL");
    let left = place.leftovers();
    assert_eq!(left.len(), 1, "{left:?}");

    // A process that is alive, other names, what is no folder, and what is somewhere else.
    let mut others = Vec::new();
    let own = format!("linewise-{}-7", std::process::id());
    for name in [own.as_str(), "linewise-notes-1", "my-linewise-4194999-0"] {
        others.push(place.path("tmp").join(name));
        fs::create_dir(others.last().unwrap()).unwrap();
    }
    others.push(place.path("tmp/linewise-4194999-1"));
    fs::write(others.last().unwrap(), "precious").unwrap();
    fs::create_dir(place.path("elsewhere")).unwrap();
    fs::write(place.path("elsewhere/file"), "precious").unwrap();
    others.push(place.path("tmp/linewise-4194999-2"));
    std::os::unix::fs::symlink(place.path("elsewhere"), others.last().unwrap()).unwrap();

    let output = place.finish(&mut place.linewise(["run", "--", "true"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let mut found = place.leftovers();
    found.sort();
    others.sort();
    assert_eq!(found, others);
    assert!(place.path("elsewhere/file").exists());
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
    // Not so soon that it is taken for an echo of the first, as timeout(1) sends it.
    std::thread::sleep(std::time::Duration::from_millis(300));
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
    until("samples and what holds so far on the disk", || {
        let opened = Recording::open(&recording).ok()?;
        let tables = opened.tables().ok()?;
        (!tables.samples.is_empty() && opened.info().overhead.estimated > 0.0).then_some(())
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
    // What is usually written last is there all the same: threads, the account, names.
    let threads = report["run"]["threads"].as_array().unwrap();
    let cpu_ns = |thread: &Value| thread["cpu_time_ns"].as_u64().unwrap();
    assert!(threads.iter().any(|it| cpu_ns(it) > 0), "{threads:?}");
    assert!(report["run"]["overhead"]["estimated"].as_f64().unwrap() > 0.0);
    assert!(output.stdout.contains("target.c"), "{}", output.stdout);
}
