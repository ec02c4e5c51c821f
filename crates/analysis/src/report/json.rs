//! The report as JSON: the public interface, described field by field in `docs/report-json.md`.

use serde::Serialize;

use super::model::Report;
use crate::diff::Diff;
use crate::views::groups::ThreadGroups;

/// The report as indented JSON with a line break at its end. Arrays of plain values, such as the
/// rows of a matrix, stay on one line. Numbers that are not finite become `null`, for JSON has no
/// word for them.
#[must_use]
pub fn render(report: &Report) -> String {
    pretty(report)
}

/// A comparison likewise; described in `docs/diff-json.md`.
#[must_use]
pub fn render_diff(diff: &Diff) -> String {
    pretty(diff)
}

/// Groups of threads likewise; described in `docs/groups-json.md`.
#[must_use]
pub fn render_groups(groups: &ThreadGroups) -> String {
    pretty(groups)
}

fn pretty(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value)
        .expect("a report has string keys only, and writing to memory does not fail");
    // It is printed on terminals, too.
    linewise_foreign::json(join_plain_arrays(&text))
}

/// Puts arrays of plain values on one line. `text` is indented JSON with one value a line: no
/// string holds a line break, so a line that ends with a bracket opens or closes something.
fn join_plain_arrays(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        let nested = |next: &&str| next.ends_with('[') || next.ends_with('{');
        if line.ends_with('[') && !lines.peek().is_some_and(nested) {
            // Elements of one array are all of a kind, so the first speaks for the others.
            let mut separator = "";
            for element in lines.by_ref() {
                let element = element.trim_start();
                if element.starts_with(']') {
                    out.push_str(element);
                    break;
                }
                out.push_str(separator);
                out.push_str(element);
                separator = " ";
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::sample;
    use super::*;

    /// The path of every value: `findings[].cost.ns`. Keys below `unknown` and `losses` are data.
    fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let key = match path {
                        "samples.unknown" | "losses" => "*",
                        _ => key,
                    };
                    let path = match path {
                        "" => key.to_owned(),
                        path => format!("{path}.{key}"),
                    };
                    paths(value, &path, found);
                }
            }
            Value::Array(items) => {
                for item in items {
                    paths(item, &format!("{path}[]"), found);
                }
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    fn value_of(text: &str) -> Value {
        serde_json::from_str(text).expect("valid JSON")
    }

    #[test]
    fn the_joined_text_means_the_same() {
        for report in [sample::everyday(), sample::hostile(), sample::crowd(9)] {
            let compact = serde_json::to_string(&report).expect("valid JSON");
            assert!(value_of(&render(&report)) == value_of(&compact));
        }
    }

    #[test]
    fn hostile_names_do_not_reach_a_terminal_and_are_all_there() {
        let text = render(&sample::hostile());
        let is_safe = |c: char| c == '\n' || linewise_foreign::is_safe(c);
        assert!(text.chars().all(is_safe));
        let value = value_of(&text);
        for path in [
            "/run/threads/0/name",
            "/heap/sites/0/name",
            "/migrations/threads/0/name",
        ] {
            let name = value.pointer(path).and_then(Value::as_str);
            assert_eq!(name, Some(sample::HOSTILE), "{path}");
        }
        let whole = value_of(&render(&sample::many_rows(300)));
        assert_eq!(whole["losses"].as_object().map(|it| it.len()), Some(301));
    }

    #[test]
    fn a_row_of_a_matrix_is_one_line() {
        let text = render(&sample::everyday());
        let rows = text
            .lines()
            .filter(|line| line.trim() == "[0.0, 0.0, 0.0, 0.0, 0.0],");
        assert_eq!(
            rows.count(),
            2,
            "the row of the thread that shares nothing, true and false"
        );
    }

    #[test]
    fn the_words_of_the_interface_are_fixed() {
        let value = value_of(&render(&sample::everyday()));
        assert_eq!(value["schema"], 1);
        assert_eq!(value["findings"][0]["kind"], "false-sharing");
        assert_eq!(value["findings"][1]["kind"], "true-sharing");
        assert_eq!(value["findings"][0]["object"]["kind"], "static");
        assert_eq!(value["findings"][0]["accesses"][0]["op"], "update");
    }

    #[test]
    fn no_field_of_schema_1_is_ever_removed() {
        let mut found = BTreeSet::new();
        paths(&value_of(&render(&sample::everyday())), "", &mut found);
        let promised = "
            schema
            run.command run.source run.duration_ns run.round_trip_ns
            run.threads[].tid run.threads[].name run.threads[].cpu_time_ns
            run.overhead.budget run.overhead.estimated
            sharing.transfers.true sharing.transfers.false
            sharing.transfers.interval.low sharing.transfers.interval.high
            sharing.threads[] sharing.matrix.true[][] sharing.matrix.false[][]
            findings[].rank findings[].kind findings[].transfers findings[].change
            findings[].cost.ns findings[].cost.share
            findings[].cost.interval.low findings[].cost.interval.high
            findings[].object.kind findings[].object.name
            findings[].object.address findings[].object.size
            findings[].accesses[].tid findings[].accesses[].function
            findings[].accesses[].file findings[].accesses[].line
            findings[].accesses[].op findings[].accesses[].offset
            findings[].accesses[].size findings[].accesses[].share
            samples.total samples.accesses samples.compute samples.unknown.*
            losses.*.count losses.*.detail
        ";
        for path in promised.split_whitespace() {
            assert!(found.contains(path), "{path} is gone");
        }
        // The whole of it: a field that is added appears here, one that is removed must not.
        let all: Vec<&str> = found.iter().map(String::as_str).collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
