//! A comparison of two recordings for a terminal.

use super::page::{Page, Tone};
use super::{MAX_WIDTH, MIN_WIDTH, TerminalOptions, section};
use crate::diff::{Change, Diff, Side, Verdict, View};
use crate::report::{difference, sections, text};

/// Columns of a value.
const VALUE: usize = 15;
/// Columns of what became of a row, with a blank on both sides.
const WORD: usize = 9;

/// The comparison as text: what is more than noise, and with `all` the rest, too. No line is wider than
/// `options.width` (or 80, if that is more), and nothing in a name reaches the terminal as a control character.
#[must_use]
pub fn render(diff: &Diff, options: &TerminalOptions, all: bool) -> String {
    let mut page = Page::new(options.width.clamp(MIN_WIDTH, MAX_WIDTH), options.colour);
    section::terms(&mut page, &sections::of_diff(diff).terms);
    if !page.is_empty() {
        page.blank();
    }
    side(&mut page, "before", &diff.before);
    side(&mut page, "after", &diff.after);
    page.blank();
    page.line(&[(Tone::Strong, difference::verdict(diff))]);
    rows(&mut page, diff.real());
    let noise = || {
        let all = diff.changes.iter();
        all.filter(|change| change.verdict == Verdict::Noise)
    };
    let count = noise().count() as u64;
    if all && count > 0 {
        page.blank();
        page.line(&[(Tone::Strong, "Within the noise")]);
        rows(&mut page, noise());
    } else if count > 0 {
        page.blank();
        let more = text::plural(count, "other row");
        page.line(&[(
            Tone::Dim,
            format!("{more} within the noise: see --all, --html or --json"),
        )]);
    }
    if !diff.changes.is_empty() {
        page.labelled_in("", 0, Tone::Dim, Tone::Dim, &difference::test(diff));
    }
    page.finish()
}

fn side(page: &mut Page, label: &str, side: &Side) {
    let command = text::sanitise(&side.command);
    page.labelled(
        label,
        8,
        Tone::Dim,
        &text::shorten(&command, page.width() - 8),
    );
    page.labelled_in("", 8, Tone::Dim, Tone::Dim, &difference::facts(side));
}

fn rows<'a>(page: &mut Page, changes: impl Iterator<Item = &'a Change>) {
    let mut last: Option<View> = None;
    let name_columns = page.width() - WORD - 2 * VALUE;
    for change in changes {
        if last != Some(change.view) {
            page.blank();
            let title = difference::title(change.view);
            let room = page.width() - 2 * VALUE;
            page.line(&[(
                Tone::Plain,
                format!("{title:<room$}{:>VALUE$}{:>VALUE$}", "before", "after"),
            )]);
        }
        last = Some(change.view);
        let what = difference::what(change);
        let what = text::sanitise(&what);
        let name = text::shorten(&what, name_columns - 1);
        let gap = name_columns - text::width(&name);
        let value = |side| format!("{:>VALUE$}", difference::value(side, change.unit));
        page.line(&[
            (
                tone(change.verdict),
                format!("{:<WORD$}", word(change.verdict)),
            ),
            (Tone::Plain, name.into_owned()),
            (Tone::Plain, " ".repeat(gap)),
            (Tone::Plain, value(change.before)),
            (Tone::Plain, value(change.after)),
        ]);
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Noise => "",
        other => other.word(),
    }
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::New | Verdict::Grew => Tone::Warning,
        Verdict::Gone | Verdict::Shrank => Tone::Remedy,
        Verdict::Noise => Tone::Plain,
    }
}
