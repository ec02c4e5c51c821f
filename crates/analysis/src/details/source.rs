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
/// How files of sources are called: debug info may name any file, and the page is given to others.
const ENDINGS: [&str; 34] = [
    "adb", "asm", "c", "c++", "cc", "cpp", "cu", "cxx", "d", "f", "f90", "go", "h", "hh", "hpp",
    "hs", "hxx", "inc", "inl", "ipp", "java", "js", "l", "m", "ml", "mm", "nim", "pas", "py", "rs",
    "s", "swift", "y", "zig",
];

/// Of the file of a function as process `pid` sees it; nothing where it is not there.
pub(super) fn lines(function: &HotFunction, pid: Pid, files: &dyn Files) -> Vec<ExcerptRow> {
    let hot: BTreeMap<u32, f64> = (function.lines.iter())
        .filter(|it| it.file == function.file && it.line > 0)
        .map(|it| (it.line, it.share))
        .collect();
    let Some(text) = read(&function.file, pid, files).filter(|_| !hot.is_empty()) else {
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

/// The text of a source file.
fn read(path: &str, pid: Pid, files: &dyn Files) -> Option<String> {
    let (_, ending) = path.rsplit_once('.')?;
    let is_source = ENDINGS.contains(&ending.to_ascii_lowercase().as_str());
    let file = files.open(pid, path).filter(|_| is_source)?;
    let size = Some(file.size()).filter(|&size| size <= MOST_BYTES)?;
    let bytes = file.read(0, size)?;
    let is_text = !bytes.contains(&0);
    is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
