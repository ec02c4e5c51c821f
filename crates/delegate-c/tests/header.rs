//! The committed header is that of the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn committed() -> String {
    fs::read_to_string(here("include/linewise_delegate.h")).expect("the header is committed")
}

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

#[test]
fn every_function_and_every_code_of_the_sources_is_in_the_header() {
    let mut sources = String::new();
    for entry in fs::read_dir(here("src")).expect("the sources are there") {
        sources += &fs::read_to_string(entry.expect("a file").path()).expect("text");
    }
    let header = committed();
    let functions = names(&sources, "extern \"C\" fn ", "linewise_");
    assert!(functions.len() >= 15, "{functions:?}");
    for name in &functions {
        assert!(header.contains(&format!("{name}(")), "{name} is missing");
    }
    let constants = names(&sources, "pub const ", "LINEWISE_");
    assert_eq!(constants, {
        let mut defined = names(&header, "#define ", "LINEWISE_");
        defined.remove("LINEWISE_DELEGATE_H");
        defined
    });
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    let made = Command::new("cbindgen")
        .arg("--quiet")
        .arg("--config")
        .arg(here("cbindgen.toml"))
        .arg(here("."))
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
        essence(&committed()),
        essence(&made),
        "the header is old; run `cargo xtask header`"
    );
}
