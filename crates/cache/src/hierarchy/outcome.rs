//! What one access did.

use super::counts::{Answer, Level, Served};

/// What an access did to one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Address of the line's first byte.
    pub line: u64,
    /// The core.
    pub core: u16,
    /// Who served it.
    pub served: Served,
    /// What each [`Level`] said.
    pub answers: [Answer; 3],
    /// Whether the core had the line and had to ask for the right to store.
    pub upgrade: bool,
    /// Whose private cache it came from, if it was another core's. Of which kind that sharing is, is known when the line
    /// leaves again: see [`Transfer`].
    pub supplier: Option<Party>,
}

impl Outcome {
    /// What a level said.
    #[must_use]
    pub fn answer(&self, level: Level) -> Answer {
        self.answers[level as usize]
    }
}

/// One side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// The core.
    pub core: u16,
    /// The thread of its access.
    pub thread: u16,
    /// The site of that access.
    pub site: u32,
    /// The first and the last byte of the line that it touched.
    pub bytes: (u8, u8),
}

/// A line that moved from one core's private cache to another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Address of the line's first byte.
    pub line: u64,
    /// The core that had the line, and its last access to it that conflicts with the one that fetched it: its last store
    /// for a load, its last access of any kind for a store. A copy that was never stored to counts with its last access.
    /// Where only earlier stores touch bytes of the fetching access, the first and the last byte of these.
    pub from: Party,
    /// The access that fetched it.
    pub to: Party,
    /// Whether it is true sharing: before the core lost the line again, it used bytes that another had stored to since it
    /// did so itself, or uses them in a later stay beside others, so that they would have come by themselves if they lay
    /// apart (the next such transfer is called true for that one). A stay that the end of the stream cuts is judged by what was done until then.
    pub is_true: bool,
}
