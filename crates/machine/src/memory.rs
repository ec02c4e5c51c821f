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

#[cfg(test)]
mod tests {
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
