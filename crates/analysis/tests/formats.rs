//! The report does not tell of which format a recording is.

use std::path::Path;

use linewise_analysis::analyse;
use linewise_analysis::report::json;
use linewise_recording::{FORMAT_VERSION, Recording};

fn report(version: u32) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    let recording = Recording::open(&fixtures.join(format!("v{version}.linewise"))).unwrap();
    json::render(&analyse(recording.info(), &recording.tables().unwrap()))
}

#[test]
fn recordings_of_all_formats_that_hold_the_same_give_the_same_report() {
    let newest = report(FORMAT_VERSION);
    assert!(newest.contains("counters"), "{newest}");
    // Before, nobody looked for loops that poll, which is not to have found none.
    let nothing_polls = "  \"polls\": [],\n";
    assert!(newest.contains(nothing_polls), "{newest}");
    let newest = newest.replace(nothing_polls, "");
    for version in 1..FORMAT_VERSION {
        assert_eq!(report(version), newest, "format {version}");
    }
}
