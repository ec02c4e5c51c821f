//! Histograms of reuse distances: private above shared, on one axis, coloured by the cache that is
//! large enough; and who comes back to what.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::distances::{self, MOST_CACHES, Octave, share};
use super::super::model::{
    CacheSize, FunctionReuse, Histogram, PairReuse, PathReuse, Report, Reuse, SourcePlace, Touches,
};
use super::super::text;
use super::chart::{self, LEFT, Shares, TOP, WIDTH};
use super::written::{Name, Text, left_out, percent};
use crate::section::bounded;

/// Height of the bars.
const HEIGHT: f64 = 150.0;
/// Octaves that are always drawn.
const FEWEST_OCTAVES: usize = 16;
/// Rows of a table.
const ROWS: usize = 10;
/// Calls of a path that are shown.
const CALLS: usize = 6;

/// Writes the section, unless the recording has no reuse distances.
pub(super) fn write(out: &mut String, report: &Report) {
    let Some(reuse) = &report.reuse else {
        return times_alone(out, report);
    };
    out.push_str("<section id=\"reuse\">\n<h2>Reuse distance</h2>\n<div class=\"card\">\n");
    let _ = writeln!(
        out,
        "<p>How many other bytes are touched between a use of a {} and the next one. The cache \
         whose colour a bar has is large enough for it.{}</p>",
        reuse.private.unit.word(),
        sampled(reuse),
    );
    basis(out, report);
    legend(out, &report.cache_sizes);
    let mut panels = vec![("Each thread by itself", &reuse.private)];
    if let Some(shared) = &reuse.shared {
        panels.push(("The threads behind each last-level cache", shared));
    }
    let of_elements = |histogram: &Histogram, who: &str| {
        format!(
            "{} instead of lines, {who}",
            distances::bytes_words(histogram.unit_bytes)
        )
    };
    let elements = [
        (&reuse.private_bytes, "each thread by itself"),
        (
            &reuse.shared_bytes,
            "the threads behind each last-level cache",
        ),
    ];
    let elements: Vec<(String, &Histogram)> = elements
        .into_iter()
        .filter_map(|(histogram, who)| {
            let histogram = histogram.as_ref()?;
            Some((of_elements(histogram, who), histogram))
        })
        .collect();
    let of_lines = panels.len();
    panels.extend(
        elements
            .iter()
            .map(|(title, histogram)| (title.as_str(), *histogram)),
    );
    let drawn: Vec<Vec<Octave>> = panels
        .iter()
        .map(|(_, histogram)| distances::octaves(histogram, &report.cache_sizes))
        .collect();
    let longest = drawn.iter().map(Vec::len).max().unwrap_or(0);
    for ((title, histogram), octaves) in panels.iter().zip(&drawn) {
        let panel = Panel {
            title,
            histogram,
            octaves,
            caches: &report.cache_sizes,
            slots: longest.max(FEWEST_OCTAVES),
        };
        panel.write(out);
    }
    let (of_lines, of_elements) = panels.split_at(of_lines);
    for panels in [of_lines, of_elements] {
        if !panels.is_empty() {
            figures(out, panels);
        }
    }
    tables(out, report, reuse);
    out.push_str("</div>\n</section>\n");
}

/// What sampled reuse rests on.
fn basis(out: &mut String, report: &Report) {
    if let Some(sampled) = &report.sampled_reuse {
        let words = distances::sampled_words(sampled);
        let _ = writeln!(
            out,
            "<p>Source: sampled. {}</p>\n<p class=\"quiet\">{}</p>",
            Text(&words),
            Text(&sampled.doubt)
        );
    }
}

/// Sampled reuse without an exact run that would make distances of its times.
fn times_alone(out: &mut String, report: &Report) {
    let Some(sampled) = &report.sampled_reuse else {
        return;
    };
    out.push_str("<section id=\"reuse\">\n<h2>Reuse time</h2>\n<div class=\"card\">\n");
    basis(out, report);
    for (title, times) in [
        ("Each thread by itself", Some(&sampled.private)),
        (
            "The threads behind each last-level cache",
            sampled.shared.as_ref(),
        ),
    ] {
        let Some(times) = times else { continue };
        let mut octaves: BTreeMap<usize, f64> = BTreeMap::new();
        for bin in &times.bins {
            *octaves.entry(distances::octave_of(bin.from)).or_default() += bin.count;
        }
        let _ = write!(
            out,
            "<details open=\"\"><summary>{}</summary><div class=\"scroll\"><table><thead><tr>\
             <th>Time until the next use</th><th class=\"number\">Share of uses</th></tr></thead>\n\
             <tbody>\n",
            Text(title)
        );
        let mut row = |name: &str, value: f64| {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td class=\"number\">{}</td></tr>",
                Text(name),
                percent(value)
            );
        };
        for (octave, count) in octaves {
            let ns = |octave| text::nanoseconds(distances::octave_start(octave) as f64);
            row(&format!("{} to {}", ns(octave), ns(octave + 1)), count);
        }
        row("ended by a store from elsewhere", times.invalidated);
        row("not seen to its end", times.unfinished);
        out.push_str("</tbody></table></div></details>\n");
    }
    out.push_str("</div>\n</section>\n");
}

fn sampled(reuse: &Reuse) -> String {
    match reuse.rate < 1.0 {
        true => format!(
            " Measured on {} of the lines and scaled back.",
            percent(reuse.rate)
        ),
        false => String::new(),
    }
}

fn legend(out: &mut String, caches: &[CacheSize]) {
    out.push_str("<p class=\"keys\">");
    let caches = &caches[..caches.len().min(MOST_CACHES)];
    let key = |out: &mut String, class: &str, name: &str| {
        let _ = write!(
            out,
            "<span><svg class=\"key\" width=\"12\" height=\"12\" aria-hidden=\"true\"><rect \
             class=\"{class}\" width=\"12\" height=\"12\"/></svg> {}</span> ",
            Text(name)
        );
    };
    for (i, cache) in caches.iter().enumerate() {
        key(out, &format!("c{i}"), &distances::cache_name(cache));
    }
    if !caches.is_empty() {
        key(out, colour(caches.len(), caches.len()), "memory");
    }
    key(out, "cold", "first touch");
    key(out, "lost", "invalidated");
    out.push_str("</p>\n");
}

/// The class of the cache with this index among `caches`; the last colour is for memory.
fn colour(cache: usize, caches: usize) -> &'static str {
    const CACHES: [&str; MOST_CACHES] = ["c0", "c1", "c2", "c3"];
    match cache < caches {
        true => CACHES[cache.min(MOST_CACHES - 1)],
        false => "far",
    }
}

/// One histogram.
struct Panel<'a> {
    title: &'a str,
    histogram: &'a Histogram,
    octaves: &'a [Octave],
    caches: &'a [CacheSize],
    /// Octaves on the axis.
    slots: usize,
}

impl Panel<'_> {
    fn write(&self, out: &mut String) {
        let histogram = self.histogram;
        let all = histogram.accesses;
        let lost = share(histogram.invalidated, all);
        let cold = share(histogram.cold, all);
        let shares = self.octaves.iter().map(|octave| share(octave.count, all));
        let scale = Shares::new(shares.chain([lost, cold]), HEIGHT);
        let more = match histogram.other_thread > 0.0 {
            true => format!(
                ", {} of them reuses of what another thread had used",
                percent(share(histogram.other_thread, all))
            ),
            false => String::new(),
        };
        let _ = writeln!(
            out,
            "<p class=\"plot-title\">{}<span>{} touches{more}</span></p>",
            Text(self.title),
            text::count(all),
        );
        let described = format!(
            "{}: share of touches by reuse distance; the figures are in the table below",
            self.title
        );
        chart::open(out, TOP + HEIGHT + chart::BOTTOM, &described);
        scale.axis(out, TOP, WIDTH);
        // Two more for what has no distance, and a gap before them.
        let slot = (WIDTH - LEFT) / (self.slots as f64 + 2.6);
        for (i, octave) in self.octaves.iter().enumerate() {
            let value = share(octave.count, all);
            let class = colour(octave.cache(), self.caches.len().min(MOST_CACHES));
            let words = format!("{}: {}", self.range(i), text::percent(value));
            let x = LEFT + slot * i as f64;
            self.bar(out, scale, (x, slot), (class, &words), value);
        }
        let right = LEFT + slot * (self.slots as f64 + 0.6);
        for (i, (class, name, value)) in
            [("cold", "first touch", cold), ("lost", "invalidated", lost)]
                .into_iter()
                .enumerate()
        {
            let words = format!("{name}: {}", text::percent(value));
            let x = right + slot * i as f64;
            self.bar(out, scale, (x, slot), (class, &words), value);
            let _ = writeln!(
                out,
                "<text class=\"label middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + slot / 2.0,
                TOP + HEIGHT + 17.0,
                if i == 0 { "first" } else { "inval." }
            );
        }
        self.ticks(out, slot);
        let marks: Vec<(f64, String)> = self
            .caches
            .iter()
            .map(|cache| (self.x(cache.bytes, slot), distances::cache_name(cache)))
            .filter(|(x, _)| *x <= LEFT + slot * self.slots as f64)
            .collect();
        chart::marks(out, &marks, HEIGHT, WIDTH);
        chart::close(out);
    }

    /// Where a cache of `bytes` stands: distances to the left of it fit.
    fn x(&self, bytes: u64, slot: f64) -> f64 {
        let units = bytes as f64 / self.histogram.unit_bytes.max(1) as f64;
        LEFT + slot * (1.0 + units.max(1.0).log2())
    }

    fn range(&self, octave: usize) -> String {
        range(octave, self.histogram.unit_bytes)
    }

    fn bar(
        &self,
        out: &mut String,
        scale: Shares,
        (x, slot): (f64, f64),
        (class, words): (&str, &str),
        value: f64,
    ) {
        let y = scale.y(value);
        // The invisible full-height rectangle makes a short bar easy to point at.
        let _ = writeln!(
            out,
            "<g class=\"bin\"><title>{}</title><rect class=\"catch\" x=\"{x:.1}\" \
             y=\"{TOP}\" width=\"{slot:.1}\" height=\"{HEIGHT}\"/><rect class=\"{class}\" \
             x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></g>",
            Text(words),
            x + slot * 0.08,
            TOP + y,
            slot * 0.84,
            HEIGHT - y,
        );
    }

    fn ticks(&self, out: &mut String, slot: f64) {
        let every = (66.0 / slot).ceil().max(1.0) as usize;
        for octave in (1..=self.slots).step_by(every) {
            let bytes = distances::octave_start(octave).saturating_mul(self.histogram.unit_bytes);
            let x = LEFT + slot * octave as f64;
            let _ = writeln!(
                out,
                "<path class=\"base\" d=\"M{x:.1} {:.1}v4\"/><text class=\"label middle\" \
                 x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                TOP + HEIGHT,
                TOP + HEIGHT + 17.0,
                text::binary_bytes(bytes)
            );
        }
    }
}

/// The distances of an octave, in bytes.
fn range(octave: usize, unit_bytes: u64) -> String {
    let bytes =
        |octave| text::binary_bytes(distances::octave_start(octave).saturating_mul(unit_bytes));
    match octave {
        0 => "nothing in between".to_owned(),
        octave => format!("{} to {}", bytes(octave), bytes(octave + 1)),
    }
}

fn figures(out: &mut String, panels: &[(&str, &Histogram)]) {
    out.push_str(
        "<details><summary>Figures, share of touches</summary><div class=\"scroll\"><table>\
         <thead><tr><th>Distance</th>",
    );
    for (title, _) in panels {
        let _ = write!(out, "<th class=\"number\">{}</th>", Text(title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let octaves: Vec<Vec<Octave>> = panels
        .iter()
        .map(|(_, histogram)| distances::octaves(histogram, &[]))
        .collect();
    let longest = octaves.iter().map(Vec::len).max().unwrap_or(0);
    let mut row = |name: &str, values: &[f64]| {
        let _ = write!(out, "<tr><td>{}</td>", Text(name));
        for value in values {
            let _ = write!(out, "<td class=\"number\">{}</td>", percent(*value));
        }
        out.push_str("</tr>\n");
    };
    for octave in 0..longest {
        let of = |octaves: &Vec<Octave>| octaves.get(octave).map_or(0.0, |octave| octave.count);
        let values: Vec<f64> = octaves
            .iter()
            .zip(panels)
            .map(|(octaves, (_, histogram))| share(of(octaves), histogram.accesses))
            .collect();
        row(&range(octave, panels[0].1.unit_bytes), &values);
    }
    let without = |value: fn(&Histogram) -> f64| -> Vec<f64> {
        let of = |(_, histogram): &(&str, &Histogram)| share(value(histogram), histogram.accesses);
        panels.iter().map(of).collect()
    };
    row("first touch", &without(|histogram| histogram.cold));
    row("invalidated", &without(|histogram| histogram.invalidated));
    let unfinished = without(|histogram| histogram.unfinished);
    if unfinished.iter().any(|&share| share > 0.0) {
        row("not seen to its end", &unfinished);
    }
    out.push_str("</tbody></table></div></details>\n");
}

fn tables(out: &mut String, report: &Report, reuse: &Reuse) {
    let heads = distances::beyond_heads(report);
    if !reuse.by_function.is_empty() {
        head(out, "By function", true, &["Function"], &heads);
        let count = |row: &FunctionReuse| row.touches.count;
        let (shown, rest) = bounded(&reuse.by_function, count, ROWS);
        for row in shown {
            let _ = write!(out, "<tr><td class=\"name\">{}", Name(&row.function));
            if !row.file.is_empty() {
                let _ = write!(
                    out,
                    "<span class=\"file\"> {}</span>",
                    Text(text::file_name(&row.file))
                );
            }
            out.push_str("</td>");
            touches(out, &row.touches, heads.len());
        }
        end(out, rest.iter().map(|row| count(row)));
    }
    if !reuse.by_path.is_empty() {
        let names = ["Function", "Called from"];
        head(out, "By the calls that led there", false, &names, &heads);
        let count = |row: &PathReuse| row.touches.count;
        let (shown, rest) = bounded(&reuse.by_path, count, ROWS);
        for row in shown {
            let _ = write!(out, "<tr><td class=\"name\">{}</td>", Name(&row.function));
            calls(out, &row.calls);
            touches(out, &row.touches, heads.len());
        }
        end(out, rest.iter().map(|row| count(row)));
    }
    for (title, pairs) in [
        ("By place of use and of reuse", &reuse.pairs),
        (
            "The same, where another thread may have used it",
            &reuse.shared_pairs,
        ),
    ] {
        if pairs.is_empty() {
            continue;
        }
        head(out, title, false, &["Used at", "Used again at"], &heads);
        let count = |row: &PairReuse| row.touches.count;
        let (shown, rest) = bounded(pairs, count, ROWS);
        for PairReuse {
            use_place,
            reuse_place,
            touches: counts,
            ..
        } in shown
        {
            out.push_str("<tr>");
            place(out, use_place);
            place(out, reuse_place);
            touches(out, counts, heads.len());
        }
        end(out, rest.iter().map(|row| count(row)));
    }
    threads(out, report, reuse);
}

/// A cell with calls, the innermost first.
fn calls(out: &mut String, calls: &[SourcePlace]) {
    out.push_str("<td class=\"name\">");
    for (depth, call) in calls.iter().take(CALLS).enumerate() {
        let before = if depth > 0 { " ← " } else { "" };
        let _ = write!(out, "{before}{}", Name(&call.function));
        if call.line > 0 {
            let _ = write!(out, "<span class=\"file\"> :{}</span>", call.line);
        }
    }
    if calls.len() > CALLS {
        let _ = write!(out, " and {} more", calls.len() - CALLS);
    }
    out.push_str("</td>");
}

/// A cell with a place in the source.
pub(super) fn place(out: &mut String, place: &SourcePlace) {
    let _ = write!(out, "<td class=\"name\">{}", Name(&place.function));
    if !place.file.is_empty() {
        let _ = write!(
            out,
            "<span class=\"file\"> {}:{}</span>",
            Text(text::file_name(&place.file)),
            place.line
        );
    }
    out.push_str("</td>");
}

fn head(out: &mut String, title: &str, open: bool, names: &[&str], heads: &[String]) {
    let _ = write!(
        out,
        "<details{}><summary>{}</summary><div class=\"scroll\"><table class=\"wide\"><thead><tr>",
        if open { " open=\"\"" } else { "" },
        Text(title)
    );
    for name in names {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("<th class=\"number\">Touches</th><th class=\"number\">invalidated</th>");
    for head in heads {
        let _ = write!(out, "<th class=\"number\">{}</th>", Text(head));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

fn touches(out: &mut String, touches: &Touches, caches: usize) {
    let mut number = |value: f64| {
        let _ = write!(out, "<td class=\"number\">{}</td>", text::count(value));
    };
    number(touches.count);
    number(touches.invalidated);
    for i in 0..caches {
        number(touches.beyond.get(i).map_or(0.0, |beyond| beyond.count));
    }
    out.push_str("</tr>\n");
}

/// Ends a table; so many touches have the rows that it leaves out.
fn end(out: &mut String, rest: impl ExactSizeIterator<Item = f64>) {
    out.push_str("</tbody></table></div>");
    let (rows, sum) = (rest.len(), rest.sum());
    left_out(out, rows, "row", &text::count(sum));
    out.push_str("</details>\n");
}

fn threads(out: &mut String, report: &Report, reuse: &Reuse) {
    if reuse.by_thread.len() < 2 {
        return;
    }
    let mut rows: Vec<(&String, &Histogram)> = reuse.by_thread.iter().collect();
    rows.sort_by(|a, b| b.1.accesses.total_cmp(&a.1.accesses));
    let heads = distances::beyond_heads(report);
    head(out, "By thread", false, &["Thread", "Id"], &heads);
    let (shown, rest) = bounded(&rows, |row| row.1.accesses, ROWS);
    for (tid, histogram) in shown {
        let name = report
            .run
            .threads
            .iter()
            .find(|thread| thread.tid.to_string() == **tid)
            .map_or("", |thread| thread.name.as_str());
        let _ = write!(
            out,
            "<tr><td class=\"name\">{}</td><td>{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td>",
            Name(name),
            Text(tid),
            text::count(histogram.accesses),
            text::count(histogram.invalidated),
        );
        for cache in &report.cache_sizes {
            let beyond = histogram.reuses_from(cache.bytes);
            let _ = write!(out, "<td class=\"number\">{}</td>", text::count(beyond));
        }
        out.push_str("</tr>\n");
    }
    end(out, rest.iter().map(|row| row.1.accesses));
}
