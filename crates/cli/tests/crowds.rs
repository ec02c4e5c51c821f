//! Many processes and many threads.

use serde_json::Value;

use crate::util::{Place, threads};

/// Runs a mode of the target; its code and the report.
fn crowd(mode: &str) -> Option<(Option<i32>, Value)> {
    let place = Place::new();
    let target = place.target()?;
    let output = place.finish(
        place
            .linewise(["run", "--json", "--"])
            .arg(target)
            .arg(mode),
    );
    let report = output.json();
    assert!(place.leftovers().is_empty());
    Some((output.code, report))
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
    let Some((code, report)) = crowd("forks") else {
        return;
    };
    assert_eq!(code, Some(9));
    assert_threads(&report, 201);
}

#[test]
fn two_thousand_threads_that_come_and_go_are_followed() {
    let Some((code, report)) = crowd("threads") else {
        return;
    };
    assert_eq!(code, Some(10));
    assert_threads(&report, 2001);
}

#[test]
fn threads_that_live_for_less_than_a_period_are_sampled() {
    let Some((code, report)) = crowd("short-lives") else {
        return;
    };
    assert_eq!(code, Some(19));
    let samples = report["samples"]["total"].as_u64().unwrap();
    assert!(samples >= 100, "{:#}", report["samples"]);
}

#[test]
fn five_hundred_threads_at_a_time_are_followed() {
    let Some((code, report)) = crowd("alive") else {
        return;
    };
    assert_eq!(code, Some(11));
    assert_threads(&report, 501);
}
