//! Which process is whose: two placers with journals of their own would each take the other's masks for what was before.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use linewise_machine::process;

use super::journal::libc_flags;

/// A claim says no more than the number of who holds it, bytes.
const LONGEST: u64 = 32;

/// What became of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The process is ours to place.
    Ours,
    /// Another placer has it: its number, where that is known.
    Theirs(Option<u32>),
}

/// The processes that this placer has for its own: a locked file of each, in the folder that all placers of a user have in
/// common. The kernel unlocks them at our end, however it comes.
#[derive(Debug)]
pub(super) struct Claims {
    folder: PathBuf,
    held: BTreeMap<(u32, u64), (File, PathBuf)>,
}

impl Claims {
    /// None yet, in `folder`.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            held: BTreeMap::new(),
        }
    }

    /// Takes a process, known by its number and start.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn take(&mut self, pid: u32, start: u64) -> anyhow::Result<Claim> {
        if self.held.contains_key(&(pid, start)) {
            return Ok(Claim::Ours);
        }
        let path = self.folder.join(format!("process-{pid}-{start}"));
        let shown = path.display();
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o600);
            let file = options.custom_flags(libc_flags()).open(&path);
            let mut file = file.with_context(|| format!("cannot open {shown}"))?;
            if !process::try_lock(&file).with_context(|| format!("cannot lock {shown}"))? {
                return Ok(Claim::Theirs(holder(&path)));
            }
            // Who had it may have removed the file since it was opened.
            let is_there = fs::symlink_metadata(&path).map(|it| it.ino()).ok();
            if is_there != file.metadata().map(|it| it.ino()).ok() {
                continue;
            }
            let own = format!("{}\n", std::process::id());
            // The number is only for the words of others.
            let _ = file.set_len(0).and_then(|()| file.rewind());
            let _ = file.write_all(own.as_bytes());
            self.held.insert((pid, start), (file, path));
            return Ok(Claim::Ours);
        }
    }

    /// Lets go of processes that have ended.
    pub(super) fn forget(&mut self, lives: impl Fn(u32, u64) -> bool) {
        self.held.retain(|&(pid, start), (_locked, path)| {
            let is_kept = lives(pid, start);
            if !is_kept {
                let _ = fs::remove_file(path);
            }
            is_kept
        });
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.forget(|_, _| false);
    }
}

/// The processes of `folder` that live and whose placer was killed; the files of those that have ended are removed.
pub(super) fn left_by_killed(folder: &Path, lives: impl Fn(u32, u64) -> bool) -> Vec<u32> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut left: Vec<u32> = files
        .filter_map(|file| {
            let name = file.file_name();
            let (pid, start) = name.to_str()?.strip_prefix("process-")?.split_once('-')?;
            let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
            let mut options = OpenOptions::new();
            let claim = options.write(true).custom_flags(libc_flags());
            let claim = claim.open(file.path()).ok()?;
            if !process::try_lock(&claim).ok()? {
                return None;
            }
            if !lives(pid, start) {
                let _ = fs::remove_file(file.path());
                return None;
            }
            Some(pid)
        })
        .collect();
    left.sort_unstable();
    left
}

/// Who has a process, in words.
pub(super) fn placed_by(process: u32, holder: Option<u32>) -> String {
    let who = holder.map_or(String::new(), |pid| format!(" (pid {pid})"));
    format!("another `linewise place`{who} places process {process}")
}

/// Who wrote that a process is its own.
fn holder(path: &Path) -> Option<u32> {
    let text = linewise_foreign::read(path, LONGEST).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_placer_at_a_time_and_is_free_when_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let claims = || Claims::new(folder.path().to_owned());
        let (mut first, mut second) = (claims(), claims());
        assert_eq!(first.take(10, 1).unwrap(), Claim::Ours);
        assert_eq!(first.take(10, 1).unwrap(), Claim::Ours);
        let own = std::process::id();
        assert_eq!(second.take(10, 1).unwrap(), Claim::Theirs(Some(own)));
        // The number may be another process's by now.
        assert_eq!(second.take(10, 2).unwrap(), Claim::Ours);
        drop(first);
        assert_eq!(second.take(10, 1).unwrap(), Claim::Ours);
        second.forget(|_, start| start == 1);
        assert_eq!(claims().take(10, 2).unwrap(), Claim::Ours);
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn processes_whose_placer_was_killed_are_known_by_what_it_left() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "process-10-1",
            "process-11-1",
            "process-12-x",
            "place.journal",
        ] {
            fs::write(folder.path().join(name), "9\n").unwrap();
        }
        let mut at_work = Claims::new(folder.path().to_owned());
        assert_eq!(at_work.take(13, 1).unwrap(), Claim::Ours);
        let left = left_by_killed(folder.path(), |pid, _| pid != 11);
        assert_eq!(left, [10]);
        assert!(!folder.path().join("process-11-1").exists());
        assert!(folder.path().join("process-13-1").exists());
    }

    #[test]
    fn what_a_killed_placer_left_holds_nobody_up_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("process-10-1"), "123456789\n").unwrap();
        let mut claims = Claims::new(folder.path().to_owned());
        assert_eq!(claims.take(10, 1).unwrap(), Claim::Ours);
        let other = folder.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("process-11-1")).unwrap();
        assert!(claims.take(11, 1).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }
}
