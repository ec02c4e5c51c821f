//! The calls on files. Those that the page cache can answer are made at once; others may block and are told
//! apart, so that who runs the session can make them elsewhere.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Under this folder are all files that are served.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

/// What is known of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) length: u64,
    pub(crate) is_file: bool,
    pub(crate) is_folder: bool,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let folder = File::open(path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self(folder.into()))
    }

    /// Opens a file below the root, wherever links lead. With `at_once`, `WouldBlock` if the folders are not
    /// in the cache.
    pub(crate) fn open_file(&self, path: &CStr, at_once: bool) -> io::Result<File> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        // What is no file, such as a pipe, must not hold up who opens it.
        how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        if at_once {
            how.resolve |= libc::RESOLVE_CACHED;
        }
        // SAFETY: the path and the way to open it live over the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.0.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of_val(&how),
            )
        };
        match fd {
            0.. => {
                // SAFETY: a new descriptor, which nobody else has.
                Ok(unsafe { File::from_raw_fd(fd as libc::c_int) })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

pub(crate) fn facts(file: &File) -> io::Result<Facts> {
    // SAFETY: the call fills the plain numbers that are looked at if it says so.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(file.as_raw_fd(), &raw mut status) != 0 {
            return Err(io::Error::last_os_error());
        }
        status
    };
    let kind = status.st_mode & libc::S_IFMT;
    Ok(Facts {
        length: u64::try_from(status.st_size).unwrap_or(0),
        is_file: kind == libc::S_IFREG,
        is_folder: kind == libc::S_IFDIR,
    })
}

/// Adds up to `count` bytes at `offset` to `out`; how many. With `at_once`, `WouldBlock` if they are not in
/// the cache.
pub(crate) fn read(
    file: &File,
    offset: u64,
    count: usize,
    out: &mut Vec<u8>,
    at_once: bool,
) -> io::Result<usize> {
    out.reserve(count);
    let room = &mut out.spare_capacity_mut()[..count];
    let part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: count,
    };
    let flags = if at_once { libc::RWF_NOWAIT } else { 0 };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes into the room of that length.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, flags) };
    match usize::try_from(read) {
        Ok(read) => {
            // SAFETY: these bytes were written.
            unsafe { out.set_len(out.len() + read) };
            Ok(read)
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether a call that was to be made at once is to be made again, so that it may block.
pub(crate) fn must_block(error: &io::Error) -> bool {
    // Older kernels and some file systems know no calls that must not block.
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINVAL)
    )
}

/// A file in memory. It is only ever handed to the kernel, for which pages that are gone are an error and no
/// fault.
#[derive(Debug)]
pub(crate) struct Map {
    address: *mut libc::c_void,
    length: usize,
}

// SAFETY: memory that only the kernel reads, whoever has it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, to read, at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address, length })
    }

    /// As a part of what is written.
    pub(crate) fn part(&self) -> Part {
        Part {
            begin: self.address.cast(),
            length: self.length,
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has its address any more.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// Bytes that the kernel is to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    begin: *const u8,
    length: usize,
}

// SAFETY: only the kernel reads through it.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl Part {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            begin: bytes.as_ptr(),
            length: bytes.len(),
        }
    }

    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// What is left after `count` bytes.
    pub(crate) fn after(self, count: usize) -> Self {
        let count = count.min(self.length);
        Self {
            begin: self.begin.wrapping_add(count),
            length: self.length - count,
        }
    }
}

/// Sends what it can of both parts; `more` will follow at once.
///
/// # Safety
/// The parts are of memory that is there until this returns.
pub(crate) unsafe fn send(
    socket: BorrowedFd<'_>,
    parts: [Part; 2],
    more: bool,
) -> io::Result<usize> {
    let mut vectors = parts.map(|part| libc::iovec {
        iov_base: part.begin.cast_mut().cast(),
        iov_len: part.length,
    });
    // SAFETY: plain numbers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the contract; the kernel reads what the vectors name.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends what it can of `count` bytes of the file at `offset`.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    count: u64,
) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let count = count.min(1 << 30) as usize;
    // SAFETY: the kernel reads and writes the offset, which lives over the call.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, count) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
