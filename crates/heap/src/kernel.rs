//! System calls, made directly. The C library's functions of these names set errno, are where a thread that is to be
//! cancelled ends, may be somebody's own, and may allocate: none of that may happen inside an allocator's call.

use core::arch::asm;
use core::ffi::CStr;

/// Makes a system call; what it returns, an error as its negative number.
///
/// # Safety
/// The kernel does what it is asked: as for the call.
#[inline(always)]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the registers of the kernel's convention; what the call does to memory is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A file that is open until this is dropped.
#[derive(Debug)]
pub struct File(i32);

impl File {
    /// Opens a file if it is a regular one, without waiting for anybody: what a path leads to is looked at before it is
    /// opened.
    #[must_use]
    pub fn open(path: &CStr, flags: i32) -> Option<Self> {
        let open = |flags: i32| {
            let arguments = [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (flags | libc::O_CLOEXEC) as usize,
                0,
                0,
                0,
            ];
            // SAFETY: a path that ends in NUL.
            let fd = unsafe { call(libc::SYS_openat, arguments) };
            (fd >= 0).then_some(Self(fd as i32))
        };
        if !open(libc::O_PATH)?.is_regular() {
            return None;
        }
        open(flags | libc::O_NONBLOCK | libc::O_NOCTTY).filter(Self::is_regular)
    }

    fn is_regular(&self) -> bool {
        self.status()
            .is_some_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG)
    }

    /// What fstat says of it.
    #[must_use]
    pub fn status(&self) -> Option<libc::stat> {
        // SAFETY: a plain structure of integers, for which zeros are a value; the call fills it in.
        let mut found: libc::stat = unsafe { core::mem::zeroed() };
        let arguments = [self.0 as usize, &raw mut found as usize, 0, 0, 0, 0];
        // SAFETY: our descriptor, and room for one structure.
        (unsafe { call(libc::SYS_fstat, arguments) } == 0).then_some(found)
    }

    /// Whether it gives who executes it other rights: capabilities.
    #[must_use]
    pub fn has_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr() as usize;
        // SAFETY: a name that ends in NUL; with length 0 nothing is written.
        unsafe { call(libc::SYS_fgetxattr, [self.0 as usize, name, 0, 0, 0, 0]) > 0 }
    }

    /// Reads from `offset` on, at most once; how many bytes.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> usize {
        let arguments = [
            self.0 as usize,
            to.as_mut_ptr() as usize,
            to.len(),
            offset as usize,
            0,
            0,
        ];
        // SAFETY: our descriptor; at most as many bytes as there is room for.
        let got = unsafe { call(libc::SYS_pread64, arguments) };
        usize::try_from(got).unwrap_or(0)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our descriptor, used by nobody else.
        unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Maps memory: anonymous, or a descriptor's from an offset on. Null if there is none to be had.
#[must_use]
pub fn map(length: usize, of: Option<(i32, u64)>) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (flags, fd, offset) = match of {
        Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_NORESERVE, fd, offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    let arguments = [
        0,
        length,
        protection as usize,
        flags as usize,
        fd as isize as usize,
        offset as usize,
    ];
    // SAFETY: a new mapping at an address of the kernel's choice.
    pointer(unsafe { call(libc::SYS_mmap, arguments) })
}

/// Maps `length` bytes of what a shared mapping maps, from `start` on and beyond its end: without a descriptor. Null if
/// that cannot be had.
///
/// # Safety
/// `start` lies in a shared mapping, at the start of a page.
#[must_use]
pub unsafe fn map_on(start: *mut u8, length: usize) -> *mut u8 {
    let flags = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: of no bytes nothing is moved: a second mapping is made.
    pointer(unsafe { call(libc::SYS_mremap, [start as usize, 0, length, flags, 0, 0]) })
}

fn pointer(result: isize) -> *mut u8 {
    if result < 0 && result > -4096 {
        return core::ptr::null_mut();
    }
    result as *mut u8
}

/// Unmaps memory.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn unmap(start: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, [start as usize, length, 0, 0, 0, 0]) };
}

/// Gives the kernel advice about memory; whether it took it.
pub fn advise(start: *mut u8, length: usize, advice: i32) -> bool {
    // SAFETY: the advice that is given here changes no byte of this process.
    unsafe {
        call(
            libc::SYS_madvise,
            [start as usize, length, advice as usize, 0, 0, 0],
        ) == 0
    }
}

/// Reads memory of the process of thread `tid`, which may be the caller's own, from `address` on, as far as there is
/// any: nothing that a program does with its memory makes this fault. How many bytes.
pub fn read_memory(tid: u32, address: u64, to: &mut [u64]) -> usize {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: size_of_val(to),
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: size_of_val(to),
    };
    let arguments = [
        tid as usize,
        &raw const local as usize,
        1,
        &raw const remote as usize,
        1,
        0,
    ];
    // SAFETY: the kernel writes at most as many bytes as there is room for, and checks what it reads.
    let got = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    usize::try_from(got).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_up_to_where_it_ends() {
        let length = 2 * 4096;
        let start = map(length, None);
        assert!(!start.is_null());
        // SAFETY: our mapping.
        unsafe { unmap(start.add(4096), 4096) };
        let mut words = [7_u64; 64];
        let own = std::process::id();
        let last = start as u64 + 4096 - 16;
        assert_eq!(read_memory(own, last - 512, &mut words), 512);
        assert_eq!(words[0], 0);
        // A piece is copied as far as whole pages of it are there.
        assert_eq!(read_memory(own, last + 16, &mut words), 0);
        assert!(read_memory(own, last, &mut words) <= 16);
        assert_eq!(read_memory(own, 8, &mut words), 0);
    }

    #[test]
    fn only_regular_files_are_opened_and_nobody_is_waited_for() {
        assert!(File::open(c"/dev/null", libc::O_RDONLY).is_none());
        assert!(File::open(c"/", libc::O_RDONLY).is_none());
        assert!(File::open(c"/nowhere", libc::O_RDONLY).is_none());
        let own = File::open(c"/proc/self/exe", libc::O_RDONLY).unwrap();
        let mut magic = [0; 4];
        assert_eq!(own.read_at(0, &mut magic), 4);
        assert_eq!(&magic, b"\x7fELF");
    }
}
