//! Whether the dynamic linker would load the recorder into a program, as its file tells.

/// Bytes of a path that is looked at.
const PATH: usize = 96;
/// Segments, libraries and scripts that are looked at, at most.
const SEGMENTS: u64 = 64;
const ENTRIES: u64 = 1024;

/// Sanitizers have an allocator of their own and refuse to begin behind another library.
const SANITIZERS: [&[u8]; 4] = [b"libasan.", b"libtsan.", b"libmsan.", b"libhwasan."];

/// A short text of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; PATH],
    length: usize,
}

impl core::fmt::Debug for Text {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(&self.as_bytes().escape_ascii(), to)
    }
}

impl Text {
    /// The bytes up to the first of these.
    fn until(bytes: &[u8], ends: &[u8]) -> Self {
        let length = bytes
            .iter()
            .take(PATH - 1)
            .take_while(|it| !ends.contains(it))
            .count();
        let mut text = Self {
            bytes: [0; PATH],
            length,
        };
        text.bytes
            .iter_mut()
            .zip(bytes)
            .take(length)
            .for_each(|(to, &byte)| *to = byte);
        text
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The same with a NUL behind.
    #[must_use]
    pub fn as_string(&self) -> Option<&core::ffi::CStr> {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program that the recorder can be loaded into, by this dynamic linker.
    Dynamic(Text),
    /// A script for this interpreter.
    Script(Text),
}

/// Why the recorder cannot be loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unloadable {
    /// It is no ELF file.
    NotElf,
    /// It is for other processors, or of 32 bits.
    Machine,
    /// It has no dynamic linker.
    Static,
    /// Its dynamic linker is that of musl.
    Musl(Text),
    /// It has the allocator of this sanitizer.
    Sanitized(Text),
}

fn word(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// An ELF file of 64 bits that is read in small pieces.
struct Elf<R> {
    read: R,
    /// Where its table of segments is, bytes of one, how many.
    segments: (u64, u64, u64),
}

/// A segment: its kind, place in the file, address, and bytes in the file.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    length: u64,
}

/// Kinds of segments.
const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
/// Tags of the dynamic segment.
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;

impl<R: FnMut(u64, &mut [u8]) -> usize> Elf<R> {
    fn segment(&mut self, number: u64) -> Option<Segment> {
        let (table, size, _) = self.segments;
        let mut bytes = [0; 56];
        let at = table.wrapping_add(number.wrapping_mul(size));
        ((self.read)(at, &mut bytes) == bytes.len()).then(|| Segment {
            kind: word(&bytes, 0, 4),
            offset: word(&bytes, 8, 8),
            address: word(&bytes, 16, 8),
            length: word(&bytes, 32, 8),
        })
    }

    /// The first segment of which this is so.
    fn find(&mut self, is_it: impl Fn(&Segment) -> bool) -> Option<Segment> {
        (0..self.segments.2.min(SEGMENTS)).find_map(|number| self.segment(number).filter(&is_it))
    }

    /// The entries of the dynamic segment with this tag; `each` ends the search by a result.
    fn dynamic<T>(
        &mut self,
        tag: u64,
        mut each: impl FnMut(&mut Self, u64) -> Option<T>,
    ) -> Option<T> {
        let table = self.find(|it| it.kind == DYNAMIC)?;
        for number in 0..(table.length / 16).min(ENTRIES) {
            let mut bytes = [0; 16];
            if (self.read)(table.offset.wrapping_add(number * 16), &mut bytes) < bytes.len() {
                return None;
            }
            match word(&bytes, 0, 8) {
                0 => return None,
                found if found == tag => {
                    if let Some(result) = each(self, word(&bytes, 8, 8)) {
                        return Some(result);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn text(&mut self, offset: u64) -> Text {
        let mut bytes = [0; PATH];
        let got = (self.read)(offset, &mut bytes);
        Text::until(bytes.get(..got).unwrap_or_default(), b"\0")
    }

    /// The sanitizer's library that it is linked with.
    fn sanitizer(&mut self) -> Option<Text> {
        let strings = self.dynamic(STRINGS, |_, address| Some(address))?;
        let holds = |it: &Segment| it.kind == LOAD && strings.wrapping_sub(it.address) < it.length;
        let segment = self.find(holds)?;
        let strings = segment
            .offset
            .wrapping_add(strings.wrapping_sub(segment.address));
        self.dynamic(NEEDED, |elf, name| {
            let name = elf.text(strings.wrapping_add(name));
            let is_one = SANITIZERS.iter().any(|it| name.as_bytes().starts_with(it));
            is_one.then_some(name)
        })
    }
}

impl Program {
    /// Looks at a file through `read`, which fills in what is at an offset and says how many bytes.
    ///
    /// # Errors
    /// See [`Unloadable`].
    pub fn examine(mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Result<Self, Unloadable> {
        let mut head = [0; 128];
        let got = read(0, &mut head);
        let head = head.get(..got).unwrap_or_default();
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.trim_ascii_start();
            return Ok(Self::Script(Text::until(line, b" \t\n\0")));
        }
        if head.len() < 64 || !head.starts_with(b"\x7fELF") {
            return Err(Unloadable::NotElf);
        }
        const X86_64: u64 = 62;
        if !head.starts_with(b"\x7fELF\x02\x01") || word(head, 18, 2) != X86_64 {
            return Err(Unloadable::Machine);
        }
        let segments = (word(head, 32, 8), word(head, 54, 2), word(head, 56, 2));
        let mut elf = Elf { read, segments };
        let linker = elf
            .find(|it| it.kind == INTERPRETER)
            .ok_or(Unloadable::Static)?;
        let linker = elf.text(linker.offset);
        if linker.as_bytes().windows(4).any(|part| part == b"musl") {
            return Err(Unloadable::Musl(linker));
        }
        match elf.sanitizer() {
            Some(sanitizer) => Err(Unloadable::Sanitized(sanitizer)),
            None => Ok(Self::Dynamic(linker)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn examine(bytes: &[u8]) -> Result<Program, Unloadable> {
        Program::examine(|offset, to| {
            let from = usize::try_from(offset)
                .ok()
                .and_then(|it| bytes.get(it..))
                .unwrap_or_default();
            let count = to.len().min(from.len());
            to[..count].copy_from_slice(&from[..count]);
            count
        })
    }

    #[test]
    fn programs_scripts_and_other_files_are_told_apart() {
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        let found = Program::examine(|offset, to| own.read_at(to, offset).unwrap_or(0));
        match found {
            Ok(Program::Dynamic(linker)) => assert!(linker.as_bytes().starts_with(b"/")),
            other => assert!(matches!(
                other,
                Err(Unloadable::Musl(_) | Unloadable::Static)
            )),
        }
        let script = examine(b"#! /usr/bin/env -S python3\nprint()\n");
        let Ok(Program::Script(interpreter)) = script else {
            panic!("{script:?}");
        };
        assert_eq!(interpreter.as_string(), Some(c"/usr/bin/env"));
        assert_eq!(examine(b"text"), Err(Unloadable::NotElf));
        assert_eq!(examine(b""), Err(Unloadable::NotElf));
    }

    #[test]
    fn damaged_files_end_the_search() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for place in 0..200 {
            let mut damaged = own[..own.len().min(100_000)].to_vec();
            damaged[place] ^= 0xff;
            let _ = examine(&damaged);
            let _ = examine(&damaged[..place]);
        }
        let mut endless = own[..64].to_vec();
        endless[56..58].fill(0xff);
        assert_eq!(examine(&endless), Err(Unloadable::Static));
    }
}
