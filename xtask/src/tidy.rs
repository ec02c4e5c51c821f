//! `cargo xtask tidy`: the rules of the house that the compiler does not know.

mod arrows;
mod circles;
mod documents;
mod files;
mod modules;
mod sources;

use std::path::Path;

use crate::metadata::Metadata;
use crate::problem::Problem;

/// Checks the workspace at `root`.
///
/// # Errors
/// If a file cannot be read or linewise cannot be built.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<Problem>> {
    let files = files::read_files(root)?;
    let mut problems = Vec::new();
    for file in &files {
        problems.extend(sources::problems(file));
    }
    problems.extend(arrows::problems(&Metadata::read(root)?));
    problems.extend(circles::problems(&files)?);
    problems.extend(documents::problems(root, &files)?);
    Ok(problems)
}
