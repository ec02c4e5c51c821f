//! What `cargo metadata` says, cut down to what the checks need.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The workspace and everything below it.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Every package of the dependency graph.
    pub packages: Vec<Package>,
}

/// One package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    /// Where it comes from; `None` for members of the workspace.
    pub source: Option<String>,
    /// Its manifest, where its sources are.
    #[serde(default)]
    pub manifest_path: String,
    /// What its manifest asks for.
    pub dependencies: Vec<Dependency>,
}

/// A dependency as a manifest states it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The package.
    pub name: String,
    /// The version requirement.
    pub req: String,
    /// `None` is a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// Set for dependencies on a folder.
    pub path: Option<String>,
}

/// The cargo that runs us, else the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Metadata {
    /// Asks cargo about the workspace at `root`, as locked, for the platforms that linewise runs on.
    ///
    /// # Errors
    /// If cargo fails (most often because Cargo.lock does not fit the manifests).
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .args(["--filter-platform", "aarch64-unknown-linux-gnu"])
            .current_dir(root)
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata printed")
    }

    /// The members of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.source.is_none())
    }

    /// Everything that comes from outside.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.source.is_some())
    }
}
