//! What a terminal is shown of names: nothing that it would obey, and the same JSON to who reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linewise_foreign::{json, sanitise};

fuzz_target!(|bytes: &[u8]| {
    let name = String::from_utf8_lossy(bytes);
    let shown = sanitise(&name);
    assert!(!shown.chars().any(char::is_control));
    assert_eq!(sanitise(&shown), shown);
    let told = json(serde_json::to_string(&name).expect("a string"));
    assert!(!told.chars().any(char::is_control));
    let read: String = serde_json::from_str(&told).expect("JSON");
    assert_eq!(read, name);
});
