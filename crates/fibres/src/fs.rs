//! Files whose calls block the fibre and not its worker.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use io_uring::{opcode, squeue, types};

use crate::blocking;
use crate::operation::Operation;
use crate::task::current_task;
use crate::wait::{step_aside, wait};
use crate::worker::Worker;

/// A file. Its calls go through io_uring where the kernel has it, else to a thread that may block.
#[derive(Debug)]
pub struct File(std::fs::File);

/// Bytes of one call at most, as the kernel has it.
const MOST: usize = 0x7fff_f000;

/// Makes a call through the ring of this worker: none if there is no ring, or the caller is no fibre.
///
/// # Safety
/// What `entry` points to lives until this returns, which is not before the call has ended.
unsafe fn call(entry: squeue::Entry) -> Option<io::Result<i32>> {
    let task = current_task().filter(|_| !std::thread::panicking())?;
    let operation = Operation::of(task);
    let entry = entry.user_data(operation.key());
    // SAFETY: the contract; the operation lives until its result is there.
    if let Err(error) = unsafe { Worker::of(task.here()).submit(&entry) }? {
        return Some(Err(error));
    }
    let mut stopped = false;
    loop {
        Worker::of(task.here()).complete_files();
        if let Some(result) = operation.result() {
            return Some(if result < 0 {
                Err(io::Error::from_raw_os_error(-result))
            } else {
                Ok(result)
            });
        }
        // The kernel has the caller's memory: it is waited for, whatever happens.
        if stopped || wait(task).is_err() {
            stopped = true;
            step_aside();
        }
    }
}

/// Refuses offsets that are none: to a ring -1 means the place where the file is, which it then moves.
fn is_place(offset: u64) -> io::Result<()> {
    match i64::try_from(offset) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// What both ways return, as a number that is not negative.
fn number(result: i32) -> usize {
    usize::try_from(result).unwrap_or(0)
}

/// Makes the call by the ring, or else by `other`.
///
/// # Safety
/// As of [`call`].
unsafe fn either<T>(
    entry: squeue::Entry,
    of: impl FnOnce(i32) -> T,
    other: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: the contract.
    match unsafe { call(entry) } {
        Some(result) => result.map(of),
        None => other(),
    }
}

impl File {
    /// Opens a file to read.
    ///
    /// # Errors
    /// As [`std::fs::File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_with(path.as_ref(), libc::O_RDONLY, 0)
    }

    /// Opens a file to write; makes it or empties it.
    ///
    /// # Errors
    /// As [`std::fs::File::create`].
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        Self::open_with(path.as_ref(), flags, 0o666)
    }

    pub(crate) fn open_with(path: &Path, flags: libc::c_int, mode: u32) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = flags | libc::O_CLOEXEC;
        let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
            .flags(flags)
            .mode(mode)
            .build();
        // SAFETY: the path lives until the call has ended; what it returns is a new descriptor.
        let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: as above.
        let fd = unsafe {
            either(entry, owned, || {
                blocking(|| crate::reactor::owned(libc::open(path.as_ptr(), flags, mode)))
            })?
        };
        Ok(Self(fd.into()))
    }

    /// Reads at `offset` into `buffer`; how many bytes.
    ///
    /// # Errors
    /// As [`FileExt::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        is_place(offset)?;
        let length = buffer.len().min(MOST) as u32;
        let entry = opcode::Read::new(self.fd(), buffer.as_mut_ptr(), length)
            .offset(offset)
            .build();
        // SAFETY: the buffer is borrowed until the call has ended.
        unsafe {
            either(entry, number, || {
                blocking(|| self.0.read_at(buffer, offset))
            })
        }
    }

    /// Writes `bytes` at `offset`; how many of them.
    ///
    /// # Errors
    /// As [`FileExt::write_at`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        is_place(offset)?;
        let length = bytes.len().min(MOST) as u32;
        let entry = opcode::Write::new(self.fd(), bytes.as_ptr(), length)
            .offset(offset)
            .build();
        // SAFETY: the bytes are borrowed until the call has ended.
        unsafe {
            either(entry, number, || {
                blocking(|| self.0.write_at(bytes, offset))
            })
        }
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        let entry = opcode::Fsync::new(self.fd()).build();
        // SAFETY: the call is given no memory.
        unsafe { either(entry, |_| (), || blocking(|| self.0.sync_all())) }
    }

    /// The file of the standard library, whose calls block the thread.
    pub fn get_ref(&self) -> &std::fs::File {
        &self.0
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.0.as_raw_fd())
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self(file)
    }
}
