//! `--source exact` beside the program alone: its signal, its variables, its descriptors and directories; and places without
//! room, where linewise says what it lacks and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use linewise_recording::Recording;

use crate::util::{BINARY, Place, emulator, root, skip, until};

const RECORD: [&str; 8] = [
    "record", "--source", "exact", "--quiet", "--force", "-o", "made", "--",
];

fn program(place: &Place) -> Option<PathBuf> {
    let source = "crates/cli/tests/exact_alone.c";
    emulator().then(|| place.compile("gcc", source, "program", &[]))?
}

/// Code, output and errors of a command.
fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status;
    (
        status.code().or_else(|| Some(128 + status.signal()?)),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs the program alone and traced, which must be the same; the code.
fn same(place: &Place, program: &Path, words: &[&str]) -> Option<i32> {
    let alone = ended(place.command(program).args(words));
    let traced = ended(place.linewise(RECORD).arg(program).args(words));
    assert_eq!(traced, alone, "{words:?}");
    alone.0
}

/// Both in a shell that runs `"$@"` in some way.
fn same_in(place: &Place, program: &Path, script: &str, word: &str) -> Option<i32> {
    let shell = || {
        let mut command = place.command("bash");
        command.args(["-c", script, "bash"]);
        command
    };
    let alone = ended(shell().arg(program).arg(word));
    let traced = ended(shell().arg(BINARY).args(RECORD).arg(program).arg(word));
    assert_eq!(traced, alone, "{script} {word}");
    alone.0
}

#[test]
fn a_program_that_a_signal_ends_ends_by_its_own_and_nothing_is_said_in_its_name() {
    let place = Place::new();
    let Some(program) = program(&place) else {
        return;
    };
    for signal in [6, 11, 34, 37, 62] {
        let words = ["raise", &signal.to_string()];
        assert_eq!(same(&place, &program, &words), Some(128 + signal));
        let recording = Recording::open(&place.path("made.linewise")).unwrap();
        assert_eq!(recording.info().exit_signal, Some(signal));
    }
    let own = program.display().to_string();
    let script = format!(
        "exec 2>/dev/null; '{own}' raise 37; echo $?; '{own}' raise 11; echo $?; exec '{own}' raise 40"
    );
    assert_eq!(same(&place, Path::new("bash"), &["-c", &script]), Some(168));
}

#[test]
fn variables_come_in_their_order_and_the_first_of_a_name_counts() {
    let place = Place::new();
    let Some(program) = program(&place) else {
        return;
    };
    let alone = ended(
        place
            .command(&program)
            .arg("with-variables")
            .arg(&program)
            .arg("variables"),
    );
    // QEMU keeps one variable of a name.
    let once = alone.1.replace("A=second\n", "");
    assert!(once.ends_with("A is first\n"), "{once}");
    let mut first = place.command(&program);
    first.arg("with-variables").arg(BINARY).args(RECORD);
    assert_eq!(ended(first.arg(&program).arg("variables")).1, once);
    let mut later = place.linewise(RECORD);
    later.arg(&program).arg("with-variables");
    assert_eq!(ended(later.arg(&program).arg("variables")).1, once);
}

#[test]
fn descriptors_and_directories_are_the_programs_own() {
    let place = Place::new();
    let Some(program) = program(&place) else {
        return;
    };
    for (word, code) in [("closefrom", 21), ("all", 22), ("moves", 23), ("opens", 33)] {
        assert_eq!(same(&place, &program, &[word]), Some(code));
    }
    if root() {
        let jail = place.path("tmp").display().to_string();
        assert_eq!(same(&place, &program, &["jail", &jail]), Some(24));
    }
    for (script, word, code) in [
        ("\"$@\" <&-", "reads", 25),
        ("\"$@\" <&- >&-", "opens", 30),
        ("\"$@\" <&- >&- 2>&-", "closefrom", 21),
        ("\"$@\" | true; exit ${PIPESTATUS[0]}", "writes", 128 + 13),
        (
            "trap '' PIPE; \"$@\" | true; exit ${PIPESTATUS[0]}",
            "writes",
            26,
        ),
    ] {
        assert_eq!(same_in(&place, &program, script, word), Some(code));
    }
}

#[test]
fn a_set_user_id_program_is_refused_and_as_a_child_runs_untraced() {
    let place = Place::new();
    let Some(program) = program(&place) else {
        return;
    };
    let other = place.path("other");
    fs::copy(&program, &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, _, said) = ended(place.linewise(RECORD).arg(&other).arg("opens"));
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("set-user-id"), "{said}");
    let words = ["spawns", other.to_str().unwrap(), "opens"];
    assert_eq!(same(&place, &program, &words), Some(33));
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    let losses = recording.tables().unwrap().losses;
    assert!(
        losses.iter().any(|loss| loss.what == "untraced-program"),
        "{losses:?}"
    );
}

#[test]
fn too_few_descriptors_are_called_that_and_nothing_is_run() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    for allowed in [5, 8, 12] {
        let script = format!("ulimit -n {allowed}; exec \"$@\"");
        let mut command = place.command("bash");
        command.args(["-c", &script, "bash", BINARY]).args(RECORD);
        let (code, _, said) = ended(command.args(["sh", "-c", "echo > ran"]));
        assert_eq!(code, Some(125), "{allowed}: {said}");
        assert!(
            said.contains("too few open files") && said.contains("ulimit -n 1024"),
            "{allowed}: {said}"
        );
        assert!(!place.path("ran").exists() && !place.path("made.linewise").exists());
    }
}

#[test]
fn a_full_disk_is_called_that_and_nothing_is_left_on_it() {
    if !emulator() || !root() {
        skip("only root can mount a small disk, and an emulator is wanted");
        return;
    }
    let place = Place::new();
    let full = "mount -t tmpfs -o size=64k none tmp && { head -c 65536 /dev/zero > tmp/full; \
                \"$@\"; echo $? > code; ls -A tmp > left; }";
    let to_tmp = ["record", "--keep-trace", "-o", "tmp/made"];
    for (words, code, advice) in [
        (&["run"][..], "125", "TMPDIR"),
        (&to_tmp, "0", "free some space"),
    ] {
        let mut command = place.command("unshare");
        command.args(["--mount", "sh", "-c", full, "sh", BINARY]);
        command
            .args(words)
            .args(["--source", "exact", "--", "true"]);
        let (_, _, said) = ended(&mut command);
        if said.contains("unshare:") || said.contains("mount:") {
            skip(&said);
            return;
        }
        assert_eq!(place.wait_for("code"), code, "{said}");
        assert!(
            said.contains("No space left") && said.contains(advice),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(place.wait_for("left"), "full", "{words:?}");
    }
}

#[test]
fn a_program_that_is_not_there_leaves_no_trace() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let words = [
        "record",
        "--source",
        "exact",
        "--keep-trace",
        "-o",
        "made",
        "--",
        "./nowhere",
    ];
    let (code, _, said) = ended(&mut place.linewise(words));
    assert_eq!(code, Some(127), "{said}");
    assert!(!place.path("made.trace").exists() && !place.path("made.linewise").exists());
}

#[test]
fn a_child_that_goes_on_without_the_recorder_does_all_that_it_would() {
    let place = Place::new();
    let Some(program) = program(&place) else {
        return;
    };
    let name = |number| place.path(&format!("stayed-{number}"));
    // Several at once, since what went wrong once hung on when the threads were looked at.
    let runs: Vec<_> = (0..8)
        .map(|number| {
            let output = format!("made-{number}");
            let words = [
                "record", "--source", "exact", "--quiet", "-o", &output, "--",
            ];
            let mut command = place.linewise(words);
            command.arg(&program).arg("stays").arg(name(number));
            command
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(34), ""));
    }
    for number in 0..8 {
        until("the child's end", || {
            fs::metadata(name(number))
                .ok()
                .filter(|file| file.len() > 0)
        });
    }
}

#[test]
fn a_thread_that_executes_another_program_is_one_thread() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let script = "for i in {1..100}; do :; done; exec bash -c 'exec true'";
    let mut command = place.linewise("run --source exact --json --".split(' '));
    let report = place.finish(command.args(["bash", "-c", script])).json();
    let run = &report["run"];
    let threads = run["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "{threads:#?}");
    let [of_thread, all] = [&threads[0]["accesses"], &report["samples"]["total"]];
    let [of_thread, all] = [of_thread, all].map(|count| count.as_f64().unwrap());
    assert!((of_thread / all - 1.0).abs() < 0.01, "{of_thread} of {all}");
}
