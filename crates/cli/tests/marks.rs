//! Sessions and phases that programs mark: against what they did, and programs that make it hard.

use std::path::{Path, PathBuf};

use linewise_recording::{Mark, MarkKind, Recording, Sample, Tables};

use crate::heap::record;
use crate::util::{Output, Place, emulator};

/// Builds `marks.c`; `None`, with the reason said, where that cannot be done.
fn target(place: &Place) -> Option<PathBuf> {
    place.compile("gcc", "crates/cli/tests/marks.c", "marks", &[])
}

fn recorded(
    place: &Place,
    options: &[&str],
    target: &Path,
    arguments: &[&str],
) -> (Output, Tables) {
    let (output, recording) = record(place, options, target, arguments);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    (output, recording.tables().unwrap())
}

fn lost(tables: &Tables, what: &str) -> u64 {
    let of_it = tables.losses.iter().filter(|loss| loss.what == what);
    of_it.map(|loss| loss.count).sum()
}

/// The weight of the samples that fall into marks of this name.
fn weight_in<'a>(tables: &'a Tables, name: &str, counts: impl Fn(&Sample) -> bool + 'a) -> f64 {
    let marks: Vec<&Mark> = tables.marks.iter().filter(|it| it.name == name).collect();
    let is_in = |sample: &&Sample| {
        let of_it = |mark: &&&Mark| (mark.pid, mark.tid) == (sample.pid, sample.tid);
        let mut marks = marks.iter().filter(of_it);
        marks.any(|mark| (mark.start..mark.end).contains(&sample.time))
    };
    let inside = tables.samples.iter().filter(|it| counts(it)).filter(is_in);
    inside.map(|sample| sample.weight as f64).sum()
}

/// No two marks of one kind and thread overlap.
fn one_at_a_time(tables: &Tables) {
    let key = |it: &Mark| (it.pid, it.tid, it.kind, it.start);
    let mut marks: Vec<&Mark> = tables.marks.iter().collect();
    marks.sort_by_key(|it| key(it));
    for pair in marks.windows(2) {
        let [before, after] = pair else { continue };
        let is_one = (before.pid, before.tid, before.kind) == (after.pid, after.tid, after.kind);
        assert!(!is_one || before.end <= after.start, "{pair:?}");
    }
}

#[test]
fn samples_fall_into_the_phase_that_the_thread_was_in() {
    let place = Place::new();
    let Some(target) = target(&place) else { return };
    let (output, recording) = record(&place, &["--heap", "marks"], &target, &["phases", "25"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(recording.info().heap.is_none());
    let tables = recording.tables().unwrap();
    assert!(tables.heap_blocks.is_empty());
    one_at_a_time(&tables);
    assert_eq!(lost(&tables, "marks-lost"), 0, "{:?}", tables.losses);
    // Two threads, in each of 25 rounds a session and two phases.
    let count = |kind| tables.marks.iter().filter(|it| it.kind == kind).count();
    assert_eq!(count(MarkKind::Session), 50);
    assert_eq!(count(MarkKind::Phase), 100);
    let ids: std::collections::BTreeSet<u64> = tables.marks.iter().map(|it| it.id).collect();
    assert_eq!(ids, [0, 1, 10, 11, 20, 21, 30, 31].into());
    let truth: f64 = output.stdout.trim().parse().unwrap();
    let [fight, counting] = ["fight", "count"].map(|name| weight_in(&tables, name, |_| true));
    let seen = fight / (fight + counting);
    assert!((seen - truth).abs() < 0.1, "{seen} {truth}");
    let all: f64 = tables.samples.iter().map(|it| it.weight as f64).sum();
    assert!((fight + counting) / all > 0.9, "{fight} {counting} {all}");
}

/// The lines that are fought over are those of one phase.
#[test]
fn the_line_that_one_phase_shares_is_touched_in_that_phase_alone() {
    let place = Place::new();
    let Some(target) = target(&place) else { return };
    let (_, tables) = recorded(&place, &["--heap", "marks"], &target, &["phases", "25"]);
    let shared = tables
        .objects
        .iter()
        .find(|it| it.name.starts_with("shared"));
    let shared = shared.expect("the object that is shared").clone();
    let is_shared = |sample: &Sample| sample.address.0.wrapping_sub(shared.address.0) < shared.size;
    let inside = weight_in(&tables, "fight", is_shared);
    let outside = weight_in(&tables, "count", is_shared);
    assert!(
        inside > 0.0 && outside <= inside * 0.1,
        "{inside} {outside}"
    );
    let report = place.finish(&mut place.linewise(["report", "--json", "made.linewise"]));
    let report = report.json();
    let at_shared_lines = |name: &str| {
        let mut phases = report["marks"]["phases"].as_array().unwrap().iter();
        let phase = phases.find(|it| it["name"] == name).unwrap();
        phase["at_shared_lines"].as_f64().unwrap()
    };
    let [fight, count] = ["fight", "count"].map(at_shared_lines);
    assert!(fight > 0.3 && count < fight / 2.0, "{fight} {count}");
}

#[test]
fn unended_nested_long_and_countless_marks_are_told_or_counted() {
    let place = Place::new();
    let Some(target) = target(&place) else { return };
    let count = 1_000_000;
    let arguments = ["hostile", "1000000"];
    let (output, tables) = recorded(&place, &["--heap", "marks"], &target, &arguments);
    assert!(!output.stderr.contains("not recorded"), "{}", output.stderr);
    one_at_a_time(&tables);
    let named = |name: &str| {
        let found = tables.marks.iter().filter(|it| it.name == name);
        found.collect::<Vec<&Mark>>()
    };
    let ends = |mark: &Mark| {
        let mut threads = tables.threads.iter();
        let thread = threads.find(|it| it.tid == mark.tid).unwrap();
        mark.end <= thread.end && mark.start >= thread.start
    };
    // Those of threads that ended stop with them.
    for name in ["of a thread that ends", "unended"] {
        let marks = named(name);
        assert_eq!(marks.len(), 2, "{name}");
        assert!(marks.iter().all(|mark| ends(mark)), "{marks:?}");
    }
    let long = "x".repeat(127);
    assert_eq!(named(&long).len(), 1);
    assert_eq!(named(&long)[0].id, u64::MAX);
    // What came before the outer one, which the inner one ends.
    for name in ["", "outer", "\u{fffd}\u{fffd} not text \u{1b}[31m"] {
        assert_eq!(named(name).len(), 1, "{name}");
    }
    // Every mark of the flood is a row or counted. The end of the flood may be lost, and the phase behind it.
    let flood = named("flood").len() as u64 + lost(&tables, "marks-lost");
    assert!((count..=count + 2).contains(&flood), "{flood}");
    assert!(named("to the end").len() <= 1);
    assert_eq!(lost(&tables, "heap-events-malformed"), 0);
}

#[test]
fn marks_are_told_beside_blocks_and_of_nothing_where_nothing_is_loaded() {
    let place = Place::new();
    let Some(target) = target(&place) else { return };
    for (option, marks) in [("on", true), ("auto", true), ("off", false)] {
        let (_, recording) = record(&place, &["--heap", option], &target, &["phases", "3"]);
        let rows = recording.read::<Mark>().unwrap();
        assert_eq!(rows.len(), if marks { 6 + 12 } else { 0 }, "{option}");
        assert_eq!(recording.info().heap.is_some(), marks, "{option}");
    }
}

#[test]
fn marks_that_cannot_be_told_are_said_to_be_missing() {
    let place = Place::new();
    let Some(target) = place.compile("gcc", "crates/cli/tests/marks.c", "still", &["-static"])
    else {
        return;
    };
    let (output, tables) = recorded(&place, &["--heap", "marks"], &target, &["phases", "1"]);
    let said = "sessions and phases are not recorded: ";
    assert!(output.stderr.contains(said), "{}", output.stderr);
    assert_eq!(lost(&tables, "marks-not-recorded"), 1);
    if emulator() {
        let mut exact = place.linewise(["record", "--source", "exact", "--heap", "marks", "--"]);
        let output = place.finish(exact.arg(&target));
        assert_ne!(output.code, Some(0));
        assert!(output.stderr.contains("--heap marks"), "{}", output.stderr);
    }
    let opened = Recording::open(&place.path("made.linewise")).unwrap();
    assert!(opened.read::<Mark>().unwrap().is_empty());
}
