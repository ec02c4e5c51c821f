//! Reading the memory of another process.

use std::io;

/// Reads up to `into.len()` bytes at `address` of process `pid`; returns how many came.
///
/// # Errors
/// EPERM: not ours, or ptrace is restricted (`kernel.yama.ptrace_scope`). EFAULT: not mapped.
/// ESRCH: gone.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let Ok(pid) = i32::try_from(pid) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: `local` describes exactly the caller's buffer; the remote address is only used by
    // the kernel in the other process, which checks it.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// How far before its list of robust mutexes a thread's control block begins, at most: 0x2e0 bytes
/// in glibc 2.40, less in musl.
const CONTROL_BLOCK: u64 = 4096;

/// The base of the `fs` segment of thread `tid` of process `pid`: where its thread-local variables
/// are counted from (x86-64). The kernel samples no segment bases. But the C library tells it where
/// the thread's list of robust mutexes is, which lies in the thread's control block; and the ABI
/// (System V, thread-local storage) wants the word at `fs:0` to be the base itself. glibc has it once
/// more at `fs:16`, and both libraries keep the thread's id in the block: with one of the two there
/// is no doubt.
///
/// # Errors
/// As for [`read`]. NotFound: the thread runs without such a block (Go, or a thread about to begin).
#[cfg(target_arch = "x86_64")]
pub fn thread_base(pid: u32, tid: u32) -> io::Result<u64> {
    let mut list = 0u64;
    let mut size = 0usize;
    // SAFETY: the call writes one pointer and one size through pointers that live through it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            libc::c_long::from(tid as i32),
            std::ptr::from_mut(&mut list),
            std::ptr::from_mut(&mut size),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let none = || io::Error::from(io::ErrorKind::NotFound);
    if list == 0 || !list.is_multiple_of(8) {
        return Err(none());
    }
    let mut bytes = [0; CONTROL_BLOCK as usize];
    // The block may begin with its page, and the page before need not be there.
    for start in [list.saturating_sub(CONTROL_BLOCK), list & !4095] {
        let into = &mut bytes[..(list - start) as usize];
        if read(pid, start, into).is_ok_and(|got| got == into.len())
            && let Some(base) = find_base(into, start, tid)
        {
            return Ok(base);
        }
    }
    Err(none())
}

/// The base of the control block that holds the end of `bytes`, which begin at `start`.
#[cfg(any(target_arch = "x86_64", test))]
fn find_base(bytes: &[u8], start: u64, tid: u32) -> Option<u64> {
    let word = |offset: usize| {
        let word = bytes.get(offset..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*word))
    };
    (0..bytes.len()).step_by(8).rev().find_map(|offset| {
        let base = start + offset as u64;
        let named = || {
            bytes[offset..]
                .chunks_exact(4)
                .any(|chunk| chunk == tid.to_ne_bytes())
        };
        let is_base = word(offset)? == base && (word(offset + 16) == Some(base) || named());
        is_base.then_some(base)
    })
}

#[cfg(test)]
mod tests {
    /// A control block at 0x1000 whose words are zero but those given.
    fn block(words: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 0x300];
        for &(offset, word) in words {
            bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_control_block_is_known_by_two_marks_and_not_by_one() {
        let find = |words: &[(usize, u64)]| super::find_base(&block(words), 0x1000, 77);
        // glibc: the base at 0 and at 16; musl: the base at 0 and the thread's id further on.
        assert_eq!(find(&[(0x40, 0x1040), (0x50, 0x1040)]), Some(0x1040));
        assert_eq!(find(&[(0x40, 0x1040), (0x70, 77)]), Some(0x1040));
        assert_eq!(find(&[(0x40, 0x1040)]), None);
        assert_eq!(find(&[(0x40, 0x1040), (0x20, 77)]), None, "the id before");
        // An empty list is a word that points at itself.
        assert_eq!(
            find(&[(0x40, 0x1040), (0x50, 0x1040), (0x2c0, 0x12c0)]),
            Some(0x1040)
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn thread_local_variables_lie_near_the_base_that_the_thread_itself_sees() {
        let own_base = || {
            let base: u64;
            // SAFETY: reads the word at fs:0, which the ABI of threads wants to be there.
            unsafe {
                std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, readonly));
            }
            (crate::process::current_tid(), base)
        };
        let found = |tid: u32| super::thread_base(std::process::id(), tid).unwrap();
        let (tid, base) = own_base();
        assert_eq!(found(tid), base);
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(own_base()).unwrap();
            let _ = wait.recv();
        });
        let (tid, base) = told.recv().unwrap();
        assert_eq!(found(tid), base);
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn own_memory_reads_back_and_an_unmapped_page_does_not() {
        let secret = *b"a line of memory";
        let mut copy = [0; 16];
        let pid = std::process::id();
        assert_eq!(
            super::read(pid, secret.as_ptr() as u64, &mut copy).unwrap(),
            16
        );
        assert_eq!(copy, secret);
        assert!(super::read(pid, 8, &mut copy).is_err());
    }
}
