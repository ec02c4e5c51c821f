//! Every format version that was ever released can be read: `fixtures/recordings` has one of each.

use std::path::{Path, PathBuf};

use linewise_recording::{
    FORMAT_VERSION, Recording, Row, RunFacts, RunInfo, Sample, Switch, table_columns,
};

use crate::fixture_rows;

pub(crate) fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../fixtures/recordings/v{version}.linewise"))
}

#[test]
fn a_recording_of_every_format_version_opens() {
    for version in 1..=FORMAT_VERSION {
        let recording = Recording::open(&fixture(version)).unwrap();
        assert_eq!(recording.info().format_version, version);
        assert!(recording.info().complete);
        let tables = recording.tables().unwrap();
        assert_eq!(tables.samples.len(), 200, "version {version}");
        assert!(tables.damage.is_empty());
    }
}

#[test]
fn format_1_names_no_recording_and_no_host_and_is_the_same_else() {
    let [old, new] = [1, 2].map(|version| Recording::open(&fixture(version)).unwrap());
    let unnamed = RunInfo {
        format_version: 1,
        id: String::new(),
        host: String::new(),
        boot_id: String::new(),
        ..new.info().clone()
    };
    assert_eq!(*old.info(), unnamed);
    assert_eq!(old.tables().unwrap(), new.tables().unwrap());
}

#[test]
fn format_2_has_other_names_of_columns_and_is_the_same_else() {
    let [old, new] = [2, 3].map(|version| Recording::open(&fixture(version)).unwrap());
    let renamed = RunInfo {
        format_version: 2,
        ..new.info().clone()
    };
    assert_eq!(*old.info(), renamed);
    // What came after the former format was frozen.
    let mut younger = new.tables().unwrap();
    younger.polls.clear();
    younger.marks.clear();
    younger.stack_frames.clear();
    younger.type_allocations.clear();
    younger.goroutines.clear();
    younger.blocked_loads.clear();
    assert_eq!(old.tables().unwrap(), younger);
    assert_eq!(
        old.read::<RunFacts>().unwrap()[0].end,
        new.read::<RunFacts>().unwrap()[0].end
    );
}

#[test]
fn the_former_name_of_a_column_counts_in_former_formats_alone() {
    let rows = fixture_rows::tables().samples;
    let batch = Sample::to_batch(&rows).unwrap();
    assert_eq!(Sample::from_batch(&batch, 2).unwrap(), rows);
    let error = Sample::from_batch(&batch, 1).unwrap_err().to_string();
    assert!(error.contains("no column weight_ns"), "{error}");
    let stays = fixture_rows::tables().switches;
    let batch = Switch::to_batch(&stays).unwrap();
    assert_eq!(Switch::from_batch(&batch, 3).unwrap(), stays);
    let error = Switch::from_batch(&batch, 2).unwrap_err().to_string();
    assert!(error.contains("no column end"), "{error}");
}

#[test]
fn the_recording_of_the_current_version_holds_the_rows_it_was_made_of() {
    let recording = Recording::open(&fixture(FORMAT_VERSION)).unwrap();
    assert_eq!(*recording.info(), fixture_rows::info());
    assert_eq!(recording.tables().unwrap(), fixture_rows::tables());
}

#[test]
fn the_recording_of_the_current_version_has_rows_in_every_table() {
    for table in table_columns() {
        let file = fixture(FORMAT_VERSION).join(format!("{}.parquet", table.table));
        assert!(
            file.exists(),
            "{}: give fixture_rows.rs rows of it, then run the example write_fixture",
            file.display()
        );
    }
}
