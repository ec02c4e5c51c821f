//! A comparison of two recordings as one self-contained HTML file.

use std::fmt::Write as _;

use super::written::{Name, Prose, Text, fact};
use super::{SCRIPT, head};
use crate::diff::{Change, Diff, Side, Verdict, View};
use crate::report::difference;

/// Rows that are written out; the JSON has them all.
const ROWS: usize = 2_000;

/// The comparison as an HTML document.
#[must_use]
pub fn render(diff: &Diff) -> String {
    let mut out = String::with_capacity(32 * 1024);
    head(
        &mut out,
        &format!("before and after: {}", diff.after.command),
    );
    let _ = write!(
        out,
        "<body>\n<header>\n<p class=\"brand\">linewise diff</p>\n<h1>{}</h1>\n",
        Text(&difference::verdict(diff))
    );
    for note in &diff.notes {
        let _ = writeln!(out, "<p class=\"note\"><b>Note</b> {}</p>", Prose(note));
    }
    out.push_str("<dl class=\"facts\">\n");
    for (label, side) in [("Before", &diff.before), ("After", &diff.after)] {
        facts(&mut out, label, side);
    }
    out.push_str("</dl>\n</header>\n<main>\n");
    let (noise, real): (Vec<&Change>, Vec<&Change>) = diff
        .changes
        .iter()
        .take(ROWS)
        .partition(|change| change.verdict == Verdict::Noise);
    section(&mut out, "changes", "More than noise", &real);
    section(&mut out, "noise", "Within the noise", &noise);
    let _ = write!(
        out,
        "</main>\n<footer>\n<p class=\"quiet\">{}</p>\n</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        Text(&difference::test(diff))
    );
    out
}

fn facts(out: &mut String, label: &str, side: &Side) {
    for (term, value, class) in [
        (label, side.command.as_str(), "wide code"),
        ("Recorded", &difference::facts(side), "wide"),
        ("Machine", &side.machine, "wide"),
    ] {
        fact(out, term, value, class);
    }
}

fn section(out: &mut String, id: &str, title: &str, changes: &[&Change]) {
    if changes.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<section id=\"{id}\">\n<h2>{title}</h2>\n<div class=\"card\">\n"
    );
    for of_view in changes.chunk_by(|a, b| a.view == b.view) {
        if let Some(first) = of_view.first() {
            table(out, first.view, of_view);
        }
    }
    out.push_str("</div>\n</section>\n");
}

fn table(out: &mut String, view: View, changes: &[&Change]) {
    let _ = write!(
        out,
        "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"wide\"><thead><tr><th></th><th>What</th><th class=\"number\">Before</th>\
         <th class=\"number\">After</th><th class=\"number\">z</th></tr></thead>\n<tbody>\n",
        difference::title(view)
    );
    for change in changes {
        let side = |side| {
            let value = difference::value(side, change.unit);
            match difference::interval(side, change.unit) {
                interval if interval.is_empty() => value,
                interval => format!("{value} ({interval})"),
            }
        };
        let word = match change.verdict {
            Verdict::Noise => "",
            other => other.word(),
        };
        let _ = writeln!(
            out,
            "<tr><td>{word}</td><td class=\"name\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            Name(&difference::what(change)),
            Text(&side(change.before)),
            Text(&side(change.after)),
            Text(&format!("{:.1}", change.z)),
        );
    }
    out.push_str("</tbody></table></div>\n");
}
