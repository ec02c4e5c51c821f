//! The modes in which a program runs under linewise.

use std::path::PathBuf;

use anyhow::bail;

use super::process::tool;

/// A way to be run under linewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `linewise run`
    Run,
    /// `linewise record --heap on`
    Record,
    /// `linewise record --pid --heap auto`
    Pid,
    /// `linewise run --source exact`
    Exact,
}

impl Mode {
    pub(super) const ALL: [Self; 4] = [Self::Run, Self::Record, Self::Pid, Self::Exact];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Record => "record",
            Self::Pid => "pid",
            Self::Exact => "exact",
        }
    }

    /// The mode of that name.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        match Self::ALL.into_iter().find(|mode| mode.name() == name) {
            Some(mode) => Ok(mode),
            None => bail!("{name} is no mode: run, record, pid, exact"),
        }
    }

    /// Why it cannot be had here, if so.
    pub(super) fn missing(self) -> Option<String> {
        (self == Self::Exact && qemu().is_none()).then(|| "no qemu-user".to_owned())
    }
}

pub(super) fn qemu() -> Option<PathBuf> {
    tool(&format!("qemu-{}", std::env::consts::ARCH))
}
