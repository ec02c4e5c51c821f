//! What the exact source needs on this machine, and whether it is there.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ExactError;
use super::launch::find_plugin;

/// The plugin that linewise would use: beside its binary, in `../lib/linewise`, or where
/// `LINEWISE_TRACER` says.
///
/// # Errors
/// [`ExactError::NoPlugin`] when it is not there.
pub fn plugin() -> Result<PathBuf, ExactError> {
    find_plugin()
}

/// Descriptors that a recording opens at a time, and some more.
const DESCRIPTORS: usize = 16;

/// Whether there are descriptors enough: asked before all else, since later it is anybody's who opens one.
///
/// # Errors
/// [`ExactError::Descriptors`].
pub fn check_descriptors() -> Result<(), ExactError> {
    let input = io::stdin();
    let opened: Vec<_> = (0..DESCRIPTORS)
        .map_while(|_| input.as_fd().try_clone_to_owned().ok())
        .collect();
    match opened.len() == DESCRIPTORS {
        true => Ok(()),
        false => Err(ExactError::Descriptors(DESCRIPTORS)),
    }
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
