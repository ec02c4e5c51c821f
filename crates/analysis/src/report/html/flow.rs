//! What happens to objects of a type: a graph of functions from the allocation down to the end.

use maud::{Markup, html};

use super::super::model::{FlowEdge, FlowNode, FlowRow, Report};
use super::super::text;
use super::written::{self, Name};

/// Types that are drawn.
const DRAWN: usize = 8;
/// Nodes that are drawn; of more the paths are in the table all the same.
const NODES: usize = 60;
/// A box, and the room around it, in CSS pixels.
const BOX: (usize, usize) = (210, 46);
const CELL: (usize, usize) = (290, 90);
/// Shades of the sampled time.
const SHADES: f64 = 9.0;

/// The section, unless no objects were followed.
pub(super) fn section(report: &Report) -> Markup {
    if report.flow.is_empty() {
        return html! {};
    }
    let card = html! {
        p.quiet {
            "From allocation to end. A bold line: another thread goes on. Darker: more of the time that was sampled \
             at these objects."
        }
        @for row in report.flow.iter().take(DRAWN) {
            (title(row))
            (graph(row))
            (figures(row))
        }
    };
    written::section("flow", "What happens to objects", card)
}

fn title(row: &FlowRow) -> Markup {
    let name = match row.type_name.as_str() {
        "" => "(no type)",
        name => name,
    };
    let others = (row.sites.len() as u64).saturating_sub(1);
    html! {
        h3 { (Name(name)) ", " (text::bytes(row.size)) }
        p.quiet {
            "Allocated by " (Name(&row.allocated_at))
            @if others > 0 { " and " (text::plural(others, "other place")) }
            "; " (text::plural(row.paths.len() as u64, "path")) ", "
            (text::plural(row.histories, "object")) " followed."
        }
    }
}

/// Where each node stands: column and layer.
fn places(row: &FlowRow) -> Vec<(usize, usize)> {
    let count = row.nodes.len().min(NODES);
    let mut layers = vec![0; count];
    // Along a path layers grow; as often as there are nodes until nothing moves.
    for _ in 0..count {
        for path in &row.paths {
            for pair in path.nodes.windows(2) {
                let (from, to) = (pair[0] as usize, pair[1] as usize);
                if from < count && to < count && layers[to] <= layers[from] {
                    layers[to] = (layers[from] + 1).min(count);
                }
            }
        }
    }
    // The most frequent path goes straight down.
    let mut columns: Vec<Option<usize>> = vec![None; count];
    for path in &row.paths {
        let own = || {
            path.nodes
                .iter()
                .map(|&id| id as usize)
                .filter(|&id| id < count)
        };
        let fresh: Vec<usize> = own().filter(|&id| columns[id].is_none()).collect();
        let taken = |column: usize, layer: usize| {
            (0..count).any(|id| columns[id] == Some(column) && layers[id] == layer)
        };
        let column = (0..=count)
            .find(|&column| fresh.iter().all(|&id| !taken(column, layers[id])))
            .unwrap_or(0);
        for id in fresh {
            columns[id] = Some(column);
        }
    }
    let columns = columns.into_iter().map(|column| column.unwrap_or(0));
    columns.zip(layers).collect()
}

fn graph(row: &FlowRow) -> Markup {
    let places = places(row);
    let columns = places.iter().map(|it| it.0).max().unwrap_or(0) + 1;
    let layers = places.iter().map(|it| it.1).max().unwrap_or(0) + 1;
    let (width, height) = (columns * CELL.0, layers * CELL.1);
    let corner = |(column, layer): (usize, usize)| (column * CELL.0 + 4, layer * CELL.1 + 4);
    html! {
        div.scroll {
            svg.flow width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img"
                aria-label="Functions that these objects come through; the paths are in the table below" {
                @for edge in &row.edges {
                    @if let (Some(&from), Some(&to)) = (places.get(edge.from as usize), places.get(edge.to as usize)) {
                        // Around what stands in between.
                        @let around = to.1 > from.1 + 1 && to.0 == from.0;
                        (edge_line(edge, corner(from), corner(to), around))
                    }
                }
                @for (node, &place) in row.nodes.iter().zip(&places) { (node_box(node, corner(place))) }
            }
        }
    }
}

fn edge_line(edge: &FlowEdge, from: (usize, usize), to: (usize, usize), around: bool) -> Markup {
    let (x1, y1, x2, y2) = (from.0 + BOX.0 / 2, from.1 + BOX.1, to.0 + BOX.0 / 2, to.1);
    let apart = usize::from(around) * (BOX.0 / 2 + 60);
    let middle = (y1 + y2) / 2;
    let (c1, c2) = (x1 + apart, x2 + apart);
    let curve = format!("M{x1} {y1} C{c1} {middle} {c2} {middle} {x2} {y2}");
    let often = text::percent(edge.frequency);
    html! {
        path.edge.bold[edge.thread_change] d=(curve) {
            title { (often) " of the objects" @if edge.thread_change { ", to another thread" } }
        }
        @if edge.frequency < 0.995 {
            text.label x=((x1 + x2) / 2 + apart * 3 / 4 + 6) y=(middle + 4) { (often) }
        }
    }
}

fn node_box(node: &FlowNode, (x, y): (usize, usize)) -> Markup {
    let shade = (node.sampled_share.clamp(0.0, 1.0) * SHADES).ceil() as usize;
    let line = |words: &str, columns| text::shorten(&text::sanitise(words), columns).into_owned();
    html! {
        g {
            title {
                (node.function) " " (node.place) ", " (text::percent(node.frequency)) " of the objects, "
                (text::nanoseconds(node.time_ns)) " after the allocation, "
                (text::percent(node.sampled_share)) " of the time sampled at them" (served(node))
            }
            rect class={ "shade-" (shade) } x=(x) y=(y) width=(BOX.0) height=(BOX.1) rx="4" {}
            text.function x=(x + 8) y=(y + 19) { (line(&node.function, 27)) }
            text.label x=(x + 8) y=(y + 36) { (line(&words(node), 32)) }
        }
    }
}

/// Which levels serve the accesses, where that is known.
fn served(node: &FlowNode) -> String {
    node.hits.map_or_else(String::new, |hits| {
        let took = node.latency_ns.map_or_else(String::new, |ns| {
            format!(": {} an access on average", text::nanoseconds(ns))
        });
        format!(
            "; served by the first level {}, the second {}, the last {}, another core {}, memory {}{took}",
            text::percent(hits.l1),
            text::percent(hits.l2),
            text::percent(hits.llc),
            text::percent(hits.core),
            text::percent(hits.memory)
        )
    })
}

/// The thread, and what is touched.
fn words(node: &FlowNode) -> String {
    let touches = match node.touches.is_empty() {
        true => node.event.word().to_owned(),
        false => node.touches.join(", "),
    };
    match text::not_in_l1(node) {
        Some(missed) => format!("thread {} · {missed} · {touches}", node.thread),
        None => format!("thread {} · {touches}", node.thread),
    }
}

fn figures(row: &FlowRow) -> Markup {
    let heads = html! { th.number { "Objects" } th.number { "Histories" } th { "Functions" } };
    let rows = html! {
        @for path in &row.paths {
            tr {
                td.number { (text::percent(path.frequency)) }
                td.number { (path.histories) }
                td.name { (text::path_of_functions(row, &path.nodes, false, usize::MAX)) }
            }
        }
    };
    written::details("Paths", false, written::table("wide", heads, rows))
}
