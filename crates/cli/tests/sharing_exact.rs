//! The exact source on programs whose sharing is known.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::util::{Place, skip};

/// Compiles a C file of the workspace; `None`, with the reason said, where there is no compiler.
fn compile(place: &Place, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(source);
    let program = place.path(name);
    let built = Command::new("gcc")
        .args(["-O2", "-g", "-pthread"])
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .output();
    match built {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            Some(program)
        }
        Err(error) => {
            skip(&format!("gcc does not run: {error}"));
            None
        }
    }
}

/// The JSON report of an exact run; `None`, with the reason said, where there is no emulator.
fn traced(place: &Place, program: &Path, arguments: &[&str]) -> Option<Value> {
    if Command::new("qemu-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("qemu-x86_64 does not run: install qemu-user");
        return None;
    }
    let report = place.path("report.json");
    let output = place.finish(
        place
            .linewise(["run", "--source", "exact", "--quiet", "--json"])
            .arg("--report-to")
            .arg(&report)
            .arg("--")
            .arg(program)
            .args(arguments),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let text = std::fs::read_to_string(report).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

fn equal_rate(report: &Value) -> f64 {
    report["sharing"]["transfers"]["orders"]["equal_rate"]
        .as_f64()
        .unwrap()
}

#[test]
fn counters_on_one_line_are_found_where_they_stand() {
    let place = Place::new();
    let source = "fixtures/programs/counters.c";
    let Some(program) = compile(&place, source, "counters", &[]) else {
        return;
    };
    let Some(report) = traced(&place, &program, &["0.5"]) else {
        return;
    };
    let first = &report["findings"][0];
    assert_eq!(first["kind"], "false-sharing", "{report:#}");
    assert_eq!(first["object"]["name"], "counters", "{first:#}");
    assert_eq!(first["object"]["kind"], "static", "{first:#}");
    let accesses = first["accesses"].as_array().unwrap();
    let mut threads: Vec<u64> = Vec::new();
    // The sum that each worker reads once at its end takes next to nothing.
    let dear = |access: &&Value| access["share"].as_f64().unwrap() > 0.01;
    for access in accesses.iter().filter(dear) {
        assert_eq!(access["function"], "worker", "{first:#}");
        assert_ne!(access["op"], "load", "counters are incremented: {first:#}");
        let field = access["field"].as_str().unwrap();
        assert!(
            field.ends_with("].hits") || field.ends_with("].misses"),
            "{first:#}"
        );
        threads.push(access["tid"].as_u64().unwrap());
    }
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 2, "{first:#}");
    // What only a timer knows is not there.
    assert!(first["evidence"]["samples"].is_null(), "{first:#}");
    assert!(report["run"]["overhead"].is_null());
    assert!(report["timeline"].as_array().unwrap().is_empty());
    assert!(report["sharing"]["cpus"].as_array().unwrap().is_empty());

    let Some(twin) = compile(&place, source, "twin", &["-DFIXED"]) else {
        return;
    };
    let Some(report) = traced(&place, &twin, &["0.5"]) else {
        return;
    };
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
}

#[test]
fn equal_work_gives_equal_counts_and_the_twin_next_to_none() {
    let place = Place::new();
    let source = "crates/tracer/tests/programs/counters.c";
    let Some(program) = compile(&place, source, "counters", &[]) else {
        return;
    };
    // So long that the first thread cannot be done before the second is made: equal rate keeps the
    // order in which they were seen to count themselves in and out.
    let times = 1_000_000.0;
    let mut counts = Vec::new();
    for distance in ["8", "8", "256"] {
        let Some(report) = traced(&place, &program, &[distance, "1000000"]) else {
            return;
        };
        let threads = report["sharing"]["threads"].as_array().unwrap().len();
        let matrix = &report["sharing"]["matrix"]["false"];
        for (a, b) in (0..threads).flat_map(|a| (0..threads).map(move |b| (a, b))) {
            assert_eq!(matrix[a][b], matrix[b][a], "{matrix}");
        }
        counts.push(equal_rate(&report));
    }
    // Every increment of either thread fetches the line from the other.
    for count in &counts[..2] {
        assert!((1.9 * times..2.1 * times).contains(count), "{counts:?}");
    }
    assert!(counts[2] * 100.0 < counts[0], "{counts:?}");
}
