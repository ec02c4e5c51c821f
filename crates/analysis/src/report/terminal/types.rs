//! The data profile: which types are dear to touch, why the cache misses at them, and the dearest of them
//! member by member.

use linewise_recording::Source;

use super::super::contention;
use super::super::model::{
    Coverage, FieldRow, FieldThread, Interval, Layout, LevelSet, Reached, Report, TypeRow,
};
use super::page::{Page, Tone};
use super::text;
use crate::section::{bounded, more};

/// Types in the list.
const ROWS: usize = 8;
/// Types that are drawn.
const DRAWN: usize = 2;
/// Members that a drawing has.
const MEMBERS: usize = 16;
/// Members and variables that lead to a type.
const HOLDERS: usize = 6;
/// The same in one line, of a type that has members of its own.
const HOLDERS_IN_LINE: usize = 3;
/// Columns of what leads to a type.
const HOLDER: usize = 45;
/// A type below this share of the run is not drawn.
const SLIGHT: f64 = 0.02;
/// Files without debug info that are named.
const MISSING: usize = 2;
/// Columns of a name.
const NAME: usize = 30;
/// Types and sets of a level in the working set.
const FILLING: usize = 4;
/// Columns of a name beside the classes of its misses.
const MISS_NAME: usize = 24;
/// Columns of a member's name on the narrowest page.
const MEMBER: usize = 20;
/// Columns of the narrowest page.
const NARROW: usize = 80;
/// Threads that are named at a member, and columns of a name.
const THREADS: usize = 4;
const THREAD: usize = 15;
/// Columns of a member's bar: one for each 4 bytes, 16 a line.
const BAR: usize = 16;

/// Prints it; of a recording without typed accesses only what is missing.
pub(super) fn print(page: &mut Page, report: &Report) {
    if report.types.is_empty() {
        if let Some(coverage) = &report.type_coverage
            && !coverage.missing.is_empty()
        {
            page.line(&[(Tone::Dim, "types")]);
            covered(page, coverage);
            page.blank();
        }
        return;
    }
    let of = format!("of {}", report.run.source.weight());
    let head = format!("{of:>11}  {:>8}  {:>9}  contended", "size", "accesses");
    page.line(&[(Tone::Dim, format!("{}{head}", pad("types", NAME)))]);
    let listed_rows = listed(report);
    let share = |row: &&TypeRow| row.cost.share;
    let (shown, rest) = bounded(&listed_rows, share, ROWS);
    for row in shown {
        let size = match row.size {
            0 => "?".to_owned(),
            size => text::bytes(size),
        };
        let bounces = contention::of_type(report, row);
        let cells = format!(
            "{:>11}  {size:>8}  {:>9}  {bounces}",
            text::percent(row.cost.share),
            text::count(row.accesses)
        );
        page.line(&[
            (Tone::Plain, format!("  {}", pad(&row.name, NAME - 2))),
            (Tone::Plain, cells),
        ]);
    }
    if !rest.is_empty() {
        let sum: f64 = rest.iter().map(|row| share(row)).sum();
        let name = pad(&more(rest.len()), NAME - 2);
        let cells = format!("  {name}{:>11}", text::percent(sum));
        page.line(&[(Tone::Dim, cells)]);
    }
    if let Some(coverage) = &report.type_coverage {
        covered(page, coverage);
    }
    misses(page, report);
    working_set(page, report);
    if !page.is_in_full() {
        page.blank();
        return;
    }
    let told =
        |row: &TypeRow| row.fields.iter().any(|field| !field.padding) || !row.reached.is_empty();
    let dear = listed(report).into_iter();
    let drawn = dear.filter(|row| row.cost.share >= SLIGHT && told(row));
    for row in drawn.take(DRAWN) {
        page.blank();
        draw(page, row);
    }
    page.blank();
}

/// The types in the order in which they are listed, without those of the system's libraries that do not matter.
fn listed(report: &Report) -> Vec<&TypeRow> {
    let mut rows: Vec<&TypeRow> = report.types.iter().collect();
    rows.retain(|row| row.rank() != (true, true));
    // A report that an older linewise made has them by their shares alone.
    rows.sort_by_key(|row| row.rank());
    rows
}

/// Why the first level misses, or what waiting is likely to be for, by type.
fn misses(page: &mut Page, report: &Report) {
    let rows = || {
        let rows = report.misses.iter().take(ROWS);
        rows.filter(|row| row.share >= SLIGHT)
    };
    if rows().next().is_none() {
        return;
    }
    page.blank();
    // A wait is not a miss, and its cause is told by rules.
    let (what, of) = match report.run.source {
        Source::Exact => ("L1 misses", "of misses"),
        Source::Timer => ("waiting, likely cause", "share"),
    };
    let classes = ["first", "capacity", "conflict", "true", "false"];
    let head: String = classes.iter().map(|it| format!("{it:>9}")).collect();
    let head = format!("{}{of:>11}{head}", pad(what, MISS_NAME));
    page.line(&[(Tone::Dim, head)]);
    for row in rows() {
        let name = pad(kind(&row.type_name, &row.through), MISS_NAME - 2);
        let shares = [
            row.compulsory,
            row.capacity,
            row.conflict,
            row.true_sharing,
            row.false_sharing,
        ];
        let cells: String = shares
            .iter()
            .map(|share| format!("{:>9}", text::percent(*share)))
            .collect();
        page.line(&[(
            Tone::Plain,
            format!("  {name}{:>11}{cells}", text::percent(row.share)),
        )]);
    }
}

/// What to call a type, or what `through` leads to, by that alone: of numbers the type says little, and
/// lines are short.
fn kind<'a>(type_name: &'a str, through: &'a str) -> &'a str {
    match (type_name, through) {
        ("", _) => "(no type)",
        (name, "") => name,
        (_, through) => through,
    }
}

/// What fills the caches: a line for each level, and one for each set that is too full; in short only levels with such.
fn working_set(page: &mut Page, report: &Report) {
    let levels = report.working_set.iter();
    let levels: Vec<&LevelSet> = levels
        .filter(|it| page.is_in_full() || !it.crowded.is_empty())
        .collect();
    if levels.is_empty() {
        return;
    }
    page.blank();
    let head = match report.run.source {
        Source::Exact => "working set, in the simulated caches on average",
        Source::Timer => "working set, at least",
    };
    page.line(&[(Tone::Dim, head.to_owned())]);
    for level in levels {
        let types: Vec<String> = level
            .types
            .iter()
            .filter(|row| row.share >= SLIGHT)
            .take(FILLING)
            .map(|row| {
                let kind = kind(&row.type_name, &row.through);
                format!("{kind} {}", text::percent(row.share))
            })
            .collect();
        let mut line = in_use(level);
        if !types.is_empty() {
            line = format!("{line}: {}", types.join(", "));
        }
        page.labelled(&format!("  {}", level.level.word()), 6, Tone::Plain, &line);
        for set in level.crowded.iter().take(FILLING) {
            let types: Vec<String> = set
                .types
                .iter()
                .take(FILLING)
                .map(|row| {
                    let name = kind(&row.type_name, &row.through);
                    match row.stride {
                        0 => name.to_owned(),
                        stride => format!("{name}, {} apart", text::bytes(stride)),
                    }
                })
                .collect();
            let lines = text::plural(set.lines, "line");
            let line = format!(
                "set {} is too full: {lines} of {}",
                set.set,
                types.join("; ")
            );
            page.labelled("", 6, Tone::Warning, &line);
        }
    }
}

/// `104 KiB in use of 48 KiB`.
fn in_use(level: &LevelSet) -> String {
    let (bytes, size) = (
        text::binary_bytes(level.in_use_bytes as u64),
        text::binary_bytes(level.size_bytes),
    );
    format!("{bytes} in use of {size}")
}

/// How many accesses have a type, and which debug info would tell more.
fn covered(page: &mut Page, coverage: &Coverage) {
    page.line(&[(Tone::Dim, coverage_words(coverage))]);
    for missing in coverage.missing.iter().take(MISSING) {
        let share = missing.accesses / coverage.accesses.max(1.0);
        if share >= SLIGHT {
            let words = format!("{}: {}", text::percent(share), missing.reason);
            page.labelled_in("", 4, Tone::Dim, Tone::Dim, &words);
        }
    }
}

fn coverage_words(coverage: &Coverage) -> String {
    let share = |part: f64| text::percent(part / coverage.accesses.max(1.0));
    let mut reasons: Vec<(&String, &f64)> = coverage.untyped.iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(a.1));
    let reasons: Vec<String> = reasons
        .iter()
        .take(3)
        .map(|(reason, count)| format!("{} {reason}", share(**count)))
        .collect();
    let rest = if reasons.is_empty() {
        String::new()
    } else {
        format!("; not: {}", reasons.join(", "))
    };
    format!("  {} of accesses typed{rest}", share(coverage.typed))
}

/// `text` in exactly `columns` columns.
pub(super) fn pad(name: &str, columns: usize) -> String {
    let safe = text::sanitise(name);
    let short = text::shorten(&safe, columns.saturating_sub(1));
    let gap = " ".repeat(columns.saturating_sub(text::width(&short)));
    format!("{short}{gap}")
}

/// The type member by member: where it lies on its line, its share, reads and writes by thread.
fn draw(page: &mut Page, row: &TypeRow) {
    let mut title = vec![(Tone::Strong, text::sanitise(&row.name).into_owned())];
    if !row.description.is_empty() {
        let place = text::sanitise(&row.description).into_owned();
        title.push((Tone::Dim, format!("  {}", text::file_name(&place))));
    }
    page.line(&title);
    if !row.allocated_at.is_empty() {
        let sites: Vec<_> = row.allocated_at.iter().map(|it| text::caller(it)).collect();
        page.line(&[(Tone::Dim, format!("  allocated by {}", sites.join(", ")))]);
    }
    reached(page, row);
    let members = contention::drawn_members(row);
    let used = |field: &&FieldRow| field.loads + field.stores > 0.0 || field.padding;
    let fields: Vec<&FieldRow> = members.iter().filter(used).take(MEMBERS).collect();
    // Names have what a page is wider than the narrowest.
    let name = MEMBER + (page.width().saturating_sub(NARROW) / 2).min(MEMBER);
    let beside = page.width().saturating_sub(name + BAR + 20);
    for field in &fields {
        let share = if field.padding {
            String::new()
        } else {
            text::percent(field.share)
        };
        page.line(&[
            (Tone::Dim, format!("  {:>5} ", field.offset)),
            (Tone::Plain, bar(field)),
            (Tone::Plain, format!(" {}", pad(&field.label(), name))),
            (Tone::Plain, format!("{share:>7}  ")),
            (Tone::Dim, who(&field.threads, beside)),
        ]);
    }
    let hidden = members.iter().filter(|field| !field.padding).count()
        - fields.iter().filter(|field| !field.padding).count();
    if hidden > 0 {
        let members = text::plural(hidden as u64, "member");
        page.line(&[(
            Tone::Dim,
            format!("        {members} not seen in use or not shown"),
        )]);
    }
    if let Some(layout) = &row.layout {
        suggestion(page, layout);
    }
}

/// `U worker 41312, R worker 41313`: who reads, writes, or both; by number alone where names leave no room, and as many
/// as there is room for.
fn who(threads: &[FieldThread], room: usize) -> String {
    let words = |thread: &FieldThread, named: bool| {
        let mark = thread.letter();
        let name = text::sanitise(&thread.name);
        match named {
            true => format!("{mark} {} {}", text::shorten(&name, THREAD), thread.tid),
            false => format!("{mark} {}", thread.tid),
        }
    };
    let line = |shown: usize, named: bool| {
        let shown_words = threads.iter().take(shown).map(|it| words(it, named));
        let line = shown_words.collect::<Vec<_>>().join(", ");
        match threads.len() - shown {
            0 => line,
            more => format!("{line}, {more} more"),
        }
    };
    let most = threads.len().min(THREADS);
    let ways = (1..=most)
        .rev()
        .flat_map(|shown| [(shown, true), (shown, false)]);
    let mut lines = ways.map(|(shown, named)| line(shown, named));
    let fits = lines.find(|line| text::width(line) <= room);
    fits.unwrap_or_else(|| line(most.min(1), false))
}

/// The members and variables that lead to a type: of one without members all that tells one array of
/// it from another, and so a line for each.
fn reached(page: &mut Page, row: &TypeRow) {
    if row.fields.is_empty() {
        let beside = page.width().saturating_sub(HOLDER + 9);
        let dear = |holder: &&Reached| holder.share >= SLIGHT;
        for holder in row.reached.iter().filter(dear).take(HOLDERS) {
            page.line(&[
                (
                    Tone::Plain,
                    format!("  through {}", pad(&holder.through, HOLDER - 10)),
                ),
                (Tone::Plain, format!("{:>7}  ", text::percent(holder.share))),
                (Tone::Dim, who(&holder.threads, beside)),
            ]);
        }
        let rest: f64 = row.reached.iter().skip(HOLDERS).map(|it| it.share).sum();
        if rest >= SLIGHT {
            let rest = format!("{:>7}", text::percent(rest));
            page.line(&[(
                Tone::Dim,
                format!("  {}{rest}", pad("through others", HOLDER - 2)),
            )]);
        }
        return;
    }
    let holders: Vec<String> = row
        .reached
        .iter()
        // A local variable is no name for an object.
        .filter(|holder| holder.share >= SLIGHT && !holder.through.ends_with("(local)"))
        .take(HOLDERS_IN_LINE)
        .map(|holder| format!("{} {}", holder.through, text::percent(holder.share)))
        .collect();
    if !holders.is_empty() {
        let line = format!("  reached through {}", holders.join(", "));
        let line = text::shorten(&text::sanitise(&line), page.width()).into_owned();
        page.line(&[(Tone::Dim, line)]);
    }
}

/// Where a member lies on its line, four bytes a column.
fn bar(field: &FieldRow) -> String {
    let first = (field.offset % 64 / 4) as usize;
    let columns = (field.size.min(64).div_ceil(4) as usize).clamp(1, BAR - first);
    let mark = if field.padding { "." } else { "=" };
    format!(
        "[{}{}{}]",
        " ".repeat(first),
        mark.repeat(columns),
        " ".repeat(BAR - first - columns)
    )
}

fn suggestion(page: &mut Page, layout: &Layout) {
    let line = format!(
        "{} instead of {}, of which {} padding instead of {}; saves {}",
        text::bytes(layout.size_after),
        text::bytes(layout.size_before),
        text::bytes(layout.padding_after),
        text::bytes(layout.padding_before),
        text::gain(Interval {
            low: layout.saves_at_least,
            high: layout.saves_at_most,
        })
    );
    page.labelled("  layout", 10, Tone::Remedy, &line);
    for group in &layout.groups {
        let line = format!("{}: {}", group.members.join(", "), group.why);
        page.labelled("", 10, Tone::Plain, &line);
    }
    for line in text::wrap_source(&layout.source, page.width() - 10) {
        page.line(&[(Tone::Remedy, format!("          {line}"))]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::*;

    #[test]
    fn types_of_the_loader_do_not_hide_the_programs() {
        let mut report = sample::profiled();
        let pattern = report.types[0].clone();
        let row = |name: &str, owner: &str, share: f64| {
            let mut row = pattern.clone();
            (row.name, row.owner) = (name.to_owned(), owner.to_owned());
            row.cost.share = share;
            row
        };
        report.types = vec![
            row("struct link_map", "libc.so.6", 0.3),
            row("struct own", "", 0.2),
            row("Elf64_Sym", "ld-linux-x86-64.so.2", 0.005),
            row("struct rare", "", 0.001),
        ];
        let names: Vec<&str> = listed(&report).iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["struct own", "struct link_map", "struct rare"]);
    }
}
