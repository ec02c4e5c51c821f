//! What lies where in the memory, in bytes from its beginning.

use super::ring_header::RingHeader;
use super::turn::Turn;
use crate::own::{TABLES, Table, TableEntry};

/// Rings that there can be at a time; each process needs one besides those of its threads.
pub(super) const RINGS: usize = 4096;

/// As many places in the order.
pub(super) const TURNS: usize = RINGS;
/// Rings of the full size; the others are an eighth of it, so that a crowd of threads does not take
/// all memory.
pub(super) const LARGE_RINGS: usize = 64;
pub(super) const LARGE_WORDS: u64 = 1 << 17;
pub(super) const SMALL_WORDS: u64 = 1 << 14;
pub(super) const HEADER_BYTES: usize = 4096;
pub(super) const CONFIGURATION_BYTES: usize = 1 << 20;
pub(super) const RINGS_OFFSET: usize = HEADER_BYTES + CONFIGURATION_BYTES;
pub(super) const ENTRIES_OFFSET: usize = RINGS_OFFSET + RINGS * size_of::<RingHeader>();
pub(super) const TURNS_OFFSET: usize =
    (ENTRIES_OFFSET + TABLES * size_of::<TableEntry>()).next_multiple_of(4096);
pub(super) const DATA_OFFSET: usize =
    (TURNS_OFFSET + TURNS * size_of::<Turn>()).next_multiple_of(4096);
pub(super) const TABLES_OFFSET: usize = ring_offset(RINGS);
pub(super) const TABLE_BYTES: usize = size_of::<Table>();
pub(super) const LENGTH: usize = TABLES_OFFSET + TABLES * TABLE_BYTES;

/// Where a ring begins.
pub(super) const fn ring_offset(index: usize) -> usize {
    let large = if index < LARGE_RINGS {
        index
    } else {
        LARGE_RINGS
    };
    DATA_OFFSET + (large * LARGE_WORDS as usize + (index - large) * SMALL_WORDS as usize) * 8
}
