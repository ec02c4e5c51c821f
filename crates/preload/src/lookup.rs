//! Finds functions in the tables that the dynamic linker made, as dlsym would, which may allocate.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null;

/// A definition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Where the symbol is; 0: nobody defines it.
    pub(crate) address: usize,
    /// The module that defines it: first byte and one past the last.
    pub(crate) module: (u64, u64),
}

/// Which modules are asked, in the order in which they were loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    /// The program itself.
    Program,
    /// All.
    All,
    /// Those behind this one.
    Next,
}

/// The first definition of `name` among these modules.
pub(crate) fn find(name: &CStr, among: Among) -> Found {
    let mut search = Search {
        name,
        hash: gnu_hash(name),
        among,
        asked: among != Among::Next,
        found: Found::default(),
    };
    // SAFETY: the function gets what is given here, which lives through the call. It takes a lock of the linker that its
    // thread may hold already, and allocates nothing.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.found
}

/// The address of the next definition after ours, 0 if there is none.
pub(crate) fn next(name: &CStr) -> usize {
    find(name, Among::Next).address
}

struct Search<'a> {
    name: &'a CStr,
    hash: u32,
    among: Among,
    /// Whether modules are asked from here on.
    asked: bool,
    found: Found,
}

/// Ends the iteration when it returns 1.
unsafe extern "C" fn each(module: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: what `find` and the linker give, for the call.
    let (module, search) = unsafe { (&*module, &mut *search.cast::<Search<'_>>()) };
    let (mut dynamic, mut start, mut end) = (null(), u64::MAX, 0);
    for number in 0..usize::from(module.dlpi_phnum) {
        // SAFETY: the linker's table of the module's segments.
        let segment = unsafe { &*module.dlpi_phdr.add(number) };
        let address = module.dlpi_addr.wrapping_add(segment.p_vaddr);
        match segment.p_type {
            libc::PT_DYNAMIC => dynamic = address as *const [usize; 2],
            libc::PT_LOAD => {
                start = start.min(address);
                end = end.max(address.wrapping_add(segment.p_memsz));
            }
            _ => {}
        }
    }
    let own = find as *const () as u64;
    if (start..end).contains(&own) {
        search.asked |= search.among == Among::Next;
    } else if search.asked && !dynamic.is_null() {
        // SAFETY: the module is loaded, so its tables are what they are to be.
        let address = unsafe {
            SymbolTables::of(dynamic, module.dlpi_addr as usize).find(search.name, search.hash)
        };
        if address != 0 {
            search.found = Found {
                address,
                module: (start, end),
            };
            return 1;
        }
    }
    c_int::from(search.among == Among::Program)
}

/// Of the versions of a symbol.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The one that programs are linked with.
    Default,
    /// For programs of before. A library that takes another's place has its functions like this (`libc_malloc_debug.so`).
    Old,
}

/// A module's tables of symbols; null: it has none.
struct SymbolTables {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    strings: *const u8,
    versions: *const u16,
    gnu: *const u32,
    old: *const u32,
}

impl SymbolTables {
    /// # Safety
    /// `dynamic` is the dynamic segment of a module that is loaded at `base`.
    unsafe fn of(dynamic: *const [usize; 2], base: usize) -> Self {
        const HASH: usize = 4;
        const STRINGS: usize = 5;
        const SYMBOLS: usize = 6;
        const GNU_HASH: usize = 0x6fff_fef5;
        const VERSIONS: usize = 0x6fff_fff0;
        let mut places = [0; 5];
        let mut entry = dynamic;
        loop {
            // SAFETY: the segment ends with an entry of tag 0.
            let [tag, value] = unsafe { *entry };
            let place = match tag {
                0 => break,
                SYMBOLS => 0,
                STRINGS => 1,
                VERSIONS => 2,
                GNU_HASH => 3,
                HASH => 4,
                _ => usize::MAX,
            };
            if let Some(place) = places.get_mut(place) {
                // The linker has put addresses there, but not into what the kernel maps.
                *place = if value < base { value + base } else { value };
            }
            entry = entry.wrapping_add(1);
        }
        let [symbols, strings, versions, gnu, old] = places;
        Self {
            base,
            symbols: symbols as *const _,
            strings: strings as *const _,
            versions: versions as *const _,
            gnu: gnu as *const _,
            old: old as *const _,
        }
    }

    /// The address of what is defined under a name, 0 if there is nothing.
    ///
    /// # Safety
    /// They are those of a loaded module.
    unsafe fn find(&self, name: &CStr, hash: u32) -> usize {
        if self.symbols.is_null() || self.strings.is_null() {
            return 0;
        }
        // SAFETY: the module's tables are whole: the linker uses them like this.
        unsafe {
            if !self.gnu.is_null() {
                self.by_gnu_hash(name, hash)
            } else if !self.old.is_null() {
                self.by_old_hash(name)
            } else {
                0
            }
        }
    }

    /// # Safety
    /// As for [`SymbolTables::find`].
    unsafe fn by_gnu_hash(&self, name: &CStr, hash: u32) -> usize {
        // SAFETY: the table is: four numbers, words of a filter, buckets, and a hash for each symbol from the first
        // hashed one on, whose lowest bit ends a bucket.
        unsafe {
            let [buckets, first, filter, _] = *self.gnu.cast::<[u32; 4]>();
            let table = self.gnu.add(4 + filter as usize * 2);
            let Some(bucket) = hash.checked_rem(buckets) else {
                return 0;
            };
            let mut number = *table.add(bucket as usize);
            if number < first {
                return 0;
            }
            let chain = table.add(buckets as usize);
            let mut old = 0;
            loop {
                let found = *chain.add((number - first) as usize);
                if found | 1 == hash | 1 {
                    match self.defined(number as usize, name) {
                        Some(Version::Default) => return self.address(number as usize),
                        Some(Version::Old) if old == 0 => old = number as usize,
                        _ => {}
                    }
                }
                if found & 1 != 0 {
                    return self.address(old);
                }
                number += 1;
            }
        }
    }

    /// # Safety
    /// As for [`SymbolTables::find`].
    unsafe fn by_old_hash(&self, name: &CStr) -> usize {
        // SAFETY: the table begins with its number of buckets and that of symbols.
        unsafe {
            let symbols = 0..*self.old.add(1) as usize;
            let of = |version| {
                symbols
                    .clone()
                    .find(|&it| self.defined(it, name) == Some(version))
            };
            self.address(
                of(Version::Default)
                    .or_else(|| of(Version::Old))
                    .unwrap_or(0),
            )
        }
    }

    /// Which version a symbol is, if it is defined and of this name.
    ///
    /// # Safety
    /// As for [`SymbolTables::find`]; there is such a symbol.
    unsafe fn defined(&self, number: usize, name: &CStr) -> Option<Version> {
        const HIDDEN: u16 = 0x8000;
        // SAFETY: the caller's promise.
        let symbol = unsafe { &*self.symbols.add(number) };
        if symbol.st_shndx == 0 || symbol.st_value == 0 {
            return None;
        }
        // SAFETY: names of symbols are strings of the module's table.
        let its = unsafe { self.strings.add(symbol.st_name as usize) };
        for (place, &byte) in name.to_bytes_with_nul().iter().enumerate() {
            // SAFETY: up to the string's NUL, which is the first byte that differs or the last.
            if unsafe { *its.add(place) } != byte {
                return None;
            }
        }
        // SAFETY: a version for each symbol, if there are versions.
        let is_old =
            !self.versions.is_null() && unsafe { *self.versions.add(number) } & HIDDEN != 0;
        Some(match is_old {
            true => Version::Old,
            false => Version::Default,
        })
    }

    /// The address of a symbol that is defined; 0 of the first, which is none.
    ///
    /// # Safety
    /// As for [`SymbolTables::defined`].
    unsafe fn address(&self, number: usize) -> usize {
        const RESOLVED: u8 = 10;
        if number == 0 {
            return 0;
        }
        // SAFETY: the caller's promise.
        let symbol = unsafe { &*self.symbols.add(number) };
        let address = self.base.wrapping_add(symbol.st_value as usize);
        if symbol.st_info & 15 == RESOLVED {
            // SAFETY: the symbol is a function that says which one to call.
            return unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address)() };
        }
        address
    }
}

/// The hash of a name in a table of GNU's.
fn gnu_hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

/// Whether calls of `malloc` go to the program itself and not here.
pub(crate) fn has_own_malloc() -> bool {
    find(c"malloc", Among::Program).address != 0
}
