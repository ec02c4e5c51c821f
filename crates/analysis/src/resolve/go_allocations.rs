//! Where the code of a Go program allocates values of a type. Nobody records Go's blocks, but the compiler gives each call of the
//! allocator the address of the type's descriptor, which debug info names (`DW_AT_go_runtime_type`): so the code says where a
//! type is allocated, without anything being done to the program.

use std::collections::HashMap;

use gimli::{AttributeValue, DW_TAG_array_type, DW_TAG_typedef, DwAt};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};

use super::dwarf::{Debug, EntryId};
use super::modules::Module;
use super::types::Types;

/// Where a type's descriptor lies, counted from the symbol `TYPES`. See `cmd/internal/dwarf`.
const DW_AT_GO_RUNTIME_TYPE: DwAt = DwAt(0x2904);
const TYPES: &str = "runtime.types";

/// Bytes of code that are looked at at once, and what a reference and its call have at most.
const CHUNK: u64 = 1 << 20;
const REACH: u64 = 96;
/// Instructions from a reference to its call.
const STEPS: usize = 16;
/// Bytes of `lea register, [rip + distance]`.
const LEA: usize = 7;
/// Typedefs around a type.
const NAMES: usize = 4;

/// The calls that allocate values of the `types` of a module, or arrays of them: the number of the type, and where the call
/// stands, in the module's own address space, in the order of the code. Empty where the module is not Go's, not for x86-64, or has no
/// symbols.
pub(super) fn allocations(module: &Module<'_>, types: &[EntryId]) -> Vec<(usize, u64)> {
    let Some(descriptors) = descriptors(module, types).filter(|it| !it.is_empty()) else {
        return Vec::new();
    };
    let mut calls = Vec::new();
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
            calls.extend(chunk.calls(&descriptors));
            start = start.saturating_add(CHUNK);
        }
    }
    calls
}

/// Which of the `types`, or an array of which, each descriptor describes, by its address in the module.
fn descriptors(module: &Module<'_>, types: &[EntryId]) -> Option<HashMap<u64, usize>> {
    if !module.is_go() || !module.is_x86() {
        return None;
    }
    let debug = &module.debug()?.debug;
    let base = module.symbols().address_of(TYPES)?;
    let descriptor = |value: Option<AttributeValue<_>>| match value? {
        AttributeValue::Addr(offset) => Some(offset),
        value => value.udata_value(),
    };
    let address = |value| {
        // Of what has no descriptor it is 0.
        let offset = descriptor(value).filter(|it| *it > 0)?;
        base.checked_add(offset)
    };
    let mut found = HashMap::new();
    let mut units: Vec<u32> = Vec::new();
    for (number, kind) in types.iter().enumerate() {
        let entry = debug.entry(*kind)?;
        found.extend(address(entry.value(DW_AT_GO_RUNTIME_TYPE)).map(|it| (it, number)));
        units.push(kind.unit);
    }
    units.sort_unstable();
    units.dedup();
    for unit in units {
        debug.visit_tag(unit, DW_TAG_array_type, |array| {
            let element = Types::new(debug)
                .type_of(array)
                .map(|it| without_names(debug, it));
            let number = types.iter().position(|it| Some(*it) == element);
            let address = number.and_then(|_| address(array.value(DW_AT_GO_RUNTIME_TYPE)));
            found.extend(address.zip(number));
        });
    }
    Some(found)
}

/// The type that has a name, without its names.
fn without_names(debug: &Debug<'_>, kind: EntryId) -> EntryId {
    let mut kind = kind;
    for _ in 0..NAMES {
        let entry = debug.entry(kind).filter(|it| it.tag == DW_TAG_typedef);
        let Some(named) = entry.and_then(|it| Types::new(debug).type_of(&it)) else {
            break;
        };
        kind = named;
    }
    kind
}

/// Code that is searched for references: the first `CHUNK` bytes, what is behind is for their calls.
struct Chunk<'m, 'a> {
    module: &'m Module<'a>,
    start: u64,
    code: &'m [u8],
}

impl Chunk<'_, '_> {
    fn calls(&self, descriptors: &HashMap<u64, usize>) -> Vec<(usize, u64)> {
        let mut calls = Vec::new();
        let starts = self.code.windows(LEA).take(CHUNK as usize).enumerate();
        for (at, bytes) in starts {
            // REX.W, lea, a register and a distance from the next instruction.
            let &[rex, 0x8d, registers, a, b, c, d] = bytes else {
                continue;
            };
            if rex & 0xf8 != 0x48 || registers & 0xc7 != 0x05 {
                continue;
            }
            let distance = i32::from_le_bytes([a, b, c, d]);
            let next = self.start + (at + LEA) as u64;
            let target = next.wrapping_add_signed(distance.into());
            let call = descriptors
                .get(&target)
                .and_then(|number| Some((*number, self.call(at)?)));
            calls.extend(call);
        }
        calls
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
