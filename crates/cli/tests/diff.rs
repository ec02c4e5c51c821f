//! Two recordings side by side.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::util::{Output, Place, emulator, skip};

/// Two threads that count in neighbouring elements, or each in a line of its own.
fn program(place: &Place, name: &str, flags: &[&str]) -> Option<PathBuf> {
    place.compile("gcc", "fixtures/programs/counters.c", name, flags)
}

fn record(place: &Place, name: &str, options: &[&str], program: &Path, arguments: &[&str]) {
    let output = place.finish(
        place
            .linewise(["record", "--quiet", "-o", name])
            .args(options)
            .arg("--")
            .arg(program)
            .args(arguments),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

fn diff(place: &Place, before: &str, after: &str, options: &[&str]) -> Output {
    let names = [before, after].map(|name| format!("{name}.linewise"));
    place.finish(place.linewise(["diff"]).args(names).args(options))
}

/// What is more than noise.
fn real(output: &Output) -> Vec<Value> {
    let changes = output.json()["changes"].as_array().cloned().unwrap();
    let noise = |change: &Value| change["verdict"] == "noise";
    changes.into_iter().filter(|it| !noise(it)).collect()
}

#[test]
fn the_repaired_twin_has_lost_the_finding_and_a_repetition_nothing() {
    let place = Place::new();
    let (Some(bug), Some(fixed)) = (
        program(&place, "bug", &[]),
        program(&place, "fixed", &["-DFIXED"]),
    ) else {
        return;
    };
    // So dear that also a busy machine leaves some watches.
    let options = ["--overhead", "10%", "--force"];
    let record_both = || {
        for (name, program) in [("bug", &bug), ("fixed", &fixed)] {
            record(&place, name, &options, program, &["2"]);
        }
        let output = diff(&place, "bug", "fixed", &["--json", "--html", "diff.html"]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output
    };
    let named = |output: &Output| {
        // A total that changed more than the finding weighs may stand before it.
        let mut changes = real(output).into_iter();
        changes.find(|change| change["view"] == "findings")
    };
    let mut output = record_both();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("with one CPU no line is contended");
    }
    // Where the machine is busy, or changes its round trip between both, intervals may be too wide.
    for _ in 0..3 {
        if named(&output).is_none() {
            output = record_both();
        }
    }
    record(&place, "again", &options, &bug, &["2"]);
    let finding = named(&output).unwrap_or_else(|| panic!("no finding: {}", output.stdout));
    assert_eq!(finding["verdict"], "gone", "{}", output.stdout);
    assert!(finding["name"].as_str().unwrap().contains("counters"));
    let page = std::fs::read_to_string(place.path("diff.html")).unwrap();
    assert!(page.contains("counters") && page.contains("Content-Security-Policy"));
    let text = diff(&place, "bug", "fixed", &[]);
    assert!(text.stdout.contains("gone"), "{}", text.stdout);
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 120));

    let output = diff(&place, "bug", "again", &["--json"]);
    assert_eq!(real(&output), Vec::<Value>::new(), "{}", output.stdout);
}

#[test]
fn samples_and_counts_are_not_compared() {
    let place = Place::new();
    let Some(program) = program(&place, "bug", &[]) else {
        return;
    };
    if !emulator() {
        return;
    }
    record(&place, "sampled", &[], &program, &["0.3"]);
    record(&place, "exact", &["--source", "exact"], &program, &["0.2"]);
    let output = diff(&place, "sampled", "exact", &[]);
    assert_eq!(output.code, Some(125), "{}", output.stdout);
    assert!(
        output.stderr.contains("the same `--source`"),
        "{}",
        output.stderr
    );
}
