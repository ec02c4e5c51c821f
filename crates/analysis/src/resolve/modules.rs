//! One module: a mapped file with its symbols and its debug info, wherever that is.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use addr2line::{LookupContinuation as _, LookupResult};
use linewise_recording::{Map, Pid};

use super::bytes::Bytes;
use super::debuginfod::NoDebugInfo;
use super::demangle::{cut, demangle};
use super::dwarf::Debug;
use super::elf::{Elf, Segment};
use super::files::{Files, Store};
use super::remedy::remedy;
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
    /// Neither the file nor a separate one that is installed has debug info.
    DebugInfo,
}

/// The files with debug info of a module beside its own.
#[derive(Default)]
struct Separate {
    /// The one that has it, and where that is; `None` if the module has it itself.
    debug: Option<(String, Elf)>,
    /// What dwz moved entries to.
    supplementary: Option<Elf>,
    /// That file, if it is named and cannot be had.
    no_supplementary: Option<String>,
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
    /// What it is called.
    pub(super) name: String,
    elf: Option<Elf>,
    installed: Separate,
    /// What debuginfod has where nothing is installed. It is asked when an address is looked up: most modules have none.
    fetched: OnceCell<Result<Separate, NoDebugInfo>>,
    missing: Missing,
    /// What of it there was no room for.
    too_large: Cell<Option<TooLarge>>,
    files: &'a dyn Files,
    pid: Pid,
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
    /// Opens the file of `map`, which is called `name`, and finds its debug info; nothing large is read before it is asked
    /// for.
    pub(super) fn open(map: &Map, name: String, files: &'a dyn Files, store: &'a Store) -> Self {
        let mut module = Self {
            path: map.path.clone(),
            name,
            elf: None,
            installed: Separate::default(),
            fetched: OnceCell::new(),
            missing: Missing::File,
            too_large: Cell::new(None),
            files,
            pid: map.pid,
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
        let mut debug = None;
        if !elf.has_debug_info() {
            debug = separate_debug_info(map.pid, path, &elf, files);
            if debug.is_none() {
                module.missing = Missing::DebugInfo;
            }
        }
        module.installed = Separate::of(debug, (path, &elf), map.pid, files);
        module.elf = Some(elf);
        module
    }

    /// The files that have its debug info, if anything has.
    fn separate(&self) -> Option<&Separate> {
        match self.missing {
            Missing::Nothing => Some(&self.installed),
            Missing::DebugInfo => self.fetched().ok(),
            Missing::File | Missing::Replaced => None,
        }
    }

    fn fetched(&self) -> Result<&Separate, NoDebugInfo> {
        let fetch = || {
            let elf = self.elf.as_ref().filter(|_| self.path != "[vdso]");
            let elf = elf.ok_or(NoDebugInfo::NotThere)?;
            let (path, file) = self.files.debug_info(&elf.build_id)?;
            let is_it = |it: &Elf| it.has_debug_info() && it.build_id == elf.build_id;
            let found = Elf::open(file).filter(is_it);
            let debug = (path, found.ok_or(NoDebugInfo::NotThere)?);
            let own = (self.path.as_str(), elf);
            Ok(Separate::of(Some(debug), own, self.pid, self.files))
        };
        let fetched = self.fetched.get_or_init(fetch);
        fetched.as_ref().map_err(|why| *why)
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
        self.bytes_of(|segment| segment.executable, address, length)
    }

    /// The `length` bytes that are loaded at `address`, code or data.
    pub(super) fn bytes(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        self.bytes_of(|_| true, address, length)
    }

    fn bytes_of(
        &self,
        wanted: impl Fn(&Segment) -> bool,
        address: u64,
        length: u64,
    ) -> Option<Vec<u8>> {
        let segment = self.segments().iter().find(|segment| {
            wanted(segment)
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
        Some(self.frames()?.function(address)?.start)
    }

    /// The code of the function that holds `address`, and where that begins, as its unwind table says.
    pub(super) fn function_code(&self, address: u64) -> Option<(u64, Vec<u8>)> {
        let range = self.frames()?.function(address)?;
        let bytes = self.code(range.start, range.end - range.start)?;
        Some((range.start, bytes))
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
                    self.separate().and_then(Separate::elf)
                };
                if let Some(full) = full {
                    self.add_symbols(&mut symbols, full, (".symtab", ".strtab"));
                }
                if !full.is_some_and(|full| full.has_section(".symtab")) {
                    self.add_symbols(&mut symbols, elf, (".dynsym", ".dynstr"));
                    if let Some(mini) = elf.mini_debug_info() {
                        self.add_symbols(&mut symbols, &mini, (".symtab", ".strtab"));
                    }
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

    /// Bytes of its debug info without what would have to be fetched; `None` where that is in further files, which were not
    /// looked for.
    pub(super) fn debug_size(&self) -> Option<u64> {
        if self.missing != Missing::Nothing {
            return Some(0);
        }
        let Some(elf) = self.installed.elf().or(self.elf.as_ref()) else {
            return Some(0);
        };
        let supplementary = self.installed.supplementary.as_ref();
        // Split debug info refers to the addresses there.
        (!elf.has_section(".debug_addr")).then(|| Debug::size(elf, supplementary))
    }

    /// Its debug info, read on the first call.
    pub(super) fn debug(&self) -> Option<&DebugInfo<'a>> {
        self.debug.get_or_init(|| self.load()).as_ref()
    }

    fn load(&self) -> Option<DebugInfo<'a>> {
        let separate = self.separate()?;
        let elf = separate.elf().or(self.elf.as_ref())?;
        let supplementary = separate.supplementary.as_ref();
        let size = Debug::size(elf, supplementary);
        if !self.store.reserve(size) {
            self.too_large.set(Some(TooLarge::DebugInfo(size)));
            return None;
        }
        let places = Places {
            files: self.files,
            pid: self.pid,
            path: self.path.clone(),
            debug_path: separate.debug.as_ref().map(|(path, _)| path.clone()),
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
            Missing::DebugInfo => match self.fetched() {
                Err(why) => {
                    let build_id = self.elf.as_ref().map_or("", |elf| &elf.build_id);
                    let remedy = self.remedy.get_or_init(|| remedy(path, build_id, why));
                    format!("no debug info in {path}; {remedy}")
                }
                Ok(separate) => self.reason_beside(separate),
            },
            Missing::Nothing => self.reason_beside(&self.installed),
        }
    }

    /// The same where there is debug info.
    fn reason_beside(&self, separate: &Separate) -> String {
        let path = &self.path;
        let split = self
            .debug()
            .and_then(|info| info.debug.missing().reason(path));
        let moved = separate.no_supplementary.as_ref().map(|link| {
            format!(
                "a part of the debug info of {path} is in {link}, which cannot be read or is of another build; install the package that has it (the same -dbgsym or -debuginfo package mostly)"
            )
        });
        split.or(moved).unwrap_or_else(|| {
            format!(
                "the debug info of {path} does not cover this code; it is assembly, or its part was built without -g"
            )
        })
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

    /// Where the unit that has the code at `address` begins in `.debug_info`; none if it is in a file of its own.
    fn unit_at(&self, address: u64) -> Option<usize> {
        let LookupResult::Output(Some(unit)) = self.lines()?.find_dwarf_and_unit(address) else {
            return None;
        };
        let offset = unit.header.debug_info_offset()?;
        unit.dwo_id.is_none().then_some(offset.0)
    }

    fn places(&self, address: u64) -> Option<Vec<SourceFrame>> {
        // No code has its end behind the last address.
        address.checked_add(1)?;
        let mut lookup = self.lines()?.find_frames(address);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.debug.split_dwarf(load.dwo_id));
                }
            }
        };
        let unit = self.unit_at(address);
        let mut places = Vec::new();
        while places.len() < MOST_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            let entry = unit.zip(frame.dw_die_offset);
            let function = entry
                .and_then(|(unit, entry)| self.debug.local_function_name(unit + entry.0))
                .or_else(|| Some(demangle(&frame.function.as_ref()?.raw_name().ok()?)))
                .unwrap_or_default();
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

impl Separate {
    /// With the file that has the debug info of the module at `path`, unless that has it itself.
    fn of(
        debug: Option<(String, Elf)>,
        (path, elf): (&str, &Elf),
        pid: Pid,
        files: &dyn Files,
    ) -> Self {
        let (from, with_it) = match &debug {
            Some((place, found)) => (place.as_str(), found),
            None => (path, elf),
        };
        let link = with_it.supplementary_link();
        let supplementary = link
            .as_ref()
            .and_then(|(link, id)| supplementary(pid, from, link, id, files));
        let no_supplementary = link
            .filter(|_| supplementary.is_none())
            .map(|(link, _)| link);
        Self {
            debug,
            supplementary,
            no_supplementary,
        }
    }

    fn elf(&self) -> Option<&Elf> {
        self.debug.as_ref().map(|(_, elf)| elf)
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
    let is_it =
        |elf: &Elf| build_id.is_empty() || elf.build_id.is_empty() || elf.build_id == build_id;
    let mut installed = [Some(named), by_id].into_iter().flatten();
    let found = installed.find_map(|path| Elf::open(files.open(pid, &path)?).filter(is_it));
    found.or_else(|| Elf::open(files.debug_info(build_id).ok()?.1).filter(is_it))
}
