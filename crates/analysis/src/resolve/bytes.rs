//! Sections as they are read.

use gimli::{EndianSlice, LittleEndian};

/// A range of a debug section.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
