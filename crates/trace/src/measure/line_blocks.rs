//! Heap blocks on lines that moved.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::moves::MoveHasher;
use crate::access::GUEST_BITS;

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<MoveHasher>>;

/// The blocks on a line that moves: number of the block, and how often it was there.
#[derive(Default)]
pub(crate) struct OnLine {
    pub(crate) seen: u32,
    pub(crate) blocks: Vec<(u64, u32)>,
}

/// The blocks on lines that moved.
#[derive(Default)]
pub(crate) struct LineBlocks {
    pub(crate) lines: Map<u64, OnLine>,
    /// First byte and size, by number.
    pub(crate) places: HashMap<u64, (u64, u64)>,
}

impl LineBlocks {
    /// The number of the block that the first of these bytes of a line lay in, mostly. `line` is as in an
    /// access, `bytes` a mask.
    pub(crate) fn at(&self, line: u64, bytes: u64, bit_shift: u32) -> Option<u64> {
        let offset = u64::from(bytes.trailing_zeros().min(63)) << bit_shift;
        let address = (line & ((1 << GUEST_BITS) - 1)) + offset;
        let blocks = self.lines.get(&line)?.blocks.iter();
        let holds = |id: &u64| {
            let place = self.places.get(id);
            place.is_some_and(|&(first, size)| address.wrapping_sub(first) < size)
        };
        let there = blocks.filter(|(id, _)| holds(id));
        Some(there.max_by_key(|(_, count)| *count)?.0)
    }
}
