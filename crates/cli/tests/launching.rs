//! Programs that cannot be started, end badly or become another, and what passes through to them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::util::{Place, threads, total_samples};

#[test]
fn a_program_that_does_not_exist_gives_127_and_leaves_nothing() {
    let place = Place::new();
    for verb in [&["run"][..], &["record", "-o", "kept"]] {
        let output = place.finish(place.linewise(verb).args(["--", "./no-such-program"]));
        assert_eq!(output.code, Some(127), "{}", output.stderr);
        assert!(
            output.stderr.contains("./no-such-program: no such program"),
            "{}",
            output.stderr
        );
        assert_eq!(output.stdout, "");
    }
    assert!(!place.path("kept.linewise").exists());
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_file_that_is_not_executable_gives_126_and_leaves_nothing() {
    let place = Place::new();
    fs::write(place.path("notes.txt"), "no program\n").unwrap();
    for command in ["./notes.txt", "./tmp", "./notes.txt/deeper"] {
        let output = place.finish(&mut place.linewise(["record", "-o", "kept", "--", command]));
        assert_eq!(output.code, Some(126), "{command}: {}", output.stderr);
        assert!(
            output.stderr.contains(&format!("cannot run {command}:")),
            "{}",
            output.stderr
        );
        assert!(!place.path("kept.linewise").exists());
    }
}

#[test]
fn a_program_that_exits_at_once_keeps_its_code_and_is_called_too_short() {
    let place = Place::new();
    let output = place.finish(&mut place.linewise(["run", "--", "sh", "-c", "exit 7"]));
    assert_eq!(output.code, Some(7), "{}", output.stderr);
    let words = output.words();
    assert!(words.contains("Too short to say anything: "), "{words}");
    assert!(
        words.contains(" samples of its own code, at least "),
        "{words}"
    );
    assert!(words.contains("Run the program for longer"), "{words}");
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_crash_is_reported_and_gives_139() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let output = place.finish(
        place
            .linewise(["run", "--"])
            .arg(target)
            .args(["crash", "0.3"]),
    );
    assert_eq!(output.code, Some(139), "{}", output.stderr);
    assert!(
        output.words().contains("ended by signal 11"),
        "{}",
        output.stdout
    );
}

#[test]
fn a_killed_target_gives_137() {
    let place = Place::new();
    let output =
        place.finish(&mut place.linewise(["run", "--json", "--", "sh", "-c", "kill -KILL $$"]));
    assert_eq!(output.code, Some(137), "{}", output.stderr);
    assert_eq!(output.json()["run"]["exit_signal"], 9);
}

#[test]
fn a_target_that_executes_another_program_is_followed_into_it() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    fs::copy(&target, place.path("other")).unwrap();
    let output = place.finish(
        place
            .linewise(["run", "--json", "--"])
            .arg(target)
            .args(["exec", "0.3"]),
    );
    assert_eq!(output.code, Some(5), "{}", output.stderr);
    let report = output.json();
    // The program that was executed made the two threads that fight, under its own name; the first one had another before.
    let named = |name: &str| {
        let rows = threads(&report).iter();
        rows.filter(|thread| thread["name"] == name).count()
    };
    let names = [named("other"), named("target, then other")];
    assert_eq!(names, [2, 1], "{:#}", report["run"]);
    assert!(total_samples(&report) > 0);
}

#[test]
fn standard_input_and_output_are_the_targets_own() {
    let place = Place::new();
    let mut child = place
        .linewise([
            "run",
            "--report-to",
            "report.txt",
            "--",
            "sh",
            "-c",
            "cat; echo complaint >&2; exit 3",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"one\ntwo\0three")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"one\ntwo\0three");
    assert_eq!(output.stderr, b"complaint\n");
    let report = fs::read_to_string(place.path("report.txt")).unwrap();
    assert!(report.contains("exit code 3"), "{report}");
}

#[test]
fn what_a_target_inherits_is_what_it_would_inherit_without_us() {
    let place = Place::new();
    let show = "ulimit -Sn; nice; ls /proc/self/fd | wc -l; grep -E '^(SigBlk|SigIgn|Cpus_allowed):' /proc/self/status";
    let limited = |ours: &str| {
        let script = format!("ulimit -Sn 123; nice -n 5 {ours} sh -c \"$SHOW\"");
        let output = place.finish(
            place
                .command("sh")
                .arg("-c")
                .arg(script)
                .env("SHOW", show)
                .env("LINEWISE", crate::util::BINARY),
        );
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let alone = limited("");
    assert!(alone.starts_with("123\n5\n"), "{alone}");
    assert_eq!(
        limited("\"$LINEWISE\" run --report-to report.txt --"),
        alone
    );
}

/// Sizes of a process, kB, and its threads: what would grow if something were put into it.
fn sizes(status: &str) -> Vec<&str> {
    // Not the stack, whose size differs from run to run.
    let names = [
        "VmData:", "VmExe:", "VmLib:", "VmLck:", "VmPin:", "Threads:",
    ];
    let lines = status.lines();
    lines
        .filter(|line| names.iter().any(|name| line.starts_with(name)))
        .collect()
}

#[test]
fn a_recorded_target_has_the_memory_that_it_has_alone() {
    let place = Place::new();
    let command = ["cat", "/proc/self/status"];
    let alone = Command::new(command[0])
        .args(&command[1..])
        .output()
        .unwrap();
    let alone = String::from_utf8(alone.stdout).unwrap();
    let recorded = place.finish(
        place
            .linewise(["record", "-q", "-o", "kept", "--"])
            .args(command),
    );
    assert_eq!(sizes(&alone).len(), 6, "{alone}");
    assert_eq!(sizes(&recorded.stdout), sizes(&alone));
}

#[test]
fn json_on_the_standard_output_is_not_mixed_with_what_the_command_prints() {
    let place = Place::new();
    let shell = ["sh", "-c", "echo mine; exit 3"];
    let output = place.finish(place.linewise(["run", "--json", "--"]).args(shell));
    assert_eq!(output.code, Some(3), "{}", output.stderr);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(report["schema"].is_number(), "{}", output.stdout);
    assert!(output.stderr.starts_with("mine\n"), "{}", output.stderr);
    let closed = format!(
        "exec {} run --json -- sh -c 'echo mine; exit 3' 2>&-",
        crate::util::BINARY
    );
    let output = place.finish(place.command("sh").args(["-c", &closed]));
    assert_eq!(output.code, Some(3), "{}", output.stderr);
    assert!(
        serde_json::from_str::<serde_json::Value>(&output.stdout).is_ok(),
        "{}",
        output.stdout
    );
    // Where the report is elsewhere, the standard output is the command's.
    let run = ["run", "--json", "--report-to", "report.json", "--"];
    let output = place.finish(place.linewise(run).args(shell));
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "mine\n"));
}
