//! One finding: what it costs, the line, the places that fight over it, what to change.

use super::super::contention;
use super::super::model::{AccessRow, Finding, FindingKind, ObjectRow, SourcePlace};
use super::line_drawing;
use super::page::{Page, Tone};
use super::text;

/// Lines of an object that are drawn; one shows the pattern, the second whether it repeats.
const LINES_DRAWN: usize = 2;
/// Places in the source that are printed.
const PLACES: usize = 6;
/// Callers of an allocation that are printed.
const CALLERS: usize = 5;
/// Call chains of a place that are printed, and callers of each.
const CHAINS: usize = 2;
const CALLERS_OF_PLACE: usize = 3;
/// Lines that a fact beside others may take.
const FACT_LINES: usize = 2;
/// Where the text beside `change`, `doubt` and the like begins.
const INDENT: usize = 11;

/// Prints `finding` of a run of `duration_ns`.
pub(super) fn print(page: &mut Page, finding: &Finding, duration_ns: u64) {
    headline(page, finding);
    what_it_is(page, finding);
    page.blank();
    for line in finding.lines.iter().take(LINES_DRAWN) {
        line_drawing::print(page, line, &finding.accesses);
    }
    if let Some(more) = contention::more_lines(finding, LINES_DRAWN) {
        page.line(&[(Tone::Plain, "  "), (Tone::Dim, &more)]);
    }
    if !finding.lines.is_empty() {
        let missing = contention::not_drawn(finding);
        page.labelled_in("", 2, Tone::Dim, Tone::Dim, missing);
    }
    page.blank();
    places(page, finding);
    page.blank();
    transfers(page, finding, duration_ns);
    change(page, finding);
}

fn headline(page: &mut Page, finding: &Finding) {
    let rank = format!("{:<3}", finding.rank);
    let (kind, tone) = match finding.kind {
        FindingKind::FalseSharing => ("FALSE SHARING", Tone::FalseSharing),
        FindingKind::TrueSharing => ("TRUE SHARING", Tone::TrueSharing),
        FindingKind::Sharing => ("SHARING", Tone::TrueSharing),
    };
    let cost = format!("  {} of thread time", text::percent(finding.cost.share));
    let interval = format!(" ({})", text::percent_range(finding.cost.interval));
    let object = object(finding);
    let taken = text::width(&rank) + kind.len() + text::width(&cost) + text::width(&interval) + 2;
    let mut spans = vec![
        (Tone::Strong, rank.as_str()),
        (tone, kind),
        (Tone::Strong, &cost),
        (Tone::Dim, &interval),
    ];
    if taken + text::width(&object) <= page.width() {
        spans.extend([(Tone::Plain, "  "), (Tone::Strong, &object)]);
        page.line(&spans);
    } else {
        page.line(&spans);
        let object = text::shorten(&object, page.width() - 3);
        page.line(&[(Tone::Plain, "   "), (Tone::Strong, &object)]);
    }
}

/// `counters (static, main.c:12)`.
fn object(finding: &Finding) -> String {
    let object = &finding.object;
    let mut facts: Vec<&str> = Vec::new();
    // `heap (Go)` and `stack of worker` say it.
    if !object.name.starts_with(object.kind.word()) {
        facts.push(object.kind.word());
    }
    if !object.declared_at.is_empty() {
        facts.push(text::file_name(&object.declared_at));
    }
    let name = match object.name.as_str() {
        "" => "unnamed",
        name => name,
    };
    let text = match facts.is_empty() {
        true => name.to_owned(),
        false => format!("{name} ({})", facts.join(", ")),
    };
    text::sanitise(&text).into_owned()
}

fn what_it_is(page: &mut Page, finding: &Finding) {
    let object = &finding.object;
    let mut facts = Vec::new();
    if !object.type_name.is_empty() {
        let safe = text::sanitise(&object.type_name);
        facts.push(text::shorten(&safe, page.width() / 2).into_owned());
    }
    facts.extend(contention::extent_words(finding));
    page.line(&[(Tone::Plain, "   "), (Tone::Dim, &facts.join(", "))]);
    if !object.accessed_type.is_empty() {
        dim(page, "   ", &accessed(object));
    }
    if !object.allocated_at.is_empty() {
        let callers = text::callers(&object.allocated_at, CALLERS);
        let callers = format!("allocated by {callers}");
        dim(page, "   ", &callers);
    }
}

/// Prints a fact behind a margin, in as many lines as it may take.
fn dim(page: &mut Page, margin: &str, text: &str) {
    let lines = text::wrap(text, page.width() - margin.len());
    for line in lines.into_iter().take(FACT_LINES) {
        page.line(&[(Tone::Plain, margin), (Tone::Dim, &line)]);
    }
}

/// `accessed as struct node (96 %, struct list 4 %): key, next, through Table.rows[]`.
fn accessed(object: &ObjectRow) -> String {
    let fields = match object.field.as_str() {
        "" => String::new(),
        fields => format!(": {fields}"),
    };
    let votes = contention::type_votes(object);
    let through = match object.reached_through.as_str() {
        "" => String::new(),
        through => format!(", through {through}"),
    };
    let kind = &object.accessed_type;
    format!("accessed as {kind} ({votes}){fields}{through}")
}

/// The accesses of one place in the source, by whichever threads.
struct SourceAccesses<'a> {
    rows: Vec<&'a AccessRow>,
    share: f64,
}

fn group(accesses: &[AccessRow]) -> Vec<SourceAccesses<'_>> {
    let mut places: Vec<SourceAccesses<'_>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for row in accesses {
        let key = (
            &row.function,
            &row.file,
            row.line,
            row.op,
            &row.own,
            &row.inlined_into,
        );
        let at = *known.entry(key).or_insert_with(|| {
            places.push(SourceAccesses {
                rows: Vec::new(),
                share: 0.0,
            });
            places.len() - 1
        });
        places[at].rows.push(row);
        places[at].share += row.share;
    }
    places.sort_by(|a, b| b.share.total_cmp(&a.share));
    places
}

fn places(page: &mut Page, finding: &Finding) {
    let places = group(&finding.accesses);
    let mut before: Option<&AccessRow> = None;
    for place in places.iter().take(PLACES) {
        print_place(page, place, before);
        before = place.rows.first().copied();
    }
    let rest = places.get(PLACES..).unwrap_or_default();
    let hidden = rest.len() as u64 + finding.unlisted.places;
    if hidden > 0 {
        let share: f64 = rest.iter().map(|place| place.share).sum();
        let share = text::percent(share + finding.unlisted.share);
        let more = format!("  {share:>6}  {}", text::plural(hidden, "more place"));
        page.line(&[(Tone::Dim, &more)]);
    }
}

/// Prints a place; who called its function only if that is not what stands at the place `before`.
fn print_place(page: &mut Page, place: &SourceAccesses<'_>, before: Option<&AccessRow>) {
    let Some(first) = place.rows.first() else {
        return;
    };
    let share = format!("  {:>6}  ", text::percent(place.share));
    let margin = " ".repeat(text::width(&share));
    let room = page.width() - margin.len();
    let (own, innermost) = (first.own_caller(), first.innermost());
    let (function, source) = place_words(own.unwrap_or(&innermost), room);
    let what = touch(place);
    page.line(&[
        (Tone::Plain, share.as_str()),
        (Tone::Strong, &function),
        (Tone::Strong, &source),
    ]);
    let beside = room.saturating_sub(text::width(&what) + 2);
    for (i, line) in text::wrap_list(&who(place), beside).iter().enumerate() {
        let label = match i {
            0 => format!("{what}  "),
            _ => " ".repeat(text::width(&what) + 2),
        };
        page.line(&[
            (Tone::Plain, margin.as_str()),
            (Tone::Plain, &label),
            (Tone::Plain, line),
        ]);
    }
    if own.is_some() {
        let (function, source) = place_words(&innermost, room - 3);
        let through = format!("in {function}{source}");
        page.line(&[(Tone::Plain, margin.as_str()), (Tone::Dim, &through)]);
    } else if !first.inlined_into.is_empty() {
        let into = text::inlined_into(&first.inlined_into, room);
        page.line(&[(Tone::Plain, margin.as_str()), (Tone::Dim, &into)]);
    }
    let said = before.is_some_and(|before| before.called_from == first.called_from);
    for chain in first.called_from.iter().take(CHAINS).filter(|_| !said) {
        let most = chain.callers.len().min(CALLERS_OF_PLACE);
        // Rather fewer callers than another line, but one alone is often a library's.
        let fits = (most.min(2)..=most)
            .rev()
            .map(|callers| text::called_from(chain, callers))
            .find(|from| text::width(from) <= room);
        let from = fits.unwrap_or_else(|| text::called_from(chain, most));
        dim(page, &margin, &from);
    }
    if !first.missing.is_empty() {
        page.labelled_in(&margin, margin.len(), Tone::Dim, Tone::Dim, &first.missing);
    }
}

/// The function and ` at file:line` of a place, both in `room` columns.
fn place_words(place: &SourcePlace, room: usize) -> (String, String) {
    let function = match place.function.as_str() {
        "" => "unknown code",
        name => name,
    };
    let source = match (place.file.as_str(), place.line) {
        ("", _) => String::new(),
        (file, 0) => format!(" in {}", text::file_name(file)),
        (file, line) => format!(" at {}:{line}", text::file_name(file)),
    };
    let source = text::sanitise(&source);
    let source = text::shorten(&source, room * 2 / 3).into_owned();
    let function = text::sanitise(function);
    let function = text::shorten(&function, room - text::width(&source));
    (function.into_owned(), source)
}

/// `update +0, 8 bytes`, or without the offset if the threads differ in it.
fn touch(place: &SourceAccesses<'_>) -> String {
    let first = place.rows[0];
    let op = first.op.word();
    let size = text::bytes(first.size.into());
    let same_size = place.rows.iter().all(|row| row.size == first.size);
    let same_offset = place.rows.iter().all(|row| row.offset == first.offset);
    match (same_offset, same_size) {
        (true, true) => format!("{op} +{}, {size}", first.offset),
        (false, true) => format!("{op} {size}"),
        (true, false) => format!("{op} +{}", first.offset),
        (false, false) => op.to_owned(),
    }
}

/// Threads that are named at a place.
const THREADS: usize = 4;

/// A thread at a place, at one offset in its lines or, where those would be too many, at any.
struct AtPlace<'a> {
    row: &'a AccessRow,
    share: f64,
}

/// The threads of a place by what `same` tells apart, dearest first.
fn merged<'a, K: std::hash::Hash + Eq>(
    place: &SourceAccesses<'a>,
    same: impl Fn(&AccessRow) -> K,
) -> Vec<AtPlace<'a>> {
    let mut found: Vec<AtPlace<'a>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for row in &place.rows {
        let at = *known.entry(same(row)).or_insert_with(|| {
            found.push(AtPlace { row, share: 0.0 });
            found.len() - 1
        });
        found[at].share += row.share;
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

/// `thread worker-0 41312 at +0 (31 %)`, `worker-1 41313 at +16 (27 %)`, `2 more`.
fn who(place: &SourceAccesses<'_>) -> Vec<String> {
    let first = place.rows[0];
    let mut one_offset = place.rows.iter().all(|row| row.offset == first.offset);
    let mut found = merged(place, |row| (row.tid, row.offset));
    let by_thread = merged(place, |row| row.tid);
    if found.len() > THREADS && by_thread.len() < found.len() {
        // Elements of an array lie anywhere in their lines: who is there says more.
        one_offset = true;
        found = by_thread;
    }
    let mut names: Vec<String> = found
        .iter()
        .take(THREADS)
        .map(|AtPlace { row, share }| {
            let name = text::sanitise(&row.thread_name);
            let mut text = format!("{} {}", text::shorten(&name, 20), row.tid);
            if !one_offset {
                text += &format!(" at +{}", row.offset);
            }
            if found.len() > 1 {
                text += &format!(" ({})", text::percent(*share));
            }
            text
        })
        .collect();
    let more = found.len().saturating_sub(THREADS);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    if let Some(only) = names.first_mut().filter(|_| found.len() == 1) {
        only.insert_str(0, "thread ");
    }
    names
}

fn transfers(page: &mut Page, finding: &Finding, duration_ns: u64) {
    let text = contention::transfers_of(finding, duration_ns);
    page.labelled("  transfers", INDENT + 2, Tone::Dim, &text);
    let text = contention::evidence(&finding.evidence).join(", ");
    page.labelled_in("  rests on", INDENT + 2, Tone::Dim, Tone::Dim, &text);
}

fn change(page: &mut Page, finding: &Finding) {
    page.labelled("  change", INDENT + 2, Tone::Remedy, &finding.change);
    let margin = " ".repeat(INDENT + 2);
    for line in text::wrap_source(&finding.change_source, page.width() - margin.len()) {
        page.line(&[(Tone::Plain, margin.as_str()), (Tone::Remedy, &line)]);
    }
    if finding.expected_gain.high > 0.0 {
        let gain = format!("{} of thread time", text::gain(finding.expected_gain));
        page.labelled("  gain", INDENT + 2, Tone::Dim, &gain);
    }
    page.labelled("  doubt", INDENT + 2, Tone::Dim, &finding.doubt);
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::*;

    /// One place at these threads, offsets and lines, each with a tenth of the time.
    fn at(rows: &[(u32, u32, u64)]) -> Vec<AccessRow> {
        let pattern = sample::everyday().findings[0].accesses[0].clone();
        rows.iter()
            .map(|&(tid, offset, line_address)| AccessRow {
                tid,
                thread_name: "w".to_owned(),
                offset,
                line_address,
                share: 0.1,
                ..pattern.clone()
            })
            .collect()
    }

    fn who_is_at(rows: &[(u32, u32, u64)]) -> Vec<String> {
        let rows = at(rows);
        let places = group(&rows);
        assert_eq!(places.len(), 1);
        who(&places[0])
    }

    #[test]
    fn a_thread_at_one_offset_of_several_lines_is_named_once() {
        assert_eq!(
            who_is_at(&[(1, 8, 0), (1, 8, 64), (2, 0, 0)]),
            ["w 1 at +8 (20 %)", "w 2 at +0 (10 %)"]
        );
    }

    #[test]
    fn places_that_are_not_listed_are_in_the_last_share() {
        let mut finding = sample::traced().findings[0].clone();
        let pattern = finding.accesses[0].clone();
        finding.accesses = (0..8)
            .map(|line| AccessRow {
                line,
                share: 0.1,
                ..pattern.clone()
            })
            .collect();
        finding.unlisted.places = 30;
        finding.unlisted.share = 0.2;
        let mut page = Page::new(80, false);
        places(&mut page, &finding);
        let said = page.finish();
        assert!(said.contains("40 %  32 more places"), "{said}");
    }

    #[test]
    fn threads_at_many_offsets_are_named_without_them() {
        let many: Vec<_> = (0..8).map(|i| (1 + i % 2, 8 * i, 64)).collect();
        assert_eq!(who_is_at(&many), ["w 1 (40 %)", "w 2 (40 %)"]);
    }

    #[test]
    fn many_threads_at_an_offset_each_keep_it() {
        let each: Vec<_> = (0..6).map(|i| (1 + i, 8 * i, 64)).collect();
        let named = who_is_at(&each);
        assert_eq!(named.len(), 5);
        assert_eq!(
            (named[0].as_str(), named[4].as_str()),
            ("w 1 at +0 (10 %)", "2 more")
        );
    }
}
