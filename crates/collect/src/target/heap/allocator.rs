//! The functions of an allocator in an ELF file, and where to probe them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};
use linewise_machine::uprobe::is_emulated;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::read::{Object, ObjectSection, ReadRef};
use object::{Endianness, elf};

use super::symbols;
use crate::kernel::Processes;
use crate::target::binary::Binary;

/// What a function does with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `malloc(size)`.
    Malloc,
    /// `calloc(count, size)`.
    Calloc,
    /// `realloc(block, size)`.
    Realloc,
    /// `reallocarray(block, count, size)`.
    Reallocarray,
    /// `aligned_alloc(alignment, size)`.
    Aligned,
    /// `posix_memalign(place, alignment, size)`.
    PosixMemalign,
    /// `valloc(size)`.
    Valloc,
    /// `operator new(size)`, and what follows the size.
    New,
    /// `free(block)`, and what follows the block.
    Free,
}

const C: &[(&str, Kind)] = &[
    ("malloc", Kind::Malloc),
    ("calloc", Kind::Calloc),
    ("realloc", Kind::Realloc),
    ("reallocarray", Kind::Reallocarray),
    ("aligned_alloc", Kind::Aligned),
    ("memalign", Kind::Aligned),
    ("posix_memalign", Kind::PosixMemalign),
    ("valloc", Kind::Valloc),
    ("pvalloc", Kind::Valloc),
    ("free", Kind::Free),
];

/// Of allocators that have operators of their own, which do not go through their malloc.
const CXX: &[(&str, Kind)] = &[
    ("_Znwm", Kind::New),
    ("_Znam", Kind::New),
    ("_ZnwmRKSt9nothrow_t", Kind::New),
    ("_ZnamRKSt9nothrow_t", Kind::New),
    ("_ZnwmSt11align_val_t", Kind::New),
    ("_ZnamSt11align_val_t", Kind::New),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", Kind::New),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", Kind::New),
    ("_ZdlPv", Kind::Free),
    ("_ZdaPv", Kind::Free),
    ("_ZdlPvm", Kind::Free),
    ("_ZdaPvm", Kind::Free),
    ("_ZdlPvRKSt9nothrow_t", Kind::Free),
    ("_ZdaPvRKSt9nothrow_t", Kind::Free),
    ("_ZdlPvSt11align_val_t", Kind::Free),
    ("_ZdaPvSt11align_val_t", Kind::Free),
    ("_ZdlPvmSt11align_val_t", Kind::Free),
    ("_ZdaPvmSt11align_val_t", Kind::Free),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", Kind::Free),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", Kind::Free),
];

/// What allocators offer beside malloc. jemalloc's are also found with one of [`PREFIXES`].
const OWN: &[(&str, Kind)] = &[
    ("mi_malloc", Kind::Malloc),
    ("mi_malloc_small", Kind::Malloc),
    ("mi_malloc_aligned", Kind::Malloc),
    ("mi_zalloc", Kind::Malloc),
    ("mi_zalloc_small", Kind::Malloc),
    ("mi_zalloc_aligned", Kind::Malloc),
    ("mi_calloc", Kind::Calloc),
    ("mi_calloc_aligned", Kind::Calloc),
    ("mi_realloc", Kind::Realloc),
    ("mi_realloc_aligned", Kind::Realloc),
    ("mi_reallocarray", Kind::Reallocarray),
    ("mi_aligned_alloc", Kind::Aligned),
    ("mi_memalign", Kind::Aligned),
    ("mi_posix_memalign", Kind::PosixMemalign),
    ("mi_new", Kind::New),
    ("mi_new_aligned", Kind::New),
    ("mi_free", Kind::Free),
    ("mi_free_size", Kind::Free),
    ("mi_free_aligned", Kind::Free),
    ("mi_free_size_aligned", Kind::Free),
    ("tc_malloc", Kind::Malloc),
    ("tc_calloc", Kind::Calloc),
    ("tc_realloc", Kind::Realloc),
    ("tc_memalign", Kind::Aligned),
    ("tc_posix_memalign", Kind::PosixMemalign),
    ("tc_new", Kind::New),
    ("tc_newarray", Kind::New),
    ("tc_free", Kind::Free),
    ("tc_free_sized", Kind::Free),
    ("tc_delete", Kind::Free),
    ("tc_deletearray", Kind::Free),
];

/// jemalloc's own functions.
const JEMALLOC: &[(&str, Kind)] = &[
    ("mallocx", Kind::Malloc),
    ("rallocx", Kind::Realloc),
    ("dallocx", Kind::Free),
    ("sdallocx", Kind::Free),
];

/// What jemalloc's functions are called with where the C library's allocator is to stay: by tikv-jemallocator, and as its
/// documentation has it.
const PREFIXES: [&str; 2] = ["_rjem_", "je_"];

/// What a function of this name does, if it is an allocator's.
fn kind_of(name: &str) -> Option<Kind> {
    let find = |tables: &[&[(&str, Kind)]], name: &str| {
        let mut functions = tables.iter().copied().flatten();
        functions.find(|it| it.0 == name).map(|it| it.1)
    };
    find(&[C, OWN, JEMALLOC], name).or_else(|| {
        let bare = PREFIXES.iter().find_map(|it| name.strip_prefix(it))?;
        find(&[C, JEMALLOC], bare)
    })
}

/// Functions by which such an allocator is known: jemalloc, tcmalloc, mimalloc.
const KNOWN: [&str; 3] = ["mallctl", "tc_malloc", "mi_malloc"];

/// A function of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) kind: Kind,
    /// Where to probe it, in bytes from the file's beginning: the arguments are still in their registers there, and
    /// the return address on top of the stack.
    pub(super) offset: u64,
    /// Whether the kernel carries out the instruction there.
    pub(super) emulated: bool,
}

/// Why there is nothing to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It cannot be read as ELF for x86-64.
    Unreadable,
    /// A Go program, whose allocator is its own.
    Go,
    /// No symbols of an allocator.
    Symbols,
}

/// The allocator of a file: at least `malloc` and `free`.
pub(super) fn functions(path: &Path) -> Result<Vec<Function>, Missing> {
    let binary = Binary::open(path).map_err(|_| Missing::Unreadable)?;
    let data = &binary;
    let file = ElfFile64::<Endianness, _>::parse(data).map_err(|_| Missing::Unreadable)?;
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, data);
    let headers = headers.map_err(|_| Missing::Unreadable)?;
    let offset_of = |address: u64| {
        let loaded = headers
            .iter()
            .filter(|it| it.p_type(endian) == elf::PT_LOAD);
        let mut holding = loaded.filter_map(|it| {
            let distance = address.checked_sub(it.p_vaddr(endian))?;
            (distance < it.p_filesz(endian)).then(|| it.p_offset(endian) + distance)
        });
        holding.next()
    };
    let mut addresses: HashMap<&str, u64> = HashMap::new();
    for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        symbols::defined(&file, table, |name, address, is_function| {
            let is_wanted = || {
                KNOWN.contains(&name)
                    || kind_of(name).is_some()
                    || CXX.iter().any(|it| it.0 == name)
            };
            if is_function && is_wanted() {
                addresses.insert(name, address);
            }
        });
    }
    let operators = match KNOWN.iter().any(|name| addresses.contains_key(name)) {
        true => CXX,
        false => &[],
    };
    let mut named: Vec<(&str, Kind, u64)> = addresses
        .iter()
        .filter_map(|(&name, &address)| {
            let operator = || operators.iter().find(|it| it.0 == name);
            let kind = kind_of(name).or_else(|| Some(operator()?.1))?;
            Some((name, kind, address))
        })
        .collect();
    // Of several names of one function always the same one.
    named.sort_unstable_by_key(|&(name, ..)| name);
    let mut found: Vec<Function> = Vec::new();
    for (_, kind, address) in named {
        let Some(begin) = offset_of(address) else {
            continue;
        };
        let code = data.read_bytes_at(begin, LOOKED_AT).unwrap_or_default();
        let (distance, emulated) = place(code);
        let offset = begin + distance;
        // One function under several names.
        if found.iter().all(|it| it.offset != offset) {
            found.push(Function {
                kind,
                offset,
                emulated,
            });
        }
    }
    let has = |kind| found.iter().any(|it| it.kind == kind);
    if has(Kind::Malloc) && has(Kind::Free) {
        return Ok(found);
    }
    let go = [".gopclntab", ".go.buildinfo"];
    match file
        .sections()
        .any(|it| it.name().is_ok_and(|name| go.contains(&name)))
    {
        true => Err(Missing::Go),
        false => Err(Missing::Symbols),
    }
}

/// Bytes of a function that are looked at.
const LOOKED_AT: u64 = 48;

/// Where in a function to probe it: the first instruction that the kernel carries out itself, if what stands before only
/// computes with other registers than the arguments', the stack's and the frame's; otherwise its beginning. And whether
/// the kernel does.
fn place(code: &[u8]) -> (u64, bool) {
    const KEPT: [Register; 5] = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RSP,
        Register::RBP,
    ];
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    for _ in 0..8 {
        let at = decoder.position();
        if is_emulated(code.get(at..).unwrap_or_default()) {
            return (at as u64, true);
        }
        if !decoder.can_decode() {
            break;
        }
        let instruction = decoder.decode();
        let writes = |access| {
            !matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            )
        };
        let used = info.info(&instruction);
        let in_the_way = used
            .used_registers()
            .iter()
            .any(|it| writes(it.access()) && KEPT.contains(&it.register().full_register()))
            || used.used_memory().iter().any(|it| writes(it.access()));
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next || in_the_way
        {
            break;
        }
    }
    (0, false)
}

/// A file with an allocator.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    pub(super) path: PathBuf,
    pub(super) functions: Vec<Function>,
}

/// The allocators of a running process: of all its programs and libraries those that have one. If one calls the other, the
/// calls lie in one another.
///
/// # Errors
/// A sentence.
pub(super) fn of_process(kernel: &impl Processes, pid: u32) -> Result<Vec<Allocator>, String> {
    let maps = (kernel.maps(pid))
        .map_err(|error| format!("the mappings of process {pid} cannot be read: {error}"))?;
    let mut paths: Vec<&str> = Vec::new();
    for map in maps.iter().filter(|map| map.executable) {
        if map.path.starts_with('/') && !paths.contains(&map.path.as_str()) {
            paths.push(&map.path);
        }
    }
    let mut found = Vec::new();
    let mut replaced = None;
    for path in &paths {
        // The loader's own, for itself.
        let name = path.rsplit('/').next().unwrap_or_default();
        if name.starts_with("ld-linux") {
            continue;
        }
        let inside = kernel.path_in(pid, path);
        if let Some(path) = path.strip_suffix(" (deleted)") {
            replaced = Some(path);
        }
        if let Ok(functions) = functions(&inside) {
            found.push(Allocator {
                path: inside,
                functions,
            });
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(path) = replaced {
        return Err(format!(
            "{path} was replaced since process {pid} loaded it: start it anew"
        ));
    }
    let program = kernel.program_of(pid);
    let shown = std::fs::read_link(&program).unwrap_or_else(|_| program.clone());
    Err(match functions(&program) {
        Err(Missing::Go) => go(&shown),
        _ => without_symbols(&shown),
    })
}

/// The allocator of a program that begins, if it has one linked into it: no library can stand in front of that, whatever
/// its functions are called. And the C library's that this process has, which the program most likely has, too.
pub(super) fn linked_in(kernel: &impl Processes, path: &Path) -> Option<Vec<Allocator>> {
    let mut found = vec![Allocator {
        path: path.to_owned(),
        functions: functions(path).ok()?,
    }];
    let here = of_process(kernel, kernel.own_pid()).unwrap_or_default();
    found.extend(here.into_iter().filter(|it| {
        let name = it.path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("libc.so")
    }));
    Some(found)
}

/// The allocator of one file.
///
/// # Errors
/// A sentence.
pub(super) fn of_file(path: &Path) -> Result<Vec<Allocator>, String> {
    match functions(path) {
        Ok(functions) => Ok(vec![Allocator {
            path: path.to_owned(),
            functions,
        }]),
        Err(Missing::Go) => Err(go(path)),
        Err(Missing::Symbols) => Err(without_symbols(path)),
        Err(Missing::Unreadable) => Err(format!("{} cannot be read as ELF", path.display())),
    }
}

fn go(path: &Path) -> String {
    format!(
        "{} is a Go program, whose allocator is not malloc",
        path.display()
    )
}

fn without_symbols(path: &Path) -> String {
    format!(
        "{} has no symbols of malloc and free: it was stripped, or has an allocator of its own; keep its symbols to have its allocator probed",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;

    #[test]
    fn a_function_is_probed_where_the_kernel_need_not_step() {
        // test rdi, rdi; je
        assert_eq!(place(&[0x48, 0x85, 0xff, 0x74, 0x10, 0x55]), (3, true));
        assert_eq!(place(&[0x55, 0x48, 0x89, 0xe5]), (0, true));
        // endbr64; push r12
        assert_eq!(place(&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54]), (4, true));
        // The argument, the stack pointer, memory are changed; the code ends; it returns.
        for code in [
            &[0x48, 0xff, 0xc7, 0x55][..],
            &[0x48, 0x83, 0xec, 0x08, 0x55],
            &[0x48, 0x89, 0x07, 0x55],
            &[0x48, 0x85, 0xff],
            &[0xc3, 0x55],
            &[],
        ] {
            assert_eq!(place(code), (0, false), "{code:x?}");
        }
    }

    #[test]
    fn functions_of_allocators_are_known_by_their_names() {
        assert_eq!(kind_of("malloc"), Some(Kind::Malloc));
        assert_eq!(kind_of("_rjem_malloc"), Some(Kind::Malloc));
        assert_eq!(kind_of("_rjem_sdallocx"), Some(Kind::Free));
        assert_eq!(kind_of("je_rallocx"), Some(Kind::Realloc));
        assert_eq!(kind_of("mi_malloc_aligned"), Some(Kind::Malloc));
        for name in ["_rjem_mi_malloc", "je_", "_rjem_mallctl", "mymalloc", ""] {
            assert_eq!(kind_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_allocator_of_this_process_is_found() {
        let found = of_process(&Machine, std::process::id()).unwrap();
        assert!(found.iter().any(|it| {
            let has = |kind| it.functions.iter().any(|function| function.kind == kind);
            has(Kind::Malloc) && has(Kind::Calloc) && has(Kind::Realloc) && has(Kind::PosixMemalign)
        }));
        // A library stands in front of the C library's.
        let program = std::env::current_exe().unwrap();
        assert!(linked_in(&Machine, &program).is_none());
        assert_eq!(
            functions(Path::new("/no/such/file")),
            Err(Missing::Unreadable)
        );
    }
}
