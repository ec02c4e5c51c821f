//! The reader of recordings: one file of a recording holds the input, the others are not there. It is
//! read, or an error says why not.
//!
//! The first byte chooses the file: `run.json`, or a table as a segment or whole.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use linewise_recording::{Recording, table_columns};
use tempfile::TempDir;

/// The folder that all inputs are written into, one after the other.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PLACE.get_or_init(|| {
        // The reader catches panics of the Parquet library and makes errors of them; libfuzzer's hook
        // would end the process first. A panic that nobody catches still does.
        std::panic::set_hook(Box::new(|_| {}));
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = folder.path().join("fuzzed.linewise");
        (folder, path)
    });
    path
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let place = place();
    let _ = fs::remove_dir_all(place);
    fs::create_dir(place).expect("a folder");
    let fixture = include_str!("../../fixtures/recordings/v2.linewise/run.json");
    fs::write(
        place.join("run.json"),
        fixture.replace("\"complete\": true", "\"complete\": false"),
    )
    .expect("a file");
    let tables = table_columns();
    let table = tables[usize::from(choice / 4) % tables.len()].table;
    let name = match choice % 4 {
        0 => "run.json".to_owned(),
        1 | 2 => format!("{table}.parquet"),
        _ => format!("{table}.000001.parquet"),
    };
    fs::write(place.join(name), bytes).expect("a file");
    if let Ok(recording) = Recording::open(place) {
        let _ = recording.tables();
    }
});
