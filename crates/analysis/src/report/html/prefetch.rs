//! Whether fetching the neighbour of every line that misses will help: the two waits against each
//! other.

use std::fmt::Write as _;

use super::super::distances;
use super::super::model::{FunctionPrefetch, Prefetch, Report};
use super::super::text;
use super::chart::{self, WIDTH};
use super::written::{Name, Prose, Text, fact, left_out};
use crate::section::bounded;

/// Height of a bar.
const BAR: f64 = 20.0;
/// Where the bars begin.
const LEFT: f64 = 230.0;
/// Room for the number behind a bar.
const RIGHT: f64 = 130.0;
/// Rows of the table.
const ROWS: usize = 10;

/// Writes the section, unless the recording does not have what it takes.
pub(super) fn write(out: &mut String, report: &Report) {
    let Some(prefetch) = &report.prefetch else {
        return;
    };
    let _ = write!(
        out,
        "<section id=\"prefetch\">\n<h2>Fetching neighbouring lines</h2>\n<div class=\"card\">\n\
         <p class=\"verdict\">{}</p>\n<p>{}</p>\n",
        Text(distances::prefetch_words(prefetch.verdict)),
        Prose(&prefetch.doubt)
    );
    waits(out, prefetch);
    facts(out, prefetch);
    functions(out, prefetch);
    out.push_str("</div>\n</section>\n");
}

fn waits(out: &mut String, prefetch: &Prefetch) {
    let mut bars = vec![
        ("memory", "waiting for memory", prefetch.memory_wait_ns),
        ("lost", "waiting by false sharing", prefetch.sharing_wait_ns),
    ];
    if let Some(pairs) = &prefetch.neighbours {
        let (name, class) = match pairs.gain_ns < 0.0 {
            true => ("neighbours would cost", "lost"),
            false => ("neighbours would save", "saved"),
        };
        bars.push((class, name, pairs.gain_ns.abs()));
    }
    let longest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    chart::open(
        out,
        (BAR + 10.0) * bars.len() as f64,
        "Waits in comparison; the figures stand beside the bars",
    );
    for (i, (class, name, ns)) in bars.iter().enumerate() {
        let y = (BAR + 10.0) * i as f64;
        let width = (ns / longest * (WIDTH - LEFT - RIGHT)).max(1.0);
        let _ = writeln!(
            out,
            "<text class=\"label end\" x=\"{}\" y=\"{:.1}\">{name}</text><rect class=\"{class}\" \
             x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/><text \
             class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 10.0,
            y + BAR - 5.5,
            LEFT + width + 8.0,
            y + BAR - 5.5,
            text::nanoseconds(*ns),
        );
    }
    chart::close(out);
}

fn facts(out: &mut String, prefetch: &Prefetch) {
    let gain = &prefetch.gain_band;
    let mut facts = vec![
        (
            "Waits for memory less those by false sharing",
            format!(
                "{} ({} to {})",
                text::nanoseconds(prefetch.gain_ns),
                text::nanoseconds(gain.low),
                text::nanoseconds(gain.high)
            ),
        ),
        (
            "Reuses from memory",
            text::count_band(prefetch.memory_reuses, prefetch.memory_reuses_band),
        ),
        (
            "Transfers by false sharing",
            text::count(prefetch.false_transfers),
        ),
        (
            "Latency of memory",
            text::nanoseconds_band(prefetch.memory_ns),
        ),
        (
            "Latency of a transfer",
            text::nanoseconds_band(prefetch.transfer_ns),
        ),
    ];
    if let Some(pairs) = &prefetch.neighbours {
        facts.push((
            "Neighbours used",
            format!(
                "{} of {}",
                text::percent(pairs.used_share),
                text::count(pairs.pair_misses)
            ),
        ));
        facts.push((
            "Invalidations added",
            text::count(pairs.added_invalidations),
        ));
    }
    out.push_str("<dl class=\"facts\">\n");
    for (term, value) in facts {
        fact(out, term, &value, "");
    }
    out.push_str("</dl>\n");
}

fn functions(out: &mut String, prefetch: &Prefetch) {
    if prefetch.by_function.is_empty() {
        return;
    }
    out.push_str(
        "<details><summary>By function</summary><div class=\"scroll\"><table class=\"wide\">\
         <thead><tr><th>Function</th><th class=\"number\">Reuses from memory</th>\
         <th class=\"number\">Transfers by false sharing</th><th class=\"number\">G</th></tr>\
         </thead>\n<tbody>\n",
    );
    let reuses = |row: &FunctionPrefetch| row.memory_reuses;
    let (shown, rest) = bounded(&prefetch.by_function, reuses, ROWS);
    for row in shown {
        let _ = write!(out, "<tr><td class=\"name\">{}", Name(&row.function));
        if !row.file.is_empty() {
            let file = text::file_name(&row.file);
            let _ = write!(out, "<span class=\"file\"> {}</span>", Text(file));
        }
        let _ = writeln!(
            out,
            "</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}\
             </td></tr>",
            text::count(row.memory_reuses),
            text::count(row.false_transfers),
            text::nanoseconds(row.gain_ns)
        );
    }
    out.push_str("</tbody></table></div>");
    let sum: f64 = rest.iter().map(|row| reuses(row)).sum();
    left_out(out, rest.len(), "function", &text::count(sum));
    out.push_str("</details>\n");
}
