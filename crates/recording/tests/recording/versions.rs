//! Every format version that was ever released can be read: `fixtures/recordings` has one of each.

use std::path::{Path, PathBuf};

use linewise_recording::{FORMAT_VERSION, Recording, table_columns};

use crate::fixture_rows;

fn fixture(version: u32) -> PathBuf {
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
