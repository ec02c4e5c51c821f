//! Objects followed from their allocation to their end: what is reported against what the program did, and
//! programs that make it hard.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::heap::recorder;
use crate::util::{Output, Place, skip};

/// Builds `flow.c`; `None`, with the reason said, where there is no C compiler.
fn target(place: &Place, flags: &[&str]) -> Option<PathBuf> {
    let flags = [&["-O1"], flags].concat();
    place.compile("gcc", "crates/cli/tests/flow.c", "flow", &flags)
}

/// Runs `target` for a while with these options, and the report to a file.
fn run(place: &Place, options: &[&str], target: &Path, arguments: &[&str]) -> (Output, Value) {
    let mut command = place.linewise(["run", "--json", "--report-to", "report.json"]);
    command
        .args(options)
        .arg("--")
        .arg(target)
        .args(arguments)
        .env("LINEWISE_PRELOAD", recorder());
    let output = place.finish(&mut command);
    let text = std::fs::read_to_string(place.path("report.json"))
        .unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (output, serde_json::from_str(&text).unwrap())
}

/// Histories that say in which order the places of an object are touched: of the 15 pairs of its six words each
/// some ten times.
const ENOUGH: u64 = 150;

/// Function and thread of each node of a path, and the share of the objects that take it.
fn path(row: &Value, number: usize) -> (Vec<(String, u64)>, f64) {
    let path = &row["paths"][number];
    let nodes = path["nodes"].as_array().unwrap().iter();
    let nodes = nodes.map(|id| {
        let node = &row["nodes"][id.as_u64().unwrap() as usize];
        let function = node["function"].as_str().unwrap().to_owned();
        (function, node["thread"].as_u64().unwrap())
    });
    (nodes.collect(), path["frequency"].as_f64().unwrap())
}

#[test]
fn the_paths_of_objects_are_told_in_order_with_their_threads_and_frequencies() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("with one CPU the two threads of the program wait for each other's turns");
    }
    let options = ["--flow=make_packet", "--overhead", "10%"];
    // The order of two places is known when both were watched in one life: on a busy machine that takes
    // longer.
    let run_for = |seconds: &&str| run(&place, &options, &target, &[seconds]);
    let is_enough = |(_, report): &(Output, Value)| {
        let histories = report["flow"][0]["histories"].as_u64().unwrap_or(0);
        histories >= ENOUGH || report["losses"]["watchpoints-unavailable"].is_object()
    };
    let mut runs = ["6", "12"].iter().map(run_for);
    let longest = || run_for(&"24");
    let last = runs.find(is_enough).unwrap_or_else(longest);
    let enough = is_enough(&last);
    let (output, report) = last;
    let losses = &report["losses"];
    if losses["watchpoints-unavailable"].is_object() {
        return skip("there are no watchpoints here");
    }
    let truth: Vec<f64> = output
        .stdout
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let handed = truth[0] / (truth[0] + truth[1]);
    let row = &report["flow"][0];
    assert_eq!(row["type"], "struct packet", "{losses}");
    assert_eq!(row["size"], 48);
    if !enough {
        return skip("this machine is too busy for many histories in 24 seconds");
    }
    let (first, frequency) = path(row, 0);
    let names: Vec<&str> = first.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(
        names[..4],
        ["make_packet", "make_packet", "fill", "hand_over"],
        "{row}"
    );
    assert!(["check", "consume"].contains(&names[4]), "{row}");
    assert_eq!(*names.last().unwrap(), "free");
    assert!(
        first[..4].iter().all(|it| it.1 == 0) && first[4..].iter().all(|it| it.1 == 1),
        "{row}"
    );
    let edge = |from: usize, to: usize| {
        let nodes = &row["paths"][0]["nodes"];
        let edges = row["edges"].as_array().unwrap().iter();
        let mut edges = edges.filter(|edge| edge["from"] == nodes[from] && edge["to"] == nodes[to]);
        edges.next().unwrap()["thread_change"].as_bool().unwrap()
    };
    assert!(edge(3, 4) && !edge(1, 2), "{row}");
    let (second, _) = path(row, 1);
    let names: Vec<&str> = second.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(
        names,
        ["make_packet", "make_packet", "fill", "reject", "free"],
        "{row}"
    );
    assert!(second.iter().all(|it| it.1 == 0), "{row}");
    // What is seen are objects of some addresses, at times that the budget allows.
    assert!(
        (frequency - handed).abs() < 0.15,
        "{frequency} instead of {handed}: {row}"
    );
}

#[test]
fn what_cannot_be_followed_is_said() {
    let place = Place::new();
    let Some(program) = target(&place, &[]) else {
        return;
    };
    let lost = |options: &[&str], arguments: &[&str], what: &str| {
        let (output, report) = run(&place, options, &program, arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(report["flow"].is_null());
        let detail = report["losses"][what]["detail"].as_str();
        detail
            .unwrap_or_else(|| panic!("no {what}: {}", report["losses"]))
            .to_owned()
    };
    let detail = lost(&["--flow=no_such_function"], &["0.5"], "flow-not-found");
    assert!(detail.contains("no_such_function"), "{detail}");
    let detail = lost(
        &["--flow=make_packet"],
        &["0.5", "keep"],
        "flow-nothing-seen",
    );
    assert!(detail.contains("none was freed"), "{detail}");
    // Its allocator could be probed, but not without symbols.
    let Some(program) = target(&place, &["-static", "-s"]) else {
        return;
    };
    let (output, report) = run(&place, &["--flow"], &program, &["0.2"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output.stderr.contains("objects are not followed"),
        "{}",
        output.stderr
    );
    assert!(report["losses"]["heap-not-recorded"].is_object());
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let place = Place::new();
    for (options, word) in [
        (
            ["--flow", "--reuse", "sampled"].as_slice(),
            "--reuse sampled",
        ),
        (&["--flow", "--pid", "1"], "--pid"),
    ] {
        let mut command = place.linewise(["record"]);
        command.args(options);
        if !options.contains(&"--pid") {
            command.args(["--", "true"]);
        }
        let output = place.finish(&mut command);
        assert_eq!(output.code, Some(125), "{}", output.stderr);
        assert!(output.stderr.contains(word), "{}", output.stderr);
    }
}

#[test]
fn a_program_that_dies_while_its_objects_are_followed_leaves_a_whole_recording() {
    let place = Place::new();
    let Some(target) = target(&place, &[]) else {
        return;
    };
    // The program ends with SIGKILL, and the shell tells so.
    let script = format!(
        "'{}' 60 & sleep 1; kill -9 $!; wait $! 2>/dev/null",
        target.display()
    );
    let options = ["--flow=make_packet", "--heap", "on"];
    let (output, report) = run(&place, &options, Path::new("sh"), &["-c", &script]);
    assert_eq!(output.code, Some(137), "{}", output.stderr);
    assert_eq!(report["run"]["complete"], true);
    assert_eq!(report["run"]["exit_code"], 137);
}
