//! Static variables by address: one pass over the debug info of a module, names on demand.

use std::cell::OnceCell;

use gimli::{AttributeValue, EntriesRaw, Expression, Operation};

use super::demangle::demangle;
use super::dwarf::{Bytes, Debug, EntryId};
use super::weight::{self, Scale};

/// Entries nested deeper than this are no compiler's work, and would overflow the stack of code
/// that walks them recursively.
const DEEPEST: isize = 512;
/// Variables before an address that are tried, nearest first: aliases and empty ones share one.
const STEPS: usize = 16;
/// No scope around a variable.
const NO_SCOPE: u32 = u32::MAX;

/// A variable of static storage duration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    /// Address in the module's own address space.
    pub(super) address: u64,
    /// Its entry.
    pub(super) entry: EntryId,
    /// Where this piece starts in the variable: optimisers split structs whose address nobody
    /// takes. Zero, like the size, for a variable in one piece.
    pub(super) piece_offset: u64,
    /// Bytes of this piece; zero if it is the whole variable.
    pub(super) piece_size: u64,
    scope: u32,
}

/// A fixed place of a variable or of a piece of it.
struct Place {
    address: u64,
    offset: u64,
    size: u64,
}

/// A namespace, type or function around variables.
#[derive(Clone, Copy, Debug)]
struct Scope {
    entry: EntryId,
    parent: u32,
}

/// The static variables of one module.
#[derive(Debug, Default)]
pub(super) struct Variables {
    statics: Vec<Variable>,
    scopes: Vec<Scope>,
    /// Whether the debug info is sane enough to be walked recursively.
    pub(super) walkable: bool,
}

impl Variables {
    /// Finds the variables of all units, and weighs the functions beside them. Units that cannot be read are left out.
    /// `None` if all that is too heavy for `scale`.
    pub(super) fn index(debug: &Debug<'_>, scale: &Scale<'_>) -> Option<Self> {
        let mut variables = Self {
            walkable: true,
            ..Self::default()
        };
        for (number, types_only) in debug.units() {
            // A broken unit keeps what was found before the break.
            let _: Option<()> = variables.index_unit(debug, number, types_only, scale);
            if scale.is_too_heavy() {
                return None;
            }
        }
        variables
            .statics
            .sort_by_key(|variable| (variable.address, variable.entry));
        variables.statics.shrink_to_fit();
        Some(variables)
    }

    fn index_unit(
        &mut self,
        debug: &Debug<'_>,
        number: u32,
        types_only: bool,
        scale: &Scale<'_>,
    ) -> Option<()> {
        let (header, dwarf) = debug.header(number)?;
        let abbreviations = dwarf.abbreviations(header).ok()?;
        let mut raw = header.entries_raw(&abbreviations, None).ok()?;
        // The scopes around the entry: their depth, their offset, and their number once needed.
        let mut around: Vec<(isize, usize, OnceCell<u32>)> = Vec::new();
        let mut places = Vec::new();
        while !raw.is_empty() {
            let depth = raw.next_depth();
            let offset = raw.next_offset().0;
            let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                continue;
            };
            if depth > DEEPEST {
                self.walkable = false;
                return None;
            }
            while around.last().is_some_and(|(scope, _, _)| *scope >= depth) {
                around.pop();
            }
            let tag = abbreviation.tag();
            if tag == gimli::DW_TAG_variable && !types_only {
                let entry = EntryId {
                    unit: number,
                    offset,
                };
                places.clear();
                location(
                    debug,
                    &mut raw,
                    abbreviation,
                    entry,
                    header.encoding(),
                    &mut places,
                )?;
                for place in &places {
                    scale.add(weight::VARIABLE)?;
                    let scope = self.intern(number, &around);
                    self.statics.push(Variable {
                        address: place.address,
                        entry,
                        piece_offset: place.offset,
                        piece_size: place.size,
                        scope,
                    });
                }
                continue;
            }
            if is_function(tag) {
                weigh_function(debug, &mut raw, abbreviation, number, scale)?;
            } else {
                raw.skip_attributes(abbreviation.attributes()).ok()?;
            }
            if abbreviation.has_children() && is_scope(tag) {
                around.push((depth, offset, OnceCell::new()));
            }
        }
        Some(())
    }

    /// The number of the innermost of the scopes `around`, which are entered as needed.
    fn intern(&mut self, unit: u32, around: &[(isize, usize, OnceCell<u32>)]) -> u32 {
        let mut parent = NO_SCOPE;
        for (_, offset, known) in around {
            parent = *known.get_or_init(|| {
                self.scopes.push(Scope {
                    entry: EntryId {
                        unit,
                        offset: *offset,
                    },
                    parent,
                });
                u32::try_from(self.scopes.len() - 1).unwrap_or(NO_SCOPE)
            });
        }
        parent
    }

    /// The variables that start at or shortly before `address`, nearest first.
    pub(super) fn before(&self, address: u64) -> impl Iterator<Item = &Variable> {
        candidates(&self.statics, address)
    }

    /// Where the first variable after `address` starts.
    pub(super) fn next_after(&self, address: u64) -> Option<u64> {
        let next = self
            .statics
            .partition_point(|variable| variable.address <= address);
        self.statics.get(next).map(|variable| variable.address)
    }

    /// The name of `variable` with the namespaces, types or functions around it, and the bare one.
    pub(super) fn names(&self, debug: &Debug<'_>, variable: &Variable) -> Option<(String, String)> {
        let entry = debug.entry(variable.entry)?;
        let bare = debug.name(&entry)?;
        let mut parts = Vec::new();
        let mut in_function = false;
        let mut scope = variable.scope;
        // A scope's parent was entered before it, so this ends.
        while let Some(row) = usize::try_from(scope)
            .ok()
            .and_then(|index| self.scopes.get(index))
        {
            // The innermost function owns the variable; those that it was inlined into do not.
            if let Some(entry) = debug.entry(row.entry)
                && !(is_function(entry.tag) && std::mem::replace(&mut in_function, true))
            {
                let name = debug
                    .name(&entry)
                    .unwrap_or_else(|| "(anonymous)".to_owned());
                parts.push(name);
            }
            scope = row.parent;
        }
        if parts.is_empty() {
            // A definition outside of its namespace or class: the symbol names them, or else the
            // place of the declaration does.
            if let Some(symbol) = debug.linkage_name(&entry) {
                let name = demangle(&symbol);
                if name != symbol {
                    return Some((name, bare));
                }
            } else if let Some(declaration) = debug.referred(&entry, gimli::DW_AT_specification) {
                parts = scopes_around(debug, declaration);
            }
        }
        parts.reverse();
        parts.push(bare.clone());
        Some((parts.join("::"), bare))
    }
}

/// The names of the namespaces and types around `entry`, innermost first.
pub(super) fn scopes_around(debug: &Debug<'_>, entry: EntryId) -> Vec<String> {
    let mut around: Vec<(isize, EntryId)> = Vec::new();
    // A broken unit gives the scopes before the break.
    let _: Option<()> = (|| {
        let (header, dwarf) = debug.header(entry.unit)?;
        let abbreviations = dwarf.abbreviations(header).ok()?;
        let mut raw = header.entries_raw(&abbreviations, None).ok()?;
        while !raw.is_empty() {
            let depth = raw.next_depth();
            let offset = raw.next_offset().0;
            let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                continue;
            };
            while around.last().is_some_and(|(scope, _)| *scope >= depth) {
                around.pop();
            }
            if offset >= entry.offset {
                return Some(());
            }
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            if abbreviation.has_children() && is_scope(abbreviation.tag()) {
                around.push((
                    depth,
                    EntryId {
                        unit: entry.unit,
                        offset,
                    },
                ));
            }
        }
        Some(())
    })();
    let name = |id: EntryId| debug.entry(id).and_then(|entry| debug.name(&entry));
    around
        .iter()
        .rev()
        .map(|(_, id)| name(*id).unwrap_or_else(|| "(anonymous)".to_owned()))
        .collect()
}

fn candidates(variables: &[Variable], address: u64) -> impl Iterator<Item = &Variable> {
    let after = variables.partition_point(|variable| variable.address <= address);
    variables
        .get(..after)
        .unwrap_or(&[])
        .iter()
        .rev()
        .take(STEPS)
}

/// Passes over the attributes of a function and puts on what addr2line keeps of it.
fn weigh_function<'a>(
    debug: &Debug<'a>,
    raw: &mut EntriesRaw<'_, Bytes<'a>>,
    abbreviation: &gimli::Abbreviation,
    unit: u32,
    scale: &Scale<'_>,
) -> Option<()> {
    let attributes = abbreviation.attributes();
    let has = |name| attributes.iter().any(|it| it.name() == name);
    let own = match abbreviation.tag() {
        gimli::DW_TAG_inlined_subroutine => weight::INLINED,
        _ if has(gimli::DW_AT_low_pc) || has(gimli::DW_AT_ranges) => weight::FUNCTION,
        // A declaration.
        _ => 0,
    };
    scale.add(own)?;
    if !has(gimli::DW_AT_ranges) {
        return raw.skip_attributes(attributes).ok();
    }
    for specification in attributes {
        let attribute = raw.read_attribute(*specification).ok()?;
        if attribute.name() == gimli::DW_AT_ranges {
            debug.count_ranges(unit, attribute.value(), || scale.add(weight::RANGE))?;
        }
    }
    Some(())
}

fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_subprogram
            | gimli::DW_TAG_inlined_subroutine
    )
}

fn is_function(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine
    )
}

/// Reads the attributes of the variable at `entry` and adds where it is, if that is fixed.
fn location(
    debug: &Debug<'_>,
    raw: &mut EntriesRaw<'_, Bytes<'_>>,
    abbreviation: &gimli::Abbreviation,
    entry: EntryId,
    encoding: gimli::Encoding,
    places: &mut Vec<Place>,
) -> Option<()> {
    for specification in abbreviation.attributes() {
        let attribute = raw.read_attribute(*specification).ok()?;
        if attribute.name() == gimli::DW_AT_location
            && let AttributeValue::Exprloc(expression) = attribute.value()
        {
            // A broken expression ends where it breaks; the entries after it are still right.
            let _: Option<()> = fixed_places(debug, entry.unit, expression, encoding, places);
        }
    }
    Some(())
}

fn fixed_places(
    debug: &Debug<'_>,
    unit: u32,
    expression: Expression<Bytes<'_>>,
    encoding: gimli::Encoding,
    places: &mut Vec<Place>,
) -> Option<()> {
    let mut operations = expression.operations(encoding);
    let mut address = None;
    let mut offset = 0_u64;
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::Address { address: fixed } => address = Some(fixed),
            Operation::AddressIndex { index } => address = debug.indexed_address(unit, index),
            Operation::PlusConstant { value } => {
                address = address.and_then(|address| address.checked_add(value));
            }
            Operation::Piece { size_in_bits, .. } => {
                let size = size_in_bits / 8;
                add_place(places, address.take(), offset, size);
                offset = offset.checked_add(size)?;
            }
            // On the stack, in a register, thread-local or computed: the place depends on who
            // runs, or there is none.
            _ => address = None,
        }
    }
    if offset == 0 {
        add_place(places, address, 0, 0);
    }
    Some(())
}

fn add_place(places: &mut Vec<Place>, address: Option<u64>, offset: u64, size: u64) {
    // Zero is what linkers leave for variables that they removed.
    if let Some(address) = address.filter(|address| *address != 0) {
        places.push(Place {
            address,
            offset,
            size,
        });
    }
}
