//! Lines that processes share.

use crate::util::{Output, Place, contended, threads};

const KINDS: [&str; 4] = ["anonymous", "memfd", "file", "segment"];
/// Two threads of one process that has mapped the memory at two addresses.
const TWICE: &str = "twice";

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
    for kind in KINDS.into_iter().chain([TWICE]) {
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
    for kind in KINDS.into_iter().chain([TWICE]) {
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
    for kind in KINDS.into_iter().chain([TWICE]) {
        let mut command = place.linewise("run --source exact --json --".split(' '));
        let output = place.finish(command.arg(&program).args(["0.1", kind]));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let report = output.json();
        let moved = report["sharing"]["transfers"]["false"].as_f64();
        assert!(moved.unwrap() > 100.0, "{kind}: {moved:?}");
        let names = report["findings"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|it| &it["object"]["name"]).collect();
        assert!(names.len() <= 1, "{kind}: {names:?}");
    }
}

/// Transfers, and how often the machine had its hand in the order.
fn meets(place: &Place, program: &std::path::Path, words: &str) -> (u64, bool) {
    let mut command = place.linewise("run --source exact --json --".split(' '));
    let output = place.finish(command.arg(program).args(words.split(' ')));
    assert_eq!(output.code, Some(0), "{words}: {}", output.stderr);
    let report = output.json();
    let transfers = &report["sharing"]["transfers"];
    let [by_true, by_false] = ["true", "false"].map(|kind| transfers[kind].as_f64().unwrap());
    let losses = report["losses"].to_string();
    let by_the_kernel = losses.contains("order-by-the-kernel");
    ((by_true + by_false) as u64, by_the_kernel)
}

#[test]
fn processes_that_share_memory_are_in_one_order() {
    let place = Place::new();
    let source = "crates/cli/tests/meeting.c";
    let Some(program) = place.compile("gcc", source, "meeting", &["-pthread"]) else {
        return;
    };
    // A child of fork is one that QEMU takes for having stopped all others.
    let (moved, _) = meets(&place, &program, "child");
    assert!((19_000..20_500).contains(&moved), "{moved}");
    // Each addition of two that take turns finds the line with the other.
    for kind in KINDS {
        for more in ["", " threads"] {
            let words = format!("{kind} counter 2 2{more}");
            let (moved, _) = meets(&place, &program, &words);
            assert!((39_600..40_400).contains(&moved), "{words}: {moved}");
        }
    }
    // Whom a signal's handler returns to has waited for nobody. While one is in the handler the other adds alone.
    let signals = || meets(&place, &program, "anonymous signals 2 200");
    let (moved, by_the_kernel) = signals();
    assert!(
        (28_000..40_400).contains(&moved) && !by_the_kernel,
        "{moved}"
    );
    assert_eq!(signals(), (moved, false));
    // When they come is the machine's, and from then on they take turns.
    let (moved, _) = meets(&place, &program, "executed counter 2 5");
    assert!((95_000..101_000).contains(&moved), "{moved}");
    for words in [
        "anonymous mutex 3 2000",
        "memfd ring 2 2000",
        "file barrier 3 500",
    ] {
        let (one, by_the_kernel) = meets(&place, &program, words);
        let (other, by_the_kernel_too) = meets(&place, &program, words);
        assert!(
            one == other || by_the_kernel || by_the_kernel_too,
            "{words}: {one} and {other}"
        );
        assert!(one > 1000, "{words}: {one}");
    }
}

#[test]
fn memory_of_its_own_that_covers_what_a_process_shares_is_nobody_else_s() {
    let place = Place::new();
    let source = "crates/cli/tests/covered.c";
    let Some(program) = place.compile("gcc", source, "covered", &[]) else {
        return;
    };
    let (moved, _) = meets(&place, &program, "300");
    assert!(moved < 20, "60,000 writes of each to its own page: {moved}");
    // Of 300 writes of each to the page in common each may find the line with the other.
    let (moved, _) = meets(&place, &program, "300 shared");
    assert!((50..=620).contains(&moved), "{moved}");
}
