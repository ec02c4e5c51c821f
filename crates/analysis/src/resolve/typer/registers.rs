//! The general registers by their numbers.

use iced_x86::Register;

pub(super) const RAX: usize = 0;
pub(super) const RDX: usize = 2;
pub(in crate::resolve) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RDI: usize = 7;

/// The number of the general register that `register` is part of.
pub(in crate::resolve) fn full(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// The same from DWARF's number.
pub(super) fn from_dwarf(register: u16) -> Option<usize> {
    const ORDER: [usize; 8] = [RAX, RDX, 1, 3, 6, RDI, RBP, RSP];
    match register {
        0..=7 => ORDER.get(usize::from(register)).copied(),
        8..=15 => Some(usize::from(register)),
        _ => None,
    }
}
