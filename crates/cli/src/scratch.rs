//! The folder for a recording that nobody keeps.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use linewise_machine::process;

/// A folder that goes away with its owner. An owner that is killed leaves it to the next one.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    /// Open for as long as the owner lives: its lock says so to who cannot see the owner, in another
    /// container for one.
    _lock: File,
}

impl Scratch {
    /// Makes the folder in the one for temporary files, where it also removes what killed owners left.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let base = std::env::temp_dir();
        remove_leftovers(&base);
        let make = |path: &Path| -> io::Result<File> {
            fs::create_dir(path)?;
            let lock = File::open(path)?;
            // A file system without locks has none to keep.
            let _ = process::try_lock(&lock);
            Ok(lock)
        };
        for attempt in 0..100u32 {
            let path = base.join(format!("linewise-{}-{attempt}", std::process::id()));
            match make(&path) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot make a folder in {} for the recording; set TMPDIR, or keep it elsewhere with --output", base.display())
                    });
                }
            }
        }
        anyhow::bail!(
            "cannot find a free name for the recording in {}",
            base.display()
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: the next one removes what is left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of killed owners: of our name, of this user, whose owner is neither to be
/// seen nor holds its lock. Best effort: what cannot be removed harms nobody.
fn remove_leftovers(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(owner) = entry.file_name().to_str().and_then(owner) else {
            continue;
        };
        // Not what a link leads to: that is not ours.
        let ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_dir() && found.uid() == process::effective_user());
        if !ours || process::exists(owner) {
            continue;
        }
        if let Ok(folder) = File::open(&path)
            && process::try_lock(&folder).unwrap_or(true)
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The process that a folder was made by, if it has the name of one.
fn owner(name: &str) -> Option<u32> {
    let (owner, attempt) = name.strip_prefix("linewise-")?.split_once('-')?;
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    number(attempt)?;
    number(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_making_have_an_owner() {
        assert_eq!(owner("linewise-77-0"), Some(77));
        for foreign in [
            "linewise-77",
            "linewise-77-0-x",
            "linewise-+77-0",
            "linewise--0",
            "linewise-77-",
            "linewise-test-0",
            "x-linewise-77-0",
            "linewise-99999999999-0",
        ] {
            assert_eq!(owner(foreign), None, "{foreign}");
        }
    }
}
