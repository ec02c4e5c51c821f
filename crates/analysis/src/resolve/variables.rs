//! Static variables by address: one pass over the debug info of a module, names on demand.

use gimli::{AttributeValue, EntriesRaw, Expression, Operation};

use super::bytes::Bytes;
use super::demangle::demangle;
use super::dwarf::{Debug, EntryId};
use super::names::names_around;
use super::scopes::is_function;
use super::weight::{self, Scale};

/// Entries nested deeper than this are no compiler's work, and would overflow the stack of code
/// that walks them recursively.
const DEEPEST: isize = 512;
/// Variables before an address that are tried, nearest first: aliases and empty ones share one.
const STEPS: usize = 16;

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
}

/// A fixed place of a variable or of a piece of it.
struct FixedLocation {
    address: u64,
    offset: u64,
    size: u64,
}

/// The static variables of one module.
#[derive(Debug, Default)]
pub(super) struct Variables {
    statics: Vec<Variable>,
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
                    self.statics.push(Variable {
                        address: place.address,
                        entry,
                        piece_offset: place.offset,
                        piece_size: place.size,
                    });
                }
                continue;
            }
            if is_function(tag) {
                weigh_function(debug, &mut raw, abbreviation, number, scale)?;
            } else {
                raw.skip_attributes(abbreviation.attributes()).ok()?;
            }
        }
        Some(())
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
        let mut parts = names_around(debug, variable.entry);
        if parts.is_empty() {
            // A definition outside of its namespace or class: the symbol names them, or else the
            // place of the declaration does.
            if let Some(symbol) = debug.linkage_name(&entry) {
                let name = demangle(&symbol);
                if name != symbol {
                    return Some((name, bare));
                }
            } else if let Some(declaration) = debug.referred(&entry, gimli::DW_AT_specification) {
                parts = names_around(debug, declaration);
            }
        }
        parts.reverse();
        parts.push(bare.clone());
        Some((parts.join("::"), bare))
    }
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

/// Reads the attributes of the variable at `entry` and adds where it is, if that is fixed.
fn location(
    debug: &Debug<'_>,
    raw: &mut EntriesRaw<'_, Bytes<'_>>,
    abbreviation: &gimli::Abbreviation,
    entry: EntryId,
    encoding: gimli::Encoding,
    places: &mut Vec<FixedLocation>,
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
    places: &mut Vec<FixedLocation>,
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

fn add_place(places: &mut Vec<FixedLocation>, address: Option<u64>, offset: u64, size: u64) {
    // Zero is what linkers leave for variables that they removed.
    if let Some(address) = address.filter(|address| *address != 0) {
        places.push(FixedLocation {
            address,
            offset,
            size,
        });
    }
}
