//! From an interrupted instruction to the access that made it wait.
//!
//! x86 code cannot be read backwards, so the instruction before an address is found by decoding
//! forwards from many starting points: nearly all of them fall into step within a few
//! instructions, and the instruction that most of them see just before the address is it.
//!
//! ```text
//! timer at IP ── rule "next": the instruction before IP waited
//!             └─ rule "same": the instruction at IP waited
//! IP is the target of a branch: the instruction before it in memory may not be the one before it
//! in time; a backward branch (a loop) is taken to be, since a loop's head is entered from its end
//! It is a fence: the store before it waited
//! ```

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register, UsedMemory,
};
use linewise_machine::probe::SkidRule;
use linewise_machine::registers::Registers;
use linewise_recording::{Operation, UnknownReason};

use crate::sources::timer::fence::{AwaitedBy, awaited, is_fence};
use crate::sources::timer::recompute::Stretch;

/// Bytes of code looked at before and after an address.
pub(crate) const WINDOW: u64 = 512;
/// How far before the address the decoding starts, at most: enough to fall into step.
const SYNC_BYTES: u64 = 80;
/// A block that is entered further back than this is not looked for.
const LONGEST_BLOCK: u64 = 128;
/// Instructions that fill the space before a function, at most.
const FILLED: usize = 16;
/// Instructions before one that are looked at for what they left in registers, at most.
const EARLIER: usize = 8;
/// An instruction is at most this long.
const LONGEST_INSTRUCTION: u64 = 15;

/// A stretch of code.
#[derive(Clone, Debug)]
pub(crate) struct Code64 {
    /// Address of the first byte.
    start: u64,
    bytes: Vec<u8>,
    /// Its direct branches.
    branches: Vec<Instruction>,
}

impl Code64 {
    /// The code in `bytes`, the first of which stands at `start`.
    pub(crate) fn new(start: u64, bytes: Vec<u8>) -> Self {
        let mut code = Self {
            start,
            bytes,
            branches: Vec::new(),
        };
        code.branches = code.find_branches();
        code
    }

    /// Whether these bytes stand there.
    pub(crate) fn is(&self, start: u64, bytes: &[u8]) -> bool {
        self.start == start && self.bytes == bytes
    }

    fn decode_at(&self, address: u64) -> Option<Instruction> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The instruction that ends right before `address`, by the vote of many starting points.
    ///
    /// Chains of decoding merge, so each offset is decoded once: where a start leads is where the
    /// instruction behind it leads, and that one is known when going backwards.
    fn before(&self, address: u64) -> Option<Instruction> {
        const NOWHERE: u8 = 0;
        // Both by distance from `address`: where the chain that begins there ends, as the distance
        // of its last instruction; how many starts end there.
        let mut leads = [NOWHERE; SYNC_BYTES as usize + 1];
        let mut votes = [0u8; SYNC_BYTES as usize + 1];
        for back in 1..=SYNC_BYTES {
            let Some(at) = address.checked_sub(back).filter(|&at| at >= self.start) else {
                break;
            };
            let Some(instruction) = self.decode_at(at) else {
                continue;
            };
            let last = match back.checked_sub(instruction.len() as u64) {
                Some(0) => back as u8,
                Some(rest) => leads[rest as usize],
                None => NOWHERE,
            };
            leads[back as usize] = last;
            if back >= LONGEST_INSTRUCTION && last != NOWHERE {
                votes[usize::from(last)] += 1;
            }
        }
        let (back, _) = votes
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .max_by_key(|&(back, &count)| (count, std::cmp::Reverse(back)))?;
        self.decode_at(address - back as u64)
    }

    /// The direct branches in it.
    fn find_branches(&self) -> Vec<Instruction> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.bytes.len()];
        // Read it from several alignments: each falls into step soon, where it ends because
        // an earlier one was there. A branch that is only seen out of step hardly ever hits the
        // exact target.
        for first in 0..4 {
            let mut at = first;
            while let Some(seen) = seen.get_mut(at).filter(|seen| !**seen) {
                *seen = true;
                let Some(instruction) = self.decode_at(self.start + at as u64) else {
                    if at >= self.bytes.len() {
                        break;
                    }
                    at += 1;
                    continue;
                };
                if matches!(
                    instruction.flow_control(),
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                ) {
                    found.push(instruction);
                }
                at += instruction.len();
            }
        }
        found
    }

    /// What may have run just before the instruction at `address`.
    fn predecessors(&self, address: u64) -> Candidates {
        let within = address.saturating_sub(WINDOW)..address.saturating_add(WINDOW);
        let branches = self.branches.iter();
        let branches: Vec<_> = branches.filter(|it| within.contains(&it.ip())).collect();
        let before = (self.before(address)).filter(|it| falls_through(it) && !self.is_padding(it));
        // What stands before the head of a loop runs once, the end of the loop all the time; unless
        // it is in the loop as well: then a branch from behind leads to it or to before it.
        let in_loop = before.is_some_and(|before| {
            branches.iter().any(|branch| {
                branch.ip() >= address
                    && (address.saturating_sub(LONGEST_BLOCK)..=before.ip())
                        .contains(&branch.near_branch_target())
            })
        });
        let (mut looping, mut joining) = (Vec::new(), Vec::new());
        joining.extend(
            before
                .into_iter()
                .flat_map(|before| self.with_fused(before)),
        );
        for branch in branches
            .iter()
            .filter(|branch| branch.near_branch_target() == address)
        {
            let side = if branch.ip() >= address {
                &mut looping
            } else {
                &mut joining
            };
            side.extend(self.with_fused(**branch));
        }
        let likely = match looping.is_empty() || in_loop {
            true => {
                std::mem::swap(&mut looping, &mut joining);
                looping.len() + joining.len()
            }
            false => looping.len(),
        };
        looping.append(&mut joining);
        self.look_back(&mut looping);
        Candidates {
            instructions: looping,
            likely,
        }
    }

    /// Whether an instruction only fills the space before a function or a loop: what stands before it does not run into it.
    fn is_padding(&self, instruction: &Instruction) -> bool {
        let before = |it: &Instruction| self.before(it.ip());
        let filled = std::iter::successors(Some(*instruction), before).take(FILLED);
        let mut filled = filled.skip_while(is_filler);
        is_filler(instruction) && filled.next().is_some_and(|it| !falls_through(&it))
    }

    /// Finds what runs before candidates, where that matters: it tells several of them apart, and what was in a
    /// register that one overwrote. (Each step back decodes some eighty times.)
    fn look_back(&self, candidates: &mut [Predecessor]) {
        let accesses = |it: &&Predecessor| {
            has_memory_operand(&it.instruction) || it.instruction.is_string_instruction()
        };
        let several = candidates.iter().filter(accesses).count() > 1;
        for it in candidates {
            if several || overwrites_its_address(&it.instruction) {
                it.earlier = self.earlier(&it.instruction);
            }
        }
    }

    /// A branch with what runs as one with it, or retires with it: the compare before a conditional one, whatever
    /// stands before a jump. Any other instruction alone.
    fn with_fused(&self, instruction: Instruction) -> impl Iterator<Item = Predecessor> {
        let before = match instruction.flow_control() {
            FlowControl::ConditionalBranch => self.before(instruction.ip()).filter(fuses),
            FlowControl::UnconditionalBranch => self.before_in_block(instruction.ip()),
            _ => None,
        };
        before
            .into_iter()
            .chain([instruction])
            .map(Predecessor::from)
    }

    /// The instruction before the one at `address`, if that is not entered from elsewhere.
    fn before_in_block(&self, address: u64) -> Option<Instruction> {
        let entered = |it: &Instruction| it.near_branch_target() == address;
        let runs_on = |it: &Instruction| it.flow_control() == FlowControl::Next;
        let before = self.before(address).filter(runs_on)?;
        (!self.branches.iter().any(entered)).then_some(before)
    }

    /// What runs before an instruction of a block, from the first on.
    fn earlier(&self, last: &Instruction) -> Vec<Instruction> {
        let before = |it: &Instruction| self.before_in_block(it.ip());
        let mut earlier: Vec<Instruction> = std::iter::successors(before(last), before)
            .take(EARLIER)
            .collect();
        earlier.reverse();
        earlier
    }
}

/// An instruction that may have waited.
#[derive(Clone, Debug)]
pub(crate) struct Predecessor {
    pub(crate) instruction: Instruction,
    /// What runs before it in its block, as far as it matters.
    pub(crate) earlier: Vec<Instruction>,
    /// What runs behind it, up to the fence that it waited at, if it did at one.
    pub(crate) later: Vec<Instruction>,
    /// It is a fence, and what it waited for cannot be named.
    pub(crate) is_blind: bool,
}

impl From<Instruction> for Predecessor {
    fn from(instruction: Instruction) -> Self {
        Self {
            instruction,
            earlier: Vec::new(),
            later: Vec::new(),
            is_blind: false,
        }
    }
}

impl Predecessor {
    /// Whether a thread that was seen at these instructions runs the candidate's block.
    fn is_run_by(&self, seen: impl Fn(u64) -> bool) -> bool {
        let block = self.earlier.iter().chain([&self.instruction]);
        block.chain(&self.later).any(|it| seen(it.ip()))
    }

    /// The store that a fence waited for, where it is one.
    fn at_fence(&mut self, code: &Code64) {
        if !is_fence(&self.instruction) {
            return;
        }
        let mut earlier = code.earlier(&self.instruction);
        match awaited(&earlier) {
            AwaitedBy::Store(index) => {
                self.later = earlier.split_off(index + 1);
                self.later.push(self.instruction);
                // The block is looked at again from there, for the whole of what is before it.
                self.instruction = earlier[index];
                self.earlier = code.earlier(&self.instruction);
            }
            AwaitedBy::Nothing => {}
            AwaitedBy::Unknown => self.is_blind = true,
        }
    }

    /// When the registers of a sample at `ip` were read.
    pub(crate) fn registers_at(&self, ip: u64) -> RegistersFrom<'_> {
        match self.instruction.ip() == ip {
            true => RegistersFrom::Before,
            false => RegistersFrom::After {
                earlier: &self.earlier,
                later: &self.later,
            },
        }
    }
}

/// Instructions one of which waited: the first `likely` of them may be it, the others hardly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    instructions: Vec<Predecessor>,
    likely: usize,
}

impl Candidates {
    fn only(instruction: Instruction) -> Self {
        Self {
            instructions: vec![instruction.into()],
            likely: 1,
        }
    }

    /// All, the likelier first.
    pub(crate) fn all(&self) -> &[Predecessor] {
        &self.instructions
    }

    /// Those that may be the one that waited: of the likely ones those that access memory, since it is memory that makes
    /// a core wait; without one, the first. Several where blocks join.
    pub(crate) fn waiting(&self, reader: &mut AccessReader) -> Vec<&Predecessor> {
        let likely = &self.instructions[..self.likely];
        let mut waiting: Vec<&Predecessor> = likely
            .iter()
            .filter(|it| it.is_blind || reader.accesses_memory(&it.instruction))
            .collect();
        // One after the other in one block: the first waited.
        waiting.dedup_by(|later, first| {
            later
                .earlier
                .iter()
                .any(|it| it.ip() == first.instruction.ip())
        });
        match waiting.is_empty() {
            true => likely.iter().take(1).collect(),
            false => waiting,
        }
    }
}

/// Which of several candidates it was that a thread waited at.
pub(crate) enum Which<'a> {
    /// This one.
    Known(&'a Predecessor),
    /// This one, if the thread runs it at all.
    Asked(&'a Predecessor),
    /// It runs several of them, or none.
    Unknown,
}

/// Chooses among candidates by what their thread runs: `seen` says so of an instruction, `unseen` that it was looked for in vain.
pub(crate) fn which<'a>(
    candidates: &[&'a Predecessor],
    seen: impl Fn(u64) -> bool,
    unseen: impl Fn(u64) -> bool,
) -> Which<'a> {
    let all = || candidates.iter().copied();
    let run: Vec<&Predecessor> = all().filter(|it| it.is_run_by(&seen)).collect();
    let open = all().filter(|it| !unseen(it.instruction.ip()) && !it.is_run_by(&seen));
    let open: Vec<&Predecessor> = open.collect();
    match (candidates, run.as_slice(), open.as_slice()) {
        ([only], ..) | (_, [only], []) | (_, [], [only]) => Which::Known(only),
        // That it runs one does not tell that it does not run another, too.
        (_, [] | [_], [first, ..]) => Which::Asked(first),
        _ => Which::Unknown,
    }
}

/// Whether the next instruction in memory can be the next in time.
fn falls_through(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
    )
}

/// Whether the instruction can run as one with a branch behind it.
fn fuses(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Add, And, Cmp, Dec, Inc, Sub, Test};
    matches!(
        instruction.mnemonic(),
        Cmp | Test | Add | Sub | And | Inc | Dec
    )
}

/// What waited, as far as the code alone tells. The same for every sample of one address.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// One of these; there is at least one.
    Instructions(Candidates),
    /// It cannot be named.
    Unknown(UnknownReason),
}

/// Finds what waited when a timer interrupted at `ip`.
pub(crate) fn waiting(code: &Code64, ip: u64, rule: SkidRule) -> Waiting {
    let Some(at) = code.decode_at(ip) else {
        return Waiting::Unknown(UnknownReason::Undecodable);
    };
    // A repeated string instruction is interrupted between its steps and reports itself.
    let mut found = match rule == SkidRule::Same || repeats(&at) {
        true => Waiting::Instructions(Candidates::only(at)),
        false => executed_before(code, ip),
    };
    if let Waiting::Instructions(found) = &mut found {
        let all = found.instructions.iter_mut();
        all.for_each(|it| it.at_fence(code));
    }
    found
}

/// Finds what ran just before `ip`: also what a watchpoint at `ip` saw.
pub(crate) fn executed_before(code: &Code64, ip: u64) -> Waiting {
    // After a call comes its return: what waited is in the called function, and a call does not
    // fall through, so it is no candidate.
    let found = code.predecessors(ip);
    if found.instructions.is_empty() {
        return Waiting::Unknown(UnknownReason::BlockStart);
    }
    Waiting::Instructions(found)
}

fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// An access of one execution of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The instruction.
    pub ip: u64,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u32,
    /// What it does.
    pub operation: Operation,
    /// Whether it is locked.
    pub locked: bool,
}

/// When the registers were read: before the instruction ran (an execution breakpoint, rule
/// "same") or after (rule "next", a watchpoint).
#[derive(Clone, Copy, Debug)]
pub(crate) enum RegistersFrom<'a> {
    /// Before it ran.
    Before,
    /// After it ran and others behind it.
    After {
        /// What ran before it.
        earlier: &'a [Instruction],
        /// What ran behind it.
        later: &'a [Instruction],
    },
}

/// Reads instructions for what they do to memory.
pub(crate) struct AccessReader {
    factory: InstructionInfoFactory,
}

impl AccessReader {
    pub(crate) fn new() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Whether the instruction accesses memory through an operand of its own. What call, return,
    /// push and pop do to the stack does not count: nobody else reads it. Nor do stores that go past the
    /// caches: they wait for no line.
    pub(crate) fn accesses_memory(&mut self, instruction: &Instruction) -> bool {
        if is_non_temporal(instruction) {
            return false;
        }
        if instruction.is_stack_instruction() && !has_memory_operand(instruction) {
            return false;
        }
        self.main_memory(instruction).is_some()
    }

    fn main_memory(&mut self, instruction: &Instruction) -> Option<UsedMemory> {
        if matches!(
            instruction.code(),
            Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64
        ) {
            return None;
        }
        let info = self.factory.info(instruction);
        let real = |memory: &&UsedMemory| operation(memory.access()).is_some();
        // A string move has two: its store is the one that others notice.
        let memories = info.used_memory();
        memories
            .iter()
            .filter(real)
            .find(|memory| operation(memory.access()) != Some(Operation::Load))
            .or_else(|| memories.iter().find(real))
            .copied()
    }

    /// The access of one execution, from the registers.
    ///
    /// # Errors
    /// The reason why the registers do not tell.
    pub(crate) fn access(
        &mut self,
        instruction: &Instruction,
        registers: &Registers,
        from: RegistersFrom<'_>,
    ) -> Result<Access, UnknownReason> {
        let memory = self
            .main_memory(instruction)
            .ok_or(UnknownReason::Undecodable)?;
        let operation = operation(memory.access()).ok_or(UnknownReason::Undecodable)?;
        if memory.vsib_size() != 0 || is_masked(instruction) {
            return Err(UnknownReason::AddressNotInRegisters);
        }
        let now = |register| value(register, registers);
        let mut stretch = match from {
            RegistersFrom::After { earlier, later } if !repeats(instruction) => {
                Some(Stretch::new(earlier, instruction, later, &now))
            }
            _ => None,
        };
        let index = bit_index(instruction);
        let mut held = |register| {
            if let Some(stretch) = &mut stretch
                && stretch.is_overwritten(register)
            {
                let held = stretch.before_it(register);
                return held.ok_or(UnknownReason::AddressOverwritten);
            }
            now(register).ok_or(UnknownReason::AddressNotInRegisters)
        };
        // Asked for first, so that what is missing has its own reason.
        for register in [memory.base(), memory.index(), index.unwrap_or_default()] {
            if register != Register::None {
                held(register)?;
            }
        }
        let address = memory.virtual_address(0, |register, _, _| held(register).ok());
        let address = address.ok_or(UnknownReason::AddressNotInRegisters)?;
        // Of a repeated instruction the one is not known, of its elements the other.
        let sizes = [memory.memory_size(), instruction.memory_size()];
        let size = sizes
            .map(|it| it.size() as u32)
            .into_iter()
            .find(|it| *it > 0);
        let size = size.unwrap_or(0);
        let address = match index {
            None => address,
            Some(index) => address.wrapping_add(offset_of_bit(held(index)?, size)),
        };
        let is_over = matches!(from, RegistersFrom::After { .. })
            && repeats(instruction)
            && now(Register::RCX) == Some(0);
        let address = match is_over {
            // The register stands behind the last element.
            true if registers.goes_down() => address.wrapping_add(size.into()),
            true => address.wrapping_sub(size.into()),
            false => address,
        };
        Ok(Access {
            ip: instruction.ip(),
            address,
            size: size.max(1),
            operation,
            locked: instruction.has_lock_prefix()
                || (instruction.mnemonic() == iced_x86::Mnemonic::Xchg
                    && has_memory_operand(instruction)),
        })
    }
}

/// Whether it stands between functions and never runs: what compilers and linkers fill gaps with.
fn is_filler(instruction: &Instruction) -> bool {
    // Two bytes of zero.
    let is_zero = instruction.code() == Code::Add_rm8_r8
        && instruction.len() == 2
        && instruction.memory_base() == Register::RAX
        && instruction.memory_index() == Register::None
        && instruction.op1_register() == Register::AL;
    is_zero || instruction.mnemonic() == Mnemonic::Nop
}

/// Whether it stores past the caches (Intel SDM 1, section 10.4.6.2).
fn is_non_temporal(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Movnti
            | M::Movntq
            | M::Movntdq
            | M::Movntpd
            | M::Movntps
            | M::Movntsd
            | M::Movntss
            | M::Maskmovq
            | M::Maskmovdqu
            | M::Vmovntdq
            | M::Vmovntpd
            | M::Vmovntps
            | M::Vmaskmovdqu
            | M::Movdiri
            | M::Movdir64b
    )
}

/// Whether a mask, which the kernel does not sample, says which of the bytes it touches.
fn is_masked(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq};
    instruction.has_op_mask()
        || matches!(
            instruction.mnemonic(),
            Vmaskmovpd | Vmaskmovps | Vpmaskmovd | Vpmaskmovq
        )
}

/// The register with the number of the bit that an instruction tests in memory, counted from its address: that may be in
/// another word.
fn bit_index(instruction: &Instruction) -> Option<Register> {
    use iced_x86::Mnemonic::{Bt, Btc, Btr, Bts};
    let is_test = matches!(instruction.mnemonic(), Bt | Btc | Btr | Bts);
    let index = instruction.op1_register();
    (is_test && has_memory_operand(instruction) && index != Register::None).then_some(index)
}

/// How far the word of `size` bytes with a bit lies from the first one (Intel SDM, BT: signed, of the operand's size).
fn offset_of_bit(bit: u64, size: u32) -> u64 {
    let size = u64::from(size.clamp(2, 8));
    let unused = 64 - 8 * size as u32;
    let signed = (bit << unused) as i64 >> unused;
    signed.div_euclid(8 * size as i64).wrapping_mul(size as i64) as u64
}

/// Whether its result goes into a register that its address comes from.
fn overwrites_its_address(instruction: &Instruction) -> bool {
    let from = [instruction.memory_base(), instruction.memory_index()];
    instruction.op0_kind() == iced_x86::OpKind::Register
        && from.iter().any(|it| {
            *it != Register::None
                && it.full_register() == instruction.op0_register().full_register()
        })
}

fn has_memory_operand(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|i| instruction.op_kind(i) == iced_x86::OpKind::Memory)
}

fn operation(access: OpAccess) -> Option<Operation> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Operation::Load),
        OpAccess::Write | OpAccess::CondWrite => Some(Operation::Store),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Operation::Update),
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

/// The value of a register, by the kernel's numbering (`arch/x86/include/uapi/asm/perf_regs.h`).
fn value(register: Register, registers: &Registers) -> Option<u64> {
    use Register as R;
    if matches!(register, R::CS | R::DS | R::ES | R::SS) {
        // Flat in 64-bit code. FS and GS are not, and the kernel samples neither base; that of FS may
        // be known from elsewhere.
        return Some(0);
    }
    if register == R::FS {
        return registers.thread_base();
    }
    let number = match register.full_register() {
        R::RAX => 0,
        R::RBX => 1,
        R::RCX => 2,
        R::RDX => 3,
        R::RSI => 4,
        R::RDI => 5,
        R::RBP => 6,
        R::RSP => 7,
        R::R8 => 16,
        R::R9 => 17,
        R::R10 => 18,
        R::R11 => 19,
        R::R12 => 20,
        R::R13 => 21,
        R::R14 => 22,
        R::R15 => 23,
        _ => return None,
    };
    let value = registers.get(number)?;
    Some(if register.size() == 4 {
        value & 0xffff_ffff
    } else {
        value
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
