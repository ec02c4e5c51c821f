//! A kept trace: whatever is in the file, reading it ends, with an error or without.
//!
//! Blocks are compressed and have a checksum, which no fuzzer guesses, so they are made here: behind a
//! first byte above 0 the input is a row of blocks (kind, how many items, length in two bytes, what
//! is packed). Behind a 0 it is the file itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linewise_trace::TraceReader;

fn file(mut blocks: &[u8]) -> Vec<u8> {
    let mut file = b"LWTRACE2".to_vec();
    while let Some((&[kind, items, low, high], rest)) = blocks.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        let packed = zstd::bulk::compress(content, 1).expect("a block can be packed");
        file.push(kind);
        for number in [
            u32::from(items),
            content.len() as u32,
            packed.len() as u32,
            crc32fast::hash(&packed),
        ] {
            file.extend(number.to_le_bytes());
        }
        file.extend(packed);
        blocks = rest;
    }
    file
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let file = if first == 0 { rest.to_vec() } else { file(rest) };
    let Ok(mut reader) = TraceReader::new(file.as_slice()) else {
        return;
    };
    while let Ok(Some(_)) = reader.piece() {}
});
