//! `cargo xtask header`: the C header of `crates/delegate-c`, made by cbindgen from its sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Writes the header.
///
/// # Errors
/// If cbindgen is missing or does not understand the sources.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let folder = root.join("crates/delegate-c");
    let header = folder.join("include/linewise_delegate.h");
    let output = Command::new("cbindgen")
        .arg("--quiet")
        .arg("--config")
        .arg(folder.join("cbindgen.toml"))
        .arg("--output")
        .arg(&header)
        .arg(&folder)
        .output()
        .context("cannot run cbindgen; install it: apt-get install cbindgen")?;
    ensure!(
        output.status.success(),
        "cbindgen failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    println!("header: {}", header.display());
    Ok(true)
}
