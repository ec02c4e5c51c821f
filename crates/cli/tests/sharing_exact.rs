//! The exact source on programs whose sharing is known.

use serde_json::Value;

use crate::util::Place;

fn transfers(report: &Value) -> f64 {
    let transfers = &report["sharing"]["transfers"];
    let of = |kind: &str| transfers[kind].as_f64().unwrap();
    of("true") + of("false")
}

#[test]
fn counters_on_one_line_are_found_where_they_stand() {
    let place = Place::new();
    let source = "fixtures/programs/counters.c";
    let Some(program) = place.compile("gcc", source, "counters", &[]) else {
        return;
    };
    let Some(report) = place.traced(&[], &program, &["0.5"]) else {
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

    let Some(twin) = place.compile("gcc", source, "twin", &["-DFIXED"]) else {
        return;
    };
    let Some(report) = place.traced(&[], &twin, &["0.5"]) else {
        return;
    };
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
}

#[test]
fn equal_work_gives_equal_counts_and_the_twin_next_to_none() {
    let place = Place::new();
    let source = "crates/tracer/tests/programs/counters.c";
    let Some(program) = place.compile("gcc", source, "counters", &[]) else {
        return;
    };
    let times = 1_000_000.0;
    let mut counts = Vec::new();
    for distance in ["8", "8", "256"] {
        let Some(report) = place.traced(&[], &program, &[distance, "1000000"]) else {
            return;
        };
        let threads = report["sharing"]["threads"].as_array().unwrap().len();
        let matrix = &report["sharing"]["matrix"]["false"];
        for (a, b) in (0..threads).flat_map(|a| (0..threads).map(move |b| (a, b))) {
            assert_eq!(matrix[a][b], matrix[b][a], "{matrix}");
        }
        counts.push(transfers(&report));
    }
    // Every increment of either thread fetches the line from the other.
    for count in &counts[..2] {
        assert!((1.9 * times..2.1 * times).contains(count), "{counts:?}");
    }
    assert!(counts[2] * 100.0 < counts[0], "{counts:?}");
}

#[test]
fn a_command_that_is_run_again_has_the_same_counts() {
    let place = Place::new();
    let source = "crates/tracer/tests/programs/meeting.c";
    let Some(program) = place.compile("gcc", source, "meeting", &["-pthread"]) else {
        return;
    };
    let Some(report) = place.traced(&["--repeat", "3"], &program, &["add", "3000"]) else {
        return;
    };
    let repeated = &report["run"]["repeated"];
    assert_eq!(repeated["runs"], 3, "{repeated}");
    // Neither asks the clock nor chance: joins, sleeping and ending are in the order, too.
    for count in ["accesses", "transfers"] {
        let [low, high] = ["low", "high"].map(|end| repeated[count][end].as_f64().unwrap());
        assert!(low > 3000.0 && high <= low * 1.0001 + 2.0, "{repeated}");
    }
    let interval = &report["findings"][0]["transfers_interval"];
    assert_eq!(report["findings"][0]["kind"], "true-sharing", "{report:#}");
    assert!(interval["low"].as_f64() > Some(5000.0), "{interval}");
}

#[test]
fn messages_that_are_handed_over_are_truly_shared_in_both_models() {
    let place = Place::new();
    let source = "fixtures/programs/messages.c";
    let Some(program) = place.compile("gcc", source, "messages", &["-O1"]) else {
        return;
    };
    for options in [&[][..], &["--caches"]] {
        let Some(report) = place.traced(options, &program, &["100000"]) else {
            return;
        };
        let found = |name: &str| {
            let findings = report["findings"].as_array().unwrap();
            let finding = findings.iter().find(|it| it["object"]["name"] == name);
            let finding = finding.unwrap_or_else(|| panic!("{name}: {report:#}"));
            let share = finding["false_share"].as_f64().unwrap();
            (finding["kind"].as_str().unwrap().to_owned(), share)
        };
        let (kind, share) = found("queue");
        assert!(kind == "true-sharing" && share < 0.1, "{kind} {share}");
        let (kind, share) = found("own");
        assert!(kind == "false-sharing" && share > 0.95, "{kind} {share}");
    }
}
