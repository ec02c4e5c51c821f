//! Lines that processes share.

use crate::util::{Output, Place, contended, threads};

const KINDS: [&str; 4] = ["anonymous", "memfd", "file", "segment"];

fn run(place: &Place, program: &std::path::Path, seconds: &str, kind: &str) -> Output {
    let options = "run --overhead 10% --json --heap off --".split(' ');
    let mut command = place.linewise(options);
    place.finish(command.arg(program).args([seconds, kind]))
}

#[test]
fn two_processes_on_one_line_are_found_and_on_two_lines_not() {
    let place = Place::new();
    let compile = |name: &str, flags: &[&str]| {
        place.compile("gcc", "crates/cli/tests/processes.c", name, flags)
    };
    let (Some(bug), Some(fixed)) = (compile("bug", &[]), compile("fixed", &["-DFIXED"])) else {
        return;
    };
    for kind in KINDS {
        let report = contended(|seconds| Some(run(&place, &bug, seconds, kind)));
        let Some(report) = report else { return };
        let finding = &report["findings"][0];
        assert_eq!(finding["kind"], "false-sharing", "{kind}: {finding:#}");
        let accesses = finding["accesses"].as_array().unwrap();
        let tids: std::collections::BTreeSet<u64> = accesses
            .iter()
            .map(|it| it["tid"].as_u64().unwrap())
            .collect();
        assert_eq!(tids.len(), 2, "{kind}: {accesses:#?}");
        assert!(accesses.iter().all(|it| it["function"] == "count"));
        assert_eq!(threads(&report).len(), 2, "{kind}");
    }
    for kind in KINDS {
        let output = run(&place, &fixed, "1", kind);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert_eq!(
            output.json()["findings"].as_array().unwrap().len(),
            0,
            "{kind}: {}",
            output.stdout
        );
    }
}

#[test]
fn an_exact_run_sees_what_processes_share() {
    let place = Place::new();
    let source = "crates/cli/tests/processes.c";
    let Some(program) = place.compile("gcc", source, "bug", &[]) else {
        return;
    };
    for kind in KINDS {
        let mut command = place.linewise("run --source exact --json --".split(' '));
        let output = place.finish(command.arg(&program).args(["0.1", kind]));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let report = output.json();
        let moved = report["sharing"]["transfers"]["false"].as_f64();
        assert!(moved.unwrap() > 100.0, "{kind}: {moved:?}");
        let said = report["losses"].to_string();
        assert!(said.contains("order-of-processes"), "{kind}: {said}");
        let names = report["findings"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|it| &it["object"]["name"]).collect();
        assert!(names.len() <= 1, "{kind}: {names:?}");
    }
}
