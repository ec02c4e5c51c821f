//! Programs, libraries and recordings that are made to harm: pipes and devices with the names of files, names that are
//! commands for the terminal, files that unfold. And a bug of ours, which is nobody else's trouble.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use linewise_recording::{Frame, Recording};

use crate::util::{Output, Place, alive, emulator, pipe, signal, skip, threads, until};

/// A name that clears the screen, breaks the line, and turns around what follows.
const EVIL: &str = "ev\x1b[2J\x1b]0;title\x07il\nlinewise: all is well\u{202e}\u{9b}31m";

/// Puts a copy of the target at `name`; `None` without a compiler.
fn copy_of_target(place: &Place, name: &str) -> Option<PathBuf> {
    let target = place.target()?;
    let copy = place.path(name);
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::copy(target, &copy).unwrap();
    Some(copy)
}

/// Nothing in what was printed is obeyed by a terminal.
fn assert_harmless(output: &Output) {
    for text in [&output.stdout, &output.stderr] {
        let safe = |c: char| c == '\n' || linewise_foreign::is_safe(c);
        assert!(text.chars().all(safe), "{text:?}");
        let forged = text
            .lines()
            .find(|it| it.starts_with("linewise: all is well"));
        assert_eq!(forged, None, "{text}");
    }
}

#[test]
fn pipes_and_devices_with_the_names_of_a_program_and_its_library_hold_nobody_up() {
    let place = Place::new();
    let Some(target) = copy_of_target(&place, "bin/target") else {
        return;
    };
    let library = place.path("bin/library.so");
    fs::write(
        place.path("library.c"),
        "int of_library(void) { return 1; }",
    )
    .unwrap();
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-g", "-o"])
        .args([&library, &place.path("library.c")])
        .status()
        .unwrap();
    assert!(built.success());
    let running = place.start(
        place
            .command(&target)
            .args(["take-after", "enough"])
            .env("LD_PRELOAD", &library),
    );
    let pid = running.child.id().to_string();
    until("the library to be loaded", || {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains("library.so").then_some(())
    });
    // Opening the one would wait for ever, opening the other would make a terminal.
    fs::remove_file(&library).unwrap();
    pipe(&library);
    pipe(&place.path("bin/library.so (deleted)"));
    fs::remove_file(&target).unwrap();
    symlink("/dev/ptmx", &target).unwrap();
    symlink("/dev/ptmx", place.path("bin/target (deleted)")).unwrap();
    let output = place.finish(&mut place.linewise([
        "run",
        "--heap",
        "auto",
        "--json",
        "--pid",
        &pid,
        "--duration",
        "700ms",
    ]));
    fs::write(place.path("enough"), "").unwrap();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(threads(&output.json()).len(), 3, "{}", output.stdout);
    running.finish();
}

#[test]
fn a_pipe_in_a_recording_is_named() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let recording = place.recording(&target);
    for file in ["samples.parquet", "run.json"] {
        fs::remove_file(recording.join(file)).unwrap();
        pipe(&recording.join(file));
        let output = place.finish(place.linewise(["report"]).arg(&recording));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(
            output.stderr.contains(file) && output.stderr.contains("it is a pipe"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn names_are_shown_and_not_obeyed() {
    let place = Place::new();
    let Some(target) = copy_of_target(&place, &format!("{EVIL}/{EVIL}")) else {
        return;
    };
    let recorded = place.finish(
        place
            .linewise(["record", "-o", EVIL, "--"])
            .arg(&target)
            .args(["fight", "0.3"]),
    );
    assert_eq!(recorded.code, Some(5), "{}", recorded.stderr);
    assert_harmless(&recorded);
    let recording = place.path(&format!("{EVIL}.linewise"));
    for arguments in [&["report"][..], &["report", "--json"], &["diff", "--all"]] {
        let mut command = place.linewise(arguments);
        command.arg(&recording);
        if arguments[0] == "diff" {
            command.arg(&recording);
        }
        let output = place.finish(&mut command);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stdout.contains("\\u"), "{}", output.stdout);
        assert_harmless(&output);
    }
    // Messages: what is not there, what is damaged, what cannot run.
    let nowhere = place.finish(&mut place.linewise(["report", &format!("no-{EVIL}")]));
    fs::write(
        recording.join("run.json"),
        format!("{{\"format_version\": {:?}}}", "\u{1b}[31m"),
    )
    .unwrap();
    let damaged = place.finish(place.linewise(["report"]).arg(&recording));
    let gone = place.finish(&mut place.linewise(["record", "--", &format!("./no-{EVIL}")]));
    for (output, code) in [(nowhere, 125), (damaged, 125), (gone, 127)] {
        assert_eq!(output.code, Some(code), "{}", output.stderr);
        assert_harmless(&output);
    }
}

#[test]
fn a_line_break_in_a_path_hides_no_names() {
    let place = Place::new();
    let Some(target) = copy_of_target(&place, "two\nlines/tar\\012get") else {
        return;
    };
    let launched = place.finish(
        place
            .linewise(["record", "-o", "launched", "--"])
            .arg(&target)
            .args(["fight", "0.3"]),
    );
    assert_eq!(launched.code, Some(5), "{}", launched.stderr);
    let running = place.start(place.command(&target).args(["fight", "30"]));
    let pid = running.child.id().to_string();
    let attached = place.finish(&mut place.linewise([
        "record",
        "-o",
        "attached\nhere",
        "--pid",
        &pid,
        "--duration",
        "500ms",
    ]));
    assert_eq!(attached.code, Some(0), "{}", attached.stderr);
    signal(&pid, "KILL");
    running.finish();
    for name in ["launched.linewise", "attached\nhere.linewise"] {
        let recording = Recording::open(&place.path(name)).unwrap();
        let frames = recording.read::<Frame>().unwrap();
        let target = target.to_str().unwrap();
        let own: Vec<_> = frames.iter().filter(|it| it.module == target).collect();
        let modules: Vec<_> = frames.iter().map(|frame| &frame.module).collect();
        assert!(!own.is_empty(), "{name}: {modules:?}");
        assert!(own.iter().any(|frame| frame.line > 0), "{name}: {own:?}");
    }
}

#[test]
fn what_is_no_process_is_refused_and_a_thread_is_one_of_its_process() {
    let place = Place::new();
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let output = place.finish(&mut place.linewise(["record", "--pid", "2"]));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        let told = "2 is a thread of the kernel (kthreadd)";
        assert!(output.stderr.contains(told), "{}", output.stderr);
    } else {
        skip("the kernel's threads are not seen from here");
    }
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = ended.id().to_string();
    until("the process to end", || (!alive(&pid)).then_some(()));
    let output = place.finish(&mut place.linewise(["record", "--pid", &pid]));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    let told = format!("process {pid} has ended");
    assert!(output.stderr.contains(&told), "{}", output.stderr);
    ended.wait().unwrap();

    let Some(target) = place.target() else { return };
    let running = place.start(place.command(target).args(["take-after", "enough"]));
    let pid = running.child.id().to_string();
    let thread = until("a second thread", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
        names.into_iter().find(|name| *name != pid)
    });
    let output = place.finish(&mut place.linewise([
        "run",
        "--json",
        "--pid",
        &thread,
        "--duration",
        "500ms",
    ]));
    fs::write(place.path("enough"), "").unwrap();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let told = format!("{thread} is a thread of process {pid}, which is recorded");
    assert!(output.stderr.contains(&told), "{}", output.stderr);
    assert_eq!(threads(&output.json()).len(), 3, "{}", output.stdout);
    running.finish();
}

#[test]
fn a_bug_of_ours_is_named_and_takes_neither_the_exit_code_nor_the_recording() {
    if !cfg!(debug_assertions) {
        return skip("only a build for tests fails on demand");
    }
    let place = Place::new();
    let Some(target) = place.target() else { return };
    for (at, verb, told) in [
        ("collect", "record", "; the program runs on, unrecorded"),
        (
            "resolve",
            "record",
            "resolve.linewise is recorded, without names",
        ),
        ("report", "run", "what was recorded is in report.linewise"),
    ] {
        let output = place.finish(
            place
                .linewise([verb, "-o", at, "--"])
                .arg(&target)
                .args(["fight", "1.5"])
                .env("LINEWISE_TEST_PANIC", at)
                .env_remove("RUST_BACKTRACE"),
        );
        assert_eq!(output.code, Some(5), "{at}: {}", output.stderr);
        let bug = format!("linewise has a bug: a test wants \\u{{1b}}[31m{at} to fail");
        assert!(output.stderr.contains(&bug), "{}", output.stderr);
        assert!(output.stderr.contains("panics.rs:"), "{}", output.stderr);
        assert!(output.stderr.contains(told), "{}", output.stderr);
        assert_harmless(&output);
        let report = place.finish(&mut place.linewise(["report", &format!("{at}.linewise")]));
        assert_eq!(report.code, Some(0), "{}", report.stderr);
    }
    if emulator() {
        let output = place.finish(
            place
                .linewise(["record", "--source", "exact", "-o", "exact", "--"])
                .arg(&target)
                .args(["fight", "2"])
                .env("LINEWISE_TEST_PANIC", "collect"),
        );
        assert_eq!(output.code, Some(5), "{}", output.stderr);
        let told = "; the program runs on, unrecorded";
        assert!(output.stderr.contains(told), "{}", output.stderr);
        assert_harmless(&output);
    }
    // A report that cannot have names says so and has the rest.
    let unnamed = place.finish(
        place
            .linewise(["report", "resolve.linewise"])
            .env("LINEWISE_TEST_PANIC", "resolve"),
    );
    assert_eq!(unnamed.code, Some(0), "{}", unnamed.stderr);
    let words = unnamed.words();
    assert!(
        words.contains("Names are missing, since looking them up failed: linewise has a bug"),
        "{words}"
    );
    // Without a target it is linewise that failed.
    let failed = place.finish(
        place
            .linewise(["report", "report.linewise"])
            .env("LINEWISE_TEST_PANIC", "report"),
    );
    assert_eq!(failed.code, Some(125), "{}", failed.stderr);
    assert!(failed.stderr.contains("has a bug"), "{}", failed.stderr);
}
