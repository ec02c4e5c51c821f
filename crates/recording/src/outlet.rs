//! Single files that a user names: a report, a page, a trace.
//!
//! ```text
//! nothing there           made anew
//! a regular file          replaced by a new one with its permissions
//! a link of ours, root's  what it leads to, looked at in the same way
//! a link of the kernel    opened: /dev/stdout, /dev/fd/63
//! a pipe, a device        opened
//! what another user owns  refused (files and pipes: to root; links: to everybody)
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};

use crate::error::Error;
use crate::folder::{Folder, Found};

/// Permissions of a file that was not there, before the user's mask.
const NEW_FILE: u32 = 0o666;
/// Links that are followed, as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// What `statfs` says of /proc.
const PROC_MAGIC: u64 = 0x9fa0;

/// Where one file is to be written.
#[derive(Debug)]
pub struct Outlet {
    folder: Folder,
    name: OsString,
    kind: OutletKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutletKind {
    New,
    Replace { permissions: u32 },
    Stream { of_the_kernel: bool },
}

impl Outlet {
    /// Looks at what is there, and changes nothing.
    ///
    /// # Errors
    /// [`Error::OtherOwner`]; [`Error::Write`] for a folder, and where the system refuses.
    pub fn find(path: &Path) -> Result<Self, Error> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let (folder, name) = Folder::around(&path)?;
            let refused = |error: rustix::io::Errno| Error::write(&path, error.into());
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let kind = match rustix::fs::openat(&folder, &name, flags, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => OutletKind::New,
                Err(error) => return Err(refused(error)),
                Ok(fd) => {
                    let found = Found::of(&rustix::fs::fstat(&fd).map_err(refused)?);
                    match found.kind {
                        FileType::Symlink => {
                            found.check_trusted(&path)?;
                            if on_proc(&fd) {
                                OutletKind::Stream {
                                    of_the_kernel: true,
                                }
                            } else {
                                let leads = rustix::fs::readlinkat(&fd, "", Vec::new());
                                let leads = leads.map_err(refused)?;
                                path = folder.child(&as_os_string(leads));
                                continue;
                            }
                        }
                        FileType::Directory => {
                            return Err(Error::write(&path, io::ErrorKind::IsADirectory.into()));
                        }
                        FileType::RegularFile => {
                            found.check_owner(&path)?;
                            OutletKind::Replace {
                                permissions: found.permissions(),
                            }
                        }
                        FileType::CharacterDevice | FileType::BlockDevice => OutletKind::Stream {
                            of_the_kernel: false,
                        },
                        _ => {
                            found.check_owner(&path)?;
                            OutletKind::Stream {
                                of_the_kernel: false,
                            }
                        }
                    }
                }
            };
            if let OutletKind::New | OutletKind::Replace { .. } = kind {
                let writes = Access::WRITE_OK;
                rustix::fs::accessat(&folder, ".", writes, AtFlags::EACCESS).map_err(refused)?;
            }
            return Ok(Self { folder, name, kind });
        }
        Err(Error::write(&path, rustix::io::Errno::LOOP.into()))
    }

    /// Whether both are one file, which the second would write in place of the first.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_file = |outlet: &Self| !matches!(outlet.kind, OutletKind::Stream { .. });
        let place = |outlet: &Self| {
            let folder = rustix::fs::fstat(&outlet.folder).ok()?;
            Some((folder.st_dev, folder.st_ino))
        };
        is_file(self) && is_file(other) && self.name == other.name && place(self) == place(other)
    }

    /// Writes `bytes`: a file is there whole or not at all.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path();
        let all = |mut file: &File| file.write_all(bytes).map_err(|e| Error::write(&path, e));
        match self.kind {
            OutletKind::New => self.folder.replace(&self.name, NEW_FILE, all),
            OutletKind::Replace { permissions } => {
                self.folder.replace(&self.name, permissions, |file| {
                    // Whatever the mask of this process is.
                    rustix::fs::fchmod(file, Mode::from_raw_mode(permissions))
                        .map_err(|error| Error::write(&path, error.into()))?;
                    all(file)
                })
            }
            OutletKind::Stream { of_the_kernel } => all(&self.stream(of_the_kernel)?),
        }
    }

    /// An empty file in place, to be written bit by bit, its owner's alone.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn make(&self) -> Result<File, Error> {
        match self.kind {
            OutletKind::New | OutletKind::Replace { .. } => {
                self.folder.remove_file(&self.name)?;
                self.folder.make_file(&self.name, 0o600)
            }
            OutletKind::Stream { of_the_kernel } => self.stream(of_the_kernel),
        }
    }

    /// Removes what [`make`](Self::make) put in place; a device or a pipe stays.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn unmake(&self) -> Result<(), Error> {
        match self.kind {
            OutletKind::New | OutletKind::Replace { .. } => self.folder.remove_file(&self.name),
            OutletKind::Stream { .. } => Ok(()),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.child(&self.name)
    }

    fn stream(&self, of_the_kernel: bool) -> Result<File, Error> {
        let path = self.path();
        let how = if of_the_kernel {
            OFlags::TRUNC
        } else {
            OFlags::NOFOLLOW
        };
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | how;
        let fd = rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty())
            .map_err(|error| Error::write(&path, error.into()))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| Error::write(&path, error.into()))?;
        if !of_the_kernel && Found::of(&stat).is_file() {
            let reason = io::Error::other("it became another file meanwhile");
            return Err(Error::write(&path, reason));
        }
        Ok(File::from(fd))
    }
}

/// Writes a file that the user named.
///
/// # Errors
/// Those of [`Outlet::find`] and [`Outlet::write`].
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    Outlet::find(path)?.write(bytes)
}

fn on_proc(fd: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|system| u64::try_from(system.f_type) == Ok(PROC_MAGIC))
}

fn as_os_string(text: std::ffi::CString) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(text.into_bytes())
}
