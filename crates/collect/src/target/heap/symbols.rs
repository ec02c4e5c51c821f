//! Symbols of a file by name.

use object::elf::{STT_FUNC, STT_GNU_IFUNC, SectionType, Sym64};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadRef};

/// Calls `each` with the name, the address and whether it is a function of each symbol that the file defines in tables of
/// this type (`SHT_SYMTAB`, `SHT_DYNSYM`). Names are read all at once: programs have a hundred thousand and more.
pub(super) fn defined<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    table: SectionType,
    mut each: impl FnMut(&'data str, u64, bool),
) {
    let (endian, data) = (file.endian(), file.data());
    let Ok(sections) = file.elf_header().sections(endian, data) else {
        return;
    };
    for section in sections.iter().filter(|it| it.sh_type(endian) == table) {
        let symbols = section.data_as_array::<Sym64<Endianness>, _>(endian, data);
        let names = sections
            .section(section.link(endian))
            .and_then(|names| names.data(endian, data));
        let (Ok(symbols), Ok(names)) = (symbols, names) else {
            continue;
        };
        for symbol in symbols.iter().filter(|it| !it.is_undefined(endian)) {
            let rest = names.get(symbol.st_name(endian) as usize..);
            let name = rest.and_then(|rest| rest.split(|&byte| byte == 0).next());
            if let Some(name) = name.and_then(|name| str::from_utf8(name).ok()) {
                let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
                each(name, symbol.st_value(endian), is_function);
            }
        }
    }
}
