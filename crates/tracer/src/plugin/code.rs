//! What an instruction will do to memory, by its bytes.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::words;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess};

/// The guest's instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    /// By QEMU's name for it.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The machine of its ELF files.
    pub(super) fn machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    /// It accesses memory.
    pub(super) accesses: bool,
    /// It reads and writes the same bytes.
    pub(super) updates: bool,
    /// It orders threads: atomic, or acquiring or releasing.
    pub(super) orders: bool,
    /// It returns from a call.
    pub(super) returns: bool,
    /// The bytes of its one operand; 0 if it has several or none, or they are not known.
    pub(super) bytes: u8,
}

impl Class {
    /// The bits above the address in a slot's definition.
    pub(super) fn bits(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        flag(self.updates, words::UPDATES)
            | flag(self.orders, words::ORDERS)
            | (u64::from(self.bytes) << 56)
    }
}

/// Reads instructions.
pub(super) struct Classifier {
    architecture: Architecture,
    factory: InstructionInfoFactory,
}

impl Classifier {
    pub(super) fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// What the instruction in `bytes` does. One that cannot be read is taken for one that may
    /// access memory.
    pub(super) fn classify(&mut self, bytes: &[u8]) -> Class {
        match self.architecture {
            Architecture::X86_64 => self.x86_64(bytes),
            Architecture::Aarch64 => bytes.try_into().map_or_else(
                |_| Class::default(),
                |word| aarch64(u32::from_le_bytes(word)),
            ),
        }
    }

    fn x86_64(&mut self, bytes: &[u8]) -> Class {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Class {
                accesses: true,
                ..Class::default()
            };
        }
        let used: Vec<_> = self
            .factory
            .info(&instruction)
            .used_memory()
            .iter()
            .filter(|memory| memory.access() != OpAccess::NoMemAccess)
            .copied()
            .collect();
        let updates = matches!(used.as_slice(), [only]
            if matches!(only.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite));
        let exchanges = instruction.mnemonic() == iced_x86::Mnemonic::Xchg;
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let bytes = match used.as_slice() {
            [only] if !repeats => u8::try_from(only.memory_size().size()).unwrap_or(0),
            _ => 0,
        };
        Class {
            accesses: !used.is_empty(),
            updates,
            orders: updates && (instruction.has_lock_prefix() || exchanges),
            returns: instruction.mnemonic() == iced_x86::Mnemonic::Ret,
            bytes,
        }
    }
}

/// Arm Architecture Reference Manual, C4.1: loads and stores have bit 27 set and bit 25 clear.
fn aarch64(word: u32) -> Class {
    if word & 0x0a00_0000 != 0x0800_0000 {
        return Class::default();
    }
    // Exclusives, compare-and-swap, load-acquire, store-release: x x 001000.
    let exclusive_group = word & 0x3f00_0000 == 0x0800_0000;
    // CAS has bits 23 and 21 set; CASP bit 21 with 23 clear and bit 31 clear.
    let compares = exclusive_group
        && word & (1 << 21) != 0
        && (word & (1 << 23) != 0 || word & (1 << 31) == 0);
    // Atomic memory operations: x x 111000, bit 21 set, bits 11 and 10 clear; LDAPR is one of them
    // by encoding and only loads.
    let atomic_group = word & 0x3f20_0c00 == 0x3820_0000;
    let loads_acquiring = atomic_group && word & 0xffc0 == 0xc000 && word & (1 << 23) != 0;
    Class {
        accesses: true,
        updates: compares || (atomic_group && !loads_acquiring),
        orders: exclusive_group || atomic_group,
        returns: false,
        bytes: 0,
    }
}

/// That of the guest.
static ARCHITECTURE: AtomicU8 = AtomicU8::new(0);

/// The architecture of the guest is this.
pub(super) fn remember(architecture: Architecture) {
    ARCHITECTURE.store(architecture as u8, Ordering::Relaxed);
}

/// The architecture of the guest.
pub(super) fn architecture() -> Architecture {
    if ARCHITECTURE.load(Ordering::Relaxed) == Architecture::Aarch64 as u8 {
        Architecture::Aarch64
    } else {
        Architecture::X86_64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(bytes: &[u8]) -> Class {
        Classifier::new(Architecture::X86_64).classify(bytes)
    }

    #[test]
    fn x86_loads_stores_and_updates_are_told_apart() {
        let load = x86(&[0x48, 0x8b, 0x07]);
        assert!(load.accesses && !load.updates && !load.orders && load.bytes == 8);
        let nothing = x86(&[0x48, 0x8d, 0x07]);
        assert!(!nothing.accesses, "lea");
        let add = x86(&[0x48, 0x01, 0x07]);
        assert!(add.updates && !add.orders && add.bytes == 8);
        let locked = x86(&[0xf0, 0x48, 0x01, 0x07]);
        assert!(locked.updates && locked.orders);
        let exchange = x86(&[0x48, 0x87, 0x07]);
        assert!(exchange.updates && exchange.orders);
        let exchange_registers = x86(&[0x48, 0x87, 0xc7]);
        assert!(!exchange_registers.accesses && !exchange_registers.orders);
        let push_from_memory = x86(&[0xff, 0x37]);
        assert!(push_from_memory.accesses && !push_from_memory.updates);
        assert_eq!(push_from_memory.bytes, 0);
        let vector = x86(&[0x0f, 0x28, 0x07]);
        assert_eq!(vector.bytes, 16);
        let call = x86(&[0xe8, 0, 0, 0, 0]);
        assert!(call.accesses);
        let repeated = x86(&[0xf3, 0xa4]);
        assert!(repeated.accesses && repeated.bytes == 0);
    }

    #[test]
    fn what_cannot_be_read_may_access_memory() {
        assert!(x86(&[0x06]).accesses);
    }

    #[test]
    fn arm_atomics_and_exclusives_order() {
        let class =
            |word: u32| Classifier::new(Architecture::Aarch64).classify(&word.to_le_bytes());
        assert!(!class(0x8b00_0000).accesses, "add x0, x0, x0");
        let load = class(0xf940_0000);
        assert!(load.accesses && !load.orders, "ldr x0, [x0]");
        let pair = class(0xa940_0400);
        assert!(pair.accesses && !pair.orders, "ldp x0, x1, [x0]");
        let exclusive = class(0xc85f_7c20);
        assert!(exclusive.orders && !exclusive.updates, "ldxr x0, [x1]");
        let acquire = class(0xc8df_fc20);
        assert!(acquire.orders && !acquire.updates, "ldar x0, [x1]");
        let add = class(0xf820_0022);
        assert!(add.orders && add.updates, "ldadd x0, x2, [x1]");
        let swap = class(0xf820_8022);
        assert!(swap.orders && swap.updates, "swp x0, x2, [x1]");
        let compare = class(0xc8a0_7c22);
        assert!(compare.orders && compare.updates, "cas x0, x2, [x1]");
        let acquire_rcpc = class(0xf8bf_c020);
        assert!(
            acquire_rcpc.orders && !acquire_rcpc.updates,
            "ldapr x0, [x1]"
        );
        let register_offset = class(0xf862_6820);
        assert!(
            register_offset.accesses && !register_offset.orders,
            "ldr x0, [x1, x2]"
        );
    }
}
