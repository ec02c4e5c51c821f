//! The text files of the project.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold nothing of ours, or nothing that is written by hand.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "build", ".venv"];

/// A text file of the project.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

pub(super) fn read_files(root: &Path) -> anyhow::Result<Vec<File>> {
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
