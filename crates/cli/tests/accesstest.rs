//! `linewise bench accesstest`: short runs of every mode, and what it refuses.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use crate::util::{Output, Place, signal, until};

fn accesstest(place: &Place, args: &[&str]) -> Output {
    let words = ["bench", "accesstest", "--no-wipe"].iter().chain(args);
    place.finish(&mut place.linewise(words))
}

/// What a refusal says; it must be one line, and nothing may be left behind.
fn refusal(args: &[&str]) -> String {
    let place = Place::new();
    let output = accesstest(&place, args);
    assert_ne!(output.code, Some(0), "{args:?}: {}", output.stdout);
    assert!(output.stdout.is_empty(), "{args:?}: {}", output.stdout);
    assert!(place.leftovers().is_empty());
    output.stderr
}

fn two_cpus() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2)
}

#[test]
fn every_mode_gives_points_as_json_and_curves_as_a_page() {
    if !two_cpus() {
        return;
    }
    let place = Place::new();
    let args = [
        "--sizes",
        "8K,16K",
        "--updates",
        "0,100",
        "--sessions",
        "10",
        "--seconds",
        "0.02",
        "--repeats",
        "2",
        "--html",
        "page.html",
        "--json",
    ];
    let output = accesstest(&place, &args);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let json = output.json();
    assert_eq!(json["schema"], 1);
    let samples = json["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2 * 2 * 4 * 2);
    for sample in samples {
        assert!(sample["accesses"].as_u64().unwrap() > 0, "{sample}");
        assert_eq!(
            sample["written_percent"], sample["update_percent"],
            "{sample}"
        );
    }
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("linewise bench accesstest") && !page.contains("<script"));
}

#[test]
fn threads_walk_in_every_mode_too() {
    if !two_cpus() {
        return;
    }
    let place = Place::new();
    let args = [
        "--sizes",
        "8K",
        "--updates",
        "10",
        "--sessions",
        "4",
        "--seconds",
        "0.05",
        "--repeats",
        "1",
        "--session-type",
        "thread",
        "--phases",
        "3",
        "--start",
        "u",
        "--json",
    ];
    let output = accesstest(&place, &args);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let json = output.json();
    assert_eq!(json["samples"].as_array().unwrap().len(), 4);
    assert_eq!(json["session_type"], "thread");
}

#[test]
fn the_line_of_the_thesis_is_taken_and_sessions_are_logged() {
    for session_type in ["fibre", "thread"] {
        let place = Place::new();
        let line = format!(
            "-s 5 -d 0.05 -r 3 --sess-distr=u --log-sessions=sessions.csv -v 1/64,0.1 0/64,0.1,100 \
             2/8:0,0.1,0/1 {session_type}"
        );
        let args = [
            "--appendix-b",
            &line,
            "--repeats",
            "1",
            "--mode",
            "synchronous",
            "--fresh",
        ];
        let output = accesstest(&place, &args);
        assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
        assert!(output.stdout.contains("5 sessions"), "{}", output.stdout);
        assert!(
            output.stderr.contains("iterations a session"),
            "{}",
            output.stderr
        );
        let log = std::fs::read_to_string(place.path("sessions.csv")).unwrap();
        let mut lines = log.lines();
        let header = "id,name,stack_low,stack_high,begin_ns,end_ns,phase,accesses";
        assert_eq!(lines.next(), Some(header));
        let mut stacks = HashSet::new();
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 5);
        for (id, row) in rows.iter().enumerate() {
            assert_eq!(row[0], id.to_string());
            assert_eq!(row[1], format!("session-{id}"));
            let address = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap();
            assert!(address(row[2]) < address(row[3]), "{row:?}");
            stacks.insert(row[2]);
            let number = |text: &str| text.parse::<u64>().unwrap();
            assert!(number(row[4]) < number(row[5]), "{row:?}");
            assert_eq!(number(row[6]), id as u64 % 2);
        }
        assert_eq!(stacks.len(), 5, "{log}");
    }
}

#[test]
fn weights_apart_by_more_than_the_elements_of_a_line_are_a_path() {
    let place = Place::new();
    let args = [
        "--phase",
        "0/1,0,1700",
        "--phase",
        "0/4,1,17",
        "--sessions",
        "2",
        "--seconds",
        "0.02",
        "--repeats",
        "1",
        "--mode",
        "synchronous",
        "--json",
    ];
    let output = accesstest(&place, &args);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let sample = &output.json()["samples"][0];
    // Four lines are accessed once each, and the one 400 times.
    assert_eq!(sample["iteration"], 404);
    assert!((sample["written_percent"].as_f64().unwrap() - 100.0 * 4.0 / 404.0).abs() < 1e-9);
}

#[test]
fn it_waits_for_its_signal() {
    let place = Place::new();
    let args = [
        "bench",
        "accesstest",
        "--sizes",
        "4K",
        "--updates",
        "0",
        "--sessions",
        "2",
        "--seconds",
        "0.02",
        "--repeats",
        "1",
        "--mode",
        "synchronous",
        "--signal",
    ];
    let running = place.start(&mut place.linewise(args));
    until("it is ready", || {
        running
            .complaints()
            .contains("wait for SIGUSR1")
            .then_some(())
    });
    std::thread::sleep(Duration::from_millis(100));
    signal(&running.child.id().to_string(), "USR1");
    let output = running.finish();
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}

#[test]
fn on_one_cpu_it_is_synchronous_and_says_why() {
    let cpu = "0";
    let pinned = |args: &[&str]| {
        let place = Place::new();
        let mut command = place.command("taskset");
        command
            .args(["-c", cpu, crate::util::BINARY, "bench", "accesstest"])
            .args(args);
        place.finish(&mut command)
    };
    if Command::new("taskset")
        .args(["-c", cpu, "true"])
        .status()
        .is_ok_and(|it| it.success())
    {
        let short = [
            "--sizes",
            "4K",
            "--updates",
            "0",
            "--sessions",
            "2",
            "--seconds",
            "0.02",
        ];
        let output = pinned(&short);
        assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
        assert!(
            output.stdout.contains("needs two CPUs"),
            "{}",
            output.stdout
        );
        for mode in ["delegated", "visit", "requests"] {
            let output = pinned(&[&short[..], &["--mode", mode]].concat());
            assert_eq!(output.code, Some(125), "{}", output.stdout);
            assert!(
                output.stderr.contains("synchronous, which works on one"),
                "{}",
                output.stderr
            );
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_reason() {
    for (args, told) in [
        (&["--sizes", "3G"][..], "29 bits"),
        (&["--sizes", "64"], "1 lines cannot be cut into 2 phases"),
        (
            &["--sizes", "1K", "--phases", "17"],
            "16 lines cannot be cut into 17 phases",
        ),
        (&["--sizes", "1K", "--phases", "0"], "phases must be from 1"),
        (
            &["--phase", "2000000/0", "--phase", "0/1", "-s", "10000"],
            "are available",
        ),
        (
            &["--phase", "0/1,0,1e12", "--phase", "0/1,0,1"],
            "no path has accesses in these proportions",
        ),
        (
            &["--phase", "0/1", "--phase", "0/0"],
            "phase 1 accesses no line",
        ),
        (
            &["--phase", "0/1", "--shared", "0/1:0/5"],
            "there is no phase 5",
        ),
        (
            &["--phase", "0/1", "--phase", "0/1", "--start", "2"],
            "there is no phase 2",
        ),
        (
            &["--phase", "0/1", "--mode", "delegated"],
            "there is one only",
        ),
        (&["--sizes", "1K", "-s", "0"], "sessions must be from 1"),
        (
            &["--sizes", "1K", "-s", "9007199254740993"],
            "not 9007199254740993",
        ),
        (
            &["--phase", "0/1,0,1", "--phase", "0/1,0,1e-200"],
            "e200 accesses an iteration",
        ),
        (&["--sizes", "1K", "--repeats", "0"], "runs of a figure"),
        (&["--sizes", "1K", "--cpus", "100000"], "not among the CPUs"),
        (&["--sizes", "1K", "--cpus", "0,0"], "CPU 0 is named twice"),
    ] {
        let error = refusal(args);
        assert!(error.contains(told), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn one_file_for_the_sessions_and_the_page_is_refused_before_the_run() {
    let place = Place::new();
    std::os::unix::fs::symlink("both", place.path("link")).unwrap();
    for (log, page) in [("both", "both"), ("both", "./both"), ("link", "both")] {
        let args = [
            "--sizes",
            "4K",
            "--seconds",
            "100",
            "--log-sessions",
            log,
            "--html",
            page,
        ];
        let output = accesstest(&place, &args);
        assert_eq!(output.code, Some(125), "{}", output.stdout);
        let told = "would be written to the same file";
        assert!(output.stderr.contains(told), "{}", output.stderr);
        assert!(!place.path("both").exists());
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_an_example() {
    for (args, told) in [
        (
            &["--appendix-b", "-x 0/256 fibre"][..],
            "there is no option -x",
        ),
        (&["--appendix-b", "0/256 0/256"], "session type"),
        (&["--appendix-b", "0/256 pthread"], "pthread is neither"),
        (&["--appendix-b", "-s 3 fibre"], "what the phases access"),
        (
            &["--appendix-b", "0/2 fibre", "--sizes", "4K"],
            "cannot be used with",
        ),
        (&["--phase", "256"], "there is no slash"),
        (
            &["--phase", "0/1", "--shared", "0/1:0"],
            "two phases or more",
        ),
        (&["--sizes", "12Q"], "96K"),
        (
            &["--phase", "0/1,1.5"],
            "an update ratio must be from 0 to 1",
        ),
        (
            &["--sizes", "1K", "--updates", "9007199254740993"],
            "'9007199254740993' for '--updates <PERCENT>': an update ratio is from 0 to 100 percent",
        ),
        (&["--sizes", "1K", "--seconds", "0"], "seconds of a run"),
        (
            &["--sizes", "1K", "--seconds", "9007199254740993"],
            "not 9007199254740993",
        ),
        (
            &["--appendix-b", "-d 9007199254740993 0/256 fibre"],
            "not 9007199254740993",
        ),
        (
            &["--sizes", "1K", "--seconds", "soon"],
            "no number of seconds",
        ),
        (
            &["--phase", "0/1,0,9007199254740993"],
            "not 9007199254740993",
        ),
        (&["--mode", "sideways"], "there are synchronous"),
        (&["--start", "v"], "neither the index"),
        (&["--sweep", "l4"], "l1d, l2, l3, all"),
    ] {
        let error = refusal(args);
        assert!(error.contains(told), "{args:?}: {error}");
    }
}
