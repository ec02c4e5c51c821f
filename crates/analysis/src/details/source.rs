//! Lines of a source file around those that have the most time.

use std::collections::BTreeMap;

use linewise_recording::Pid;

use super::rows::ExcerptRow;
use crate::resolve::Files;
use crate::views::hot::HotFunction;

/// A larger file is generated, or no source.
const MOST_BYTES: u64 = 4 << 20;
/// Lines before and after a hot one.
const AROUND: u32 = 3;
/// Lines of one function.
const MOST_LINES: usize = 60;
/// Characters of a line.
const MOST_COLUMNS: usize = 200;

/// Of the file of a function of process `pid`; nothing where it is not there, or not for everyone who may see the page.
pub(super) fn lines(function: &HotFunction, pid: Pid, files: &dyn Files) -> Vec<ExcerptRow> {
    let hot: BTreeMap<u32, f64> = (function.lines.iter())
        .filter(|it| it.file == function.file && it.line > 0)
        .map(|it| (it.line, it.share))
        .collect();
    let Some(text) = read(function, pid, files).filter(|_| !hot.is_empty()) else {
        return Vec::new();
    };
    let mut shown: BTreeMap<u32, ()> = BTreeMap::new();
    // The hottest first, as long as there is room.
    for line in function
        .lines
        .iter()
        .filter(|it| hot.contains_key(&it.line))
    {
        let around = line.line.saturating_sub(AROUND).max(1)..=line.line.saturating_add(AROUND);
        if shown.len() + around.clone().count() <= MOST_LINES {
            shown.extend(around.map(|line| (line, ())));
        }
    }
    let mut rows: Vec<ExcerptRow> = Vec::new();
    let mut last = 0;
    for (number, text) in (1_u32..).zip(text.lines()) {
        if shown.contains_key(&number) {
            rows.push(ExcerptRow {
                at: number.into(),
                text: text
                    .replace('\t', "    ")
                    .chars()
                    .take(MOST_COLUMNS)
                    .collect(),
                share: hot.get(&number).copied(),
                gap: last != 0 && number != last + 1,
            });
            last = number;
        }
    }
    rows
}

/// The text of its source file.
fn read(function: &HotFunction, pid: Pid, files: &dyn Files) -> Option<String> {
    let file = files.source(pid, &function.file, &function.module)?;
    let size = Some(file.size()).filter(|&size| size <= MOST_BYTES)?;
    let bytes = file.read(0, size)?;
    let is_text = !bytes.contains(&0);
    is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
