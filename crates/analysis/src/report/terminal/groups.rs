//! Groups of threads for a terminal: the matrix in their order, each group with its reasons, what to do.

use super::super::groups as words;
use super::page::{MIN_WIDTH, Page, Tone};
use super::{MAX_WIDTH, TerminalOptions, text};
use crate::command::command_line;
use crate::report::cells;
use crate::views::groups::{ThreadGroup, ThreadGroups};

/// Columns of the matrix at most; prose keeps to less.
const WIDEST: usize = 160;
/// Rows of the matrix at most.
const ROWS: usize = 64;
/// Up to here a cell is a number.
const NUMBERED: usize = 10;
/// Columns of a label.
const LABEL: usize = 24;
/// Of nothing, and more and more.
const SHADES: [char; 6] = [' ', '.', ':', '+', '*', '#'];
/// Groups and pairs that are printed.
const GROUPS: usize = 12;
const PAIRS: usize = 8;

/// Groups of threads as text. No line is wider than `options.width` (or 80, if that is more), and nothing in a name
/// reaches the terminal as a control character.
#[must_use]
pub fn render_groups(groups: &ThreadGroups, options: &TerminalOptions) -> String {
    let width = options.width.clamp(MIN_WIDTH, WIDEST);
    let mut page = Page::new(width, options.colour);
    term(
        &mut page,
        "command",
        &text::sanitise(&command_line(&groups.command, groups.launched)),
    );
    term(&mut page, "machine", &words::machine(groups));
    for note in &groups.notes {
        term(&mut page, "note", note);
    }
    page.blank();
    page.line(&[(Tone::Strong, words::verdict(groups))]);
    if !groups.pairs.is_empty() {
        page.blank();
        matrix(&mut page, groups);
    }
    let most = if options.verbose { usize::MAX } else { GROUPS };
    for it in groups.groups.iter().take(most) {
        page.blank();
        group(&mut page, groups, it);
    }
    more(&mut page, groups.groups.len(), most, "group");
    pairs(
        &mut page,
        groups,
        if options.verbose { usize::MAX } else { PAIRS },
    );
    page.blank();
    page.line(&[(Tone::Strong, "What to do")]);
    prose(&mut page, 2, Tone::Remedy, &groups.advice.words);
    page.finish()
}

/// Text in lines no wider than prose may be.
fn prose(page: &mut Page, indent: usize, tone: Tone, words: &str) {
    for line in text::wrap(words, page.width().min(MAX_WIDTH) - indent) {
        page.line(&[(tone, format!("{:indent$}{line}", ""))]);
    }
}

/// A term and its words beside it.
fn term(page: &mut Page, term: &str, words: &str) {
    const INDENT: usize = 13;
    let room = page.width().min(MAX_WIDTH) - INDENT;
    for (i, line) in text::wrap(words, room).into_iter().enumerate() {
        let term = if i == 0 { term } else { "" };
        page.line(&[(Tone::Dim, format!("{term:<INDENT$}")), (Tone::Plain, line)]);
    }
}

fn more(page: &mut Page, all: usize, most: usize, noun: &str) {
    if all > most {
        let more = text::plural((all - most) as u64, &format!("more {noun}"));
        page.line(&[(
            Tone::Dim,
            format!("{more}: see --verbose, --html or --json"),
        )]);
    }
}

fn group(page: &mut Page, groups: &ThreadGroups, group: &ThreadGroup) {
    let members = text::sanitise(&words::members(groups, group, 8)).into_owned();
    let head = format!("Group {}: {members}", group.id);
    page.line(&[(Tone::Thread(group.id as usize - 1), head)]);
    term(
        page,
        "  moves",
        &words::of_group(group, words::unit(groups)),
    );
    if group.outside > 0.0 {
        let outside = format!(
            "{}{} to other threads",
            text::count(group.outside),
            words::unit(groups)
        );
        term(page, "", &outside);
    }
    term(page, "  shares", &words::hot_set(groups, group));
    for (i, object) in group.why.iter().enumerate() {
        let why = text::sanitise(&words::why(object)).into_owned();
        term(page, if i == 0 { "  why" } else { "" }, &why);
    }
    term(page, "  costs", &words::cost(groups, group));
    term(page, "  elsewhere", &words::elsewhere(groups, group));
    if let Some(place) = &group.place {
        term(page, "  place", &words::place(group, place));
    }
}

fn pairs(page: &mut Page, groups: &ThreadGroups, most: usize) {
    if groups.pairs.is_empty() {
        return;
    }
    page.blank();
    page.line(&[(Tone::Strong, "Pairs")]);
    let name = |tid: u32| {
        let name = groups.thread(tid).map_or("thread", |it| it.name.as_str());
        format!("{} {tid}", text::shorten(&text::sanitise(name), LABEL))
    };
    for pair in groups.pairs.iter().take(most) {
        let who = format!("  {} and {}", name(pair.one), name(pair.other));
        page.line(&[(Tone::Plain, who)]);
        prose(
            page,
            4,
            Tone::Plain,
            &words::of_pair(pair, words::unit(groups)),
        );
        let why = pair
            .why
            .iter()
            .map(words::why)
            .collect::<Vec<_>>()
            .join("; ");
        if !why.is_empty() {
            prose(page, 4, Tone::Dim, &text::sanitise(&why));
        }
    }
    more(page, groups.pairs.len(), most, "pair");
}

fn matrix(page: &mut Page, groups: &ThreadGroups) {
    // A blank stands between groups, of which there may be half as many as rows.
    let room = (page.width() - LABEL - 8) * 2 / 3;
    let all = words::OrderedMatrix::of(groups, room.min(ROWS));
    let unit = words::unit(groups);
    let head = format!(
        "transfers{unit} between each {} and each, by group",
        all.noun
    );
    page.line(&[(Tone::Dim, head)]);
    let numbered =
        all.parties.len() <= NUMBERED && LABEL + 6 + 7 * all.parties.len() <= page.width();
    let highest = all.highest();
    let heads = all.parties.iter().zip(1..).map(|(_, i)| match numbered {
        true => format!("{i:>7}"),
        false => (i % 10).to_string(),
    });
    line(page, &all, "", &heads.collect::<Vec<_>>(), None);
    for (row, party) in all.parties.iter().enumerate() {
        let cells = (0..all.parties.len()).map(|column| {
            let found = all.cells.get(&(row.min(column), row.max(column)));
            cell(found.copied(), row == column, numbered, highest)
        });
        let cells: Vec<String> = cells.collect();
        let label = format!("{:>3} {}", row + 1, cells::party(&party.party, LABEL - 4));
        line(page, &all, &label, &cells, party.group);
    }
    let legend = match numbered {
        true => "turns: they use the same lines, but were hardly ever there at once".to_owned(),
        false => format!(
            "{} to {}: up to {}{unit} on a scale of square roots; t: they take turns",
            SHADES[1],
            SHADES[5],
            text::count(highest)
        ),
    };
    page.line(&[(Tone::Dim, format!("    {legend}"))]);
}

/// One line of the matrix, with a blank wherever another group begins.
fn line(
    page: &mut Page,
    all: &words::OrderedMatrix,
    label: &str,
    cells: &[String],
    group: Option<u32>,
) {
    let label = text::prefix(label, LABEL);
    let gap = LABEL - text::width(label);
    let group = group.map_or(String::new(), |id| format!("G{id}"));
    let mut text = String::new();
    let mut last = all.parties.first().map(|it| it.group);
    for (cell, party) in cells.iter().zip(&all.parties) {
        if last != Some(party.group) {
            text.push(' ');
            last = Some(party.group);
        }
        text.push_str(cell);
    }
    page.line(&[
        (Tone::Plain, format!("{label}{:gap$} ", "")),
        (Tone::Dim, format!("{group:<5}")),
        (Tone::Plain, text),
    ]);
}

fn cell(found: Option<words::PairCell>, is_own: bool, numbered: bool, highest: f64) -> String {
    let Some(found) = found.filter(|it| it.strength() > 0.0) else {
        return match (numbered, is_own) {
            (true, true) => format!("{:>7}", "-"),
            (true, false) => format!("{:>7}", "0"),
            (false, true) => "\\".to_owned(),
            (false, false) => SHADES[0].to_string(),
        };
    };
    if numbered {
        return match found.transfers > 0.0 {
            true => format!("{:>7}", text::count(found.transfers).replace(' ', "")),
            false => format!("{:>7}", "turns"),
        };
    }
    if found.transfers <= 0.0 {
        return "t".to_owned();
    }
    let levels = (SHADES.len() - 1) as f64;
    let level = ((found.transfers / highest).sqrt() * levels).ceil();
    SHADES[level.clamp(1.0, levels) as usize].to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// So many threads in pairs, each pair a group.
    fn in_pairs(threads: u32) -> ThreadGroups {
        let thread = |tid: u32| json!({ "tid": tid, "pid": 1, "name": format!("worker-{tid}\u{1b}[2J"), "load": 1.0, "group": tid / 2 + 1 });
        let pair = |it: u32| {
            json!({ "one": 2 * it, "other": 2 * it + 1, "transfers": 1e6, "interval": { "low": 1e5, "high": 1e7 },
            "false_share": 0.5, "in_turns": 0.0, "lines": 1, "why": [] })
        };
        serde_json::from_value(json!({
            "schema": 1, "command": ["./many"], "source": "timer", "launched": true, "duration_ns": 1, "line_bytes": 64,
            "threads": (0..threads).map(thread).collect::<Vec<_>>(),
            "pairs": (0..threads / 2).map(pair).collect::<Vec<_>>(),
            "groups": [], "shape": { "cpus": 2, "llcs": 1, "sockets": 1, "below": [] }, "latencies": [],
            "advice": { "verdict": "one-llc", "words": "Leave them." }, "notes": [],
        }))
        .unwrap()
    }

    #[test]
    fn no_line_is_wider_than_asked_for_however_many_threads_there_are() {
        for threads in [0, 4, 40, 200, 5_000] {
            for width in [80, 150] {
                let options = TerminalOptions {
                    width,
                    ..TerminalOptions::default()
                };
                let text = render_groups(&in_pairs(threads), &options);
                let widest = text.lines().map(text::width).max();
                assert!(
                    widest.unwrap_or(0) <= width,
                    "{threads} in {width}:\n{text}"
                );
                assert!(
                    text.lines().count() <= 64 + 50,
                    "{threads} in {width}:\n{text}"
                );
                assert!(!text.contains('\u{1b}'));
            }
        }
    }
}
