//! What happens to objects of a type: a graph of functions from the allocation down to the end.

use std::fmt::Write as _;

use super::super::model::{FlowNode, FlowRow, Report};
use super::super::text;
use super::written::{Name, Text, percent};

/// Types that are drawn.
const DRAWN: usize = 8;
/// Nodes that are drawn; of more the paths are in the table all the same.
const NODES: usize = 60;
/// A box, and the room around it, in CSS pixels.
const BOX: (usize, usize) = (210, 46);
const CELL: (usize, usize) = (290, 90);
/// Shades of the sampled time.
const SHADES: f64 = 9.0;

/// Writes the section, unless no objects were followed.
pub(super) fn write(out: &mut String, report: &Report) {
    if report.flow.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"flow\">\n<h2>What happens to objects</h2>\n<div class=\"card\">\n\
         <p class=\"quiet\">From allocation to end. A bold line: another thread goes on. Darker: more of \
         the time that was sampled at these objects.</p>\n",
    );
    for row in report.flow.iter().take(DRAWN) {
        let name = match row.type_name.as_str() {
            "" => "(no type)",
            name => name,
        };
        let _ = write!(
            out,
            "<h3>{}, {}</h3>\n<p class=\"quiet\">Allocated by {}{}; {}, {}.</p>\n",
            Name(name),
            text::bytes(row.size),
            Name(&row.allocated_at),
            match row.sites.len() {
                0 | 1 => String::new(),
                sites => format!(" and {}", text::plural(sites as u64 - 1, "other place")),
            },
            text::plural(row.paths.len() as u64, "path"),
            followed(row),
        );
        draw(out, row);
        figures(out, row);
    }
    out.push_str("</div>\n</section>\n");
}

/// `12 objects followed`.
fn followed(row: &FlowRow) -> String {
    format!("{} followed", text::plural(row.histories, "object"))
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

fn draw(out: &mut String, row: &FlowRow) {
    let places = places(row);
    let columns = places.iter().map(|it| it.0).max().unwrap_or(0) + 1;
    let layers = places.iter().map(|it| it.1).max().unwrap_or(0) + 1;
    let (width, height) = (columns * CELL.0, layers * CELL.1);
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><svg class=\"flow\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Functions that these objects come through; the paths are in the table below\">"
    );
    let corner = |id: usize| (places[id].0 * CELL.0 + 4, places[id].1 * CELL.1 + 4);
    for edge in &row.edges {
        let (from, to) = (edge.from as usize, edge.to as usize);
        if from >= places.len() || to >= places.len() {
            continue;
        }
        let ((x1, y1), (x2, y2)) = (corner(from), corner(to));
        let (x1, y1, x2) = (x1 + BOX.0 / 2, y1 + BOX.1, x2 + BOX.0 / 2);
        // Around what stands in between.
        let apart = usize::from(places[to].1 > places[from].1 + 1 && x1 == x2) * (BOX.0 / 2 + 60);
        let middle = (y1 + y2) / 2;
        let class = if edge.thread_change {
            "edge bold"
        } else {
            "edge"
        };
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"M{x1} {y1} C{} {middle} {} {middle} {x2} {y2}\"><title>{} of \
             the objects{}</title></path>",
            x1 + apart,
            x2 + apart,
            percent(edge.frequency),
            if edge.thread_change {
                ", to another thread"
            } else {
                ""
            },
        );
        if edge.frequency < 0.995 {
            let _ = writeln!(
                out,
                "<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>",
                (x1 + x2) / 2 + apart * 3 / 4 + 6,
                middle + 4,
                percent(edge.frequency)
            );
        }
    }
    for (node, id) in row.nodes.iter().zip(0..places.len()) {
        node_box(out, node, corner(id));
    }
    out.push_str("</svg></div>\n");
}

fn node_box(out: &mut String, node: &FlowNode, (x, y): (usize, usize)) {
    let shade = (node.sampled_share.clamp(0.0, 1.0) * SHADES).ceil() as usize;
    let _ = writeln!(
        out,
        "<g><title>{} {}, {} of the objects, {} after the allocation, {} of the time sampled at them{}\
         </title><rect class=\"shade-{shade}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\
         <text class=\"function\" x=\"{}\" y=\"{}\">{}</text>\
         <text class=\"label\" x=\"{}\" y=\"{}\">{}</text></g>",
        Text(&node.function),
        Text(&node.place),
        percent(node.frequency),
        text::nanoseconds(node.time_ns),
        percent(node.sampled_share),
        Text(&served(node)),
        BOX.0,
        BOX.1,
        x + 8,
        y + 19,
        Text(&text::shorten(&text::sanitise(&node.function), 27)),
        x + 8,
        y + 36,
        Text(&text::shorten(&text::sanitise(&words(node)), 32)),
    );
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

fn figures(out: &mut String, row: &FlowRow) {
    out.push_str(
        "<details><summary>Paths</summary><div class=\"scroll\"><table class=\"wide\"><thead><tr>\
         <th class=\"number\">Objects</th><th class=\"number\">Histories</th><th>Functions</th></tr>\
         </thead>\n<tbody>\n",
    );
    for path in &row.paths {
        let _ = writeln!(
            out,
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"name\">{}</td></tr>",
            percent(path.frequency),
            path.histories,
            Text(&text::path_of_functions(
                row,
                &path.nodes,
                false,
                usize::MAX
            )),
        );
    }
    out.push_str("</tbody></table></div></details>\n");
}
