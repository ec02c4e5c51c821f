//! Groups of threads as one self-contained page: the matrix in their order, the machine with the groups on it.

use maud::{Markup, html};

use super::super::groups as words;
use super::document::document;
use super::written::{self, Name, Prose};
use crate::command::command_line;
use crate::report::{cells, text};
use crate::views::groups::{Below, SharedObject, ThreadGroup, ThreadGroups};

/// Rows of the matrix.
const ROWS: usize = 48;
/// Groups and pairs that are written out; the JSON has them all.
const GROUPS: usize = 50;
const PAIRS: usize = 100;
/// Names of a group's members that are listed.
const MEMBERS: usize = 24;
/// Colour levels above zero, see the style sheet.
const LEVELS: f64 = 9.0;
/// CSS pixels of a cell, and of a character of a label.
const CELL: usize = 18;
const CHARACTER: usize = 7;
/// Columns of a label.
const LABEL: usize = 22;

/// Groups of threads as an HTML document.
#[must_use]
pub fn render_groups(groups: &ThreadGroups) -> String {
    let body = html! {
        header {
            p.brand { "linewise groups" }
            h1 { (words::verdict(groups)) }
            @for note in &groups.notes { p.note { b { "Note" } " " (Prose(note)) } }
            dl.facts {
                (written::fact("Command", &command_line(&groups.command, groups.launched), "wide code"))
                (written::fact("Machine", &words::machine(groups), "wide"))
            }
        }
        main {
            (written::section("advice", "What to do", html! { p { (Prose(&groups.advice.words)) } }))
            @if !groups.pairs.is_empty() { (written::section("matrix", "Who shares with whom", matrix(groups))) }
            @if !groups.shape.below.is_empty() { (written::section("machine", "The machine", machine(groups))) }
            @if !groups.groups.is_empty() { (written::section("groups", "Groups", all_groups(groups))) }
            @if !groups.pairs.is_empty() { (written::section("pairs", "Pairs", pairs(groups))) }
        }
        footer { p.quiet { "Cost is thread time lost. Ranges are 90 % intervals, of costs elsewhere with what the ratios of latencies leave open." } }
    };
    document(&command_line(&groups.command, groups.launched), body)
}

fn matrix(groups: &ThreadGroups) -> Markup {
    let all = words::OrderedMatrix::of(groups, ROWS);
    let label = |party: &words::GroupParty| {
        let group = party.group.map_or(String::new(), |id| format!("G{id} "));
        group + &cells::party(&party.party, LABEL)
    };
    let labels: Vec<String> = all.parties.iter().map(label).collect();
    let widest = labels.iter().map(|it| text::width(it)).max().unwrap_or(0);
    let (left, size) = (widest * CHARACTER + 10, all.parties.len() * CELL);
    let (width, height) = (left + size + 2, left + size + 2);
    let (unit, highest) = (words::unit(groups), all.highest());
    let cell = |(row, column): (usize, usize), found: &words::PairCell| {
        let level = ((found.strength() / highest.max(f64::MIN_POSITIVE)).sqrt() * LEVELS).ceil();
        let level = level.clamp(1.0, LEVELS) as u32;
        html! {
            g class={ "cell a" (level) } {
                title {
                    (labels[row]) " and " (labels[column]) ": " (text::count(found.transfers)) (unit)
                    @if found.in_turns > 0.0 { ", up to " (text::count(found.in_turns)) " more if they did not take turns" }
                }
                rect x=(left + column * CELL + 1) y=(left + row * CELL + 1) width=(CELL - 2) height=(CELL - 2) {}
            }
        }
    };
    html! {
        div.scroll {
            svg.matrix.show-all width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img"
                aria-label="Transfers between threads, by group; the figures are in the table below" {
                rect.ground x=(left) y=(left) width=(size) height=(size) {}
                @for (i, label) in labels.iter().enumerate() {
                    @let at = left + i * CELL + CELL / 2 + 4;
                    text class="label end" x=(left - 6) y=(at) { (label) }
                    text.label x=(at) y=(left - 5) transform={ "rotate(-90 " (at) " " (left - 5) ")" } { (label) }
                }
                @for (&(a, b), found) in &all.cells {
                    (cell((a, b), found))
                    @if a != b { (cell((b, a), found)) }
                }
            }
        }
        p.quiet { "A row is a " (all.noun) ", in the order of the groups; the darkest cell is " (text::count(highest)) (unit) "." }
    }
}

/// The sockets, in each its last-level caches, in each the groups that are to run there.
fn machine(groups: &ThreadGroups) -> Markup {
    let sockets = groups.shape.below.chunk_by(|a, b| a.socket == b.socket);
    let of = |below: &Below| {
        let placed = groups.groups.iter().filter(|group| {
            group
                .place
                .as_ref()
                .is_some_and(|place| place.cpus == below.cpus)
        });
        html! {
            div.llc {
                b { "CPUs " (below.cpus) }
                @for group in placed { (placed_group(groups, group)) }
            }
        }
    };
    let below: Vec<&str> = groups
        .shape
        .below
        .iter()
        .map(|it| it.cpus.as_str())
        .collect();
    let wide = |group: &&ThreadGroup| match &group.place {
        Some(place) => !below.contains(&place.cpus.as_str()),
        None => false,
    };
    html! {
        div.sockets {
            @for socket in sockets {
                div.socket {
                    b { @match socket[0].socket { Some(id) => { "Socket " (id) }, None => "Caches" } }
                    div.llcs { @for it in socket { (of(it)) } }
                }
            }
        }
        @for group in groups.groups.iter().filter(wide) {
            p { "Group " (group.id) ": " (group.place.as_ref().map_or_else(String::new, |place| words::place(group, place))) }
        }
        @if groups.groups.iter().all(|group| group.place.is_none()) {
            p.quiet { "No group is put anywhere: see What to do." }
        }
    }
}

fn placed_group(groups: &ThreadGroups, group: &ThreadGroup) -> Markup {
    html! {
        div.placed {
            a href={ "#group-" (group.id) } { "Group " (group.id) }
            " " (words::members(groups, group, 6))
        }
    }
}

fn all_groups(groups: &ThreadGroups) -> Markup {
    let rest = groups.groups.len().saturating_sub(GROUPS) as u64;
    html! {
        @for group in groups.groups.iter().take(GROUPS) {
            h3 id={ "group-" (group.id) } { "Group " (group.id) }
            dl.facts {
                (written::fact("Threads", &words::members(groups, group, MEMBERS), "wide"))
                (written::fact("Moves", &words::of_group(group, words::unit(groups)), "wide"))
                (written::fact("Shared hot set", &words::hot_set(groups, group), ""))
                (written::fact("Costs", &words::cost(groups, group), ""))
                (written::fact("Elsewhere", &words::elsewhere(groups, group), "wide"))
                @if let Some(place) = &group.place { (written::fact("Place", &words::place(group, place), "wide")) }
                @if !group.why.is_empty() { (written::fact("Why", &why(&group.why), "wide")) }
            }
        }
        @if rest > 0 { p.quiet { (text::plural(rest, "more group")) ", in the JSON." } }
    }
}

fn why(objects: &[SharedObject]) -> String {
    objects
        .iter()
        .map(words::why)
        .collect::<Vec<_>>()
        .join("; ")
}

fn pairs(groups: &ThreadGroups) -> Markup {
    let name = |tid: u32| {
        let name = groups.thread(tid).map_or("thread", |it| it.name.as_str());
        format!("{name} {tid}")
    };
    let heads = html! { th { "Between" } th { "and" } th { "Moves" } th { "Why" } };
    let rows = html! {
        @for pair in groups.pairs.iter().take(PAIRS) {
            tr {
                @for tid in [pair.one, pair.other] { td.name { (Name(&name(tid))) } }
                td { (words::of_pair(pair, words::unit(groups))) }
                td { (why(&pair.why)) }
            }
        }
    };
    let rest = groups.pairs.len().saturating_sub(PAIRS) as u64;
    html! {
        (written::table("wide", heads, rows))
        @if rest > 0 { p.quiet { (text::plural(rest, "more pair")) ", in the JSON." } }
    }
}
