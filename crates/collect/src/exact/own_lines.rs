//! The collector's hand on lines that threads have for themselves again: the order of equal rate takes one where
//! it comes to another thread's access to it.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use linewise_tracer::Region;

use super::access::{GUEST_BITS, Handover};
use super::code::{Banks, Slot, handover};

/// Bytes of a line, as a shift.
pub(super) const LINE_BITS: u32 = 6;

/// The lines of all processes, and what is needed to name what was done to them.
#[derive(Debug)]
pub struct OwnLines {
    region: Region,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    banks: Banks,
    /// Threads by the numbers under which they have lines.
    owners: HashMap<u16, u16>,
}

impl OwnLines {
    pub(super) fn new(region: Region) -> Self {
        Self {
            region,
            known: RwLock::default(),
        }
    }

    /// Takes the slots that were defined, from this place of a bank on.
    pub(super) fn define(&self, bank: usize, place: usize, slots: &[Slot]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // There is room where the other has room.
        if let Some(bank) = known.banks.make(bank) {
            bank[place..place + slots.len()].copy_from_slice(slots);
        }
    }

    /// A thread and its [owner number](linewise_tracer::Ring::owner).
    pub(super) fn add_thread(&self, thread: u16, owner: u16) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.owners.insert(owner, thread);
    }

    /// Has all accesses to the line of an address, which tells its space, told from now on; what the thread did
    /// that has it again, if one has.
    pub(super) fn contend(&self, address: u64) -> Option<Handover> {
        let guest = address & ((1 << GUEST_BITS) - 1);
        let taken = self.region.contend((address >> GUEST_BITS) as u32, guest)?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let &thread = known.owners.get(&taken.owner)?;
        let bank = |number: u32| known.banks.get(number);
        Some(handover(bank, &taken, thread, 0, address - guest))
    }

    /// Nobody asks for the lines of an image any more.
    pub(super) fn forget(&self, image: u32) {
        self.region.free_tables(image);
    }
}
