//! The folder for a recording that nobody keeps.
//!
//! Its name says only what it could be; a file in it, the mark, says that it is one of ours and whose.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use linewise_machine::{process, procfs};
use linewise_recording::{Error, Folder};

/// The file that tells a folder of ours from one that has such a name.
const MARK: &str = ".linewise-scratch";
/// What the mark begins with.
const MARK_TITLE: &str = "linewise scratch folder";
/// A mark is no longer than this, bytes.
const MARK_BYTES: u64 = 256;

/// A folder that goes away with its owner. An owner that is killed leaves it to the next one.
pub(crate) struct Scratch(Arc<ScratchFolder>);

/// Where a scratch folder is: for who removes it although its owner may be at work.
pub(crate) struct ScratchFolder {
    around: Folder,
    name: OsString,
    folder: Folder,
    /// Held for as long as the owner lives: says so to who cannot see the owner, in another container for
    /// one.
    _lock: Option<File>,
}

impl Scratch {
    /// Makes the folder in the one for temporary files, where it also removes what killed owners left.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let base = std::env::temp_dir();
        remove_leftovers(&base);
        Self::make(&base).with_context(|| {
            format!(
                "cannot make a folder in {} for the recording; TMPDIR names another",
                base.display()
            )
        })
    }

    fn make(base: &Path) -> anyhow::Result<Self> {
        for attempt in 0..100u32 {
            let name = format!("linewise-{}-{attempt}", std::process::id());
            let (around, name) = Folder::around(&base.join(name))?;
            let folder = match around.make(&name) {
                Ok(folder) => folder,
                Err(Error::Write { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists =>
                {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let lock = lock(&folder);
            // From here on it is removed also when it cannot be marked, on a full disk for one.
            let scratch = Self(Arc::new(ScratchFolder {
                around,
                name,
                folder,
                _lock: lock,
            }));
            let mut mark = scratch.0.folder.make_file(OsStr::new(MARK), 0o600)?;
            let own = Mark::of(std::process::id()).context("/proc does not tell of linewise")?;
            mark.write_all(own.to_text().as_bytes())
                .context("cannot write its mark")?;
            return Ok(scratch);
        }
        anyhow::bail!("no name is free");
    }

    /// The folder.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.folder.path().to_owned()
    }

    /// For who ends this process before its owner can.
    pub(crate) fn place(&self) -> Arc<ScratchFolder> {
        Arc::clone(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next one removes what is left.
        let _ = self.0.remove();
    }
}

impl ScratchFolder {
    /// Removes the folder with all that is in it.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        remove(&self.around, &self.name, &self.folder)
    }
}

/// The mark goes last: what is left of a folder can still be told.
fn remove(around: &Folder, name: &OsStr, folder: &Folder) -> Result<(), Error> {
    folder.remove_all_but(Some(OsStr::new(MARK)))?;
    folder.remove_file(OsStr::new(MARK))?;
    around.remove_folder(name)
}

/// Takes the lock of a folder; none where somebody has it. A file system without locks has none to keep.
fn lock(folder: &Folder) -> Option<File> {
    let own = File::from(folder.as_fd().try_clone_to_owned().ok()?);
    process::try_lock(&own).unwrap_or(true).then_some(own)
}

/// Whose a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    pid: u32,
    /// When that process started: another may have its number by now.
    started: u64,
}

impl Mark {
    fn of(pid: u32) -> Option<Self> {
        let started = procfs::started(pid)?;
        Some(Self { pid, started })
    }

    fn to_text(self) -> String {
        format!("{MARK_TITLE}\n{} {}\n", self.pid, self.started)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.strip_prefix(MARK_TITLE)?.strip_prefix('\n')?;
        let (pid, started) = line.strip_suffix('\n')?.split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// The mark in a folder: a file that nobody else could have written.
    fn read(folder: &Folder) -> Option<Self> {
        let name = OsStr::new(MARK);
        if !folder.itself().ok()?.is_private() {
            return None;
        }
        let found = folder.look(name).ok()??;
        if !found.is_file() || !found.is_private() {
            return None;
        }
        let mut text = String::new();
        let file = folder.open_file(name).ok()?;
        file.take(MARK_BYTES).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    /// Whether the owner is to be seen. One of whom nothing is told could be.
    fn lives(self) -> bool {
        process::exists(self.pid) && procfs::started(self.pid).is_none_or(|at| at == self.started)
    }
}

/// Removes the folders of killed owners: of this user, of our name and with our mark, whose owner is neither
/// to be seen nor holds its lock. Best effort: what cannot be removed harms nobody.
fn remove_leftovers(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if !is_our_name(&entry.file_name()) {
            continue;
        }
        let Ok((around, name)) = Folder::around(&entry.path()) else {
            continue;
        };
        // Not what a link leads to: that is not ours.
        let Ok(folder) = around.enter(&name) else {
            continue;
        };
        if Mark::read(&folder).is_some_and(|mark| !mark.lives())
            && let Some(_lock) = lock(&folder)
        {
            let _ = remove(&around, &name, &folder);
        }
    }
}

/// Whether a folder of ours could be called so.
fn is_our_name(name: &OsStr) -> bool {
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u32>().is_ok();
    name.to_str()
        .and_then(|name| name.strip_prefix("linewise-")?.split_once('-'))
        .is_some_and(|(owner, attempt)| number(owner) && number(attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};

    /// Processes have no such numbers.
    const NOBODY: u32 = 4_194_999;

    /// A folder as a killed owner leaves it.
    fn left_by(base: &Path, mark: Mark, attempt: u32) -> PathBuf {
        let path = base.join(format!("linewise-{}-{attempt}", mark.pid));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(path.join(MARK)).unwrap();
        file.write_all(mark.to_text().as_bytes()).unwrap();
        fs::create_dir(path.join("run.linewise")).unwrap();
        fs::write(path.join("run.linewise/run.json"), "{}").unwrap();
        path
    }

    fn gone(pid: u32) -> Mark {
        Mark { pid, started: 1 }
    }

    #[test]
    fn only_names_of_our_own_making_are_looked_at() {
        assert!(is_our_name(OsStr::new("linewise-77-0")));
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
            assert!(!is_our_name(OsStr::new(foreign)), "{foreign}");
        }
    }

    #[test]
    fn the_folder_of_a_killed_owner_is_removed_and_that_of_a_living_one_is_not() {
        let base = tempfile::tempdir().unwrap();
        let killed = left_by(base.path(), gone(NOBODY), 0);
        // Somebody else has got its number since.
        let reused = left_by(base.path(), gone(std::process::id()), 0);
        let alive = left_by(base.path(), Mark::of(std::process::id()).unwrap(), 1);
        let locked = left_by(base.path(), gone(NOBODY), 1);
        let held = File::open(&locked).unwrap();
        assert!(process::try_lock(&held).unwrap());
        remove_leftovers(base.path());
        assert!(!killed.exists());
        assert!(!reused.exists());
        assert!(alive.join("run.linewise/run.json").exists());
        assert!(locked.join("run.linewise/run.json").exists());
    }

    #[test]
    fn a_folder_of_such_a_name_without_the_mark_stays() {
        let base = tempfile::tempdir().unwrap();
        let diary = base.path().join("linewise-2025-11");
        fs::DirBuilder::new().mode(0o700).create(&diary).unwrap();
        fs::write(diary.join("notes"), "precious").unwrap();
        let other_text = left_by(base.path(), gone(NOBODY), 0);
        fs::write(other_text.join(MARK), "made by hand\n").unwrap();
        remove_leftovers(base.path());
        assert_eq!(fs::read(diary.join("notes")).unwrap(), b"precious");
        assert!(other_text.join("run.linewise").exists());
    }

    #[test]
    fn a_mark_that_is_a_link_or_has_another_name_or_that_others_could_write_is_none() {
        let base = tempfile::tempdir().unwrap();
        let real = left_by(base.path(), gone(NOBODY), 0);
        let keep = base.path().join("mark");
        fs::rename(real.join(MARK), &keep).unwrap();
        symlink(&keep, real.join(MARK)).unwrap();
        let twice = left_by(base.path(), gone(NOBODY), 1);
        fs::hard_link(twice.join(MARK), base.path().join("other name")).unwrap();
        let open = left_by(base.path(), gone(NOBODY), 2);
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(open.join(MARK), everybody).unwrap();
        let shared = left_by(base.path(), gone(NOBODY), 3);
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&shared, everybody).unwrap();
        let linked = base.path().join(format!("linewise-{NOBODY}-4"));
        let elsewhere = tempfile::tempdir().unwrap();
        let target = left_by(elsewhere.path(), gone(NOBODY), 4);
        symlink(&target, &linked).unwrap();
        remove_leftovers(base.path());
        for kept in [real, twice, open, shared, target] {
            assert!(kept.join("run.linewise/run.json").exists(), "{kept:?}");
        }
        assert!(fs::symlink_metadata(linked).is_ok());
    }

    #[test]
    fn the_folder_of_another_user_stays_though_it_has_the_mark() {
        let base = tempfile::tempdir().unwrap();
        let path = left_by(base.path(), gone(NOBODY), 0);
        if std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).is_err() {
            eprintln!("SKIP: only root can give a folder away");
            return;
        }
        let file = left_by(base.path(), gone(NOBODY), 1);
        std::os::unix::fs::chown(file.join(MARK), Some(65_534), None).unwrap();
        remove_leftovers(base.path());
        assert!(path.join("run.linewise/run.json").exists());
        assert!(file.join("run.linewise/run.json").exists());
    }

    #[test]
    fn a_folder_is_marked_locked_private_and_goes_with_its_owner() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(base.path()).unwrap();
        let path = scratch.path();
        let folder = Folder::open(&path).unwrap();
        assert_eq!(Mark::read(&folder), Mark::of(std::process::id()));
        assert!(!process::try_lock(&File::open(&path).unwrap()).unwrap());
        fs::create_dir(path.join("run.linewise")).unwrap();
        fs::write(path.join("run.linewise/run.json"), "{}").unwrap();
        symlink("/", path.join("link")).unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
