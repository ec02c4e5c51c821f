//! The sizes of a column's pages, from their headers: Parquet's reader makes room for whatever a page says that it
//! holds, up to 2 GiB, and a kilobyte can unfold into that.
//!
//! A header is a structure of Thrift's compact protocol. Its second field is the size of the page once decompressed,
//! its third the size in the file, which the next header follows.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Headers are small, but for statistics of long text.
const WINDOWS: [usize; 2] = [512, 1 << 20];
/// Pages of one column of one row group, at most.
const MOST_PAGES: usize = 100_000;
/// Structures in structures of a header, at most.
const DEEPEST: usize = 8;

/// What a column's pages hold once decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSizes {
    /// Bytes of the largest.
    pub(crate) largest: u64,
    /// Bytes of all.
    pub(crate) sum: u64,
}

/// The sizes of the pages in the `length` bytes from `start` on; `None` if these are no pages.
pub(crate) fn sizes(file: &File, start: u64, length: u64) -> Option<PageSizes> {
    let mut sizes = PageSizes::default();
    let end = start.checked_add(length)?;
    let mut at = start;
    for _ in 0..MOST_PAGES {
        if at >= end {
            return Some(sizes);
        }
        let (header, page) = WINDOWS.iter().find_map(|&window| {
            let window = usize::try_from(end - at).map_or(window, |left| left.min(window));
            let mut bytes = vec![0; window];
            file.read_exact_at(&mut bytes, at).ok()?;
            let mut input = Input(&bytes);
            let page = input.page()?;
            Some(((bytes.len() - input.0.len()) as u64, page))
        })?;
        sizes.largest = sizes.largest.max(page.decompressed);
        sizes.sum = sizes.sum.checked_add(page.decompressed)?;
        at = at.checked_add(header)?.checked_add(page.in_file)?;
    }
    None
}

/// What a header says of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    decompressed: u64,
    in_file: u64,
}

/// Bytes of the compact protocol that are still to be read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn page(&mut self) -> Option<Page> {
        let (mut decompressed, mut in_file) = (None, None);
        let mut last = 0;
        while let Some((field, kind)) = self.field(last)? {
            match (field, kind) {
                (2, 5) => decompressed = Some(self.signed()?),
                (3, 5) => in_file = Some(self.signed()?),
                _ => self.skip(kind, 0)?,
            }
            last = field;
        }
        Some(Page {
            decompressed: u64::try_from(decompressed?).ok()?,
            in_file: u64::try_from(in_file?).ok()?,
        })
    }

    /// Number and type of the next field; the inner `None` where the structure ends.
    fn field(&mut self, last: i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let field = match byte >> 4 {
            0 => self.signed()?,
            further => last.checked_add(i64::from(further))?,
        };
        Some(Some((field, byte & 15)))
    }

    /// Passes over a value of this type.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            // True and false are types of their own.
            1 | 2 => Some(()),
            3 => self.take(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.take(8),
            8 => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)
            }
            9 | 10 => {
                let byte = self.byte()?;
                let count = match byte >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                // In a list they take a byte, as whatever else.
                let kind = match byte & 15 {
                    1 | 2 => 3,
                    kind => kind,
                };
                (0..count).try_for_each(|_| self.skip(kind, depth + 1))
            }
            12 => {
                let mut last = 0;
                while let Some((field, kind)) = self.field(last)? {
                    self.skip(kind, depth + 1)?;
                    last = field;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    /// A number of which the lowest bit is the sign.
    fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_and_passed_over() {
        // Type 0, 300 bytes, 20 in the file, and a structure with a number and a text.
        let bytes = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x2c, 0x15, 0x02, 0x18, 0x01, b'a', 0x00,
            0x00, 0xff,
        ];
        let mut input = Input(&bytes);
        let page = Page {
            decompressed: 300,
            in_file: 20,
        };
        assert_eq!(input.page(), Some(page));
        assert_eq!(input.0, [0xff]);
        for length in 0..bytes.len() - 1 {
            assert_eq!(Input(&bytes[..length]).page(), None, "{length}");
        }
    }

    #[test]
    fn negative_sizes_and_structures_without_end_are_none() {
        assert_eq!(Input(&[0x15, 0, 0x15, 0x01, 0x15, 0x28, 0]).page(), None);
        assert_eq!(Input(&[0x1c; 64]).page(), None);
    }
}
