//! What of a recording could not be read.

use std::path::PathBuf;

/// A file of a recording that could not be read; the rest of the recording could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The table whose rows it held.
    pub table: &'static str,
    /// What is wrong with it.
    pub reason: String,
}
