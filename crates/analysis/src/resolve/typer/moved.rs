//! Parts of values that are on their way through unnamed memory of the frame.
//!
//! Optimisers take a struct apart and keep what fits no register in memory that no variable names:
//! seven bytes of an enumeration behind its tag, sixteen of a result. The code tells what such memory
//! holds by copies: what is loaded from a value and stored here unchanged, or loaded here and stored
//! into a value, is a part of it, also by way of other such memory.
//!
//! ```text
//! mov eax,[r14]        r14 leads to bytes 1 to 4 of a `Dynamic`
//! mov [rsp+0x28],eax   so these four bytes are those of a `Dynamic` ...
//! mov eax,[rsp+0x28]
//! mov [rsp+0x10],eax   ... and these
//! ```
//!
//! What one instruction loads and another stores right after tells of both, whatever the memory is used
//! for elsewhere. By way of other memory it tells only where no other code writes there.
//!
//! A spilled register is not taken for the member that it was loaded from: what is one member by itself
//! counts only on its way from one value into another of the same type, or beside other parts of the same
//! value. It is taken for the variable that the debug info says it holds, whole or a piece. What copies
//! disagree about is left alone.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::super::dwarf::EntryId;
use super::flow::Flow;
use super::layout::Shape;
use super::registers::from_dwarf;
use super::scope::{Location as Scoped, Variable};
use super::state::State;
use super::value::{Base, Value};

/// Members in members that are followed.
const DEEPEST: u32 = 16;
/// Copies of one function that are remembered, at most.
const MOST_COPIES: usize = 20_000;
/// Rounds in which what is known of memory is handed on, at most.
const MOST_ROUNDS: usize = 8;
/// Variables of one function that are looked at for what registers hold, at most.
const MOST_LOOKED_AT: usize = 5_000_000;
/// Values that one place is said to be a part of, at most: more are no part of one.
const MOST_SAID: usize = 16;

/// Memory of the frame: distance from the canonical frame address, bytes.
type Slot = (i64, u64);
/// A part of a value: its type, and where the part begins in it.
type Part = (EntryId, u64);

/// Unnamed memory of a frame that holds parts of values.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// At which instruction: address of the code, the memory, and of what it is a part.
    by_code: BTreeMap<u64, (Slot, Part)>,
    /// At all of them.
    always: Vec<(Slot, Part)>,
}

/// Where bytes come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Slot(Slot),
    Part(Part, u64),
}

/// What a register holds: bytes of memory, and the address of the instruction that loaded them.
#[derive(Clone, Copy, Debug)]
struct Held {
    place: Storage,
    loaded_at: u64,
}

/// What is known within a block.
#[derive(Default)]
struct Now {
    registers: HashMap<Register, Held>,
    /// Memory that was filled with a part of a value and not written since.
    slots: Vec<(Slot, Part)>,
}

impl Now {
    fn part_in(&self, slot: Slot) -> Option<Part> {
        self.slots
            .iter()
            .find(|(known, _)| *known == slot)
            .map(|(_, part)| *part)
    }
}

impl Storage {
    fn size(self) -> u64 {
        match self {
            Self::Slot((_, size)) | Self::Part(_, size) => size,
        }
    }
}

/// What is known of unnamed memory.
#[derive(Default)]
struct Copies {
    from: BTreeMap<Slot, BTreeSet<Part>>,
    to: BTreeMap<Slot, BTreeSet<Part>>,
    between: BTreeSet<(Slot, Slot)>,
    /// What single instructions move from or to memory.
    by_code: BTreeMap<u64, (Slot, BTreeSet<Part>)>,
    /// Memory that variables are put into, and by which instruction.
    variables: BTreeMap<Slot, BTreeSet<Part>>,
    spilled: BTreeMap<u64, (Slot, Part)>,
    /// Memory that is written otherwise.
    otherwise: BTreeSet<Slot>,
}

impl Copies {
    /// Notes that the instruction at `address` moves `part` from or to `slot`.
    fn at(&mut self, address: u64, slot: Slot, part: Part) {
        let known = self.by_code.entry(address);
        let (_, parts) = known.or_insert_with(|| (slot, BTreeSet::new()));
        if parts.len() < MOST_SAID {
            parts.insert(part);
        }
    }

    /// Hands on what is known along the copies from slot to slot.
    fn close(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let mut changed = false;
            for (source, target) in &self.between {
                changed |= hand_on(&mut self.from, *source, *target);
                changed |= hand_on(&mut self.to, *target, *source);
            }
            if !changed {
                return;
            }
        }
    }
}

fn hand_on(known: &mut BTreeMap<Slot, BTreeSet<Part>>, source: Slot, target: Slot) -> bool {
    let Some(parts) = known.get(&source).cloned() else {
        return false;
    };
    let there = known.entry(target).or_default();
    let before = there.len();
    if before < MOST_SAID {
        there.extend(parts);
    }
    there.len() > before
}

impl Flow<'_, '_, '_> {
    /// The unnamed memory of the frame that holds parts of values, given what is known at the start of
    /// each block.
    pub(super) fn moved(&self, states: &[State]) -> Moved {
        let mut copies = Copies::default();
        let mut factory = InstructionInfoFactory::new();
        let holders = Holders::new(self);
        for (block, state) in self.code.blocks.iter().zip(states) {
            let mut state = state.clone();
            let mut now = Now::default();
            for number in block.instructions.clone() {
                self.settle(&mut state, number);
                if let Some(instruction) = self.code.instructions.get(number) {
                    self.stored(&state, number, instruction, &holders, &mut now, &mut copies);
                    let loaded = self.loaded(&state, number, instruction, &now, &mut copies);
                    forget(instruction, &mut now, &mut factory);
                    now.registers.extend(loaded);
                }
                self.step(&mut state, number);
            }
            if copies.between.len() + copies.by_code.len() > MOST_COPIES {
                break;
            }
        }
        copies.close();
        self.decide(&copies)
    }

    /// What the copies of a function say together.
    fn decide(&self, copies: &Copies) -> Moved {
        let nothing = BTreeSet::new();
        let slots: BTreeSet<Slot> = [&copies.from, &copies.to, &copies.variables]
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        let lonely = |slot: &Slot| !copies.otherwise.iter().any(|other| overlap(*slot, *other));
        let mut always = Vec::new();
        let mut by_code = copies.spilled.clone();
        // Single members, which count beside other parts of the same value only.
        let (mut members, mut members_by_code) = (Vec::new(), Vec::new());
        for slot in slots.into_iter().filter(lonely) {
            let of = |known: &BTreeMap<Slot, BTreeSet<Part>>| -> BTreeSet<Part> {
                known.get(&slot).cloned().unwrap_or_default()
            };
            let (from, to, variables) = (of(&copies.from), of(&copies.to), of(&copies.variables));
            if !variables.is_empty() {
                // From elsewhere, too: the same memory for several things.
                if from.is_empty() && to.is_empty() {
                    always.extend(self.one_of(&variables).map(|part| (slot, part)));
                }
                continue;
            }
            match self.agreed(&from, &to, slot.1) {
                Some((part, true)) => always.push((slot, part)),
                Some((part, false)) => members.push((slot, part)),
                None => {}
            }
        }
        for (address, (slot, parts)) in &copies.by_code {
            match self.agreed(parts, &nothing, slot.1) {
                Some((part, true)) => {
                    by_code.insert(*address, (*slot, part));
                }
                Some((part, false)) => members_by_code.push((*address, (*slot, part))),
                None => {}
            }
        }
        let begins = |(slot, part): &(Slot, Part)| {
            let name = self.layouts.layout(part.0).name.clone();
            (slot.0.wrapping_sub_unsigned(part.1), name)
        };
        let values: BTreeSet<(i64, String)> =
            always.iter().chain(by_code.values()).map(begins).collect();
        members.retain(|member| values.contains(&begins(member)));
        members_by_code.retain(|(_, member)| values.contains(&begins(member)));
        always.extend(members);
        by_code.extend(members_by_code);
        Moved { by_code, always }
    }

    /// The only one of `parts`, if all are the same.
    fn one_of(&self, parts: &BTreeSet<Part>) -> Option<Part> {
        let (kind, offset) = *parts.first()?;
        let id = self.layouts.layout(kind).id;
        parts
            .iter()
            .all(|(other, at)| {
                *at == offset && self.layouts.same(id, self.layouts.layout(*other).id)
            })
            .then_some((kind, offset))
    }

    /// Of what value the `size` bytes `distance` from the canonical frame address are a part for the
    /// instruction at `address`: its type, and the distance from its start. All that speaks of these
    /// bytes must say the same.
    pub(super) fn part_at(
        &self,
        moved: &Moved,
        address: u64,
        distance: i64,
        size: u64,
    ) -> Option<Part> {
        let access = (distance, size.max(1));
        if let Some((slot, part)) = moved.by_code.get(&address)
            && *slot == access
        {
            return Some(*part);
        }
        let mut said = moved.always.iter().filter(|it| overlap(it.0, access));
        let (slot, part) = said.next()?;
        let start = slot.0.checked_sub_unsigned(part.1)?;
        let kind = self.layouts.layout(part.0);
        let same = |(slot, part): &(Slot, Part)| {
            slot.0.checked_sub_unsigned(part.1) == Some(start)
                && self.layouts.same(kind.id, self.layouts.layout(part.0).id)
        };
        let offset = u64::try_from(distance.checked_sub(start)?).ok()?;
        let within = offset.saturating_add(size) <= kind.size;
        (said.all(same) && within).then_some((part.0, offset))
    }

    /// Of what value `size` bytes are a part that come `from` these and go `to` those, if they agree, and
    /// whether that is enough.
    fn agreed(
        &self,
        from: &BTreeSet<Part>,
        to: &BTreeSet<Part>,
        size: u64,
    ) -> Option<(Part, bool)> {
        let all: Vec<Part> = from
            .iter()
            .chain(to)
            .map(|part| self.innermost(*part, size))
            .collect();
        // Of values that lie in one another the one that all of them hold.
        let held_by_all = |(kind, offset): &Part| {
            let inner = self.layouts.layout(*kind).id;
            all.iter().all(|(other, at)| {
                let start = at.wrapping_sub(*offset);
                (start == 0 && self.layouts.same(inner, self.layouts.layout(*other).id))
                    || (at >= offset && self.layouts.holds(*other, start, 0, inner))
            })
        };
        let (kind, offset) = all.iter().copied().find(held_by_all)?;
        let one_member = self
            .layouts
            .leaves(kind, offset, size, 0)
            .iter()
            .any(|leaf| leaf.offset == offset && leaf.size == size);
        let on_its_way = !from.is_empty() && !to.is_empty();
        Some(((kind, offset), on_its_way || !one_member))
    }

    /// The innermost value with members that holds all of the `size` bytes of `part`.
    fn innermost(&self, part: Part, size: u64) -> Part {
        let (mut kind, mut offset) = part;
        for _ in 0..DEEPEST {
            let layout = self.layouts.layout(kind);
            let end = offset.saturating_add(size);
            let next = match &layout.shape {
                Shape::Aggregate(parts) => {
                    let mut touched = parts.iter().filter(|part| {
                        part.offset < end && offset < part.offset.saturating_add(part.size)
                    });
                    let only = touched.next().filter(|_| touched.next().is_none());
                    only.filter(|part| {
                        part.bits.is_none()
                            && part.offset <= offset
                            && end <= part.offset.saturating_add(part.size)
                    })
                    .map(|part| (part.kind, offset - part.offset))
                }
                _ => None,
            };
            let Some((inner, within)) = next else {
                break;
            };
            let (inner, within, _) = self.layouts.element(inner, within, 0);
            let layout = self.layouts.layout(inner);
            let holds_all = within.saturating_add(size) <= layout.size;
            if !holds_all || !matches!(layout.shape, Shape::Aggregate(_)) {
                break;
            }
            (kind, offset) = (inner, within);
        }
        (kind, offset)
    }

    /// The memory operand of `instruction`, if it moves bytes from or to memory unchanged.
    fn place(&self, state: &State, number: usize, instruction: &Instruction) -> Option<Storage> {
        let size = instruction.memory_size().size() as u64;
        let address = self.operand_address(state, number)?;
        self.place_at(address, size, instruction.ip())
    }

    fn place_at(&self, address: Value, size: u64, at: u64) -> Option<Storage> {
        let times = address.times.unsigned_abs();
        let part = match address.base {
            Base::Frame if times == 0 => match self.frame_variable(at, address.plus, size) {
                Some(part) => part,
                None => return Some(Storage::Slot((address.plus, size))),
            },
            Base::Typed(kind) => {
                let found = self.layouts.locate(kind, address.plus, times, size);
                let (offset, _) = found.filter(|(_, times)| *times == 0)?;
                (kind.0, offset)
            }
            Base::Number if times == 0 => {
                self.program.variable(u64::try_from(address.plus).ok()?)?
            }
            _ => return None,
        };
        let inside = part.1.saturating_add(size) <= self.layouts.layout(part.0).size;
        inside.then_some(Storage::Part(part, size))
    }

    /// Notes what `instruction` copies to memory.
    fn stored(
        &self,
        state: &State,
        number: usize,
        instruction: &Instruction,
        holders: &Holders<'_>,
        now: &mut Now,
        copies: &mut Copies,
    ) {
        let writes_memory = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory;
        let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        if !writes_memory || compares {
            return;
        }
        let Some(target) = self.place(state, number, instruction) else {
            return;
        };
        let source = (is_move(instruction) && instruction.op1_kind() == OpKind::Register)
            .then(|| {
                now.registers
                    .get(&instruction.op1_register().full_register())
            })
            .flatten()
            .filter(|held| held.place.size() == target.size())
            .copied();
        if let Storage::Slot(target) = target
            && is_move(instruction)
            && let Some(part) = self.variable_in(holders, instruction)
        {
            copies.spilled.insert(instruction.ip(), (target, part));
            if source.is_none() {
                copies.variables.entry(target).or_default().insert(part);
                now.slots.retain(|(slot, _)| !overlap(*slot, target));
                return;
            }
        }
        if let Storage::Slot(target) = target {
            now.slots.retain(|(slot, _)| !overlap(*slot, target));
        }
        // A constant clears memory before it is used.
        let constant = is_move(instruction) && instruction.op1_kind() != OpKind::Register;
        match (source.map(|held| (held.place, held.loaded_at)), target) {
            (Some((Storage::Slot(source), _)), Storage::Slot(target)) => {
                copies.between.insert((source, target));
                if let Some(part) = now.part_in(source) {
                    now.slots.push((target, part));
                    copies.at(instruction.ip(), target, part);
                }
            }
            (Some((Storage::Slot(source), loaded_at)), Storage::Part(part, _)) => {
                copies.to.entry(source).or_default().insert(part);
                copies.at(loaded_at, source, part);
            }
            (Some((Storage::Part(part, _), _)), Storage::Slot(target)) => {
                copies.from.entry(target).or_default().insert(part);
                copies.at(instruction.ip(), target, part);
                now.slots.push((target, part));
            }
            (None, Storage::Slot(target)) if !constant => {
                copies.otherwise.insert(target);
            }
            _ => {}
        }
    }

    /// The variable, or the piece of one, that the debug info says is in the register that `instruction`
    /// stores. Of several all must be of one type.
    fn variable_in(&self, holders: &Holders<'_>, instruction: &Instruction) -> Option<Part> {
        let register = instruction.op1_register();
        let size = register.size() as u64;
        if size != 8 || !register.is_gpr64() {
            return None;
        }
        let mut parts = BTreeSet::new();
        for variable in holders.at(register.number(), instruction.ip())? {
            let whole = self.layouts.layout(variable.kind).size;
            if variable.size.unwrap_or(whole) == size {
                parts.insert((variable.kind, variable.within));
            } else {
                return None;
            }
        }
        self.one_of(&parts)
    }

    /// The register that `instruction` loads from memory or another register unchanged, and what it
    /// holds then.
    fn loaded(
        &self,
        state: &State,
        number: usize,
        instruction: &Instruction,
        now: &Now,
        copies: &mut Copies,
    ) -> Option<(Register, Held)> {
        let widens = instruction.mnemonic() == Mnemonic::Movzx;
        if !(is_move(instruction) || widens) || instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let target = instruction.op0_register().full_register();
        match instruction.op1_kind() {
            OpKind::Memory => {
                let place = self.place(state, number, instruction)?;
                let loaded_at = instruction.ip();
                if let Storage::Slot(slot) = place
                    && let Some(part) = now.part_in(slot)
                {
                    copies.at(loaded_at, slot, part);
                }
                Some((target, Held { place, loaded_at }))
            }
            OpKind::Register => {
                let source = instruction.op1_register();
                let held = now.registers.get(&source.full_register())?;
                (held.place.size() <= source.size() as u64).then_some((target, *held))
            }
            _ => None,
        }
    }
}

/// The variables that are in registers, by the register.
struct Holders<'v> {
    variables: [Vec<&'v Variable>; 16],
    left: Cell<usize>,
}

impl<'v> Holders<'v> {
    fn new(flow: &Flow<'v, '_, '_>) -> Self {
        let mut variables: [Vec<&Variable>; 16] = Default::default();
        for variable in &flow.scope.variables {
            if let Scoped::Value { register, minus: 0 } = variable.place
                && let Some(register) = from_dwarf(register)
            {
                variables[register].push(variable);
            }
        }
        Self {
            variables,
            left: Cell::new(MOST_LOOKED_AT),
        }
    }

    /// Those in `register` at `address`; `None` when enough was looked at.
    fn at(&self, register: usize, address: u64) -> Option<impl Iterator<Item = &'v Variable>> {
        let all = self.variables.get(register)?;
        let left = self.left.get().checked_sub(all.len())?;
        self.left.set(left);
        Some(
            all.iter()
                .copied()
                .filter(move |variable| variable.range.contains(&address)),
        )
    }
}

/// Whether both have a byte in common.
fn overlap(a: Slot, b: Slot) -> bool {
    a.0 < b.0.saturating_add_unsigned(b.1) && b.0 < a.0.saturating_add_unsigned(a.1)
}

/// Forgets what the registers held that `instruction` writes, and what a call may change.
fn forget(instruction: &Instruction, now: &mut Now, factory: &mut InstructionInfoFactory) {
    use Register::{R12, R13, R14, R15, RBP, RBX};
    let flow = instruction.flow_control();
    if matches!(flow, FlowControl::Call | FlowControl::IndirectCall) {
        now.registers
            .retain(|register, _| matches!(register, RBX | RBP | R12 | R13 | R14 | R15));
        // The function may have been given the address.
        now.slots.clear();
        return;
    }
    for used in factory.info(instruction).used_registers() {
        if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead) {
            now.registers.remove(&used.register().full_register());
        }
    }
}

/// Whether `instruction` copies bytes as they are.
fn is_move(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Mov, Movapd, Movaps, Movd, Movdqa, Movdqu, Movq, Movsd, Movss, Movupd, Movups, Vmovapd,
        Vmovaps, Vmovd, Vmovdqa, Vmovdqu, Vmovq, Vmovsd, Vmovss, Vmovupd, Vmovups,
    };
    instruction.op_count() == 2
        && matches!(
            instruction.mnemonic(),
            Mov | Movapd
                | Movaps
                | Movd
                | Movdqa
                | Movdqu
                | Movq
                | Movsd
                | Movss
                | Movupd
                | Movups
                | Vmovapd
                | Vmovaps
                | Vmovd
                | Vmovdqa
                | Vmovdqu
                | Vmovq
                | Vmovsd
                | Vmovss
                | Vmovupd
                | Vmovups
        )
}
