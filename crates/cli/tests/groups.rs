//! Groups of threads of a program with two pairs among four.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::util::{BINARY, Place, emulator, skip};

fn two_pairs(place: &Place) -> Option<PathBuf> {
    place.compile("gcc", "fixtures/programs/two_pairs.c", "two_pairs", &[])
}

/// The names in each group.
fn members(groups: &Value) -> BTreeSet<BTreeSet<&str>> {
    let threads = groups["threads"].as_array().unwrap();
    let name = |tid: &Value| {
        let thread = threads.iter().find(|it| it["tid"] == *tid);
        thread.and_then(|it| it["name"].as_str()).unwrap()
    };
    let groups = groups["groups"].as_array().unwrap().iter();
    let tids = groups.map(|it| it["threads"].as_array().unwrap());
    tids.map(|it| it.iter().map(name).collect()).collect()
}

fn expected() -> BTreeSet<BTreeSet<&'static str>> {
    let pair = |one, other| BTreeSet::from([one, other]);
    BTreeSet::from([
        pair("left-push", "left-pop"),
        pair("right-push", "right-pop"),
    ])
}

#[test]
fn two_pairs_among_four_threads_are_found_by_samples_wherever_the_kernel_runs_them() {
    let place = Place::new();
    let Some(target) = two_pairs(&place) else {
        return;
    };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("with one CPU no line moves");
    }
    let output = place.finish(
        place
            .linewise(["groups", "--json", "--overhead", "5%", "-o", "pairs", "--"])
            .arg(target)
            .args(["4", "--unpinned"]),
    );
    let groups: Value = output.json();
    assert_eq!(members(&groups), expected(), "{groups:#}");
    let why = &groups["groups"][0]["why"][0]["object"];
    assert!(["left", "right"].contains(&why.as_str().unwrap()), "{why}");
    // The recording again, with options behind its name.
    let page = place.path("groups.html");
    let again = place.finish(
        place
            .linewise(["groups", "pairs.linewise", "--colour", "never", "--html"])
            .arg(&page),
    );
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(
        again.stdout.contains("2 groups of threads"),
        "{}",
        again.stdout
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Group 2") && page.contains("<svg"));
}

#[test]
fn two_pairs_among_four_threads_are_found_in_an_exact_run() {
    let place = Place::new();
    let Some(target) = two_pairs(&place).filter(|_| emulator()) else {
        return;
    };
    let output = place.finish(
        place
            .linewise(["groups", "--json", "--source", "exact", "--"])
            .arg(target)
            .args(["0.5", "--unpinned"]),
    );
    let groups = output.json();
    assert_eq!(members(&groups), expected(), "{groups:#}");
}

#[test]
fn of_the_system_those_at_work_are_grouped() {
    let place = Place::new();
    let Some(target) = two_pairs(&place) else {
        return;
    };
    // A system of its own: what other tests run is left alone.
    let mut alone = place.command("unshare");
    alone.args(["--fork", "--pid", "--mount-proc", "--kill-child"]);
    if !place.finish(alone.args(["true"])).code.eq(&Some(0)) {
        return skip("no namespace of processes can be made here");
    }
    let script = "\"$0\" groups --system --duration 100ms; echo $? >idle; \"$1\" 30 --unpinned >count & \
                  \"$0\" groups --system --duration 4s --overhead 5% --json";
    let mut all = place.command("unshare");
    all.args([
        "--fork",
        "--pid",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]);
    let output = place.finish(all.arg(BINARY).arg(target));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(fs::read_to_string(place.path("idle")).unwrap(), "125\n");
    assert!(
        output.stderr.contains("a fifth of a CPU"),
        "{}",
        output.stderr
    );
    let groups = output.json();
    if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
        assert_eq!(members(&groups), expected(), "{groups:#}");
    }
}

#[test]
fn what_cannot_be_grouped_is_said() {
    let place = Place::new();
    let run = |args: &[&str]| place.finish(&mut place.linewise(args));
    let missing = run(&["groups", "absent.linewise"]);
    assert_eq!(missing.code, Some(125), "{}", missing.stderr);
    let alone = run(&["groups", "--", "true"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    assert!(
        alone.stdout.contains("nothing should be moved"),
        "{}",
        alone.stdout
    );
    let written = run(&["groups", "--write", "taskset", "--", "true"]);
    assert!(written.stdout.is_empty() && written.stderr.contains("nothing to write"));
}
