//! Doors for the fuzz targets in `fuzz/`; in no other build (`--cfg fuzzing`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use linewise_heap::{AllocatorCode, RecordKind, Region, RingIds, Writer as RingWriter, stamp};
use linewise_recording::{Pid, Writer};
use linewise_tracer::{Region as TracerRegion, stamp as tracer_stamp, words};

use crate::error::Error;
use crate::kernel::Machine;
use crate::sources::exact::FuzzedReader;
use crate::target::follow::Stacks;
use crate::target::heap::{self, HeapRecorder};

const KINDS: [RecordKind; 9] = [
    RecordKind::Alloc,
    RecordKind::Named,
    RecordKind::Free,
    RecordKind::Unmap,
    RecordKind::Stack,
    RecordKind::Slice,
    RecordKind::Label,
    RecordKind::Unname,
    RecordKind::Mark,
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
    let mut recorder = HeapRecorder::<Machine>::loaded(region, None);
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
    recorder.finish_marks(recording, &mut stacks, |_, _, since| since)?;
    recorder.finish(recording, &mut stacks)?;
    Ok(())
}

/// Rings that the target opens; more are told apart by writing over their headers.
const RINGS: u32 = 6;
/// An event, a far mark and a definition, see `linewise_tracer::words`.
const STAMPED: [u64; 2] = [words::FAR_MARK, words::EVENT];

/// The exact source's reader beside a target that does with the shared memory what it likes. The first byte chooses what
/// is measured. The rest is a row of steps, as those of [`heap_rings`]: a ring is opened, words and records with a stamp of
/// now are put into one, its header or any byte is written over, tables of lines are, the collector makes a round.
///
/// # Errors
/// The recording cannot be written.
///
/// # Panics
/// If there is no memory to share.
pub fn tracer_rings(bytes: &[u8], recording: &mut Writer) -> Result<(), Error> {
    let Some((&switches, mut bytes)) = bytes.split_first() else {
        return Ok(());
    };
    let mut reader = FuzzedReader::new(switches);
    let path = reader.region().path().unwrap_or_default();
    let file = OpenOptions::new().write(true).open(path);
    let mut target = Target {
        file: file.expect("our own memory"),
        heads: [0; RINGS as usize],
    };
    target.write(TracerRegion::rings_used_place(), &RINGS.to_le_bytes());
    while let Some((&[kind, low, middle, high, length], rest)) = bytes.split_first_chunk::<5>() {
        let (content, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        let ring = usize::from(low) % RINGS as usize;
        let number = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        match kind % 8 {
            0 => target.open(ring, middle, high),
            1 => target.put(ring, &[], content),
            2 => {
                // A mark of a bank with accesses that are not told, or an event of a kind; then a stamp.
                let tag = STAMPED[usize::from(middle) % 2];
                let first = tag | u64::from(high) << 4 | u64::from(middle / 2) << 36;
                target.put(ring, &[first, tracer_stamp()], content);
            }
            3 => {
                let record = 2 + content.len() as u64 / 8;
                let heap = words::event(words::EventKind::Heap) | (record - 2) << 16;
                target.put(ring, &[heap, tracer_stamp()], content);
            }
            4 => {
                let count = content.len() as u64 / 8;
                let first = words::definition(u64::from(middle % 5), count as u16);
                target.put(ring, &[first], content);
            }
            5 => {
                let place = TracerRegion::ring_place(ring).header + usize::from(middle) * 4;
                target.write(place, content);
            }
            6 => {
                let [entries, tables, bytes, end] = TracerRegion::table_places();
                let table = tables + usize::from(low % 4) * bytes;
                let place = match high % 4 {
                    0 => entries + usize::from(low) * 4,
                    1 => table + usize::from(middle) * 32,
                    2 => table + bytes / 2 + usize::from(middle) * 32,
                    _ => number * 8 % end,
                };
                target.write(place, content);
            }
            _ => reader.round(high % 2 == 1),
        }
    }
    reader.finish(recording)
}

/// Who writes the rings.
struct Target {
    file: File,
    /// How far each ring is written.
    heads: [u64; RINGS as usize],
}

impl Target {
    fn write(&self, place: usize, bytes: &[u8]) {
        let [_, _, _, end] = TracerRegion::table_places();
        let bytes = &bytes[..bytes.len().min(end.saturating_sub(place))];
        self.file.write_all_at(bytes, place as u64).unwrap_or(());
    }

    /// Opens a ring, of a thread or a process.
    fn open(&mut self, ring: usize, ids: u8, images: u8) {
        let place = TracerRegion::ring_place(ring);
        self.heads[ring] = 0;
        self.write(place.head, &[0; 8]);
        self.write(place.owner, &(ring as u32 + 1).to_le_bytes());
        // Open, of a kind, with ids and images.
        let fields = [
            2,
            u32::from(ids) & 1,
            u32::MAX - u32::from(ids >> 1 & 3),
            u32::MAX - u32::from(ids >> 3),
            u32::from(images) & 7,
            u32::from(images) >> 3 & 7,
        ];
        let mut header: Vec<u8> = fields.iter().flat_map(|it| it.to_le_bytes()).collect();
        header.extend(tracer_stamp().to_le_bytes());
        header.extend(linewise_tracer::pid_namespace().to_le_bytes());
        self.write(place.state, &header);
    }

    /// Puts words into a ring.
    fn put(&mut self, ring: usize, first: &[u64], content: &[u8]) {
        let place = TracerRegion::ring_place(ring);
        let words = content.chunks_exact(8).map(|it| it.try_into());
        let words = words.flatten().map(u64::from_le_bytes);
        for word in first.iter().copied().chain(words) {
            let at = self.heads[ring] as usize % place.count;
            self.write(place.words + at * 8, &word.to_le_bytes());
            self.heads[ring] += 1;
        }
        self.write(place.head, &self.heads[ring].to_le_bytes());
    }
}

/// The call frame information of a file: every address has a rule or none.
pub fn unwinding(file: &Path) {
    heap::fuzz_unwinding(file);
}

/// The allocators that a file defines or links in.
pub fn allocators(file: &Path) {
    heap::fuzz_allocators(file);
}

/// The build id of a file.
pub fn build_id(file: &Path) {
    let own = Pid(std::process::id());
    crate::target::build_id::build_id(&Machine, own, &file.to_string_lossy());
}
