//! The mapping of the shared memory, and the file behind it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use super::layout::{LENGTH, TABLES_OFFSET};

/// The memory, as it is mapped here.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    /// All, or all but the tables.
    pub(super) length: usize,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    /// Only with who made it.
    pub(super) file: Option<File>,
}

// SAFETY: the mapping is plain memory that is only accessed through atomics, and stays until drop.
unsafe impl Send for Mapping {}
// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `map`; nobody has a reference past the last handle.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Mapping {
    /// A new file of this memory's length, which nobody can make longer or shorter: who has it mapped, and that is the
    /// collector too, would be ended by a signal where its bytes are gone.
    pub(super) fn create() -> io::Result<File> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that ends in NUL; the result is a new descriptor.
        let fd = unsafe { libc::memfd_create(c"linewise".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new and ours.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(LENGTH as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: our descriptor, no pointers.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    }

    /// Where there is no address space for the tables (`ulimit -v`), it does without them. A target
    /// reserves it, and [admits](Mapping::admit) what it uses.
    pub(super) fn map(file: &File, protection: i32) -> io::Result<(NonNull<u8>, usize)> {
        let part = |length| Self::map_part(file, length, protection).map(|start| (start, length));
        part(LENGTH).or_else(|_| part(TABLES_OFFSET))
    }

    /// Lets a target read and write these bytes, whole pages inside the mapping. What it does not use stays without
    /// permissions: a program that locks all its memory (`mlockall`) would have it filled.
    pub(super) fn admit(&self, offset: usize, length: usize) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        debug_assert!(offset + length <= self.length);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: inside the mapping, which is ours.
        let failed = unsafe {
            let start = self.start.as_ptr().add(offset);
            libc::mprotect(start.cast(), length, protection)
        };
        match failed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn map_part(file: &File, length: usize, protection: i32) -> io::Result<NonNull<u8>> {
        // SAFETY: a new mapping of a file that is long enough, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // What is reserved would be filled by whoever writes it to a core file.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(start, length, libc::MADV_DONTDUMP) };
        NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    pub(super) fn at<T>(&self, offset: usize) -> *const T {
        debug_assert!(offset + size_of::<T>() <= self.length);
        // SAFETY: callers pass offsets of the layout above, all inside the mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }
}
