//! Which type and which field an instruction touches: from its machine code and the debug info of
//! the function that it is in.
//!
//! ```text
//! DWARF ── scope ──► variables in registers and in the frame ─┐
//! .eh_frame ── frames ──► where the frame is ─────────────────┼─ flow ──► what the registers hold
//! code bytes ── code ──► instructions and blocks ─────────────┘              before the instruction
//! DWARF ── layout ──► types and members ──────────────────────────────────► type, field, offset
//! ```
//!
//! Nothing of the run is needed but the address of the instruction. What cannot be typed has a
//! reason. Limits: x86-64 only; thread-local variables are typed only where their address is in a
//! register that the debug info knows; what a computed jump leads to is guessed.

mod applied;
pub(super) mod cache;
mod calls;
pub(super) mod code;
mod flow;
pub(super) mod frames;
mod given;
mod holder;
mod layout;
mod moved;
mod present;
mod quick;
pub(super) mod registers;
mod said;
mod scope;
mod slots;
mod stack;
mod state;
mod targets;
mod value;

use std::rc::Rc;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use linewise_recording::{TypeMember, UntypedReason};

use super::dwarf::{Debug, EntryId};
use super::modules::{DebugInfo, Module};
use super::names::names_around;
use super::types::Types;
use super::variables::Variable as StaticVariable;
use cache::{Analysed, Cache, Functions};
use calls::Signature;
use code::Code;
use flow::{Flow, Surroundings};
use frames::{Range, Row};
pub(in crate::resolve) use given::Given;
pub(in crate::resolve) use holder::Argument;
use holder::Holder;
use layout::{Layouts, Leaf, POINTER, Shape, TypeId};
use moved::Moved;
use said::Said;
use stack::only_writes;
use value::Base;

/// Bytes of code of one function that are decoded, at most.
const MOST_CODE: u64 = 1 << 20;
/// Ranges of code of one unit that are read, at most.
const MOST_UNIT_RANGES: usize = 1_000_000;

/// Analysed functions that are kept, at most.
const MOST_RECENT: usize = 8;

/// What an instruction touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// The type that it touches a value of.
    pub(super) kind: EntryId,
    /// Its name.
    pub(super) type_name: String,
    /// Its bytes; zero if unknown.
    pub(super) type_size: u64,
    /// First byte in the type that is touched; in an array in it, of the first element.
    pub(super) offset: u64,
    /// Bytes touched.
    pub(super) size: u64,
    /// The field: `.inner.hits[]`; several fields, or candidates of a union that are as large, with ` | ` between;
    /// empty where the type has no fields.
    pub(super) path: String,
    /// The field's type; empty for several.
    pub(super) field_type: String,
    /// The variable, where the code names it: a static or one on the stack.
    pub(super) variable: String,
    /// The member (`State.hash_table`) or the variable (`text`, `end (local)`) that holds the pointer through
    /// which it is reached, or the local variable that it lies in; empty if none is known.
    pub(super) through: String,
    /// Of what has no fields: the argument that `through` names, which callers know better.
    pub(super) argument: Option<Argument>,
}

/// Answers for one module.
pub(super) struct Typer<'m, 'a> {
    module: &'m Module<'a>,
    debug: &'m Debug<'a>,
    layouts: Layouts<'m, 'a>,
    cache: &'m Cache,
}

impl<'m, 'a> Typer<'m, 'a> {
    /// For `module`; `None` if it has no debug info.
    pub(super) fn new(module: &'m Module<'a>) -> Option<Self> {
        let info = module.debug()?;
        Some(Self {
            module,
            debug: &info.debug,
            layouts: Layouts::new(&info.debug, &info.typer.types),
            cache: &info.typer,
        })
    }

    /// What the instruction at `address`, in the module's own address space, touches.
    pub(super) fn access(&self, address: u64) -> Result<Touched, UntypedReason> {
        if !self.module.is_x86() {
            return Err(UntypedReason::OtherProcessor);
        }
        let function = self.function(address).ok_or(UntypedReason::NoFunction)?;
        let code = function
            .code
            .as_ref()
            .ok_or(UntypedReason::FunctionTooLarge)?;
        let number = code.at(address).ok_or(UntypedReason::NoInstruction)?;
        let flow = self.flow(&function, code);
        let state = flow
            .before(&function.states, number)
            .ok_or(UntypedReason::NoInstruction)?;
        let instruction = code
            .instructions
            .get(number)
            .ok_or(UntypedReason::NoInstruction)?;
        explicit_memory(instruction)?;
        let value = flow
            .operand_address(&state, number)
            .ok_or(UntypedReason::NoInstruction)?;
        let size = instruction.memory_size().size() as u64;
        let times = value.times.unsigned_abs();
        match value.base {
            Base::Typed(kind) => {
                let (offset, times) = self
                    .layouts
                    .locate(kind, value.plus, times, size)
                    .ok_or_else(|| self.not_in(kind))?;
                let touched = self.describe(kind.0, offset, size, times, String::new())?;
                let holder = self.cache.holders.get(value.through);
                let argument = match holder {
                    Some(Holder::Argument(argument)) if touched.path.is_empty() => Some(argument),
                    _ => None,
                };
                Ok(Touched {
                    through: self.holder_name(holder),
                    argument,
                    ..touched
                })
            }
            Base::Frame => {
                let (kind, offset) = flow
                    .frame_variable(address, value.plus, size)
                    .or_else(|| {
                        let known = times == 0;
                        known.then(|| flow.part_at(&function.moved, address, value.plus, size))?
                    })
                    .or_else(|| {
                        let known = times == 0 && !only_writes(instruction);
                        known.then(|| state.present.at(value.plus, size, &self.layouts))?
                    })
                    .ok_or(UntypedReason::Stack)?;
                let touched = self.describe(kind, offset, size, times, String::new())?;
                let local = flow.declared(address, value.plus, size);
                let name = local.and_then(|(variable, _)| self.local_name(variable.entry));
                Ok(Touched {
                    through: name.unwrap_or_default(),
                    ..touched
                })
            }
            Base::Number => {
                let place = u64::try_from(value.plus).map_err(|_| UntypedReason::UnknownPointer)?;
                let (kind, offset, variable) = self
                    .static_variable(place)
                    .ok_or_else(|| self.not_at(place))?;
                let names = |info: &DebugInfo<'_>| info.variables.names(self.debug, variable);
                let (name, _) = self.module.debug().and_then(names).unwrap_or_default();
                self.describe(kind, offset, size, times, name)
            }
            Base::Conflict => Err(UntypedReason::Conflict),
        }
    }

    /// What follows the analysed `function`, whose instructions are `code`.
    fn flow<'f>(&'f self, function: &'f Analysed, code: &'f Code) -> Flow<'f, 'm, 'a> {
        Flow {
            code,
            scope: &function.scope,
            rows: &function.rows,
            said: &function.said,
            layouts: &self.layouts,
            holders: &self.cache.holders,
            program: self,
            lent: &function.lent,
            signature: &function.signature,
        }
    }

    /// How what holds a pointer is written; empty if it is not known.
    fn holder_name(&self, holder: Option<Holder>) -> String {
        let name = match holder {
            Some(Holder::Member { kind, offset }) => {
                self.layouts.member_path(kind, offset, POINTER)
            }
            Some(Holder::Static(address)) => self.static_name(address),
            Some(Holder::Local(entry)) => self.local_name(entry),
            Some(Holder::Argument(argument)) => self.local_name(argument.parameter),
            None => None,
        };
        name.unwrap_or_default()
    }

    fn static_name(&self, address: u64) -> Option<String> {
        let (_, _, variable) = self.static_variable(address)?;
        let info = self.module.debug()?;
        Some(info.variables.names(self.debug, variable)?.0)
    }

    /// The variable in the frame `low..high` of the function at `ip` that holds the byte at `address`: its entry, its type, and
    /// its first byte.
    pub(super) fn slot(
        &self,
        ip: u64,
        address: u64,
        frame: (u64, u64),
    ) -> Option<(EntryId, EntryId, u64)> {
        let function = self.function(ip)?;
        let size = |kind| self.layouts.layout(kind).size;
        let (variable, start) = function.scope.at(ip, address, frame, size)?;
        Some((variable.entry, variable.kind, start))
    }

    fn local_name(&self, entry: EntryId) -> Option<String> {
        let name = self.debug.name(&self.debug.entry(entry)?)?;
        Some(format!("{name} (local)"))
    }

    /// Where type `kind` is declared, `file:line`; of Rust, whose debug info does not say, the module.
    /// Empty if that is not known either.
    pub(super) fn declared_at(&self, kind: EntryId) -> String {
        if let Some(known) = self.cache.declared.borrow().get(&kind) {
            return known.clone();
        }
        let place = self
            .debug
            .entry(kind)
            .and_then(|entry| self.debug.declared_at(&entry))
            .unwrap_or_else(|| match self.debug.language(kind.unit) {
                Some(gimli::DW_LANG_Rust) => {
                    let mut modules = names_around(self.debug, kind);
                    modules.reverse();
                    modules.join("::")
                }
                _ => String::new(),
            });
        self.cache.declared.borrow_mut().insert(kind, place.clone());
        place
    }

    /// The direct members of type `kind`, by offset; the columns that name the type are empty.
    pub(super) fn members(&self, kind: EntryId) -> Vec<TypeMember> {
        let layout = self.layouts.layout(kind);
        let Shape::Aggregate(parts) = &layout.shape else {
            return Vec::new();
        };
        let language = match self.debug.language(kind.unit) {
            Some(gimli::DW_LANG_Rust) => "rust",
            Some(
                gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17,
            ) => "c",
            Some(
                gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20,
            ) => "c++",
            Some(gimli::DW_LANG_Go) => "go",
            _ => "",
        };
        let mut members: Vec<TypeMember> = parts
            .iter()
            .map(|part| TypeMember {
                type_name: String::new(),
                type_size: 0,
                declared_at: String::new(),
                offset: part.offset,
                size: part.size,
                alignment: self.layouts.alignment(part.kind),
                bits: part.bits.map_or(0, |(_, bits)| bits),
                name: part.name.clone(),
                member_type: Types::new(self.debug).name(part.kind),
                language: language.to_owned(),
            })
            .collect();
        members.sort_by_key(|member| (member.offset, member.size));
        members
    }

    /// Why an access near `place`, which is in no variable, has no type.
    fn not_at(&self, place: u64) -> UntypedReason {
        match self.module.section(place) {
            Some((_, _, _, writable)) if !writable && place > 0 => UntypedReason::Constant,
            _ => UntypedReason::UnknownPointer,
        }
    }

    /// Why an access relative to a value of type `kind` is not in it.
    fn not_in(&self, kind: TypeId) -> UntypedReason {
        match self.layouts.layout(kind.0).shape {
            Shape::Incomplete => UntypedReason::IncompleteType,
            _ => UntypedReason::OutsideType,
        }
    }

    fn describe(
        &self,
        kind: EntryId,
        offset: u64,
        size: u64,
        times: u64,
        variable: String,
    ) -> Result<Touched, UntypedReason> {
        let (kind, offset, times) = self.layouts.element(kind, offset, times);
        let layout = self.layouts.layout(kind);
        if matches!(layout.shape, Shape::Incomplete) {
            return Err(UntypedReason::IncompleteType);
        }
        let mut leaves = self.layouts.leaves(kind, offset, size, times);
        // Of what lies over each other in a union, that which is as large as the access: a lock's word, not the
        // bytes that give its type a size. In Rust these are the variants, of which whole words are copied.
        let exact = |leaf: &Leaf| (leaf.offset, leaf.size) == (offset, size);
        let bits = leaves.iter().any(|leaf| leaf.bits);
        if !bits
            && leaves.iter().any(exact)
            && self.debug.language(kind.unit) != Some(gimli::DW_LANG_Rust)
        {
            leaves.retain(exact);
        }
        let Some(first) = leaves.first() else {
            // Padding, or an index that nothing says what it counts.
            return Err(UntypedReason::OutsideType);
        };
        // The index need not begin at zero.
        let offset = match times {
            0 => offset,
            _ => offset.min(first.offset),
        };
        let mut paths: Vec<&str> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
        paths.dedup();
        let field_type = match leaves.as_slice() {
            [_] => Types::new(self.debug).name(first.kind),
            _ => String::new(),
        };
        Ok(Touched {
            kind: layout.id.0,
            type_name: layout.name.clone(),
            type_size: layout.size,
            offset,
            size,
            path: paths
                .iter()
                .map(|path| path.trim_start_matches('.'))
                .collect::<Vec<_>>()
                .join(" | "),
            field_type,
            variable,
            through: String::new(),
            argument: None,
        })
    }

    /// The named static variable at `address`, before it its declared type and the distance from its start.
    fn static_variable(&self, address: u64) -> Option<(EntryId, u64, &'m StaticVariable)> {
        let info = self.module.debug()?;
        info.variables.before(address).find_map(|variable| {
            let entry = self.debug.entry(variable.entry)?;
            let kind = self.layouts.type_of(&entry)?;
            let size = match variable.piece_size {
                0 => self.layouts.layout(kind).size,
                size => size,
            };
            let within = address - variable.address;
            // A flexible array ends where the next variable starts.
            if within >= size && (size > 0 || within > 0) {
                return None;
            }
            self.debug.name(&entry)?;
            Some((kind, within + variable.piece_offset, variable))
        })
    }

    /// The function that holds `address`, analysed.
    fn function(&self, address: u64) -> Option<Rc<Analysed>> {
        let id = self.function_at(address)?;
        let known = self.cache.recent.borrow().iter().position(|it| it.id == id);
        let function = match known {
            Some(at) => self.cache.recent.borrow_mut().remove(at)?,
            None => Rc::new(self.analyse(id)?),
        };
        let mut recent = self.cache.recent.borrow_mut();
        recent.truncate(MOST_RECENT - 1);
        recent.push_front(Rc::clone(&function));
        Some(function)
    }

    fn analyse(&self, id: EntryId) -> Option<Analysed> {
        let functions = self.functions(id.unit);
        let entry = self.debug.entry(id)?;
        // The part where it begins comes first in the debug info's own order.
        let ranges = self.debug.ranges(&entry, functions.len().max(1));
        let mut scope = scope::read(self.debug, id, ranges);
        let length: u64 = scope
            .ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let code = (length <= MOST_CODE)
            .then(|| code::bytes_of(&scope.ranges, |at, length| self.module.code(at, length)))
            .and_then(|parts| Code::decode(&parts));
        let rows = self
            .module
            .frames()
            .map(|frames| {
                let mut rows: Vec<Row> = scope
                    .ranges
                    .iter()
                    .flat_map(|range| frames.rows(range))
                    .collect();
                rows.sort_by_key(|row| row.range.start);
                rows
            })
            .unwrap_or_default();
        scope.find_frame(&rows);
        // Asked for again and again.
        for variable in &mut scope.in_frame {
            let whole = || self.layouts.layout(variable.kind).size;
            variable.size = variable.size.or_else(|| Some(whole()));
        }
        let start = scope.ranges.first().map_or(0, |range| range.start);
        let signature = self.signature(start).unwrap_or_default();
        let mut function = Analysed {
            id,
            said: code
                .as_ref()
                .map_or_else(Vec::new, |code| Said::of(code, &scope, &rows)),
            code: None,
            scope,
            rows,
            states: Vec::new(),
            lent: Vec::new(),
            moved: Moved::default(),
            signature,
        };
        if let Some(code) = code {
            function.states = self.flow(&function, &code).run();
            function.lent = self.flow(&function, &code).lent(&function.states);
            // What lies in the frame is known when the code has been followed once; then what is loaded
            // from there is known as well.
            if !function.lent.is_empty() {
                function.states = self.flow(&function, &code).run();
            }
            function.moved = self.flow(&function, &code).moved(&function.states);
            function.code = Some(code);
        }
        Some(function)
    }

    fn function_at(&self, address: u64) -> Option<EntryId> {
        let units = self.cache.units.get_or_init(|| {
            let mut units: Vec<(Range, u32)> = self
                .debug
                .units()
                .filter(|(unit, types_only)| {
                    // Assemblers describe lines, and no variable.
                    !types_only && self.debug.language(*unit) != Some(gimli::DW_LANG_Mips_Assembler)
                })
                .flat_map(|(unit, _)| {
                    let ranges = self.debug.unit_ranges(unit, MOST_UNIT_RANGES);
                    ranges.into_iter().map(move |range| (range, unit))
                })
                .collect();
            units.sort_by_key(|(range, unit)| (range.start, *unit));
            units
        });
        // Units overlap in broken files only; then the nearest start is as good as any.
        nearest(units, address)
            .filter_map(|unit| nearest(&self.functions(unit), address).next())
            .next()
    }

    /// What the function that begins at `start` takes and returns.
    fn signature(&self, start: u64) -> Option<Rc<Signature>> {
        if let Some(known) = self.cache.signatures.borrow().get(&start) {
            return known.clone();
        }
        let signature = self
            .function_at(start)
            .filter(|id| {
                self.debug.entry(*id).is_some_and(|entry| {
                    self.debug.ranges(&entry, 1)[..]
                        .first()
                        .is_some_and(|it| it.start == start)
                })
            })
            .map(|id| Rc::new(calls::signature(&self.layouts, id, start)));
        self.cache
            .signatures
            .borrow_mut()
            .insert(start, signature.clone());
        signature
    }

    fn functions(&self, unit: u32) -> Functions {
        if let Some(known) = self.cache.functions.borrow().get(&unit) {
            return Rc::clone(known);
        }
        let functions = Rc::new(scope::functions(self.debug, unit));
        self.cache
            .functions
            .borrow_mut()
            .insert(unit, Rc::clone(&functions));
        functions
    }
}

impl Surroundings for Typer<'_, '_> {
    fn variable(&self, address: u64) -> Option<(EntryId, u64)> {
        let (kind, offset, _) = self.static_variable(address)?;
        Some((kind, offset))
    }

    fn linked(&self, address: u64) -> Option<u64> {
        self.module.linked(address)
    }

    fn target(&self, call: &Instruction) -> Option<u64> {
        let mut targets = self.cache.targets.borrow_mut();
        let target = targets.entry(call.ip());
        *target.or_insert_with(|| targets::target(self.module, call))
    }

    fn called(&self, start: u64) -> Option<Rc<Signature>> {
        self.signature(start)
    }

    fn returned(&self, start: u64) -> Option<Holder> {
        self.returned_by(start)
    }
}

/// What the ranges that hold `address` belong to, nearest start first; only the nearest few starts
/// are looked at.
fn nearest<T: Copy>(ranges: &[(Range, T)], address: u64) -> impl Iterator<Item = T> {
    const TRIES: usize = 16;
    let after = ranges.partition_point(|(range, _)| range.start <= address);
    ranges
        .get(..after)
        .unwrap_or_default()
        .iter()
        .rev()
        .take(TRIES)
        .filter(move |(range, _)| address < range.end)
        .map(|(_, owner)| *owner)
}

/// Whether `instruction` names the memory that it touches, other than relative to a segment.
fn explicit_memory(instruction: &Instruction) -> Result<(), UntypedReason> {
    // They compute an address, or nothing.
    if matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) {
        return Err(UntypedReason::NoInstruction);
    }
    let kinds = || (0..instruction.op_count()).map(|op| instruction.op_kind(op));
    if kinds().any(|kind| kind == OpKind::Memory) {
        return match instruction.memory_segment() {
            Register::FS | Register::GS => Err(UntypedReason::ThreadLocal),
            _ => Ok(()),
        };
    }
    if kinds().any(|kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRSI)) {
        return Ok(());
    }
    if instruction.is_stack_instruction() {
        return Err(UntypedReason::Stack);
    }
    Err(UntypedReason::NoInstruction)
}
