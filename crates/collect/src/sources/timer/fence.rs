//! Fences: instructions that wait until the stores before them have left the core, and what of those they wait for.
//!
//! `mov [obj], rax; lock add dword [rsp-64], 0` is how Java and C++ publish: the store itself retires at once, and the
//! time that its line takes to come passes at the fence, which touches nothing but the thread's own stack.

use iced_x86::{
    Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// What a fence waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedBy {
    /// The store at this index of what ran before it.
    Store(usize),
    /// Nothing: another fence stands before it.
    Nothing,
    /// A store that is not among what ran before it, or is none that can be named.
    Unknown,
}

/// Whether the instruction does nothing but wait for the stores before it.
pub(crate) fn is_fence(it: &Instruction) -> bool {
    if it.mnemonic() == Mnemonic::Mfence {
        return true;
    }
    let leaves_as_it_is = match it.mnemonic() {
        Mnemonic::Add | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Sub => 0,
        Mnemonic::And => ones(it),
        _ => return false,
    };
    it.has_lock_prefix()
        && it.memory_base() == Register::RSP
        && it.op1_kind() != OpKind::Register
        && it
            .try_immediate(1)
            .is_ok_and(|value| value & ones(it) == leaves_as_it_is)
}

/// All bits of the operand.
fn ones(it: &Instruction) -> u64 {
    let bits = 8 * it.memory_size().size().clamp(1, 8) as u32;
    u64::MAX >> (64 - bits)
}

/// What a fence waits for, of what ran before it in its block.
///
/// Stores leave in order, so the last one is the one that is waited for at the end. Those to the own stack are at hand.
pub(crate) fn awaited(before: &[Instruction]) -> AwaitedBy {
    let mut factory = InstructionInfoFactory::new();
    for (index, it) in before.iter().enumerate().rev() {
        let locked = it.has_lock_prefix() || it.mnemonic() == Mnemonic::Xchg;
        let mut stores = factory.info(it).used_memory().iter().filter(is_store);
        if is_fence(it) || (locked && stores.next().is_some()) {
            return AwaitedBy::Nothing;
        }
        let stores: Vec<&UsedMemory> = stores
            .filter(|store| store.base().full_register() != Register::RSP)
            .collect();
        if stores.is_empty() {
            continue;
        }
        // Its registers have gone on with it.
        return match it.is_string_instruction() {
            true => AwaitedBy::Unknown,
            false => AwaitedBy::Store(index),
        };
    }
    AwaitedBy::Unknown
}

fn is_store(memory: &&UsedMemory) -> bool {
    matches!(
        memory.access(),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn decoded(bytes: &[u8]) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, 0x40_1000, DecoderOptions::NONE)
            .iter()
            .collect()
    }

    #[test]
    fn what_changes_nothing_on_the_stack_is_a_fence() {
        let is = |bytes: &[u8]| is_fence(&decoded(bytes)[0]);
        // lock add dword [rsp], 0; lock add dword [rsp-0x40], 0; lock or qword [rsp], 0
        assert!(is(&[0xf0, 0x83, 0x04, 0x24, 0]));
        assert!(is(&[0xf0, 0x83, 0x44, 0x24, 0xc0, 0]));
        assert!(is(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0]));
        // lock and dword [rsp], -1; lock and byte [rsp], 0xff; lock sub dword [rsp], 0; mfence
        assert!(is(&[0xf0, 0x83, 0x24, 0x24, 0xff]));
        assert!(is(&[0xf0, 0x80, 0x24, 0x24, 0xff]));
        assert!(is(&[0xf0, 0x83, 0x2c, 0x24, 0]));
        assert!(is(&[0x0f, 0xae, 0xf0]));
        // Not locked; not on the stack; of effect; what is added may be anything; lfence waits for no store.
        assert!(!is(&[0x83, 0x04, 0x24, 0]));
        assert!(!is(&[0xf0, 0x83, 0x07, 0]));
        assert!(!is(&[0xf0, 0x83, 0x04, 0x24, 1]));
        assert!(!is(&[0xf0, 0x83, 0x24, 0x24, 0]));
        assert!(!is(&[0xf0, 0x01, 0x04, 0x24]));
        assert!(!is(&[0x0f, 0xae, 0xe8]));
    }

    #[test]
    fn the_last_store_that_others_may_see_is_waited_for() {
        let of = |bytes: &[u8]| awaited(&decoded(bytes));
        // mov [rdi], rax; mov [rsi], rax; mov [rsp+8], rax; mov rcx, [rdx]
        let stores = [
            0x48, 0x89, 0x07, 0x48, 0x89, 0x06, 0x48, 0x89, 0x44, 0x24, 8, 0x48, 0x8b, 0x0a,
        ];
        assert_eq!(of(&stores), AwaitedBy::Store(1));
        // lock inc qword [rdi], behind which nothing is left; and xchg [rdi], rax.
        assert_eq!(of(&[0xf0, 0x48, 0xff, 0x07]), AwaitedBy::Nothing);
        assert_eq!(of(&[0x48, 0x87, 0x07]), AwaitedBy::Nothing);
        // xchg rax, rcx is no fence; rep stosq has moved rdi; push is the own stack's.
        assert_eq!(of(&[0x48, 0x91]), AwaitedBy::Unknown);
        assert_eq!(of(&[0xf3, 0x48, 0xab]), AwaitedBy::Unknown);
        assert_eq!(of(&[0x50]), AwaitedBy::Unknown);
        assert_eq!(of(&[]), AwaitedBy::Unknown);
    }
}
