//! Doors for the fuzz targets in `fuzz/`; in no other build (`--cfg fuzzing`).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use linewise_heap::{AllocatorCode, RecordKind, Region, RingIds, Writer as RingWriter, stamp};
use linewise_recording::{Pid, Writer};

use crate::error::Error;
use crate::follow::Stacks;
use crate::heap::{self, HeapRecorder};

const KINDS: [RecordKind; 8] = [
    RecordKind::Alloc,
    RecordKind::Named,
    RecordKind::Free,
    RecordKind::Unmap,
    RecordKind::Stack,
    RecordKind::Slice,
    RecordKind::Label,
    RecordKind::Unname,
];

/// The recorder of a target that does with the shared memory what it likes. The input is a row of steps, each of a
/// kind, a number and a length in one byte, and that many bytes: a record is told as the library does it, bytes are
/// written anywhere, a ring is claimed, the collector makes a round.
///
/// # Errors
/// The recording cannot be written.
///
/// # Panics
/// If there is no memory to share.
pub fn heap_rings(mut bytes: &[u8], recording: &mut Writer) -> Result<(), Error> {
    let region = Region::create().expect("memory to share");
    let file = OpenOptions::new().write(true).open(region.path());
    let file = file.expect("our own memory");
    let target = Region::open(
        &std::ffi::CString::new(region.path()).expect("a path"),
        None,
    );
    let target = target.expect("our own memory");
    let mut recorder = HeapRecorder::loaded(region, None);
    let mut stacks = Stacks::default();
    let claim = |number: u32| {
        let ids = RingIds {
            pid: 1 + number % 3,
            tid: number,
            image: 1 + number % 5,
            parent: number % 4,
        };
        RingWriter::claim(&target, ids, 1 + number % 2, stamp(), true)
    };
    let mut ring = claim(1).expect("a free ring");
    while let Some((&[kind, low, middle, high, length], rest)) = bytes.split_first_chunk::<5>() {
        let (content, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        let number = u32::from_le_bytes([low, middle, high, 0]);
        match kind % 4 {
            0 => {
                let words: Vec<u64> = content
                    .chunks_exact(8)
                    .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)))
                    .collect();
                let told = KINDS[usize::from(low) % KINDS.len()];
                let allocator = AllocatorCode::Malloc;
                // Times of today are known to nobody in advance.
                let now = [stamp().wrapping_add(u64::from(middle))];
                let payload: [&[u64]; 2] = match high % 2 {
                    0 => [&now, &words],
                    _ => [&words, &[]],
                };
                ring.write(&target, (told, allocator, number), &payload);
            }
            1 => file.write_all_at(content, u64::from(number)).unwrap_or(()),
            2 => ring = claim(number).unwrap_or(ring),
            _ => {
                recorder.round(recording, &mut stacks, u64::from(number), 0.5)?;
                recorder.forked(Pid(number % 4));
            }
        }
    }
    recorder.round(recording, &mut stacks, 0, 0.0)?;
    recorder.finish(recording, &mut stacks)?;
    Ok(())
}

/// The call frame information of a file: every address has a rule or none.
pub fn unwinding(file: &Path) {
    heap::fuzz_unwinding(file);
}

/// The allocators that a file defines or links in.
pub fn allocators(file: &Path) {
    heap::fuzz_allocators(file);
}
