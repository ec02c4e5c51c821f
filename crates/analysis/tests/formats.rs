//! The report does not tell of which format a recording is.

use std::path::Path;

use linewise_analysis::analyse;
use linewise_analysis::report::json;
use linewise_recording::{FORMAT_VERSION, Recording};
use serde_json::{Value, json};

fn report(version: u32) -> Value {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    let recording = Recording::open(&fixtures.join(format!("v{version}.linewise"))).unwrap();
    let report = json::render(&analyse(recording.info(), &recording.tables().unwrap()));
    serde_json::from_str(&report).unwrap()
}

#[test]
fn recordings_of_all_formats_that_hold_the_same_give_the_same_report() {
    let mut newest = report(FORMAT_VERSION);
    assert!(newest.to_string().contains("counters"), "{newest}");
    let answers = newest.as_object_mut().unwrap();
    // Before, nobody looked for loops that poll, which is not to have found none, and nothing was marked.
    assert_eq!(answers.remove("polls"), Some(json!([])));
    let marked = answers.remove("marks").unwrap();
    assert_eq!(marked["phases"][0]["name"], "reply");
    for version in 1..FORMAT_VERSION {
        assert_eq!(report(version), newest, "format {version}");
    }
}
