//! Split debug info: what a compiler put into files of its own, so that the linker need not copy it
//! (`-gsplit-dwarf` of gcc and clang, `-Csplit-debuginfo` of rustc).
//!
//! ```text
//!  program: skeleton units ──(folder of the compiler, name, number)──► NAME.dwo: one unit each
//!           addresses, lines                                        └► PROGRAM.dwp: all of them
//! ```
//!
//! A skeleton has the code, the addresses and the lines; the split unit has functions, variables and
//! types, and both are joined by a 64-bit number. DWARF 5 calls them so; before it, gcc and clang
//! wrote the same with attributes of their own.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Known;
use std::sync::Arc;

use gimli::{DwarfFileType, DwarfPackage, DwoId, EndianSlice, LittleEndian, SectionId, UnitHeader};
use linewise_recording::Pid;

use super::bytes::Bytes;
use super::elf::Elf;
use super::files::{Files, Store};
use super::weight::{Scale, weighed};

/// Files of one program that are looked for, at most.
const MOST_FILES: usize = 100_000;
/// Units of all files of one program that are read, at most: what a hostile package says may overlap.
const MOST_UNITS: usize = 1_000_000;
/// A row of a package's index takes at least so many bytes: the number of the unit, and that of the row.
const BYTES_OF_ROW: usize = 12;

/// The sections of split files.
const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
    SectionId::DebugTypes,
];

/// Where the files of a module are looked for.
pub(super) struct Places<'a> {
    /// Opens them.
    pub(super) files: &'a dyn Files,
    /// The process that they are looked for in.
    pub(super) pid: Pid,
    /// The module itself.
    pub(super) path: String,
    /// The file with its debug info, if that is another one.
    pub(super) debug_path: Option<String>,
    /// The module's build id in hexadecimal digits, empty if it has none.
    pub(super) build_id: String,
}

/// A unit of the program whose content is elsewhere.
pub(super) struct Skeleton {
    /// Its number in the program.
    pub(super) unit: u32,
    /// What joins it with its content.
    pub(super) id: DwoId,
    /// The file, as the compiler called it.
    pub(super) name: String,
    /// Where the compiler ran; empty if unknown.
    pub(super) folder: String,
}

/// Sections that belong together: those of a file, or of one unit of a package.
pub(super) struct Part<'a> {
    /// The sections.
    pub(super) dwarf: Arc<gimli::Dwarf<Bytes<'a>>>,
    /// Units of `.debug_info`, then those of `.debug_types`.
    pub(super) units: Vec<UnitHeader<Bytes<'a>>>,
    /// How many of them are of `.debug_info`.
    pub(super) infos: usize,
    source: Source<'a>,
}

/// What the sections of a part are made from.
enum Source<'a> {
    File(Vec<(SectionId, Bytes<'a>)>),
    Package,
}

/// Why the content of a skeleton is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    NotThere,
    OtherBuild,
    TooLarge,
}

/// What is missing of the split debug info of a program.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Skeletons whose content was not found, by their numbers.
    pub(super) units: Vec<u32>,
    /// The first of them: the file as the compiler called it, and why it was not taken.
    first: Option<(String, Vec<String>, Cause)>,
    skeletons: usize,
}

impl Missing {
    /// What is missing of `path`, where it was looked for, and what to do.
    pub(super) fn reason(&self, path: &str) -> Option<String> {
        let (name, looked, cause) = self.first.as_ref()?;
        let (missing, all) = (self.units.len(), self.skeletons);
        let looked = looked.join(", ");
        Some(match cause {
            Cause::NotThere => format!(
                "the debug info of {path} is in .dwo files, and {missing} of {all} are missing, the first {name} (looked for as {looked}); keep the folder that it was built in, put the .dwo files beside it, or pack them there with `dwp -e {path}`"
            ),
            Cause::OtherBuild => format!(
                "the debug info of {path} is in .dwo files, and {missing} of {all} are missing, the first {name}: the file found ({looked}) is of another build; build again and record the new program"
            ),
            Cause::TooLarge => format!(
                "the debug info of {path} is in .dwo files, and {missing} of {all} were left out, the first {name} ({looked}): too much beside what was read before; build with -g1 or without -g what is not of interest"
            ),
        })
    }
}

/// What was found of the split debug info of a program.
#[derive(Default)]
pub(super) struct Found<'a> {
    /// The sections.
    pub(super) parts: Vec<Part<'a>>,
    /// Of each skeleton that was found: its number, and part and unit of its content.
    pub(super) joined: Vec<(u32, usize, usize)>,
    /// What was not found.
    pub(super) missing: Missing,
}

/// Reads the split debug info of `skeletons`, whose program has the sections `parent`.
pub(super) fn load<'a>(
    skeletons: &[Skeleton],
    parent: &gimli::Dwarf<Bytes<'a>>,
    places: &Places<'_>,
    store: &'a Store,
    scale: &Scale<'_>,
) -> Found<'a> {
    let mut found = Found::default();
    if skeletons.is_empty() {
        return found;
    }
    found.missing.skeletons = skeletons.len();
    let package = Package::open(places, store, scale);
    if let Some(package) = &package {
        package.add_types(parent, (store, scale), &mut found.parts);
    }
    let mut most = room(&found.parts);
    // Which part and unit has the content with this number, of the files read so far.
    let mut known: HashMap<DwoId, (usize, usize)> = HashMap::new();
    let mut read: HashMap<String, (Vec<String>, Cause)> = HashMap::new();
    for skeleton in skeletons {
        if let Some(package) = &package
            && let Known::Vacant(entry) = known.entry(skeleton.id)
            && let Some((part, unit)) = package.part(skeleton.id, parent, scale, most)
            && store.reserve(part.weight())
        {
            entry.insert((found.parts.len(), unit));
            most -= part.units.len();
            found.parts.push(part);
        }
        if let Some((part, unit)) = known.get(&skeleton.id) {
            found.joined.push((skeleton.unit, *part, *unit));
            continue;
        }
        let key = format!("{}/{}", skeleton.folder, skeleton.name);
        let room = read.len() < MOST_FILES;
        if let Known::Vacant(entry) = read.entry(key)
            && room
        {
            entry.insert(read_file(
                skeleton,
                parent,
                places,
                (store, scale),
                &mut found.parts,
                &mut known,
                &mut most,
            ));
        }
        if let Some((part, unit)) = known.get(&skeleton.id) {
            found.joined.push((skeleton.unit, *part, *unit));
            continue;
        }
        if found.missing.first.is_none() {
            let key = format!("{}/{}", skeleton.folder, skeleton.name);
            found.missing.first = read
                .get(&key)
                .map(|(looked, cause)| (skeleton.name.clone(), looked.clone(), *cause));
        }
        found.missing.units.push(skeleton.unit);
    }
    found
}

/// Reads the file of `skeleton`, notes its units in `known`, and says where it was looked for and
/// what it is if the skeleton's content is not in it.
fn read_file<'a>(
    skeleton: &Skeleton,
    parent: &gimli::Dwarf<Bytes<'a>>,
    places: &Places<'_>,
    (store, scale): (&'a Store, &Scale<'_>),
    parts: &mut Vec<Part<'a>>,
    known: &mut HashMap<DwoId, (usize, usize)>,
    most: &mut usize,
) -> (Vec<String>, Cause) {
    let mut looked = Vec::new();
    let mut answer = Cause::NotThere;
    for path in candidates(skeleton, places) {
        looked.push(path.clone());
        let Some(elf) = open(places, &path) else {
            continue;
        };
        if !store.reserve(size(&elf)) {
            return (vec![path], Cause::TooLarge);
        }
        scale.allow(elf.file_size());
        let source = sections(&elf, store);
        let dwarf = of_file(&source, None, parent);
        let Some(part) = Part::new(dwarf, Source::File(source), scale, *most) else {
            return (vec![path], Cause::TooLarge);
        };
        let mut right = false;
        for (number, id) in part.ids() {
            right |= id == skeleton.id;
            known.entry(id).or_insert((parts.len(), number));
        }
        if right {
            *most -= part.units.len();
            parts.push(part);
            return (vec![path], Cause::OtherBuild);
        }
        // Not the one: what it holds is of other programs.
        known.retain(|_, (part, _)| *part != parts.len());
        looked = vec![path];
        answer = Cause::OtherBuild;
    }
    (looked, answer)
}

/// Where the content of `skeleton` may be, the likeliest first: where the compiler put it, then
/// beside the program, where it may have been moved with it.
fn candidates(skeleton: &Skeleton, places: &Places<'_>) -> Vec<String> {
    let name = &skeleton.name;
    let bare = name.rsplit_once('/').map_or(&**name, |(_, bare)| bare);
    let mut paths = Vec::new();
    if name.starts_with('/') {
        paths.push(name.clone());
    } else if skeleton.folder.starts_with('/') {
        paths.push(format!("{}/{name}", skeleton.folder));
    }
    let programs = [Some(&places.path), places.debug_path.as_ref()];
    for program in programs.into_iter().flatten() {
        if !name.starts_with('/') {
            paths.push(sibling(program, name));
        }
        paths.push(sibling(program, bare));
    }
    unique(paths)
}

fn unique(paths: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for path in paths {
        if !kept.contains(&path) {
            kept.push(path);
        }
    }
    kept
}

/// `name` in the folder of `path`.
pub(super) fn sibling(path: &str, name: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{name}")
}

fn open(places: &Places<'_>, path: &str) -> Option<Elf> {
    places
        .files
        .open(places.pid, path)
        .and_then(Elf::open)
        .filter(|elf| elf.has_section(".debug_info.dwo") || elf.has_section(".zdebug_info.dwo"))
}

/// Bytes of the sections that [`sections`] would read.
fn size(elf: &Elf) -> u64 {
    SECTIONS
        .iter()
        .filter_map(|id| id.dwo_name())
        .map(|name| elf.joined_size(name))
        .fold(0, u64::saturating_add)
}

/// The sections of a split file, decompressed, kept in `store`.
fn sections<'a>(elf: &Elf, store: &'a Store) -> Vec<(SectionId, Bytes<'a>)> {
    SECTIONS
        .iter()
        .filter_map(|id| {
            let bytes = store.keep(elf.joined_sections(id.dwo_name()?)?);
            Some((*id, EndianSlice::new(bytes, LittleEndian)))
        })
        .collect()
}

fn section<'a>(source: &[(SectionId, Bytes<'a>)], id: SectionId) -> Bytes<'a> {
    source
        .iter()
        .find(|(found, _)| *found == id)
        .map_or(EndianSlice::new(&[], LittleEndian), |(_, bytes)| *bytes)
}

/// The sections of a .dwo file with those that it shares with its program. With `from`, units begin
/// at that offset of its .debug_info.
fn of_file<'a>(
    source: &[(SectionId, Bytes<'a>)],
    from: Option<usize>,
    parent: &gimli::Dwarf<Bytes<'a>>,
) -> gimli::Dwarf<Bytes<'a>> {
    let load = |id: SectionId| -> Result<Bytes<'a>, std::convert::Infallible> {
        let bytes = section(source, id);
        Ok(match from {
            Some(from) if id == SectionId::DebugInfo => {
                let rest = bytes.slice().get(from..).unwrap_or_default();
                EndianSlice::new(rest, LittleEndian)
            }
            _ => bytes,
        })
    };
    let Ok(mut dwarf) = gimli::Dwarf::load(load);
    dwarf.make_dwo(parent);
    dwarf
}

impl<'a> Part<'a> {
    /// The first `most` units of `dwarf`; `None` if they are too heavy for `scale`.
    fn new(
        dwarf: gimli::Dwarf<Bytes<'a>>,
        source: Source<'a>,
        scale: &Scale<'_>,
        most: usize,
    ) -> Option<Self> {
        let dwarf = weighed(dwarf, scale)?;
        let mut units = Vec::new();
        let mut infos = dwarf.units();
        while units.len() < most
            && let Ok(Some(header)) = infos.next()
        {
            units.push(header);
        }
        let infos = units.len();
        let mut types = dwarf.type_units();
        while units.len() < most
            && let Ok(Some(header)) = types.next()
        {
            units.push(header);
        }
        Some(Self {
            dwarf: Arc::new(dwarf),
            units,
            infos,
            source,
        })
    }

    /// About what it and its units take when they are read, in bytes.
    fn weight(&self) -> u64 {
        let unit = size_of::<gimli::Unit<Bytes<'a>>>() + size_of::<UnitHeader<Bytes<'a>>>();
        let sections = size_of::<gimli::Dwarf<Bytes<'a>>>() + size_of::<Self>();
        (sections + unit * self.units.len()) as u64
    }

    /// The units that are the content of skeletons, by number, with what joins them.
    fn ids(&self) -> impl Iterator<Item = (usize, DwoId)> + '_ {
        self.units
            .iter()
            .enumerate()
            .filter_map(|(number, header)| Some((number, split_id(&self.dwarf, *header)?)))
    }

    /// The sections such that the first unit is number `unit`: what expects one unit in a file
    /// finds it.
    pub(super) fn sections_from(
        &self,
        unit: usize,
        parent: &gimli::Dwarf<Bytes<'a>>,
    ) -> Option<Arc<gimli::Dwarf<Bytes<'a>>>> {
        let offset = self.units.get(unit)?.debug_info_offset()?.0;
        match &self.source {
            Source::File(source) if offset > 0 => {
                Some(Arc::new(of_file(source, Some(offset), parent)))
            }
            // In a package each unit has its own range of each section.
            Source::File(_) | Source::Package => (offset == 0).then(|| Arc::clone(&self.dwarf)),
        }
    }
}

/// What joins the unit of `header` with its skeleton, if it is a split one.
fn split_id<'a>(dwarf: &gimli::Dwarf<Bytes<'a>>, header: UnitHeader<Bytes<'a>>) -> Option<DwoId> {
    match header.type_() {
        gimli::UnitType::SplitCompilation(id) => Some(id),
        gimli::UnitType::Compilation if header.version() < 5 => dwarf.unit(header).ok()?.dwo_id,
        _ => None,
    }
}

/// How many units may still be read beside those of `parts`.
fn room(parts: &[Part<'_>]) -> usize {
    let read: usize = parts.iter().map(|part| part.units.len()).sum();
    MOST_UNITS.saturating_sub(read)
}

/// A package of split debug info.
struct Package<'a> {
    package: DwarfPackage<Bytes<'a>>,
    /// What its index has room for: it may say more.
    most_types: u32,
}

impl<'a> Package<'a> {
    /// Opens the package of a program, if it has one that can be read.
    fn open(places: &Places<'_>, store: &'a Store, scale: &Scale<'_>) -> Option<Self> {
        let programs = [Some(&places.path), places.debug_path.as_ref()];
        let mut paths: Vec<String> = programs
            .into_iter()
            .flatten()
            .flat_map(|path| {
                let stem = path.strip_suffix(".debug").unwrap_or(path);
                [format!("{path}.dwp"), format!("{stem}.dwp")]
            })
            .collect();
        if let Some((first, rest)) = places.build_id.split_at_checked(2) {
            let stem = format!("/usr/lib/debug/.build-id/{first}/{rest}");
            paths.push(format!("{stem}.dwp"));
            paths.push(format!("{stem}.debug.dwp"));
        }
        paths.push(format!("/usr/lib/debug{}.dwp", places.path));
        unique(paths).iter().find_map(|path| {
            let elf = open(places, path)?;
            if !store.reserve(size(&elf)) {
                return None;
            }
            scale.allow(elf.file_size());
            let source = sections(&elf, store);
            let load =
                |id: SectionId| -> Result<Bytes<'a>, gimli::Error> { Ok(section(&source, id)) };
            let empty = EndianSlice::new(&[], LittleEndian);
            let package = DwarfPackage::load(load, empty).ok()?;
            let index = section(&source, SectionId::DebugTuIndex);
            Some(Self {
                package,
                most_types: u32::try_from(index.len() / BYTES_OF_ROW).unwrap_or(u32::MAX),
            })
        })
    }

    /// The unit that is joined by `id`, and its number in its part.
    fn part(
        &self,
        id: DwoId,
        parent: &gimli::Dwarf<Bytes<'a>>,
        scale: &Scale<'_>,
        most: usize,
    ) -> Option<(Part<'a>, usize)> {
        let mut dwarf = self.package.find_cu(id, parent).ok()??;
        dwarf.file_type = DwarfFileType::Dwo;
        let part = Part::new(dwarf, Source::Package, scale, most)?;
        let unit = part.ids().find(|(_, found)| *found == id)?.0;
        Some((part, unit))
    }

    /// Adds the types that have units of their own.
    fn add_types(
        &self,
        parent: &gimli::Dwarf<Bytes<'a>>,
        (store, scale): (&Store, &Scale<'_>),
        parts: &mut Vec<Part<'a>>,
    ) {
        let mut most = room(parts);
        let rows = self.package.tu_index.unit_count().min(self.most_types);
        for row in 1..=rows {
            let Ok(dwarf) = self.package.tu_sections(row, parent) else {
                continue;
            };
            let Some(part) = Part::new(dwarf, Source::Package, scale, most) else {
                return;
            };
            if part.units.is_empty() {
                continue;
            }
            if !store.reserve(part.weight()) {
                return;
            }
            most -= part.units.len();
            parts.push(part);
        }
    }
}
