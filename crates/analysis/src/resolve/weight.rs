//! What the debug info of a module takes in memory once it is taken apart, found out before it is.
//!
//! Bytes say little about that. A byte of a line table is a row of 24 bytes, an entry of a byte a function of 200, and
//! what is named many times (a table of abbreviations, a list of files, a range list) is copied as often: 150 kB on disk
//! can ask for all memory. So everything that addr2line or we keep for each unit, row, file, range and function is counted
//! first, with the readers that keep nothing. Debug info that is too heavy is left aside with that reason.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, Section as _, UnitHeader, UnitRef, UnitType,
};

use super::bytes::Bytes;
use super::files::Store;

/// Memory that is always allowed, and as many times the bytes of the files. Compilers' debug info takes twice its bytes,
/// and compressed a fourth of them on disk.
const ALWAYS: u64 = 64 << 20;
const PER_BYTE: u64 = 32;
/// How long one module is weighed: parts that overlap can be read for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Attributes of an entry: more than any compiler writes, and an entry of one byte could have them all.
const MOST_ATTRIBUTES: u64 = 256;
/// Bytes of the lists of folders and files of one line table.
const LARGEST_FILE_LISTS: u64 = 4 << 20;

/// A unit, kept by us and by addr2line, with its place in both lists.
const UNIT: u64 = 2 * size_of::<gimli::Unit<Bytes<'_>>>() as u64 + 512;
/// An abbreviation, with room for a few attributes, in the tables of both.
const ABBREVIATION: u64 = 256;
/// Each further attribute.
const ATTRIBUTE: u64 = 32;
/// A row of a line table, while its list grows.
const ROW: u64 = 48;
/// A file or folder of a line table, but for its name.
const FILE: u64 = 2 * size_of::<gimli::FileEntry<Bytes<'_>, usize>>() as u64 + 32;
/// A range of code.
pub(super) const RANGE: u64 = 64;
/// A function that has code.
pub(super) const FUNCTION: u64 = 320;
/// A function that was inlined.
pub(super) const INLINED: u64 = 128;
/// A static variable.
pub(super) const VARIABLE: u64 = 96;

/// Weighs the debug info of one module.
pub(super) struct Scale<'a> {
    store: &'a Store,
    left: Cell<u64>,
    began: Instant,
    too_heavy: Cell<bool>,
}

impl<'a> Scale<'a> {
    /// For a module whose debug info is in `file_bytes` bytes of files.
    pub(super) fn new(store: &'a Store, file_bytes: u64) -> Self {
        let scale = Self {
            store,
            left: Cell::new(ALWAYS),
            began: Instant::now(),
            too_heavy: Cell::new(false),
        };
        scale.allow(file_bytes);
        scale
    }

    /// A further file of `file_bytes` bytes belongs to the module.
    pub(super) fn allow(&self, file_bytes: u64) {
        let more = file_bytes.saturating_mul(PER_BYTE);
        self.left.set(self.left.get().saturating_add(more));
    }

    /// Puts `bytes` bytes on; `None` if that is too much.
    pub(super) fn add(&self, bytes: u64) -> Option<()> {
        let left = self.left.get().checked_sub(bytes);
        let left =
            left.filter(|_| self.store.reserve_rows(bytes) && self.began.elapsed() < PATIENCE);
        match left {
            Some(left) => self.left.set(left),
            None => self.too_heavy.set(true),
        }
        left.map(|_| ())
    }

    /// Whether something was too much.
    pub(super) fn is_too_heavy(&self) -> bool {
        self.too_heavy.get()
    }
}

/// Weighs the tables of abbreviations of `dwarf`, before they are read. `None` if they are too heavy.
pub(super) fn abbreviations(dwarf: &gimli::Dwarf<Bytes<'_>>, scale: &Scale<'_>) -> Option<()> {
    let mut known: HashMap<usize, u64> = HashMap::new();
    let section = dwarf.debug_abbrev.reader().slice();
    let mut table = |offset: usize| -> Option<u64> {
        if let Some(weight) = known.get(&offset) {
            return Some(*weight);
        }
        let weight = table_weight(section.get(offset..).unwrap_or_default(), scale)?;
        known.insert(offset, weight);
        Some(weight)
    };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        scale.add(UNIT)?;
        table(header.debug_abbrev_offset().0)?;
    }
    // Units of types of DWARF 4 do not share their tables.
    let mut types = dwarf.type_units();
    while let Ok(Some(header)) = types.next() {
        let weight = table(header.debug_abbrev_offset().0)?;
        scale.add(UNIT + weight)?;
    }
    Some(())
}

/// Puts the table that begins with `bytes` on, and returns its weight. It is read up to where it breaks.
fn table_weight(mut bytes: &[u8], scale: &Scale<'_>) -> Option<u64> {
    let mut weight = 0;
    let mut walk = || -> Option<Option<()>> {
        // Code, tag, whether there are children; then pairs of name and form, and of an implicit constant its value.
        if leb128(&mut bytes)? == 0 {
            return None;
        }
        leb128(&mut bytes)?;
        bytes = bytes.get(1..)?;
        let mut attributes = 0;
        loop {
            let (name, form) = (leb128(&mut bytes)?, leb128(&mut bytes)?);
            if (name, form) == (0, 0) {
                break;
            }
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                leb128(&mut bytes)?;
            }
            attributes += 1;
        }
        let own = ABBREVIATION + ATTRIBUTE * attributes;
        weight += own;
        if attributes > MOST_ATTRIBUTES {
            return Some(scale.add(u64::MAX));
        }
        Some(scale.add(own))
    };
    while let Some(fits) = walk() {
        fits?;
    }
    Some(weight)
}

/// The next number, of which no more than that it is zero has to be right beyond 64 bits.
fn leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut shift = 0;
    loop {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift < 64 {
            value |= u64::from(first & 127) << shift;
        } else if first & 127 != 0 {
            value = u64::MAX;
        }
        shift += 7;
        if first & 128 == 0 {
            return Some(value);
        }
    }
}

/// Weighs the files, rows and ranges of the units of `dwarf`, whose abbreviations were weighed. `None` if they are too
/// heavy.
pub(super) fn units(dwarf: &gimli::Dwarf<Bytes<'_>>, scale: &Scale<'_>) -> Option<()> {
    let mut rows: HashMap<usize, u64> = HashMap::new();
    scale.add(dwarf.debug_aranges.reader().len() as u64 * 4)?;
    let mut infos = dwarf.units();
    while let Ok(Some(header)) = infos.next() {
        unit(dwarf, header, scale, &mut rows)?;
    }
    let mut types = dwarf.type_units();
    while let Ok(Some(header)) = types.next() {
        unit(dwarf, header, scale, &mut rows)?;
    }
    Some(())
}

fn unit<'a>(
    dwarf: &gimli::Dwarf<Bytes<'a>>,
    header: UnitHeader<Bytes<'a>>,
    scale: &Scale<'_>,
    rows: &mut HashMap<usize, u64>,
) -> Option<()> {
    let lines = lines_of(dwarf, &header);
    let line_tables = dwarf.debug_line.reader().slice();
    let table = lines.and_then(|offset| line_tables.get(offset..));
    if file_lists(table.unwrap_or_default()) > LARGEST_FILE_LISTS {
        return scale.add(u64::MAX);
    }
    // What cannot be read is not kept either.
    let Ok(unit) = dwarf.unit(header) else {
        return Some(());
    };
    let unit = UnitRef::new(dwarf, &unit);
    let has_code = !matches!(
        unit.header.type_(),
        UnitType::Type { .. } | UnitType::SplitType { .. }
    );
    if let Some(program) = &unit.line_program {
        let header = program.header();
        let files = header.file_names().len() + header.include_directories().len();
        scale.add(FILE * files as u64)?;
        if has_code {
            names(unit, scale)?;
        }
        if has_code
            && let Some(offset) = lines
            && !rows.contains_key(&offset)
        {
            let mut count = 0;
            let mut all = program.clone().rows();
            while let Ok(Some(_)) = all.next_row() {
                count += 1;
                // Not at each row: a few hundred pages may be too many.
                if count % 4096 == 0 {
                    scale.add(4096 * ROW)?;
                }
            }
            scale.add(count % 4096 * ROW)?;
            rows.insert(offset, count);
        }
    }
    if has_code && let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
        while let Ok(Some(_)) = ranges.next() {
            scale.add(RANGE)?;
        }
    }
    // A list may have nothing but bases, and take long.
    scale.add(0)
}

/// The names of the files of a unit with their folders in front, as addr2line makes them.
fn names(unit: UnitRef<'_, Bytes<'_>>, scale: &Scale<'_>) -> Option<()> {
    let Some(program) = &unit.line_program else {
        return Some(());
    };
    let header = program.header();
    let length = |value| unit.attr_string(value).map_or(0, |text| text.len() as u64);
    let folder = unit.comp_dir.map_or(0, |text| text.len() as u64);
    for file in header.file_names() {
        let own = length(file.path_name());
        let around = file.directory(header).map_or(0, length);
        scale.add(folder + around + own)?;
    }
    Some(())
}

/// Where the line table of a unit is.
fn lines_of(dwarf: &gimli::Dwarf<Bytes<'_>>, header: &UnitHeader<Bytes<'_>>) -> Option<usize> {
    let abbreviations = dwarf.abbreviations(header).ok()?;
    let mut root = header.entries_raw(&abbreviations, None).ok()?;
    let abbreviation = root.read_abbreviation().ok()??;
    let mut found = None;
    for specification in abbreviation.attributes() {
        let attribute = root.read_attribute(*specification).ok()?;
        if attribute.name() == gimli::DW_AT_stmt_list {
            found = match attribute.value() {
                AttributeValue::DebugLineRef(offset) => Some(offset.0),
                _ => None,
            };
        }
    }
    found
}

/// Bytes of the lists of folders and files of the line table that begins with `bytes`; zero if it is none.
fn file_lists(bytes: &[u8]) -> u64 {
    let number = |at: usize, wide: bool| {
        let bytes = bytes.get(at..)?;
        if wide {
            bytes.first_chunk().map(|it| u64::from_le_bytes(*it))
        } else {
            bytes
                .first_chunk()
                .map(|it| u64::from(u32::from_le_bytes(*it)))
        }
    };
    // Length, version, and from version 5 on two sizes.
    let wide = number(0, false) == Some(u64::from(u32::MAX));
    let version = if wide { 12 } else { 4 };
    let five = bytes.get(version).is_some_and(|&version| version >= 5);
    number(version + if five { 4 } else { 2 }, wide).unwrap_or(0)
}

/// The sections `dwarf`, ready to be read; `None` if what they hold is too heavy for `scale`.
pub(super) fn weighed<'a>(
    mut dwarf: gimli::Dwarf<Bytes<'a>>,
    scale: &Scale<'_>,
) -> Option<gimli::Dwarf<Bytes<'a>>> {
    abbreviations(&dwarf, scale)?;
    // Units are read several times: here, by whoever asks for entries, and by addr2line.
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::All);
    units(&dwarf, scale)?;
    Some(dwarf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_abbreviations_is_weighed_up_to_its_end() {
        let store = Store::default();
        let scale = Scale::new(&store, 0);
        // 1: tag 0x11, children, (3, 8), (4, implicit 5); 2: tag 0x34, none; end; what is behind.
        let table = [
            1, 0x11, 1, 3, 8, 4, 0x21, 5, 0, 0, 2, 0x34, 0, 0, 0, 0, 9, 9,
        ];
        let weight = table_weight(&table, &scale);
        assert_eq!(weight, Some(2 * ABBREVIATION + 2 * ATTRIBUTE));
        assert_eq!(table_weight(&table[..5], &scale), Some(0));
        // An entry that has a thousand attributes without a byte.
        let mut wide = vec![1, 0x11, 1];
        wide.extend([3, 0x19].repeat(1000));
        wide.extend([0, 0, 0]);
        assert_eq!(table_weight(&wide, &scale), None);
        assert!(scale.is_too_heavy());
    }

    #[test]
    fn a_file_is_allowed_what_its_bytes_allow_and_all_files_what_the_store_does() {
        let store = Store::default();
        let scale = Scale::new(&store, 10);
        assert!(scale.add(ALWAYS + 10 * PER_BYTE).is_some());
        assert!(scale.add(1).is_none() && scale.is_too_heavy());
        let store = Store::with_limit(1 << 20);
        assert!(Scale::new(&store, 0).add(ALWAYS).is_none());
    }

    #[test]
    fn the_length_of_file_lists_is_read_in_both_widths() {
        let narrow = [9, 0, 0, 0, 4, 0, 7, 0, 0, 0];
        assert_eq!(file_lists(&narrow), 7);
        let mut wide = vec![0xff; 4];
        wide.extend([9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(file_lists(&wide), 7);
        assert_eq!(file_lists(&[]), 0);
    }
}
