//! `--source exact` with the real emulator: the target is its own master, and what is missing is
//! named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use linewise_recording::{Recording, RunInfo, Source};

use crate::util::{BINARY, Place, alive, emulator, signal};

fn info(place: &Place) -> RunInfo {
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    recording.info().clone()
}

const RECORD: [&str; 6] = ["record", "--source", "exact", "-o", "made", "--"];

#[test]
fn input_output_and_exit_code_are_the_targets_own() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    fs::write(place.path("said"), "a line\nand another").unwrap();
    let mut command = place.linewise(RECORD);
    command.args(["sh", "-c", "cat; echo to error >&2; exit 7"]);
    let input = fs::File::open(place.path("said")).unwrap();
    let output = place.finish(command.stdin(Stdio::from(input)));
    assert_eq!(output.code, Some(7), "{}", output.stderr);
    assert_eq!(output.stdout, "a line\nand another");
    assert!(output.stderr.starts_with("to error\n"), "{}", output.stderr);
    assert!(output.stderr.contains("accesses measured"));
    let info = info(&place);
    assert!(info.complete);
    assert_eq!((info.source, info.exit_code), (Source::Exact, Some(7)));
    assert!(info.exact.unwrap().accesses > 10_000.0);

    // A report of it can be made, and does not speak of samples that there are none of.
    let output = place.finish(&mut place.linewise(["report", "made.linewise", "--json"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.json()["run"]["source"], "exact");
}

#[test]
fn the_signal_that_ends_the_target_becomes_the_exit_code() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let mut command = place.linewise(RECORD);
    let output = place.finish(command.args(["sh", "-c", "kill -USR1 $$; sleep 60"]));
    assert_eq!(output.code, Some(128 + 10), "{}", output.stderr);
    assert_eq!(info(&place).exit_signal, Some(10));
}

#[test]
fn an_interrupt_and_a_duration_end_the_recording_properly() {
    if !emulator() {
        return;
    }
    for (how, number, ended_by) in [("INT", 2, "target-exited"), ("TERM", 15, "interrupted")] {
        let place = Place::new();
        let mut command = place.interruptible(RECORD);
        command.args(["sh", "-c", "echo begun > begun; while :; do :; done"]);
        let running = place.start(&mut command);
        place.wait_for("begun");
        signal(&running.child.id().to_string(), how);
        let output = running.finish();
        assert_eq!(output.code, Some(128 + number), "{}", output.stderr);
        let info = info(&place);
        assert!(info.complete);
        assert_eq!(info.ended_by, ended_by);
    }
    let place = Place::new();
    let mut command = place.linewise(["record", "--source", "exact", "--duration", "500ms"]);
    command.args(["-o", "made", "--", "sh", "-c", "while :; do :; done"]);
    let output = place.finish(&mut command);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let info = info(&place);
    assert!(info.complete);
    assert_eq!(info.ended_by, "duration");
}

/// A shell with a child, and one whose parent has ended, all waiting.
const FAMILY: &str =
    "sleep 200 & echo $! > child; (sleep 200 & echo $! > orphan); echo $$ > own; wait";

#[test]
fn what_descends_from_a_target_ends_with_it_whatever_ends_the_recording() {
    if !emulator() {
        return;
    }
    for source in ["exact", "timer"] {
        for duration in [true, false] {
            let place = Place::new();
            let mut command = place.interruptible(["record", "--source", source, "-o", "made"]);
            if duration {
                command.args(["--duration", "3s"]);
            }
            let running = place.start(command.args(["--", "sh", "-c", FAMILY]));
            let all = ["own", "child", "orphan"].map(|name| place.wait_for(name));
            if !duration {
                signal(&running.child.id().to_string(), "TERM");
            }
            let output = running.finish();
            let code = if duration { 0 } else { 128 + 15 };
            assert_eq!(output.code, Some(code), "{source}: {}", output.stderr);
            for pid in all {
                assert!(!alive(&pid), "{source}, by its duration: {duration}");
            }
        }
    }
}

#[test]
fn what_a_target_leaves_behind_goes_on_when_it_ends_by_itself() {
    if !emulator() {
        return;
    }
    for source in ["exact", "timer"] {
        let place = Place::new();
        let script = "sleep 200 & echo $! > child";
        let mut command = place.linewise(["record", "--source", source, "-o", "made", "--"]);
        let output = place.finish(command.args(["sh", "-c", script]));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let child = place.wait_for("child");
        assert!(alive(&child), "{source}");
        signal(&child, "KILL");
    }
}

#[test]
fn who_is_asked_twice_does_not_outlive_the_recording() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let child = "trap 'echo asked > asked' TERM; echo $$ > child; while :; do sleep 0.05; done";
    let script = format!("sh -c \"{}\" & wait", child.replace('$', "\\$"));
    let mut command = place.linewise(RECORD);
    let running = place.start(command.args(["sh", "-c", &script]));
    let child = place.wait_for("child");
    let own = running.child.id().to_string();
    signal(&own, "TERM");
    place.wait_for("asked");
    // The root has ended by now, or is about to; its child has not.
    assert!(alive(&child));
    // Not so soon that it is taken for an echo of the first.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&own, "TERM");
    let output = running.finish();
    assert_eq!(output.code, Some(128 + 15), "{}", output.stderr);
    assert!(!alive(&child));
}

#[test]
fn what_is_missing_is_named_with_what_to_install() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    let mut command = place.linewise(RECORD);
    let output = place.finish(command.arg("/bin/true").env("PATH", place.path("empty")));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(output.stderr.contains("apt-get install qemu-user"));

    // The same program, said to be for other processors (e_machine, see elf.h).
    let program = place.path("foreign");
    let mut bytes = fs::read("/bin/true").unwrap();
    for (machine, code, words) in [
        (183u16, 125, "qemu-aarch64"),
        (243, 126, "another architecture"),
    ] {
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        fs::write(&program, &bytes).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        let mut command = place.linewise(RECORD);
        command.arg(&program).env("PATH", place.path("empty"));
        let output = place.finish(&mut command);
        assert_eq!(output.code, Some(code), "{}", output.stderr);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    assert!(!place.path("made.linewise").exists());

    let mut command = place.linewise(RECORD);
    let output = place.finish(command.arg("./no-such-program"));
    assert_eq!(output.code, Some(127), "{}", output.stderr);
}

#[test]
fn options_of_one_source_are_refused_by_the_other() {
    let place = Place::new();
    for (arguments, words) in [
        (&["--lines", "1/64", "--", "true"][..], "--source exact"),
        (&["--keep-trace", "--", "true"], "--source exact"),
        (&["--source", "exact", "--pid", "1"], "cannot attach"),
        (
            &["--source", "exact", "--rate", "100", "--", "true"],
            "--rate",
        ),
        (
            &["--source", "exact", "--lines", "64", "--", "true"],
            "1/64",
        ),
        (
            &["--source", "exact", "--machine", "cray", "--", "true"],
            "epyc-8x8",
        ),
    ] {
        let output = place.finish(place.linewise(["record", "-o", "made"]).args(arguments));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    let mut command = place.linewise(["run", "--source", "exact", "--keep-trace", "--", "true"]);
    let output = place.finish(&mut command);
    assert_eq!(output.code, Some(125));
    assert!(output.stderr.contains("--output"), "{}", output.stderr);
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_kept_trace_lies_beside_the_recording_and_is_not_replaced_unasked() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let record = |force: bool| {
        let mut command = place.linewise(["record", "--source", "exact", "--keep-trace"]);
        command.args(["--lines", "1/4", "--machine", "2x10", "-o", "made"]);
        if force {
            command.arg("--force");
        }
        place.finish(command.args(["--", "true"]))
    };
    let output = record(false);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let trace = fs::read(place.path("made.trace")).unwrap();
    assert_eq!(&trace[..8], b"LWTRACE2");
    let exact = info(&place).exact.unwrap();
    assert_eq!((exact.one_line_in, exact.machine.as_str()), (4, "2x10"));
    assert!(exact.trace.unwrap().ends_with("made.trace"));
    let output = record(false);
    assert_eq!(output.code, Some(125));
    assert!(output.stderr.contains("--force"), "{}", output.stderr);
    assert_eq!(fs::read(place.path("made.trace")).unwrap(), trace);
    assert_eq!(record(true).code, Some(0));
}

/// The plugin that belongs to the binary under test.
fn plugin() -> Option<PathBuf> {
    let directory = Path::new(BINARY).parent()?;
    [directory.join("deps"), directory.to_owned()]
        .into_iter()
        .map(|place| place.join("liblinewise_tracer.so"))
        .find(|file| file.is_file())
}

#[test]
fn an_installed_linewise_finds_its_plugin_and_says_where_it_looked_if_not() {
    if !emulator() {
        return;
    }
    let place = Place::new();
    let plugin = plugin().expect("cargo builds the plugin as a dependency");
    for folder in ["usr", "usr/bin", "usr/lib", "usr/lib/linewise"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    fs::copy(BINARY, place.path("usr/bin/linewise")).unwrap();
    let record = || {
        let mut command = place.command(place.path("usr/bin/linewise"));
        place.finish(command.args(RECORD).arg("true"))
    };
    let output = record();
    assert_eq!(output.code, Some(125));
    assert!(
        output
            .stderr
            .contains("usr/lib/linewise/liblinewise_tracer.so"),
        "{}",
        output.stderr
    );
    fs::copy(plugin, place.path("usr/lib/linewise/liblinewise_tracer.so")).unwrap();
    let output = record();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(info(&place).complete);
}
