//! Programs that are rebuilt after they were recorded: their old addresses mean nothing in the new file.

use std::fs;
use std::path::Path;

use linewise_recording::{Frame, MapKind, Object, Recording, write_table};

use crate::util::{Output, Place, contended, emulator};

const NOTE: &str = "is not the file that was recorded: it was rebuilt or replaced since";

/// `program`, and `other`, which was built of the same source with another layout.
fn programs(place: &Place) -> Option<()> {
    let source = "fixtures/programs/counters.c";
    place.compile("gcc", source, "program", &[])?;
    place.compile("gcc", source, "other", &["-DFIXED"])?;
    Some(())
}

/// The report of a run of `script` by `source`.
fn run(place: &Place, source: &str, script: &str) -> Output {
    let words = ["run", "--source", source, "--quiet", "--json", "--"];
    // The report alone is to be on the output.
    let script = format!("exec >/dev/null; {script}");
    let output = place.finish(place.linewise(words).args(["sh", "-c", &script]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output
}

/// Whether the program's function has its name, and whether the note stands there.
fn named_and_noted(report: &Output) -> (bool, bool) {
    let text = &report.stdout;
    (text.contains("\"worker\""), text.contains(NOTE))
}

#[test]
fn a_program_that_was_rebuilt_before_its_names_were_looked_up_has_none_and_the_report_says_so() {
    let place = Place::new();
    if programs(&place).is_none() {
        return;
    }
    let mut enough = "0.2".to_owned();
    let found = contended(|seconds| {
        seconds.clone_into(&mut enough);
        let output = run(&place, "timer", &format!("./program {seconds}"));
        assert!(!named_and_noted(&output).1, "{}", output.stdout);
        Some(output)
    });
    let mut sources = Vec::new();
    if let Some(report) = found {
        assert!(report.to_string().contains("\"worker\""), "{report:#}");
        sources.push("timer");
    }
    if emulator() {
        let output = run(&place, "exact", "./program 0.2");
        assert_eq!(named_and_noted(&output), (true, false), "{}", output.stdout);
        sources.push("exact");
    }
    for source in sources {
        let seconds = if source == "exact" { "0.2" } else { &enough };
        let script = format!("./program {seconds}; cp program kept; mv other program");
        let output = run(&place, source, &script);
        assert_eq!(named_and_noted(&output), (false, true), "{}", output.stdout);
        assert!(!output.stdout.contains("counters"), "{}", output.stdout);
        fs::rename(place.path("program"), place.path("other")).unwrap();
        fs::rename(place.path("kept"), place.path("program")).unwrap();
    }
}

#[test]
fn names_that_the_report_looks_up_are_those_of_the_file_that_was_recorded() {
    let place = Place::new();
    if programs(&place).is_none() || !emulator() {
        return;
    }
    let words = [
        "record",
        "--source",
        "exact",
        "-o",
        "one",
        "--",
        "./program",
        "0.2",
    ];
    let output = place.finish(&mut place.linewise(words));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let folder = place.path("one.linewise");
    let maps: Vec<linewise_recording::Map> = Recording::open(&folder).unwrap().read().unwrap();
    let is_program = |path: &str| Path::new(path).file_name() == Some("program".as_ref());
    let maps = maps.iter().filter(|map| map.kind == MapKind::File);
    let ids: Vec<&str> = maps
        .filter(|map| is_program(&map.path))
        .map(|map| map.build_id.as_str())
        .collect();
    assert!(
        !ids.is_empty() && ids.iter().all(|id| id.len() == 40),
        "{ids:?}"
    );
    // As linewise leaves a recording that was killed.
    write_table::<Frame>(&folder, &[]).unwrap();
    write_table::<Object>(&folder, &[]).unwrap();
    let report = || place.finish(&mut place.linewise(["report", "one", "--json"]));
    assert_eq!(named_and_noted(&report()), (true, false));
    fs::rename(place.path("program"), place.path("kept")).unwrap();
    fs::rename(place.path("other"), place.path("program")).unwrap();
    assert_eq!(named_and_noted(&report()), (false, true));
    fs::rename(place.path("kept"), place.path("program")).unwrap();
    assert_eq!(named_and_noted(&report()), (true, false));
}
