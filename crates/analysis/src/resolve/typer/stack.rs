//! What lies in the frame of a function: variables that its debug info declares there, and objects
//! that functions which it calls are lent or return.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind};

use super::super::dwarf::EntryId;
use super::calls::Signature;
use super::flow::Flow;
use super::layout::TypeId;
use super::present::{Present, within};
use super::registers::{RDI, from_dwarf};
use super::scope::{Location, Variable};
use super::state::State;
use super::value::{Base, Value};

/// Objects of one frame that called functions tell of, at most.
const MOST_LENT: usize = 1024;

/// Iced's numbers of the registers of arguments: rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: [usize; 6] = [RDI, 6, 2, 1, 8, 9];
/// Bytes of an object in the frame that has no name, at most.
const NAMELESS: u64 = 64;

/// Whether `instruction` does nothing with its memory but write it.
pub(super) fn only_writes(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction);
    used.used_memory()
        .iter()
        .all(|memory| matches!(memory.access(), OpAccess::Write | OpAccess::CondWrite))
}

impl Flow<'_, '_, '_> {
    /// What a call of a function with `signature` leaves in the frame: `before` are the registers that it finds.
    pub(super) fn left_by(
        &self,
        present: &mut Present,
        before: &[Value; 16],
        signature: &Signature,
    ) {
        let mut put = |register: usize, plus: i64, kind: TypeId| {
            let value = before[register];
            if value.base == Base::Frame && value.times == 0 {
                present.put(value.plus.wrapping_add(plus), kind, self.layouts);
            }
        };
        for (register, plus, kind) in &signature.leads_to {
            if let Some(register) = from_dwarf(*register) {
                put(register, *plus, *kind);
            }
        }
        if signature.in_memory == Some(true)
            && let Some(returns) = signature.returns
        {
            put(RDI, 0, self.layouts.layout(returns).id);
        }
    }

    /// Forgets which memory of the frame the objects lead to that the call at `at` is given: a string that lies in itself
    /// at first is elsewhere when it has grown. What types they lead to stays.
    pub(super) fn may_change(&self, state: &mut State, at: u64) {
        let State {
            registers, slots, ..
        } = state;
        for register in ARGUMENTS {
            let value = registers[register];
            if value.base != Base::Frame || value.times != 0 {
                continue;
            }
            let (start, bytes) = match self.declared(at, value.plus, 1) {
                Some((variable, offset)) => (
                    value.plus.wrapping_sub_unsigned(offset),
                    self.layouts.layout(variable.kind).size,
                ),
                None => (value.plus, NAMELESS),
            };
            let end = start.saturating_add_unsigned(bytes);
            slots.retain(|slot, kept| kept.base != Base::Frame || slot < start || slot >= end);
        }
    }

    /// Forgets what is no longer there after instruction `number`, which is no call.
    pub(super) fn overwrite(&self, state: &mut State, number: usize, instruction: &Instruction) {
        if state.present == Present::default()
            || instruction.op_count() == 0
            || instruction.op_kind(0) != OpKind::Memory
        {
            return;
        }
        let Some(address) = self.operand_address(state, number) else {
            return;
        };
        let writes = self.code.written.get(number);
        if writes.is_some_and(|it| it.first_operand)
            && address.base == Base::Frame
            && address.times == 0
        {
            let size = instruction.memory_size().size() as u64;
            state.present.written(address.plus, size, self.layouts);
        }
    }

    /// What called functions say lies in the frame, given what is known at the start of each block:
    /// distance from the canonical frame address and type, sorted, each once.
    pub(super) fn lent(&self, states: &[State]) -> Vec<(i64, TypeId)> {
        let mut lent = Vec::new();
        for (block, state) in self.code.blocks.iter().zip(states) {
            let calls = |number: &usize| {
                self.code.instructions.get(*number).is_some_and(|it| {
                    matches!(
                        it.flow_control(),
                        FlowControl::Call | FlowControl::IndirectCall
                    )
                })
            };
            if !block.instructions.clone().any(|number| calls(&number)) {
                continue;
            }
            let mut state = state.clone();
            for number in block.instructions.clone() {
                self.settle(&mut state, number);
                if calls(&number) {
                    self.lent_by(&state, number, &mut lent);
                }
                self.step(&mut state, number);
            }
            if lent.len() > MOST_LENT {
                lent.sort_unstable();
                lent.dedup();
                lent.truncate(MOST_LENT);
            }
        }
        lent.sort_unstable();
        lent.dedup();
        lent
    }

    fn lent_by(&self, state: &State, number: usize, lent: &mut Vec<(i64, TypeId)>) {
        let Some(signature) = self
            .code
            .instructions
            .get(number)
            .and_then(|call| self.program.called(self.target(state, call)?))
        else {
            return;
        };
        let mut add = |register: usize, plus: i64, kind: TypeId| {
            let value = state.registers[register];
            if value.base == Base::Frame && value.times == 0 && self.layouts.layout(kind.0).size > 0
            {
                lent.push((value.plus.wrapping_add(plus), kind));
            }
        };
        for (register, plus, kind) in &signature.leads_to {
            if let Some(register) = from_dwarf(*register) {
                add(register, *plus, *kind);
            }
        }
        if signature.in_memory == Some(true)
            && let Some(returns) = signature.returns
        {
            add(RDI, 0, self.layouts.layout(returns).id);
        }
    }

    /// The variables that are anywhere in the code declared to hold the `size` bytes that begin `distance`
    /// bytes from the canonical frame address, the bytes of each, and how far that is from its start; with `address`
    /// those that are declared at the instruction there.
    fn in_frame(
        &self,
        distance: i64,
        size: u64,
        address: Option<u64>,
    ) -> impl Iterator<Item = (&Variable, u64, u64)> {
        self.scope.in_frame.iter().filter_map(move |variable| {
            let Location::Frame(start) = variable.place else {
                return None;
            };
            if address.is_some_and(|address| !variable.range.contains(&address)) {
                return None;
            }
            let bytes = variable.size?;
            let offset = within(start, bytes, distance)?.checked_add(variable.within)?;
            self.reaches(variable.kind, offset, size)
                .then_some((variable, bytes, offset))
        })
    }

    /// Whether a value of type `kind` holds `size` bytes at `offset`: what reaches beyond it touches something
    /// larger that has no name.
    fn reaches(&self, kind: EntryId, offset: u64, size: u64) -> bool {
        let end = self.layouts.layout(kind).size;
        end == 0 || offset.saturating_add(size) <= end
    }

    /// The variable that is declared to lie there at the instruction at `address`, and how far that is from
    /// its start. Of variables one in the other, as after inlining, the largest tells most.
    pub(super) fn declared(
        &self,
        address: u64,
        distance: i64,
        size: u64,
    ) -> Option<(&Variable, u64)> {
        self.in_frame(distance, size, Some(address))
            .max_by_key(|(variable, size, _)| (*size, variable.entry))
            .map(|(variable, _, offset)| (variable, offset))
    }

    /// What holds the `size` bytes that begin `distance` bytes from the canonical frame address, at the
    /// instruction at `address`: its declared type and the distance from its start.
    pub(super) fn frame_variable(
        &self,
        address: u64,
        distance: i64,
        size: u64,
    ) -> Option<(EntryId, u64)> {
        if let Some((variable, offset)) = self.declared(address, distance, size) {
            return Some((variable.kind, offset));
        }
        // Nothing is declared for this code. Compilers use memory of the frame again, so whoever else
        // says something about it must say the same.
        let mut said: Vec<(u64, EntryId, u64)> = self
            .in_frame(distance, size, None)
            .map(|(variable, bytes, offset)| (bytes, variable.kind, offset))
            .chain(self.lent.iter().filter_map(|(start, kind)| {
                let bytes = self.layouts.layout(kind.0).size;
                let offset = within(*start, bytes, distance)?;
                self.reaches(kind.0, offset, size)
                    .then_some((bytes, kind.0, offset))
            }))
            .collect();
        said.sort_by_key(|(size, kind, offset)| (std::cmp::Reverse((*size, *offset)), *kind));
        said.dedup();
        let holds_all = |(size, kind, offset): &(u64, EntryId, u64)| {
            let id = self.layouts.layout(*kind).id;
            said.iter().all(|(other_size, other, within)| {
                let other = self.layouts.layout(*other).id;
                let start = offset.wrapping_sub(*within);
                (start == 0 && self.layouts.same(id, other))
                    || (offset >= within
                        && size >= other_size
                        && self.layouts.holds(*kind, start, 0, other))
            })
        };
        said.iter()
            .find(|one| holds_all(one))
            .map(|(_, kind, offset)| (*kind, *offset))
    }
}
