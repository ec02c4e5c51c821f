//! Recordings are written and read back; what is not a recording is refused and left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use linewise_recording::*;
use tempfile::TempDir;

use crate::fixture_rows;

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("trial.linewise");
    (directory, dir)
}

fn finished() -> (TempDir, PathBuf) {
    let (directory, dir) = place();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    fixture_rows::push_all(&mut writer, &fixture_rows::tables()).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
    (directory, dir)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_back() {
    let (_directory, dir) = finished();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(*recording.info(), fixture_rows::info());
    assert_eq!(recording.tables().unwrap(), fixture_rows::tables());
}

#[test]
fn a_finished_recording_has_the_facts_of_its_run_as_a_row_and_opens_without_it() {
    let (_directory, dir) = finished();
    let read = || Recording::open(&dir).unwrap().read::<RunFacts>().unwrap();
    let rows = read();
    assert_eq!(rows, [RunFacts::of(&fixture_rows::info())]);
    assert_eq!(rows[0].command, "./counters --threads=2");
    assert_eq!((rows[0].exit_code, rows[0].exit_signal), (Some(0), None));
    assert_eq!(rows[0].one_line_in, Some(64));
    fs::remove_file(dir.join("run.parquet")).unwrap();
    assert_eq!(read(), []);
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    assert_eq!(tables, fixture_rows::tables());
}

#[test]
fn a_recording_that_was_cut_short_has_no_row_of_facts() {
    let (_directory, dir) = place();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    fixture_rows::push_all(&mut writer, &fixture_rows::tables()).unwrap();
    writer.flush().unwrap();
    drop(writer);
    assert!(!names(&dir).contains(&"run.parquet".to_owned()));
}

#[test]
fn a_finished_recording_is_run_json_and_one_file_for_each_table() {
    let (_directory, dir) = place();
    let writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
    let mut expected: Vec<String> = table_columns()
        .iter()
        .map(|table| format!("{}.parquet", table.table))
        .collect();
    expected.push("run.json".into());
    expected.sort();
    assert_eq!(names(&dir), expected);
    assert_eq!(
        Recording::open(&dir).unwrap().tables().unwrap(),
        Tables::default()
    );
}

#[test]
fn only_the_owner_can_read_a_recording() {
    let (_directory, dir) = finished();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for name in names(&dir) {
        assert_eq!(mode(&dir.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_recording_that_was_never_finished_opens_and_says_so() {
    let (_directory, dir) = place();
    let mut started = fixture_rows::info();
    started.end = started.start;
    let mut writer = Writer::create(&dir, &started, CreateMode::New).unwrap();
    let rows = fixture_rows::tables();
    writer.push(rows.samples[..120].iter().cloned()).unwrap();
    writer.push(rows.threads.iter().cloned()).unwrap();
    writer.flush().unwrap();
    writer.push(rows.samples[120..150].iter().cloned()).unwrap();
    writer.flush().unwrap();
    writer.push(rows.samples[150..].iter().cloned()).unwrap();
    drop(writer);

    let recording = Recording::open(&dir).unwrap();
    assert!(!recording.info().complete);
    assert_eq!(
        recording.info().end,
        rows.threads[0].end,
        "the latest moment that was flushed"
    );
    let tables = recording.tables().unwrap();
    assert_eq!(tables.samples, rows.samples[..150]);
    assert_eq!(tables.threads, rows.threads);
    assert!(tables.losses.is_empty());
}

#[test]
fn segments_of_many_flushes_become_one_table_in_the_order_of_writing() {
    let (_directory, dir) = place();
    let rows = fixture_rows::tables();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    for rows in rows.samples.chunks(3) {
        writer.push(rows.iter().cloned()).unwrap();
        writer.flush().unwrap();
    }
    assert!(names(&dir).contains(&"samples.000067.parquet".to_owned()));
    writer.finish(&fixture_rows::info()).unwrap();
    assert!(!names(&dir).iter().any(|name| name.contains(".0")));
    assert_eq!(
        Recording::open(&dir).unwrap().read::<Sample>().unwrap(),
        rows.samples
    );
}

#[test]
fn what_holds_so_far_replaces_what_held_before() {
    let (_directory, dir) = place();
    let rows = fixture_rows::tables().threads;
    assert!(rows.len() > 1);
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    let read = || Recording::open(&dir).unwrap().read::<Thread>().unwrap();
    for so_far in [&rows[..], &rows[..1], &[], &rows[1..]] {
        writer.replace(so_far).unwrap();
        assert_eq!(read(), so_far);
    }
    writer.finish(&fixture_rows::info()).unwrap();
    assert_eq!(read(), &rows[1..]);
}

#[test]
fn many_rows_are_written_before_anyone_flushes() {
    let (_directory, dir) = place();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    let row = fixture_rows::tables().switches.remove(0);
    writer.push(vec![row; 20_000]).unwrap();
    drop(writer);
    assert_eq!(
        Recording::open(&dir)
            .unwrap()
            .read::<Switch>()
            .unwrap()
            .len(),
        20_000
    );
}

#[test]
fn a_truncated_segment_costs_its_own_rows_and_is_reported() {
    let (_directory, dir) = place();
    let rows = fixture_rows::tables();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    for rows in rows.samples.chunks(50) {
        writer.push(rows.iter().cloned()).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    let victim = dir.join("samples.000002.parquet");
    let bytes = fs::read(&victim).unwrap();
    fs::write(&victim, &bytes[..bytes.len() / 2]).unwrap();

    let recording = Recording::open(&dir).unwrap();
    let tables = recording.tables().unwrap();
    assert_eq!(tables.samples[..50], rows.samples[..50]);
    assert_eq!(tables.samples[50..], rows.samples[100..]);
    assert_eq!(recording.damage().len(), 1);
    assert_eq!(
        (recording.damage()[0].table, &recording.damage()[0].path),
        ("samples", &victim)
    );
    assert_eq!(tables.losses.len(), 1);
    assert_eq!(tables.losses[0].what, "segment-unreadable");
    assert!(tables.losses[0].detail.contains("samples.000002.parquet"));
}

#[test]
fn a_damaged_table_of_a_finished_recording_is_an_error_that_names_the_file() {
    let (_directory, dir) = finished();
    let victim = dir.join("samples.parquet");
    let bytes = fs::read(&victim).unwrap();
    fs::write(&victim, &bytes[..bytes.len() - 9]).unwrap();
    let error = Recording::open(&dir).unwrap().tables().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("samples.parquet"), "{error}");
    fs::remove_file(&victim).unwrap();
    let error = Recording::open(&dir).unwrap().tables().unwrap_err();
    assert!(matches!(error, Error::MissingTable { .. }), "{error}");
}

#[test]
fn a_recording_from_before_there_was_an_exact_source_sampled_reuse_or_a_heap_recorder_opens() {
    let (_directory, dir) = place();
    let info = RunInfo {
        exact: None,
        reuse: None,
        heap: None,
        ..fixture_rows::info()
    };
    let writer = Writer::create(&dir, &info, CreateMode::New).unwrap();
    writer.finish(&info).unwrap();
    for table in [
        "reuse",
        "reuse_pairs",
        "call_paths",
        "caches",
        "transfers",
        "reuse_watches",
        "reuse_traps",
        "heap_blocks",
        "typed_accesses",
        "type_members",
        "histories",
        "history_accesses",
        "path_traces",
        "heap_sites",
        "polls",
        "marks",
        "stack_frames",
        "type_allocations",
        "goroutines",
        "blocked_loads",
    ] {
        fs::remove_file(dir.join(format!("{table}.parquet"))).unwrap();
    }
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.tables().unwrap(), Tables::default());
}

#[test]
fn one_table_under_the_name_of_another_is_refused() {
    let (_directory, dir) = finished();
    fs::copy(dir.join("switches.parquet"), dir.join("samples.parquet")).unwrap();
    let error = Recording::open(&dir).unwrap().read::<Sample>().unwrap_err();
    assert!(error.to_string().contains("\"switches\""), "{error}");
}

#[test]
fn names_are_added_after_the_end() {
    let (_directory, dir) = finished();
    let objects = vec![fixture_rows::tables().objects.remove(0); 10_000];
    write_table(&dir, &objects).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.read::<Object>().unwrap(), objects);
    assert!(recording.info().complete);
}

#[test]
fn names_are_added_to_a_recording_that_was_cut_short() {
    let (_directory, dir) = place();
    let rows = fixture_rows::tables();
    let mut writer = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap();
    writer.push(rows.frames.iter().cloned()).unwrap();
    writer.flush().unwrap();
    drop(writer);
    write_table::<Frame>(&dir, &[]).unwrap();
    write_table(&dir, &rows.objects).unwrap();
    let tables = Recording::open(&dir).unwrap().tables().unwrap();
    assert_eq!(tables.objects, rows.objects);
    assert!(
        tables.frames.is_empty(),
        "the written table replaces the segments"
    );
}

#[test]
fn a_table_is_not_written_beside_foreign_files() {
    let directory = tempfile::tempdir().unwrap();
    let error = write_table::<Object>(directory.path(), &[]).unwrap_err();
    assert!(matches!(error, Error::NotARecording { .. }), "{error}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn an_older_recording_is_replaced_only_on_request() {
    let (_directory, dir) = finished();
    fs::write(dir.join("notes.txt"), "mine").unwrap();
    let info = fixture_rows::info();
    let error = Writer::create(&dir, &info, CreateMode::New).unwrap_err();
    assert!(matches!(error, Error::AlreadyRecorded { .. }), "{error}");
    assert_eq!(
        Recording::open(&dir).unwrap().tables().unwrap(),
        fixture_rows::tables()
    );

    let writer = Writer::create(&dir, &info, CreateMode::Replace).unwrap();
    let mut left = names(&dir);
    // What the writer keeps for a full disk.
    left.retain(|name| !name.starts_with(".reserve"));
    assert_eq!(left, ["notes.txt", "run.json"]);
    writer.finish(&info).unwrap();
    assert_eq!(
        Recording::open(&dir).unwrap().tables().unwrap(),
        Tables::default()
    );
    assert_eq!(fs::read_to_string(dir.join("notes.txt")).unwrap(), "mine");
}

#[test]
fn a_recording_of_a_later_format_or_with_a_broken_run_json_can_be_replaced() {
    for text in [
        r#"{"format_version": 99, "linewise_version": "9.0"}"#,
        "{ \"format_ver",
    ] {
        let (_directory, dir) = finished();
        fs::write(dir.join("run.json"), text).unwrap();
        Writer::create(&dir, &fixture_rows::info(), CreateMode::Replace).unwrap();
        assert_eq!(names(&dir), ["run.json"]);
    }
}

#[test]
fn what_is_not_a_recording_is_never_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let info = fixture_rows::info();
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    let full = directory.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("samples.parquet"), "precious").unwrap();
    let json = directory.path().join("json");
    fs::create_dir(&json).unwrap();
    fs::write(json.join("run.json"), r#"{"scripts": "precious"}"#).unwrap();
    for mode in [CreateMode::New, CreateMode::Replace] {
        for path in [&file, &full, &json] {
            let error = Writer::create(path, &info, mode).unwrap_err();
            assert!(matches!(error, Error::NotARecording { .. }), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(
        fs::read_to_string(full.join("samples.parquet")).unwrap(),
        "precious"
    );
    assert!(
        fs::read_to_string(json.join("run.json"))
            .unwrap()
            .contains("precious")
    );
}

#[test]
fn a_look_at_the_place_changes_nothing_and_foresees_what_create_would_say() {
    let (directory, dir) = finished();
    let before = names(&dir);
    assert!(check_place(&dir, CreateMode::Replace).unwrap());
    let error = check_place(&dir, CreateMode::New).unwrap_err();
    assert!(matches!(error, Error::AlreadyRecorded { .. }), "{error}");
    assert_eq!(names(&dir), before);
    assert_eq!(
        Recording::open(&dir).unwrap().tables().unwrap(),
        fixture_rows::tables()
    );
    assert!(!check_place(&directory.path().join("new.linewise"), CreateMode::New).unwrap());
    assert!(!directory.path().join("new.linewise").exists());
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    let error = check_place(&file, CreateMode::Replace).unwrap_err();
    assert!(matches!(error, Error::NotARecording { .. }), "{error}");
}

#[test]
fn an_empty_directory_becomes_a_recording() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Writer::create(directory.path(), &fixture_rows::info(), CreateMode::New).unwrap();
    writer.finish(&fixture_rows::info()).unwrap();
    assert!(Recording::open(directory.path()).unwrap().info().complete);
}

#[test]
fn a_missing_parent_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("gone/trial.linewise");
    let error = Writer::create(&dir, &fixture_rows::info(), CreateMode::New).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(error.to_string().contains("gone/trial.linewise"), "{error}");
}

#[test]
fn what_is_not_a_recording_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let said = |path: &Path| Recording::open(path).unwrap_err().to_string();
    assert!(said(&dir.join("absent")).contains("cannot read"));
    assert!(said(dir).contains("it has no run.json"));
    fs::write(dir.join("file"), "x").unwrap();
    assert!(said(&dir.join("file")).contains("a file"));
    fs::write(dir.join("run.json"), "[1, 2]").unwrap();
    assert!(said(dir).contains("not a linewise recording"));
    fs::write(dir.join("run.json"), "\u{0}\u{1}").unwrap();
    assert!(said(dir).contains("damaged"));
}

#[test]
fn a_later_format_version_is_refused_by_its_number() {
    let (_directory, dir) = finished();
    fs::write(
        dir.join("run.json"),
        r#"{"format_version": 99, "linewise_version": "9.0"}"#,
    )
    .unwrap();
    let error = Recording::open(&dir).unwrap_err();
    assert!(
        matches!(error, Error::NewerFormat { found: 99, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("later one"), "{error}");
}

#[test]
fn a_source_that_only_a_later_linewise_has_is_refused_by_its_name() {
    let (_directory, dir) = finished();
    let text = fs::read_to_string(dir.join("run.json")).unwrap();
    let text = text.replace("\"source\": \"timer\"", "\"source\": \"ibs\"");
    fs::write(dir.join("run.json"), text).unwrap();
    let error = Recording::open(&dir).unwrap_err().to_string();
    assert!(error.contains("\"ibs\""), "{error}");
    assert!(error.contains("later one"), "{error}");
    Writer::create(&dir, &fixture_rows::info(), CreateMode::Replace).unwrap();
}

#[test]
fn a_line_size_that_is_no_power_of_two_is_refused() {
    for size in ["0", "63", "18446744073709551615"] {
        let (_directory, dir) = finished();
        let text = fs::read_to_string(dir.join("run.json")).unwrap();
        let text = text.replace("\"line_size\": 64", &format!("\"line_size\": {size}"));
        fs::write(dir.join("run.json"), text).unwrap();
        assert!(Recording::open(&dir).is_err(), "{size}");
    }
}

#[test]
fn the_extension_is_added_once() {
    assert_eq!(
        recording_path(Path::new("a/trial")),
        Path::new("a/trial.linewise")
    );
    assert_eq!(
        recording_path(Path::new("trial.v2")),
        Path::new("trial.v2.linewise")
    );
    assert_eq!(
        recording_path(Path::new("trial.linewise")),
        Path::new("trial.linewise")
    );
}

#[test]
fn every_column_is_described_and_no_description_is_used_twice_in_a_table() {
    for table in table_columns() {
        let mut seen = std::collections::BTreeSet::new();
        for column in table.columns {
            assert!(
                column.description.ends_with('.'),
                "{}.{}",
                table.table,
                column.name
            );
            assert!(
                seen.insert(column.description),
                "{}.{}",
                table.table,
                column.name
            );
        }
    }
}
