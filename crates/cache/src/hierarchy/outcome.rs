//! What one access did.

use super::counts::{Class, Level, Served};

/// What a level said to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A nearer level had the line, or there is no such level.
    NotAsked,
    /// It has the line.
    Hit,
    /// It does not. Sharing is told true from false by the bytes of this access alone; see
    /// [`Counts::overlapping`](super::Counts::overlapping).
    Miss(Class),
}

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
    /// The transfer from another core's private cache, if that served it.
    pub transfer: Option<Transfer>,
}

impl Outcome {
    /// What a level said.
    #[must_use]
    pub fn answer(&self, level: Level) -> Answer {
        self.answers[level as usize]
    }
}

/// A line moving from one core's private cache to another's.
///
/// The accesses involved are the one that fetches and the other core's last access to the line in
/// this residency that conflicts with it: its last store for a load, its last access of any kind
/// for a store. A copy that was never stored to counts with its last access. Who hands over a whole line has stored to
/// more of it than that access: all bytes count that the core stored to since it alone had the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The core that had the line.
    pub core: u16,
    /// The thread of that core's access.
    pub thread: u16,
    /// The site of that access.
    pub site: u32,
    /// The first and the last byte of the line that it touched; where only earlier stores overlap the fetching access,
    /// the first and the last byte of that.
    pub bytes: (u8, u8),
    /// Whether the fetching access touches bytes of that access or of earlier stores: true sharing.
    pub overlap: bool,
}
