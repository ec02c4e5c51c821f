//! Folders and files that linewise writes, held by their descriptors.
//!
//! Whoever may write into the folder around a file can make its name mean another file between two looks
//! at it, or put a link there that leads elsewhere. So every file is made anew, under a name that was free,
//! in a folder that is held open, and takes the place of an older one by being renamed. The last part of a
//! path is never followed where it is a link. Root writes over nothing that another user owns, and modes
//! are changed on descriptors alone.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::error::Error;

/// What names this process has for a file that it has not finished: see [`Folder::replace`].
pub(crate) const TEMPORARY: &str = ".linewise-tmp";

/// What the kernel says of a link that is not to be followed.
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();

/// Mode of folders that linewise makes: their owner's alone.
const PRIVATE_FOLDER: Mode = Mode::RWXU;

/// A folder that is held open: whatever happens to its name, what is written goes into it.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Its name when it was opened: what messages call it.
    path: PathBuf,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Folder {
    /// The folder around `path`, and the name in it. Links before the last part of `path` are followed, and
    /// others may be writing into that folder as well: it serves to make and enter what is in it.
    ///
    /// # Errors
    /// [`Error::Write`] when there is no such folder, or `path` has no last part.
    pub fn around(path: &Path) -> Result<(Self, OsString), Error> {
        let Some(name) = path.file_name() else {
            return Err(Error::write(path, io::ErrorKind::IsADirectory.into()));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| Error::write(path, error.into()))?;
        let folder = Self {
            fd,
            path: parent.to_owned(),
        };
        Ok((folder, name.to_owned()))
    }

    /// Opens the folder `path`, which must be no link, and for root nobody else's.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::OtherOwner`], and [`Error::Read`] when the system refuses.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (around, name) = match Self::around(path) {
            Ok(found) => found,
            Err(Error::Write { path, source }) => return Err(Error::Read { path, source }),
            Err(error) => return Err(error),
        };
        around.enter(&name)
    }

    /// As [`Folder::open`], for a folder in this one.
    ///
    /// # Errors
    /// Those of [`Folder::open`].
    pub fn enter(&self, name: &OsStr) -> Result<Self, Error> {
        let path = self.child(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(error) => {
                return Err(match self.look(name) {
                    Ok(Some(found)) if found.kind == FileType::Symlink => Error::Link { path },
                    _ => Error::read(&path, error.into()),
                });
            }
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| Error::read(&path, error.into()))?;
        Found::of(&stat).check_owner(&path)?;
        Ok(Self { fd, path })
    }

    /// Makes a folder in this one that is its owner's alone (0700).
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses, for one since the name is taken.
    pub fn make(&self, name: &OsStr) -> Result<Self, Error> {
        rustix::fs::mkdirat(&self.fd, name, PRIVATE_FOLDER)
            .map_err(|error| Error::write(&self.child(name), error.into()))?;
        // The mask of this process may have taken something away. Who put a folder of his own in place of
        // the new one meanwhile is found out: nobody can change the mode of another's.
        let made = self.enter(name);
        let made = made.and_then(|made| made.make_private().map(|()| made));
        made.inspect_err(|_| {
            // It is empty, and would only be in the way.
            let _ = self.remove_folder(name);
        })
    }

    /// Gives the folder the mode 0700.
    ///
    /// # Errors
    /// [`Error::Write`]: it is another user's.
    pub fn make_private(&self) -> Result<(), Error> {
        rustix::fs::fchmod(&self.fd, PRIVATE_FOLDER)
            .map_err(|error| Error::write(&self.path, error.into()))
    }

    /// Its name when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the folder itself is.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn itself(&self) -> Result<Found, Error> {
        let stat = rustix::fs::fstat(&self.fd);
        let stat = stat.map_err(|error| Error::read(&self.path, error.into()))?;
        Ok(Found::of(&stat))
    }

    /// The names in it.
    ///
    /// # Errors
    /// [`Error::Read`] if it cannot be listed.
    pub fn names(&self) -> Result<Vec<OsString>, Error> {
        let refused = |error: rustix::io::Errno| Error::read(&self.path, error.into());
        // A descriptor of its own, since listing moves it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).map_err(refused)?;
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// What has this name, itself and not what it leads to; `None` if nothing has.
    ///
    /// # Errors
    /// [`Error::Read`] when the system refuses.
    pub fn look(&self, name: &OsStr) -> Result<Option<Found>, Error> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::of(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::read(&self.child(name), error.into())),
        }
    }

    /// Opens a regular file to read; no link, and for root nobody else's.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::OtherOwner`], [`Error::Link`].
    pub fn open_file(&self, name: &OsStr) -> Result<File, Error> {
        let path = self.child(name);
        let file = match linewise_foreign::open_at(&self.fd, Path::new(name)) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(LOOP) => return Err(Error::Link { path }),
            Err(error) => return Err(Error::opening(&path, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::read(&path, error.into()))?;
        Found::of(&stat).check_owner(&path)?;
        Ok(file)
    }

    /// Makes a file under a name that must be free, with these permissions as far as the mask of this
    /// process allows.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn make_file(&self, name: &OsStr, permissions: u32) -> Result<File, Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(permissions);
        let fd = rustix::fs::openat(&self.fd, name, flags, mode)
            .map_err(|error| Error::write(&self.child(name), error.into()))?;
        Ok(File::from(fd))
    }

    /// Removes a file, or a link itself; one that is gone already is fine.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn remove_file(&self, name: &OsStr) -> Result<(), Error> {
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty folder; one that is gone already is fine.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn remove_folder(&self, name: &OsStr) -> Result<(), Error> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), Error> {
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::write(&self.child(name), error.into())),
        }
    }

    /// Removes what is in the folder but `kept`, folders with all that is in them. Links are removed, not
    /// followed.
    ///
    /// # Errors
    /// [`Error::Write`] and [`Error::Read`] of the first that cannot be removed.
    pub fn remove_all_but(&self, kept: Option<&OsStr>) -> Result<(), Error> {
        for name in self.names()? {
            if Some(name.as_os_str()) == kept {
                continue;
            }
            let Some(found) = self.look(&name)? else {
                continue;
            };
            if found.kind == FileType::Directory {
                self.enter(&name)?.remove_all_but(None)?;
                self.remove_folder(&name)?;
            } else {
                self.remove_file(&name)?;
            }
        }
        Ok(())
    }

    /// Gives a file of this folder another name in it, in place of what has that.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Error> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|error| Error::write(&self.child(to), error.into()))
    }

    /// Puts what `fill` writes in place of `name`, whole or not at all.
    ///
    /// # Errors
    /// Those of `fill`, and [`Error::Write`].
    pub fn replace(
        &self,
        name: &OsStr,
        permissions: u32,
        fill: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let temporary = temporary(name);
        self.remove_file(&temporary)?;
        let written = self
            .make_file(&temporary, permissions)
            // The name that the user knows.
            .map_err(|error| match error {
                Error::Write { source, .. } => Error::write(&self.child(name), source),
                other => other,
            })
            .and_then(|file| fill(&file))
            .and_then(|()| self.rename(&temporary, name));
        if written.is_err() {
            // The first error is the one to tell; a temporary left behind is removed by the next
            // writer of this place.
            let _ = self.remove_file(&temporary);
        }
        written
    }

    /// The path of what has this name, for messages.
    #[must_use]
    pub fn child(&self, name: &OsStr) -> PathBuf {
        if self.path == Path::new(".") {
            return PathBuf::from(name);
        }
        self.path.join(name)
    }
}

/// The name of a file until it is whole. The process id keeps two writers of one file apart.
pub(crate) fn temporary(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}{TEMPORARY}", std::process::id()));
    temporary
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(crate) kind: FileType,
    owner: u32,
    permissions: u32,
    names: u64,
}

impl Found {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            owner: stat.st_uid,
            permissions: stat.st_mode & 0o777,
            // Not of one width on all machines.
            names: stat.st_nlink,
        }
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Whether it is this user's, nobody else may do anything with it, and, of a file, it has no other name.
    #[must_use]
    pub fn is_private(&self) -> bool {
        let alone = self.kind == FileType::Directory || self.names == 1;
        self.owner == effective_user() && self.permissions & 0o077 == 0 && alone
    }

    /// Read, write and execute permissions.
    pub(crate) fn permissions(&self) -> u32 {
        self.permissions
    }

    /// Root is refused what another user owns: it could be a trap, and is not root's to change.
    pub(crate) fn check_owner(&self, path: &Path) -> Result<(), Error> {
        if effective_user() == 0 && self.owner != 0 {
            return Err(Error::OtherOwner {
                path: path.to_owned(),
                owner: self.owner,
            });
        }
        Ok(())
    }

    /// Refused is what neither this user nor root owns.
    pub(crate) fn check_trusted(&self, path: &Path) -> Result<(), Error> {
        if self.owner != 0 && self.owner != effective_user() {
            return Err(Error::OtherOwner {
                path: path.to_owned(),
                owner: self.owner,
            });
        }
        Ok(())
    }
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
