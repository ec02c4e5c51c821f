//! Bytes that came and were not yet used.

use std::io;

/// What is read at a time at least.
const ROOM: usize = 4096;
/// A buffer that grew beyond this for one request is let go of after it.
const KEPT: usize = 64 * 1024;

/// Bytes from a connection, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Input {
    /// What is there.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// `count` bytes of what is there were used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.begin += count;
        debug_assert!(self.begin <= self.end);
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            if self.bytes.len() > KEPT {
                self.bytes = Vec::new();
            }
        }
    }

    /// Reads more by `read`, with room for `wanted` bytes at least.
    pub(crate) fn fill(
        &mut self,
        wanted: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let count = read(self.room(wanted))?;
        self.add(count);
        Ok(count)
    }

    /// Where the next bytes go: `wanted` of them at least.
    pub(crate) fn room(&mut self, wanted: usize) -> &mut [u8] {
        let wanted = wanted.max(ROOM / 4);
        if self.bytes.len() - self.end < wanted && self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.len() - self.end < wanted {
            let grown = (self.end + wanted).max(ROOM).max(self.bytes.len() * 2);
            self.bytes.resize(grown, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// `count` bytes were read into the room.
    pub(crate) fn add(&mut self, count: usize) {
        self.end += count;
    }
}

/// By the C library, whose search is by vectors.
pub(crate) fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    // SAFETY: looks at these bytes alone.
    let found = unsafe { libc::memchr(bytes.as_ptr().cast(), wanted.into(), bytes.len()) };
    (!found.is_null()).then(|| found.addr() - bytes.as_ptr().addr())
}
