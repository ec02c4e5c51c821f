//! A line drawn byte by byte: a ruler, the fields under it, and a row for each thread.
//!
//! ```text
//!               0       8       16      24      32      40      48      56
//!   fields      a───────        b───────
//!   worker-0    UUUUUUUU························································
//!   worker-1    ················UUUUUUUU········································
//!   a +0 counters[0].hits (long)   b +16 counters[1].hits (long)
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::drawing::{Mark, Toucher, distinct_fields, drawn_size, touchers};
use super::super::model::{AccessRow, LineField, LineRow};
use super::page::{Page, Tone};
use super::text;

/// Bytes in one row of the drawing.
const BYTES: usize = 64;
/// Rows for threads; more are counted.
const ROWS: usize = 8;
/// Left margin.
const MARGIN: &str = "  ";
/// The letters that stand for the fields in a drawing.
const KEYS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Draws `line` and who touches it.
pub(super) fn print(page: &mut Page, line: &LineRow, accesses: &[AccessRow]) {
    let touchers = touchers(line, accesses, ROWS);
    let keyed = keyed_fields(line, &touchers);
    let field_row = field_row(line, &keyed);
    let size = drawn_size(line) as usize;
    for start in (0..size).step_by(BYTES) {
        let bytes = start..size.min(start + BYTES);
        let ruler: String = bytes
            .clone()
            .step_by(8)
            .map(|offset| format!("{offset:<8}"))
            .collect();
        row(page, Tone::Dim, "", &[(Tone::Dim, ruler)]);
        if field_row[bytes.clone()].iter().any(|&c| c != ' ') {
            let fields = field_row[bytes.clone()].iter().collect();
            row(page, Tone::Dim, "fields", &[(Tone::Plain, fields)]);
        }
        for (i, toucher) in touchers.iter().take(ROWS).enumerate() {
            let label = label(toucher, &touchers, label_width(page));
            let marks = marks(toucher, i, bytes.clone());
            row(page, Tone::Thread(i), &label, &marks);
        }
    }
    let hidden: usize = touchers.iter().skip(ROWS).map(|t| t.threads.len()).sum();
    if hidden > 0 {
        let more = format!("and {}", text::plural(hidden as u64, "more thread"));
        page.line(&[(Tone::Plain, MARGIN), (Tone::Dim, &more)]);
    }
    legend(page, &touchers, &keyed);
}

fn label_width(page: &Page) -> usize {
    page.width() - MARGIN.len() - 1 - BYTES
}

fn row(page: &mut Page, tone: Tone, label: &str, body: &[(Tone, String)]) {
    let width = label_width(page);
    let gap = " ".repeat(width - text::width(label).min(width) + 1);
    let mut spans = vec![
        (Tone::Plain, MARGIN.to_owned()),
        (tone, label.to_owned()),
        (Tone::Plain, gap),
    ];
    spans.extend_from_slice(body);
    page.line(&spans);
}

/// What a row is called: a thread by its name, with its id if another one has the same name.
fn label(toucher: &Toucher<'_>, all: &[Toucher<'_>], width: usize) -> String {
    let (tid, name) = match toucher.threads[..] {
        [only] => only,
        _ => return text::plural(toucher.threads.len() as u64, "thread"),
    };
    let mut namesakes = all.iter().flat_map(|t| &t.threads);
    let safe = text::sanitise(name);
    if name.is_empty() || namesakes.any(|&(t, n)| t != tid && n == name) {
        let room = width.saturating_sub(tid.to_string().len() + 1);
        return format!("{} {tid}", text::shorten(&safe, room));
    }
    text::shorten(&safe, width).into_owned()
}

/// The marks of some bytes, cut where marked and unmarked ones meet.
fn marks(toucher: &Toucher<'_>, nth: usize, bytes: Range<usize>) -> Vec<(Tone, String)> {
    toucher.marks[bytes]
        .chunk_by(|a, b| a.is_some() == b.is_some())
        .map(|run| {
            let tone = match run[0] {
                Some(_) => Tone::Thread(nth),
                None => Tone::Dim,
            };
            let letters = run.iter().map(|m| m.map_or('·', |mark| mark.letter()));
            (tone, letters.collect())
        })
        .collect()
}

/// The fields that somebody touches, with their letters. The others are only outlined.
fn keyed_fields<'a>(line: &'a LineRow, touchers: &[Toucher<'_>]) -> Vec<(char, &'a LineField)> {
    let size = drawn_size(line);
    let touched = distinct_fields(line).into_iter().filter(|field| {
        let first = field.offset.min(size) as usize;
        let last = field.offset.saturating_add(field.size).min(size) as usize;
        touchers
            .iter()
            .any(|t| t.marks[first..last].iter().any(Option::is_some))
    });
    KEYS.chars().zip(touched).collect()
}

/// One character for each byte of the line: the letter or outline of the field there.
fn field_row(line: &LineRow, keyed: &[(char, &LineField)]) -> Vec<char> {
    let size = drawn_size(line);
    let mut row = vec![' '; size as usize];
    for field in distinct_fields(line) {
        let first = field.offset.min(size) as usize;
        let last = field.offset.saturating_add(field.size).min(size) as usize;
        let key = keyed.iter().find(|(_, f)| std::ptr::eq(*f, field));
        for (i, slot) in row[first..last].iter_mut().enumerate() {
            *slot = match (i, key) {
                (0, Some((letter, _))) => *letter,
                (_, Some(_)) => '━',
                (0, None) => '╶',
                (_, None) => '─',
            };
        }
    }
    row
}

/// Says what the letters are: first those of the rows, as far as they occur, then the fields.
fn legend(page: &mut Page, touchers: &[Toucher<'_>], keyed: &[(char, &LineField)]) {
    let room = page.width() - MARGIN.len();
    let mut line = String::new();
    let used: BTreeSet<Mark> = touchers
        .iter()
        .flat_map(|t| &t.marks)
        .flatten()
        .copied()
        .collect();
    let meanings: Vec<String> = used
        .iter()
        .map(|mark| format!("{} {}", mark.letter(), mark.explained()))
        .collect();
    page.line(&[(Tone::Plain, MARGIN), (Tone::Dim, &meanings.join("   "))]);
    for (letter, field) in keyed {
        let path = match field.path.as_str() {
            "" => text::bytes(field.size.into()),
            path => path.to_owned(),
        };
        let type_name = match field.type_name.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        let entry = format!("{letter} +{} {path}{type_name}", field.offset);
        let entry = text::sanitise(&entry);
        let entry = text::shorten(&entry, room);
        if !line.is_empty() && text::width(&line) + 3 + text::width(&entry) > room {
            page.line(&[(Tone::Plain, MARGIN), (Tone::Plain, &line)]);
            line.clear();
        }
        if !line.is_empty() {
            line.push_str("   ");
        }
        line.push_str(&entry);
    }
    if !line.is_empty() {
        page.line(&[(Tone::Plain, MARGIN), (Tone::Plain, &line)]);
    }
}
