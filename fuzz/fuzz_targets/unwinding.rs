//! Programs as the collector looks at them while it records: call frame information, the functions of allocators,
//! and build ids.
//!
//! The input is the file itself.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use linewise_collect::fuzzing::{allocators, build_id, unwinding};
use tempfile::TempDir;

fn place() -> &'static PathBuf {
    static PLACE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PLACE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = folder.path().join("program");
        (folder, path)
    });
    path
}

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(place(), bytes).expect("a file");
    unwinding(place());
    allocators(place());
    build_id(place());
});
