//! The one value that everything here consumes.

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads.
    Load,
    /// Writes without having to know what was there.
    Store,
    /// Reads and writes in one instruction.
    Update,
}

impl Kind {
    /// Whether it changes memory.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Load
    }
}

/// One access of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// First byte.
    pub address: u64,
    /// Bytes, at least 1; may reach into the next line.
    pub size: u16,
    /// What it does.
    pub kind: Kind,
    /// Which thread, numbered densely from 0.
    pub thread: u16,
    /// Which instruction (or call path), numbered densely from 0 by whoever makes the stream.
    pub site: u32,
}
