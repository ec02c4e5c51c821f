//! The little of ELF that resolving needs, read in ranges: headers first, sections when asked.
//!
//! Only 64-bit little-endian files: the machines that linewise records on run no others, and
//! samples of 32-bit tasks carry no registers. Every number in the file is foreign: sizes are
//! checked against the file, and a file that makes no sense is one without sections.

use std::collections::HashMap;
use std::io::Read as _;

use lzma_rust2::XzReader;
use object::elf::{
    CompressionHeader64, ELF_NOTE_GNU, ELFCLASS64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, ELFDATA2LSB,
    ELFMAG, EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, PF_W, PF_X, PT_LOAD, PT_NOTE,
    ProgramHeader64, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, Rela64,
    SHF_ALLOC, SHF_COMPRESSED, SHF_WRITE, SHN_UNDEF, SHT_NOBITS, SectionHeader64, Sym64,
};
use object::read::elf::NoteIterator;
use object::{CompressedData, CompressionFormat, LittleEndian as LE, pod};

use super::files::File;

/// Sections larger than this are left out, compressed or not.
const LARGEST_SECTION: u64 = 2 << 30;
/// Bytes of the names of sections that are read, at most, and of one name.
const MOST_NAMES: u64 = 16 << 20;
const LONGEST_NAME: usize = 256;
/// Bytes of a symbol's name, at most.
const LONGEST_SYMBOL: usize = 64 << 10;
/// Bytes of a section that only names another file.
const LARGEST_LINK: u64 = 64 << 10;
/// Bytes of a table of relocations or of dynamic symbols, at most.
const LARGEST_TABLE: u64 = 256 << 20;
/// Bytes of the symbols in .gnu_debugdata, compressed and not, at most, and what unpacking them may take, KB.
const LARGEST_PACKED: u64 = 16 << 20;
const LARGEST_UNPACKED: u64 = 128 << 20;
const MOST_FOR_UNPACKING: u32 = 128 << 10;
/// More program headers than any linker writes.
const MOST_SEGMENTS: u64 = 4096;
/// Segments of notes that are read, at most.
const MOST_NOTES: usize = 4;
/// Relocations of one section that are read, at most.
const MOST_RELOCATIONS: usize = 4_000_000;

/// A loaded range of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Address in the file's own address space.
    pub(super) address: u64,
    /// Bytes in memory; those beyond `file_size` are zero at the start (.bss).
    pub(super) memory_size: u64,
    /// Where it starts in the file.
    pub(super) offset: u64,
    /// Bytes in the file.
    pub(super) file_size: u64,
    /// Whether it holds code.
    pub(super) executable: bool,
    /// Whether it may be written.
    pub(super) writable: bool,
}

/// A named range of the file.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// `.text`, `.bss`, `.debug_info`, ...
    pub(super) name: String,
    /// Address in the file's own address space; zero when it is not loaded.
    pub(super) address: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Whether it is loaded.
    pub(super) loaded: bool,
    /// Whether it is writable.
    pub(super) writable: bool,
    offset: u64,
    compressed: bool,
    in_file: bool,
}

/// An open ELF file.
pub(super) struct Elf {
    file: Box<dyn File>,
    /// Loaded ranges.
    pub(super) segments: Vec<Segment>,
    /// All sections; empty if the section table was stripped.
    pub(super) sections: Vec<Section>,
    /// GNU build id, lower-case hex; empty if it has none.
    pub(super) build_id: String,
    is_x86: bool,
    /// Where segments of notes lie in the file, how long they are, and how their notes are aligned.
    notes: Vec<(u64, u64, u64)>,
}

impl Elf {
    /// Reads the headers; `None` if it is not a 64-bit little-endian ELF file.
    pub(super) fn open(file: Box<dyn File>) -> Option<Self> {
        let bytes = file.read(0, size_of::<FileHeader64<LE>>() as u64)?;
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&bytes).ok()?;
        let ident = header.e_ident;
        if ident.magic != ELFMAG || ident.class != ELFCLASS64 || ident.data != ELFDATA2LSB {
            return None;
        }
        let mut elf = Self {
            segments: Vec::new(),
            sections: Vec::new(),
            build_id: String::new(),
            notes: Vec::new(),
            is_x86: header.e_machine.get(LE) == EM_X86_64,
            file,
        };
        elf.read_segments(header.e_phoff.get(LE), u64::from(header.e_phnum.get(LE)));
        elf.read_sections(
            header.e_shoff.get(LE),
            u64::from(header.e_shnum.get(LE)),
            usize::from(header.e_shstrndx.get(LE).0),
        );
        elf.build_id = elf.find_build_id().unwrap_or_default();
        Some(elf)
    }

    /// Whether its code is for x86-64.
    pub(super) fn is_x86(&self) -> bool {
        self.is_x86
    }

    /// Bytes of the file.
    pub(super) fn file_size(&self) -> u64 {
        self.file.size()
    }

    /// Exactly the `length` bytes at `offset` of the file.
    pub(super) fn bytes(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        self.file.read(offset, length)
    }

    fn read_segments(&mut self, offset: u64, count: u64) -> Option<()> {
        let count = count.min(MOST_SEGMENTS);
        let bytes = self
            .file
            .read(offset, count * size_of::<ProgramHeader64<LE>>() as u64)?;
        let (headers, _) =
            pod::slice_from_bytes::<ProgramHeader64<LE>>(&bytes, usize::try_from(count).ok()?)
                .ok()?;
        for header in headers {
            if header.p_type.get(LE) == PT_LOAD {
                self.segments.push(Segment {
                    address: header.p_vaddr.get(LE),
                    memory_size: header.p_memsz.get(LE),
                    offset: header.p_offset.get(LE),
                    file_size: header.p_filesz.get(LE),
                    executable: header.p_flags.get(LE).0 & PF_X.0 != 0,
                    writable: header.p_flags.get(LE).0 & PF_W.0 != 0,
                });
            }
            if header.p_type.get(LE) == PT_NOTE && self.notes.len() < MOST_NOTES {
                let size = header.p_filesz.get(LE).min(LARGEST_LINK);
                let place = (header.p_offset.get(LE), size, header.p_align.get(LE));
                self.notes.push(place);
            }
        }
        Some(())
    }

    fn read_sections(&mut self, offset: u64, count: u64, names: usize) -> Option<()> {
        let bytes = self
            .file
            .read(offset, count * size_of::<SectionHeader64<LE>>() as u64)?;
        let (headers, _) =
            pod::slice_from_bytes::<SectionHeader64<LE>>(&bytes, usize::try_from(count).ok()?)
                .ok()?;
        let names = headers.get(names)?;
        let size = names.sh_size.get(LE).min(MOST_NAMES);
        let names = self.file.read(names.sh_offset.get(LE), size)?;
        for header in headers {
            let flags = header.sh_flags.get(LE);
            self.sections.push(Section {
                name: text_at(&names, header.sh_name.get(LE), LONGEST_NAME),
                address: header.sh_addr.get(LE),
                size: header.sh_size.get(LE),
                loaded: flags.0 & SHF_ALLOC.0 != 0,
                writable: flags.0 & SHF_WRITE.0 != 0,
                offset: header.sh_offset.get(LE),
                compressed: flags.0 & SHF_COMPRESSED.0 != 0,
                in_file: header.sh_type.get(LE) != SHT_NOBITS,
            });
        }
        Some(())
    }

    /// The section called `name`, with contents in this file.
    fn section(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.in_file && section.name == name)
    }

    /// Whether there is a section called `name`, with contents in this file.
    pub(super) fn has_section(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    /// Whether it carries DWARF, compressed or not.
    pub(super) fn has_debug_info(&self) -> bool {
        self.has_section(".debug_info") || self.has_section(".zdebug_info")
    }

    /// The contents of the section called `name`, decompressed; `None` if there are none or they
    /// are broken.
    pub(super) fn section_bytes(&self, name: &str) -> Option<Vec<u8>> {
        if let Some(section) = self.section(name) {
            return self.bytes_of(section);
        }
        // The older way of compressing, which Go used for long.
        let old_name = name
            .strip_prefix(".debug_")
            .map(|rest| format!(".zdebug_{rest}"))?;
        let section = self.section(&old_name)?;
        let bytes = self.raw(section)?;
        let (size, data) = bytes.strip_prefix(b"ZLIB")?.split_first_chunk::<8>()?;
        decompress(CompressionFormat::Zlib, data, u64::from_be_bytes(*size))
    }

    /// The contents of all sections called `name`, one after the other: compilers leave units of types
    /// in sections of their own in files that no linker went over. `None` as in
    /// [`Elf::section_bytes`].
    pub(super) fn joined_sections(&self, name: &str) -> Option<Vec<u8>> {
        let mut joined = Vec::new();
        let all = self
            .sections
            .iter()
            .filter(|it| it.in_file && it.name == name);
        let mut count = 0;
        for section in all {
            count += 1;
            let bytes = self.bytes_of(section)?;
            if (joined.len() + bytes.len()) as u64 > LARGEST_SECTION {
                return None;
            }
            joined.extend(bytes);
        }
        if count == 0 {
            self.section_bytes(name)
        } else {
            Some(joined)
        }
    }

    /// The contents of `section` as they are in the file.
    fn raw(&self, section: &Section) -> Option<Vec<u8>> {
        if section.size > LARGEST_SECTION {
            return None;
        }
        self.file.read(section.offset, section.size)
    }

    /// The contents of the section called `name` if it has at most `most` bytes, compressed or not.
    fn small_section(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        (self.section_size(name) <= most).then(|| self.section_bytes(name))?
    }

    fn bytes_of(&self, section: &Section) -> Option<Vec<u8>> {
        let bytes = self.raw(section)?;
        if section.compressed {
            decompress_elf(&bytes)
        } else {
            Some(bytes)
        }
    }

    /// Bytes that [`Elf::section_bytes`] would take for the section called `name`, without reading
    /// them: what it claims to have once decompressed, or what it has in the file if that is more. Zero if there is none.
    pub(super) fn section_size(&self, name: &str) -> u64 {
        let old_name = name
            .strip_prefix(".debug_")
            .map(|rest| format!(".zdebug_{rest}"));
        let found = self.section(name).map(|section| (section, false));
        let old = || Some((self.section(&old_name?)?, true));
        let Some((section, old)) = found.or_else(old) else {
            return 0;
        };
        self.size_of(section, old)
    }

    /// The same for [`Elf::joined_sections`].
    pub(super) fn joined_size(&self, name: &str) -> u64 {
        let all = self
            .sections
            .iter()
            .filter(|it| it.in_file && it.name == name);
        let size = all
            .map(|section| self.size_of(section, false))
            .fold(0, u64::saturating_add);
        if size == 0 {
            self.section_size(name)
        } else {
            size
        }
    }

    /// Bytes of `section` once decompressed; `old` says whether it is of the older form.
    fn size_of(&self, section: &Section, old: bool) -> u64 {
        if section.offset.saturating_add(section.size) > self.file.size() {
            return 0;
        }
        let first = |length: u64| self.file.read(section.offset, length.min(section.size));
        let size = if old {
            first(12).and_then(|bytes| Some(u64::from_be_bytes(*bytes.get(4..)?.first_chunk()?)))
        } else if section.compressed {
            first(size_of::<CompressionHeader64<LE>>() as u64).and_then(|bytes| {
                let (header, _) = pod::from_bytes::<CompressionHeader64<LE>>(&bytes).ok()?;
                Some(header.ch_size.get(LE))
            })
        } else {
            return section.size;
        };
        // What claims too much is too large, and not left out without a word.
        size.unwrap_or(0).max(section.size)
    }

    /// CRC-32 of the whole file, as .gnu_debuglink states it.
    pub(super) fn checksum(&self) -> Option<u32> {
        const STEP: u64 = 1 << 20;
        /// A hole can have any size.
        const MOST: u64 = 8 << 30;
        if self.file.size() > MOST {
            return None;
        }
        let mut checksum = Checksum::new();
        let mut offset = 0;
        while offset < self.file.size() {
            let length = STEP.min(self.file.size() - offset);
            checksum.add(&self.file.read(offset, length)?);
            offset += length;
        }
        Some(checksum.finish())
    }

    /// The file in .gnu_debugdata: the symbols of a stripped program, in xz, as Fedora leaves them.
    pub(super) fn mini_debug_info(&self) -> Option<Self> {
        let packed = self.small_section(".gnu_debugdata", LARGEST_PACKED)?;
        let mut bytes = Vec::new();
        XzReader::new_mem_limit(packed.as_slice(), false, MOST_FOR_UNPACKING)
            .take(LARGEST_UNPACKED)
            .read_to_end(&mut bytes)
            .ok()?;
        Self::open(Box::new(bytes))
    }

    /// The file name and checksum in .gnu_debuglink.
    pub(super) fn debug_link(&self) -> Option<(String, u32)> {
        let bytes = self.small_section(".gnu_debuglink", LARGEST_LINK)?;
        let checksum = bytes.last_chunk::<4>()?;
        Some((
            text_at(&bytes, 0, LONGEST_SYMBOL),
            u32::from_le_bytes(*checksum),
        ))
    }

    /// What .gnu_debugaltlink says of the file that dwz moved entries of several files to: its path
    /// and its build id in hexadecimal digits, empty if it says none.
    pub(super) fn supplementary_link(&self) -> Option<(String, String)> {
        let bytes = self.small_section(".gnu_debugaltlink", LARGEST_LINK)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let id = bytes.get(end + 1..).unwrap_or_default();
        Some((
            text_at(&bytes, 0, LONGEST_SYMBOL),
            id.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// What the loader writes where only it writes (`.got`, `.data.rel.ro`), by address: addresses in
    /// this file. Relocations of x86-64.
    pub(super) fn linked(&self) -> HashMap<u64, u64> {
        let mut linked = HashMap::new();
        if !self.is_x86 {
            return linked;
        }
        let places: Vec<std::ops::Range<u64>> = self
            .sections
            .iter()
            .filter(|section| matches!(&*section.name, ".got" | ".got.plt" | ".data.rel.ro"))
            .map(|section| section.address..section.address.saturating_add(section.size))
            .collect();
        let table = |name| self.small_section(name, LARGEST_TABLE).unwrap_or_default();
        let symbols = table(".dynsym");
        for name in [".rela.dyn", ".rela.plt"] {
            let bytes = table(name);
            let count = (bytes.len() / size_of::<Rela64<LE>>()).min(MOST_RELOCATIONS);
            let Ok((relocations, _)) = pod::slice_from_bytes::<Rela64<LE>>(&bytes, count) else {
                continue;
            };
            for relocation in relocations {
                let place = relocation.r_offset.get(LE);
                if !places.iter().any(|section| section.contains(&place)) {
                    continue;
                }
                let added = relocation.r_addend.get(LE);
                let symbol = || defined(&symbols, relocation.r_sym(LE, false));
                let value = match relocation.r_type(LE, false) {
                    R_X86_64_RELATIVE => Some(added as u64),
                    R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => symbol(),
                    R_X86_64_64 => symbol().map(|value| value.wrapping_add_signed(added)),
                    _ => None,
                };
                if let Some(value) = value {
                    linked.insert(place, value);
                }
            }
        }
        linked
    }

    /// Of its own section, and where that was taken out or has another name, among the notes that are loaded.
    fn find_build_id(&self) -> Option<String> {
        let own = self.small_section(".note.gnu.build-id", LARGEST_LINK);
        own.and_then(|notes| build_id_among(&notes, 4)).or_else(|| {
            let mut notes = self.notes.iter();
            notes.find_map(|&(offset, size, align)| {
                build_id_among(&self.file.read(offset, size)?, align)
            })
        })
    }
}

/// The build id among `notes`, in lower-case hex.
fn build_id_among(notes: &[u8], align: u64) -> Option<String> {
    let notes = NoteIterator::<FileHeader64<LE>>::new(LE, align, notes).ok()?;
    let mut notes = notes.map_while(Result::ok);
    let note = notes.find(|it| it.name() == ELF_NOTE_GNU && it.n_type(LE) == NT_GNU_BUILD_ID)?;
    Some(
        note.desc()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    )
}

/// The value of symbol `number` of the table `symbols`, if it is defined there.
fn defined(symbols: &[u8], number: u32) -> Option<u64> {
    let start = usize::try_from(number)
        .ok()?
        .checked_mul(size_of::<Sym64<LE>>())?;
    let (symbol, _) = pod::from_bytes::<Sym64<LE>>(symbols.get(start..)?).ok()?;
    (symbol.st_shndx.get(LE) != SHN_UNDEF).then(|| symbol.st_value.get(LE))
}

/// The zero-terminated symbol at `offset`.
pub(super) fn symbol_at(bytes: &[u8], offset: u32) -> String {
    text_at(bytes, offset, LONGEST_SYMBOL)
}

/// The zero-terminated text at `offset`, of which at most `most` bytes are taken.
fn text_at(bytes: &[u8], offset: u32, most: usize) -> String {
    let text = usize::try_from(offset)
        .ok()
        .and_then(|start| bytes.get(start..))
        .unwrap_or(&[]);
    let text = text.get(..most).unwrap_or(text);
    let text = text.split(|byte| *byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

fn decompress_elf(bytes: &[u8]) -> Option<Vec<u8>> {
    let (header, data) = pod::from_bytes::<CompressionHeader64<LE>>(bytes).ok()?;
    let format = match header.ch_type.get(LE) {
        kind if kind == ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        kind if kind == ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        _ => return None,
    };
    decompress(format, data, header.ch_size.get(LE))
}

fn decompress(format: CompressionFormat, data: &[u8], size: u64) -> Option<Vec<u8>> {
    if size > LARGEST_SECTION {
        return None;
    }
    let compressed = CompressedData {
        format,
        data,
        uncompressed_size: size,
    };
    Some(compressed.decompress().ok()?.into_owned())
}

/// CRC-32 (IEEE), a byte at a time.
struct Checksum {
    table: [u32; 256],
    state: u32,
}

impl Checksum {
    fn new() -> Self {
        let mut table = [0; 256];
        for (entry, byte) in table.iter_mut().zip(0_u32..) {
            *entry = (0..8).fold(byte, |rest, _| {
                if rest & 1 == 1 {
                    (rest >> 1) ^ 0xedb8_8320
                } else {
                    rest >> 1
                }
            });
        }
        Self { table, state: !0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let [low, ..] = self.state.to_le_bytes();
            self.state = self.table[usize::from(low ^ byte)] ^ (self.state >> 8);
        }
    }

    fn finish(self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_the_debug_link_uses() {
        let mut checksum = Checksum::new();
        checksum.add(b"1234");
        checksum.add(b"56789");
        assert_eq!(checksum.finish(), 0xcbf4_3926);
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(Elf::open(Box::new(Vec::new())).is_none());
        assert!(Elf::open(Box::new(b"#!/bin/sh\n".to_vec())).is_none());
        assert!(Elf::open(Box::new(vec![0; 4096])).is_none());
    }
}
