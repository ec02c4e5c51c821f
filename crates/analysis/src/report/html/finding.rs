//! A finding as a card: cost, the line byte by byte, who touches it where, what to change.

use std::fmt::Write as _;

use super::super::drawing::{Mark, Toucher, drawn_size, touchers};
use super::super::model::{AccessRow, Finding, FindingKind, LineField, LineRow, ObjectRow, Report};
use super::super::{contention, text};
use super::written::{self, Name, Prose, Text, percent};

/// Lines of an object that are drawn.
const LINES: usize = 4;
/// Rows of threads in a drawing.
const ROWS: usize = 12;
/// Places in the source that are listed; the JSON report has them all.
const ACCESSES: usize = 64;
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

/// What an object is called; its kind if it has no name.
pub(super) fn object_name(object: &ObjectRow) -> &str {
    match object.name.as_str() {
        "" => object.kind.word(),
        name => name,
    }
}

/// Writes the card of `finding`.
pub(super) fn write(out: &mut String, finding: &Finding, report: &Report) {
    let _ = writeln!(
        out,
        "<article class=\"card finding\" id=\"finding-{}\">",
        finding.rank
    );
    title(out, finding);
    cost_bar(out, finding);
    for line in finding.lines.iter().take(LINES) {
        drawing(out, finding, line);
    }
    if let Some(more) = contention::more_lines(finding, LINES) {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", Text(&more));
    }
    let missing = contention::not_drawn(finding);
    if !finding.lines.is_empty() && !missing.is_empty() {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", Text(missing));
    }
    accesses(out, finding);
    change(out, finding);
    evidence(out, finding, report.run.duration_ns);
    out.push_str("</article>\n");
}

fn title(out: &mut String, finding: &Finding) {
    let object = &finding.object;
    let _ = write!(
        out,
        "<div class=\"top\"><div><p class=\"kind {}\"><span class=\"rank\">{}</span>{}</p>\n\
         <h3 class=\"name\">{}</h3>\n<p class=\"quiet name\">{}",
        kind_class(finding.kind),
        finding.rank,
        kind_words(finding.kind),
        Name(object_name(object)),
        object.kind.word(),
    );
    if !object.type_name.is_empty() {
        let _ = write!(out, " · <code>{}</code>", Name(&object.type_name));
    }
    for fact in contention::extent_words(finding) {
        let _ = write!(out, " · {}", Text(&fact));
    }
    if !object.declared_at.is_empty() {
        let _ = write!(
            out,
            " · <span title=\"{}\">{}</span>",
            Text(&object.declared_at),
            Name(text::file_name(&object.declared_at))
        );
    }
    if !object.accessed_type.is_empty() {
        let _ = write!(
            out,
            "</p>\n<p class=\"quiet name\">accessed as <code>{}</code>",
            Name(&object.accessed_type)
        );
        let _ = write!(out, " ({})", Name(&contention::type_votes(object)));
        if !object.field.is_empty() {
            let _ = write!(out, ": {}", Name(&object.field));
        }
        if !object.reached_through.is_empty() {
            let _ = write!(out, ", through {}", Name(&object.reached_through));
        }
    }
    if !object.allocated_at.is_empty() {
        let callers = text::callers(&object.allocated_at, CALLERS);
        let _ = write!(
            out,
            "</p>\n<p class=\"quiet name\">allocated by {}",
            Name(&callers)
        );
    }
    let _ = writeln!(
        out,
        "</p></div>\n<p class=\"cost\"><b>{}</b><span>of thread time</span>\
         <span>{}, {}</span></p></div>",
        percent(finding.cost.share),
        text::percent_range(finding.cost.interval),
        match finding.is_exact() {
            true => "band of a model",
            false => "90 % interval",
        },
    );
}

/// The cost on a scale of all thread time, with its interval.
fn cost_bar(out: &mut String, finding: &Finding) {
    let x = |share: f64| (share * 1000.0).clamp(0.0, 1000.0);
    let cost = &finding.cost;
    let (low, high) = (x(cost.interval.low), x(cost.interval.high));
    let _ = writeln!(
        out,
        "<svg class=\"cost-bar {}\" viewBox=\"0 0 1000 12\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\"><rect class=\"track\" y=\"2\" width=\"1000\" height=\"8\"/>\
         <rect class=\"fill\" y=\"2\" width=\"{:.1}\" height=\"8\"/>\
         <rect class=\"interval\" x=\"{low:.1}\" y=\"5\" width=\"{:.1}\" height=\"2\"/>\
         <rect class=\"interval\" x=\"{low:.1}\" width=\"2\" height=\"12\"/>\
         <rect class=\"interval\" x=\"{high:.1}\" width=\"2\" height=\"12\"/></svg>",
        kind_class(finding.kind),
        x(cost.share),
        (high - low).max(0.0),
    );
}

fn drawing(out: &mut String, finding: &Finding, line: &LineRow) {
    let touchers = touchers(line, &finding.accesses, ROWS);
    let size = drawn_size(line);
    let place = match line.offset_in_object {
        0 => "from the first byte of the object".to_owned(),
        1.. => format!("from byte {} of the object", line.offset_in_object),
        _ => format!(
            "the object begins at byte {}",
            line.offset_in_object.unsigned_abs()
        ),
    };
    let _ = writeln!(
        out,
        "<figure><figcaption>Line <code>{}</code> · {place} · {} transfers</figcaption>\n\
         <div class=\"scroll\">",
        text::address(line.address),
        text::count(line.transfers),
    );
    for start in (0..size).step_by(BYTES as usize) {
        let end = size.min(start + BYTES);
        segment(out, line, &touchers, start, end);
    }
    out.push_str("</div>\n");
    legend(out, &touchers);
    out.push_str("</figure>\n");
}

/// A row of at most 64 bytes: offsets, fields, and who touches them.
fn segment(out: &mut String, line: &LineRow, touchers: &[Toucher<'_>], start: u32, end: u32) {
    let _ = write!(
        out,
        "<table class=\"line\" aria-label=\"Bytes {start} to {} of the line and who touches \
         them\">\n<tr class=\"offsets\"><th scope=\"row\">byte</th>",
        end - 1
    );
    for offset in (start..end).step_by(8) {
        let span = (end - offset).min(8);
        let _ = write!(out, "<td colspan=\"{span}\">{offset}</td>");
    }
    out.push_str("</tr>\n");
    fields(out, line, start, end);
    for (i, toucher) in touchers.iter().take(ROWS).enumerate() {
        marks(out, line, toucher, i, start, end);
    }
    out.push_str("</table>\n");
}

fn fields(out: &mut String, line: &LineRow, start: u32, end: u32) {
    let mut fields: Vec<&LineField> = line.fields.iter().collect();
    fields.sort_by_key(|field| field.offset);
    out.push_str("<tr class=\"fields\"><th scope=\"row\">field</th>");
    let mut at = start;
    for field in fields {
        let first = field.offset.clamp(at, end);
        let last = field.offset.saturating_add(field.size).clamp(at, end);
        // Nothing of it is here, or a union's other member has already been drawn.
        if first >= last {
            continue;
        }
        if first > at {
            let _ = write!(out, "<td class=\"hole\" colspan=\"{}\"></td>", first - at);
        }
        let span = last - first;
        // About 1.8 characters fit where a byte does; with one or two bytes there is no room.
        let room = (span as usize * 9 / 5).saturating_sub(1);
        let path = text::sanitise(&field.path);
        let shown = match room {
            0..4 => "".into(),
            room => text::shorten_start(&path, room),
        };
        let _ = write!(
            out,
            "<td colspan=\"{span}\" title=\"{}\">{}</td>",
            Text(&field_words(field)),
            Text(&shown)
        );
        at = last;
    }
    if at < end {
        let _ = write!(out, "<td class=\"hole\" colspan=\"{}\"></td>", end - at);
    }
    out.push_str("</tr>\n");
}

fn field_words(field: &LineField) -> String {
    let mut words = format!("+{} {}", field.offset, field.path);
    if !field.type_name.is_empty() {
        words += &format!(" ({})", field.type_name);
    }
    words + ", " + &text::bytes(field.size.into())
}

fn marks(
    out: &mut String,
    line: &LineRow,
    toucher: &Toucher<'_>,
    nth: usize,
    start: u32,
    end: u32,
) {
    let (label, full) = toucher_words(toucher);
    let _ = write!(
        out,
        "<tr><th scope=\"row\" class=\"t{}\" title=\"{}\">{}</th>",
        nth % COLOURS,
        Text(&full),
        Text(&label)
    );
    for offset in start..end {
        let edge = if offset % 8 == 0 { " edge" } else { "" };
        match toucher.marks.get(offset as usize).copied().flatten() {
            Some(mark) => {
                let _ = write!(
                    out,
                    "<td class=\"t{}{edge}\" title=\"{}\">{}</td>",
                    nth % COLOURS,
                    Text(&byte_words(line, &label, mark, offset)),
                    mark.letter()
                );
            }
            None if edge.is_empty() => out.push_str("<td></td>"),
            None => out.push_str("<td class=\"edge\"></td>"),
        }
    }
    out.push_str("</tr>\n");
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

fn legend(out: &mut String, touchers: &[Toucher<'_>]) {
    let used: std::collections::BTreeSet<Mark> = touchers
        .iter()
        .flat_map(|t| &t.marks)
        .flatten()
        .copied()
        .collect();
    out.push_str("<p class=\"legend\">");
    for mark in used {
        let _ = write!(out, "<b>{}</b> {}  ", mark.letter(), mark.explained());
    }
    let hidden: usize = touchers.iter().skip(ROWS).map(|t| t.threads.len()).sum();
    if hidden > 0 {
        let _ = write!(out, "and {}", text::plural(hidden as u64, "more thread"));
    }
    out.push_str("</p>\n");
}

fn accesses(out: &mut String, finding: &Finding) {
    if finding.accesses.is_empty() {
        return;
    }
    let whole = match finding.is_exact() {
        true => "of the accesses that waited for the line",
        false => "of the finding's sampled time",
    };
    let _ = write!(
        out,
        "<div class=\"scroll\"><table class=\"accesses\">\n<thead><tr><th class=\"number\">\
         <abbr title=\"{whole}\">Share</abbr></th><th>Place</th>\
         <th>Thread</th><th>Does</th><th>Bytes</th><th>Field</th></tr></thead>\n<tbody>\n",
    );
    for access in finding.accesses.iter().take(ACCESSES) {
        access_row(out, access);
    }
    out.push_str("</tbody></table></div>\n");
    let hidden = finding.accesses.len().saturating_sub(ACCESSES) as u64;
    if hidden > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">{} in the JSON report</p>",
            text::plural(hidden, "more access")
        );
    }
    if finding.unlisted.places > 0 {
        let _ = writeln!(
            out,
            "<p class=\"quiet\">{}, {}</p>",
            text::plural(finding.unlisted.places, "more place"),
            percent(finding.unlisted.share)
        );
    }
}

fn access_row(out: &mut String, access: &AccessRow) {
    let function = match access.function.as_str() {
        "" => "unknown code",
        name => name,
    };
    let _ = write!(
        out,
        "<tr><td class=\"number\">{}</td><td class=\"place\"><code>{}</code>",
        percent(access.share),
        Name(function)
    );
    if !access.file.is_empty() {
        let line = match access.line {
            0 => String::new(),
            line => format!(":{line}"),
        };
        let _ = write!(
            out,
            " <span class=\"file\" title=\"{}{line}\">{}{line}</span>",
            Text(&access.file),
            Name(text::file_name(&access.file))
        );
    }
    for caller in &access.inlined_into {
        let _ = write!(
            out,
            "<span class=\"quiet\">inlined into <code>{}</code></span>",
            Name(caller)
        );
    }
    for chain in &access.called_from {
        let _ = write!(
            out,
            "<span class=\"quiet\">{}</span>",
            Name(&text::called_from(chain, CALLERS))
        );
    }
    if !access.missing.is_empty() {
        let _ = write!(
            out,
            "<span class=\"quiet\">{}</span>",
            Prose(&access.missing)
        );
    }
    let last = u64::from(access.offset) + u64::from(access.size.max(1)) - 1;
    let _ = writeln!(
        out,
        "</td><td class=\"name\">{} {}</td><td class=\"nowrap\">{}</td>\
         <td class=\"nowrap\">{} to {last}</td>\
         <td class=\"name\"><code>{}</code></td></tr>",
        Text(&access.thread_name),
        access.tid,
        access.op.word(),
        access.offset,
        Name(&access.field),
    );
}

fn change(out: &mut String, finding: &Finding) {
    let _ = writeln!(
        out,
        "<div class=\"change\"><h4>Change</h4>\n<p>{}</p>",
        Prose(&finding.change)
    );
    if !finding.change_source.is_empty() {
        out.push_str("<div class=\"source\"><pre><code>");
        for line in finding.change_source.lines() {
            let _ = writeln!(out, "{}", Text(&line.replace('\t', "    ")));
        }
        out.push_str(
            "</code></pre><button type=\"button\" class=\"copy\" hidden>Copy</button></div>\n",
        );
    }
    let gain = finding.expected_gain;
    if gain.high > 0.0 {
        let _ = writeln!(
            out,
            "<p><b>Expected gain</b> {} of thread time.</p>",
            written::gain(gain)
        );
    }
    if !finding.doubt.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"quiet\"><b>Doubt</b> {}</p>",
            Prose(&finding.doubt)
        );
    }
    out.push_str("</div>\n");
}

fn evidence(out: &mut String, finding: &Finding, duration_ns: u64) {
    let _ = writeln!(
        out,
        "<p class=\"quiet\">Transfers: {}. Rests on {}.</p>",
        Text(&contention::transfers_of(finding, duration_ns)),
        Text(&text::listing(&contention::evidence(&finding.evidence))),
    );
}
