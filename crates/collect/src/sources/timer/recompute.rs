//! What was in a register that an instruction overwrote, computed again from the instructions before it.
//!
//! `lea rdx, [rip+table]; mov rdx, [rcx+rdx]` leaves no register with the address of its load, but the value that the
//! first instruction made is known from the code. Loads are not done again: memory may have changed.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// A stretch of code that runs from its begin to its end: what comes before an instruction, that instruction, and what
/// comes behind it.
pub(crate) struct Stretch<'a> {
    instructions: Vec<&'a Instruction>,
    /// Which of them it is.
    of: usize,
    /// The registers behind the last of them.
    after: &'a dyn Fn(Register) -> Option<u64>,
    factory: InstructionInfoFactory,
}

impl<'a> Stretch<'a> {
    pub(crate) fn new(
        earlier: &'a [Instruction],
        it: &'a Instruction,
        later: &'a [Instruction],
        after: &'a dyn Fn(Register) -> Option<u64>,
    ) -> Self {
        Self {
            instructions: earlier.iter().chain([it]).chain(later).collect(),
            of: earlier.len(),
            after,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// What a register held before the instruction ran, if that can be told.
    pub(crate) fn before_it(&mut self, register: Register) -> Option<u64> {
        self.before(register, self.of)
    }

    /// Whether a register is no longer what it was before the instruction ran.
    pub(crate) fn is_overwritten(&mut self, register: Register) -> bool {
        let full = register.full_register();
        (self.of..self.instructions.len()).any(|later| self.writes(later, full).is_some())
    }

    /// What a register held before the instruction at `index` ran.
    fn before(&mut self, register: Register, index: usize) -> Option<u64> {
        let full = register.full_register();
        let overwritten =
            (index..self.instructions.len()).any(|later| self.writes(later, full).is_some());
        let value = if !overwritten {
            (self.after)(full)?
        } else {
            let by = (0..index)
                .rev()
                .find(|&it| self.writes(it, full).is_some())?;
            match self.writes(by, full)? {
                // A part of it, or only under a condition.
                false => return None,
                true => self.result(by)?,
            }
        };
        Some(match register.size() {
            8 => value,
            4 => value & 0xffff_ffff,
            _ => return None,
        })
    }

    /// Whether an instruction writes a register: all of it, or some.
    fn writes(&mut self, index: usize, full: Register) -> Option<bool> {
        let info = self.factory.info(self.instructions[index]);
        let mut found = None;
        for used in info.used_registers() {
            if used.register().full_register() != full {
                continue;
            }
            match used.access() {
                OpAccess::Write | OpAccess::ReadWrite => {
                    found = Some(used.register().size() >= 4 && found != Some(false));
                }
                OpAccess::CondWrite | OpAccess::ReadCondWrite => found = Some(false),
                _ => {}
            }
        }
        found
    }

    /// What an instruction left in the register that is its first operand.
    fn result(&mut self, index: usize) -> Option<u64> {
        let it = *self.instructions[index];
        let wide = match (it.op0_kind(), it.mnemonic()) {
            (_, Mnemonic::Cdqe) => true,
            (OpKind::Register, _) => it.op0_register().size() == 8,
            _ => return None,
        };
        let value = match it.mnemonic() {
            Mnemonic::Cdqe => self.before(Register::EAX, index)? as u32 as i32 as i64 as u64,
            Mnemonic::Lea => it.virtual_address(1, 0, |register, _, _| match register {
                Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
                _ => self.before(register, index),
            })?,
            Mnemonic::Mov => self.operand(&it, 1, index)?,
            Mnemonic::Movsxd => self.operand(&it, 1, index)? as u32 as i32 as i64 as u64,
            Mnemonic::Xor if same(&it) => 0,
            Mnemonic::Inc => self.operand(&it, 0, index)?.wrapping_add(1),
            Mnemonic::Dec => self.operand(&it, 0, index)?.wrapping_sub(1),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or | Mnemonic::Shl => {
                let (a, b) = (self.operand(&it, 0, index)?, self.operand(&it, 1, index)?);
                match it.mnemonic() {
                    Mnemonic::Add => a.wrapping_add(b),
                    Mnemonic::Sub => a.wrapping_sub(b),
                    Mnemonic::And => a & b,
                    Mnemonic::Or => a | b,
                    _ => a << (b & if wide { 63 } else { 31 }),
                }
            }
            _ => return None,
        };
        Some(if wide { value } else { value & 0xffff_ffff })
    }

    /// A register's value or a constant.
    fn operand(&mut self, it: &Instruction, operand: u32, index: usize) -> Option<u64> {
        match it.op_kind(operand) {
            OpKind::Register => self.before(it.op_register(operand), index),
            OpKind::Memory => None,
            _ => it.try_immediate(operand).ok(),
        }
    }
}

/// Whether both operands are one register.
fn same(it: &Instruction) -> bool {
    it.op1_kind() == OpKind::Register && it.op0_register() == it.op1_register()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    const AT: u64 = 0x40_1000;

    /// What rdx held before the last instruction, of the registers behind it rcx and rax are known.
    fn rdx(bytes: &[u8]) -> Option<u64> {
        let all: Vec<Instruction> = Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE)
            .iter()
            .collect();
        let (last, earlier) = all.split_last().unwrap();
        let after = |register| match register {
            Register::RCX => Some(0x20),
            Register::RAX => Some(0x1_0000_0005),
            Register::RDX => Some(0xbad),
            _ => None,
        };
        Stretch::new(earlier, last, &[], &after).before_it(Register::RDX)
    }

    #[test]
    fn what_the_code_made_is_made_again() {
        let load = [0x48, 0x8b, 0x14, 0x11]; // mov rdx, [rcx+rdx]
        let with = |before: &[u8]| rdx(&[before, &load].concat());
        // lea rdx, [rip+0x2cda]
        assert_eq!(
            with(&[0x48, 0x8d, 0x15, 0xda, 0x2c, 0, 0]),
            Some(AT + 7 + 0x2cda)
        );
        // mov rdx, rax; shl rdx, 4; add rdx, rcx
        let steps = [0x48, 0x89, 0xc2, 0x48, 0xc1, 0xe2, 4, 0x48, 0x01, 0xca];
        assert_eq!(with(&steps), Some((0x1_0000_0005 << 4) + 0x20));
        // mov edx, eax: the upper half is gone
        assert_eq!(with(&[0x89, 0xc2]), Some(5));
        // movsxd rdx, eax
        assert_eq!(with(&[0x48, 0x63, 0xd0]), Some(5));
        // mov rdx, [rax]: not from memory; mov dl, 1: not in parts; cmove rdx, rax: not under conditions
        assert_eq!(with(&[0x48, 0x8b, 0x10]), None);
        assert_eq!(with(&[0xb2, 1]), None);
        assert_eq!(with(&[0x48, 0x0f, 0x44, 0xd0]), None);
        // Nothing before it.
        assert_eq!(with(&[]), None);
        // xchg rax, rdx; another register took the value that would be needed.
        assert_eq!(with(&[0x48, 0x89, 0xc2, 0x48, 0x31, 0xc0]), None);
    }
}
