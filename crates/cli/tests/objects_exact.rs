//! Heap objects in exact runs: programs whose objects' lives are known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linewise_recording::{HeapRun, Pid, Recording};
use serde_json::Value;

use crate::heap::recorder;
use crate::util::{Place, emulator};

/// The program of `objects.c`.
fn objects(place: &Place, flags: &[&str]) -> Option<PathBuf> {
    place.compile("gcc", "crates/cli/tests/objects.c", "objects", flags)
}

/// The report, and the recording, of an exact run; `None`, with the reason said, where there is no emulator.
fn exact(
    place: &Place,
    options: &[&str],
    program: &Path,
    mode: &str,
) -> Option<(Value, Recording)> {
    if !emulator() {
        return None;
    }
    let mut command = place.linewise(["run", "--source", "exact", "--json", "--force"]);
    command
        .args(["--output", "made"])
        .args(options)
        .arg("--")
        .arg(program)
        .arg(mode)
        .env("LINEWISE_PRELOAD", recorder());
    let output = place.finish(&mut command);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let recording = Recording::open(&place.path("made.linewise")).unwrap();
    Some((output.json(), recording))
}

fn heap(recording: &Recording) -> &HeapRun {
    recording.info().heap.as_ref().unwrap()
}

/// Function and thread of each node of a path, without the allocation, and its frequency and histories.
fn path(row: &Value, number: usize) -> (Vec<(&str, u64)>, f64, u64) {
    let path = &row["paths"][number];
    let nodes = path["nodes"].as_array().unwrap().iter();
    let nodes = nodes.map(|id| {
        let node = &row["nodes"][id.as_u64().unwrap() as usize];
        let function = node["function"].as_str().unwrap();
        (function, node["thread"].as_u64().unwrap())
    });
    (
        nodes.collect(),
        path["frequency"].as_f64().unwrap(),
        path["histories"].as_u64().unwrap(),
    )
}

fn of_type<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let mut rows = rows.as_array().unwrap().iter();
    rows.find(|row| row["type"] == name || row["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_contended_heap_block_is_named_by_who_allocated_it_with_its_type_and_fields() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1"]) else {
        return;
    };
    let Some((report, recording)) = exact(&place, &["--heap", "on"], &program, "share") else {
        return;
    };
    let finding = &report["findings"][0];
    let object = &finding["object"];
    assert_eq!(finding["kind"], "false-sharing", "{finding:#}");
    assert_eq!(object["name"], "block allocated by make_pair", "{object:#}");
    assert_eq!(object["type"], "struct pair", "{object:#}");
    let caller = object["allocated_at"][0].as_str().unwrap();
    assert!(caller.starts_with("make_pair ("), "{object:#}");
    let fields: Vec<&str> = object["field"].as_str().unwrap().split(", ").collect();
    assert!(fields.contains(&"left") && fields.contains(&"right"));
    let types = of_type(&report["types"], "struct pair");
    assert_eq!(types["objects"], 1, "{types:#}");
    let site = types["allocated_at"][0].as_str().unwrap();
    assert!(site.starts_with("make_pair ("), "{types:#}");
    // The program's own, and what glibc's threads need.
    assert!(heap(&recording).blocks >= 1);
}

#[test]
fn all_objects_are_followed_from_allocation_to_end_with_their_threads_and_levels() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1"]) else {
        return;
    };
    let options = ["--flow=make_job", "--caches"];
    let Some((report, recording)) = exact(&place, &options, &program, "flow") else {
        return;
    };
    let row = of_type(&report["flow"], "struct job");
    assert_eq!(
        (&row["size"], &row["histories"]),
        (&48.into(), &1000.into())
    );
    assert_eq!(row["paths"].as_array().unwrap().len(), 2, "{row:#}");
    let done = vec![
        ("make_job", 0),
        ("make_job", 0),
        ("flow", 0),
        ("fill_job", 0),
        ("do_job", 1),
        ("end_job", 1),
        ("free", 1),
    ];
    assert_eq!(path(row, 0), (done, 0.75, 750));
    let dropped = vec![
        ("make_job", 0),
        ("make_job", 0),
        ("flow", 0),
        ("fill_job", 0),
        ("drop_job", 0),
        ("free", 0),
    ];
    assert_eq!(path(row, 1), (dropped, 0.25, 250));
    let nodes = row["nodes"].as_array().unwrap();
    let node = |name: &str| {
        let mut nodes = nodes.iter();
        nodes
            .find(|it| it["function"] == name && it["event"] == "accessed")
            .unwrap()
    };
    // Each object was written by the other core before: its lines do not come from this one's caches, but
    // for those of which another object has a part.
    let hits = &node("do_job")["hits"];
    assert!(
        hits["core"].as_f64().unwrap() + hits["l1"].as_f64().unwrap() > 0.9,
        "{hits}"
    );
    assert!(hits["core"].as_f64().unwrap() > 0.01, "{hits}");
    // The loop over the inputs is one step, run through four times.
    let steps = recording.tables().unwrap().path_traces;
    assert!(steps.iter().any(|step| step.times == 4.0));
    let bold = row["edges"].as_array().unwrap().iter();
    let bold: Vec<&Value> = bold.filter(|edge| edge["thread_change"] == true).collect();
    let [edge] = bold.as_slice() else {
        panic!("one change of the thread: {bold:?}");
    };
    assert_eq!(edge["to"], node("do_job")["id"]);
}

#[test]
fn a_block_that_is_reallocated_is_another_object_each_time() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1"]) else {
        return;
    };
    let options = ["--flow=grow_block"];
    let Some((report, recording)) = exact(&place, &options, &program, "grow") else {
        return;
    };
    let row = of_type(&report["flow"], "char");
    assert_eq!(row["histories"], 100, "{row:#}");
    assert_eq!(row["sites"].as_array().unwrap().len(), 100);
    let (nodes, frequency, _) = path(row, 0);
    assert_eq!(nodes, [("grow_block", 0), ("grow_block", 0), ("free", 0)]);
    assert!((frequency - 1.0).abs() < 1e-9, "{frequency}");
    let node = &row["nodes"][1];
    assert!(node["hits"].is_null(), "no caches were simulated: {node:#}");
    let tables = recording.tables().unwrap();
    let last = |size| {
        tables
            .heap_blocks
            .iter()
            .any(|it| it.size == size && it.freed.is_some())
    };
    assert!(last(64) && last(6400));
}

#[test]
fn a_set_that_is_too_full_is_named_with_the_type_its_stride_and_who_allocates_it() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1"]) else {
        return;
    };
    let options = ["--heap", "on", "--machine", "2x10"];
    let Some((report, _)) = exact(&place, &options, &program, "set") else {
        return;
    };
    let levels = report["working_set"].as_array().unwrap();
    assert_eq!(levels[0]["level"], "L1d", "{levels:#?}");
    let set = &levels[0]["crowded"][0];
    let pages = of_type(&set["types"], "struct page");
    assert_eq!(
        (&pages["lines"], &pages["stride"]),
        (&24.into(), &4096.into()),
        "{set:#}"
    );
    // The first level holds as many of them as a set has ways; the second all, but for a moment or two at the
    // beginning.
    let second = of_type(&levels[1]["types"], "struct page");
    let lines = second["lines_seen"].as_u64().unwrap();
    assert!((18..=24).contains(&lines), "{second:#}");
    let first = of_type(&levels[0]["types"], "struct page");
    assert!(first["lines_seen"].as_u64().unwrap() <= 8, "{first:#}");
    assert_eq!(second["blocks_seen"], 1, "{second:#}");
    let site = second["allocated_at"][0].as_str().unwrap();
    assert!(site.starts_with("make_pages ("), "{site}");
}

#[test]
fn a_child_process_has_objects_of_its_own() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1"]) else {
        return;
    };
    let options = ["--flow=make_job"];
    let Some((report, recording)) = exact(&place, &options, &program, "fork") else {
        return;
    };
    let row = of_type(&report["flow"], "struct job");
    assert_eq!(row["histories"], 101, "{row:#}");
    let (nodes, _, histories) = path(row, 0);
    let names: Vec<&str> = nodes.iter().map(|it| it.0).collect();
    assert_eq!(
        names,
        ["make_job", "make_job", "fill_job", "drop_job", "free"]
    );
    assert_eq!(histories, 100);
    assert_eq!(heap(&recording).processes, 2);
    let blocks = recording.tables().unwrap().heap_blocks;
    let mut jobs: BTreeMap<Pid, usize> = BTreeMap::new();
    for block in blocks.iter().filter(|block| block.size == 48) {
        *jobs.entry(block.pid).or_default() += 1;
    }
    let mut counts: Vec<usize> = jobs.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 100]);
}

#[test]
fn a_program_that_takes_no_recorder_is_traced_without_it() {
    let place = Place::new();
    let Some(program) = objects(&place, &["-O1", "-static"]) else {
        return;
    };
    let Some((report, recording)) = exact(&place, &["--flow"], &program, "share") else {
        return;
    };
    let detail = report["losses"]["heap-not-recorded"]["detail"].as_str();
    let detail = detail.unwrap_or_else(|| panic!("{}", report["losses"]));
    assert!(detail.contains("linked statically"), "{detail}");
    assert!(detail.contains("not followed"), "{detail}");
    assert_eq!(report["findings"][0]["kind"], "false-sharing");
    assert!(recording.info().heap.is_none());
}
