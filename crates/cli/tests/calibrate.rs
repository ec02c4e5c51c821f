//! `linewise calibrate --quick`: thresholds of this machine, on all CPUs and on one, and what it refuses.

use std::fs;
use std::time::Duration;

use crate::util::{Output, Place, signal, until};

/// Checks what is to be there on every machine.
fn check(output: &Output) {
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let json = output.json();
    assert_eq!(json["schema"], 1);
    for name in ["coherence", "remote", "misses"] {
        let threshold = &json[name];
        assert!(threshold["per_s"].as_f64().unwrap() > 0.0, "{threshold}");
        let kind = threshold["origin"]["kind"].as_str().unwrap();
        assert!(
            ["measured", "computed", "assumed"].contains(&kind),
            "{kind}"
        );
        assert!(!threshold["origin"]["words"].as_str().unwrap().is_empty());
    }
    let points = json["bandwidth"]["points"].as_array().unwrap();
    assert!(points.len() >= 2, "{points:?}");
    assert_eq!(json["misses"]["origin"]["kind"], "measured");
}

#[test]
fn a_quick_calibration_gives_thresholds_figures_and_a_file() {
    let place = Place::new();
    let args = [
        "calibrate",
        "--quick",
        "--json",
        "-o",
        "thresholds.json",
        "--html",
        "page.html",
    ];
    let output = place.finish(&mut place.linewise(args));
    check(&output);
    let json = output.json();
    let file = fs::read_to_string(place.path("thresholds.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["schema"], 1);
    assert_eq!(file["coherence_per_s"], json["coherence"]["per_s"]);
    assert_eq!(file["misses_per_s_node"], json["misses"]["per_s"]);
    assert_eq!(file["how"]["remote"], json["remote"]["origin"]);
    assert_eq!(file["date"].as_str().map(str::len), Some(10));
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("linewise calibrate") && !page.contains("<script"));
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2) {
        let samples = json["lines"]["samples"].as_array().unwrap();
        let shared = samples.iter().filter(|it| it["distance"] != "unshared");
        for sample in shared {
            assert!(sample["events_per_s"].as_f64().unwrap() > 0.0, "{sample}");
        }
    }
}

#[test]
fn on_one_cpu_bandwidth_is_measured_and_the_rest_is_said_to_be_taken_from_elsewhere() {
    let place = Place::new();
    let binary = place.linewise([""; 0]).get_program().to_owned();
    let mut command = place.command("taskset");
    command.args(["-c", "0"]).arg(&binary);
    command.args(["calibrate", "--quick", "--json"]);
    let output = place.finish(&mut command);
    check(&output);
    let json = output.json();
    assert_eq!(json["coherence"]["origin"]["kind"], "assumed");
    assert_eq!(
        json["lines"]["comparisons"].as_array().map(Vec::len),
        Some(0)
    );
    let lacking = &json["lines"]["lacking"][0];
    assert!(
        lacking["why"].as_str().unwrap().contains("one CPU"),
        "{lacking}"
    );
    assert_eq!(json["bandwidth"]["cpus"], serde_json::json!([0]));
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_measured() {
    for option in ["-o", "--html"] {
        let place = Place::new();
        let args = ["calibrate", "--quick", option, "no/such/folder/file"];
        let begun = std::time::Instant::now();
        let output = place.finish(&mut place.linewise(args));
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(
            output.stderr.contains("cannot write to"),
            "{}",
            output.stderr
        );
        assert!(output.stdout.is_empty());
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn ctrl_c_ends_it_and_leaves_no_file() {
    let place = Place::new();
    let args = ["calibrate", "-o", "thresholds.json"];
    let running = place.start(&mut place.interruptible(args));
    let pid = running.child.id();
    until("the threads share", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        threads
            .is_ok_and(|threads| threads.count() > 1)
            .then_some(())
    });
    signal(&pid.to_string(), "INT");
    let output = running.finish();
    assert_eq!(output.code, None, "{}", output.stderr);
    assert!(
        output.stderr.contains("nothing was written"),
        "{}",
        output.stderr
    );
    assert!(!place.path("thresholds.json").exists());
}

#[test]
fn little_memory_is_said_to_have_limited_it() {
    let place = Place::new();
    let binary = place.linewise([""; 0]).get_program().to_owned();
    let script = "ulimit -v 400000; exec \"$0\" calibrate --quick";
    let mut command = place.command("sh");
    command.args(["-c", script]).arg(&binary);
    let output = place.finish(&mut command);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("misses"), "{}", output.stdout);
}

#[test]
fn thresholds_and_page_are_not_written_to_one_file() {
    let place = Place::new();
    let args = ["calibrate", "--quick", "-o", "one", "--html", "./one"];
    let output = place.finish(&mut place.linewise(args));
    assert_eq!(output.code, Some(125), "{}", output.stderr);
    let told = "would be written to the same file";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(!place.path("one").exists());
}
