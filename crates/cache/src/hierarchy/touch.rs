//! An access to one line, as the caches see it.

use crate::Kind;

use super::lines::Info;

/// An access to one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) line: u64,
    /// First byte in the line.
    pub(super) first: u32,
    /// Last byte in the line.
    pub(super) last: u32,
    pub(super) site: u32,
    /// Where the site is counted.
    pub(super) counted: u32,
    pub(super) thread: u16,
    pub(super) kind: Kind,
}

impl Touch {
    #[inline]
    pub(super) fn info(&self) -> u64 {
        Info::pack(self.site, self.thread, self.first, self.last)
    }
}
