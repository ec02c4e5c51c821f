//! jitdump: a file in which a runtime tells of the code that it makes, with lines (node `--perf-prof`, agents of Java, .NET). The
//! process maps it, which is how it is found. See `tools/perf/Documentation/jitdump-specification.txt` of Linux.
//!
//! ```text
//! header   magic, version, bytes of it, ...
//! records  kind, bytes of it, time; of code where it lies, its name and its bytes; of lines the addresses where they begin
//! ```
//!
//! Lines are told before the code that they are of. Only little-endian files are read.

use std::sync::Arc;

use super::files::File;

const MAGIC: u32 = 0x4a69_5444;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
/// Bytes that every record begins with.
const HEAD: u64 = 16;
/// Bytes of a record of code before its name.
const BEFORE_NAME: u64 = 40;
/// Records that are read, at most, and bytes of one, code aside.
const MOST_RECORDS: usize = 4_000_000;
const LARGEST_RECORD: u64 = 1 << 20;
/// Bytes of a name that are kept.
const LONGEST_NAME: u64 = 4096;
/// In place of a file's name: the one before.
const SAME: &[u8] = b"\xff";
/// What V8 adds to addresses of lines: the header of the ELF file that perf would make of the code.
const ELF_HEADER: u64 = 64;

/// What a record tells.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    /// Code lies there.
    Load {
        start: u64,
        size: u64,
        name: String,
        lines: Vec<Line>,
    },
    /// Code lies elsewhere now.
    Move { from: u64, to: u64, size: u64 },
}

/// Where a line begins in code.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Bytes from where the code begins.
    pub(super) offset: u64,
    pub(super) line: u32,
    pub(super) file: Arc<str>,
}

/// Hands what `file` tells to `take`, which says whether it wants more. A file that is broken, or not yet written to its end, ends
/// there.
pub(super) fn read(file: &dyn File, mut take: impl FnMut(Told) -> bool) -> Option<()> {
    let head = file.read(0, 12)?;
    if number(&head, 0, 4)? != u64::from(MAGIC) {
        return None;
    }
    let mut at = number(&head, 8, 4)?;
    let mut lines: (u64, Vec<Line>) = (0, Vec::new());
    for _ in 0..MOST_RECORDS {
        let head = file.read(at, HEAD)?;
        let (kind, size) = (number(&head, 0, 4)? as u32, number(&head, 4, 4)?);
        let body = size.checked_sub(HEAD)?;
        let bytes = |most: u64| file.read(at + HEAD, body.min(most));
        let told = match kind {
            LOAD => loaded(
                &bytes(BEFORE_NAME + LONGEST_NAME)?,
                std::mem::take(&mut lines),
            ),
            MOVE => moved(&bytes(LARGEST_RECORD)?),
            DEBUG_INFO => {
                lines = of_lines(&bytes(LARGEST_RECORD)?).unwrap_or_default();
                None
            }
            _ => None,
        };
        if told.is_some_and(|told| !take(told)) {
            return None;
        }
        at = at.checked_add(size)?;
    }
    None
}

fn loaded(bytes: &[u8], (of, lines): (u64, Vec<Line>)) -> Option<Told> {
    let (start, size) = (number(bytes, 16, 8)?, number(bytes, 24, 8)?);
    let (name, _) = text(bytes, BEFORE_NAME as usize)?;
    let lines = if of == start {
        within(size, lines)
    } else {
        Vec::new()
    };
    Some(Told::Load {
        start,
        size,
        name: String::from_utf8_lossy(name).into_owned(),
        lines,
    })
}

/// The lines of code of `size` bytes, in order. Node 20 tells nonsense of some functions, which lies elsewhere: then there are none.
fn within(size: u64, mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| line.offset);
    if lines.first().is_some_and(|line| line.offset >= ELF_HEADER) {
        lines.iter_mut().for_each(|line| line.offset -= ELF_HEADER);
    }
    if lines.last().is_some_and(|line| line.offset > size) {
        lines.clear();
    }
    lines
}

fn moved(bytes: &[u8]) -> Option<Told> {
    Some(Told::Move {
        from: number(bytes, 16, 8)?,
        to: number(bytes, 24, 8)?,
        size: number(bytes, 32, 8)?,
    })
}

/// The lines of the code at an address, which may be cut.
fn of_lines(bytes: &[u8]) -> Option<(u64, Vec<Line>)> {
    let (start, count) = (number(bytes, 0, 8)?, number(bytes, 8, 8)?);
    let mut lines: Vec<Line> = Vec::new();
    let mut at = 16;
    for _ in 0..count {
        let Some((name, next)) = text(bytes, at + 16) else {
            break;
        };
        let file = match (name == SAME, lines.last()) {
            (true, Some(last)) => Arc::clone(&last.file),
            _ => String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME as usize)]).into(),
        };
        lines.push(Line {
            offset: number(bytes, at, 8)?.wrapping_sub(start),
            line: number(bytes, at + 8, 4)? as u32,
            file,
        });
        at = next;
    }
    Some((start, lines))
}

/// The number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?.iter().rev();
    Some(bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The text at `at` up to its zero, or as much as there is of it, and what is behind.
fn text(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
    let end = rest.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(rest.len());
    Some((&rest[..end], at + end + 1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn load(start: u64, size: u64, name: &str) -> Vec<u8> {
        let mut body = words(&[0, start, start, size, 1]);
        body.extend(name.bytes());
        body.push(0);
        body.extend(vec![0xc3; size as usize]);
        record(LOAD, &body)
    }

    pub(crate) fn moved_to(from: u64, to: u64, size: u64) -> Vec<u8> {
        record(MOVE, &words(&[0, from, from, to, size, 1]))
    }

    pub(crate) fn debug_info(start: u64, lines: &[(u64, u32, &str)]) -> Vec<u8> {
        let mut body = words(&[start, lines.len() as u64]);
        for (address, line, file) in lines {
            body.extend(words(&[*address, u64::from(*line)]));
            match *file {
                "" => body.extend(SAME),
                file => body.extend(file.bytes()),
            }
            body.push(0);
        }
        record(DEBUG_INFO, &body)
    }

    pub(crate) fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1_u32, 40, 62, 0, 9].iter().flat_map(|it| it.to_le_bytes()));
        bytes.extend(words(&[1, 0]));
        bytes.extend(records.concat());
        bytes
    }

    fn told(bytes: &[u8]) -> Vec<Told> {
        let mut all = Vec::new();
        read(&bytes.to_vec(), |told| {
            all.push(told);
            true
        });
        all
    }

    fn line(offset: u64, line: u32, file: &str) -> Line {
        Line {
            offset,
            line,
            file: file.into(),
        }
    }

    #[test]
    fn code_is_told_with_its_name_and_the_lines_before_it() {
        let bytes = dump(&[
            debug_info(
                0x1000,
                &[(0x1000, 3, "a.js"), (0x1010, 4, ""), (0x1020, 9, "b.js")],
            ),
            load(0x1000, 0x40, "JS:*work a.js:3"),
            load(0x2000, 0x10, "stub"),
            record(3, &[]),
        ]);
        let lines = vec![
            line(0, 3, "a.js"),
            line(0x10, 4, "a.js"),
            line(0x20, 9, "b.js"),
        ];
        let work = Told::Load {
            start: 0x1000,
            size: 0x40,
            name: "JS:*work a.js:3".to_owned(),
            lines,
        };
        let found = told(&bytes);
        assert_eq!(found[0], work);
        assert!(
            matches!(&found[1], Told::Load { name, lines, .. } if name == "stub" && lines.is_empty())
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn addresses_behind_the_header_of_a_file_that_is_not_there_are_set_right() {
        let bytes = dump(&[
            debug_info(0x1000, &[(0x1040, 3, "a.js"), (0x1050, 4, "")]),
            load(0x1000, 0x40, "work"),
        ]);
        let found = told(&bytes);
        let Told::Load { lines, .. } = &found[0] else {
            panic!("{found:?}");
        };
        assert_eq!(lines[..], [line(0, 3, "a.js"), line(0x10, 4, "a.js")]);
    }

    #[test]
    fn lines_of_which_one_lies_elsewhere_are_none() {
        let broken = [
            (0x1040, 2, "?"),
            (0xfdda_bcfc_0d83_a480, 1_550_155_096, "[|"),
        ];
        let bytes = dump(&[debug_info(0x1000, &broken), load(0x1000, 0x40, "work")]);
        let found = told(&bytes);
        assert!(
            matches!(&found[0], Told::Load { lines, .. } if lines.is_empty()),
            "{found:?}"
        );
    }

    #[test]
    fn a_broken_dump_ends_where_it_is_broken() {
        let bytes = dump(&[
            debug_info(0x1000, &[(0x1000, 3, "a.js")]),
            load(0x1000, 0x40, "work"),
            moved_to(0x1000, 0x3000, 0x40),
        ]);
        assert_eq!(told(&bytes).len(), 2);
        for length in 0..bytes.len() {
            told(&bytes[..length]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                told(&broken);
            }
        }
        assert_eq!(told(b"#!/bin/sh\n"), []);
    }
}
