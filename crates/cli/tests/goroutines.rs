//! Goroutines that move between threads: what each uses is told of it, whatever thread it is on.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use linewise_recording::Recording;

use crate::util::{Place, skip};

#[test]
fn what_a_goroutine_uses_is_told_of_it_on_whatever_thread_it_is() {
    let place = Place::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/moving.go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&place.path("moving"), std::path::Path::new(source)])
        .output();
    match built {
        Err(error) => return skip(&format!("go does not run: {error}")),
        Ok(it) => assert!(
            it.status.success(),
            "{}",
            String::from_utf8_lossy(&it.stderr)
        ),
    }
    let mut command = place.linewise(["record", "-o", "made", "--"]);
    let output = place.finish(command.arg(place.path("moving")));
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "counted\n")
    );

    let tables = Recording::open(&place.path("made.linewise"))
        .unwrap()
        .tables()
        .unwrap();
    let mut threads: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for row in &tables.goroutines {
        threads
            .entry(row.goroutine.0)
            .or_default()
            .insert(row.tid.0);
    }
    assert!(threads.len() > 1, "{threads:?}");
    assert!(
        threads.values().any(|it| it.len() > 1),
        "none moved: {threads:?}"
    );

    let report = place
        .finish(&mut place.linewise(["report", "--json", "made.linewise"]))
        .json();
    let findings = report["findings"].as_array().unwrap();
    let mut users: BTreeMap<(u64, u64), BTreeSet<u64>> = BTreeMap::new();
    let counters = findings
        .iter()
        .flat_map(|it| it["accesses"].as_array().unwrap());
    for access in
        counters.filter(|it| it["own"]["function"] == "main.count" && it["op"] == "update")
    {
        let word = (
            access["line_address"].as_u64().unwrap(),
            access["offset"].as_u64().unwrap(),
        );
        users
            .entry(word)
            .or_default()
            .extend(access["goroutine"].as_u64());
    }
    // On a busy machine the two may hardly ever meet.
    assert!(users.values().all(|it| it.len() == 1), "{users:#?}");
}

#[test]
fn threads_of_other_languages_run_none() {
    let place = Place::new();
    let source = "crates/cli/tests/rounds.cpp";
    let Some(program) = place.compile("g++", source, "rounds", &[]) else {
        return;
    };
    let mut command = place.linewise(["record", "-o", "made", "--"]);
    assert_eq!(place.finish(command.arg(program)).code, Some(0));
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    let tables = recording.tables().unwrap();
    assert!(tables.samples.len() > 50, "{}", tables.samples.len());
    assert!(tables.goroutines.is_empty(), "{:?}", tables.goroutines);
}
