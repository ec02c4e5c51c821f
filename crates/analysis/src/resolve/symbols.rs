//! ELF symbols: the names that are left when there is no debug info.

use object::elf::{SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, Sym64};
use object::{LittleEndian as LE, pod};

use super::demangle::demangle;
use super::elf::{Elf, symbol_at};
use super::files::Store;

/// A symbol without a size covers at most this much: assembly labels are short.
const LARGEST_UNSIZED: u64 = 4096;

/// Where Go has its functions, and how that begins.
pub(super) const GO_TABLE: &str = ".gopclntab";
const GO_MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// One symbol of a module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Address in the module's own address space.
    pub(super) address: u64,
    /// Bytes; zero if the symbol does not say.
    pub(super) size: u64,
    table: u8,
    name: u32,
}

/// The symbols of a module by address, with their string tables.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    functions: Vec<Symbol>,
    objects: Vec<Symbol>,
    names: Vec<Vec<u8>>,
}

impl Symbols {
    /// Adds the symbols of one table of `elf`, `.symtab` with `.strtab` or `.dynsym` with `.dynstr`, if `store` has room
    /// for them; if not, their bytes are the error.
    pub(super) fn add(
        &mut self,
        elf: &Elf,
        (table, names): (&str, &str),
        store: &Store,
    ) -> Result<(), u64> {
        // The table is there twice until it is sorted.
        let bytes = elf.section_size(table).saturating_mul(2);
        let bytes = bytes.saturating_add(elf.section_size(names));
        if !store.reserve_other(bytes) {
            return Err(bytes);
        }
        self.add_table(elf, table, names);
        Ok(())
    }

    fn add_table(&mut self, elf: &Elf, table: &str, names: &str) {
        let (Some(bytes), Some(names)) = (elf.section_bytes(table), elf.section_bytes(names))
        else {
            return;
        };
        let count = bytes.len() / size_of::<Sym64<LE>>();
        let Ok((symbols, _)) = pod::slice_from_bytes::<Sym64<LE>>(&bytes, count) else {
            return;
        };
        let Ok(table) = u8::try_from(self.names.len()) else {
            return;
        };
        for symbol in symbols {
            if symbol.st_shndx.get(LE) == SHN_UNDEF || symbol.st_value.get(LE) == 0 {
                continue;
            }
            let row = Symbol {
                address: symbol.st_value.get(LE),
                size: symbol.st_size.get(LE),
                table,
                name: symbol.st_name.get(LE),
            };
            match symbol.st_type() {
                kind if kind == STT_FUNC || kind == STT_GNU_IFUNC => self.functions.push(row),
                kind if kind == STT_OBJECT => self.objects.push(row),
                // Assembly labels; those of data would only shadow the objects around them.
                kind if kind == STT_NOTYPE => self.functions.push(row),
                _ => {}
            }
        }
        self.names.push(names);
    }

    /// Adds the functions of Go's own table (`.gopclntab`, of Go 1.18 and later), which is there also in a program that was
    /// stripped; a broken one ends where it is broken. If `store` has no room for it, its bytes are the error.
    pub(super) fn add_go(&mut self, elf: &Elf, store: &Store) -> Result<(), u64> {
        let bytes = elf.section_size(GO_TABLE).saturating_mul(2);
        if !store.reserve_other(bytes) {
            return Err(bytes);
        }
        let text = elf.sections.iter().find(|section| section.name == ".text");
        let text = text.map_or(0, |section| section.address);
        if let Some(bytes) = elf.section_bytes(GO_TABLE) {
            self.add_go_table(&bytes, text);
        }
        Ok(())
    }

    /// Of its bytes; code begins at `text` unless they say otherwise. See `debug/gosym/pclntab.go`.
    fn add_go_table(&mut self, bytes: &[u8], text: u64) -> Option<()> {
        let four = |at: usize| {
            let word = bytes.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(word.try_into().ok()?))
        };
        let eight = |field: usize| {
            let word = bytes.get(8 + 8 * field..16 + 8 * field)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        let is_known = GO_MAGICS.contains(&four(0)?) && *bytes.get(7)? == 8;
        let table = u8::try_from(self.names.len()).ok().filter(|_| is_known)?;
        let start = match eight(2)? {
            0 => text,
            start => start,
        };
        let (names, functions) = (
            usize::try_from(eight(3)?).ok()?,
            usize::try_from(eight(7)?).ok()?,
        );
        self.names.push(bytes.get(names..)?.to_vec());
        for number in 0..usize::try_from(eight(0)?).ok()? {
            let row = functions.checked_add(number.checked_mul(8)?)?;
            let (entry, next) = (four(row)?, four(row.checked_add(8)?)?);
            let about = functions.checked_add(four(row.checked_add(4)?)? as usize)?;
            self.functions.push(Symbol {
                address: start.checked_add(entry.into())?,
                size: next.saturating_sub(entry).into(),
                table,
                name: four(about.checked_add(4)?)?,
            });
        }
        Some(())
    }

    /// Sorts by address; call it after the last `add`.
    pub(super) fn finish(&mut self) {
        // At one address the sized symbol wins over the label: it comes last.
        self.functions
            .sort_by_key(|symbol| (symbol.address, symbol.size > 0));
        self.objects
            .sort_by_key(|symbol| (symbol.address, symbol.size));
        self.functions.shrink_to_fit();
        self.objects.shrink_to_fit();
    }

    /// The function that holds `address`.
    pub(super) fn function(&self, address: u64) -> Option<&Symbol> {
        let symbol = covering(&self.functions, address)?;
        (!self.raw_name(symbol).is_empty()).then_some(symbol)
    }

    /// The variable that holds `address`.
    pub(super) fn object(&self, address: u64) -> Option<&Symbol> {
        covering(&self.objects, address).filter(|symbol| symbol.size > 0)
    }

    /// Where the variable or label of data called `name`, as the table has it, lies.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        let mut objects = self.objects.iter();
        let symbol = objects.find(|symbol| self.raw_name(symbol) == name)?;
        Some(symbol.address)
    }

    /// The demangled name of `symbol`.
    pub(super) fn name(&self, symbol: &Symbol) -> String {
        demangle(&self.raw_name(symbol))
    }

    fn raw_name(&self, symbol: &Symbol) -> String {
        self.names
            .get(usize::from(symbol.table))
            .map_or_else(String::new, |names| symbol_at(names, symbol.name))
    }
}

/// The last symbol that starts at or before `address` and covers it.
fn covering(symbols: &[Symbol], address: u64) -> Option<&Symbol> {
    /// Enough to step over labels and aliases inside a function.
    const STEPS: usize = 16;

    let after = symbols.partition_point(|symbol| symbol.address <= address);
    let before = symbols.get(..after)?;
    let nearest = before.last().map(|symbol| symbol.address);
    before.iter().rev().take(STEPS).find(|symbol| {
        let distance = address - symbol.address;
        if symbol.size > 0 {
            distance < symbol.size
        } else {
            // No further than to where another begins.
            Some(symbol.address) == nearest && distance < LARGEST_UNSIZED
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(address: u64, size: u64) -> Symbol {
        Symbol {
            address,
            size,
            table: 0,
            name: 0,
        }
    }

    /// A table of two functions at 0x40 and 0x90 of the code.
    fn go_table() -> Vec<u8> {
        let mut bytes = 0xffff_fff1_u32.to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        let (names, functions) = (72_u64, 112_u64);
        for field in [2, 0, 0x40_1000, names, 0, 0, 0, functions] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(b"main.count\0runtime.mallocgc\0");
        bytes.resize(112, 0);
        // Each where it begins and what is said of it; the end behind them.
        for word in [0x40_u32, 20, 0x90, 28, 0xc0, 0x40, 0, 0x90, 11] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn functions_of_go_are_known_by_its_own_table() {
        let named = |bytes: &[u8], address| {
            let mut symbols = Symbols::default();
            symbols.add_go_table(bytes, 0x9000);
            symbols.finish();
            symbols.function(address).map(|symbol| symbols.name(symbol))
        };
        let table = go_table();
        assert_eq!(named(&table, 0x40_1040).as_deref(), Some("main.count"));
        assert_eq!(named(&table, 0x40_108f).as_deref(), Some("main.count"));
        let last = named(&table, 0x40_10bf);
        assert_eq!(last.as_deref(), Some("runtime.mallocgc"));
        assert_eq!(named(&table, 0x40_10c0), None);
        assert_eq!(named(&table, 0x40_103f), None);
        // Cut anywhere, and with any number of functions, it is only less.
        for length in 0..table.len() {
            named(&table[..length], 0x40_1040);
        }
        let mut endless = table;
        endless[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(named(&endless, 0x40_1040).as_deref(), Some("main.count"));
    }

    #[test]
    fn a_symbol_covers_its_size_and_no_more() {
        let symbols = [symbol(0x100, 0x10), symbol(0x200, 0x10)];
        assert_eq!(covering(&symbols, 0x10f).map(|s| s.address), Some(0x100));
        assert!(covering(&symbols, 0x110).is_none());
        assert!(covering(&symbols, 0xff).is_none());
        // A label covers what is behind it up to the next symbol.
        let symbols = [symbol(0x100, 0), symbol(0x200, 0x10)];
        assert_eq!(covering(&symbols, 0x1ff).map(|s| s.address), Some(0x100));
        assert!(covering(&symbols, 0x210).is_none());
    }

    #[test]
    fn a_variable_inside_a_larger_one_does_not_hide_it() {
        let symbols = [symbol(0x100, 0x100), symbol(0x110, 8)];
        assert_eq!(covering(&symbols, 0x114).map(|s| s.address), Some(0x110));
        assert_eq!(covering(&symbols, 0x120).map(|s| s.address), Some(0x100));
    }
}
