//! A finding as a card: cost, the line byte by byte, who touches it where, what to change.

use std::collections::BTreeSet;
use std::ops::Range;

use maud::{Markup, html};

use super::super::drawing::{Mark, Toucher, distinct_fields, drawn_size, touchers};
use super::super::model::{
    CallChain, Finding, FindingKind, LineField, LineRow, ObjectRow, Report, Run, SourcePlace,
};
use super::super::places::{Accesses, OwnPlace};
use super::super::{contention, places, text};
use super::chart::rect;
use super::document::NEW_LINE;
use super::written::{self, Column, Name, Prose};

/// Lines of an object that are drawn.
const LINES: usize = 4;
/// Rows of threads in a drawing.
const ROWS: usize = 12;
/// Places in the source that are listed, and call chains and fields of one; the JSON report has them all.
const PLACES: usize = 32;
/// One with less of the finding's time is not: no sample fell there, only traps.
const SLIGHT: f64 = 1e-4;
const CHAINS: usize = 3;
const FIELDS: usize = 6;
/// Callers of a place or an allocation that are listed.
const CALLERS: usize = 6;
/// Bytes in one drawing.
const BYTES: u32 = 64;
/// Colours for threads, see the style sheet.
const COLOURS: usize = 8;

/// `False sharing` or `True sharing`.
pub(super) fn kind_words(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::FalseSharing => "False sharing",
        FindingKind::TrueSharing => "True sharing",
        FindingKind::Sharing => "Sharing",
    }
}

fn kind_class(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::FalseSharing => "false",
        FindingKind::TrueSharing | FindingKind::Sharing => "true",
    }
}

/// The card of `finding`.
pub(super) fn card(finding: &Finding, report: &Report) -> Markup {
    let missing = contention::not_drawn(finding);
    let transfers = contention::transfers_of(finding, report.run.duration_ns);
    let evidence = text::listing(&contention::evidence(&finding.evidence));
    html! {
        article.card.finding id={ "finding-" (finding.rank) } {
            (title(finding))
            (cost_bar(finding))
            (change(finding))
            @if !finding.accesses.is_empty() { (accesses(finding)) }
            @for line in finding.lines.iter().take(LINES) { (drawing(finding, line, &report.run)) }
            @if let Some(more) = contention::more_lines(finding, LINES) { p.quiet { (more) } }
            @if !finding.lines.is_empty() && !missing.is_empty() { p.quiet { (missing) } }
            (identity(finding))
            p.quiet { "Transfers: " (transfers) ". Rests on " (evidence) "." }
        }
    }
}

fn title(finding: &Finding) -> Markup {
    let interval = match finding.is_exact() {
        true => "band of a model",
        false => "90 % interval",
    };
    html! {
        div.top {
            div {
                div.title {
                    p class={ "kind " (kind_class(finding.kind)) } {
                        span.rank { (finding.rank) } (kind_words(finding.kind))
                    }
                    h3.name { (Name(&contention::object_title(finding))) }
                }
                (dearest_places(finding))
            }
            p.cost {
                b { (text::percent(finding.cost.share)) }
                span { "of thread time" }
                span { (text::percent_range(finding.cost.interval)) ", " (interval) }
            }
        }
    }
}

/// Where is waited most, and who waits there.
fn dearest_places(finding: &Finding) -> Markup {
    html! {
        @for it in &places::dearest(finding) {
            p.name.where {
                (it.share_in()) (code_place(&it.place)) (it.remark())
                span.quiet { ", " (it.accesses().threads()) }
            }
        }
    }
}

/// What the object is, where it is declared, and by whom it is allocated.
fn identity(finding: &Finding) -> Markup {
    let object = &finding.object;
    html! {
        p.quiet.name {
            (object.kind.word())
            @if !object.type_name.is_empty() { " · " code { (Name(&object.type_name)) } }
            @for fact in contention::extent_words(finding) { " · " (fact) }
            @if !object.declared_at.is_empty() {
                " · " span title=(object.declared_at) { (Name(text::file_name(&object.declared_at))) }
            }
        }
        @if !object.accessed_type.is_empty() { (accessed_as(object)) }
        @if let Some(by) = contention::allocated_by(object, CALLERS) {
            p.quiet.name { (Name(&by)) }
        }
    }
}

fn accessed_as(object: &ObjectRow) -> Markup {
    html! {
        p.quiet.name {
            "accessed as " code { (Name(&object.accessed_type)) }
            " (" (Name(&contention::type_votes(object))) ")"
            @if !object.field.is_empty() { ": " (Name(&object.field)) }
            @if !object.reached_through.is_empty() { ", through " (Name(&object.reached_through)) }
        }
    }
}

/// The cost on a scale of all thread time, with its interval.
fn cost_bar(finding: &Finding) -> Markup {
    let x = |share: f64| (share * 1000.0).clamp(0.0, 1000.0);
    let cost = &finding.cost;
    let (low, high) = (x(cost.interval.low), x(cost.interval.high));
    let width = (high - low).max(0.0);
    html! {
        svg class={ "cost-bar " (kind_class(finding.kind)) } viewBox="0 0 1000 12" preserveAspectRatio="none"
            aria-hidden="true" {
            (rect("track", (0.0, 2.0), (1000.0, 8.0)))
            (rect("fill", (0.0, 2.0), (x(cost.share), 8.0)))
            (rect("interval", (low, 5.0), (width, 2.0)))
            (rect("interval", (low, 0.0), (2.0, 12.0)))
            (rect("interval", (high, 0.0), (2.0, 12.0)))
        }
    }
}

fn drawing(finding: &Finding, line: &LineRow, run: &Run) -> Markup {
    let touchers = touchers(line, &finding.accesses, ROWS);
    let size = drawn_size(line);
    html! {
        figure {
            figcaption { (contention::line_words(finding, line)) }
            div.scroll {
                @for start in (0..size).step_by(BYTES as usize) {
                    (segment(line, &touchers, run, start..size.min(start + BYTES)))
                }
            }
            (legend(&touchers))
        }
    }
}

/// The class of a thread's colour, the same wherever it is drawn.
fn colour(toucher: &Toucher<'_>, run: &Run) -> String {
    let first = toucher.threads.first().map_or(0, |(tid, _)| *tid);
    let known = run.threads.iter().position(|it| it.tid == first);
    format!("t{}", known.unwrap_or(first as usize) % COLOURS)
}

/// A row of at most 64 bytes: offsets, fields, and who touches them.
fn segment(line: &LineRow, touchers: &[Toucher<'_>], run: &Run, bytes: Range<u32>) -> Markup {
    let Range { start, end } = bytes;
    let described = format!(
        "Bytes {start} to {} of the line and who touches them",
        end - 1
    );
    html! {
        table.line aria-label=(described) {
            tr.offsets {
                th scope="row" { "byte" }
                @for offset in bytes.clone().step_by(8) { td colspan=((end - offset).min(8)) { (offset) } }
            }
            (fields(line, bytes.clone()))
            @for toucher in touchers.iter().take(ROWS) {
                (marks(line, toucher, &colour(toucher, run), bytes.clone()))
            }
        }
    }
}

fn fields(line: &LineRow, bytes: Range<u32>) -> Markup {
    let mut at = bytes.start;
    let mut drawn = Vec::new();
    for field in distinct_fields(line) {
        let first = field.offset.clamp(at, bytes.end);
        let last = (field.offset.saturating_add(field.size)).clamp(at, bytes.end);
        // Nothing of it is here.
        if first < last {
            drawn.push(html! { (hole(at..first)) (field_cell(field, last - first)) });
            at = last;
        }
    }
    html! {
        tr.fields {
            th scope="row" { "field" }
            @for cells in &drawn { (cells) }
            (hole(at..bytes.end))
        }
    }
}

/// Bytes that belong to no field.
fn hole(bytes: Range<u32>) -> Markup {
    html! { @if !bytes.is_empty() { td.hole colspan=(bytes.len()) {} } }
}

fn field_cell(field: &LineField, span: u32) -> Markup {
    // About 1.8 characters fit where a byte does; with one or two bytes there is no room.
    let room = (span as usize * 9 / 5).saturating_sub(1);
    let path = text::sanitise(&field.path);
    let shown = match room {
        0..4 => "".into(),
        room => text::shorten_start(&path, room),
    };
    html! { td colspan=(span) title=(field_words(field)) { (shown) } }
}

fn field_words(field: &LineField) -> String {
    let mut words = format!("+{} {}", field.offset, field.path);
    if !field.type_name.is_empty() {
        words += &format!(" ({})", field.type_name);
    }
    words + ", " + &text::bytes(field.size.into())
}

fn marks(line: &LineRow, toucher: &Toucher<'_>, colour: &str, bytes: Range<u32>) -> Markup {
    let (label, full) = toucher_words(toucher);
    let mark = |offset: u32| toucher.marks.get(offset as usize).copied().flatten();
    html! {
        tr {
            th.(colour) scope="row" title=(full) { (label) }
            @for offset in bytes {
                @let edge = offset % 8 == 0;
                @if let Some(mark) = mark(offset) {
                    td.(colour).edge[edge] title=(byte_words(line, &label, mark, offset)) { (mark.letter()) }
                } @else {
                    td class=[edge.then_some("edge")] {}
                }
            }
        }
    }
}

/// `worker-0 reads and writes byte 8, counters[0].hits`.
fn byte_words(line: &LineRow, label: &str, mark: Mark, offset: u32) -> String {
    let mut words = format!("{label} {} byte {offset}", mark.meaning());
    let field = line
        .fields
        .iter()
        .find(|f| f.offset <= offset && offset - f.offset < f.size && !f.path.is_empty());
    if let Some(field) = field {
        let path = text::sanitise(&field.path);
        words += ", ";
        words += &text::shorten(&path, 60);
    }
    words
}

/// What a row is called, in short and in full.
fn toucher_words(toucher: &Toucher<'_>) -> (String, String) {
    if let [(tid, name)] = toucher.threads[..] {
        let safe = text::sanitise(name);
        let label = format!("{} {tid}", text::shorten(&safe, 12));
        return (label, format!("{name} {tid}"));
    }
    let named: Vec<String> = toucher
        .threads
        .iter()
        .take(20)
        .map(|(tid, name)| format!("{name} {tid}"))
        .collect();
    let label = text::plural(toucher.threads.len() as u64, "thread");
    let more = match toucher.threads.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (label, named.join(", ") + &more)
}

fn legend(touchers: &[Toucher<'_>]) -> Markup {
    let marks = touchers.iter().flat_map(|toucher| &toucher.marks);
    let used: BTreeSet<Mark> = marks.flatten().copied().collect();
    let hidden: usize = touchers.iter().skip(ROWS).map(|t| t.threads.len()).sum();
    html! {
        p.legend {
            @for mark in used { b { (mark.letter()) } " " (mark.explained()) "  " }
            @if hidden > 0 { "and " (text::plural(hidden as u64, "more thread")) }
        }
    }
}

fn accesses(finding: &Finding) -> Markup {
    let whole = match finding.is_exact() {
        true => "of the accesses that waited for the line",
        false => "of the finding's sampled time",
    };
    let heads = html! {
        th.number { abbr title=(whole) { "Share" } }
        th { "Place" } th { "Does" } th { "Threads" } th { "Field" }
    };
    let listed = places::listed(finding, PLACES, SLIGHT);
    let mut said = Said::default();
    let places: Vec<Markup> = (listed.places.iter())
        .map(|it| place_rows(it, &mut said))
        .collect();
    let rows = html! { @for rows in &places { (rows) } };
    html! {
        (written::table("accesses", heads, rows))
        @if listed.hidden > 0 {
            p.quiet {
                (text::plural(listed.hidden, "more place"))
                @if listed.hidden_share > 0.0 { ", " (text::percent(listed.hidden_share)) }
            }
        }
    }
}

/// What stands at a place already and is not said again at the next one.
#[derive(Default)]
struct Said<'a> {
    chains: BTreeSet<&'a [String]>,
    missing: BTreeSet<&'a str>,
}

/// A row of the program's own place and, where several instructions touch the line there, one of each.
fn place_rows<'a>(place: &OwnPlace<'a>, said: &mut Said<'a>) -> Markup {
    let all = place.accesses();
    let several = place.instructions.len() > 1;
    let callers = (all.rows.iter()).flat_map(|row| &row.called_from);
    let chains = callers.filter(|chain| said.chains.insert(&chain.callers));
    let beyond = chains.map(|chain| place.beyond(chain));
    let beyond = beyond.filter(|chain| !chain.callers.is_empty());
    let chains: Vec<CallChain> = beyond.take(CHAINS).collect();
    let missing = (all.rows.iter()).map(|row| row.missing.as_str());
    let missing: Vec<&str> = missing
        .filter(|why| !why.is_empty() && said.missing.insert(why))
        .collect();
    html! {
        tr {
            td.number { (text::percent(place.share)) }
            td.place {
                (code_place(&place.place)) (place.remark())
                @if !several { (inside(&all)) }
                @for chain in &chains { span.quiet { (Name(&text::called_from(chain, CALLERS))) } }
                @for why in &missing { span.quiet { (Prose(why)) } }
            }
            td.nowrap { @if !several { (all.touch()) } }
            td.name { (all.who().join(", ")) }
            td.name { code { (Column(&fields_of(&all))) } }
        }
        @if several { @for it in &place.instructions { tr.part {
            td.number { (text::percent(it.share)) }
            td.place { (inside(it)) }
            td.nowrap { (it.touch()) }
            td.name { (it.who().join(", ")) }
            td.name { code { (Column(&fields_of(it))) } }
        } } }
    }
}

/// The fields that accesses touch, dearest first.
fn fields_of(accesses: &Accesses<'_>) -> String {
    let mut fields: Vec<&str> = Vec::new();
    for row in &accesses.rows {
        if !row.field.is_empty() && !fields.contains(&row.field.as_str()) {
            fields.push(&row.field);
        }
    }
    fields.truncate(FIELDS);
    fields.join(", ")
}

/// The code of a library that does it, and into what it was inlined: behind the program's own place.
fn inside(accesses: &Accesses<'_>) -> Markup {
    let access = accesses.rows[0];
    let inlined = html! {
        @for caller in &access.inlined_into { span.quiet { "inlined into " code { (Name(caller)) } } }
    };
    match (access.own_caller(), access.inlined_into.is_empty()) {
        (Some(_), true) => html! { span.quiet { "in " (code_place(&access.innermost())) } },
        (Some(_), false) => html! {
            details { summary.quiet { "in " (code_place(&access.innermost())) } (inlined) }
        },
        (None, _) => inlined,
    }
}

/// The function, and its line in the source.
fn code_place(place: &SourcePlace) -> Markup {
    let function = match place.function.as_str() {
        "" => "unknown code",
        name => name,
    };
    let line = match place.line {
        0 => String::new(),
        line => format!(":{line}"),
    };
    html! {
        code { (Name(function)) }
        @if !place.file.is_empty() {
            " " span.file title={ (place.file) (line) } { (Name(text::file_name(&place.file))) (line) }
        }
    }
}

fn change(finding: &Finding) -> Markup {
    let gain = finding.expected_gain;
    html! {
        div.change {
            h4 { "Change" }
            p { (Prose(&finding.change)) }
            @if !finding.change_source.is_empty() {
                div.source {
                    pre { code {
                        @for line in finding.change_source.lines() { (line.replace('\t', "    ")) (NEW_LINE) }
                    } }
                    button.copy type="button" hidden { "Copy" }
                }
            }
            @if gain.high > 0.0 { p { b { "Expected gain" } " " (text::gain(gain)) " of thread time." } }
            @if !finding.doubt.is_empty() { p.quiet { b { "Doubt" } " " (Prose(&finding.doubt)) } }
        }
    }
}
