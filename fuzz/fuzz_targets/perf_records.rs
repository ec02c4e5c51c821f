//! Records of a perf ring: whatever stands in one, and in whatever format its event has, it is parsed or left out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linewise_machine::records::{SampleFormat, parse};

fuzz_target!(|input: (u32, u8, u64, &[u8])| {
    let (fields, counts, registers, bytes) = input;
    let format = SampleFormat {
        fields: fields.into(),
        counts: counts.into(),
        registers,
    };
    if let Some(record) = parse(bytes, &format) {
        let _ = record.time();
    }
});
