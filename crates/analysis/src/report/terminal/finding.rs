//! One finding: what it costs, the line, the places that fight over it, what to change.

use std::collections::BTreeSet;

use super::super::contention;
use super::super::model::{CallChain, Finding, FindingKind, ObjectRow, SourcePlace};
use super::super::places::{self, Accesses, OwnPlace};
use super::line_drawing;
use super::page::{Page, Tone};
use super::text;

/// Lines of an object that are drawn; one shows the pattern, the second whether it repeats.
const LINES_DRAWN: usize = 2;
/// Places in the source that are printed.
const PLACES: usize = 4;
/// One with a smaller share of the finding's time is not printed,
const SLIGHT: f64 = 0.01;
/// nor are more instructions of one.
const INSTRUCTIONS: usize = 3;
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
    dearest_places(page, finding);
    change(page, finding);
    what_it_is(page, finding);
    page.blank();
    let drawn = if page.is_in_full() {
        finding.lines.len()
    } else {
        LINES_DRAWN
    };
    for line in finding.lines.iter().take(drawn) {
        if finding.lines.len() > 1 {
            let words = format!("  {}", contention::line_words(finding, line));
            page.line(&[(Tone::Dim, &words)]);
        }
        line_drawing::print(page, line, &finding.accesses);
    }
    if let Some(more) = contention::more_lines(finding, drawn) {
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
    let name = contention::object_title(finding);
    let text = match facts.is_empty() {
        true => name,
        false => format!("{name} ({})", facts.join(", ")),
    };
    text::sanitise(&text).into_owned()
}

fn dearest_places(page: &mut Page, finding: &Finding) {
    for (i, place) in places::dearest(finding).iter().enumerate() {
        let label = if i == 0 { "   where" } else { "" };
        let (function, source) = place_words(&place.place, page.width() - 2 * INDENT);
        let (remark, who) = (place.remark(), place.accesses().threads());
        let text = format!("{}{function}{source}{remark}, {who}", place.share_in());
        page.labelled(label, INDENT, Tone::Dim, &text);
    }
}

fn what_it_is(page: &mut Page, finding: &Finding) {
    let object = &finding.object;
    let mut facts = Vec::new();
    if !object.type_name.is_empty() {
        let safe = text::sanitise(&object.type_name);
        facts.push(text::shorten(&safe, page.width() / 2).into_owned());
    }
    facts.extend(contention::extent_words(finding));
    page.labelled_in("   object", INDENT, Tone::Dim, Tone::Dim, &facts.join(", "));
    if !object.accessed_type.is_empty() {
        dim(page, &" ".repeat(INDENT), &accessed(object));
    }
    if let Some(by) = contention::allocated_by(object, CALLERS) {
        dim(page, &" ".repeat(INDENT), &by);
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

fn places(page: &mut Page, finding: &Finding) {
    let (most, slight) = match page.is_in_full() {
        true => (usize::MAX, 0.0),
        false => (PLACES, SLIGHT),
    };
    let listed = places::listed(finding, most, slight);
    let mut said = Said::default();
    for place in &listed.places {
        print_place(page, place, &mut said);
    }
    if listed.hidden > 0 && (listed.hidden_share >= SLIGHT || page.is_in_full()) {
        let share = text::percent(listed.hidden_share);
        let more = format!(
            "  {share:>6}  {}",
            text::plural(listed.hidden, "more place")
        );
        page.line(&[(Tone::Dim, &more)]);
    }
}

/// What stands at a place already and is not said again at the next one.
#[derive(Default)]
struct Said<'a> {
    /// The callers of the place before.
    chains: Option<&'a [CallChain]>,
    /// What is missing of files.
    missing: BTreeSet<&'a str>,
}

/// Prints a place, and who called its function.
fn print_place<'a>(page: &mut Page, place: &OwnPlace<'a>, said: &mut Said<'a>) {
    let share = format!("  {:>6}  ", text::percent(place.share));
    let margin = " ".repeat(text::width(&share));
    let room = page.width() - margin.len();
    let (function, source) = place_words(&place.place, room - place.remark().len());
    page.line(&[
        (Tone::Plain, share.as_str()),
        (Tone::Strong, &function),
        (Tone::Strong, &source),
        (Tone::Plain, place.remark()),
    ]);
    let all = place.accesses();
    let first = all.rows[0];
    match place.instructions.as_slice() {
        [_] => {
            who(page, &margin, &format!("{}  ", all.touch()), &all.who());
            if first.own_caller().is_some() {
                let (function, source) = place_words(&first.innermost(), room - 3);
                let through = format!("in {function}{source}");
                page.line(&[(Tone::Plain, margin.as_str()), (Tone::Dim, &through)]);
            } else if !first.inlined_into.is_empty() {
                let into = text::inlined_into(&first.inlined_into, room);
                page.line(&[(Tone::Plain, margin.as_str()), (Tone::Dim, &into)]);
            }
        }
        several => {
            who(page, &margin, "", &all.who());
            let shown = match page.is_in_full() {
                true => several.len(),
                false => {
                    let weighty = several.iter().take_while(|it| it.share >= SLIGHT);
                    weighty.count().clamp(1, INSTRUCTIONS)
                }
            };
            for it in several.iter().take(shown) {
                instruction(page, &margin, it);
            }
            let rest = several.len().saturating_sub(shown) as u64;
            if rest > 0 {
                let more = format!("and {}", text::plural(rest, "more access"));
                page.line(&[(Tone::Plain, margin.as_str()), (Tone::Dim, &more)]);
            }
        }
    }
    if said.chains != Some(&first.called_from) {
        let chains = first.called_from.iter().map(|chain| place.beyond(chain));
        called_from(page, &margin, chains.filter(|it| !it.callers.is_empty()));
    }
    said.chains = Some(&first.called_from);
    if !first.missing.is_empty() && said.missing.insert(&first.missing) {
        page.labelled_in(&margin, margin.len(), Tone::Dim, Tone::Dim, &first.missing);
    }
}

/// Prints the threads at a place behind `what` they do.
fn who(page: &mut Page, margin: &str, what: &str, threads: &[String]) {
    let room = page.width() - margin.len();
    let beside = room.saturating_sub(text::width(what));
    for (i, line) in text::wrap_list(threads, beside).iter().enumerate() {
        let label = match i {
            0 => what.to_owned(),
            _ => " ".repeat(text::width(what)),
        };
        page.line(&[
            (Tone::Plain, margin),
            (Tone::Plain, &label),
            (Tone::Plain, line),
        ]);
    }
}

/// One of several instructions of a place: `24 %  update +0, 4 bytes  in lll_lock at lock.c:48`.
fn instruction(page: &mut Page, margin: &str, accesses: &Accesses<'_>) {
    let what = format!("{:>6}  {}", text::percent(accesses.share), accesses.touch());
    let first = accesses.rows[0];
    let room = page.width() - margin.len() - text::width(&what) - 5;
    let inside = match first.own_caller() {
        Some(_) => {
            let (function, source) = place_words(&first.innermost(), room);
            format!("  in {function}{source}")
        }
        None => String::new(),
    };
    page.line(&[
        (Tone::Plain, margin),
        (Tone::Plain, &what),
        (Tone::Dim, &inside),
    ]);
}

fn called_from(page: &mut Page, margin: &str, chains: impl Iterator<Item = CallChain>) {
    let room = page.width() - margin.len();
    for chain in &chains.take(CHAINS).collect::<Vec<_>>() {
        let most = chain.callers.len().min(CALLERS_OF_PLACE);
        // Rather fewer callers than another line, but one alone is often a library's.
        let fits = (most.min(2)..=most)
            .rev()
            .map(|callers| text::called_from(chain, callers))
            .find(|from| text::width(from) <= room);
        let from = fits.unwrap_or_else(|| text::called_from(chain, most));
        dim(page, margin, &from);
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

fn transfers(page: &mut Page, finding: &Finding, duration_ns: u64) {
    let text = contention::transfers_of(finding, duration_ns);
    page.labelled("  transfers", INDENT + 2, Tone::Dim, &text);
    let text = contention::evidence(&finding.evidence).join(", ");
    page.labelled_in("  rests on", INDENT + 2, Tone::Dim, Tone::Dim, &text);
}

fn change(page: &mut Page, finding: &Finding) {
    page.labelled("   change", INDENT, Tone::Remedy, &finding.change);
    let margin = " ".repeat(INDENT);
    for line in text::wrap_source(&finding.change_source, page.width() - margin.len()) {
        page.line(&[(Tone::Plain, margin.as_str()), (Tone::Remedy, &line)]);
    }
    if finding.expected_gain.high > 0.0 {
        let gain = format!("{} of thread time", text::gain(finding.expected_gain));
        page.labelled("   gain", INDENT, Tone::Dim, &gain);
    }
    page.labelled("   doubt", INDENT, Tone::Dim, &finding.doubt);
}

#[cfg(test)]
mod tests {
    use super::super::super::model::AccessRow;
    use super::super::super::sample;
    use super::*;

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
        let said = |much| {
            let mut page = Page::new(80, false).in_full(much);
            places(&mut page, &finding);
            page.finish()
        };
        assert!(
            said(false).contains("60 %  34 more places"),
            "{}",
            said(false)
        );
        assert!(
            said(true).contains("20 %  30 more places"),
            "{}",
            said(true)
        );
    }
}
