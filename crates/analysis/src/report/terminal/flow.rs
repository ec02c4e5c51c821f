//! What happens to objects of a type, path by path.

use super::super::model::Report;
use super::page::{Page, Tone};
use super::text;

/// Types whose paths are shown.
const TYPES: usize = 3;
/// Paths of each.
const PATHS: usize = 5;
/// Functions on each: about six lines.
const STOPS: usize = 12;

/// Prints it; nothing for a recording without followed objects.
pub(super) fn print(page: &mut Page, report: &Report) {
    if report.flow.is_empty() {
        return;
    }
    let head = "flow, from allocation to end (⇒ another thread goes on)";
    page.line(&[(Tone::Dim, head)]);
    for row in report.flow.iter().take(TYPES) {
        let name = match row.type_name.as_str() {
            "" => "(no type)",
            name => name,
        };
        let rest = format!(
            "  {}, {} followed",
            text::bytes(row.size),
            text::plural(row.histories, "object")
        );
        page.line(&[
            (Tone::Plain, "  "),
            (
                Tone::Strong,
                text::shorten(&text::sanitise(name), 40).as_ref(),
            ),
            (Tone::Dim, rest.as_str()),
        ]);
        for path in row.paths.iter().take(PATHS) {
            let share = format!("{:>8}", text::percent(path.frequency));
            let functions = text::path_of_functions(row, &path.nodes, true, STOPS);
            page.labelled(&share, 10, Tone::Plain, &functions);
        }
        let more = row.paths.len().saturating_sub(PATHS);
        if more > 0 {
            let more = format!(
                "          and {} that are rarer",
                text::plural(more as u64, "path")
            );
            page.line(&[(Tone::Dim, more)]);
        }
    }
    page.blank();
}
