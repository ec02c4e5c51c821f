//! `--source exact` with programs that crash, multiply, hide or lock themselves in: each must be what it is under plain
//! QEMU.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use linewise_recording::{Recording, RunInfo};

use crate::util::{Place, alive, emulator, open_to_all, root, skip};

const RECORD: [&str; 6] = ["record", "--source", "exact", "-o", "made", "--"];

/// `faults.c`, built with these flags; `None` where that or the emulator is missing.
fn program(place: &Place, flags: &[&str]) -> Option<PathBuf> {
    let source = "tests/conformance/faults.c";
    emulator().then(|| place.compile("gcc", source, "program", flags))?
}

/// How a program ended, and what it wrote.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The program by plain QEMU, without what QEMU says of its end.
fn plain(place: &Place, program: &Path, words: &[&str]) -> Ended {
    let mut command = place.command(format!("qemu-{}", std::env::consts::ARCH));
    let output = command
        .args(["-cpu", "max"])
        .arg(program)
        .args(words)
        .output()
        .unwrap();
    let status = output.status;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stderr = text(&output.stderr);
    let lines = stderr.split_inclusive('\n');
    Ended {
        code: status.code().or_else(|| Some(128 + status.signal()?)),
        stdout: text(&output.stdout),
        stderr: lines
            .filter(|line| !line.starts_with("qemu: uncaught target signal "))
            .collect(),
    }
}

/// The program by linewise, whose own lines are taken away.
fn traced(place: &Place, program: &Path, words: &[&str]) -> Ended {
    let _ = fs::remove_dir_all(place.path("made.linewise"));
    let mut command = place.linewise(RECORD);
    let output = place.finish(command.arg(program).args(words));
    let lines = output.stderr.split_inclusive('\n');
    let own = |line: &&str| line.starts_with("linewise: ");
    Ended {
        code: output.code,
        stdout: output.stdout,
        stderr: lines.filter(|line| !own(line)).collect(),
    }
}

/// The losses of the last recording: what, how many, and in which words.
fn losses(place: &Place) -> Vec<(String, u64, String)> {
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    assert!(recording.info().complete);
    let losses = recording.tables().unwrap().losses;
    let row = |loss: linewise_recording::Loss| (loss.what, loss.count, loss.detail);
    losses.into_iter().map(row).collect()
}

fn info(place: &Place) -> RunInfo {
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    recording.info().clone()
}

/// Runs the program in both ways, which must be the same; what it did.
fn same(place: &Place, program: &Path, words: &[&str]) -> Ended {
    let expected = plain(place, program, words);
    let found = traced(place, program, words);
    assert_eq!(found, expected, "{words:?}");
    assert!(info(place).complete, "{words:?}");
    found
}

#[test]
fn signals_crashes_and_calls_are_what_they_are_under_plain_qemu() {
    let place = Place::new();
    let Some(program) = program(&place, &[]) else {
        return;
    };
    for (words, code) in [
        (&["fault"][..], 128 + 11),
        (&["abort"], 128 + 6),
        (&["killed"], 128 + 9),
        (&["stopped"], 1),
        (&["vfork"], 1),
        (&["clone3"], 1),
        (&["ptrace"], 1),
        (&["breakpoint"], 1),
        (&["blocked"], 1),
        (&["strict"], 1),
        (&["list"], 1),
        (&["errno"], 1),
        (&["closed"], 11),
        (&["files"], 1),
        (&["little-memory"], 1),
        (&["itself"], 11),
    ] {
        let ended = same(&place, &program, words);
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
    }
}

#[test]
fn crowds_of_processes_and_threads_are_what_they_are_under_plain_qemu() {
    let place = Place::new();
    let Some(program) = program(&place, &[]) else {
        return;
    };
    for words in [["forks", "500"], ["threads", "800"]] {
        let ended = same(&place, &program, &words);
        assert_eq!(ended.code, Some(1), "{words:?}: {ended:?}");
        assert_eq!(losses(&place), []);
    }
}

#[test]
fn a_program_that_executes_itself_three_hundred_times_is_traced_each_time() {
    let place = Place::new();
    let Some(program) = program(&place, &["-static"]) else {
        return;
    };
    let ended = same(&place, &program, &["execs", "300"]);
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(losses(&place), []);
}

#[test]
fn a_daemon_goes_on_when_the_command_has_ended() {
    let place = Place::new();
    let Some(program) = program(&place, &[]) else {
        return;
    };
    let found = traced(&place, &program, &["daemon"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    fs::write(place.path("enough"), "").unwrap();
    assert_eq!(place.wait_for("daemon"), "alone");
    assert!(losses(&place).iter().any(|loss| loss.0 == "still-running"));
}

#[test]
fn a_program_that_qemu_cannot_follow_runs_all_the_same_and_is_a_loss() {
    if !root() {
        skip("only root can become somebody else");
        return;
    }
    let place = Place::new();
    let Some(program) = program(&place, &["-static"]) else {
        return;
    };
    open_to_all(&place);
    fs::create_dir(place.path("jail")).unwrap();
    fs::copy(&program, place.path("jail/program")).unwrap();
    let jail = place.path("jail").display().to_string();
    for (words, user) in [(&["user"][..], 65534), (&["root", &jail], 0)] {
        let ended = same(&place, &program, words);
        assert_eq!(ended.code, Some(11), "{words:?}: {ended:?}");
        assert!(
            ended.stdout.starts_with(&format!("user {user}\n")),
            "{ended:?}"
        );
        let losses = losses(&place);
        let told = losses.iter().find(|loss| loss.0 == "untraced-program");
        let detail = &told.unwrap_or_else(|| panic!("{losses:?}")).2;
        assert!(detail.contains("changed its user"), "{detail}");
    }
    let ended = same(&place, &program, &["rights"]);
    assert_eq!(ended.code, Some(11), "{ended:?}");
    assert_eq!(losses(&place), [], "it is traced");
}

#[test]
fn a_child_in_another_namespace_of_process_ids_is_traced_under_its_own_number() {
    if !root() {
        skip("only root can make a namespace of process ids");
        return;
    }
    let place = Place::new();
    let Some(program) = program(&place, &[]) else {
        return;
    };
    let ended = same(&place, &program, &["space"]);
    if ended.stdout.contains("no namespace") {
        skip("no namespace of process ids can be made here");
        return;
    }
    assert_eq!(losses(&place), []);
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    let tables = recording.tables().unwrap();
    let ids = |thread: &linewise_recording::Thread| (thread.pid.0, thread.tid.0);
    assert!(
        tables
            .threads
            .iter()
            .map(ids)
            .all(|(pid, tid)| pid > 2 && tid == pid),
        "{:?}",
        tables.threads
    );
    assert_eq!(tables.threads.len(), 4);
}

#[test]
fn blocks_of_a_child_in_another_namespace_of_process_ids_are_its_own() {
    if !root() {
        skip("only root can make a namespace of process ids");
        return;
    }
    let place = Place::new();
    let source = "tests/conformance/faults.c";
    let Some(program) = place.compile("gcc", source, "program", &[]) else {
        return;
    };
    let mut command = place.linewise(["record", "--heap", "on", "-o", "made", "--"]);
    command.env("LINEWISE_PRELOAD", crate::heap::recorder());
    let output = place.finish(command.arg(program).arg("space"));
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    if output.stdout.contains("no namespace") {
        skip("no namespace of process ids can be made here");
        return;
    }
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    let tables = recording.tables().unwrap();
    let block = tables.heap_blocks.iter().find(|block| block.size == 12_345);
    let block = block.expect("it is recorded");
    let its = |thread: &linewise_recording::Thread| thread.pid == block.pid;
    assert!(
        tables.threads.iter().any(its),
        "{block:?} {:?}",
        tables.threads
    );
}

#[test]
fn a_target_whose_collector_was_killed_runs_to_its_own_end() {
    for threads in ["1", "8"] {
        let place = Place::new();
        let Some(program) = program(&place, &[]) else {
            return;
        };
        let script = format!(
            "'{}' waits {threads} > said; echo $? > code",
            program.display()
        );
        let mut command = place.linewise(RECORD);
        let mut running = place.start(command.args(["sh", "-c", &script]));
        let target = place.wait_for("pid");
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        // Its ring is full after a moment.
        std::thread::sleep(std::time::Duration::from_millis(600));
        assert!(alive(&target), "{}", running.complaints());
        fs::write(place.path("enough"), "").unwrap();
        assert_eq!(place.wait_for("code"), "23", "{}", running.complaints());
        let said = fs::read_to_string(place.path("said")).unwrap();
        assert!(said.ends_with("\nended 11\n"), "{said}");
        assert_eq!(running.complaints(), "");
        assert!(!info(&place).complete);
    }
}

#[test]
fn a_target_cannot_end_its_collector_through_what_they_share() {
    let place = Place::new();
    let Some(program) = program(&place, &[]) else {
        return;
    };
    // QEMU itself takes the place of the script, so that linewise is its parent.
    let found = traced(&place, &program, &["truncates"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert_eq!(found.stdout, "cut 0\ndone 0\n");
    assert!(info(&place).complete);
}

#[test]
fn what_a_target_forges_in_the_shared_memory_is_refused_and_takes_no_memory() {
    let place = Place::new();
    let source = "crates/cli/tests/exact_forged.c";
    if !emulator() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(program) = place.compile("gcc", source, "program", &[]) else {
        return;
    };
    for (what, loss) in [
        ("images", "unnumbered"),
        ("future", "malformed"),
        ("nonsense", "malformed"),
    ] {
        let found = traced(&place, &program, &[what, "4000"]);
        assert_eq!(found.code, Some(4), "{what}: {found:?}");
        let lost = losses(&place);
        assert!(lost.iter().any(|row| row.0 == loss), "{what}: {lost:?}");
        let peak = info(&place).overhead.collector_rss_bytes;
        assert!(peak < 400 << 20, "{what}: {peak}");
    }
}
