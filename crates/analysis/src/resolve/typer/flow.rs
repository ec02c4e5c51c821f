//! What the registers hold at each instruction of a function: what the debug info says where it
//! says it, followed through the code from there.
//!
//! A forward data-flow analysis over the blocks of a function (Kildall, 1973) whose values are those
//! of [`super::value`]. The debug info has the last word where both say something, unless the code
//! knows the larger object: of `&p->count` the code knows that it lies in `*p`.

use std::collections::BTreeSet;
use std::rc::Rc;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::super::dwarf::EntryId;
use super::calls::{self, Signature};
use super::code::Code;
use super::frames::Row;
use super::holder::{Argument, Holder, Holders, Through};
use super::layout::{Layouts, Shape, TypeId};
use super::present::Present;
use super::registers::{RAX, RDI, RDX, RSP, from_dwarf, full};
use super::said::Said;
use super::scope::{Scope, Variable};
use super::slots::Slots;
use super::state::{MOST_SLOTS, State, learn};
use super::value::{Base, Value};

/// How often a block is looked at, at most: values only lose knowledge, so this is not reached.
const MOST_VISITS: u32 = 24;
/// Edges from computed jumps to blocks that nothing else leads to, at most.
const MOST_COMPUTED: usize = 200_000;
/// Variables that are alive at the beginnings of blocks, summed over blocks, at most.
const MOST_ALIVE: usize = 2_000_000;

/// Iced's numbers of registers that a call may overwrite: rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALL_CLOBBERS: [usize; 9] = [RAX, 1, RDX, 6, RDI, 8, 9, 10, 11];

/// The rest of the module, as far as the code of one function refers to it.
pub(super) trait Surroundings {
    /// The declared type of the static variable that holds `address`, and the distance from its start.
    fn variable(&self, address: u64) -> Option<(EntryId, u64)>;
    /// The address that the linker has put at `address`.
    fn linked(&self, address: u64) -> Option<u64>;
    /// Where `call` leads, if the code alone tells.
    fn target(&self, call: &Instruction) -> Option<u64>;
    /// What is known of the function that begins at `start`.
    fn called(&self, start: u64) -> Option<Rc<Signature>>;
    /// What holds the pointer that it returns, where it does nothing else of note.
    fn returned(&self, start: u64) -> Option<Holder>;
}

/// The analysis of one function.
pub(super) struct Flow<'f, 'd, 'a> {
    pub(super) code: &'f Code,
    pub(super) scope: &'f Scope,
    pub(super) rows: &'f [Row],
    pub(super) said: &'f [Said],
    pub(super) layouts: &'f Layouts<'d, 'a>,
    pub(super) holders: &'f Holders,
    pub(super) program: &'f dyn Surroundings,
    /// What its callers give it.
    pub(super) signature: &'f Signature,
    /// What called functions say is in the frame: distance and type.
    pub(super) lent: &'f [(i64, TypeId)],
}

impl Flow<'_, '_, '_> {
    /// What is known at the start of each block.
    pub(super) fn run(&self) -> Vec<State> {
        let blocks = &self.code.blocks;
        let successors = self.successors();
        let alive = self.alive();
        let mut states: Vec<Option<State>> = vec![None; blocks.len()];
        let mut visits = vec![0_u32; blocks.len()];
        // In the order of addresses, which is nearly the order of running.
        let mut queue: BTreeSet<usize> = BTreeSet::new();
        if let Some(state) = states.get_mut(self.code.entry) {
            *state = Some(self.at_entry());
        }
        queue.insert(self.code.entry);
        // What nothing is known to lead to comes last: what is not known there would be taken for what holds behind it.
        let mut unreached = 0..blocks.len();
        while let Some(number) = queue
            .pop_first()
            .or_else(|| unreached.find(|block| visits[*block] == 0))
        {
            if visits[number] >= MOST_VISITS {
                continue;
            }
            visits[number] += 1;
            let mut state = states[number]
                .clone()
                .unwrap_or_else(|| self.nothing_known(number));
            self.apply(&mut state, alive.get(number).map_or(&[], Vec::as_slice));
            states[number].get_or_insert_with(|| state.clone());
            for instruction in blocks[number].instructions.clone() {
                self.settle(&mut state, instruction);
                self.step(&mut state, instruction);
            }
            for &next in &successors[number] {
                let changed = match &mut states[next] {
                    Some(old) => self.join(old, &state, next),
                    None => {
                        states[next] = Some(state.clone());
                        true
                    }
                };
                if changed {
                    queue.insert(next);
                }
            }
        }
        states
            .into_iter()
            .enumerate()
            .map(|(number, state)| {
                let mut state = state.unwrap_or_else(|| self.nothing_known(number));
                self.apply(&mut state, alive.get(number).map_or(&[], Vec::as_slice));
                state
            })
            .collect()
    }

    /// What is known before instruction `number`, given what is at the start of each block.
    pub(super) fn before(&self, states: &[State], number: usize) -> Option<State> {
        let block = self.code.block_of(number)?;
        let mut state = states.get(block)?.clone();
        for instruction in self.code.blocks.get(block)?.instructions.clone() {
            self.settle(&mut state, instruction);
            if instruction == number {
                return Some(state);
            }
            self.step(&mut state, instruction);
        }
        None
    }

    /// The successors of each block; those of a computed jump are the blocks that nothing leads to.
    fn successors(&self) -> Vec<Vec<usize>> {
        let blocks = &self.code.blocks;
        let mut successors: Vec<Vec<usize>> =
            blocks.iter().map(|block| block.next.clone()).collect();
        let mut reached = vec![false; blocks.len()];
        for next in successors.iter().flatten() {
            reached[*next] = true;
        }
        let orphans: Vec<usize> = (0..blocks.len())
            .filter(|number| !reached[*number] && *number != self.code.entry)
            .collect();
        let computed: Vec<usize> = (0..blocks.len())
            .filter(|number| {
                let last = blocks[*number].instructions.end.checked_sub(1);
                last.and_then(|last| self.code.instructions.get(last))
                    .is_some_and(|last| last.flow_control() == FlowControl::IndirectBranch)
            })
            .collect();
        if orphans.len().saturating_mul(computed.len()) <= MOST_COMPUTED {
            for number in computed {
                successors[number].clone_from(&orphans);
            }
        }
        successors
    }

    /// The variables with a register that are alive where each block starts.
    fn alive(&self) -> Vec<Vec<&Variable>> {
        let mut waiting = self.scope.variables.iter().peekable();
        let mut active: Vec<&Variable> = Vec::new();
        let mut total = 0;
        let mut alive = Vec::new();
        for block in &self.code.blocks {
            let Some(start) = self.address(block.instructions.start) else {
                break;
            };
            while let Some(variable) = waiting.next_if(|variable| variable.range.start <= start) {
                active.push(variable);
            }
            active.retain(|variable| variable.range.end > start);
            total += active.len();
            if total > MOST_ALIVE {
                break;
            }
            alive.push(active.clone());
        }
        alive
    }

    fn address(&self, number: usize) -> Option<u64> {
        self.code.instructions.get(number).map(Instruction::ip)
    }

    fn nothing_known(&self, block: usize) -> State {
        let first = 0x4000_0000 | symbol(block, 0);
        State {
            registers: std::array::from_fn(|register| Value::unknown(first + register as u32)),
            slots: Slots::default(),
            present: Present::default(),
        }
    }

    fn at_entry(&self) -> State {
        let mut state = self.nothing_known(self.code.entry);
        // The return address is the last thing below the frame.
        state.registers[RSP] = Value::at(Base::Frame, -8);
        let signature = self.signature;
        if signature.in_memory == Some(true)
            && let Some(returns) = signature.returns
        {
            let layout = self.layouts.layout(returns);
            state.registers[RDI] = Value::at(Base::Typed(layout.id), 0);
        }
        for (register, plus, kind) in &signature.leads_to {
            if let Some(register) = from_dwarf(*register) {
                state.registers[register] = Value::at(Base::Typed(*kind), plus.wrapping_neg());
            }
        }
        for &(register, parameter) in &signature.pointers {
            if let Some(number) = from_dwarf(register) {
                state.registers[number].through = self.holders.number(Holder::Argument(Argument {
                    function: signature.start,
                    register,
                    parameter,
                }));
            }
        }
        state
    }

    /// Joins `new` into `old` at the start of block `number`; says whether that changed anything.
    fn join(&self, old: &mut State, new: &State, number: usize) -> bool {
        let mut changed = old.present.join(&new.present);
        for (register, (old, new)) in old.registers.iter_mut().zip(&new.registers).enumerate() {
            let met = 0x8000_0000 | symbol(number, register);
            let joined = old.join(*new, met, self.layouts);
            let joined = self.within_one(number, *old, *new, joined);
            changed |= joined != *old;
            *old = joined;
        }
        changed
            | old.slots.join(&new.slots, MOST_SLOTS, |slot, old, new| {
                let met = 0xc000_0000 | (symbol(number, 0) ^ (slot as u32 & 0xffff));
                let joined = old.join(new, met, self.layouts);
                self.within_one(number, old, new, joined)
            })
    }

    /// What `old` and `new` are together, `joined`, where both lead into the same variable: a loop goes through it from
    /// where `old` is. What remains of the two otherwise says nothing about where they lead.
    fn within_one(&self, block: usize, old: Value, new: Value, joined: Value) -> Value {
        let alike = old.base == joined.base && new.base == joined.base && joined.times != 0;
        let from_there =
            || (old.plus.wrapping_sub(joined.plus)).checked_rem(joined.times) == Some(0);
        if !alike || old.plus == joined.plus || !from_there() {
            return joined;
        }
        let first = self.code.blocks.get(block).map(|it| it.instructions.start);
        let at = first.and_then(|first| self.address(first));
        let variable = |value: Value| match value.base {
            Base::Frame => {
                let (variable, offset) = self.declared(at?, value.plus, 1)?;
                Some((variable.entry, value.plus.wrapping_sub_unsigned(offset)))
            }
            Base::Number => {
                let (kind, offset) = self.program.variable(u64::try_from(value.plus).ok()?)?;
                Some((kind, value.plus.wrapping_sub_unsigned(offset)))
            }
            _ => None,
        };
        match variable(old) {
            Some(one) if variable(new) == Some(one) => Value {
                plus: old.plus,
                ..joined
            },
            _ => joined,
        }
    }

    /// The address of the explicit memory operand of instruction `number`; `None` without one, or
    /// if it is relative to a segment.
    pub(super) fn operand_address(&self, state: &State, number: usize) -> Option<Value> {
        let instruction = self.code.instructions.get(number)?;
        let fresh = symbol(number, 15) | 0x2000_0000;
        let of = |register: Register| -> Value {
            if register == Register::None {
                return Value::constant(0);
            }
            full(register).map_or(Value::unknown(fresh), |register| state.registers[register])
        };
        let kinds = || (0..instruction.op_count()).map(|op| instruction.op_kind(op));
        if kinds().any(|kind| kind == OpKind::Memory) {
            if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
                return None;
            }
            let displacement = Value::constant(instruction.memory_displacement64() as i64);
            if instruction.is_ip_rel_memory_operand() {
                return Some(displacement);
            }
            let scale = i64::from(instruction.memory_index_scale());
            let index = of(instruction.memory_index());
            let index = if scale == 1 || index.is_number() {
                index.multiply(scale)
            } else {
                Value::unknown(fresh).multiply(scale)
            };
            return Some(
                of(instruction.memory_base())
                    .add(index, fresh)
                    .add(displacement, fresh),
            );
        }
        // String instructions: what is written counts, or else what is read.
        kinds()
            .find(|kind| matches!(kind, OpKind::MemoryESRDI))
            .map(|_| state.registers[RDI])
            .or_else(|| {
                kinds()
                    .find(|kind| matches!(kind, OpKind::MemorySegRSI))
                    .map(|_| state.registers[6])
            })
    }

    fn linked(&self, address: i64) -> Option<i64> {
        let linked = self.program.linked(u64::try_from(address).ok()?)?;
        i64::try_from(linked).ok()
    }

    /// What `size` bytes at `address` hold.
    fn load(&self, state: &State, address: Value, size: u64, at: u64, fresh: u32) -> Value {
        let unknown = Value::unknown(fresh);
        let times = address.times.unsigned_abs();
        // The type that they are in, where in it, and what holds them if that is none.
        let place = match address.base {
            Base::Frame => {
                if size == 8
                    && times == 0
                    && let Some(value) = state.slots.get(address.plus)
                {
                    return self.kept(value, at, address.plus);
                }
                let local = || {
                    let (variable, _) = self.declared(at, address.plus, size)?;
                    Some(Holder::Local(variable.entry))
                };
                self.frame_variable(at, address.plus, size)
                    .or_else(|| {
                        let known = times == 0;
                        known.then(|| state.present.at(address.plus, size, self.layouts))?
                    })
                    .map(|(kind, offset)| (kind, offset, times, local()))
            }
            Base::Typed(kind) => self
                .layouts
                .locate(kind, address.plus, times, size)
                .map(|(offset, times)| (kind.0, offset, times, None)),
            Base::Number if times == 0 && size == 8 && self.linked(address.plus).is_some() => {
                return self.linked(address.plus).map_or(unknown, Value::constant);
            }
            Base::Number => u64::try_from(address.plus).ok().and_then(|place| {
                let (kind, offset) = self.program.variable(place)?;
                Some((kind, offset, times, Some(Holder::Static(place))))
            }),
            Base::Conflict => None,
        };
        let Some((kind, offset, times, variable)) = place else {
            return unknown;
        };
        let holder = || self.layouts.holder(kind, offset, times).or(variable);
        match self.layouts.pointee(kind, offset, size, times) {
            Some(pointee) => Value {
                through: holder().map_or(address.through, |holder| self.holders.number(holder)),
                ..Value::at(Base::Typed(pointee), 0)
            },
            // Its type comes later: it is `void *`, or one of a union.
            None if size == 8 && self.layouts.has_pointer(kind, offset, times) => Value {
                through: holder().map_or(Through::UNKNOWN, |holder| self.holders.number(holder)),
                ..unknown
            },
            None => unknown,
        }
    }

    /// What instruction `number` makes of `state`.
    pub(super) fn step(&self, state: &mut State, number: usize) {
        let Some(instruction) = self.code.instructions.get(number) else {
            return;
        };
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                return self.call(state, number, instruction);
            }
            _ => {}
        }
        self.overwrite(state, number, instruction);
        if self.modelled(state, number, instruction).is_some() {
            return;
        }
        let written = self.code.written.get(number);
        for register in written.into_iter().flat_map(|it| it.registers()) {
            state.registers[register] = Value::unknown(symbol(number, register));
        }
    }

    fn call(&self, state: &mut State, number: usize, instruction: &Instruction) {
        let target = self.target(state, instruction);
        let signature = target.and_then(|start| self.program.called(start));
        if let Some(signature) = &signature {
            self.given(state, signature);
        }
        let result = state.registers[RDI];
        let before = state.registers;
        self.may_change(state, instruction.ip());
        if let Some(signature) = &signature {
            self.left_by(&mut state.present, &before, signature);
        }
        for register in CALL_CLOBBERS {
            state.registers[register] = Value::unknown(symbol(number, register));
        }
        let (returned, in_memory) = match signature.as_deref() {
            Some(Signature {
                returns: Some(kind),
                in_memory,
                ..
            }) => (*kind, *in_memory),
            Some(_) => return,
            None => {
                let calls = &self.scope.calls;
                let found = calls.binary_search_by_key(&instruction.next_ip(), |(back, _)| *back);
                let Some((_, kind)) = found.ok().and_then(|found| calls.get(found)) else {
                    return;
                };
                (*kind, calls::in_memory(self.layouts, *kind))
            }
        };
        match in_memory {
            // The address that the caller provided comes back.
            Some(true) if result.base == Base::Frame => state.registers[RAX] = result,
            Some(true) => {
                let layout = self.layouts.layout(returned);
                state.registers[RAX] = Value::at(Base::Typed(layout.id), 0);
            }
            Some(false) => {
                for (register, offset) in [(RAX, 0), (RDX, 8)] {
                    if let Some(pointee) = self.layouts.pointee(returned, offset, 8, 0) {
                        state.registers[register] = Value::at(Base::Typed(pointee), 0);
                    }
                }
                // Fields have names of their own.
                let number =
                    |kind: TypeId| matches!(self.layouts.layout(kind.0).shape, Shape::Scalar);
                if let Base::Typed(pointee) = state.registers[RAX].base
                    && number(pointee)
                    && let Some(start) = target
                {
                    state.registers[RAX].through = self.returned(&before, start);
                }
            }
            None => {}
        }
    }

    /// Brings in what a called function's debug info says that its parameters lead to.
    fn given(&self, state: &mut State, signature: &Signature) {
        for (register, plus, kind) in &signature.leads_to {
            let Some(register) = from_dwarf(*register) else {
                continue;
            };
            let old = state.registers[register];
            // Of a number or a byte the caller may know more.
            if !matches!(self.layouts.layout(kind.0).shape, Shape::Aggregate(_)) {
                continue;
            }
            let known = Value::at(Base::Typed(*kind), plus.wrapping_neg());
            learn(state, old, known);
        }
    }

    /// The value of operand `operand`, whose width is `size` bytes.
    fn operand(&self, state: &State, number: usize, operand: u32, fresh: u32) -> Option<Value> {
        let instruction = self.code.instructions.get(number)?;
        let narrow = |value: Value, size: usize| {
            if size == 8 || (size == 4 && value.is_number()) {
                value
            } else {
                Value::unknown(fresh)
            }
        };
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let value = state.registers[full(register)?];
                Some(narrow(value, register.size()))
            }
            OpKind::Memory => {
                let Some(address) = self.operand_address(state, number) else {
                    return Some(Value::unknown(fresh));
                };
                let size = instruction.memory_size().size() as u64;
                Some(self.load(state, address, size, instruction.ip(), fresh))
            }
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => {
                Some(Value::constant(instruction.immediate(operand) as i64))
            }
            _ => None,
        }
    }

    /// The instructions that compute addresses; `None` for all others.
    fn modelled(&self, state: &mut State, number: usize, instruction: &Instruction) -> Option<()> {
        if instruction.mnemonic() == Mnemonic::Push {
            let value = self.operand(state, number, 0, symbol(number, 15));
            let stack = state.registers[RSP].add(Value::constant(-8), 0);
            state.registers[RSP] = stack;
            if let Some(value) = value {
                store(state, stack, value);
            }
            return Some(());
        }
        if instruction.op_count() == 0 {
            return None;
        }
        if instruction.op_kind(0) == OpKind::Memory {
            // A store; exchanges load as well.
            if instruction.mnemonic() != Mnemonic::Mov {
                return None;
            }
            let address = self.operand_address(state, number)?;
            if instruction.memory_size().size() == 8 {
                let value = self.operand(state, number, 1, symbol(number, 15))?;
                store(state, address, value);
            }
            return Some(());
        }
        let target = instruction.op0_register();
        let register = full(target)?;
        let fresh = symbol(number, register);
        let unknown = Value::unknown(fresh);
        let old = state.registers[register];
        let second = |state: &State| self.operand(state, number, 1, fresh);
        let same = instruction.op_count() == 2
            && instruction.op_kind(1) == OpKind::Register
            && instruction.op1_register() == target;
        let value = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd => second(state)?,
            Mnemonic::Lea => self.operand_address(state, number)?,
            Mnemonic::Xor | Mnemonic::Sub if same => Value::constant(0),
            Mnemonic::Add => old.add(second(state)?, fresh),
            Mnemonic::Sub => old.subtract(second(state)?, fresh),
            Mnemonic::Inc => old.add(Value::constant(1), fresh),
            Mnemonic::Dec => old.add(Value::constant(-1), fresh),
            Mnemonic::Shl | Mnemonic::Sal => match second(state)?.as_constant() {
                Some(bits @ 0..=32) if old.is_number() => old.multiply(1 << bits),
                _ => unknown,
            },
            Mnemonic::Imul if instruction.op_count() == 3 => {
                let factor = self.operand(state, number, 2, fresh)?.as_constant()?;
                let value = second(state)?;
                if value.is_number() {
                    value.multiply(factor)
                } else {
                    unknown
                }
            }
            // Masks that clear the low bits: a pointer with flags in it.
            Mnemonic::And => match second(state)?.as_constant() {
                Some(-64..=-2) if matches!(old.base, Base::Typed(_)) => old,
                _ => unknown,
            },
            Mnemonic::Xchg if instruction.op_kind(1) == OpKind::Register => {
                let other = full(instruction.op1_register())?;
                if target.size() == 8 {
                    state.registers.swap(register, other);
                } else {
                    state.registers[other] = Value::unknown(symbol(number, other));
                    state.registers[register] = unknown;
                }
                return Some(());
            }
            Mnemonic::Pop => {
                let stack = state.registers[RSP];
                let value = self.load(state, stack, 8, instruction.ip(), fresh);
                state.registers[RSP] = stack.add(Value::constant(8), 0);
                value
            }
            _ if is_conditional_move(instruction) => old.join(second(state)?, fresh, self.layouts),
            _ => return None,
        };
        state.registers[register] = match target.size() {
            8 => value,
            4 if value.is_number() => value,
            _ => unknown,
        };
        Some(())
    }
}

/// Remembers `value` if `address` is on the stack.
fn store(state: &mut State, address: Value, value: Value) {
    if address.base != Base::Frame || address.times != 0 {
        return;
    }
    // A constant is often what a variable is cleared with before somebody else fills it.
    if value.as_constant().is_some() {
        state.slots.remove(address.plus);
    } else {
        state.slots.put(address.plus, value, MOST_SLOTS);
    }
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp,
        Cmovns, Cmovo, Cmovp, Cmovs,
    };
    matches!(
        instruction.mnemonic(),
        Cmova
            | Cmovae
            | Cmovb
            | Cmovbe
            | Cmove
            | Cmovg
            | Cmovge
            | Cmovl
            | Cmovle
            | Cmovne
            | Cmovno
            | Cmovnp
            | Cmovns
            | Cmovo
            | Cmovp
            | Cmovs
    )
}

/// A name for what instruction or block `number` leaves unknown in `register`.
fn symbol(number: usize, register: usize) -> u32 {
    (((number << 4) | register) as u32 & 0x1fff_ffff) + 1
}
