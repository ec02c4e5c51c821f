//! For the tests of a face: whether its committed header is that of its sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Words that follow `before` and begin with `prefix`.
fn names(text: &str, before: &str, prefix: &str) -> BTreeSet<String> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            Some(rest[..end].to_owned())
        })
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Without what versions of cbindgen lay out differently.
fn essence(header: &str) -> String {
    let lines = header
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.flat_map(str::split_whitespace).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every function and every code of the sources in `folder` is in `header`, whose guard is `guard`.
///
/// # Panics
/// If one is missing.
pub fn has_all(folder: &Path, header: &str, guard: &str) {
    let mut sources = String::new();
    for entry in fs::read_dir(folder.join("src")).expect("the sources are there") {
        sources += &read(&entry.expect("a file").path());
    }
    let header = read(&folder.join(header));
    let functions = names(&sources, "extern \"C\" fn ", "linewise_");
    assert!(functions.len() >= 15, "{functions:?}");
    for name in &functions {
        assert!(header.contains(&format!("{name}(")), "{name} is missing");
    }
    let constants = names(&sources, "pub const ", "LINEWISE_");
    assert_eq!(constants, {
        let mut defined = names(&header, "#define ", "LINEWISE_");
        defined.remove(guard);
        defined
    });
}

/// The header is what cbindgen makes of the sources in `folder`, if that is installed.
///
/// # Panics
/// If it is not.
pub fn is_made(folder: &Path, header: &str) {
    let made = Command::new("cbindgen")
        .arg("--quiet")
        .arg("--config")
        .arg(folder.join("cbindgen.toml"))
        .arg(folder)
        .output();
    let Ok(made) = made else {
        eprintln!("skip: cbindgen is not installed");
        return;
    };
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let made = String::from_utf8(made.stdout).expect("a header is text");
    assert_eq!(
        essence(&read(&folder.join(header))),
        essence(&made),
        "the header is old; run `cargo xtask header`"
    );
}
