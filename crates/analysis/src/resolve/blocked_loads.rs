//! Loads whose store forwarding is blocked: they read at once what several stores wrote.
//!
//! A processor gives a load what a store before it wrote, while that store waits for its line, if this store wrote all of it. A load
//! of what several wrote (16 bytes of a struct whose members were set one by one) waits until they are in the cache, and, since
//! stores are done in their order, until all stores before them are: also those of the round before, to a line that another thread
//! has. Then the time of these is seen at the load (Intel, Optimization Reference Manual, "Store Forwarding").

use std::collections::{HashMap, HashSet};

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory};

use super::loops::Loop;
use super::typer::code::Code;
use super::typer::registers::RSP;

/// Stores of a loop that are looked at, at most.
const MOST_STORES: usize = 256;

/// Where a loop touches memory by a register that stays the same in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Iced's number.
    base: usize,
    displacement: u64,
    size: u64,
}

impl Place {
    /// That of an operand in memory; none where another register or a segment takes part.
    fn of(memory: &UsedMemory) -> Option<Self> {
        let is_plain = memory.index() == Register::None
            && memory.base().is_gpr64()
            && !matches!(memory.segment(), Register::FS | Register::GS);
        is_plain.then(|| Self {
            base: memory.base().number(),
            displacement: memory.displacement(),
            size: memory.memory_size().size() as u64,
        })
    }

    /// Where `other` begins in it, modulo 2^64.
    fn offset_of(&self, other: &Self) -> Option<u64> {
        (self.base == other.base).then(|| other.displacement.wrapping_sub(self.displacement))
    }

    fn holds(&self, other: &Self) -> bool {
        let offset = self.offset_of(other);
        offset.is_some_and(|it| it < self.size && other.size <= self.size - it)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.offset_of(other).is_some_and(|it| it < self.size)
            || other.offset_of(self).is_some_and(|it| it < other.size)
    }
}

/// What a loop writes.
#[derive(Default)]
struct Writes {
    stores: Vec<Place>,
    /// Iced's numbers.
    registers: HashSet<usize>,
}

/// A load, a store to other memory in its block, and whether the load is known to be blocked: else it is so where what it
/// reads is in the cache. Their addresses in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) load: u64,
    pub(super) store: u64,
    pub(super) proven: bool,
}

/// Each such load of those that `is_sampled`, with each store. `loops` come with the smallest first.
pub(super) fn blocked_loads(
    code: &Code,
    loops: &[Loop],
    is_sampled: impl Fn(u64) -> bool,
) -> Vec<Blocked> {
    let mut factory = InstructionInfoFactory::new();
    let mut written: HashMap<usize, Option<Writes>> = HashMap::new();
    let mut innermost: Vec<Option<usize>> = vec![None; code.blocks.len()];
    for (number, one) in loops.iter().enumerate() {
        for &block in &one.body {
            innermost[block].get_or_insert(number);
        }
    }
    let mut found = Vec::new();
    for (block, innermost) in code.blocks.iter().zip(innermost) {
        let instructions = code.instructions.get(block.instructions.clone());
        let instructions = instructions.unwrap_or_default();
        let loads: Vec<(u64, Place)> = (instructions.iter())
            .filter(|it| is_sampled(it.ip()))
            .filter_map(|it| Some((it.ip(), load_of(it, &mut factory)?)))
            .collect();
        if loads.is_empty() {
            continue;
        }
        let stores: Vec<(u64, Option<Place>)> = instructions
            .iter()
            .flat_map(|it| stores_of(it, &mut factory))
            .collect();
        let writes = innermost.and_then(|number| {
            let writes = written
                .entry(number)
                .or_insert_with(|| writes_of(code, &loops[number], &mut factory));
            writes.as_ref()
        });
        for (load, place) in loads {
            let proven = match writes {
                Some(writes) => writes.block(&place),
                // A function without a loop, as `memcpy` of little is called from one.
                None => place.may_be_blocked(),
            };
            let Some(proven) = proven else { continue };
            let others = stores
                .iter()
                .filter(|(_, store)| !store.is_some_and(|it| it.base == place.base));
            found.extend(others.map(|&(store, _)| Blocked {
                load,
                store,
                proven,
            }));
        }
    }
    found.dedup();
    found
}

impl Writes {
    /// Whether a load is known to get what several stores of the loop wrote, and none of them all of it; `None` if it does not.
    fn block(&self, load: &Place) -> Option<bool> {
        if self.registers.contains(&load.base) {
            return load.may_be_blocked();
        }
        let overlapping = || self.stores.iter().filter(|it| it.overlaps(load));
        match overlapping().next() {
            Some(_) => (!overlapping().any(|it| it.holds(load))).then_some(true),
            // Who is called may write it.
            None => load.may_be_blocked(),
        }
    }
}

impl Place {
    /// Whether it is more than most stores write, so that nobody knows: `Some(false)`.
    fn may_be_blocked(&self) -> Option<bool> {
        const LARGE: u64 = 16;
        (self.size >= LARGE).then_some(false)
    }
}

/// What a loop writes; `None` if that is too much.
fn writes_of(code: &Code, one: &Loop, factory: &mut InstructionInfoFactory) -> Option<Writes> {
    let mut writes = Writes::default();
    for &block in &one.body {
        for number in code.blocks.get(block)?.instructions.clone() {
            let instruction = code.instructions.get(number)?;
            let stores = stores_of(instruction, factory).into_iter();
            writes.stores.extend(stores.filter_map(|(_, place)| place));
            if writes.stores.len() > MOST_STORES {
                return None;
            }
            // Who was called gives the stack back as it was.
            let calls = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            let changed = code.written.get(number)?.registers();
            writes
                .registers
                .extend(changed.filter(|it| !(calls && *it == RSP)));
        }
    }
    Some(writes)
}

/// The stores of an instruction that only stores: its address, and where each goes if that is known.
fn stores_of(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> Vec<(u64, Option<Place>)> {
    if instruction.flow_control() != FlowControl::Next || instruction.is_stack_instruction() {
        return Vec::new();
    }
    let stores = factory.info(instruction).used_memory().iter();
    stores
        .filter(|it| matches!(it.access(), OpAccess::Write | OpAccess::ReadWrite))
        .map(|it| (instruction.ip(), Place::of(it)))
        .collect()
}

/// Where an instruction loads from, if that is all that it does in memory.
fn load_of(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Option<Place> {
    if instruction.is_stack_instruction() {
        return None;
    }
    match factory.info(instruction).used_memory() {
        [memory] if memory.access() == OpAccess::Read => Place::of(memory),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::loops::natural_loops;
    use super::*;

    fn found(bytes: &[u8]) -> Vec<(u64, u64)> {
        let code = Code::decode(&[(0x100, bytes.to_vec())]).expect("short enough");
        let known = |it: &Blocked| (it.proven).then_some((it.load, it.store));
        let all = blocked_loads(&code, &natural_loops(&code), |_| true);
        all.iter().filter_map(known).collect()
    }

    #[test]
    fn a_load_of_what_two_stores_wrote_waits_for_the_stores_of_its_loop() {
        // top: mov [rsp],rsi; mov [rsp+8],rdi; movdqa xmm0,[rsp]; movups [r9],xmm0; dec r8; jne top; ret
        let copy = |load: [u8; 5]| {
            [
                &[0x48, 0x89, 0x34, 0x24, 0x48, 0x89, 0x7c, 0x24, 0x08][..],
                &load,
                &[0x41, 0x0f, 0x11, 0x01, 0x49, 0xff, 0xc8, 0x75, 0xe9, 0xc3],
            ]
            .concat()
        };
        let both = copy([0x66, 0x0f, 0x6f, 0x04, 0x24]);
        assert_eq!(found(&both), [(0x109, 0x10e)]);
        // mov rdx,[rsp+8]: one of them wrote all of it.
        assert_eq!(found(&copy([0x48, 0x8b, 0x54, 0x24, 0x08])), []);
        // movdqa xmm0,[rsi]: who knows what is there.
        assert_eq!(found(&copy([0x66, 0x0f, 0x6f, 0x06, 0x90])), []);
        // Without a loop nothing says what ran before.
        let straight = [&both[..both.len() - 3], &[0xc3]].concat();
        assert_eq!(found(&straight), []);
    }

    #[test]
    fn a_large_load_may_be_blocked_by_what_is_called() {
        // top: movups xmm0,[rsp]; movups [r9],xmm0; mov rdx,[rsp+16]; call rbx; dec r8; jne top; ret
        let bytes = [
            0x0f, 0x10, 0x04, 0x24, 0x41, 0x0f, 0x11, 0x01, 0x48, 0x8b, 0x54, 0x24, 0x10, 0xff,
            0xd3, 0x49, 0xff, 0xc8, 0x75, 0xec, 0xc3,
        ];
        let code = Code::decode(&[(0x100, bytes.to_vec())]).expect("short enough");
        let blocked =
            |is_sampled: fn(u64) -> bool| blocked_loads(&code, &natural_loops(&code), is_sampled);
        let row = Blocked {
            load: 0x100,
            store: 0x104,
            proven: false,
        };
        assert_eq!(blocked(|_| true), [row]);
        assert_eq!(blocked(|ip| ip != 0x100), []);
    }

    #[test]
    fn where_the_register_changes_nothing_is_known() {
        // top: mov [rsi],rax; mov [rsi+8],rdi; movups xmm0,[rsi]; movups [r9],xmm0; add rsi,16; dec r8; jne top; ret
        let moved = [
            0x48, 0x89, 0x06, 0x48, 0x89, 0x7e, 0x08, 0x0f, 0x10, 0x06, 0x41, 0x0f, 0x11, 0x01,
            0x48, 0x83, 0xc6, 0x10, 0x49, 0xff, 0xc8, 0x75, 0xe9, 0xc3,
        ];
        assert_eq!(found(&moved), []);
    }
}
