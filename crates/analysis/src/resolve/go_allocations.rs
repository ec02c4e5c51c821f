//! Where the code of a Go program allocates values of a type. Nobody records Go's blocks, but the compiler gives each call of the
//! allocator the address of the type's descriptor, which debug info names (`DW_AT_go_runtime_type`): so the code says where a
//! type is allocated, without anything being done to the program. Descriptors say what lies in a type, so calls that allocate a type
//! around it are found, too.

use std::collections::{BTreeMap, HashMap};

use gimli::{AttributeValue, DwAt};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};

use super::dwarf::EntryId;
use super::modules::Module;

/// Where a type's descriptor lies, counted from the symbol `TYPES`. See `cmd/internal/dwarf`.
const DW_AT_GO_RUNTIME_TYPE: DwAt = DwAt(0x2904);
/// Where descriptors begin and end.
const TYPES: &str = "runtime.types";
const TYPES_END: &str = "runtime.etypes";
/// Bytes of descriptors that are read, at most.
const MOST_BYTES: u64 = 64 << 20;

/// Where a descriptor has the size and the kind of its type, what elements an array has, and where the fields of a struct are and
/// how many; a field has its type behind its name. See `internal/abi/type.go`.
const SIZE: u64 = 0;
const KIND: u64 = 23;
const KIND_BITS: u8 = 0x1f;
const ARRAY: u8 = 17;
const STRUCT: u8 = 25;
const ELEMENT: u64 = 48;
const FIELDS: u64 = 56;
const FIELD_COUNT: u64 = 64;
const FIELD_BYTES: u64 = 24;
const FIELD_TYPE: u64 = 8;
/// Fields that are looked at, types within each other, and types that are looked into in all.
const MOST_FIELDS: u64 = 1000;
const DEPTH: u32 = 16;
const MOST_LOOKS: u32 = 1_000_000;

/// A type that more calls allocate is everywhere: none of them says where an object is from.
const MOST_CALLS: usize = 16;

/// Bytes of code that are looked at at once, and what a reference and its call have at most.
const CHUNK: u64 = 1 << 20;
const REACH: u64 = 96;
/// Instructions from a reference to its call.
const STEPS: usize = 16;
/// Bytes of `lea register, [rip + distance]`.
const LEA: usize = 7;

/// The calls that allocate values of the `types` of a module, or of types that hold them: the number of the type, and where the call
/// stands, in the module's own address space. Of a type with many none. Empty where the module is not Go's, not for x86-64, or has no
/// symbols.
pub(super) fn allocations(module: &Module<'_>, types: &[EntryId]) -> Vec<(usize, u64)> {
    let Some(mut descriptors) = Descriptors::new(module, types) else {
        return Vec::new();
    };
    let mut calls: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for segment in module.segments().iter().filter(|it| it.executable) {
        let mut start = segment.address;
        let end = segment.address.saturating_add(segment.file_size);
        while start < end
            && let Some(code) = module.code(start, CHUNK + REACH)
        {
            let chunk = Chunk {
                module,
                start,
                code: &code,
            };
            for (descriptor, at) in chunk.references() {
                let held = descriptors.held_by(descriptor);
                let Some(call) = held.first().and_then(|_| chunk.call(at)) else {
                    continue;
                };
                for &number in held {
                    calls.entry(number).or_default().push(call);
                }
            }
            start = start.saturating_add(CHUNK);
        }
    }
    calls.retain(|_, calls| calls.len() <= MOST_CALLS);
    (calls.into_iter())
        .flat_map(|(number, calls)| calls.into_iter().map(move |call| (number, call)))
        .collect()
}

/// The descriptors of a module's types.
struct Descriptors<'m, 'a> {
    module: &'m Module<'a>,
    /// Where they begin, and they.
    start: u64,
    bytes: Vec<u8>,
    /// The numbers of the wanted types, by their descriptors.
    wanted: HashMap<u64, usize>,
    /// The size of the smallest of these.
    smallest: u64,
    /// The numbers of the wanted types that are in a type, by its descriptor.
    held: HashMap<u64, Vec<usize>>,
    looks: u32,
}

impl<'m, 'a> Descriptors<'m, 'a> {
    /// Those of a module of Go, where one of the `types` has one.
    fn new(module: &'m Module<'a>, types: &[EntryId]) -> Option<Self> {
        if !module.is_go() || !module.is_x86() {
            return None;
        }
        let debug = &module.debug()?.debug;
        let start = module.symbols().address_of(TYPES)?;
        let end = module.symbols().address_of(TYPES_END)?;
        let mut wanted = HashMap::new();
        for (number, kind) in types.iter().enumerate() {
            let Some(entry) = debug.entry(*kind) else {
                continue;
            };
            // A type without a package is everywhere.
            let is_named = debug.name(&entry).is_some_and(|name| name.contains('.'));
            let offset = match entry.value(DW_AT_GO_RUNTIME_TYPE) {
                Some(AttributeValue::Addr(offset)) => Some(offset),
                value => value.and_then(|value| value.udata_value()),
            };
            // Of what has no descriptor it is 0.
            let offset = offset.filter(|offset| is_named && *offset > 0);
            wanted.extend(offset.and_then(|it| Some((start.checked_add(it)?, number))));
        }
        if wanted.is_empty() {
            return None;
        }
        let bytes = module.bytes(start, end.checked_sub(start)?.min(MOST_BYTES))?;
        let mut descriptors = Self {
            module,
            start,
            bytes,
            wanted,
            smallest: 0,
            held: HashMap::new(),
            looks: 0,
        };
        let sizes = descriptors.wanted.keys();
        let sizes = sizes.filter_map(|it| descriptors.number(it.checked_add(SIZE)?));
        descriptors.smallest = sizes.min()?;
        Some(descriptors)
    }

    /// The numbers of the wanted types that are in the type of a descriptor, itself among them; none where it is no descriptor.
    fn held_by(&mut self, descriptor: u64) -> &[usize] {
        let is_one = descriptor.is_multiple_of(8)
            && (descriptor.checked_sub(self.start)).is_some_and(|it| it < self.bytes.len() as u64);
        if !is_one {
            return &[];
        }
        if !self.held.contains_key(&descriptor) {
            let mut found = Vec::new();
            self.look(descriptor, DEPTH, &mut found);
            found.sort_unstable();
            found.dedup();
            self.held.insert(descriptor, found);
        }
        &self.held[&descriptor]
    }

    /// Adds the wanted types that are in the type of a descriptor.
    fn look(&mut self, descriptor: u64, depth: u32, found: &mut Vec<usize>) -> Option<()> {
        found.extend(self.wanted.get(&descriptor));
        self.looks += 1;
        let is_small = self.number(descriptor.checked_add(SIZE)?)? < self.smallest;
        if is_small || depth == 0 || self.looks > MOST_LOOKS {
            return None;
        }
        match self.byte(descriptor.checked_add(KIND)?)? & KIND_BITS {
            ARRAY => {
                let element = self.pointer(descriptor.checked_add(ELEMENT)?)?;
                self.look(element, depth - 1, found)
            }
            STRUCT => {
                let fields = self.pointer(descriptor.checked_add(FIELDS)?)?;
                let count = self.number(descriptor.checked_add(FIELD_COUNT)?)?;
                for number in 0..count.min(MOST_FIELDS) {
                    let field = fields.checked_add(number * FIELD_BYTES)?;
                    let kind = self.pointer(field.checked_add(FIELD_TYPE)?)?;
                    self.look(kind, depth - 1, found);
                }
                Some(())
            }
            _ => None,
        }
    }

    fn byte(&self, address: u64) -> Option<u8> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(at).copied()
    }

    fn number(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// An address, which in a program that can lie anywhere the loader writes.
    fn pointer(&self, address: u64) -> Option<u64> {
        let there = self.number(address).filter(|it| *it > 0);
        there.or_else(|| self.module.linked(address))
    }
}

/// Code that is searched for references: the first `CHUNK` bytes, what is behind is for their calls.
struct Chunk<'m, 'a> {
    module: &'m Module<'a>,
    start: u64,
    code: &'m [u8],
}

impl Chunk<'_, '_> {
    /// What `lea` takes the address of, with the byte at which that stands.
    fn references(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let starts = self.code.windows(LEA).take(CHUNK as usize).enumerate();
        starts.filter_map(|(at, bytes)| {
            // REX.W, lea, a register and a distance from the next instruction.
            let &[rex, 0x8d, registers, a, b, c, d] = bytes else {
                return None;
            };
            if rex & 0xf8 != 0x48 || registers & 0xc7 != 0x05 {
                return None;
            }
            let distance = i32::from_le_bytes([a, b, c, d]);
            let next = self.start + (at + LEA) as u64;
            Some((next.wrapping_add_signed(distance.into()), at))
        })
    }

    /// The call of the allocator to which the reference at byte `at` goes.
    fn call(&self, at: usize) -> Option<u64> {
        let code = self.code.get(at..)?;
        let ip = self.start + at as u64;
        let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
        let register = decoder.decode().op0_register();
        let mut factory = InstructionInfoFactory::new();
        for _ in 0..STEPS {
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::Call => {
                    let callee = self
                        .module
                        .symbols()
                        .function(instruction.near_branch_target())?;
                    let takes = type_arguments(&self.module.symbols().name(callee));
                    return takes.contains(&register).then(|| instruction.ip());
                }
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                _ => return None,
            }
            if instruction.is_invalid() || writes(&instruction, register, &mut factory) {
                return None;
            }
        }
        None
    }
}

/// Whether an instruction writes a register, or a part of it.
fn writes(
    instruction: &Instruction,
    register: Register,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let used = factory.info(instruction).used_registers().iter();
    used.filter(|it| it.register().full_register() == register)
        .any(|it| {
            !matches!(
                it.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        })
}

/// The register in which a function of the allocator, by its name, takes the type (ABIInternal: arguments come in RAX, RBX, RCX, RDI,
/// RSI and so on); none of all others. See `runtime/malloc.go`, `runtime/slice.go`, `runtime/iface.go`.
fn type_arguments(function: &str) -> &'static [Register] {
    match function.strip_prefix("runtime.").unwrap_or_default() {
        "newobject" | "makeslice" | "makeslice64" | "makeslicecopy" | "convT" | "convTnoptr" => {
            &[Register::RAX]
        }
        // It came first before Go 1.20.
        "growslice" => &[Register::RSI, Register::RAX],
        // Of sizes of their own, too, since Go 1.26.
        function if function.starts_with("mallocgc") => &[Register::RBX],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_is_known_by_where_it_takes_the_type() {
        assert_eq!(type_arguments("runtime.newobject"), [Register::RAX]);
        let of_a_size = "runtime.mallocgcSmallScanNoHeaderSC4";
        assert_eq!(type_arguments(of_a_size), [Register::RBX]);
        for other in ["runtime.assertE2I", "main.newobject", "newobject"] {
            assert_eq!(type_arguments(other), []);
        }
    }
}
