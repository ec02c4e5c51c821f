//! The debug info of one module: its units, and how to get from one entry to another.
//!
//! Everything here is foreign data. Entries are addressed by (unit, offset), references are
//! followed a bounded number of times, and whatever is out of bounds is simply not there.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gimli::{
    Attribute, AttributeValue, DwAt, DwTag, DwoId, EndianSlice, LittleEndian, Section as _,
    SectionId, UnitHeader, UnitOffset, UnitType,
};

use super::bytes::Bytes;
use super::demangle::cut;
use super::elf::Elf;
use super::files::Store;
use super::scopes::Scopes;
use super::split::{self, Missing, Part, Places, Skeleton};
use super::weight::{Scale, weighed};

/// An attribute's value.
pub(super) type Value<'a> = AttributeValue<Bytes<'a>>;

/// How many references (origin, specification) lead from an entry to its name at most.
pub(super) const MOST_HOPS: usize = 8;
/// Children of one entry that are looked at, at most.
const MOST_CHILDREN: usize = 65_536;

/// The sections that functions, lines, variables and types are read from. Macros are left on disk.
const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// Where an entry is: the number of its unit and its offset therein.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryId {
    /// Index into the units of the module.
    pub(super) unit: u32,
    /// Offset in that unit.
    pub(super) offset: usize,
}

/// An entry with all its attributes.
pub(super) struct Entry<'a> {
    /// Where it is.
    pub(super) id: EntryId,
    /// What it is.
    pub(super) tag: DwTag,
    attributes: Vec<Attribute<Bytes<'a>>>,
}

impl<'a> Entry<'a> {
    /// The value of the attribute called `name`.
    pub(super) fn value(&self, name: DwAt) -> Option<Value<'a>> {
        self.attributes
            .iter()
            .find(|attribute| attribute.name() == name)
            .map(Attribute::value)
    }

    /// The same as an unsigned number.
    pub(super) fn number(&self, name: DwAt) -> Option<u64> {
        self.value(name)?.udata_value()
    }

    /// Whether the flag called `name` is set.
    pub(super) fn flag(&self, name: DwAt) -> bool {
        matches!(self.value(name), Some(AttributeValue::Flag(true)))
    }
}

/// Which section a unit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Info,
    Types,
    Supplementary,
    /// This part of the split debug info.
    Split(usize),
}

struct Slot<'a> {
    header: UnitHeader<Bytes<'a>>,
    home: Home,
    /// Of a unit in a file of its own: the number of the unit that stands for it in the program.
    skeleton: Option<u32>,
    unit: OnceCell<Option<Box<gimli::Unit<Bytes<'a>>>>>,
    scopes: OnceCell<Scopes>,
}

impl<'a> Slot<'a> {
    fn new(header: UnitHeader<Bytes<'a>>, home: Home) -> Self {
        Self {
            header,
            home,
            skeleton: None,
            unit: OnceCell::new(),
            scopes: OnceCell::new(),
        }
    }
}

/// The debug info of one module.
pub(super) struct Debug<'a> {
    dwarf: Arc<gimli::Dwarf<Bytes<'a>>>,
    slots: Vec<Slot<'a>>,
    /// Number of the first unit of each section: they are stored one section after the other.
    info_end: usize,
    types_end: usize,
    supplementary_end: usize,
    signatures: HashMap<u64, EntryId>,
    /// The split debug info, with the number of the first unit of each part.
    parts: Vec<(Part<'a>, usize)>,
    /// What is in files of their own, by what joins it with its skeleton: part and unit therein.
    joined: HashMap<DwoId, (usize, usize)>,
    /// Skeletons whose content was found, by their numbers.
    replaced: HashSet<u32>,
    missing: Missing,
    main_language: OnceCell<Option<gimli::DwLang>>,
}

impl<'a> Debug<'a> {
    /// Bytes of the sections that [`Debug::load`] would read.
    pub(super) fn size(elf: &Elf, supplementary: Option<&Elf>) -> u64 {
        [Some(elf), supplementary]
            .into_iter()
            .flatten()
            .flat_map(|elf| SECTIONS.iter().map(|id| elf.section_size(id.name())))
            .fold(0, u64::saturating_add)
    }

    /// Reads the sections of `elf` into `store` and lists the units. `supplementary` is the file
    /// that dwz moved common entries to; split debug info is looked for in `places`. `None` if that is too heavy for
    /// `scale`.
    pub(super) fn load(
        elf: &Elf,
        supplementary: Option<&Elf>,
        places: &Places<'_>,
        store: &'a Store,
        scale: &Scale<'_>,
    ) -> Option<Self> {
        let mut dwarf = weighed(sections(elf, store), scale)?;
        if let Some(elf) = supplementary {
            dwarf.set_sup(weighed(sections(elf, store), scale)?);
        }

        let mut slots = Vec::new();
        let mut infos = dwarf.units();
        while let Ok(Some(header)) = infos.next() {
            slots.push(Slot::new(header, Home::Info));
        }
        let info_end = slots.len();
        let mut types = dwarf.type_units();
        while let Ok(Some(header)) = types.next() {
            slots.push(Slot::new(header, Home::Types));
        }
        let types_end = slots.len();
        if let Some(supplementary) = dwarf.sup() {
            let mut infos = supplementary.units();
            while let Ok(Some(header)) = infos.next() {
                slots.push(Slot::new(header, Home::Supplementary));
            }
        }
        let mut debug = Self {
            supplementary_end: slots.len(),
            dwarf: Arc::new(dwarf),
            slots,
            info_end,
            types_end,
            signatures: HashMap::new(),
            parts: Vec::new(),
            joined: HashMap::new(),
            replaced: HashSet::new(),
            missing: Missing::default(),
            main_language: OnceCell::new(),
        };
        debug.add_split(places, store, scale);
        debug.index_signatures();
        Some(debug)
    }

    /// Finds what is in files of its own and adds its units behind the others.
    fn add_split(&mut self, places: &Places<'_>, store: &'a Store, scale: &Scale<'_>) {
        let skeletons = self.skeletons();
        let found = split::load(&skeletons, &self.dwarf, places, store, scale);
        for part in found.parts {
            let home = Home::Split(self.parts.len());
            let first = self.slots.len();
            let units = part.units.iter();
            self.slots
                .extend(units.map(|header| Slot::new(*header, home)));
            self.parts.push((part, first));
        }
        let ids: HashMap<u32, DwoId> = skeletons.iter().map(|it| (it.unit, it.id)).collect();
        for (skeleton, part, unit) in found.joined {
            let Some(first) = self.parts.get(part).map(|(_, first)| *first) else {
                continue;
            };
            if let Some(slot) = self.slots.get_mut(first + unit) {
                slot.skeleton = Some(skeleton);
                self.replaced.insert(skeleton);
            }
            if let Some(id) = ids.get(&skeleton) {
                self.joined.insert(*id, (part, unit));
            }
        }
        self.missing = found.missing;
    }

    /// The units whose content is in files of their own.
    fn skeletons(&self) -> Vec<Skeleton> {
        let older = !self.dwarf.debug_addr.reader().is_empty();
        let skeleton = |number: u32, slot: &Slot<'a>| {
            match slot.header.type_() {
                UnitType::Skeleton(_) => {}
                // gcc's and clang's own form, before DWARF 5: without addresses there is none.
                UnitType::Compilation if older && slot.header.version() < 5 => {}
                _ => return None,
            }
            let (unit, dwarf) = self.unit(number)?;
            let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
            let folder = unit
                .comp_dir
                .map_or_else(String::new, |folder| cut(folder.slice()));
            Some(Skeleton {
                unit: number,
                id: unit.dwo_id?,
                name: cut(name.slice()),
                folder,
            })
        };
        let slots = self.slots.iter().zip(0_u32..).take(self.info_end);
        slots
            .filter_map(|(slot, number)| skeleton(number, slot))
            .collect()
    }

    fn index_signatures(&mut self) {
        for (slot, number) in self.slots.iter().zip(0_u32..) {
            if let UnitType::Type {
                type_signature,
                type_offset,
            }
            | UnitType::SplitType {
                type_signature,
                type_offset,
            } = slot.header.type_()
            {
                self.signatures.entry(type_signature.0).or_insert(EntryId {
                    unit: number,
                    offset: type_offset.0,
                });
            }
        }
    }

    /// The sections, to be shared with addr2line.
    pub(super) fn dwarf(&self) -> Arc<gimli::Dwarf<Bytes<'a>>> {
        Arc::clone(&self.dwarf)
    }

    /// The sections of the unit that `id` joins with its skeleton, such that it is the first unit in
    /// them, to be shared with addr2line.
    pub(super) fn split_dwarf(&self, id: DwoId) -> Option<Arc<gimli::Dwarf<Bytes<'a>>>> {
        let (part, unit) = self.joined.get(&id)?;
        self.parts.get(*part)?.0.sections_from(*unit, &self.dwarf)
    }

    /// What is missing of the split debug info, and the code that it is missing for.
    pub(super) fn missing(&self) -> &Missing {
        &self.missing
    }

    /// The numbers of all units, and whether they define no variables or functions of this program:
    /// units of types, those that stand for others, and those of other programs.
    pub(super) fn units(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.slots.iter().zip(0_u32..).map(|(slot, number)| {
            let types = matches!(
                slot.header.type_(),
                UnitType::Type { .. } | UnitType::SplitType { .. }
            );
            let elsewhere = match slot.home {
                Home::Info => self.replaced.contains(&number),
                Home::Split(_) => slot.skeleton.is_none(),
                Home::Types | Home::Supplementary => true,
            };
            (number, types || elsewhere)
        })
    }

    /// The header of unit `number`, with the sections that it belongs to.
    pub(super) fn header(
        &self,
        number: u32,
    ) -> Option<(&UnitHeader<Bytes<'a>>, &gimli::Dwarf<Bytes<'a>>)> {
        let slot = self.slots.get(usize::try_from(number).ok()?)?;
        let dwarf = match slot.home {
            Home::Supplementary => self.dwarf.sup()?,
            Home::Split(part) => &self.parts.get(part)?.0.dwarf,
            Home::Info | Home::Types => &*self.dwarf,
        };
        Some((&slot.header, dwarf))
    }

    /// Unit `number`, read once and kept.
    fn unit(&self, number: u32) -> Option<(&gimli::Unit<Bytes<'a>>, &gimli::Dwarf<Bytes<'a>>)> {
        let (header, dwarf) = self.header(number)?;
        let slot = self.slots.get(usize::try_from(number).ok()?)?;
        let unit = slot.unit.get_or_init(|| {
            let mut unit = dwarf.unit(*header).ok()?;
            if let Some((skeleton, _)) = slot.skeleton.and_then(|skeleton| self.unit(skeleton)) {
                unit.copy_relocated_attributes(skeleton);
                unit.comp_dir = unit.comp_dir.or(skeleton.comp_dir);
            }
            Some(Box::new(unit))
        });
        Some((unit.as_deref()?, dwarf))
    }

    /// The namespaces, types and functions around the entry at `id`, innermost first.
    pub(super) fn scopes_around(&self, id: EntryId) -> Vec<(DwTag, EntryId)> {
        let slot = usize::try_from(id.unit)
            .ok()
            .and_then(|at| self.slots.get(at));
        let (Some(slot), Some((header, dwarf))) = (slot, self.header(id.unit)) else {
            return Vec::new();
        };
        let scopes = slot.scopes.get_or_init(|| Scopes::read(header, dwarf));
        let of_unit = |offset| EntryId { offset, ..id };
        let around = scopes.around(id.offset);
        around.map(|(tag, offset)| (tag, of_unit(offset))).collect()
    }

    /// Unit `number` as it is in the program, where it has its code and its lines: the skeleton of
    /// one that is in a file of its own.
    fn unit_in_program(
        &self,
        number: u32,
    ) -> Option<(&gimli::Unit<Bytes<'a>>, &gimli::Dwarf<Bytes<'a>>)> {
        let slot = self.slots.get(usize::try_from(number).ok()?)?;
        self.unit(slot.skeleton.unwrap_or(number))
    }

    /// The language of unit `number`; of one that dwz made and that says none, that of the program's
    /// first unit.
    pub(super) fn language(&self, number: u32) -> Option<gimli::DwLang> {
        let said = |number: u32| {
            let (unit, _) = self.unit(number)?;
            let root = self.entry(EntryId {
                unit: number,
                offset: unit.header.root_offset().0,
            })?;
            match root.value(gimli::DW_AT_language) {
                Some(AttributeValue::Language(language)) => Some(Ok(language)),
                _ => Some(Err(root.tag)),
            }
        };
        match said(number)? {
            Ok(language) => Some(language),
            Err(gimli::DW_TAG_partial_unit) => *self.main_language.get_or_init(|| {
                (0..u32::try_from(self.info_end).ok()?).find_map(|unit| match said(unit)? {
                    Ok(gimli::DW_LANG_Mips_Assembler) | Err(_) => None,
                    Ok(language) => Some(language),
                })
            }),
            Err(_) => None,
        }
    }

    /// The entry at `id`.
    pub(super) fn entry(&self, id: EntryId) -> Option<Entry<'a>> {
        let (unit, _) = self.unit(id.unit)?;
        let mut raw = unit.entries_raw(Some(UnitOffset(id.offset))).ok()?;
        let abbreviation = raw.read_abbreviation().ok()??;
        let mut attributes = Vec::new();
        raw.read_attributes(abbreviation.attributes(), &mut attributes)
            .ok()?;
        Some(Entry {
            id,
            tag: abbreviation.tag(),
            attributes,
        })
    }

    /// The direct children of the entry at `id`.
    pub(super) fn children(&self, id: EntryId) -> Vec<Entry<'a>> {
        let mut children = Vec::new();
        // A broken entry ends the list: what was read before it is still right.
        let _: Option<()> = self.collect_children(id, &mut children);
        children
    }

    fn collect_children(&self, id: EntryId, children: &mut Vec<Entry<'a>>) -> Option<()> {
        let (unit, _) = self.unit(id.unit)?;
        let mut raw = unit.entries_raw(Some(UnitOffset(id.offset))).ok()?;
        let parent = raw.read_abbreviation().ok()??;
        raw.skip_attributes(parent.attributes()).ok()?;
        if !parent.has_children() {
            return Some(());
        }
        while !raw.is_empty() && children.len() < MOST_CHILDREN {
            let depth = raw.next_depth();
            let offset = raw.next_offset().0;
            match raw.read_abbreviation().ok()? {
                None if depth <= 1 => return Some(()),
                None => {}
                Some(abbreviation) if depth == 1 => {
                    let mut attributes = Vec::new();
                    raw.read_attributes(abbreviation.attributes(), &mut attributes)
                        .ok()?;
                    children.push(Entry {
                        id: EntryId {
                            unit: id.unit,
                            offset,
                        },
                        tag: abbreviation.tag(),
                        attributes,
                    });
                }
                Some(abbreviation) => raw.skip_attributes(abbreviation.attributes()).ok()?,
            }
        }
        Some(())
    }

    /// Calls `visit` with the entry at `id` (depth 0) and all below it, in order, until it says no.
    pub(super) fn visit(&self, id: EntryId, mut visit: impl FnMut(isize, &Entry<'a>) -> bool) {
        // A broken entry ends the walk: what was read before it is still right.
        let _: Option<()> = (|| {
            let (unit, _) = self.unit(id.unit)?;
            let mut raw = unit.entries_raw(Some(UnitOffset(id.offset))).ok()?;
            let mut entry = Entry {
                id,
                tag: gimli::DW_TAG_null,
                attributes: Vec::new(),
            };
            while !raw.is_empty() {
                let depth = raw.next_depth();
                entry.id.offset = raw.next_offset().0;
                if depth <= 0 && entry.id.offset != id.offset {
                    return Some(());
                }
                let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                    continue;
                };
                entry.tag = abbreviation.tag();
                raw.read_attributes(abbreviation.attributes(), &mut entry.attributes)
                    .ok()?;
                if !visit(depth, &entry) {
                    return Some(());
                }
            }
            Some(())
        })();
    }

    /// Calls `visit` with the entries of unit `number` that have `tag`, at any depth.
    pub(super) fn visit_tag(&self, number: u32, tag: DwTag, mut visit: impl FnMut(&Entry<'a>)) {
        let _: Option<()> = (|| {
            let (unit, _) = self.unit(number)?;
            let mut raw = unit.entries_raw(None).ok()?;
            let mut entry = Entry {
                id: EntryId {
                    unit: number,
                    offset: 0,
                },
                tag,
                attributes: Vec::new(),
            };
            while !raw.is_empty() {
                entry.id.offset = raw.next_offset().0;
                match raw.read_abbreviation().ok()? {
                    Some(abbreviation) if abbreviation.tag() == tag => {
                        raw.read_attributes(abbreviation.attributes(), &mut entry.attributes)
                            .ok()?;
                        visit(&entry);
                    }
                    Some(abbreviation) => raw.skip_attributes(abbreviation.attributes()).ok()?,
                    None => {}
                }
            }
            Some(())
        })();
    }

    /// How unit `number` writes addresses and offsets.
    pub(super) fn encoding(&self, number: u32) -> Option<gimli::Encoding> {
        Some(self.header(number)?.0.encoding())
    }

    /// The address that `value` of an entry of unit `number` is.
    pub(super) fn address(&self, number: u32, value: Value<'a>) -> Option<u64> {
        let (unit, dwarf) = self.unit(number)?;
        dwarf.attr_address(unit, value).ok()?
    }

    /// The code of `entry`, in at most `most` ranges, without those of removed code.
    pub(super) fn ranges(&self, entry: &Entry<'a>, most: usize) -> Vec<std::ops::Range<u64>> {
        let mut ranges = Vec::new();
        let _: Option<()> = (|| {
            let (unit, dwarf) = self.unit(entry.id.unit)?;
            if let Some(low) = entry.value(gimli::DW_AT_low_pc)
                && let Some(high) = entry.value(gimli::DW_AT_high_pc)
            {
                let low = self.address(entry.id.unit, low)?;
                let high = match high {
                    AttributeValue::Udata(length) => low.checked_add(length)?,
                    other => match self.address(entry.id.unit, other) {
                        Some(high) => high,
                        None => low.checked_add(other.udata_value()?)?,
                    },
                };
                ranges.push(low..high);
                return Some(());
            }
            let mut list = dwarf
                .attr_ranges(unit, entry.value(gimli::DW_AT_ranges)?)
                .ok()??;
            while ranges.len() < most
                && let Some(range) = list.next().ok()?
            {
                ranges.push(range.begin..range.end);
            }
            Some(())
        })();
        // Zero is what linkers leave for code that they removed.
        ranges.retain(|range| range.start != 0 && range.start < range.end);
        ranges
    }

    /// Calls `each` with each range of the list `value` of an entry of unit `number`, until it says no: then that is the
    /// answer.
    pub(super) fn count_ranges(
        &self,
        number: u32,
        value: Value<'a>,
        each: impl Fn() -> Option<()>,
    ) -> Option<()> {
        let list = self
            .unit(number)
            .and_then(|(unit, dwarf)| dwarf.attr_ranges(unit, value).ok()?);
        if let Some(mut list) = list {
            while let Ok(Some(_)) = list.next() {
                each()?;
            }
        }
        Some(())
    }

    /// The code that unit `number` describes, in at most `most` ranges.
    pub(super) fn unit_ranges(&self, number: u32, most: usize) -> Vec<std::ops::Range<u64>> {
        let mut ranges = Vec::new();
        let _: Option<()> = (|| {
            let (unit, dwarf) = self.unit_in_program(number)?;
            let mut list = dwarf.unit_ranges(unit).ok()?;
            while ranges.len() < most
                && let Some(range) = list.next().ok()?
            {
                ranges.push(range.begin..range.end);
            }
            Some(())
        })();
        ranges.retain(|range| range.start != 0 && range.start < range.end);
        ranges
    }

    /// The location list `value` of an entry of unit `number`: in which code which expression holds.
    pub(super) fn locations(
        &self,
        number: u32,
        value: Value<'a>,
        most: usize,
    ) -> Vec<(std::ops::Range<u64>, gimli::Expression<Bytes<'a>>)> {
        let mut locations = Vec::new();
        let _: Option<()> = (|| {
            let (unit, dwarf) = self.unit(number)?;
            let mut list = dwarf.attr_locations(unit, value).ok()??;
            while locations.len() < most
                && let Some(entry) = list.next().ok()?
            {
                locations.push((entry.range.begin..entry.range.end, entry.data));
            }
            Some(())
        })();
        locations
    }

    /// The entry that the attribute called `name` of `entry` refers to.
    pub(super) fn referred(&self, entry: &Entry<'a>, name: DwAt) -> Option<EntryId> {
        self.reference(entry.id.unit, &entry.value(name)?)
    }

    fn reference(&self, unit: u32, value: &Value<'a>) -> Option<EntryId> {
        match value {
            AttributeValue::UnitRef(offset) => Some(EntryId {
                unit,
                offset: offset.0,
            }),
            AttributeValue::DebugInfoRef(offset) => {
                let home = self.slots.get(usize::try_from(unit).ok()?)?.home;
                match home {
                    Home::Info | Home::Types => self.entry_at(offset.0, 0, self.info_end),
                    Home::Supplementary => {
                        self.entry_at(offset.0, self.types_end, self.supplementary_end)
                    }
                    Home::Split(part) => {
                        let (part, first) = self.parts.get(part)?;
                        self.entry_at(offset.0, *first, first + part.infos)
                    }
                }
            }
            AttributeValue::DebugInfoRefSup(offset) => {
                self.entry_at(offset.0, self.types_end, self.supplementary_end)
            }
            AttributeValue::DebugTypesRef(signature) => self.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    /// The entry at `offset` of `.debug_info`.
    pub(super) fn entry_of_info(&self, offset: usize) -> Option<Entry<'a>> {
        self.entry(self.entry_at(offset, 0, self.info_end)?)
    }

    /// The entry at `offset` of a section whose units have the numbers `first..end`.
    fn entry_at(&self, offset: usize, first: usize, end: usize) -> Option<EntryId> {
        let units = self.slots.get(first..end)?;
        let after = units.partition_point(|slot| slot.header.offset().0 <= offset);
        let number = first + after.checked_sub(1)?;
        let start = self.slots.get(number)?.header.offset().0;
        Some(EntryId {
            unit: u32::try_from(number).ok()?,
            offset: offset - start,
        })
    }

    /// Calls `visit` with `entry` and then with those that it is an instance or completion of,
    /// until one gives an answer.
    pub(super) fn inherited<T>(
        &self,
        entry: &Entry<'a>,
        visit: impl Fn(&Entry<'a>) -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = visit(entry) {
            return Some(found);
        }
        let mut next = self.original(entry);
        for _ in 0..MOST_HOPS {
            let entry = self.entry(next?)?;
            if let Some(found) = visit(&entry) {
                return Some(found);
            }
            next = self.original(&entry);
        }
        None
    }

    /// The entry that `entry` is an instance or completion of.
    pub(super) fn original(&self, entry: &Entry<'a>) -> Option<EntryId> {
        self.referred(entry, gimli::DW_AT_specification)
            .or_else(|| self.referred(entry, gimli::DW_AT_abstract_origin))
    }

    /// The text of the attribute called `name` of `entry` itself.
    pub(super) fn text(&self, entry: &Entry<'a>, name: DwAt) -> Option<String> {
        let (unit, dwarf) = self.unit(entry.id.unit)?;
        let text = dwarf.attr_string(unit, entry.value(name)?).ok()?;
        Some(cut(text.slice()))
    }

    /// The name of `entry`, its own or inherited.
    pub(super) fn name(&self, entry: &Entry<'a>) -> Option<String> {
        self.inherited(entry, |entry| self.text(entry, gimli::DW_AT_name))
    }

    /// The mangled name of `entry`, its own or inherited.
    pub(super) fn linkage_name(&self, entry: &Entry<'a>) -> Option<String> {
        self.inherited(entry, |entry| {
            self.text(entry, gimli::DW_AT_linkage_name)
                .or_else(|| self.text(entry, gimli::DW_AT_MIPS_linkage_name))
        })
    }

    /// Where `entry` is declared, `file:line`; `None` if the debug info does not say.
    pub(super) fn declared_at(&self, entry: &Entry<'a>) -> Option<String> {
        self.inherited(entry, |entry| {
            let line = entry.number(gimli::DW_AT_decl_line)?;
            let file = match entry.value(gimli::DW_AT_decl_file)? {
                AttributeValue::FileIndex(index) => index,
                other => other.udata_value()?,
            };
            Some(format!("{}:{line}", self.file_name(entry.id.unit, file)?))
        })
    }

    /// The path of file `index` of unit `number`, its directories in front.
    fn file_name(&self, number: u32, index: u64) -> Option<String> {
        let own = self.unit(number)?;
        // What is in a file of its own mostly has its lines in the program.
        let (unit, dwarf) = match own.0.line_program {
            Some(_) => own,
            None => self.unit_in_program(number)?,
        };
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value: Value<'a>| {
            dwarf
                .attr_string(unit, value)
                .ok()
                .map(|text| cut(text.slice()))
        };
        let mut path = text(file.path_name())?;
        // Directory 0 is the one that the compiler ran in.
        if !path.starts_with('/')
            && file.directory_index() != 0
            && let Some(directory) = file.directory(header).and_then(text)
        {
            path = format!("{directory}/{path}");
        }
        if !path.starts_with('/')
            && let Some(directory) = &unit.comp_dir
        {
            path = format!("{}/{path}", cut(directory.slice()));
        }
        Some(path)
    }

    /// The address that entry `index` of `.debug_addr` holds for unit `number`.
    pub(super) fn indexed_address(
        &self,
        number: u32,
        index: gimli::DebugAddrIndex<usize>,
    ) -> Option<u64> {
        let (unit, dwarf) = self.unit(number)?;
        dwarf.address(unit, index).ok()
    }
}

/// The debug sections of `elf`, decompressed, kept in `store`.
fn sections<'a>(elf: &Elf, store: &'a Store) -> gimli::Dwarf<Bytes<'a>> {
    let load = |id: SectionId| -> Result<Bytes<'a>, std::convert::Infallible> {
        let bytes = if SECTIONS.contains(&id) {
            elf.section_bytes(id.name())
        } else {
            None
        };
        let bytes = bytes.map_or(&[] as &[u8], |bytes| store.keep(bytes));
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    let Ok(dwarf) = gimli::Dwarf::load(load);
    dwarf
}
