//! Thread time by call chain: a flame graph that the script makes of data, and a picture of it for who has no script.

use std::collections::HashMap;

use maud::{Markup, html};
use serde::Serialize;

use super::super::text;
use super::written;
use crate::views::calls::{CallNode, CallTree, Owner, SampledThread};

/// Width of the picture in its own units.
const WIDTH: f64 = 1000.0;
/// Height of a function in it.
const ROW: f64 = 18.0;
/// Functions within functions that it has.
const DEEP: usize = 40;
/// Functions that it has, and the least share of one.
const PICTURED: usize = 400;
const LEAST_SHARE: f64 = 0.004;
/// Characters of a name.
const NAME: usize = 240;
/// Threads of which one can be chosen.
const CHOICES: usize = 256;
/// All time in the units of the data: they are whole numbers.
const UNITS: f64 = 1e8;

/// The whole section.
pub(super) fn section(tree: &CallTree) -> Markup {
    let card = html! {
        p.quiet #flame-help {
            "The width of a function is its thread time, with that of all that it calls, which is below it."
            @if tree.left_out > 0 {
                " " (text::plural(tree.left_out as u64, "call chain")) " with next to no time are not shown by themselves: their time, "
                (text::percent(tree.left_out_share)) " of all, is that of their callers."
            }
        }
        (controls(tree))
        p.keys {
            @for (owner, words) in legend(tree) {
                span { svg.key width="12" height="12" aria-hidden="true" { rect.(class(owner)) width="12" height="12" {} } " " (words) }
            }
        }
        div #flame { div.scroll { (picture(tree)) } }
        p #flame-readout.quiet aria-live="polite" hidden {}
        div #flame-data hidden { (data(tree)) }
    };
    written::section("calls", "Thread time by call chain", card)
}

/// Owners that there are.
fn legend(tree: &CallTree) -> Vec<(Owner, &'static str)> {
    let is_there = |owner| tree.nodes.iter().any(|it| it.owner == owner);
    let words = [
        (Owner::Own, "the program's own code"),
        (Owner::Library, "libraries"),
        (Owner::Kernel, "the kernel"),
        (Owner::Unknown, "code without a name"),
    ];
    words.into_iter().filter(|it| is_there(it.0)).collect()
}

/// The class of a function's colour.
fn class(owner: Owner) -> &'static str {
    match owner {
        Owner::Threads => "o-threads",
        Owner::Own => "o-own",
        Owner::Library => "o-library",
        Owner::Kernel => "o-kernel",
        Owner::Unknown => "o-unknown",
    }
}

/// What the script listens to; it shows them.
fn controls(tree: &CallTree) -> Markup {
    html! {
        div #flame-controls.flame-controls hidden {
            label {
                "Threads "
                select #flame-thread {
                    option value="" { "all" }
                    @for (name, count) in groups(&tree.threads) {
                        option value={ "n" (name) } { (shown(&tree.threads[name].group, 40)) " (" (count) " threads)" }
                    }
                    @for (i, thread) in tree.threads.iter().enumerate().take(CHOICES) {
                        option value={ "t" (i) } {
                            (shown(&thread.name, 40)) @if let Some(tid) = thread.tid { " " (tid) }
                        }
                    }
                }
            }
            label { "Search " input #flame-search type="search" autocomplete="off" spellcheck="false"; }
            @if tree.slices > 1 {
                label { "From " input #flame-from type="range" min="0" max=(tree.slices - 1) value="0"; }
                label { "To " input #flame-to type="range" min="1" max=(tree.slices) value=(tree.slices); }
            }
            button #flame-reset type="button" { "Reset" }
        }
        p #flame-state.quiet aria-live="polite" hidden {}
    }
}

/// Groups of several threads: the first of each, and how many they are.
fn groups(threads: &[SampledThread]) -> Vec<(usize, usize)> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (i, thread) in threads.iter().enumerate() {
        let at = *first.entry(&thread.group).or_insert_with(|| {
            groups.push((i, 0));
            groups.len() - 1
        });
        groups[at].1 += 1;
    }
    groups.retain(|&(_, count)| count > 1);
    groups.truncate(CHOICES);
    groups
}

fn shown(name: &str, columns: usize) -> String {
    text::shorten(&text::sanitise(name), columns).into_owned()
}

/// Where a function is: its line, or else its program or library.
fn place(node: &CallNode) -> String {
    match (node.file.as_str(), node.line) {
        (_, 0) => text::shorten_start(&text::sanitise(&node.module), NAME).into_owned(),
        (file, line) => {
            let file = text::sanitise(file);
            format!("{}:{line}", text::shorten_start(&file, NAME))
        }
    }
}

/// A function in the picture.
struct Drawn {
    x: f64,
    width: f64,
    row: usize,
}

/// The functions with the most time, those that call first.
fn picture(tree: &CallTree) -> Markup {
    let all = tree.nodes.first().map_or(0, |it| it.sum_ns).max(1) as f64;
    let mut drawn: Vec<Option<Drawn>> = Vec::with_capacity(tree.nodes.len());
    // Where the next function goes that each calls.
    let mut next: Vec<f64> = vec![0.0; tree.nodes.len()];
    let mut count = 0;
    for (i, node) in tree.nodes.iter().enumerate() {
        let width = node.sum_ns as f64 / all * WIDTH;
        let parent = drawn.get(node.parent).and_then(Option::as_ref);
        let row = parent.map_or(0, |it| it.row + 1);
        let has_parent = i == 0 || parent.is_some();
        let is_drawn = has_parent && width >= LEAST_SHARE * WIDTH && row < DEEP && count < PICTURED;
        let x = next[node.parent];
        drawn.push(is_drawn.then(|| {
            count += 1;
            Drawn { x, width, row }
        }));
        if is_drawn {
            if i > 0 {
                next[node.parent] += width;
            }
            next[i] = x;
        }
    }
    let rows = drawn.iter().flatten().map(|it| it.row + 1).max();
    let height = rows.unwrap_or(1) as f64 * ROW;
    html! {
        svg.chart.flame viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label="Thread time by call chain" {
            @for (node, drawn) in tree.nodes.iter().zip(&drawn) {
                @if let Some(it) = drawn { (function(node, it, all)) }
            }
        }
    }
}

fn function(node: &CallNode, drawn: &Drawn, all: f64) -> Markup {
    // Of a name so many characters have room.
    let room = ((drawn.width - 6.0) / 6.6).max(0.0) as usize;
    let y = drawn.row as f64 * ROW;
    html! {
        g.frame.(class(node.owner)) {
            title { (shown(&node.name, NAME)) ", " (text::percent(node.sum_ns as f64 / all)) " " (place(node)) }
            rect x=(format_args!("{:.1}", drawn.x)) y=(y) width=(format_args!("{:.1}", drawn.width)) height=(ROW - 1.0) {}
            @if room > 3 {
                text x=(format_args!("{:.1}", drawn.x + 3.0)) y=(y + 13.0) { (shown(&node.name, room)) }
            }
        }
    }
}

/// What the script reads: columns of numbers, and names that they count.
#[derive(Serialize)]
struct Data<'a> {
    /// Names, of functions, threads and places.
    names: Vec<String>,
    /// Of each node.
    parent: Vec<usize>,
    name: Vec<usize>,
    place: Vec<usize>,
    owner: Vec<&'a str>,
    /// Of each thread.
    group: Vec<usize>,
    slices: usize,
    length_ns: f64,
    /// What the amounts of cells count, ns.
    unit_ns: f64,
    /// Of each cell two numbers: how far it is from the one before it, by node, thread and slice, and its amount.
    cells: Vec<u64>,
}

/// Names, each once.
#[derive(Default)]
struct Words {
    numbers: HashMap<String, usize>,
    words: Vec<String>,
}

impl Words {
    fn number(&mut self, word: String) -> usize {
        let words = &mut self.words;
        *self.numbers.entry(word).or_insert_with_key(|word| {
            words.push(word.clone());
            words.len() - 1
        })
    }
}

/// The data as JSON.
fn data(tree: &CallTree) -> String {
    let all = tree.nodes.first().map_or(0, |it| it.sum_ns);
    let unit_ns = (all as f64 / UNITS).max(1.0);
    let mut words = Words::default();
    let mut number = |word: String| words.number(word);
    let nodes = || tree.nodes.iter();
    let mut cells = Vec::with_capacity(2 * tree.cells.len());
    let mut before = 0;
    for cell in &tree.cells {
        let key =
            ((cell.node * tree.threads.len() + cell.thread) * tree.slices + cell.slice) as u64;
        cells.push(key.saturating_sub(before));
        cells.push((cell.ns as f64 / unit_ns).round() as u64);
        before = key;
    }
    let data = Data {
        parent: nodes().map(|it| it.parent).collect(),
        name: nodes().map(|it| number(shown(&it.name, NAME))).collect(),
        place: nodes().map(|it| number(place(it))).collect(),
        owner: nodes().map(|it| class(it.owner)).collect(),
        group: (tree.threads.iter())
            .map(|it| number(shown(&it.group, NAME)))
            .collect(),
        slices: tree.slices,
        length_ns: tree.length_ns,
        unit_ns,
        cells,
        names: words.words,
    };
    serde_json::to_string(&data).unwrap_or_default()
}
