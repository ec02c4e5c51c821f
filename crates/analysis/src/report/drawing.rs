//! Who touches which bytes of a line: what the terminal and the HTML report draw.

use linewise_recording::Operation;

use super::model::{AccessRow, LineField, LineRow};

/// The longest line that is drawn; no machine has one longer, but a report read from a file might.
const LINE_LIMIT: u32 = 256;

/// What a thread does to a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// It reads it.
    Read,
    /// It writes it.
    Write,
    /// It does both, in one instruction or in several.
    Update,
}

impl Mark {
    fn of(operation: Operation) -> Self {
        match operation {
            Operation::Load => Self::Read,
            Operation::Store => Self::Write,
            Operation::Update => Self::Update,
        }
    }

    /// The letter that stands for it in a drawing.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Read => 'R',
            Self::Write => 'W',
            Self::Update => 'U',
        }
    }

    /// What the letter means.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Update => "reads and writes",
        }
    }

    /// The same for who does not know the drawing: what both means.
    pub(crate) fn explained(self) -> &'static str {
        match self {
            Self::Update => "reads and writes, in one instruction or in several",
            _ => self.meaning(),
        }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Update }
    }
}

/// The threads that touch the same bytes of a line in the same way: one row of the drawing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Toucher<'a> {
    /// Thread ids and names, dearest first.
    pub(crate) threads: Vec<(u32, &'a str)>,
    /// What they do to each byte of the line.
    pub(crate) marks: Vec<Option<Mark>>,
    /// Their share of the finding's sampled time.
    pub(crate) share: f64,
}

/// The fields on a line by their offset; of a union's members, which lie over each other, the largest, and of equal ones
/// rather a structure than the array that stands for its bytes.
pub(crate) fn distinct_fields(line: &LineRow) -> Vec<&LineField> {
    let mut fields: Vec<&LineField> = line.fields.iter().collect();
    let is_array = |it: &LineField| it.type_name.ends_with(']');
    fields.sort_by_key(|it| (it.offset, std::cmp::Reverse(it.size), is_array(it)));
    fields.dedup_by_key(|it| it.offset);
    fields
}

/// Bytes of the line, as far as it is drawn.
pub(crate) fn drawn_size(line: &LineRow) -> u32 {
    line.size.clamp(1, LINE_LIMIT)
}

/// Who touches `line`, dearest first: a row for each thread, or, where that would be more than
/// `rows`, for the threads that do the same.
pub(crate) fn touchers<'a>(
    line: &LineRow,
    accesses: &'a [AccessRow],
    rows: usize,
) -> Vec<Toucher<'a>> {
    let mut found: Vec<Toucher<'a>> = Vec::new();
    let mut place = std::collections::HashMap::new();
    for access in accesses {
        let Some(bytes) = bytes_on_line(line, access) else {
            continue;
        };
        let at = *place.entry(access.tid).or_insert_with(|| {
            found.push(Toucher {
                threads: vec![(access.tid, access.thread_name.as_str())],
                marks: vec![None; drawn_size(line) as usize],
                share: 0.0,
            });
            found.len() - 1
        });
        let toucher = &mut found[at];
        toucher.share += access.share;
        for mark in &mut toucher.marks[bytes] {
            let new = Mark::of(access.op);
            *mark = Some(mark.map_or(new, |old| old.and(new)));
        }
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    if found.len() > rows {
        found = merge_alike(found);
    }
    found
}

fn merge_alike(found: Vec<Toucher<'_>>) -> Vec<Toucher<'_>> {
    let mut merged: Vec<Toucher<'_>> = Vec::new();
    for toucher in found {
        match merged.iter_mut().find(|m| m.marks == toucher.marks) {
            Some(same) => {
                same.threads.extend(toucher.threads);
                same.share += toucher.share;
            }
            None => merged.push(toucher),
        }
    }
    merged.sort_by(|a, b| b.share.total_cmp(&a.share));
    merged
}

/// The bytes of `line` that `access` touches. An access that straddles two lines touches both,
/// whichever it was counted for.
fn bytes_on_line(line: &LineRow, access: &AccessRow) -> Option<std::ops::Range<usize>> {
    let size = i128::from(drawn_size(line));
    let start = i128::from(access.line_address) + i128::from(access.offset);
    let first = start - i128::from(line.address);
    let last = first + i128::from(access.size);
    let (first, last) = (first.clamp(0, size), last.clamp(0, size));
    (first < last).then_some(first as usize..last as usize)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn drawn(toucher: &Toucher<'_>) -> String {
        toucher
            .marks
            .iter()
            .map(|mark| mark.map_or('.', Mark::letter))
            .collect()
    }

    #[test]
    fn each_thread_has_a_row_with_the_bytes_it_touches() {
        let report = sample::everyday();
        let finding = &report.findings[0];
        let rows = touchers(&finding.lines[0], &finding.accesses, 8);
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[1].threads, [(41_313, "worker-1")]);
        let expected = format!("{}UUUUUUUU{}", ".".repeat(16), ".".repeat(40));
        assert_eq!(drawn(&rows[1]), expected);
    }

    #[test]
    fn reading_and_writing_one_byte_in_two_places_is_both() {
        let mut finding = sample::everyday().findings[0].clone();
        finding.accesses.truncate(2);
        finding.accesses[0].op = Operation::Store;
        finding.accesses[1] = AccessRow {
            op: Operation::Load,
            size: 4,
            ..finding.accesses[0].clone()
        };
        let rows = touchers(&finding.lines[0], &finding.accesses, 8);
        assert_eq!(rows.len(), 1);
        assert!(drawn(&rows[0]).starts_with("UUUUWWWW."));
    }

    #[test]
    fn an_access_across_the_end_of_a_line_touches_the_next_one_too() {
        let mut finding = sample::everyday().findings[0].clone();
        finding.accesses.truncate(1);
        finding.accesses[0].offset = 60;
        let mut next = finding.lines[0].clone();
        next.address += 64;
        let here = touchers(&finding.lines[0], &finding.accesses, 8);
        let there = touchers(&next, &finding.accesses, 8);
        assert!(drawn(&here[0]).ends_with(".UUUU"));
        assert!(drawn(&there[0]).starts_with("UUUU."));
    }

    #[test]
    fn threads_that_do_the_same_share_a_row_when_there_are_many() {
        let report = sample::crowd(100);
        let finding = &report.findings[0];
        let rows = touchers(&finding.lines[0], &finding.accesses, 8);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].threads.len(), 100);
    }

    #[test]
    fn an_absurd_line_or_access_is_clipped() {
        let mut finding = sample::everyday().findings[0].clone();
        finding.lines[0].size = u32::MAX;
        finding.lines[0].address = u64::MAX - 3;
        finding.accesses[0].line_address = u64::MAX;
        finding.accesses[0].offset = u32::MAX;
        finding.accesses[0].size = u32::MAX;
        let rows = touchers(&finding.lines[0], &finding.accesses, 8);
        assert!(rows.iter().all(|row| row.marks.len() == 256));
    }
}
