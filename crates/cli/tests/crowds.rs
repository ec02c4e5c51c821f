//! Many processes and many threads.

use serde_json::Value;

use crate::util::{Place, threads};

/// Runs a mode of the target, which ends with this code, sampled in each way there is; the reports.
fn crowd(mode: &str, code: i32) -> Vec<Value> {
    let place = Place::new();
    let Some(target) = place.target() else {
        return Vec::new();
    };
    let report = |by| {
        let output = place.finish(
            place
                .linewise(["run", "--json", "--sample-by", by, "--"])
                .arg(&target)
                .arg(mode),
        );
        assert_eq!(output.code, Some(code), "{}", output.stderr);
        assert!(place.leftovers().is_empty());
        output.json()
    };
    ["auto", "thread"].map(report).into()
}

/// Fewer than all may be known only where the report says that records were lost.
fn assert_threads(report: &Value, all: usize) {
    let known = threads(report).len();
    let lost = report["losses"].get("ring-buffer-full").is_some();
    assert!(
        known == all || (lost && known < all),
        "{known} of {all}: {:#}",
        report["losses"]
    );
}

#[test]
fn two_hundred_children_are_followed() {
    for report in crowd("forks", 9) {
        assert_threads(&report, 201);
    }
}

#[test]
fn two_thousand_threads_that_come_and_go_are_followed() {
    for report in crowd("threads", 10) {
        assert_threads(&report, 2001);
    }
}

#[test]
fn threads_that_live_for_less_than_a_period_are_sampled() {
    for report in crowd("short-lives", 19) {
        let samples = report["samples"]["total"].as_u64().unwrap();
        // The shortest period grows with what a sample costs. Where it is longer than these lives, the
        // report must say what was missed.
        let sample_ns = report["run"]["overhead"]["sample_ns"].as_f64().unwrap();
        let told = report["losses"].get("threads-too-short").is_some();
        assert!(
            samples >= 100 || (sample_ns >= 45_000.0 && told),
            "{:#}\n{:#}\n{:#}",
            report["samples"],
            report["losses"],
            report["run"]["overhead"]
        );
    }
}

#[test]
fn five_hundred_threads_at_a_time_are_followed() {
    for report in crowd("alive", 11) {
        assert_threads(&report, 501);
    }
}
