//! The variables of a function, those of what was inlined into it included: where each is, and in
//! which part of the code.

use std::collections::BTreeMap;

use gimli::{AttributeValue, Expression, Operation};

use super::super::bytes::Bytes;
use super::super::dwarf::{Debug, Entry, EntryId};
use super::super::types::Types;
use super::frames::{Range, Row};

/// DWARF's numbers of rsp and rbp.
pub(super) const DWARF_RSP: u16 = 7;
pub(super) const DWARF_RBP: u16 = 6;

/// Entries of one function that are read, at most.
const MOST_ENTRIES: usize = 200_000;
/// Places of the variables of one function, at most.
const MOST_PLACES: usize = 100_000;
/// Scopes nested deeper than this are no compiler's work.
const DEEPEST: isize = 512;
/// Ranges of one scope or list that are read, at most.
const MOST_RANGES: usize = 4096;
/// Pieces of one variable, at most.
const MOST_PIECES: usize = 32;

/// Where a variable, or a piece of it, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The register (DWARF number) holds its value plus `minus` bytes.
    Value { register: u16, minus: i64 },
    /// The register plus `offset` is its address.
    Memory { register: u16, offset: i64 },
    /// At this distance from the canonical frame address.
    Frame(i64),
    /// `plus` bytes behind the address that is stored at this distance from the canonical frame
    /// address.
    Behind { slot: i64, plus: i64 },
    /// The same with the address of the slot relative to a register that leads to the frame.
    BehindRegister { register: u16, slot: i64, plus: i64 },
}

/// A variable, or a piece of it, at one place in some code.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    /// The code.
    pub(super) range: Range,
    /// Where it is there.
    pub(super) place: Location,
    /// Its declared type.
    pub(super) kind: EntryId,
    /// Where the piece starts in the variable.
    pub(super) within: u64,
    /// Bytes of the piece; `None` for the whole variable, if that is not in the frame.
    pub(super) size: Option<u64>,
    /// The entry that has the name.
    pub(super) entry: EntryId,
}

/// What the debug info says of one function.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Its code.
    pub(super) ranges: Vec<Range>,
    /// Its variables that a register holds or leads to, by where their code starts.
    pub(super) variables: Vec<Variable>,
    /// Its variables in the frame.
    pub(super) in_frame: Vec<Variable>,
    /// What calls return: return address and declared type.
    pub(super) calls: Vec<(u64, EntryId)>,
}

impl Scope {
    /// Says of variables that are relative to the stack pointer or frame pointer where they are in the
    /// frame; `rows` say where that is. Compilers mean the register as it is after the prologue, so
    /// the row counts that holds for most of a variable's code.
    pub(super) fn find_frame(&mut self, rows: &[Row]) {
        let variables = std::mem::take(&mut self.variables);
        for mut variable in variables {
            let (Location::Memory { register, .. } | Location::BehindRegister { register, .. }) =
                variable.place
            else {
                self.variables.push(variable);
                continue;
            };
            let Some(to_frame) = main_row(rows, register, &variable.range) else {
                self.variables.push(variable);
                continue;
            };
            match variable.place {
                Location::BehindRegister { slot, plus, .. } => {
                    let slot = slot.wrapping_sub(to_frame);
                    variable.place = Location::Behind { slot, plus };
                    self.variables.push(variable);
                }
                Location::Memory { offset, .. } => {
                    variable.place = Location::Frame(offset.wrapping_sub(to_frame));
                    self.in_frame.push(variable);
                }
                _ => {}
            }
        }
    }

    /// The variable that is declared at the instruction at `ip` to hold the byte at `address`, and its first byte, in a frame
    /// whose stack pointer is there at `low` and whose canonical frame address is `high`; `size` tells that of a type. Of variables
    /// one in the other, as after inlining, the largest tells most.
    pub(super) fn at(
        &self,
        ip: u64,
        address: u64,
        (low, high): (u64, u64),
        size: impl Fn(EntryId) -> u64,
    ) -> Option<(&Variable, u64)> {
        let all = self.in_frame.iter().chain(&self.variables);
        let declared = all.filter_map(|variable| {
            let start = match variable.place {
                Location::Frame(distance) => high.checked_add_signed(distance)?,
                // Of a frame that is aligned anew only the stack pointer leads to its variables.
                Location::Memory {
                    register: DWARF_RSP,
                    offset,
                } => low.checked_add_signed(offset)?,
                _ => return None,
            };
            let bytes = variable.size.unwrap_or_else(|| size(variable.kind));
            let holds = address.checked_sub(start)? < bytes && variable.range.contains(&ip);
            holds.then(|| (variable, start.wrapping_sub(variable.within), bytes))
        });
        let largest = declared.max_by_key(|(variable, _, bytes)| (*bytes, variable.entry));
        largest.map(|(variable, start, _)| (variable, start))
    }

    /// Places of all variables.
    fn places(&self) -> usize {
        self.variables.len() + self.in_frame.len()
    }
}

/// Reads the function `id`, whose code is `ranges`.
pub(super) fn read(debug: &Debug<'_>, id: EntryId, ranges: Vec<Range>) -> Scope {
    let mut scope = Scope {
        ranges,
        ..Scope::default()
    };
    let mut reader = Reader {
        debug,
        frame_base: None,
        around: Vec::new(),
        scope: &mut scope,
    };
    let mut entries = 0;
    debug.visit(id, |depth, entry| {
        entries += 1;
        reader.add(depth, entry);
        entries < MOST_ENTRIES && depth < DEEPEST && reader.scope.places() < MOST_PLACES
    });
    scope
        .variables
        .sort_by_key(|variable| (variable.range.start, variable.range.end, variable.entry));
    scope.calls.sort_unstable();
    scope
}

/// How far the canonical frame address is from `register` in most of `range`; `None` if `rows` find the frame by another one
/// there, as where it is aligned anew: from the stack pointer it is then nowhere as far as it was in the prologue.
fn main_row(rows: &[Row], register: u16, range: &Range) -> Option<i64> {
    if !matches!(register, DWARF_RSP | DWARF_RBP) {
        return None;
    }
    let mut covered: BTreeMap<i64, u64> = BTreeMap::new();
    let (mut by_register, mut by_others) = (0, 0);
    let first = rows.partition_point(|row| row.range.end <= range.start);
    for row in rows.get(first..).unwrap_or_default() {
        if row.range.start >= range.end {
            break;
        }
        let bytes = row.range.end.min(range.end) - row.range.start.max(range.start);
        if row.register == register {
            *covered.entry(row.offset).or_default() += bytes;
            by_register += bytes;
        } else {
            by_others += bytes;
        }
    }
    if by_others > by_register {
        return None;
    }
    covered
        .into_iter()
        .max_by_key(|(_, bytes)| *bytes)
        .map(|(offset, _)| offset)
}

/// The parameters of function `id`, where they are at its first instruction `start`.
pub(super) fn parameters(debug: &Debug<'_>, id: EntryId, start: u64) -> Vec<Variable> {
    let mut scope = Scope::default();
    let mut reader = Reader {
        debug,
        frame_base: None,
        around: vec![(0, std::iter::once(start..start + 1).collect())],
        scope: &mut scope,
    };
    for child in debug.children(id) {
        if child.tag == gimli::DW_TAG_formal_parameter {
            let _: Option<()> = reader.variable(&child);
        }
    }
    scope
        .variables
        .retain(|variable| variable.range.contains(&start));
    scope.variables
}

struct Reader<'r, 'a> {
    debug: &'r Debug<'a>,
    /// How the function finds its frame: a register, or `None` for the canonical frame address.
    frame_base: Option<u16>,
    /// Depth and code of the scopes around the entry.
    around: Vec<(isize, Vec<Range>)>,
    scope: &'r mut Scope,
}

impl<'a> Reader<'_, 'a> {
    fn add(&mut self, depth: isize, entry: &Entry<'a>) {
        while self.around.last().is_some_and(|(other, _)| *other >= depth) {
            self.around.pop();
        }
        match entry.tag {
            gimli::DW_TAG_subprogram if depth == 0 => {
                self.frame_base = self.frame_register(entry);
                self.around.push((depth, self.scope.ranges.clone()));
            }
            // A function within the function, or a declaration: not its code.
            gimli::DW_TAG_subprogram => self.around.push((depth, Vec::new())),
            gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block => {
                let mut ranges = self.debug.ranges(entry, MOST_RANGES);
                if ranges.is_empty() {
                    ranges = self.code().to_vec();
                }
                self.around.push((depth, ranges));
            }
            gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                let _: Option<()> = self.variable(entry);
            }
            gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => {
                let _: Option<()> = self.call(entry);
            }
            _ => {}
        }
    }

    /// The code of the innermost scope.
    fn code(&self) -> &[Range] {
        self.around.last().map_or(&[], |(_, ranges)| ranges)
    }

    fn frame_register(&self, entry: &Entry<'a>) -> Option<u16> {
        let AttributeValue::Exprloc(expression) = entry.value(gimli::DW_AT_frame_base)? else {
            return None;
        };
        let encoding = self.debug.encoding(entry.id.unit)?;
        match expression.operations(encoding).next() {
            Ok(Some(Operation::Register { register })) => Some(register.0),
            _ => None,
        }
    }

    fn call(&mut self, entry: &Entry<'a>) -> Option<()> {
        let back = entry
            .value(gimli::DW_AT_call_return_pc)
            .or_else(|| entry.value(gimli::DW_AT_low_pc))?;
        let back = self.debug.address(entry.id.unit, back)?;
        let callee = self
            .debug
            .referred(entry, gimli::DW_AT_call_origin)
            .or_else(|| self.debug.referred(entry, gimli::DW_AT_abstract_origin))?;
        let callee = self.debug.entry(callee)?;
        self.scope
            .calls
            .push((back, Types::new(self.debug).type_of(&callee)?));
        Some(())
    }

    fn variable(&mut self, entry: &Entry<'a>) -> Option<()> {
        let location = entry.value(gimli::DW_AT_location)?;
        let kind = Types::new(self.debug).type_of(entry)?;
        if let AttributeValue::Exprloc(expression) = location {
            for range in self.code().to_vec() {
                self.places(entry.id, kind, &range, expression);
            }
            return Some(());
        }
        for (range, expression) in self.debug.locations(entry.id.unit, location, MOST_RANGES) {
            self.places(entry.id, kind, &range, expression);
        }
        Some(())
    }

    /// Adds where the variable is in `range`, as far as `expression` is of a kind that says it.
    fn places(
        &mut self,
        entry: EntryId,
        kind: EntryId,
        range: &Range,
        expression: Expression<Bytes<'a>>,
    ) {
        let Some(encoding) = self.debug.encoding(entry.unit) else {
            return;
        };
        if range.is_empty() || self.scope.places() >= MOST_PLACES {
            return;
        }
        let mut operations = expression.operations(encoding);
        let mut place = Parsed::Nothing;
        let mut within = 0_u64;
        let mut pieces = Vec::new();
        while let Ok(Some(operation)) = operations.next() {
            if let Operation::Piece { size_in_bits, .. } = operation {
                let size = size_in_bits / 8;
                if pieces.len() >= MOST_PIECES {
                    break;
                }
                if let Some(found) = place.place() {
                    pieces.push((found, within, Some(size)));
                }
                within = within.saturating_add(size);
                place = Parsed::Nothing;
            } else {
                place = self.step(place, &operation);
            }
        }
        if within == 0
            && let Some(found) = place.place()
        {
            pieces.push((found, 0, None));
        }
        for (place, within, size) in pieces {
            let variable = Variable {
                range: range.clone(),
                place,
                kind,
                within,
                size,
                entry,
            };
            match place {
                Location::Frame(_) => self.scope.in_frame.push(variable),
                _ => self.scope.variables.push(variable),
            }
        }
    }

    fn step(&self, before: Parsed, operation: &Operation<Bytes<'a>>) -> Parsed {
        match (before, operation) {
            (Parsed::Nothing, Operation::Register { register }) => Parsed::In(register.0),
            (
                Parsed::Nothing,
                Operation::RegisterOffset {
                    register, offset, ..
                },
            ) => Parsed::Sum(register.0, *offset),
            (Parsed::Nothing, Operation::FrameOffset { offset }) => match self.frame_base {
                Some(register) => Parsed::Sum(register, *offset),
                None => Parsed::Frame(*offset),
            },
            (Parsed::Nothing, Operation::CallFrameCFA) => Parsed::Frame(0),
            (Parsed::Sum(register, offset), Operation::PlusConstant { value }) => {
                Parsed::Sum(register, offset.wrapping_add_unsigned(*value))
            }
            (Parsed::Frame(offset), Operation::PlusConstant { value }) => {
                Parsed::Frame(offset.wrapping_add_unsigned(*value))
            }
            (Parsed::Frame(offset), Operation::Deref { size: 8, .. }) => Parsed::Behind(offset, 0),
            (Parsed::Sum(register, offset), Operation::Deref { size: 8, .. }) => {
                Parsed::BehindRegister(register, offset, 0)
            }
            (Parsed::Behind(slot, plus), Operation::PlusConstant { value }) => {
                Parsed::Behind(slot, plus.wrapping_add_unsigned(*value))
            }
            (Parsed::BehindRegister(register, slot, plus), Operation::PlusConstant { value }) => {
                Parsed::BehindRegister(register, slot, plus.wrapping_add_unsigned(*value))
            }
            (Parsed::Sum(register, offset), Operation::StackValue) => {
                Parsed::Value(register, offset)
            }
            _ => Parsed::Other,
        }
    }
}

/// A location, as far as it was read.
#[derive(Clone, Copy)]
enum Parsed {
    Nothing,
    In(u16),
    Sum(u16, i64),
    Value(u16, i64),
    Frame(i64),
    Behind(i64, i64),
    BehindRegister(u16, i64, i64),
    Other,
}

impl Parsed {
    fn place(self) -> Option<Location> {
        match self {
            Self::In(register) => Some(Location::Value { register, minus: 0 }),
            // The variable is register + offset, so the register is the variable - offset.
            Self::Value(register, offset) => Some(Location::Value {
                register,
                minus: offset.wrapping_neg(),
            }),
            Self::Sum(register, offset) => Some(Location::Memory { register, offset }),
            Self::Frame(offset) => Some(Location::Frame(offset)),
            Self::Behind(slot, plus) => Some(Location::Behind { slot, plus }),
            Self::BehindRegister(register, slot, plus) => Some(Location::BehindRegister {
                register,
                slot,
                plus,
            }),
            Self::Nothing | Self::Other => None,
        }
    }
}

/// The functions of one unit, by address: first and last byte of a range, and the entry.
pub(super) fn functions(debug: &Debug<'_>, unit: u32) -> Vec<(Range, EntryId)> {
    let mut functions = Vec::new();
    debug.visit_tag(unit, gimli::DW_TAG_subprogram, |entry| {
        functions.extend(
            debug
                .ranges(entry, MOST_RANGES)
                .into_iter()
                .map(|range| (range, entry.id)),
        );
    });
    functions.sort_by_key(|(range, id)| (range.start, range.end, *id));
    functions
}
