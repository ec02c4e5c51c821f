//! The data profile: the types by cost, and each of the dearest byte by byte, with the layout that
//! its use suggests.

use linewise_recording::Source;
use maud::{Markup, html};

use super::super::contention;
use super::super::model::{
    Coverage, CrowdedSet, CrowdedType, FieldRow, FieldThread, Interval, Layout, LevelMisses,
    LevelSet, MissRow, Reached, Report, TypeRow, TypeSet,
};
use super::super::text;
use super::document::NEW_LINE;
use super::written::{self, Column, Name};
use crate::section::{self, bounded};

/// Types in the table.
const ROWS: usize = 50;
/// Types that are drawn.
const DRAWN: usize = 20;

/// The section; of a recording without typed accesses only what is missing.
pub(super) fn section(report: &Report) -> Markup {
    let coverage = report.type_coverage.as_ref();
    let missing = coverage.is_some_and(|it| !it.missing.is_empty());
    if report.types.is_empty() && !missing {
        return html! {};
    }
    let told = |row: &&TypeRow| !row.fields.is_empty() || !row.reached.is_empty();
    let card = html! {
        @if !report.types.is_empty() { (types(report)) }
        @if let Some(coverage) = coverage { (covered(coverage)) }
        @for row in report.types.iter().filter(told).take(DRAWN) { (one(row)) }
        @if !report.types.is_empty() {
            @if !report.misses.is_empty() { (misses(report)) }
            @for level in &report.working_set { (working_set(level, report.run.source)) }
        }
    };
    written::section("types", "Types", card)
}

fn types(report: &Report) -> Markup {
    let of = report.run.source.weight();
    // A column that has nothing to tell takes room from the others.
    let missed = report.types.iter().any(|row| !row.misses.is_empty());
    let allocated = report.types.iter().any(|row| !row.allocated_at.is_empty());
    let heads = html! {
        th { "Type" } th.number { "Size" } th.number { "Share of " (of) } th.number { "Accesses" }
        @if missed { th.number { "Misses" } }
        th { "Contended" } th { "Declared" }
        @if allocated { th { "Allocated by" } }
    };
    let level = |it: &LevelMisses| format!("{} {}", it.level.word(), text::percent(it.share));
    let row = |row: &TypeRow| {
        let misses: Vec<String> = row.misses.iter().map(level).collect();
        let bounces = contention::of_type(report, row);
        html! {
            td.name { (Column(&row.name)) }
            td.number { (text::bytes(row.size)) }
            td.number { (text::percent(row.cost.share)) }
            td.number { (text::count(row.accesses)) }
            @if missed { td.number { (misses.join(", ")) } }
            td { (bounces) }
            td.file { (Column(text::file_name(&row.description))) }
            @if allocated { td.sites { (sites(&row.allocated_at)) } }
        }
    };
    shares(
        "wide types",
        heads,
        &report.types,
        |row| row.cost.share,
        row,
    )
}

/// The heaviest rows as a table, and one row for the others with the sum of their shares.
fn shares<R>(
    class: &str,
    heads: Markup,
    rows: &[R],
    share: impl Fn(&R) -> f64,
    row: impl Fn(&R) -> Markup,
) -> Markup {
    let (shown, rest) = bounded(rows, &share, ROWS);
    let sum = rest.iter().map(|row| share(row)).sum();
    let rows = html! {
        @for it in shown { tr { (row(it)) } }
        @if !rest.is_empty() {
            tr.quiet { td colspan="9" { (section::more(rest.len())) ", " (text::percent(sum)) } }
        }
    };
    written::table(class, heads, rows)
}

/// Allocation sites, one on a line, of their files the names.
fn sites(sites: &[String]) -> Markup {
    let short = |site: &String| match site.rsplit_once(" (") {
        Some((function, place)) => format!("{function} ({}", text::file_name(place)),
        None => site.clone(),
    };
    html! {
        @for (i, site) in sites.iter().enumerate() {
            @if i > 0 { br; }
            (Column(&short(site)))
        }
    }
}

/// Why the first level misses, or what waiting is likely to be for, by type.
fn misses(report: &Report) -> Markup {
    let (what, of) = match report.run.source {
        Source::Exact => ("Misses of the first level", "Share of misses"),
        Source::Timer => ("Waiting, by likely cause", "Share of waiting"),
    };
    let heads = html! {
        th { "Type" } th.number { (of) } th.number { "Compulsory" } th.number { "Capacity" }
        th.number { "Conflict" } th.number { "True sharing" } th.number { "False sharing" }
    };
    let row = |row: &MissRow| {
        let shares = [
            row.share,
            row.compulsory,
            row.capacity,
            row.conflict,
            row.true_sharing,
            row.false_sharing,
        ];
        html! {
            td.name { (Column(&text::kind(&row.type_name, &row.through))) }
            @for share in shares { td.number { (text::percent(share)) } }
        }
    };
    html! {
        h3 { (what) }
        (shares("wide", heads, &report.misses, |row| row.share, row))
    }
}

/// What fills a cache, and which of its sets are too full.
fn working_set(level: &LevelSet, source: Source) -> Markup {
    let how = match source {
        Source::Exact => "In the simulated cache, on average",
        Source::Timer => "At least",
    };
    let heads = html! {
        th { "Type" } th.number { "Share of the level" } th.number { "In use" } th.number { "Lines seen" }
        th.number { "Blocks seen" } th { "Allocated by" }
    };
    let row = |row: &TypeSet| {
        html! {
            td.name { (Column(&text::kind(&row.type_name, &row.through))) }
            td.number { (text::percent(row.share)) }
            td.number { (text::bytes(row.bytes as u64)) }
            td.number { (row.lines_seen) }
            td.number { (row.blocks_seen) }
            td.sites { (sites(&row.allocated_at)) }
        }
    };
    html! {
        h3 { "Working set: " (level.level.word()) " of " (text::binary_bytes(level.size_bytes)) }
        p.quiet {
            (how) " " (text::binary_bytes(level.in_use_bytes as u64)) " in use"
            @if let Some(tid) = level.tid { " by the thread that is busiest at memory, " (tid) }
            "."
        }
        (shares("wide", heads, &level.types, |row| row.share, row))
        @for set in &level.crowded {
            p {
                "Set " (set.set) " is too full: " (text::plural(set.lines, "line")) " of "
                (Name(&crowd(set)))
            }
        }
    }
}

/// `Node (12), Table (4, 4096 B apart)`.
fn crowd(set: &CrowdedSet) -> String {
    let words = |row: &CrowdedType| {
        let (name, lines) = (text::kind(&row.type_name, &row.through), row.lines);
        match row.stride {
            0 => format!("{name} ({lines})"),
            stride => format!("{name} ({lines}, {} apart)", text::bytes(stride)),
        }
    };
    let types: Vec<String> = set.types.iter().map(words).collect();
    types.join(", ")
}

fn covered(coverage: &Coverage) -> Markup {
    let share = |part: f64| text::percent(part / coverage.accesses.max(1.0));
    let reasons = coverage.untyped.iter();
    let reasons = reasons.map(|(reason, count)| format!("{reason} {}", share(*count)));
    let reasons: Vec<String> = reasons.collect();
    html! {
        p.quiet {
            (share(coverage.typed)) " of the accesses have a type"
            @if !reasons.is_empty() { "; the others by reason: " (reasons.join(", ")) }
            "."
        }
        @for missing in &coverage.missing {
            p.quiet.name { (share(missing.accesses)) ": " (missing.reason) }
        }
    }
}

/// A type by its members, and the layout that their use suggests.
fn one(row: &TypeRow) -> Markup {
    html! {
        details {
            summary { (Name(&row.name)) " (" (text::bytes(row.size)) ")" }
            @if !row.fields.is_empty() { (members(row)) }
            @if !row.reached.is_empty() { (reached(&row.reached)) }
            @if let Some(layout) = &row.layout { (suggestion(layout)) }
        }
    }
}

fn members(row: &TypeRow) -> Markup {
    let heads = html! {
        th.number { "Offset" } th.number { "Bytes" } th { "Member" } th { "Type" } th.number { "Share" }
        th.number { "Reads" } th.number { "Writes" } th { "Threads" }
    };
    let member = |field: &FieldRow| {
        html! {
            td.number { (field.offset) }
            td.number { (field.size) }
            @if field.padding {
                td colspan="6" { "padding" }
            } @else {
                td.name { (Column(&field.label())) }
                td.name { (Column(&field.type_name)) }
                (uses(field.share, field.loads, field.stores, &field.threads))
            }
        }
    };
    let rows = html! {
        @for field in &contention::drawn_members(row) {
            tr class=[field.padding.then_some("quiet")] { (member(field)) }
        }
    };
    written::table("wide", heads, rows)
}

/// The members and variables that lead to a type.
fn reached(holders: &[Reached]) -> Markup {
    let heads = html! {
        th { "Reached through" } th.number { "Share" } th.number { "Reads" } th.number { "Writes" }
        th { "Threads" }
    };
    let rows = html! {
        @for holder in holders {
            tr {
                td.name { (Column(&holder.through)) }
                (uses(holder.share, holder.loads, holder.stores, &holder.threads))
            }
        }
    };
    written::table("wide", heads, rows)
}

/// The cells of what is used: how much, how, and by whom.
fn uses(share: f64, loads: f64, stores: f64, threads: &[FieldThread]) -> Markup {
    html! {
        td.number { (text::percent(share)) }
        td.number { (text::count(loads)) }
        td.number { (text::count(stores)) }
        td.by { (who(threads)) }
    }
}

/// `worker 41312: 12 R, 700 W; worker 41313: 9 U`.
fn who(threads: &[FieldThread]) -> String {
    let threads: Vec<String> = threads
        .iter()
        .take(4)
        .map(|thread| {
            let writes = thread.stores - thread.updates;
            let uses = [(thread.loads, 'R'), (writes, 'W'), (thread.updates, 'U')];
            let uses = uses.into_iter().filter(|(count, _)| *count > 0.0);
            let uses = uses.map(|(count, letter)| format!("{} {letter}", text::count(count)));
            let uses: Vec<String> = uses.collect();
            format!("{} {}: {}", thread.name, thread.tid, uses.join(", "))
        })
        .collect();
    threads.join("; ")
}

fn suggestion(layout: &Layout) -> Markup {
    let saves = Interval {
        low: layout.saves_at_least,
        high: layout.saves_at_most,
    };
    html! {
        p {
            "The layout that this use suggests: " (text::bytes(layout.size_after)) " instead of "
            (text::bytes(layout.size_before)) ", of which " (text::bytes(layout.padding_after))
            " padding instead of " (text::bytes(layout.padding_before)) ". It saves " (text::gain(saves)) "."
        }
        ul { @for group in &layout.groups { li { (group.members.join(", ")) ": " (group.why) } } }
        @if !layout.source.is_empty() {
            pre {
                @for (i, line) in layout.source.lines().enumerate() {
                    @if i > 0 { (NEW_LINE) }
                    (line)
                }
            }
        }
    }
}
