//! The data profile: the types by cost, and each of the dearest byte by byte, with the layout that
//! its use suggests.

use std::fmt::{self, Write as _};

use linewise_recording::Source;

use super::super::contention;
use super::super::model::{
    Coverage, FieldRow, FieldThread, Interval, Layout, Reached, Report, TypeRow,
};
use super::super::text;
use super::written::{self, Name, Text, percent};
use crate::section::{self, bounded};

/// Types in the table.
const ROWS: usize = 50;
/// Types that are drawn.
const DRAWN: usize = 20;

/// A name in a column of a table: a line may end behind `::`, a comma and the like, and nowhere else but
/// in what is longer than the column.
struct Column<'a>(&'a str);

impl fmt::Display for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Name(self.0).to_string();
        // The title of what is shortened is no place for tags.
        let (title, shown) = match name.split_once("\">") {
            Some((title, shown)) if name.starts_with("<span") => (format!("{title}\">"), shown),
            _ => (String::new(), name.as_str()),
        };
        let shown = shown.replace("::", "::<wbr>").replace("&lt;", "&lt;<wbr>");
        write!(f, "{title}{shown}")
    }
}

/// Allocation sites, one on a line, of their files the names.
fn sites(sites: &[String]) -> String {
    let short = |site: &String| match site.rsplit_once(" (") {
        Some((function, place)) => format!("{function} ({}", text::file_name(place)),
        None => site.clone(),
    };
    let sites: Vec<String> = sites
        .iter()
        .map(|site| Column(&short(site)).to_string())
        .collect();
    sites.join("<br>")
}

/// Writes the section; of a recording without typed accesses only what is missing.
pub(super) fn write(out: &mut String, report: &Report) {
    if report.types.is_empty() {
        if let Some(coverage) = &report.type_coverage
            && !coverage.missing.is_empty()
        {
            out.push_str("<section id=\"types\">\n<h2>Types</h2>\n<div class=\"card\">\n");
            covered(out, coverage);
            out.push_str("</div>\n</section>\n");
        }
        return;
    }
    let of = report.run.source.weight();
    // A column that has nothing to tell takes room from the others.
    let missed = report.types.iter().any(|row| !row.misses.is_empty());
    let allocated = report.types.iter().any(|row| !row.allocated_at.is_empty());
    let heading = |shown: bool, heading: &'static str| if shown { heading } else { "" };
    let _ = write!(
        out,
        "<section id=\"types\">\n<h2>Types</h2>\n<div class=\"card\">\n\
         <div class=\"scroll\"><table class=\"wide types\"><thead><tr><th>Type</th>\
         <th class=\"number\">Size</th><th class=\"number\">Share of {of}</th>\
         <th class=\"number\">Accesses</th>{}<th>Bounces</th><th>Declared</th>{}</tr></thead>\n<tbody>\n",
        heading(missed, "<th class=\"number\">Misses</th>"),
        heading(allocated, "<th>Allocated by</th>"),
    );
    let share = |row: &TypeRow| row.cost.share;
    let (shown, rest) = bounded(&report.types, share, ROWS);
    for row in shown {
        let misses: Vec<String> = row
            .misses
            .iter()
            .map(|level| format!("{} {}", level.level.word(), text::percent(level.share)))
            .collect();
        let _ = write!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td>",
            Column(&row.name),
            text::bytes(row.size),
            percent(row.cost.share),
            text::count(row.accesses),
        );
        if missed {
            let _ = write!(
                out,
                "<td class=\"number\">{}</td>",
                Text(&misses.join(", "))
            );
        }
        let _ = write!(
            out,
            "<td>{}</td><td class=\"file\">{}</td>",
            if row.bounces { "yes" } else { "no" },
            Column(text::file_name(&row.description)),
        );
        if allocated {
            let _ = write!(out, "<td class=\"sites\">{}</td>", sites(&row.allocated_at));
        }
        out.push_str("</tr>\n");
    }
    more(out, rest.iter().map(|row| share(row)));
    out.push_str("</tbody></table></div>\n");
    if let Some(coverage) = &report.type_coverage {
        covered(out, coverage);
    }
    let told = |row: &&TypeRow| !row.fields.is_empty() || !row.reached.is_empty();
    let drawn = report.types.iter().filter(told);
    for row in drawn.take(DRAWN) {
        draw(out, row);
    }
    misses(out, report);
    working_set(out, report);
    out.push_str("</div>\n</section>\n");
}

/// Why the first level misses, or what waiting is likely to be for, by type.
fn misses(out: &mut String, report: &Report) {
    if report.misses.is_empty() {
        return;
    }
    let (what, of) = match report.run.source {
        Source::Exact => ("Misses of the first level", "Share of misses"),
        Source::Timer => ("Waiting, by likely cause", "Share of waiting"),
    };
    let _ = write!(
        out,
        "<h3>{what}</h3>\n<div class=\"scroll\"><table class=\"wide\"><thead>\
         <tr><th>Type</th><th class=\"number\">{of}</th><th class=\"number\">Compulsory</th>\
         <th class=\"number\">Capacity</th><th class=\"number\">Conflict</th>\
         <th class=\"number\">True sharing</th><th class=\"number\">False sharing</th></tr>\
         </thead>\n<tbody>\n"
    );
    let (shown, rest) = bounded(&report.misses, |row| row.share, ROWS);
    for row in shown {
        let name = text::kind(&row.type_name, &row.through);
        let _ = write!(out, "<tr><td class=\"name\">{}</td>", Column(&name));
        for share in [
            row.share,
            row.compulsory,
            row.capacity,
            row.conflict,
            row.true_sharing,
            row.false_sharing,
        ] {
            let _ = write!(out, "<td class=\"number\">{}</td>", percent(share));
        }
        out.push_str("</tr>\n");
    }
    more(out, rest.iter().map(|row| row.share));
    out.push_str("</tbody></table></div>\n");
}

/// The row of those that are not shown, with the sum of their shares.
fn more(out: &mut String, rest: impl ExactSizeIterator<Item = f64>) {
    if rest.len() > 0 {
        let (rows, sum) = (section::more(rest.len()), percent(rest.sum()));
        let _ = writeln!(
            out,
            "<tr class=\"quiet\"><td colspan=\"9\">{}, {sum}</td></tr>",
            Text(&rows)
        );
    }
}

/// What fills the caches, and which sets are too full.
fn working_set(out: &mut String, report: &Report) {
    for level in &report.working_set {
        let _ = write!(
            out,
            "<h3>Working set: {} of {}</h3>\n<p class=\"quiet\">{} {} in use",
            level.level.word(),
            text::bytes(level.size_bytes),
            match report.run.source {
                Source::Exact => "In the simulated cache, on average",
                Source::Timer => "At least",
            },
            text::bytes(level.in_use_bytes as u64)
        );
        if let Some(tid) = level.tid {
            let _ = write!(out, " by the thread that is busiest at memory, {tid}");
        }
        out.push_str(
            ".</p>\n<div class=\"scroll\"><table class=\"wide\"><thead><tr><th>Type</th>\
             <th class=\"number\">Share of the level</th><th class=\"number\">In use</th>\
             <th class=\"number\">Lines seen</th><th class=\"number\">Blocks seen</th>\
             <th>Allocated by</th></tr></thead>\n<tbody>\n",
        );
        let (shown, rest) = bounded(&level.types, |row| row.share, ROWS);
        for row in shown {
            let _ = writeln!(
                out,
                "<tr><td class=\"name\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"sites\">{}</td></tr>",
                Column(&text::kind(&row.type_name, &row.through)),
                percent(row.share),
                text::bytes(row.bytes as u64),
                row.lines_seen,
                row.blocks_seen,
                sites(&row.allocated_at),
            );
        }
        more(out, rest.iter().map(|row| row.share));
        out.push_str("</tbody></table></div>\n");
        for set in &level.crowded {
            let types: Vec<String> = set
                .types
                .iter()
                .map(|row| {
                    let (name, lines) = (text::kind(&row.type_name, &row.through), row.lines);
                    match row.stride {
                        0 => format!("{name} ({lines})"),
                        stride => format!("{name} ({lines}, {} apart)", text::bytes(stride)),
                    }
                })
                .collect();
            let _ = writeln!(
                out,
                "<p>Set {} is too full: {} of {}</p>",
                set.set,
                text::plural(set.lines, "line"),
                Name(&types.join(", "))
            );
        }
    }
}

fn covered(out: &mut String, coverage: &Coverage) {
    let share = |part: f64| text::percent(part / coverage.accesses.max(1.0));
    let reasons: Vec<String> = coverage
        .untyped
        .iter()
        .map(|(reason, count)| format!("{reason} {}", share(*count)))
        .collect();
    let _ = write!(
        out,
        "<p class=\"quiet\">{} of the accesses have a type",
        Text(&share(coverage.typed))
    );
    if !reasons.is_empty() {
        let _ = write!(out, "; the others by reason: {}", Text(&reasons.join(", ")));
    }
    out.push_str(".</p>\n");
    for missing in &coverage.missing {
        let _ = writeln!(
            out,
            "<p class=\"quiet name\">{}: {}</p>",
            share(missing.accesses),
            Text(&missing.reason)
        );
    }
}

fn draw(out: &mut String, row: &TypeRow) {
    let _ = writeln!(
        out,
        "<details><summary>{} ({})</summary>",
        Name(&row.name),
        text::bytes(row.size)
    );
    if !row.fields.is_empty() {
        out.push_str(
            "<div class=\"scroll\"><table class=\"wide\"><thead>\
             <tr><th class=\"number\">Offset</th><th class=\"number\">Bytes</th><th>Member</th>\
             <th>Type</th><th class=\"number\">Share</th><th class=\"number\">Reads</th>\
             <th class=\"number\">Writes</th><th>Threads</th></tr></thead>\n<tbody>\n",
        );
        for field in &contention::drawn_members(row) {
            member(out, field);
        }
        out.push_str("</tbody></table></div>\n");
    }
    if !row.reached.is_empty() {
        reached(out, &row.reached);
    }
    if let Some(layout) = &row.layout {
        suggestion(out, layout);
    }
    out.push_str("</details>\n");
}

/// The members and variables that lead to a type.
fn reached(out: &mut String, holders: &[Reached]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"wide\"><thead>\
         <tr><th>Reached through</th><th class=\"number\">Share</th><th class=\"number\">Reads</th>\
         <th class=\"number\">Writes</th><th>Threads</th></tr></thead>\n<tbody>\n",
    );
    for holder in holders {
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"by\">{}</td></tr>",
            Column(&holder.through),
            percent(holder.share),
            text::count(holder.loads),
            text::count(holder.stores),
            Text(&who(&holder.threads)),
        );
    }
    out.push_str("</tbody></table></div>\n");
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

fn member(out: &mut String, field: &FieldRow) {
    if field.padding {
        let _ = writeln!(
            out,
            "<tr class=\"quiet\"><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td colspan=\"6\">padding</td></tr>",
            field.offset, field.size
        );
        return;
    }
    let _ = writeln!(
        out,
        "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"name\">{}</td>\
         <td class=\"name\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td class=\"by\">{}</td></tr>",
        field.offset,
        field.size,
        Column(&field.label()),
        Column(&field.type_name),
        percent(field.share),
        text::count(field.loads),
        text::count(field.stores),
        Text(&who(&field.threads)),
    );
}

fn suggestion(out: &mut String, layout: &Layout) {
    let _ = write!(
        out,
        "<p>The layout that this use suggests: {} instead of {}, of which {} padding instead of {}. \
         It saves {}.</p>\n<ul>\n",
        text::bytes(layout.size_after),
        text::bytes(layout.size_before),
        text::bytes(layout.padding_after),
        text::bytes(layout.padding_before),
        written::gain(Interval {
            low: layout.saves_at_least,
            high: layout.saves_at_most,
        })
    );
    for group in &layout.groups {
        let _ = writeln!(
            out,
            "<li>{}: {}</li>",
            Text(&group.members.join(", ")),
            Text(&group.why)
        );
    }
    out.push_str("</ul>\n");
    if !layout.source.is_empty() {
        let lines: Vec<String> = layout
            .source
            .lines()
            .map(|line| Text(line).to_string())
            .collect();
        let _ = writeln!(out, "<pre>{}</pre>", lines.join("\n"));
    }
}
