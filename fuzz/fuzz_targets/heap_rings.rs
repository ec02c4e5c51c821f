//! The heap recorder's shared memory, written to by a hostile target: the recording is made all the same.
#![no_main]

use std::cell::RefCell;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use linewise_collect::fuzzing::heap_rings;
use linewise_recording::{CreateMode, Recording, RunInfo, Writer};
use tempfile::TempDir;

thread_local! {
    static PLACE: RefCell<(TempDir, RunInfo)> = RefCell::new({
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/v2.linewise");
        let info = Recording::open(&fixture).expect("a fixture").info().clone();
        (tempfile::tempdir().expect("a folder for temporary files"), info)
    });
}

fuzz_target!(|bytes: &[u8]| {
    PLACE.with_borrow(|(folder, info)| {
        let path = folder.path().join("fuzzed.linewise");
        let mut recording = Writer::create(&path, info, CreateMode::Replace).expect("a recording");
        heap_rings(bytes, &mut recording).expect("rows are written");
        recording.flush().expect("rows are written");
        Recording::open(&path).expect("what was written can be read");
    });
});
