//! Opening files.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat};
use rustix::io::Errno;

/// Only looks: nothing is opened, so nothing waits or acts.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Not even the lease that another has on a file is waited for.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How often a path is followed that others are renaming.
const TRIES: usize = 8;

/// Opens the regular file `path` to read, following links.
///
/// # Errors
/// The kernel's, and `InvalidInput` for what is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let found = rustix::fs::open(path, LOOK, Mode::empty())?;
    reopen(&found, || rustix::fs::open(path, READ, Mode::empty()))
}

/// Opens the regular file `name` in the open folder `folder` to read. It must be no link.
///
/// # Errors
/// As for [`open`]; `ELOOP` for a link.
pub fn open_at(folder: impl AsFd, name: &Path) -> io::Result<File> {
    let look = LOOK | OFlags::NOFOLLOW;
    let found = rustix::fs::openat(&folder, name, look, Mode::empty())?;
    // With these flags a link is itself opened.
    if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    let read = READ | OFlags::NOFOLLOW;
    reopen(&found, || {
        rustix::fs::openat(&folder, name, read, Mode::empty())
    })
}

/// Opens the regular file `path` as a process sees it whose root directory is `root` (`/proc/PID/root`): its links lead
/// to files below that root, in the mount namespace of that process.
///
/// # Errors
/// As for [`open`].
pub fn open_in(root: &Path, path: &Path) -> io::Result<File> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder, Mode::empty())?;
    let path = path.strip_prefix("/").unwrap_or(path);
    let follow = |flags: OFlags| {
        let below = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            tries += 1;
            match rustix::fs::openat2(&root, path, flags, Mode::empty(), below) {
                Err(Errno::AGAIN) if tries < TRIES => {}
                // Linux before 5.6, and containers whose filter does not know the call: links that begin
                // with a slash lead to files of our own root then.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return rustix::fs::openat(&root, path, flags, Mode::empty());
                }
                other => return other,
            }
        }
    };
    let found = follow(LOOK)?;
    reopen(&found, || follow(READ))
}

/// Whether what this user made is to be trusted: root, and who runs this.
#[must_use]
pub fn is_trusted_owner(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Opens the regular file `path`, an absolute one without links, if everybody may read it.
///
/// # Errors
/// As for [`open`]; `PermissionDenied` where its mode or that of a folder above it keeps others from it, `ELOOP` for a link.
pub fn open_public(path: &Path) -> io::Result<File> {
    let file = open_without_links(path)?;
    let closed = |mode: u32, bit: u32| mode & bit == 0;
    let mut above = path.ancestors().skip(1);
    let mode = |folder: &Path| rustix::fs::lstat(folder).map(|it| it.st_mode);
    if closed(fstat(&file)?.st_mode, 0o004)
        || above.any(|folder| mode(folder).map_or(true, |mode| closed(mode, 0o001)))
    {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

/// Opens the regular file `path`, an absolute one, in which no part may be a link.
///
/// # Errors
/// As for [`open`]; `ELOOP` for a link.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    let resolve = ResolveFlags::NO_SYMLINKS;
    let opened = |flags| rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve);
    reopen(&opened(LOOK)?, || opened(READ))
}

/// Reads the regular file `path`, of at most `most` bytes.
///
/// # Errors
/// As for [`open`]; `FileTooLarge` for more.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // Its size is what was said of it; files of the kernel say 0.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let error = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(bytes)
}

/// Opens what was found to read, if it is a regular file; `again` opens it by its path where there is no `/proc`.
fn reopen(found: &OwnedFd, again: impl Fn() -> Result<OwnedFd, Errno>) -> io::Result<File> {
    let seen = fstat(found)?;
    check(&seen)?;
    let by_number = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened = match rustix::fs::open(by_number, READ, Mode::empty()) {
        Err(Errno::NOENT) => again()?,
        opened => opened?,
    };
    let stat = fstat(&opened)?;
    check(&stat)?;
    if (stat.st_dev, stat.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(io::Error::other("it was replaced while it was opened"));
    }
    Ok(File::from(opened))
}

fn check(stat: &Stat) -> io::Result<()> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    };
    let text = format!("it is {what}, and no regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn fifo(folder: &Path) -> PathBuf {
        let path = folder.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        path
    }

    #[test]
    fn pipes_devices_and_folders_are_refused_at_once_also_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        // /dev/ptmx: opening it would make a terminal.
        symlink("/dev/ptmx", &link).unwrap();
        for (path, what) in [
            (fifo(folder.path()), "a pipe"),
            (folder.path().to_owned(), "a folder"),
            (link, "a device"),
        ] {
            let error = open(&path).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            let error = open_in(Path::new("/"), &path).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let kind = open(&folder.path().join("none")).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::NotFound);
    }

    #[test]
    fn a_folder_s_own_files_are_opened_and_what_links_lead_to_is_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "it").unwrap();
        symlink("file", folder.path().join("link")).unwrap();
        fifo(folder.path());
        let held = File::open(folder.path()).unwrap();
        let mut text = String::new();
        let mut file = open_at(&held, Path::new("file")).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "it");
        let link = open_at(&held, Path::new("link")).unwrap_err();
        assert_eq!(link.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert!(open_at(&held, Path::new("fifo")).is_err());
    }

    #[test]
    fn links_that_begin_with_a_slash_lead_to_files_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "theirs").unwrap();
        symlink("/etc/passwd", root.path().join("link")).unwrap();
        symlink("../../../../etc/passwd", root.path().join("up")).unwrap();
        for name in ["/link", "up", "/etc/passwd"] {
            let mut text = String::new();
            let mut file = open_in(root.path(), Path::new(name)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "theirs", "{name}");
        }
    }

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(3 << 30).unwrap();
        let kind = read(&path, 1 << 20).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::FileTooLarge);
        std::fs::write(&path, "123").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"123");
        assert!(read(&path, 2).is_err());
        // Files of the kernel have no size.
        assert!(
            !read(Path::new("/proc/self/stat"), 1 << 20)
                .unwrap()
                .is_empty()
        );
    }
}
