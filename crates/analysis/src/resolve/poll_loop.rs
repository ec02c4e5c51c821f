//! Whether a loop does nothing but look at memory until another thread changes it.
//!
//! Such a loop stores nothing and calls nothing. What it computes is what it loaded in the same round, or counts its rounds. The
//! addresses of its loads are the same in every round, and what was loaded there, held against what stays the same, ends it. So
//! a loop that goes through memory, one that adds up, and one that hashes until it is told to stop are none: a register of theirs
//! carries on what they work at.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::typer::code::Code;
use super::typer::registers::{RSP, full};

/// Instructions of such a loop, at most: what has more does more.
const MOST: usize = 64;

/// The blocks of a loop.
type Body = BTreeSet<usize>;
/// General registers: bits with iced's numbers.
type Registers = u16;

/// An instruction of a loop.
struct Step {
    ip: u64,
    writes: Registers,
    /// Those that it reads, but for what it changes in place.
    reads: Registers,
    /// Whether it changes in place the register that it writes: `and eax, 1`.
    in_place: bool,
    /// Whether that keeps what it holds unless a condition is met: `cmovl eax, edx`.
    may_keep: bool,
    /// Whether it counts: adds a constant to the register, shifts or doubles it.
    counts: bool,
    /// Whether it reads memory, and by which registers.
    load: Option<Registers>,
    kind: Kind,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Pause,
    /// A jump that goes one way or the other.
    Branch,
    /// What only sets the flags that such a jump looks at.
    Compare,
    Other,
}

/// The addresses of the loads whose values end a loop, if it does nothing but wait for that; none otherwise. What the loops `within` it add up in a round must be
/// what ends it: a sum over several words that others change is looked at, any other is worked at.
pub(super) fn polled(code: &Code, body: &Body, within: &Body) -> BTreeSet<u64> {
    let (Some(inner), Some(steps)) = (steps(code, within), steps(code, body)) else {
        return BTreeSet::new();
    };
    let registers = Known::of(&steps);
    let sums = inner.iter().filter(|it| it.in_place && !it.counts);
    let sums = sums.fold(0, |all, it| all | it.writes);
    match registers.is_idle(&steps) {
        true => registers.ends(&steps, code, body, sums),
        false => BTreeSet::new(),
    }
}

/// Whether a loop only lets time pass, as between two looks: it counts its rounds and looks at nothing.
pub(super) fn only_pauses(code: &Code, body: &Body) -> bool {
    let Some(steps) = steps(code, body) else {
        return false;
    };
    steps.iter().any(|it| it.kind == Kind::Pause)
        && steps.iter().all(|it| it.load.is_none())
        && Known::of(&steps).is_idle(&steps)
}

/// The instructions of a loop; `None` if one of them does what such a loop does not.
fn steps(code: &Code, body: &Body) -> Option<Vec<Step>> {
    let mut factory = InstructionInfoFactory::new();
    let mut steps = Vec::new();
    for &block in body {
        for instruction in code
            .instructions
            .get(code.blocks.get(block)?.instructions.clone())?
        {
            steps.push(step(instruction, &mut factory)?);
            if steps.len() > MOST {
                return None;
            }
        }
    }
    Some(steps)
}

/// What an instruction does to registers; `None` if it does more than to look, to compare and to count.
fn step(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Option<Step> {
    let kind = match instruction.flow_control() {
        FlowControl::ConditionalBranch => Kind::Branch,
        FlowControl::UnconditionalBranch => Kind::Other,
        FlowControl::Next => match instruction.mnemonic() {
            Mnemonic::Pause => Kind::Pause,
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => Kind::Compare,
            _ => Kind::Other,
        },
        _ => return None,
    };
    if !is_plain(instruction) {
        return None;
    }
    let info = factory.info(instruction);
    let stores = |access| !matches!(access, OpAccess::Read | OpAccess::NoMemAccess);
    if info
        .used_memory()
        .iter()
        .any(|memory| stores(memory.access()))
    {
        return None;
    }
    let loads = info
        .used_memory()
        .iter()
        .any(|memory| memory.access() == OpAccess::Read);
    let bit = |register: Register| full(register).map_or(0, |it| 1_u16 << it);
    let base = bit(instruction.memory_base()) | bit(instruction.memory_index());
    let (mut writes, mut reads, mut may_keep) = (0, 0, false);
    // Half of a register that is written is as good as all of it: nobody looks at the other.
    for used in info.used_registers() {
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => reads |= bit(used.register()),
            OpAccess::Write | OpAccess::CondWrite => {
                writes |= bit(used.register());
                may_keep |= used.access() == OpAccess::CondWrite;
            }
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                writes |= bit(used.register());
                reads |= bit(used.register());
            }
            _ => {}
        }
    }
    let is_cleared = instruction.mnemonic() == Mnemonic::Xor
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    if is_cleared {
        reads = 0;
    }
    // `mov rax, [rax]` changes nothing in place: it goes on to another address.
    let in_place = writes & reads & !base != 0;
    if in_place {
        reads &= !writes;
    }
    Some(Step {
        ip: instruction.ip(),
        writes,
        reads,
        in_place,
        may_keep,
        counts: counts(instruction, writes, base),
        load: loads.then_some(base),
        kind,
    })
}

/// Whether it is of the instructions that look, compare and count.
fn is_plain(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Add, And, Bt, Cdq, Cdqe, Cmp, Cwde, Dec, Endbr64, Inc, Lea, Lfence, Mfence, Mov, Movsx,
        Movsxd, Movzx, Nop, Not, Or, Pause, Sar, Shl, Shr, Sub, Test, Xor,
    };
    // Conditional jumps, moves and sets.
    let on_condition = instruction.condition_code() != ConditionCode::None;
    let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch;
    on_condition
        || is_jump
        || matches!(
            instruction.mnemonic(),
            Add | And
                | Bt
                | Cdq
                | Cdqe
                | Cmp
                | Cwde
                | Dec
                | Endbr64
                | Inc
                | Lea
                | Lfence
                | Mfence
                | Mov
                | Movsx
                | Movsxd
                | Movzx
                | Nop
                | Not
                | Or
                | Pause
                | Sar
                | Shl
                | Shr
                | Sub
                | Test
                | Xor
        )
}

fn counts(instruction: &Instruction, writes: Registers, base: Registers) -> bool {
    let of_constant = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
    let doubles = instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    match instruction.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec => true,
        Mnemonic::Add if doubles => true,
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Shl => {
            of_constant && instruction.op0_kind() == OpKind::Register
        }
        Mnemonic::Lea => base == writes && instruction.memory_index() == Register::None,
        _ => false,
    }
}

/// What registers hold in a loop.
struct Known {
    written: Registers,
    /// What was loaded in the same round, or is made of that and of what stays the same.
    fresh: Registers,
    /// Of these, what was loaded.
    loaded: Registers,
    /// Counts of rounds, and what they begin with.
    counts: Registers,
}

impl Known {
    fn of(steps: &[Step]) -> Self {
        let mut known = Self {
            written: steps.iter().fold(0, |all, it| all | it.writes),
            fresh: 0,
            loaded: 0,
            counts: 0,
        };
        // Only what leads back to such values is one: a register that goes on from itself is none.
        loop {
            let (fresh, counts) = (known.fresh, known.counts);
            let mut writers: BTreeMap<u32, Vec<&Step>> = BTreeMap::new();
            for step in steps {
                for register in bits(step.writes) {
                    writers.entry(register).or_default().push(step);
                }
            }
            let constant = !known.written;
            for (register, writers) in writers {
                let from = |which: Registers, it: &Step| it.reads & !(constant | which) == 0;
                let is_made = writers.iter().any(|it| !it.in_place && !it.may_keep);
                if is_made && writers.iter().all(|it| from(fresh, it)) {
                    known.fresh |= 1 << register;
                    let of_load = |it: &&Step| it.load.is_some() || it.reads & known.loaded != 0;
                    if writers.iter().any(of_load) {
                        known.loaded |= 1 << register;
                    }
                }
                let counting = |it: &Step| it.counts || (!it.in_place && from(counts, it));
                if writers.iter().all(|it| it.load.is_none() && counting(it)) {
                    known.counts |= 1 << register;
                }
            }
            if (known.fresh, known.counts) == (fresh, counts) {
                return known;
            }
        }
    }

    /// Registers that hold the same in every round, or what was looked at in this one.
    fn same(&self) -> Registers {
        !self.written | self.fresh
    }

    /// Whether the loop carries nothing on but counts, and looks at the same places in every round.
    fn is_idle(&self, steps: &[Step]) -> bool {
        self.written & !(self.fresh | self.counts) == 0
            && steps
                .iter()
                .all(|it| it.load.is_none_or(|base| base & !self.same() == 0))
    }

    /// The loads whose values end the loop, by the branches that leave it, each of which looks at all of `sums`.
    fn ends(&self, steps: &[Step], code: &Code, body: &Body, sums: Registers) -> BTreeSet<u64> {
        let by_ip: BTreeMap<u64, &Step> = steps.iter().map(|it| (it.ip, it)).collect();
        let leaves = |block: &&usize| {
            let next = code.blocks.get(**block).map(|it| &it.next);
            next.is_some_and(|it| it.iter().any(|next| !body.contains(next)) || it.len() < 2)
        };
        let ends = body.iter().filter(leaves).filter_map(|&block| {
            let instructions = code
                .instructions
                .get(code.blocks.get(block)?.instructions.clone())?;
            let mut back = instructions
                .iter()
                .rev()
                .filter_map(|it| by_ip.get(&it.ip()).copied());
            back.next().filter(|it| it.kind == Kind::Branch)?;
            // What sets the flags: the last that compares, or that computes.
            let decides = back.find(|it| it.kind == Kind::Compare || it.in_place)?;
            let looked_at = decides.reads | if decides.in_place { decides.writes } else { 0 };
            if looked_at & !self.same() != 0 || sums & !looked_at != 0 {
                return None;
            }
            // In its own frame a thread keeps what it holds it against.
            let of_frame = 1 << RSP;
            let own = || {
                decides
                    .load
                    .filter(|base| *base != of_frame)
                    .map(|_| decides.ip)
            };
            let before: Vec<&Step> = back.collect();
            let load = self.load_of(looked_at & self.loaded, &before, steps);
            load.or_else(own)
        });
        ends.collect()
    }

    /// The load that one of these registers has its value of, behind the steps `before`, the last first.
    fn load_of(&self, registers: Registers, before: &[&Step], steps: &[Step]) -> Option<u64> {
        let mut asked: BTreeSet<u32> = BTreeSet::new();
        let mut queue: Vec<u32> = bits(registers).collect();
        while let Some(register) = queue.pop() {
            let writes = |it: &&Step| it.writes >> register & 1 != 0;
            let made = (before.iter()).position(|it| writes(it) && !it.in_place && !it.may_keep);
            let writers: Vec<&Step> = match made {
                Some(made) => before[..=made].iter().copied().filter(writes).collect(),
                None => steps.iter().filter(writes).collect(),
            };
            let is_shared = |it: &&&Step| it.load.is_some_and(|base| base != 1 << RSP);
            if let Some(load) = writers.iter().find(is_shared) {
                return Some(load.ip);
            }
            if asked.insert(register) {
                let reads = writers.iter().flat_map(|it| bits(it.reads & self.loaded));
                queue.extend(reads);
            }
        }
        None
    }
}

fn bits(registers: Registers) -> impl Iterator<Item = u32> {
    (0..16).filter(move |it| registers >> it & 1 != 0)
}
