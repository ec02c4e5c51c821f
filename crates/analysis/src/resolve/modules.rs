//! One module: a mapped file with its symbols and its debug info, wherever that is.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use addr2line::{LookupContinuation as _, LookupResult};
use linewise_recording::{Map, Pid};

use super::bytes::Bytes;
use super::demangle::{cut, demangle};
use super::dwarf::Debug;
use super::elf::{Elf, Segment};
use super::files::{Files, Store};
use super::split::{Places, sibling};
use super::symbols::{Symbol, Symbols};
use super::typer::cache::Cache;
use super::typer::frames::Frames;
use super::variables::Variables;
use super::weight::Scale;

/// Inlining deeper than this is cut.
const MOST_FRAMES: usize = 64;
/// Ranges of the code of one unit that are read, at most.
const MOST_UNIT_RANGES: usize = 65_536;
/// Ranges of the code of all units without content that are read, at most.
const MOST_MISSING_RANGES: usize = 1_000_000;
/// Pages are at least this large: file offsets of mappings are rounded down to it.
const PAGE: u64 = 4096;

/// What is said of a file that is another one than was recorded, behind its path.
const REPLACED: &str =
    " was rebuilt or replaced since it was recorded; record again with the new file";

/// Why nothing in a file has a name that is another one than was recorded.
pub(crate) fn reason_of_a_replaced_file(path: &str) -> String {
    format!("{path}{REPLACED}")
}

/// The file of which a frame's reason says that it is another one than was recorded.
pub(crate) fn replaced_file(reason: &str) -> Option<&str> {
    reason.strip_suffix(REPLACED)
}

/// Why the debug info or the symbols of a module were left aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooLarge {
    /// The debug info has so many bytes.
    DebugInfo(u64),
    /// The debug info would take too much when it is taken apart.
    Unfolded,
    /// The symbols have so many bytes.
    Symbols(u64),
}

/// Why a module has no debug info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// There is debug info.
    Nothing,
    /// The file could not be opened or is no ELF file.
    File,
    /// The file is another one than was recorded.
    Replaced,
    /// Neither the file nor a separate one has debug info.
    DebugInfo,
}

/// One source-level frame of an address in a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceFrame {
    /// Demangled; empty if unknown.
    pub(super) function: String,
    /// As the debug info has it; empty if unknown.
    pub(super) file: String,
    /// Zero if unknown.
    pub(super) line: u32,
}

/// A mapped file.
pub(super) struct Module<'a> {
    /// Its path as mapped.
    pub(super) path: String,
    elf: Option<Elf>,
    debug_elf: Option<Elf>,
    supplementary: Option<Elf>,
    missing: Missing,
    /// What of it there was no room for.
    too_large: Cell<Option<TooLarge>>,
    files: &'a dyn Files,
    pid: Pid,
    debug_path: Option<String>,
    /// The file with entries that dwz moved, if it is named and cannot be had.
    no_supplementary: Option<String>,
    store: &'a Store,
    symbols: OnceCell<Symbols>,
    unwinding: OnceCell<Option<Frames<'a>>>,
    linked: OnceCell<HashMap<u64, u64>>,
    debug: OnceCell<Option<DebugInfo<'a>>>,
    /// What to do about missing debug info.
    remedy: OnceCell<String>,
}

/// The debug info of a module with what is derived from it.
pub(super) struct DebugInfo<'a> {
    /// Units and entries.
    pub(super) debug: Debug<'a>,
    /// Static variables.
    pub(super) variables: Variables,
    /// What is kept to type accesses.
    pub(super) typer: Cache,
    lines: OnceCell<Option<addr2line::Context<Bytes<'a>>>>,
    /// The code of units whose content is in files that are not there, by address.
    missing_code: OnceCell<Vec<std::ops::Range<u64>>>,
}

impl<'a> Module<'a> {
    /// Opens the file of `map` and finds its debug info; nothing large is read before it is asked
    /// for.
    pub(super) fn open(map: &Map, files: &'a dyn Files, store: &'a Store) -> Self {
        let mut module = Self {
            path: map.path.clone(),
            elf: None,
            debug_elf: None,
            supplementary: None,
            missing: Missing::File,
            too_large: Cell::new(None),
            files,
            pid: map.pid,
            debug_path: None,
            no_supplementary: None,
            store,
            symbols: OnceCell::new(),
            unwinding: OnceCell::new(),
            linked: OnceCell::new(),
            debug: OnceCell::new(),
            remedy: OnceCell::new(),
        };
        // The kernel marks what was unlinked; a new file may have taken the place.
        let (path, deleted) = match map.path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (map.path.as_str(), false),
        };
        let Some(elf) = files.open(map.pid, path).and_then(Elf::open) else {
            return module;
        };
        let recorded = map.build_id.as_str();
        if (deleted || !recorded.is_empty()) && elf.build_id != recorded {
            module.missing = Missing::Replaced;
            return module;
        }
        module.missing = Missing::Nothing;
        if !elf.has_debug_info() {
            match separate_debug_info(map.pid, path, &elf, files) {
                Some((place, found)) => {
                    module.debug_path = Some(place);
                    module.debug_elf = Some(found);
                }
                None => module.missing = Missing::DebugInfo,
            }
        }
        let with_debug_info = module.debug_elf.as_ref().unwrap_or(&elf);
        if let Some((link, build_id)) = with_debug_info.supplementary_link() {
            let from = module.debug_path.as_deref().unwrap_or(path);
            module.supplementary = supplementary(map.pid, from, &link, &build_id, files);
            module.no_supplementary = module.supplementary.is_none().then_some(link);
        }
        module.elf = Some(elf);
        module
    }

    /// The loaded ranges of the file.
    pub(super) fn segments(&self) -> &[Segment] {
        self.elf.as_ref().map_or(&[], |elf| &elf.segments)
    }

    /// The distances between memory and the module's own address space that the mapping `map`
    /// can have: more than one only if segments share a page, or if it spans several.
    pub(super) fn biases(&self, map: &Map) -> Vec<u64> {
        let bias = |segment: &Segment| {
            let start = segment
                .address
                .wrapping_add(map.offset.wrapping_sub(segment.offset));
            map.start.0.wrapping_sub(start)
        };
        let pages = |segment: &Segment| {
            let end = segment.offset.saturating_add(segment.file_size);
            segment.offset & !(PAGE - 1)..end
        };
        // What was writable may have been made read-only since (RELRO), not the other way.
        let begins_in = |segment: &&Segment| {
            segment.executable == map.executable
                && (segment.writable || !map.writable)
                && pages(segment).contains(&map.offset)
        };
        let biases: Vec<u64> = self.segments().iter().filter(begins_in).map(bias).collect();
        if !biases.is_empty() {
            return biases;
        }
        // An emulator maps code without the right to run it, and the kernel joins what has the same
        // rights: one mapping for constants and code.
        let map_end = map
            .offset
            .saturating_add(map.end.0.saturating_sub(map.start.0));
        let spanned = |segment: &&Segment| {
            let pages = pages(segment);
            segment.writable == map.writable && pages.start < map_end && map.offset < pages.end
        };
        self.segments().iter().filter(spanned).map(bias).collect()
    }

    /// Whether its file is the one with the build id `recorded`, or may be: of some files nobody knows it.
    pub(super) fn is_of(&self, recorded: &str) -> bool {
        let elf = self.elf.as_ref();
        elf.is_some_and(|elf| recorded.is_empty() || elf.build_id == recorded)
    }

    /// Whether Go's linker made it.
    pub(super) fn is_go(&self) -> bool {
        let elf = self.elf.as_ref();
        elf.is_some_and(|elf| elf.has_section(".go.buildinfo"))
    }

    /// Whether its code is for x86-64.
    pub(super) fn is_x86(&self) -> bool {
        self.elf.as_ref().is_some_and(Elf::is_x86)
    }

    /// The `length` bytes of code at `address`, in the module's own address space.
    pub(super) fn code(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let segment = self.segments().iter().find(|segment| {
            segment.executable
                && address >= segment.address
                && address - segment.address < segment.file_size
        })?;
        let within = address - segment.address;
        let length = length.min(segment.file_size - within);
        self.elf
            .as_ref()?
            .bytes(segment.offset.checked_add(within)?, length)
    }

    /// The address that a linker has put at `address`, where nothing but the loader writes: the
    /// addresses of functions and variables that code looks up there. `None` if it is of another
    /// module.
    pub(super) fn linked(&self, address: u64) -> Option<u64> {
        self.linked
            .get_or_init(|| self.elf.as_ref().map(Elf::linked).unwrap_or_default())
            .get(&address)
            .copied()
    }

    /// Where the function begins that holds `address`, as its unwind table says: all that is known of code without symbols.
    pub(super) fn function_start(&self, address: u64) -> Option<u64> {
        self.frames()?.function_start(address)
    }

    /// Its unwind tables.
    pub(super) fn frames(&self) -> Option<&Frames<'a>> {
        self.unwinding.get_or_init(|| self.load_frames()).as_ref()
    }

    fn load_frames(&self) -> Option<Frames<'a>> {
        let elf = self.elf.as_ref()?;
        let address = |name: &str| {
            let section = elf.sections.iter().find(|section| section.name == name);
            section.map(|section| section.address)
        };
        let start = address(".eh_frame")?;
        // Its tables are listed: sixteen bytes of it make an entry of thirty.
        let size = elf.section_size(".eh_frame");
        if !self.store.reserve_other(size.saturating_mul(3)) {
            return None;
        }
        let bytes = self.store.keep(elf.section_bytes(".eh_frame")?);
        Some(Frames::new(bytes, start, address(".text").unwrap_or(0)))
    }

    /// The section that holds `address`: its name, first byte, size, and whether it is writable.
    pub(super) fn section(&self, address: u64) -> Option<(&str, u64, u64, bool)> {
        let elf = self.elf.as_ref()?;
        let section = elf.sections.iter().find(|section| {
            section.loaded && address >= section.address && address - section.address < section.size
        })?;
        Some((
            &section.name,
            section.address,
            section.size,
            section.writable,
        ))
    }

    /// Its ELF symbols.
    pub(super) fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| {
            let mut symbols = Symbols::default();
            if let Some(elf) = &self.elf {
                let full = if elf.has_section(".symtab") {
                    Some(elf)
                } else {
                    self.debug_elf.as_ref()
                };
                if let Some(full) = full {
                    self.add_symbols(&mut symbols, full, (".symtab", ".strtab"));
                }
                if !full.is_some_and(|full| full.has_section(".symtab")) {
                    self.add_symbols(&mut symbols, elf, (".dynsym", ".dynstr"));
                    if let Err(bytes) = symbols.add_go(elf, self.store) {
                        self.too_large.set(Some(TooLarge::Symbols(bytes)));
                    }
                }
            }
            symbols.finish();
            symbols
        })
    }

    fn add_symbols(&self, symbols: &mut Symbols, elf: &Elf, table: (&str, &str)) {
        if let Err(bytes) = symbols.add(elf, table, self.store) {
            // Debug info that is left aside says more.
            let reason = self.too_large.get().unwrap_or(TooLarge::Symbols(bytes));
            self.too_large.set(Some(reason));
        }
    }

    /// Bytes of its debug info; `None` where that is in further files, which were not looked for.
    pub(super) fn debug_size(&self) -> Option<u64> {
        if self.missing != Missing::Nothing {
            return Some(0);
        }
        let Some(elf) = self.debug_elf.as_ref().or(self.elf.as_ref()) else {
            return Some(0);
        };
        // Split debug info refers to the addresses there.
        (!elf.has_section(".debug_addr")).then(|| Debug::size(elf, self.supplementary.as_ref()))
    }

    /// Its debug info, read on the first call.
    pub(super) fn debug(&self) -> Option<&DebugInfo<'a>> {
        self.debug.get_or_init(|| self.load()).as_ref()
    }

    fn load(&self) -> Option<DebugInfo<'a>> {
        if self.missing != Missing::Nothing {
            return None;
        }
        let elf = self.debug_elf.as_ref().or(self.elf.as_ref())?;
        let supplementary = self.supplementary.as_ref();
        let size = Debug::size(elf, supplementary);
        if !self.store.reserve(size) {
            self.too_large.set(Some(TooLarge::DebugInfo(size)));
            return None;
        }
        let places = Places {
            files: self.files,
            pid: self.pid,
            path: self.path.clone(),
            debug_path: self.debug_path.clone(),
            build_id: self.elf.as_ref()?.build_id.clone(),
        };
        let files = [Some(elf), supplementary];
        let bytes = files.into_iter().flatten().map(Elf::file_size).sum();
        let scale = Scale::new(self.store, bytes);
        let loaded = Debug::load(elf, supplementary, &places, self.store, &scale)
            .and_then(|debug| Some((Variables::index(&debug, &scale)?, debug)));
        let Some((variables, debug)) = loaded else {
            self.too_large.set(Some(TooLarge::Unfolded));
            return None;
        };
        Some(DebugInfo {
            debug,
            variables,
            typer: Cache::default(),
            lines: OnceCell::new(),
            missing_code: OnceCell::new(),
        })
    }

    /// The frames of the code at `address`, innermost first; empty if nothing is known.
    pub(super) fn places(&self, address: u64) -> Vec<SourceFrame> {
        let mut places = self
            .debug()
            .and_then(|debug| debug.places(address))
            .unwrap_or_default();
        let nameless = places.last().is_none_or(|place| place.function.is_empty());
        // A label without a size is of its own function, not of the one behind it.
        let is_of_another = |symbol: &Symbol| {
            symbol.size == 0
                && (self.function_start(address)).is_some_and(|start| symbol.address < start)
        };
        if nameless
            && let Some(symbol) = self.symbols().function(address)
            && !is_of_another(symbol)
        {
            let function = self.symbols().name(symbol);
            match places.last_mut() {
                Some(place) => place.function = function,
                None => places.push(SourceFrame {
                    function,
                    ..SourceFrame::default()
                }),
            }
        }
        places
    }

    /// Why the function or the line of an address in this module is not known, and what to do.
    pub(super) fn reason(&self) -> String {
        let path = &self.path;
        if let Some(what) = self.too_large.get() {
            let remedy = "build with -g1 or without -g what is not of interest";
            return match what {
                TooLarge::DebugInfo(bytes) => format!(
                    "the debug info of {path} is too large: {} MB, beside what was read before; {remedy}",
                    bytes / 1_000_000
                ),
                TooLarge::Unfolded => format!(
                    "the debug info of {path} is too large: its lines, functions and variables would take more memory than there is for them; {remedy}"
                ),
                TooLarge::Symbols(bytes) => format!(
                    "the symbols of {path} are too large: {} MB, beside what was read before",
                    bytes / 1_000_000
                ),
            };
        }
        match self.missing {
            Missing::File if path == "[vdso]" => {
                "the kernel's vdso could not be read; what runs there is a clock reading".to_owned()
            }
            Missing::File => {
                format!(
                    "{path} could not be read as a program or library; it may be gone or unreadable to this user"
                )
            }
            Missing::Replaced => reason_of_a_replaced_file(path),
            Missing::DebugInfo if path == "[vdso]" => {
                "the kernel's vdso comes without debug info".to_owned()
            }
            Missing::DebugInfo => {
                let remedy = self.remedy.get_or_init(|| remedy(path, Path::new(DPKG)));
                format!("no debug info in {path}; {remedy}")
            }
            Missing::Nothing => {
                let split = self
                    .debug()
                    .and_then(|info| info.debug.missing().reason(path));
                let moved = self.no_supplementary.as_ref().map(|link| {
                    format!(
                        "a part of the debug info of {path} is in {link}, which cannot be read or is of another build; install the package that has it (the same -dbgsym or -debuginfo package mostly)"
                    )
                });
                split.or(moved).unwrap_or_else(|| format!(
                    "the debug info of {path} does not cover this code; it is assembly, or its part was built without -g"
                ))
            }
        }
    }

    /// Why what is known of the code at `address` is not all: the file with its types, variables and
    /// inlined functions is missing. `None` if it is there.
    pub(super) fn lack(&self, address: u64) -> Option<String> {
        let info = self.debug()?;
        let lacks = info.missing_code.get_or_init(|| {
            let units = &info.debug.missing().units;
            let mut code: Vec<_> = units
                .iter()
                .flat_map(|unit| info.debug.unit_ranges(*unit, MOST_UNIT_RANGES))
                .take(MOST_MISSING_RANGES)
                .collect();
            code.sort_by_key(|range| range.start);
            code
        });
        let after = lacks.partition_point(|range| range.start <= address);
        let near = lacks.get(after.checked_sub(1)?)?;
        near.contains(&address).then(|| self.reason())
    }
}

impl<'a> DebugInfo<'a> {
    fn lines(&self) -> Option<&addr2line::Context<Bytes<'a>>> {
        self.lines
            .get_or_init(|| {
                if !self.variables.walkable {
                    return None;
                }
                addr2line::Context::from_arc_dwarf(self.debug.dwarf()).ok()
            })
            .as_ref()
    }

    fn places(&self, address: u64) -> Option<Vec<SourceFrame>> {
        let mut lookup = self.lines()?.find_frames(address);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.debug.split_dwarf(load.dwo_id));
                }
            }
        };
        let mut places = Vec::new();
        while places.len() < MOST_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            let function = frame
                .function
                .as_ref()
                .and_then(|function| function.raw_name().ok())
                .map_or_else(String::new, |name| demangle(&name));
            let (file, line) = match frame.location {
                Some(location) => (location.file.unwrap_or(""), location.line.unwrap_or(0)),
                None => ("", 0),
            };
            places.push(SourceFrame {
                function,
                file: cut(file.as_bytes()),
                line,
            });
        }
        Some(places)
    }
}

/// The file with the debug info of `elf`, which is at `path` and has none itself, and where it is.
fn separate_debug_info(
    pid: Pid,
    path: &str,
    elf: &Elf,
    files: &dyn Files,
) -> Option<(String, Elf)> {
    let open = |path: &str| {
        files
            .open(pid, path)
            .and_then(Elf::open)
            .filter(Elf::has_debug_info)
    };
    if let Some((first, rest)) = elf.build_id.split_at_checked(2)
        && let place = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")
        && let Some(found) = open(&place)
        && found.build_id == elf.build_id
    {
        return Some((place, found));
    }
    let (name, checksum) = elf.debug_link()?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let places = [
        sibling(path, &name),
        sibling(path, &format!(".debug/{name}")),
        format!("/usr/lib/debug{}", sibling(path, &name)),
    ];
    places
        .into_iter()
        .filter(|place| place != path)
        .find_map(|place| {
            let found = open(&place).filter(|found| {
                // The build id proves that both are of one build; the checksum reads the whole file.
                if elf.build_id.is_empty() {
                    found.checksum() == Some(checksum)
                } else {
                    found.build_id == elf.build_id
                }
            })?;
            Some((place, found))
        })
}

/// The file that dwz moved entries to: `link` as the file at `from` names it, or where packages put it
/// by its build id (hexadecimal digits; empty if the link says none).
fn supplementary(
    pid: Pid,
    from: &str,
    link: &str,
    build_id: &str,
    files: &dyn Files,
) -> Option<Elf> {
    let named = if link.starts_with('/') {
        link.to_owned()
    } else {
        sibling(from, link)
    };
    let by_id = build_id
        .split_at_checked(2)
        .map(|(first, rest)| format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    [Some(named), by_id].into_iter().flatten().find_map(|path| {
        let elf = files.open(pid, &path).and_then(Elf::open)?;
        (build_id.is_empty() || elf.build_id.is_empty() || elf.build_id == build_id).then_some(elf)
    })
}

/// Where Debian's package manager lists the files of each package.
const DPKG: &str = "/var/lib/dpkg/info";
/// Bytes of such a list, at most.
const LARGEST_LIST: u64 = 64 << 20;

/// What to do about a file without debug info; `dpkg` has a list of files for each package, if there is such a folder.
fn remedy(path: &str, dpkg: &Path) -> String {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    let libc = [
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
        "libm",
        "libpthread",
        "librt",
        "libdl",
    ];
    if libc.contains(&stem) && name.contains(".so") {
        return "install its debug package (libc6-dbg on Debian and Ubuntu)".to_owned();
    }
    let packaged = [
        "/usr/lib/",
        "/usr/bin/",
        "/usr/sbin/",
        "/lib/",
        "/lib64/",
        "/bin/",
        "/sbin/",
    ];
    if packaged.iter().any(|folder| path.starts_with(folder)) {
        if let Some(package) = package_of(path, dpkg) {
            return format!("install {package}-dbgsym (or -dbg), or build it with -g");
        }
        return format!(
            "install the -dbgsym (or -dbg) package of the package that `dpkg -S {name}` names, or build it with -g"
        );
    }
    "build it with -g and do not strip it".to_owned()
}

/// The Debian package that a file is from. Packages may call `/usr/lib` `/lib`, which is a link to it.
fn package_of(path: &str, dpkg: &Path) -> Option<String> {
    let bare = path.strip_prefix("/usr").unwrap_or(path);
    let line = format!("{bare}\n");
    let lists = fs::read_dir(dpkg).ok()?;
    for list in lists.flatten() {
        let name = list.file_name().into_string().unwrap_or_default();
        let Some(package) = name.strip_suffix(".list") else {
            continue;
        };
        let listed = linewise_foreign::read(&list.path(), LARGEST_LIST).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        let is_it = |at: usize| {
            let before = &listed[..at];
            let before = before.strip_suffix("/usr").unwrap_or(before);
            before.is_empty() || before.ends_with('\n')
        };
        if listed.match_indices(&line).any(|(at, _)| is_it(at)) {
            // `zlib1g:amd64.list`
            let package = package.split(':').next().unwrap_or(package);
            return Some(package.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_package_where_it_is_known() {
        let dpkg = tempfile::tempdir().unwrap();
        let write = |name, files| fs::write(dpkg.path().join(name), files).unwrap();
        write("zstd.list", "/.\n/usr/bin/zstd\n/usr/bin/zstdmt\n");
        write("libz:amd64.list", "/lib/x86/libz.so.1\n/srv/usr/bin/gone\n");
        write("zstd.md5sums", "/usr/bin/gone\n");
        let remedy = |path| remedy(path, dpkg.path());
        assert!(remedy("/usr/lib/x86_64-linux-gnu/libc.so.6").contains("libc6-dbg"));
        assert!(remedy("/usr/lib/libssl.so.3").contains("dpkg -S libssl.so.3"));
        assert!(remedy("/usr/bin/zstd").starts_with("install zstd-dbgsym"));
        assert!(remedy("/usr/lib/x86/libz.so.1").starts_with("install libz-dbgsym"));
        assert!(remedy("/usr/bin/gone").contains("dpkg -S gone"));
        assert!(remedy("/opt/app/server").contains("-g"));
        assert_eq!(package_of("/bin/sh", Path::new("/no/such/folder")), None);
    }
}
