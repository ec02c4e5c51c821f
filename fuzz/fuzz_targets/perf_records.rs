//! Records of a perf ring: whatever stands in one, it is parsed or left out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linewise_machine::ring;

fuzz_target!(|bytes: &[u8]| {
    for with_read in [false, true] {
        if let Some(record) = ring::parse(bytes, with_read) {
            let _ = record.time();
        }
    }
});
