//! Doors for the fuzz targets in `fuzz/`; in no other build (`--cfg fuzzing`).

use std::mem::offset_of;

use super::layout::{
    DATA_OFFSET, ENTRIES_OFFSET, LENGTH, RINGS_OFFSET, TABLE_BYTES, TABLES_OFFSET,
};
use super::{Header, Region, RingHeader};

/// Where a target that does as it likes finds things in the memory, in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct RingPlace {
    /// The ring's header.
    pub header: usize,
    /// How far it is written.
    pub head: usize,
    /// The number under which the thread has lines.
    pub owner: usize,
    /// State, kind, process, thread, image, parent (32 bits each), the stamp when it was opened, and the namespace.
    pub state: usize,
    /// Its first word.
    pub words: usize,
    /// How many words it has.
    pub count: usize,
}

impl Region {
    /// The places of a ring.
    #[must_use]
    pub fn ring_place(index: usize) -> RingPlace {
        let header = RINGS_OFFSET + index * size_of::<RingHeader>();
        RingPlace {
            header,
            head: header + offset_of!(RingHeader, head),
            owner: header + offset_of!(RingHeader, owner),
            state: header + offset_of!(RingHeader, state),
            words: super::ring_offset(index),
            count: (super::ring_offset(index + 1) - super::ring_offset(index)) / 8,
        }
    }

    /// Where the number of rings stands.
    #[must_use]
    pub fn rings_used_place() -> usize {
        offset_of!(Header, rings_used)
    }

    /// The entries of tables, the tables, the bytes of one, and the end of all.
    #[must_use]
    pub fn table_places() -> [usize; 4] {
        const { assert!(ENTRIES_OFFSET < DATA_OFFSET) };
        [ENTRIES_OFFSET, TABLES_OFFSET, TABLE_BYTES, LENGTH]
    }
}
