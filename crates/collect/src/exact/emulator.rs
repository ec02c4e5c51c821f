//! What the exact source needs on this machine, and whether it is there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ExactError;
use super::launch::{Guest, find_plugin, on_path};

/// What runs programs of this machine's own architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The emulator and its version: `qemu-x86_64 7.2.22`.
    pub emulator: String,
    /// The plugin.
    pub plugin: PathBuf,
}

/// Finds the emulator for programs of this machine's architecture, and the plugin.
///
/// # Errors
/// [`ExactError::NoQemu`], [`ExactError::NoPlugin`]; [`ExactError::Architecture`] on a machine whose
/// own programs the tracer does not know.
pub fn readiness() -> Result<Readiness, ExactError> {
    let guest = Guest::native().ok_or_else(|| ExactError::Architecture {
        program: "programs of this machine".to_owned(),
        machine: 0,
    })?;
    let name = guest.qemu();
    let qemu = on_path(name.as_ref()).ok_or(ExactError::NoQemu { name })?;
    Ok(Readiness {
        emulator: version(&qemu),
        plugin: find_plugin()?,
    })
}

/// An emulator's name with the version that it tells; the name alone if it tells none.
pub(super) fn version(qemu: &Path) -> String {
    let name = qemu
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let told = Command::new(qemu)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let number = told.as_deref().and_then(|text| {
        let (_, rest) = text.split_once("version ")?;
        rest.split_whitespace().next()
    });
    match number {
        Some(number) => format!("{name} {number}"),
        None => name,
    }
}
