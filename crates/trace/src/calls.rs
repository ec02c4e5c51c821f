//! Which instructions call and which return, so that the calls that led to an access can be followed
//! without an unwinder.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::instruction::Instruction;

/// What an instruction does to the stack of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Nothing.
    Neither,
    /// It calls: its store is that of the return address.
    Calls,
    /// It returns: its load is that of the return address.
    Returns,
}

impl CallKind {
    /// What an instruction of x86-64 does.
    #[must_use]
    pub fn of(instruction: &Instruction) -> Self {
        let bytes = &instruction.bytes[..usize::from(instruction.length)];
        let decoded = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if decoded.is_call_near() || decoded.is_call_near_indirect() {
            Self::Calls
        } else if decoded.mnemonic() == Mnemonic::Ret {
            Self::Returns
        } else {
            Self::Neither
        }
    }
}

#[cfg(test)]
mod tests {
    use linewise_recording::Pid;

    use super::*;

    fn kind(bytes: &[u8]) -> CallKind {
        let mut instruction = Instruction {
            address: 0x40_1000,
            pid: Pid(1),
            bytes: [0; 15],
            length: bytes.len() as u8,
            updates: false,
            orders: false,
        };
        instruction.bytes[..bytes.len()].copy_from_slice(bytes);
        CallKind::of(&instruction)
    }

    #[test]
    fn calls_and_returns_are_told_from_what_else_uses_the_stack() {
        for call in [
            &[0xe8, 0, 0, 0, 0][..],
            &[0xff, 0xd0],
            &[0xff, 0x17],
            &[0x3e, 0x41, 0xff, 0xd3],
        ] {
            assert_eq!(kind(call), CallKind::Calls, "{call:x?}");
        }
        for ret in [&[0xc3][..], &[0xc2, 8, 0], &[0xf3, 0xc3]] {
            assert_eq!(kind(ret), CallKind::Returns, "{ret:x?}");
        }
        for other in [
            &[0x55][..],
            &[0x5d],
            &[0xff, 0x25, 0, 0, 0, 0],
            &[0x0f, 0x05],
            &[0x06],
        ] {
            assert_eq!(kind(other), CallKind::Neither, "{other:x?}");
        }
    }
}
