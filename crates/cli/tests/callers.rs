//! Who called the code that samples fell on, in programs without frame pointers.

use std::collections::HashMap;

use linewise_recording::Recording;

use crate::util::{Place, contended};

#[test]
#[cfg(target_arch = "x86_64")]
fn samples_know_their_callers_without_frame_pointers() {
    let place = Place::new();
    let flags = ["-fomit-frame-pointer"];
    let Some(program) = place.compile("gcc", "crates/cli/tests/callers.c", "callers", &flags)
    else {
        return;
    };
    let output = place.finish(place.linewise(["record", "-o", "made", "--"]).arg(&program));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let tables = Recording::open(&place.path("made.linewise"))
        .and_then(|recording| recording.tables())
        .unwrap();
    let mut functions: HashMap<_, &str> = HashMap::new();
    for frame in tables.frames.iter().filter(|frame| frame.depth == 0) {
        functions.insert((frame.pid, frame.address), &frame.function);
    }
    let chains: HashMap<_, _> = tables.stacks.iter().map(|it| (it.id, &it.frames)).collect();
    let named = |sample: &linewise_recording::Sample| -> Vec<&str> {
        let chain = chains.get(&sample.stack).into_iter().copied().flatten();
        chain
            .filter_map(|address| functions.get(&(sample.pid, *address)).copied())
            .collect()
    };
    let inside: Vec<Vec<&str>> = tables
        .samples
        .iter()
        .map(named)
        .filter(|chain| chain.first() == Some(&"sum"))
        .collect();
    let whole = inside
        .iter()
        .filter(|chain| chain.starts_with(&["sum", "middle", "outer", "main"]))
        .count();
    assert!(
        inside.len() > 30 && whole * 10 >= inside.len() * 9,
        "{whole} of {}: {:?}",
        inside.len(),
        inside.first()
    );
    // And what holds what a caller gave.
    let report = place.finish(&mut place.linewise(["report", "--json", "made.linewise"]));
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let types = report["types"].as_array().unwrap();
    let mut reached = types
        .iter()
        .filter_map(|kind| kind["reached"].as_array())
        .flatten();
    assert!(
        reached.any(|row| row["through"] == "state.numbers"),
        "{types:#?}"
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn findings_say_who_called_the_code_that_waits() {
    let place = Place::new();
    let flags = ["-fomit-frame-pointer", "-pthread"];
    let Some(program) = place.compile("gcc", "crates/cli/tests/calling.c", "calling", &flags)
    else {
        return;
    };
    let report = contended(|seconds| {
        let options = "run --overhead 10% --json --heap off --".split(' ');
        let mut command = place.linewise(options);
        Some(place.finish(command.arg(&program).arg(seconds)))
    });
    let Some(report) = report else {
        return;
    };
    let accesses = report["findings"][0]["accesses"].as_array().unwrap();
    // Of each thread its own.
    let chains: Vec<&serde_json::Value> = accesses
        .iter()
        .filter(|it| it["function"] == "count")
        .flat_map(|it| it["called_from"].as_array().unwrap())
        .collect();
    for (caller, callers) in [("requests (", "main ("), ("replies (", "reply (")] {
        let begins =
            |it: &serde_json::Value, name| it.as_str().is_some_and(|it| it.starts_with(name));
        let found = chains.iter().any(|chain| {
            begins(&chain["callers"][0], caller)
                && begins(&chain["callers"][1], callers)
                && chain["callers"].as_array().unwrap().len() == 2
                && chain["share"].as_f64().unwrap() > 0.9
        });
        assert!(found, "{caller}: {chains:#?}");
    }
}
