//! Where the frame of a function is at each instruction, from the unwind tables.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindContext,
    UnwindSection,
};

use super::super::bytes::Bytes;

/// A range of code, in the module's own address space.
pub(super) type Range = std::ops::Range<u64>;

/// Functions with unwind tables in one module, at most.
const MOST_TABLES: usize = 4_000_000;
/// Rows of one function, at most.
const MOST_ROWS: usize = 10_000;

/// In some code, the canonical frame address is `register + offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The code.
    pub(super) range: Range,
    /// DWARF number of the register.
    pub(super) register: u16,
    /// Bytes.
    pub(super) offset: i64,
}

/// The unwind tables of one module.
pub(in crate::resolve) struct Frames<'a> {
    section: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
    /// The code of each table, and where the table is, by address.
    tables: Vec<(Range, usize)>,
}

impl<'a> Frames<'a> {
    /// The tables in `section` (`.eh_frame`), which is loaded at `address`, as the code at `text` is.
    pub(in crate::resolve) fn new(section: &'a [u8], address: u64, text: u64) -> Self {
        let mut section = EhFrame::from(EndianSlice::new(section, LittleEndian));
        section.set_address_size(8);
        let bases = BaseAddresses::default()
            .set_eh_frame(address)
            .set_text(text);
        let mut tables = Vec::new();
        let mut entries = section.entries(&bases);
        // A broken entry ends the list: what was read before it is still right.
        while let Ok(Some(entry)) = entries.next() {
            if tables.len() >= MOST_TABLES {
                break;
            }
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            if let Ok(table) = partial.parse(EhFrame::cie_from_offset) {
                let start = table.initial_address();
                tables.push((start..table.end_address(), table.offset()));
            }
        }
        tables.sort_by_key(|(range, offset)| (range.start, *offset));
        Self {
            section,
            bases,
            tables,
        }
    }

    /// The function that holds `address`; of code that was moved out of one (`.cold`), that code.
    pub(in crate::resolve) fn function(&self, address: u64) -> Option<Range> {
        let after = self
            .tables
            .partition_point(|(table, _)| table.start <= address);
        let (range, _) = self.tables.get(after.checked_sub(1)?)?;
        range.contains(&address).then(|| range.clone())
    }

    /// The rows for the code in `range`, by address.
    pub(super) fn rows(&self, range: &Range) -> Vec<Row> {
        let mut rows = Vec::new();
        let first = self
            .tables
            .partition_point(|(table, _)| table.start <= range.start)
            .saturating_sub(1);
        let tables = self.tables.get(first..).unwrap_or_default();
        for (_, offset) in tables
            .iter()
            .take_while(|(table, _)| table.start < range.end)
        {
            // A broken table gives the rows before the break.
            let _: Option<()> = self.table_rows(*offset, &mut rows);
            if rows.len() >= MOST_ROWS {
                break;
            }
        }
        rows.sort_by_key(|row| row.range.start);
        rows
    }

    fn table_rows(&self, offset: usize, rows: &mut Vec<Row>) -> Option<()> {
        let table = self
            .section
            .fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let mut unwind = table.rows(&self.section, &self.bases, &mut context).ok()?;
        while let Some(row) = unwind.next_row().ok()? {
            if rows.len() >= MOST_ROWS {
                return None;
            }
            if let CfaRule::RegisterAndOffset { register, offset } = row.cfa() {
                rows.push(Row {
                    range: row.start_address()..row.end_address(),
                    register: register.0,
                    offset: *offset,
                });
            }
        }
        Some(())
    }
}
