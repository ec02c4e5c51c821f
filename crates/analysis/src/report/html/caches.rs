//! What each level of the simulated hierarchy served, and why it missed: two bars for each level.

use std::fmt::Write as _;

use super::super::distances::share;
use super::super::model::{CacheRow, PlaceCaches, Report, ThreadCaches};
use super::super::text;
use super::chart::{self, WIDTH};
use super::reuse::place;
use super::written::{Name, left_out, percent};
use crate::section::bounded;

/// Height of one bar.
const BAR: f64 = 22.0;
/// Height of a level.
const LEVEL: f64 = 74.0;
/// Where the bars begin.
const LEFT: f64 = 150.0;
/// Rows of a table.
const ROWS: usize = 10;
/// Threads of a table.
const THREADS: usize = 1_000;
/// The classes of the five kinds of misses, as in [`CacheRow::classes`].
const CLASSES: [&str; 5] = ["cold", "capacity", "conflict", "true-sharing", "lost"];

/// Writes the section, unless the recording has no simulated caches.
pub(super) fn write(out: &mut String, report: &Report) {
    if report.caches.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"caches\">\n<h2>Caches</h2>\n<div class=\"card\">\n<p>All accesses, sent \
         through a simulated hierarchy: of the accesses that ask a level, the share that it \
         serves, and below it why it misses the others.</p>\n",
    );
    legend(out, &report.caches);
    chart::open(
        out,
        LEVEL * report.caches.len() as f64,
        "Hits and misses by class for each cache level; the figures are in the table below",
    );
    for (i, row) in report.caches.iter().enumerate() {
        level(out, row, LEVEL * i as f64);
    }
    chart::close(out);
    figures(out, &report.caches);
    misses(out, report);
    out.push_str("</div>\n</section>\n");
}

fn legend(out: &mut String, caches: &[CacheRow]) {
    out.push_str("<p class=\"keys\">");
    let names = caches[0].classes().map(|(name, _)| name);
    for (class, name) in std::iter::once(("hit", "hit")).chain(CLASSES.into_iter().zip(names)) {
        let _ = write!(
            out,
            "<span><svg class=\"key\" width=\"12\" height=\"12\" aria-hidden=\"true\"><rect \
             class=\"{class}\" width=\"12\" height=\"12\"/></svg> {name}</span> "
        );
    }
    out.push_str("</p>\n");
}

fn size(row: &CacheRow) -> String {
    match row.size_bytes {
        0 => row.level.word().to_owned(),
        bytes => format!("{} {}", row.level.word(), text::binary_bytes(bytes)),
    }
}

fn level(out: &mut String, row: &CacheRow, top: f64) {
    let width = WIDTH - LEFT;
    let _ = writeln!(
        out,
        "<text class=\"label strong\" x=\"0\" y=\"{:.1}\">{}</text><text class=\"label quiet\" \
         x=\"0\" y=\"{:.1}\">{} accesses</text>",
        top + 17.0,
        size(row),
        top + 37.0,
        text::count(row.accesses)
    );
    let misses = row.misses();
    let hits = share(row.hits, row.accesses);
    let parts = [("hit", "hits", hits), ("miss", "misses", 1.0 - hits)];
    if row.accesses > 0.0 {
        bar(out, top + 2.0, (LEFT, width), &parts);
    }
    // What the two bars have to do with each other: the second is the end of the first, enlarged.
    let bottom = top + 2.0 + BAR;
    if misses > 0.0 {
        let _ = writeln!(
            out,
            "<path class=\"zoom\" d=\"M{:.1} {bottom:.1}L{LEFT} {:.1}H{WIDTH}V{bottom:.1}Z\"/>",
            LEFT + width * hits,
            bottom + 8.0,
        );
        let parts: Vec<(&str, &str, f64)> = row
            .classes()
            .iter()
            .zip(CLASSES)
            .map(|(&(name, count), class)| (class, name, count / misses))
            .collect();
        bar(out, bottom + 8.0, (LEFT, width), &parts);
    }
}

fn bar(out: &mut String, y: f64, (left, width): (f64, f64), parts: &[(&str, &str, f64)]) {
    let mut x = left;
    for &(class, name, part) in parts.iter().filter(|(_, _, part)| *part > 0.0) {
        let wide = part * width;
        let words = format!("{name} {}", percent(part));
        let _ = write!(
            out,
            "<g class=\"bin\"><title>{words}</title><rect class=\"{class}\" x=\"{x:.1}\" \
             y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            wide.max(0.5)
        );
        if wide > words.chars().count() as f64 * 7.4 + 12.0 {
            let _ = write!(
                out,
                "<text class=\"label on-{class}\" x=\"{:.1}\" y=\"{:.1}\">{words}</text>",
                x + 7.0,
                y + BAR - 6.5
            );
        }
        out.push_str("</g>\n");
        x += wide;
    }
}

fn figures(out: &mut String, caches: &[CacheRow]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"wide\"><thead><tr><th>Level</th>\
         <th class=\"number\">Accesses</th><th class=\"number\">Hits</th>",
    );
    for (name, _) in caches[0].classes() {
        let _ = write!(out, "<th class=\"number\">{name}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in caches {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>",
            size(row),
            text::count(row.accesses),
            text::count(row.hits)
        );
        for (_, count) in row.classes() {
            let _ = write!(out, "<td class=\"number\">{}</td>", text::count(count));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn misses(out: &mut String, report: &Report) {
    let Some(misses) = &report.cache_misses else {
        return;
    };
    if !misses.by_place.is_empty() {
        head(
            out,
            "Misses by place in the source",
            true,
            "Place",
            &report.caches,
        );
        let missed = |row: &PlaceCaches| all_misses(&row.levels);
        let (shown, rest) = bounded(&misses.by_place, missed, ROWS);
        for row in shown {
            out.push_str("<tr>");
            place(out, &row.place);
            levels(out, &row.levels, &report.caches);
        }
        out.push_str("</tbody></table></div>");
        let sum: f64 = rest.iter().map(|row| missed(row)).sum();
        left_out(out, rest.len(), "place", &text::count(sum));
        out.push_str("</details>\n");
    }
    if misses.by_thread.len() < 2 {
        return;
    }
    head(out, "Misses by thread", false, "Thread", &report.caches);
    let missed = |row: &ThreadCaches| all_misses(&row.levels);
    let (shown, rest) = bounded(&misses.by_thread, missed, THREADS);
    for row in shown {
        let threads = report.run.threads.iter();
        let name = threads
            .filter(|thread| thread.tid == row.tid)
            .map(|thread| thread.name.as_str())
            .next()
            .unwrap_or("thread");
        let _ = write!(
            out,
            "<tr><td class=\"name\">{} {}</td>",
            Name(name),
            row.tid
        );
        levels(out, &row.levels, &report.caches);
    }
    out.push_str("</tbody></table></div>");
    let sum: f64 = rest.iter().map(|row| missed(row)).sum();
    left_out(out, rest.len(), "thread", &text::count(sum));
    out.push_str("</details>\n");
}

/// Misses at all levels.
fn all_misses(levels: &[CacheRow]) -> f64 {
    levels.iter().map(CacheRow::misses).sum()
}

fn head(out: &mut String, title: &str, open: bool, name: &str, caches: &[CacheRow]) {
    let _ = write!(
        out,
        "<details{}><summary>{title}</summary><div class=\"scroll\"><table class=\"wide\"><thead>\
         <tr><th>{name}</th><th class=\"number\">Accesses</th>",
        if open { " open=\"\"" } else { "" }
    );
    for row in caches {
        let _ = write!(out, "<th class=\"number\">{} misses</th>", row.level.word());
    }
    out.push_str("<th>mostly</th></tr></thead>\n<tbody>\n");
}

/// The cells of one subject: its accesses, its misses at each level, and their commonest class.
fn levels(out: &mut String, levels: &[CacheRow], caches: &[CacheRow]) {
    let of = |level| levels.iter().find(|row| row.level == level);
    let first = caches.first().and_then(|row| of(row.level));
    let _ = write!(
        out,
        "<td class=\"number\">{}</td>",
        text::count(first.map_or(0.0, |row| row.accesses))
    );
    for cache in caches {
        let misses = of(cache.level).map_or(0.0, CacheRow::misses);
        let _ = write!(out, "<td class=\"number\">{}</td>", text::count(misses));
    }
    let _ = writeln!(out, "<td class=\"nowrap\">{}</td></tr>", commonest(levels));
}

/// The commonest class of misses over the levels; nothing if there are none.
pub(in super::super) fn commonest(levels: &[CacheRow]) -> &'static str {
    let mut sums = [("", 0.0); 5];
    for row in levels {
        for (sum, (name, count)) in sums.iter_mut().zip(row.classes()) {
            *sum = (name, sum.1 + count);
        }
    }
    sums.into_iter()
        .filter(|(_, count)| *count > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("", |(name, _)| name)
}
