//! `cargo xtask tidy`: the rules of the house that the compiler does not know.

mod arrows;
mod circles;
mod documents;
mod modules;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Problem;
use crate::metadata::Metadata;

/// Folders that hold nothing of ours, or nothing that is written by hand.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "build", ".venv"];

/// A text file of the project.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Checks the workspace at `root`.
///
/// # Errors
/// If a file cannot be read or linewise cannot be built.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<Problem>> {
    let files = read_files(root)?;
    let mut problems = Vec::new();
    for file in &files {
        problems.extend(sources::problems(file));
    }
    problems.extend(arrows::problems(&Metadata::read(root)?));
    problems.extend(circles::problems(&files)?);
    problems.extend(documents::problems(root, &files)?);
    Ok(problems)
}

fn read_files(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let name = name.to_string_lossy();
                if !SKIPPED.contains(&name.as_ref()) && !name.ends_with(".linewise") {
                    folders.push(entry.path());
                }
            } else if kind.is_file() {
                // What is no UTF-8 is a picture or a recording, and no rule speaks of those.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    files.push(File {
                        path: relative(root, &entry.path()),
                        text,
                    });
                }
            }
        }
    }
    Ok(files)
}

fn relative(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).unwrap_or(path).to_owned();
    path.to_string_lossy().into_owned()
}
