//! What the recorder tells: records of a few words.
//!
//! ```text
//! alloc   header stamp address size stack       interval (bytes, as f32) in the header's upper half
//! named   header stamp address size stack label                    likewise
//! free    header stamp address
//! unmap   header stamp address length
//! stack   header stack frames...
//! unname  header stamp address
//! slice   header stack ip sp bp prefix... words...     prefix: frames walked already; their number, and
//!                                                      the layout, in the halves of the upper half
//! label   header label bytes...                        their number in the header's upper half
//! mark    header stamp id label                        what is marked in the header's upper half
//! ```
//!
//! The header's bytes are: kind, length in words, allocator, nothing; then the upper half.

/// Frames of a stack, at most.
pub const MOST_FRAMES: usize = 24;
/// Words of a slice of the stack, at most.
pub const SLICE_WORDS: usize = 200;

/// What a block was asked from, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the words of linewise_recording::Allocator")]
pub enum AllocatorCode {
    Malloc,
    Calloc,
    Realloc,
    Aligned,
    New,
    Mmap,
    Other,
    Pool,
}

impl AllocatorCode {
    /// The one with this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Malloc,
            1 => Self::Calloc,
            2 => Self::Realloc,
            3 => Self::Aligned,
            4 => Self::New,
            5 => Self::Mmap,
            6 => Self::Other,
            7 => Self::Pool,
            _ => return None,
        })
    }
}

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table above")]
pub enum RecordKind {
    Alloc = 1,
    Named = 2,
    Free = 3,
    Unmap = 4,
    Stack = 5,
    Slice = 6,
    Label = 7,
    /// The end of a named object, which frees no memory.
    Unname = 8,
    /// What the thread works for from here on.
    Mark = 9,
}

/// What a thread says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MarkCode {
    /// It works for this session from here on.
    Session = 1,
    /// It works for no session.
    SessionEnd = 2,
    /// It is in this phase from here on.
    Phase = 3,
    /// It is in no phase.
    PhaseEnd = 4,
    /// It said something that there was no room for: from here on it is not known.
    Lost = 5,
}

impl MarkCode {
    fn from_number(number: u32) -> Option<Self> {
        use MarkCode::*;
        [Session, SessionEnd, Phase, PhaseEnd, Lost]
            .into_iter()
            .find(|&code| code as u32 == number)
    }
}

/// A record, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// A block was allocated.
    Alloc {
        /// When.
        stamp: u64,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
        /// Key of its stack.
        stack: u64,
        /// What it was asked from.
        allocator: AllocatorCode,
        /// Mean distance of sampled blocks in bytes; 0: all are told of.
        interval: f32,
        /// Key of its name.
        label: Option<u64>,
    },
    /// A block is about to be freed; or the name of one ends.
    Free {
        /// When.
        stamp: u64,
        /// First byte.
        address: u64,
        /// Whether it is a named object alone that ends.
        named: bool,
    },
    /// Memory is about to be unmapped.
    Unmap {
        /// When.
        stamp: u64,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// What a key of a stack stands for.
    Stack {
        /// The key.
        key: u64,
        /// Return addresses, innermost first.
        frames: &'a [u64],
    },
    /// What a key of a stack stands for, to be found out.
    Slice {
        /// The key.
        key: u64,
        /// The set of loaded code.
        layout: u32,
        /// Return addresses up to the one that there was no rule for, without that.
        prefix: &'a [u64],
        /// That address, and the registers there.
        at: crate::Cursor,
        /// The stack from `at.sp` on.
        words: &'a [u64],
    },
    /// What the key of a name stands for.
    Label {
        /// The key.
        key: u64,
        /// The name, padded with zeros.
        words: &'a [u64],
        /// Its bytes.
        bytes: usize,
    },
    /// What the thread works for from here on.
    Mark {
        /// When.
        stamp: u64,
        /// What is said.
        code: MarkCode,
        /// The number of the session.
        id: u64,
        /// Key of its name; 0: it has none.
        label: u64,
    },
}

/// The header of a record of `words` words, itself included.
#[inline]
#[must_use]
pub fn header(kind: RecordKind, words: usize, allocator: AllocatorCode, upper: u32) -> u64 {
    kind as u64 | (words as u64) << 8 | (allocator as u64) << 16 | u64::from(upper) << 32
}

/// The number of words of the record that begins with `header`.
#[must_use]
pub(crate) fn length(header: u64) -> usize {
    (header >> 8 & 0xff) as usize
}

impl<'a> Record<'a> {
    /// Takes a record apart; `None` if it makes no sense.
    #[must_use]
    pub fn parse(words: &'a [u64]) -> Option<Self> {
        let (&header, rest) = words.split_first()?;
        let upper = (header >> 32) as u32;
        let allocator = AllocatorCode::from_byte((header >> 16) as u8)?;
        Some(match (header as u8, rest) {
            (1, &[stamp, address, size, stack]) => Self::Alloc {
                stamp,
                address,
                size,
                stack,
                allocator,
                interval: f32::from_bits(upper),
                label: None,
            },
            (2, &[stamp, address, size, stack, label]) => Self::Alloc {
                stamp,
                address,
                size,
                stack,
                allocator,
                interval: f32::from_bits(upper),
                label: Some(label),
            },
            (kind @ (3 | 8), &[stamp, address]) => Self::Free {
                stamp,
                address,
                named: kind == 8,
            },
            (4, &[stamp, address, length]) => Self::Unmap {
                stamp,
                address,
                length,
            },
            (5, [key, frames @ ..]) => Self::Stack { key: *key, frames },
            (6, [key, ip, sp, bp, rest @ ..]) => {
                let (prefix, words) = rest.split_at_checked((upper & 0xffff) as usize)?;
                Self::Slice {
                    key: *key,
                    layout: upper >> 16,
                    prefix,
                    at: crate::Cursor {
                        ip: *ip,
                        sp: *sp,
                        bp: *bp,
                    },
                    words,
                }
            }
            (7, [key, words @ ..]) if upper as usize <= words.len() * 8 => Self::Label {
                key: *key,
                words,
                bytes: upper as usize,
            },
            (9, &[stamp, id, label]) => Self::Mark {
                stamp,
                code: MarkCode::from_number(upper)?,
                id,
                label,
            },
            _ => return None,
        })
    }
}

/// The key of a name.
#[must_use]
pub fn key_of_bytes(bytes: &[u8]) -> u64 {
    // FNV-1a, and never 0.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_apart_or_refused() {
        let head = |kind, words| header(kind, words, AllocatorCode::Calloc, 0);
        let alloc = [head(RecordKind::Alloc, 5), 10, 0x1000, 48, 7];
        assert!(matches!(
            Record::parse(&alloc),
            Some(Record::Alloc {
                size: 48,
                allocator: AllocatorCode::Calloc,
                label: None,
                ..
            })
        ));
        assert_eq!(Record::parse(&alloc[..4]), None);
        assert_eq!(Record::parse(&[]), None);
        assert_eq!(
            Record::parse(&[head(RecordKind::Free, 3) | 0xff << 16, 1, 2]),
            None
        );
        let slice = |prefix: u32| {
            let header = header(RecordKind::Slice, 7, AllocatorCode::Malloc, prefix);
            [header, 1, 2, 3, 4, 5, 6]
        };
        assert!(matches!(
            Record::parse(&slice(1)),
            Some(Record::Slice {
                prefix: [5],
                words: [6],
                ..
            })
        ));
        assert_eq!(Record::parse(&slice(3)), None);
        let mark = |code| {
            [
                header(RecordKind::Mark, 4, AllocatorCode::Malloc, code),
                5,
                6,
                7,
            ]
        };
        let phase = Record::Mark {
            stamp: 5,
            code: MarkCode::Phase,
            id: 6,
            label: 7,
        };
        assert_eq!(Record::parse(&mark(3)), Some(phase));
        assert_eq!(Record::parse(&mark(0)), None);
        assert_eq!(Record::parse(&mark(6)), None);
        assert_eq!(Record::parse(&mark(3)[..3]), None);
        let label = [header(RecordKind::Label, 3, AllocatorCode::Pool, 9), 1, 0];
        assert_eq!(Record::parse(&label), None);
    }
}
