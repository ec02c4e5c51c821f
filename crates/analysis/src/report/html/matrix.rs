//! Who shares with whom: a heat map for threads and one for CPUs, each with three ways to count.
//!
//! Each cell carries its three colour levels (all, true, false) as classes; the class of the
//! picture chooses one, so that switching needs no second copy. All three use one scale, so that
//! they can be compared.

use std::fmt::Write as _;

use super::super::contention::{self, Name, Pair, Picture, View};
use super::super::model::Report;
use super::super::text;
use super::written::{Text, capital};

/// Rows that are drawn; the less busy ones become one row.
const ROWS: usize = 32;
/// Up to here a cell has room for its number.
const NUMBERED: usize = 10;
/// Colour levels above zero, see the style sheet.
const LEVELS: f64 = 9.0;
/// Pairs in the table of figures.
const PAIRS: usize = 100;

/// Writes the section, unless nothing is shared at all.
pub(super) fn write(out: &mut String, report: &Report) {
    let (threads, cpus) = (contention::threads(report), contention::cpus(report));
    out.push_str("<section id=\"sharing\">\n<h2>Who shares with whom</h2>\n<div class=\"card\">\n");
    if threads.pairs.is_empty() && cpus.pairs.is_empty() {
        out.push_str("<p>No transfer between threads was seen.</p>\n</div>\n</section>\n");
        return;
    }
    out.push_str("<div class=\"controls\" id=\"matrix-controls\" hidden>\n");
    // The cores of an emulated run are a model's, not CPUs of the machine.
    if !report.run.source.is_emulated() {
        out.push_str(
            "<div role=\"group\" aria-label=\"Rows and columns\">\
             <button type=\"button\" data-axis=\"threads\" aria-pressed=\"true\">Threads</button>\
             <button type=\"button\" data-axis=\"cpus\" aria-pressed=\"false\">CPUs</button></div>\n",
        );
    }
    out.push_str(
        "<div role=\"group\" aria-label=\"Kind of sharing\">\
         <button type=\"button\" data-kind=\"all\" aria-pressed=\"true\">All</button>\
         <button type=\"button\" data-kind=\"true\" aria-pressed=\"false\">True</button>\
         <button type=\"button\" data-kind=\"false\" aria-pressed=\"false\">False</button></div>\n\
         </div>\n",
    );
    panel(out, "threads", "Threads", &threads);
    if !report.run.source.is_emulated() {
        panel(out, "cpus", "CPUs", &cpus);
    }
    out.push_str("</div>\n</section>\n");
}

fn panel(out: &mut String, id: &str, title: &str, view: &View) {
    let _ = writeln!(
        out,
        "<div class=\"matrix-panel\" id=\"matrix-{id}\"><h3 class=\"matrix-title\">{title}</h3>"
    );
    if view.pairs.is_empty() {
        let _ = writeln!(out, "<p>No transfer between {title} was seen.</p></div>");
        return;
    }
    let picture = contention::busiest(view, ROWS);
    // The row of the others is a sum of many: it would leave no colour for the rest.
    let pairs = &picture.view.pairs;
    let single = |pair: &&Pair| picture.others == 0 || pair.b + 1 < picture.view.names.len();
    let highest = pairs.iter().filter(single).map(Pair::all).reduce(f64::max);
    let highest = highest.unwrap_or_else(|| pairs.iter().map(Pair::all).fold(0.0, f64::max));
    out.push_str("<div class=\"matrix-body\"><div class=\"scroll\">\n");
    heat_map(out, title, &picture, highest);
    out.push_str("</div>\n<div class=\"matrix-side\">\n");
    scale(out, highest, view.unit(), picture.others > 0);
    out.push_str(
        "<p class=\"readout\" aria-live=\"polite\" hidden>Point at a cell for its numbers.</p>\n",
    );
    if picture.others > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">The {ROWS} busiest of {}; the other {} are one row.</p>",
            view.names.len(),
            picture.others
        );
    }
    out.push_str("</div></div>\n");
    figures(out, view);
    out.push_str("</div>\n");
}

/// The sizes of a heat map, in CSS pixels.
struct Layout {
    cell: (usize, usize),
    left: usize,
    top: usize,
    /// What follows a number.
    unit: &'static str,
}

fn heat_map(out: &mut String, title: &str, picture: &Picture, highest: f64) {
    let names = &picture.view.names;
    let size = names.len();
    let numbered = size <= NUMBERED;
    let labels: Vec<String> = names.iter().map(|name| label(name, 18)).collect();
    let widest = labels.iter().map(|l| text::width(l)).max().unwrap_or(0);
    let layout = Layout {
        cell: if numbered { (64, 36) } else { (18, 18) },
        left: widest * 7 + 10,
        top: if numbered { 22 } else { widest * 7 + 10 },
        unit: picture.view.unit(),
    };
    let width = layout.left + size * layout.cell.0 + 8;
    let height = layout.top + size * layout.cell.1 + 2;
    let _ = writeln!(
        out,
        "<svg class=\"matrix show-all\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{} between {title}; the figures are in the table below\">",
        capital(picture.view.quantity()),
    );
    let _ = writeln!(
        out,
        "<rect class=\"ground\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        layout.left,
        layout.top,
        size * layout.cell.0,
        size * layout.cell.1
    );
    for (i, (name, label)) in names.iter().zip(&labels).enumerate() {
        axis_labels(out, &layout, i, name, label, numbered);
    }
    for pair in &picture.view.pairs {
        for (row, column) in [(pair.a, pair.b), (pair.b, pair.a)] {
            cell(
                out,
                &layout,
                (row, column),
                pair,
                &labels,
                highest,
                numbered,
            );
        }
    }
    let (true_sharing, false_sharing) = picture.among_others;
    if true_sharing + false_sharing > 0.0 {
        let last = size - 1;
        let pair = Pair {
            a: last,
            b: last,
            true_sharing,
            false_sharing,
        };
        cell(
            out,
            &layout,
            (last, last),
            &pair,
            &labels,
            highest,
            numbered,
        );
    }
    out.push_str("</svg>\n");
}

fn label(name: &Name, columns: usize) -> String {
    if name.id == 0 && name.name != "CPU" {
        return name.name.clone();
    }
    let safe = text::sanitise(&name.name);
    let id = name.id.to_string();
    let room = columns.saturating_sub(id.len() + 1);
    format!("{} {id}", text::shorten(&safe, room))
}

fn axis_labels(
    out: &mut String,
    layout: &Layout,
    i: usize,
    name: &Name,
    label: &str,
    numbered: bool,
) {
    let y = layout.top + i * layout.cell.1 + layout.cell.1 / 2 + 4;
    let _ = writeln!(
        out,
        "<text class=\"label end\" x=\"{}\" y=\"{y}\">{}</text>",
        layout.left - 6,
        Text(label)
    );
    let x = layout.left + i * layout.cell.0 + layout.cell.0 / 2;
    if numbered {
        let short = match name.name.as_str() {
            "CPU" => label.to_owned(),
            _ => name.id.to_string(),
        };
        let _ = writeln!(
            out,
            "<text class=\"label middle\" x=\"{x}\" y=\"{}\">{}</text>",
            layout.top - 7,
            Text(&short)
        );
    } else {
        let (x, y) = (x + 4, layout.top - 5);
        let _ = writeln!(
            out,
            "<text class=\"label\" x=\"{x}\" y=\"{y}\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            Text(label)
        );
    }
}

fn level(value: f64, highest: f64) -> u32 {
    if value <= 0.0 || highest <= 0.0 {
        return 0;
    }
    // The square root keeps a pair with a hundredth of the transfers visible.
    ((value / highest).sqrt() * LEVELS)
        .ceil()
        .clamp(1.0, LEVELS) as u32
}

fn cell(
    out: &mut String,
    layout: &Layout,
    (row, column): (usize, usize),
    pair: &Pair,
    labels: &[String],
    highest: f64,
    numbered: bool,
) {
    let (x, y) = (
        layout.left + column * layout.cell.0,
        layout.top + row * layout.cell.1,
    );
    let levels = [pair.all(), pair.true_sharing, pair.false_sharing];
    let [all, true_level, false_level] = levels.map(|value| level(value, highest));
    let _ = write!(
        out,
        "<g class=\"cell a{all} t{true_level} f{false_level}\"><title>{} and {}: {}{}, \
         {} true, {} false</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        Text(&labels[row]),
        Text(&labels[column]),
        text::count(pair.all()),
        layout.unit,
        text::count(pair.true_sharing),
        text::count(pair.false_sharing),
        x + 1,
        y + 1,
        layout.cell.0 - 2,
        layout.cell.1 - 2,
    );
    if numbered {
        let (x, y) = (x + layout.cell.0 / 2, y + layout.cell.1 / 2 + 4);
        for (class, value) in ["all", "true", "false"].into_iter().zip(levels) {
            let _ = write!(
                out,
                "<text class=\"value {class}\" x=\"{x}\" y=\"{y}\">{}</text>",
                text::count(value)
            );
        }
    }
    out.push_str("</g>\n");
}

fn scale(out: &mut String, highest: f64, unit: &str, open: bool) {
    out.push_str(
        "<svg class=\"matrix show-all scale\" width=\"200\" height=\"30\" viewBox=\"0 0 200 30\" \
         role=\"img\" aria-label=\"Colour scale\">",
    );
    let _ = write!(out, "<text class=\"label\" x=\"0\" y=\"28\">0</text>");
    for level in 0..=LEVELS as u32 {
        let _ = write!(
            out,
            "<g class=\"cell a{level} t{level} f{level}\"><rect x=\"{}\" y=\"0\" width=\"19\" \
             height=\"14\"/></g>",
            level * 20
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"label end\" x=\"199\" y=\"28\">{}{unit}{}</text></svg>",
        text::count(highest),
        if open { " or more" } else { "" },
    );
}

fn figures(out: &mut String, view: &View) {
    let _ = writeln!(
        out,
        "<details><summary>Figures, {}</summary><div class=\"scroll\">\
         <table><thead><tr><th>Between</th><th>and</th><th class=\"number\">All</th>\
         <th class=\"number\">True</th><th class=\"number\">False</th></tr></thead>\n<tbody>",
        view.quantity()
    );
    let (shown, more) = contention::shown_pairs(view, PAIRS);
    for pair in shown {
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            Text(&label(&view.names[pair.a], 40)),
            Text(&label(&view.names[pair.b], 40)),
            text::count(pair.all()),
            text::count(pair.true_sharing),
            text::count(pair.false_sharing),
        );
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(more) = more {
        let more = Text(&more);
        let _ = writeln!(out, "<p class=\"quiet\">{more}, in the JSON report</p>");
    }
    out.push_str("</details>\n");
}
