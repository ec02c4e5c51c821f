//! What the collector and its guard say to each other: messages of a fixed size over a socket that
//! keeps them apart. Neither ever waits for the other to read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To the guard: guard this thread. Answered.
    Protect,
    /// To the guard: leave this thread.
    LetGo,
    /// To the guard: leave all and end. Answered.
    Release,
    /// To the collector: this thread gets too many signals.
    Busy,
    /// To the collector: this thread has ended.
    Ended,
    /// To the collector: something could not be told.
    Forget,
    /// To the collector.
    Answer(Answer),
}

/// An answer of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The thread is guarded; to `Release`: all are let go.
    Guarded,
    /// There is no such thread.
    Gone,
    /// The thread may not be traced.
    Forbidden,
    /// There is no room for another thread.
    TooMany,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub kind: Kind,
    pub tid: u32,
    /// Signals held back so far; of the guard only.
    pub count: u64,
}

const KINDS: [Kind; 10] = [
    Kind::Protect,
    Kind::LetGo,
    Kind::Release,
    Kind::Busy,
    Kind::Ended,
    Kind::Forget,
    Kind::Answer(Answer::Guarded),
    Kind::Answer(Answer::Gone),
    Kind::Answer(Answer::Forbidden),
    Kind::Answer(Answer::TooMany),
];

/// Bytes of a message.
const SIZE: usize = 13;

impl Message {
    fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        bytes[0] = kind.unwrap_or_default() as u8;
        bytes[1..5].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[5..].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SIZE]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (tid, count) = rest.split_first_chunk()?;
        Some(Self {
            kind: *KINDS.get(usize::from(*kind))?,
            tid: u32::from_ne_bytes(*tid),
            count: u64::from_ne_bytes(*count.first_chunk()?),
        })
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Socket(pub OwnedFd);

impl Socket {
    /// Both ends.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are new and ours.
        Ok(unsafe {
            (
                Self(OwnedFd::from_raw_fd(ends[0])),
                Self(OwnedFd::from_raw_fd(ends[1])),
            )
        })
    }

    /// Whether the message went: not if nobody reads, or there is no more room.
    pub(super) fn say(&self, message: Message) -> bool {
        let bytes = message.to_bytes();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: sends the bytes of a live array.
        let sent = unsafe { libc::send(self.raw_fd(), bytes.as_ptr().cast(), SIZE, flags) };
        sent == SIZE as isize
    }

    /// The next message, if there is one.
    pub(super) fn next(&self) -> Option<Message> {
        let mut bytes = [0; SIZE];
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: receives at most as many bytes as the array has.
        let got = unsafe { libc::recv(self.raw_fd(), bytes.as_mut_ptr().cast(), SIZE, flags) };
        (got == SIZE as isize)
            .then(|| Message::from_bytes(&bytes))
            .flatten()
    }

    /// Whether the other end is closed.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: receives at most one byte into a live one.
        unsafe { libc::recv(self.raw_fd(), (&raw mut byte).cast(), 1, flags) == 0 }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_as_it_was_sent_and_a_closed_end_is_seen() {
        let (one, other) = Socket::pair().unwrap();
        for kind in KINDS {
            let message = Message {
                kind,
                tid: 77,
                count: 1 << 40,
            };
            assert!(one.say(message));
            let came = other.next().unwrap();
            assert_eq!((came.kind, came.tid, came.count), (kind, 77, 1 << 40));
        }
        assert!(other.next().is_none());
        assert!(!other.is_closed());
        drop(one);
        assert!(other.is_closed());
    }

    #[test]
    fn nobody_waits_for_an_end_that_does_not_read() {
        let (one, _other) = Socket::pair().unwrap();
        let message = Message {
            kind: Kind::Busy,
            tid: 1,
            count: 0,
        };
        let sent = (0..1_000_000).take_while(|_| one.say(message)).count();
        assert!((1..1_000_000).contains(&sent));
    }
}
