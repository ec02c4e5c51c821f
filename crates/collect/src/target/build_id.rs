//! The build id of a program or library: what its linker computed from its content.

use std::io;

use linewise_recording::Pid;
use object::LittleEndian as LE;
use object::elf::{
    ELF_NOTE_GNU, ELFCLASS64, ELFDATA2LSB, ELFMAG, FileHeader64, NT_GNU_BUILD_ID, PT_NOTE,
    ProgramHeader64,
};
use object::pod;
use object::read::elf::NoteIterator;

use crate::kernel::Processes;

/// Bytes from the beginning of a file, where linkers put headers and notes.
const HEAD: usize = 4096;
/// Bytes of notes that are looked through.
const MOST_NOTE_BYTES: usize = 4096;
/// Program headers that are looked through: compilers make some ten.
const MOST_SEGMENTS: usize = 64;
/// Segments of notes: compilers make two or three.
const MOST_NOTE_SEGMENTS: usize = 4;
/// The longest id that is believed; linkers make 20 bytes at most unless they are given one.
const MOST_ID_BYTES: usize = 64;

/// The build id of the file that process `pid` sees at `path`; empty if it has none or cannot be read.
pub(crate) fn build_id(kernel: &impl Processes, pid: Pid, path: &str) -> String {
    // At its place there is none, or another.
    if path.ends_with(" (deleted)") {
        return String::new();
    }
    of_file(|offset, into| kernel.read_file(pid.0, path, offset, into)).unwrap_or_default()
}

/// The GNU build id of a file in lower-case hex, if it is a 64-bit ELF file that has one. `read` reads bytes of it from an
/// offset on; mostly it is asked once.
fn of_file(mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>) -> Option<String> {
    let mut head = [0; HEAD];
    let length = read(0, &mut head).ok()?;
    let head = head.get(..length)?;
    // As much as there is of so many bytes.
    let mut bytes = |offset: u64, length: usize| -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok();
        let place = start.and_then(|start| Some(start..start.checked_add(length)?));
        if let Some(found) = place.and_then(|place| head.get(place)) {
            return Some(found.to_vec());
        }
        let mut found = vec![0; length];
        let length = read(offset, &mut found).ok()?;
        found.truncate(length);
        Some(found)
    };
    let (header, _) = pod::from_bytes::<FileHeader64<LE>>(head).ok()?;
    let ident = header.e_ident;
    if ident.magic != ELFMAG || ident.class != ELFCLASS64 || ident.data != ELFDATA2LSB {
        return None;
    }
    let count = usize::from(header.e_phnum.get(LE)).min(MOST_SEGMENTS);
    let size = count * size_of::<ProgramHeader64<LE>>();
    let table = bytes(header.e_phoff.get(LE), size)?;
    let (segments, _) = pod::slice_from_bytes::<ProgramHeader64<LE>>(&table, count).ok()?;
    let notes = segments.iter().filter(|it| it.p_type.get(LE) == PT_NOTE);
    notes.take(MOST_NOTE_SEGMENTS).find_map(|segment| {
        let size = usize::try_from(segment.p_filesz.get(LE)).unwrap_or(usize::MAX);
        let notes = bytes(segment.p_offset.get(LE), size.min(MOST_NOTE_BYTES))?;
        of_notes(&notes, segment.p_align.get(LE))
    })
}

/// The build id among the notes of a segment.
fn of_notes(notes: &[u8], align: u64) -> Option<String> {
    let notes = NoteIterator::<FileHeader64<LE>>::new(LE, align, notes).ok()?;
    let mut notes = notes.map_while(Result::ok);
    let note = notes.find(|it| it.name() == ELF_NOTE_GNU && it.n_type(LE) == NT_GNU_BUILD_ID)?;
    let id = note.desc();
    let believed = (1..=MOST_ID_BYTES).contains(&id.len());
    believed.then(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of `file`, and how many they were.
    fn of(file: &[u8]) -> (Option<String>, usize) {
        let mut reads = 0;
        let id = of_file(|offset, into| {
            reads += 1;
            let rest = usize::try_from(offset).ok().and_then(|it| file.get(it..));
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        });
        (id, reads)
    }

    fn note(kind: u32, name: &[u8], id: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, id.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        note.extend(name);
        note.extend(id);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    /// An ELF file whose segment of notes lies `gap` bytes behind its headers.
    fn elf(notes: &[u8], gap: usize) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(120, 0);
        file[32] = 64; // e_phoff
        file[56] = 1; // e_phnum
        file[64] = 4; // PT_NOTE
        file[72..80].copy_from_slice(&(120 + gap as u64).to_le_bytes());
        file[96..104].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        file[112] = 4;
        file.resize(120 + gap, 0);
        file.extend(notes);
        file
    }

    #[test]
    fn the_build_id_is_found_among_other_notes_near_the_headers_or_far_from_them() {
        let notes = [
            note(1, b"GNU\0", &[0; 16]),
            note(3, b"Go\0\0", b"something of Go's"),
            note(3, b"GNU\0", &[0x0a, 0xb1, 0xff]),
        ];
        let found = Some("0ab1ff".to_owned());
        assert_eq!(of(&elf(&notes.concat(), 0)), (found.clone(), 1));
        assert_eq!(of(&elf(&notes.concat(), 10_000)), (found, 2));
        assert_eq!(of(&elf(&notes[..2].concat(), 0)), (None, 1));
    }

    #[test]
    fn the_id_is_the_one_that_the_object_crate_finds() {
        use object::Object;
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*own).unwrap();
        let id = file.build_id().unwrap();
        let id = id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
        assert_eq!(of(&own).0, id);
    }

    #[test]
    fn what_is_no_program_has_no_id() {
        assert_eq!(of(b"").0, None);
        assert_eq!(of(b"#!/bin/sh\n").0, None);
        assert_eq!(of(&[0xff; 5000]).0, None);
        let narrow = [b"\x7fELF\x01\x01\x01".as_slice(), &[0xff; 500]].concat();
        assert_eq!(of(&narrow).0, None);
        assert_eq!(of_file(|_, _| Err(io::ErrorKind::NotFound.into())), None);
    }

    #[test]
    fn hostile_files_are_read_to_no_harm() {
        let file = elf(&note(3, b"GNU\0", &[7; 20]), 0);
        assert!(of(&file).0.is_some());
        for length in 0..file.len() {
            let (id, reads) = of(&file[..length]);
            assert!(id.is_none() && reads <= 2 + MOST_NOTE_SEGMENTS, "{length}");
        }
        for place in 0..file.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut other = file.clone();
                other[place] = byte;
                assert!(of(&other).1 <= 2 + MOST_NOTE_SEGMENTS, "{place} {byte}");
            }
        }
        // An id that is longer than any, and headers beyond all ends.
        assert_eq!(of(&elf(&note(3, b"GNU\0", &[7; 65]), 0)).0, None);
        let mut endless = elf(&note(3, b"GNU\0", &[7; 20]), 0);
        endless[32..40].fill(0xff);
        endless[56..58].fill(0xff);
        assert_eq!(of(&endless).0, None);
    }
}
