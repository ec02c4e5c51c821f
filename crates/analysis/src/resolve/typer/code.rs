//! The machine code of a function: its instructions and the blocks between its branches.

use std::collections::{BTreeSet, HashMap, HashSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
};

use super::frames::Range;
use super::registers::full;

/// Instructions of one function that are looked at, at most.
const MOST_INSTRUCTIONS: usize = 100_000;

/// Instructions that run one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) struct Block {
    /// Numbers of its instructions.
    pub(in crate::resolve) instructions: std::ops::Range<usize>,
    /// Numbers of the blocks that can follow, as far as the code says.
    pub(in crate::resolve) next: Vec<usize>,
}

/// What an instruction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resolve) struct Written {
    /// General registers: bits with iced's numbers.
    registers: u16,
    /// Whether its first operand is written.
    pub(super) first_operand: bool,
}

/// A function, decoded.
#[derive(Debug)]
pub(in crate::resolve) struct Code {
    /// All instructions, by address.
    pub(in crate::resolve) instructions: Vec<Instruction>,
    /// What each of them writes.
    pub(in crate::resolve) written: Vec<Written>,
    /// All blocks, by address.
    pub(in crate::resolve) blocks: Vec<Block>,
    /// Number of the block where the function begins.
    pub(in crate::resolve) entry: usize,
}

impl Code {
    /// Decodes a function from the bytes of its parts, each with its first address. The first part
    /// is the one where it begins. `None` if it is too long, or has no code: what holds it need not be executable.
    pub(in crate::resolve) fn decode(parts: &[(u64, Vec<u8>)]) -> Option<Self> {
        let mut instructions = Vec::new();
        let mut leaders = BTreeSet::new();
        for (start, bytes) in parts {
            leaders.insert(*start);
            let mut decoder = Decoder::with_ip(64, bytes, *start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instructions.len() >= MOST_INSTRUCTIONS {
                    return None;
                }
                if let Some(target) = target(&instruction) {
                    leaders.insert(target);
                }
                if ends_block(&instruction) {
                    leaders.insert(instruction.next_ip());
                }
                instructions.push(instruction);
            }
        }
        if instructions.is_empty() {
            return None;
        }
        instructions.sort_by_key(Instruction::ip);
        let mut factory = InstructionInfoFactory::new();
        let written = |instruction: &Instruction| Written::by(instruction, &mut factory);
        let written = instructions.iter().map(written).collect();
        let entry = parts.first().map_or(0, |(start, _)| *start);
        let mut blocks: Vec<Block> = Vec::new();
        for (number, instruction) in instructions.iter().enumerate() {
            let follows = number
                .checked_sub(1)
                .and_then(|before| instructions.get(before))
                .is_some_and(|before| before.next_ip() == instruction.ip());
            match blocks.last_mut() {
                Some(block) if follows && !leaders.contains(&instruction.ip()) => {
                    block.instructions.end = number + 1;
                }
                _ => blocks.push(Block {
                    instructions: number..number + 1,
                    next: Vec::new(),
                }),
            }
        }
        let starts: HashMap<u64, usize> = blocks
            .iter()
            .enumerate()
            .filter_map(|(number, block)| {
                Some((instructions.get(block.instructions.start)?.ip(), number))
            })
            .collect();
        // Blocks that something leads to, as far as was seen.
        let mut entered: HashSet<u64> = instructions.iter().filter_map(target).collect();
        entered.insert(entry);
        for block in &mut blocks {
            let inside = instructions.get(block.instructions.clone());
            let Some((first, last)) =
                inside.and_then(|inside| Some((inside.first()?, inside.last()?)))
            else {
                continue;
            };
            // What fills the gap behind a jump does not run.
            let is_nop = |instruction: &Instruction| instruction.mnemonic() == Mnemonic::Nop;
            let padding = !entered.contains(&first.ip())
                && inside.is_some_and(|inside| inside.iter().all(is_nop));
            if falls_through(last) && !padding {
                entered.insert(last.next_ip());
                block.next.extend(starts.get(&last.next_ip()));
            }
            if let Some(target) = target(last) {
                block.next.extend(starts.get(&target));
            }
        }
        Some(Self {
            entry: starts.get(&entry).copied().unwrap_or(0),
            instructions,
            written,
            blocks,
        })
    }

    /// The number of the instruction at `address`.
    pub(in crate::resolve) fn at(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }

    /// The number of the instruction that ends at `address`.
    pub(super) fn before(&self, address: u64) -> Option<usize> {
        let number = self
            .instructions
            .partition_point(|instruction| instruction.ip() < address)
            .checked_sub(1)?;
        (self.instructions.get(number)?.next_ip() == address).then_some(number)
    }

    /// The number of the block that instruction `number` is in.
    pub(in crate::resolve) fn block_of(&self, number: usize) -> Option<usize> {
        self.blocks
            .partition_point(|block| block.instructions.start <= number)
            .checked_sub(1)
    }
}

impl Written {
    fn by(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(instruction);
        let registers = info
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
            .filter_map(|used| full(used.register()))
            .fold(0, |all, register| all | 1 << register);
        Self {
            registers,
            first_operand: writes(info.op0_access()),
        }
    }

    /// Iced's numbers of the general registers.
    pub(in crate::resolve) fn registers(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |register| self.registers >> register & 1 != 0)
    }
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Where a branch leads, if the code says.
fn target(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}

fn ends_block(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
    )
}

fn falls_through(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Next
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::ConditionalBranch
            | FlowControl::XbeginXabortXend
    )
}

/// The bytes of `range` that `read` gives: address and length in, bytes out.
pub(super) fn bytes_of(
    ranges: &[Range],
    read: impl Fn(u64, u64) -> Option<Vec<u8>>,
) -> Vec<(u64, Vec<u8>)> {
    ranges
        .iter()
        .filter_map(|range| Some((range.start, read(range.start, range.end - range.start)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_a_block_that_follows_itself() {
        // xor eax,eax; add eax,1; cmp eax,edi; jl add; ret
        let bytes = vec![0x31, 0xc0, 0x83, 0xc0, 0x01, 0x39, 0xf8, 0x7c, 0xf9, 0xc3];
        let code = Code::decode(&[(0x100, bytes)]).expect("short enough");
        assert_eq!(code.blocks.len(), 3);
        assert_eq!(code.blocks[0].next, [1]);
        assert_eq!(code.blocks[1].next, [2, 1]);
        assert!(code.blocks[2].next.is_empty());
        assert_eq!(code.block_of(2), Some(1));
    }

    #[test]
    fn padding_behind_a_jump_leads_nowhere_and_before_a_loop_into_it() {
        // je ret; nop; dec eax; jne dec; jmp ret; nop; inc eax; ret
        let bytes = vec![
            0x74, 0x0a, 0x66, 0x90, 0xff, 0xc8, 0x75, 0xfc, 0xeb, 0x02, 0x66, 0x90, 0xff, 0xc0,
            0xc3,
        ];
        let code = Code::decode(&[(0x100, bytes)]).expect("short enough");
        let next: Vec<&[usize]> = code.blocks.iter().map(|block| &block.next[..]).collect();
        assert_eq!(next, [&[1, 5][..], &[2], &[3, 2], &[5], &[], &[]]);
    }
}
