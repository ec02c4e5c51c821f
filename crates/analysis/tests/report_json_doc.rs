//! `docs/report-json.md`, `docs/groups-json.md` and `docs/diff-json.md` say of every field of the JSON what the source says of it: they are
//! derived from the documentation of the types, and these tests fail when the two differ.
//!
//! To write them anew: `UPDATE_DOCS=1 cargo test -p linewise-analysis --test report_json_doc`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = include_str!("../src/model.rs");
const QUANTITY: &str = include_str!("../src/quantity.rs");
const RUN: &str = include_str!("../../recording/src/run.rs");
const VALUES: &str = include_str!("../../recording/src/values.rs");
const DIFF: &str = include_str!("../src/diff/mod.rs");
const DIFF_ESTIMATE: &str = include_str!("../src/diff/estimate.rs");

const INTRODUCTION: &str = "\
# The JSON report

`linewise report --json` and `linewise run --json` write one object, described here from the
outside in. It is a public interface: within schema 1 fields may be added, but none is renamed,
removed or given another meaning. Readers should ignore fields that they do not know.

Times are in nanoseconds, offsets and sizes in bytes, shares from 0 to 1. Addresses are plain
numbers. A number that could not be computed is `null`. Names come from the measured program and
may hold any character, so escape them before showing them.

This page is derived from the source; see `crates/analysis/tests/report_json_doc.rs`.
";

const DIFF_INTRODUCTION: &str = "\
# The JSON of a comparison

`linewise diff --json` writes one object, described here from the outside in. As with [the report](report-json.md), within
schema 1 fields may be added, but none is renamed, removed or given another meaning.

Times are in nanoseconds, shares from 0 to 1. A number that could not be computed is `null`. Names come from the measured program
and may hold any character, so escape them before showing them.

The test of each row is described at the head of `crates/analysis/src/diff/mod.rs`. This page is derived from the source; see
`crates/analysis/tests/report_json_doc.rs`.
";

const GROUPS_INTRODUCTION: &str = "\
# The JSON of groups of threads

`linewise groups --json` writes one object, described here from the outside in. As with [the report](report-json.md), within
schema 1 fields may be added, but none is renamed, removed or given another meaning.

Times are in nanoseconds, shares from 0 to 1. Names come from the measured program and may hold any character, so escape them
before showing them. This page is derived from the source; see `crates/analysis/tests/report_json_doc.rs`.
";

/// The sources of all views, in the order of their paths.
fn views() -> Vec<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/views")];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder of the views") {
            let path = entry.expect("an entry of it").path();
            match path.extension() {
                Some(ending) if ending == "rs" => files.push(path),
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    let read = |path: &PathBuf| fs::read_to_string(path).expect("the source of a view");
    files.iter().map(read).collect()
}

/// A field of a struct or a value of an enumeration.
#[derive(Clone)]
struct Item {
    name: String,
    type_name: String,
    words: String,
    /// Whether the fields of its type stand in its place.
    flat: bool,
}

struct Type {
    words: String,
    items: Vec<Item>,
}

/// Reads the public structs and enumerations of `source`. It understands what rustfmt writes,
/// which is all that it will ever see.
fn types(source: &str, found: &mut HashMap<String, Type>) {
    let mut words = String::new();
    let mut rename = None;
    let mut flat = false;
    let mut open: Option<(String, Type)> = None;
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            if !words.is_empty() {
                words.push(' ');
            }
            words.push_str(text);
        } else if let Some(name) = between(line, "#[serde(rename = \"", "\")]") {
            rename = Some(name.to_owned());
        } else if line == "#[serde(flatten)]" {
            flat = true;
        } else if let Some(name) = between(line, "pub struct ", " {")
            .or_else(|| between(line, "pub enum ", " {"))
            .or_else(|| line.strip_suffix(" {").filter(|name| is_word(name)))
        {
            let new = Type {
                words: std::mem::take(&mut words),
                items: Vec::new(),
            };
            open = Some((name.to_owned(), new));
        } else if let Some((name, type_name)) = line
            .strip_prefix("pub ")
            .and_then(|rest| rest.strip_suffix(',')?.split_once(": "))
            // In a macro it has no name yet.
            .filter(|(name, _)| !name.starts_with('$'))
        {
            let name = rename.take().unwrap_or_else(|| name.to_owned());
            add(&mut open, name, type_name, &mut words);
            if let Some(item) = open.as_mut().and_then(|(_, open)| open.items.last_mut()) {
                item.flat = std::mem::take(&mut flat);
            }
        } else if let Some((_, word)) = line.strip_suffix("\",").and_then(|l| l.split_once(" = \""))
        {
            add(&mut open, word.to_owned(), "", &mut words);
        } else if let Some(name) = line.strip_suffix(',').filter(|name| is_word(name)) {
            add(&mut open, kebab(name), "", &mut words);
        } else if line == "}" || line == "}," {
            // What has no described items is a value of the type, in the code of a function.
            if let Some((name, done)) = open.take()
                && !done.items.is_empty()
            {
                found.insert(name, done);
            }
        } else if !line.starts_with("#[") {
            words.clear();
        }
    }
}

fn add(open: &mut Option<(String, Type)>, name: String, type_name: &str, words: &mut String) {
    if let Some((_, open)) = open {
        open.items.push(Item {
            name,
            type_name: type_name.to_owned(),
            words: std::mem::take(words),
            flat: false,
        });
    }
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix(end)
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(char::is_alphanumeric)
}

/// As serde does it: `FalseSharing` becomes `false-sharing`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// What a Rust type is in JSON, and the types of ours that it names.
fn json_type(rust: &str, found: &HashMap<String, Type>) -> (String, Option<String>) {
    if let Some(inner) = between(rust, "Option<", ">") {
        let (words, named) = json_type(inner, found);
        return (format!("{words} or `null`"), named);
    }
    if let Some(inner) = between(rust, "Vec<", ">") {
        let (words, named) = json_type(inner, found);
        return (format!("array of {words}"), named);
    }
    if let Some(inner) = between(rust, "std::collections::BTreeMap<String, ", ">") {
        let (words, named) = json_type(inner, found);
        return (format!("object: {words} for each name"), named);
    }
    let name = rust.rsplit("::").next().unwrap_or(rust);
    match name {
        "String" => ("string".to_owned(), None),
        "bool" => ("boolean".to_owned(), None),
        "f64" => ("number".to_owned(), None),
        "u8" | "u32" | "u64" | "i32" | "i64" => ("integer".to_owned(), None),
        name => {
            assert!(found.contains_key(name), "{name} is documented nowhere");
            (
                format!("[{name}](#{})", name.to_lowercase()),
                Some(name.to_owned()),
            )
        }
    }
}

/// Turns links to items into plain code, for there is nothing to link to.
fn plain(words: &str) -> String {
    words
        .replace("[`SCHEMA`]", "The version of this interface: 1")
        .replace("[`DIFF_SCHEMA`]", "The version of this interface: 1")
        .replace("[`GROUPS_SCHEMA`]", "The version of this interface: 1")
        .replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|")
}

/// The items of a type, those of flat ones in their places.
fn items_of(described: &Type, found: &HashMap<String, Type>) -> Vec<Item> {
    let mut items = Vec::new();
    for item in &described.items {
        match item.flat {
            true => items.extend(items_of(&found[&item.type_name], found)),
            false => items.push(item.clone()),
        }
    }
    items
}

/// The page about the type `root` of these sources and all that it is made of. Of types of one name the last counts.
fn document(introduction: &str, root: &str, sources: &[&str]) -> String {
    let mut found = HashMap::new();
    for source in sources {
        types(source, &mut found);
    }
    let mut out = introduction.to_owned();
    let mut queue = vec![root.to_owned()];
    let mut at = 0;
    while at < queue.len() {
        let name = queue[at].clone();
        at += 1;
        let described = &found[&name];
        let _ = write!(out, "\n## {name}\n\n{}\n\n", plain(&described.words));
        assert!(!described.items.is_empty(), "{name} has no fields");
        if described.items.iter().all(|item| item.type_name.is_empty()) {
            out.push_str("| value | meaning |\n|---|---|\n");
            for item in &described.items {
                let _ = writeln!(out, "| `\"{}\"` | {} |", item.name, plain(&item.words));
            }
            continue;
        }
        out.push_str("| field | type | meaning |\n|---|---|---|\n");
        for item in &items_of(described, &found) {
            assert!(
                !item.words.is_empty(),
                "{name}.{} is not described",
                item.name
            );
            let (words, named) = json_type(&item.type_name, &found);
            let _ = writeln!(
                out,
                "| `{}` | {words} | {} |",
                item.name,
                plain(&item.words)
            );
            queue.extend(named.filter(|named| !queue.contains(named)));
        }
    }
    out
}

/// Asserts that the page in `docs` is this one, or writes it if asked to.
fn assert_is(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).expect("a page in docs can be written");
    }
    let actual = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "docs/{name} is out of date; to write it anew: \
         UPDATE_DOCS=1 cargo test -p linewise-analysis --test report_json_doc"
    );
}

#[test]
fn the_page_about_the_json_report_says_what_the_source_says() {
    let views = views();
    let mut sources = vec![VALUES, RUN];
    sources.extend(views.iter().map(String::as_str));
    sources.extend([QUANTITY, MODEL]);
    assert_is(
        "report-json.md",
        &document(INTRODUCTION, "Report", &sources),
    );
}

#[test]
fn the_page_about_the_json_of_groups_says_what_the_source_says() {
    let views = views();
    let mut sources = vec![VALUES];
    sources.extend(views.iter().map(String::as_str));
    sources.push(QUANTITY);
    assert_is(
        "groups-json.md",
        &document(GROUPS_INTRODUCTION, "ThreadGroups", &sources),
    );
}

#[test]
fn the_page_about_the_json_of_a_comparison_says_what_the_source_says() {
    let sources = [VALUES, QUANTITY, DIFF_ESTIMATE, DIFF];
    assert_is(
        "diff-json.md",
        &document(DIFF_INTRODUCTION, "Diff", &sources),
    );
}
