//! Rules about single files: length, `unsafe`, backward `use`, stray words.

use super::files::File;
use crate::problem::Problem;

/// The most lines of a file written by hand.
const MOST_LINES: usize = 800;
/// Kinds of files that are written by hand.
const BY_HAND: &[&str] = &[
    "rs", "c", "h", "cpp", "go", "js", "mjs", "css", "html", "py", "sh", "md", "toml",
];

/// The only places that may open `unsafe`: the door to the kernel, what is loaded into a stranger's
/// process, the runtime whose threads hand memory to each other, and the benchmarks of fibres.
const UNSAFE_PLACES: &[&str] = &[
    "crates/machine/",
    "crates/tracer/",
    "crates/heap/",
    "crates/preload/",
    "crates/mark/",
    "crates/delegate/",
    "crates/delegate-c/",
    "crates/edge/",
    "crates/fibres/",
    "crates/fibres-c/",
    "crates/bench/src/accesstest/fibres.rs",
    "crates/bench/src/fetch_add/fibres.rs",
    "crates/bench/src/fibres.rs",
];
/// Where the rule about `unsafe` holds; programs under test may do what users do.
const OURS: &[&str] = &["crates/", "xtask/"];

/// The rooms of the analysis, lowest first: each may use those before it.
const ROOMS: &[&str] = &["resolve", "views", "advice", "details", "report"];
const ANALYSIS: &str = "crates/analysis/src/";

/// Where files and names of strangers are met, and what may not stand there outside of tests: words of the code, and what
/// to take instead.
const STRANGERS: &[(&[&str], &[&str], &str)] = &[
    (
        &[
            "crates/analysis/src/",
            "crates/collect/src/",
            "crates/trace/src/",
            "crates/recording/src/",
            "crates/cli/src/",
        ],
        &["File::open(", "fs::read(", "fs::read_to_string("],
        "may wait for a pipe or open a device; take linewise_foreign",
    ),
    (
        &["crates/cli/src/"],
        &["eprintln!(", "eprint!("],
        "lets the terminal obey what it prints; take say.rs",
    ),
    (
        &["crates/analysis/src/report/html/"],
        &["PreEscaped(", "fn render_to("],
        "puts text into the page that nothing escapes; take html!",
    ),
];
/// Files that meet nobody's but our own and the kernel's.
const AT_HOME: &[&str] = &[
    "crates/cli/src/bench/",
    "crates/analysis/src/resolve/files.rs",
    "crates/analysis/src/report/html/document.rs",
];

/// Marks of unfinished work and of somebody's own machine, split so that this file has none.
const STRAY: &[(&str, &str, &str)] = &[
    ("TO", "DO", "unfinished work; finish it or leave it out"),
    ("FIX", "ME", "unfinished work; finish it or leave it out"),
    ("/wo", "rk/", "a path of one machine; use a relative one"),
    ("/ro", "ot/", "a path of one machine; use a relative one"),
];

/// What is wrong with `file`.
pub(super) fn problems(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(too_long(file));
    if file.path.ends_with(".rs") {
        problems.extend(opens_unsafe(file));
        problems.extend(looks_back(file));
        problems.extend(trusts_strangers(file));
    }
    problems.extend(stray(file));
    problems
}

/// What a document says that is derived from the source, and checked against it by a test.
const DERIVED: &str = "This page is derived from the source";

fn too_long(file: &File) -> Option<Problem> {
    let kind = file.path.rsplit('.').next().unwrap_or_default();
    let lines = file.text.lines().count();
    let by_hand = BY_HAND.contains(&kind) && !(kind == "md" && file.text.contains(DERIVED));
    (by_hand && lines > MOST_LINES).then(|| {
        Problem::new(
            &file.path,
            format!("{lines} lines are more than {MOST_LINES}; split it by noun"),
        )
    })
}

/// The code of a line: without a line comment and without what stands in double quotes.
fn code(line: &str) -> String {
    let mut code = String::new();
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => {
                characters.next();
            }
            '"' => quoted = !quoted,
            '/' if !quoted && characters.peek() == Some(&'/') => break,
            _ if !quoted => code.push(character),
            _ => {}
        }
    }
    code
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
}

fn opens_unsafe(file: &File) -> Vec<Problem> {
    let lies_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    if !lies_in(OURS) || lies_in(UNSAFE_PLACES) {
        return Vec::new();
    }
    file.text
        .lines()
        .enumerate()
        .filter(|(_, line)| words(&code(line)).any(|word| word == "unsafe"))
        .map(|(number, _)| {
            Problem::new(
                format!("{}:{}", file.path, number + 1),
                format!(
                    "`unsafe` outside {}; put a safe function there",
                    UNSAFE_PLACES.join(", ")
                ),
            )
        })
        .collect()
}

/// A file opened or a message printed past the doors for what strangers name.
fn trusts_strangers(file: &File) -> Vec<Problem> {
    let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
    let lies_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    if is_test || lies_in(AT_HOME) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let lines = file.text.lines().enumerate();
    for (number, line) in lines.take_while(|(_, line)| *line != "#[cfg(test)]") {
        let code = code(line);
        for (folders, words, instead) in STRANGERS {
            if let Some(word) = words.iter().find(|word| code.contains(**word))
                && lies_in(folders)
            {
                problems.push(Problem::new(
                    format!("{}:{}", file.path, number + 1),
                    format!("`{word}` {instead}"),
                ));
            }
        }
    }
    problems
}

/// A `use` of a later room in an earlier one.
fn looks_back(file: &File) -> Vec<Problem> {
    let Some(inside) = file.path.strip_prefix(ANALYSIS) else {
        return Vec::new();
    };
    let room = inside.split(['/', '.']).next().unwrap_or_default();
    let Some(floor) = ROOMS.iter().position(|known| *known == room) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let code = code(line);
        for later in &ROOMS[floor + 1..] {
            let reached = paths_into(later).iter().any(|path| code.contains(path));
            if reached {
                problems.push(Problem::new(
                    format!("{}:{}", file.path, number + 1),
                    format!("{room} uses {later}, which comes after it; turn the arrow around"),
                ));
            }
        }
    }
    problems
}

fn paths_into(room: &str) -> [String; 4] {
    [
        format!("crate::{room}::"),
        format!("crate::{room};"),
        format!("crate::{{{room}"),
        format!("super::{room}::"),
    ]
}

fn stray(file: &File) -> Vec<Problem> {
    // Lock files quote other people's addresses; licences are other people's words.
    if file.path.ends_with("lock") || file.path.ends_with("lock.json") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (head, tail, what) in STRAY {
            let word = format!("{head}{tail}");
            if line.contains(&word) {
                problems.push(Problem::new(
                    format!("{}:{}", file.path, number + 1),
                    format!("`{word}`: {what}"),
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_source_of_801_lines_is_too_long_and_a_table_of_data_is_not() {
        let long = "x\n".repeat(801);
        assert!(too_long(&file("a.rs", &long)).is_some());
        assert!(too_long(&file("a.rs", &"x\n".repeat(800))).is_none());
        assert!(too_long(&file("a.json", &long)).is_none());
        let derived = format!("{DERIVED}; see a.rs.\n{long}");
        assert!(too_long(&file("a.md", &derived)).is_none());
        assert!(too_long(&file("a.rs", &derived)).is_some());
    }

    #[test]
    fn unsafe_is_seen_in_code_and_not_in_words_about_it() {
        let text = "// unsafe here\n#![forbid(unsafe_code)]\nlet x = \"unsafe\";\nunsafe { f() }\n";
        let found = opens_unsafe(&file("crates/cli/src/main.rs", text));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "crates/cli/src/main.rs:4");
        assert_eq!(opens_unsafe(&file("crates/machine/src/perf.rs", text)), []);
        assert_eq!(opens_unsafe(&file("fixtures/programs/a.rs", text)), []);
    }

    #[test]
    fn files_and_names_of_strangers_have_one_door_outside_of_tests() {
        let text = "fn f() {\n    File::open(path);\n    eprintln!(\"{name}\");\n}\n#[cfg(test)]\nfs::read(path);\n";
        let found = |path: &str| trusts_strangers(&file(path, text)).len();
        assert_eq!(found("crates/cli/src/report.rs"), 2);
        assert_eq!(found("crates/collect/src/code.rs"), 1);
        assert_eq!(found("crates/collect/src/sources/exact/tests/kinds.rs"), 0);
        assert_eq!(found("crates/machine/src/procfs.rs"), 0);
        let markup = file(
            "crates/analysis/src/report/html/types.rs",
            "(PreEscaped(name))",
        );
        assert_eq!(trusts_strangers(&markup).len(), 1);
    }

    #[test]
    fn a_room_may_use_earlier_rooms_only() {
        let views = "crates/analysis/src/views/sharing.rs";
        assert_eq!(looks_back(&file(views, "use crate::resolve::Access;")), []);
        for backward in [
            "use crate::advice::Finding;",
            "use crate::report;",
            "use crate::{report, resolve};",
            "fn f() { crate::report::render() }",
        ] {
            assert_eq!(looks_back(&file(views, backward)).len(), 1, "{backward}");
        }
        let report = "crates/analysis/src/report/html.rs";
        assert_eq!(looks_back(&file(report, "use crate::advice::x;")), []);
    }

    #[test]
    fn a_path_of_one_machine_is_stray_except_in_a_lock_file() {
        let path = ["/ro", "ot/somewhere"].concat();
        assert_eq!(stray(&file("README.md", &path)).len(), 1);
        assert_eq!(stray(&file("Cargo.lock", &path)), []);
    }
}
