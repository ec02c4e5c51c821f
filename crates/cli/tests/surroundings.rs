//! What is around linewise: users, debuggers, one CPU, closed pipes, wrong options.

use std::fs;

use crate::util::{BINARY, Place, as_somebody_else, root, skip, total_samples};

#[test]
fn an_ordinary_user_records_at_perf_event_paranoid_2() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if paranoid.trim().parse::<i32>().unwrap() > 2 {
        return skip("kernel.perf_event_paranoid is above 2 here");
    }
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let Some(mut command) = as_somebody_else(&place) else {
        return;
    };
    crate::util::open_to_all(&place);
    let output = place.finish(
        command
            .args([BINARY, "run", "--json", "--"])
            .arg(target)
            .args(["fight", "0.6"]),
    );
    assert_eq!(output.code, Some(5), "{}", output.stderr);
    let report = output.json();
    assert!(
        report["samples"]["accesses"].as_u64().unwrap() > 0,
        "{:#}",
        report["samples"]
    );
    assert!(
        report["losses"].get("watchpoint-refused").is_none(),
        "{:#}",
        report["losses"]
    );
    assert!(place.leftovers().is_empty());
}

#[test]
fn an_ordinary_user_who_wants_cpus_sampled_is_told_what_that_takes() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if paranoid.trim().parse::<i32>().unwrap() < 1 {
        return skip("kernel.perf_event_paranoid lets everyone sample CPUs here");
    }
    let place = Place::new();
    let Some(mut command) = as_somebody_else(&place) else {
        return;
    };
    crate::util::open_to_all(&place);
    let output = place.finish(command.args([BINARY, "run", "--sample-by", "cpu", "--", "true"]));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(
        output.stderr.contains("CAP_PERFMON") && output.stderr.contains("--sample-by thread"),
        "{}",
        output.stderr
    );
    assert!(place.leftovers().is_empty());
}

#[test]
fn watchpoints_that_somebody_else_holds_are_counted_as_a_loss() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    // What it takes without us says what there is to take.
    let alone = place.finish(place.command(&target).args(["taken", "0.1"]));
    if alone.code != Some(8) {
        return skip("threads of this machine have not four watchpoints that can be taken");
    }
    let output = place.finish(
        place
            .linewise(["run", "--json", "--"])
            .arg(target)
            .args(["taken", "1.5"]),
    );
    assert_eq!(output.code, Some(8), "{}", output.stderr);
    let report = output.json();
    let refused = &report["losses"]["watchpoint-refused"];
    assert!(
        refused["count"].as_u64().is_some_and(|count| count > 0),
        "{:#}",
        report["losses"]
    );
    assert!(
        refused["detail"].as_str().unwrap().contains("debugger"),
        "{refused:#}"
    );
    assert!(total_samples(&report) > 0);
}

#[test]
fn threads_that_share_one_cpu_are_said_to() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let mut command = place.command("taskset");
    command
        .args(["-c", "0", BINARY, "run", "--"])
        .arg(target)
        .args(["fight", "0.6"]);
    if place
        .command("taskset")
        .args(["-c", "0", "true"])
        .output()
        .map_or(true, |o| !o.status.success())
    {
        return skip("taskset cannot choose CPU 0");
    }
    let output = place.finish(&mut command);
    assert_eq!(output.code, Some(5), "{}", output.stderr);
    let words = output.words();
    assert!(words.contains("threads ran on CPU 0 alone"), "{words}");
    // Which of both depends on how busy the machine is.
    let nothing = ["No finding", "Too little seen for a finding"];
    assert!(nothing.iter().any(|it| words.contains(it)), "{words}");
}

#[test]
fn a_filter_that_forbids_perf_events_is_named_to_whom_the_settings_allow_them() {
    let place = Place::new();
    let source = "crates/cli/tests/filtered.c";
    let Some(filtered) = place.compile("gcc", source, "filtered", &[]) else {
        return;
    };
    let finish = |arguments: &[&str]| {
        let mut command = place.command(&filtered);
        place.finish(command.arg(BINARY).args(arguments))
    };
    let doctor = finish(&["doctor", "--json"]);
    if doctor.code == Some(77) {
        return skip("filters of system calls cannot be set here");
    }
    if !root() {
        return skip("the settings may forbid perf events, too");
    }
    let output = finish(&["run", "--", "true"]);
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    let seccomp = "--security-opt seccomp=unconfined";
    assert!(output.stderr.contains(seccomp), "{}", output.stderr);
    assert!(!output.stderr.contains("as root"), "{}", output.stderr);
    let permissions = doctor.json()["permissions"]["perf_events"].to_string();
    assert!(
        permissions.contains("none could be opened"),
        "{permissions}"
    );
}

#[test]
fn accesses_to_thread_local_variables_have_addresses() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let output = place.finish(
        place
            .linewise(["run", "--json", "--"])
            .arg(target)
            .args(["local", "0.6"]),
    );
    assert_eq!(output.code, Some(13), "{}", output.stderr);
    let samples = &output.json()["samples"];
    let accesses = samples["accesses"].as_u64().unwrap();
    let without = samples["unknown"]["address-not-in-registers"]
        .as_u64()
        .unwrap_or(0);
    assert!(accesses > 10 * without && accesses > 0, "{samples:#}");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let place = Place::new();
    let verbs = [
        "run -- sh -c 'exit 4'",
        "doctor",
        "completions bash",
        "man",
        "--help",
    ];
    for (i, verb) in verbs.iter().enumerate() {
        // The pipe is closed before the first byte comes.
        let script = format!("(sleep 0.2; \"$0\" {verb}; echo $? > code{i}) | true");
        let output = place.finish(place.command("sh").args(["-c", &script, BINARY]));
        assert_eq!(output.stderr, "", "{verb}");
        let code = place.wait_for(&format!("code{i}"));
        assert_eq!(code, if i == 0 { "4" } else { "0" }, "{verb}");
    }
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_benchmark_whose_reader_has_gone_is_no_bug() {
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2) {
        return;
    }
    let place = Place::new();
    let benchmarks = [
        "fibres --repeats 1",
        "fibres --repeats 1 --json",
        "rtt",
        "accesstest --sizes 4K --updates 0 --sessions 2 --seconds 0.02 --repeats 1 --no-wipe",
    ];
    for (i, benchmark) in benchmarks.iter().enumerate() {
        // The pipe is closed long before the table comes.
        let script = format!("(\"$0\" bench {benchmark}; echo $? > code{i}) | true");
        let output = place.finish(place.command("sh").args(["-c", &script, BINARY]));
        if output.stderr.contains("the machine is too busy") {
            println!("skipped: {benchmark}: {}", output.stderr);
            continue;
        }
        assert_eq!(output.stderr, "", "{benchmark}");
        assert_eq!(place.wait_for(&format!("code{i}")), "0", "{benchmark}");
    }
    assert!(place.leftovers().is_empty());
}

#[test]
fn a_cpu_that_is_named_twice_is_told() {
    for arguments in [
        &["fibres", "--cpus", "0", "0"][..],
        &["fibres", "--cpus", "0,0"],
        &["fetch-add", "--variables", "1", "--cpus", "0,0"],
    ] {
        let place = Place::new();
        let output = place.finish(place.linewise(["bench"]).args(arguments));
        assert_eq!(output.code, Some(125), "{arguments:?}: {}", output.stdout);
        let told = "CPU 0 is named twice; name each CPU once";
        assert!(output.stderr.contains(told), "{}", output.stderr);
    }
    let place = Place::new();
    let output = place.finish(&mut place.linewise(["bench", "fibres", "--cpus", "0"]));
    let told = "--cpus takes two CPUs, as 0,1, and not 1";
    assert!(output.stderr.contains(told), "{}", output.stderr);
}

#[test]
fn json_has_the_keys_of_schema_1() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let output = place.finish(
        place
            .linewise(["run", "--json", "--"])
            .arg(target)
            .args(["fight", "0.4"]),
    );
    let report = output.json();
    assert_eq!(report["schema"], 1);
    for pointer in [
        "/run/command",
        "/run/source",
        "/run/duration_ns",
        "/run/threads/0/tid",
        "/run/threads/0/name",
        "/run/threads/0/cpu_time_ns",
        "/run/round_trip_ns",
        "/run/overhead",
        "/sharing/transfers/true",
        "/sharing/transfers/false",
        "/sharing/transfers/interval",
        "/sharing/threads",
        "/sharing/matrix/true",
        "/sharing/matrix/false",
        "/findings",
        "/samples/total",
        "/samples/accesses",
        "/samples/compute",
        "/samples/unknown",
        "/losses",
    ] {
        assert!(
            report.pointer(pointer).is_some(),
            "{pointer} is missing in {report:#}"
        );
    }
    assert_eq!(report["run"]["exit_code"], 5);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_command_runs() {
    let place = Place::new();
    let Some(mut command) = as_somebody_else(&place) else {
        return;
    };
    crate::util::open_to_all(&place);
    let closed = place.path("closed");
    fs::create_dir(&closed).unwrap();
    let output = place.finish(
        command
            .args([BINARY, "run", "--report-to", "closed/report.txt", "--"])
            .args(["sh", "-c", "echo ran > ran"]),
    );
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    assert!(output.stderr.contains("closed"), "{}", output.stderr);
    assert!(!place.path("ran").exists());
}

#[test]
fn wrong_options_give_125_and_run_nothing() {
    let place = Place::new();
    for (options, complaint) in [
        (&["--overhead", "0"][..], "above 0"),
        (&["--overhead", "much"], "a percentage is wanted"),
        (&["--overhead", "NaN"], "above 0"),
        (&["--rate", "0"], "between 1 and 20000"),
        (&["--rate", "often"], "a number of samples a second"),
        (&["--duration", "0s"], "must be positive"),
        (&["--duration", "5 parsecs"], "parsecs"),
        (&["--duration", "1e300h"], "not too long"),
        (&["--colour", "mauve"], "mauve"),
        (&["--colour", "\x1b[2Jred"], "red"),
        (&["--top", "-1"], "-1"),
        (&["--html", "no/folder/report.html"], "no/folder"),
        (&["--report-to", "no/folder/report.txt"], "no/folder"),
        (&["--pid", "1"], "cannot be used with"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let output = place.finish(place.linewise(["run"]).args(options).args([
            "--",
            "sh",
            "-c",
            "echo ran > ran",
        ]));
        assert_eq!(output.code, Some(125), "{options:?}: {}", output.stderr);
        assert!(
            output.stderr.contains(complaint),
            "{options:?}: {}",
            output.stderr
        );
        assert!(!place.path("ran").exists(), "{options:?}");
        assert!(!output.stderr.contains('\x1b'), "{:?}", output.stderr);
    }
    for arguments in [&["run"][..], &["run", "--"], &[], &["frobnicate"]] {
        let output = place.finish(&mut place.linewise(arguments));
        assert_eq!(output.code, Some(125), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn an_option_that_means_nothing_for_the_source_is_refused_with_the_reason() {
    let place = Place::new();
    for (options, words) in [
        (
            "--source exact --overhead 2%",
            "--overhead is an option of the timer: the exact source sees every access",
        ),
        (
            "--source exact --rate 100",
            "--rate is an option of the timer",
        ),
        (
            "--source exact --sample-by auto",
            "--sample-by is an option of the timer",
        ),
        (
            "--source exact --guard auto",
            "--guard is an option of the timer: the exact source sets no traps",
        ),
        (
            "--source exact --reuse sampled",
            "take --reuse all or --reuse 1/64",
        ),
        (
            "--source exact --element 8 --reuse none",
            "--element is about reuse",
        ),
        (
            "--source exact --calls --lines 1/64",
            "leave out --lines, or --calls",
        ),
        (
            "--source exact --calls --only libc",
            "leave out --only, or --calls",
        ),
        (
            "--source exact --calls --reuse none",
            "leave out --reuse none, or --calls",
        ),
        (
            "--source exact --order equal-rate --only libc",
            "--only follows a part",
        ),
        ("--source exact --max-size 1GB", "--keep-trace"),
        ("--source timer --reuse 1/64", "add --source exact"),
        (
            "--lines 1/64",
            "--lines is an option of the exact source: add --source exact",
        ),
        ("--only libc", "--only is an option of the exact source"),
        ("--order as-run", "--order is an option of the exact source"),
        ("--repeat 2", "--repeat is an option of the exact source"),
        (
            "--keep-trace",
            "--keep-trace is an option of the exact source",
        ),
        (
            "--machine 2x10",
            "--machine is an option of the exact source",
        ),
        ("--caches", "--caches is an option of the exact source"),
        ("--element 8", "--element is an option of the exact source"),
        ("--calls", "--calls is an option of the exact source"),
    ] {
        let mut command = place.linewise(["record"]);
        command.args(options.split(' '));
        let output = place.finish(command.args(["--", "sh", "-c", "echo ran > ran"]));
        assert_eq!(output.code, Some(125), "{options}: {}", output.stderr);
        let told = output.stderr.split_whitespace().collect::<Vec<_>>();
        assert!(told.join(" ").contains(words), "{options}: {told:?}");
        assert!(!place.path("ran").exists(), "{options}");
        assert!(!place.path("run.linewise").exists(), "{options}");
    }
}

#[test]
fn who_is_started_with_ends_of_children_ignored_hears_of_the_targets_end() {
    let place = Place::new();
    let Some(target) = place.target() else { return };
    let script = "trap '' CHLD; exec \"$@\"";
    for guard in ["off", "on"] {
        let output = place.finish(
            place
                .command("bash")
                .args([
                    "-c", script, "bash", BINARY, "record", "--force", "-o", "made",
                ])
                .args(["--guard", guard, "--"])
                .arg(&target)
                .args(["fight", "0.3"]),
        );
        assert_eq!(output.code, Some(5), "{}", output.stderr);
    }
}

#[test]
fn where_files_may_not_become_large_the_target_keeps_its_code_and_its_own_signal() {
    let place = Place::new();
    for (script, code) in [
        ("sleep 0.5; exit 17", 17),
        ("sleep 0.3; head -c 100000 /dev/zero > big", 128 + 25),
    ] {
        let limited = "ulimit -f 4; exec \"$@\"";
        let output = place.finish(
            place
                .command("bash")
                .args([
                    "-c", limited, "bash", BINARY, "record", "--force", "-o", "made",
                ])
                .args(["--", "bash", "-c", script]),
        );
        assert_eq!(output.code, Some(code), "{}", output.stderr);
    }
}

#[test]
fn a_recording_that_fails_at_its_end_takes_nothing_of_the_targets_code() {
    let place = Place::new();
    let script = "sleep 0.3; rm -rf made.linewise; exit 17";
    let output =
        place.finish(&mut place.linewise(["record", "-o", "made", "--", "sh", "-c", script]));
    assert_eq!(output.code, Some(17), "{}", output.stderr);
    assert!(output.stderr.contains("made.linewise"), "{}", output.stderr);
}
