//! `cargo xtask header`: the C headers of `crates/delegate-c` and `crates/fibres-c`, made by cbindgen from their
//! sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Crates and their headers.
const HEADERS: &[(&str, &str)] = &[
    ("crates/delegate-c", "include/linewise_delegate.h"),
    ("crates/fibres-c", "include/linewise_fibres.h"),
];

/// Writes the headers.
///
/// # Errors
/// If cbindgen is missing or does not understand the sources.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    for (folder, header) in HEADERS {
        write(&root.join(folder), header)?;
    }
    Ok(true)
}

fn write(folder: &Path, header: &str) -> anyhow::Result<()> {
    let header = folder.join(header);
    let output = Command::new("cbindgen")
        .arg("--quiet")
        .arg("--config")
        .arg(folder.join("cbindgen.toml"))
        .arg("--output")
        .arg(&header)
        .arg(folder)
        .output()
        .context("cannot run cbindgen; install it: apt-get install cbindgen")?;
    ensure!(
        output.status.success(),
        "cbindgen failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    println!("header: {}", header.display());
    Ok(())
}
