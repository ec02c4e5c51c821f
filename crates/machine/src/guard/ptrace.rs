//! Calls of ptrace, and what a SIGTRAP is.

use std::io;

/// Whether the SIGTRAP at which a thread is stopped came from a debug exception without a reason.
/// Breakpoints of debuggers (`int3`) and single steps have other codes; an `int1` of the program
/// itself is recognised by its byte.
pub(super) fn lost_its_reason(tid: u32) -> bool {
    const INT1: u8 = 0xf1;
    // SAFETY: a plain structure of integers and pointers; all zeros is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let place = (&raw mut info) as usize;
    if ptrace(libc::PTRACE_GETSIGINFO, tid, 0, place).is_err() || info.si_code != libc::TRAP_BRKPT {
        return false;
    }
    // SAFETY: the kernel filled the structure in for a SIGTRAP, which carries an address.
    let ip = unsafe { info.si_addr() } as usize;
    let mut word = 0usize;
    let peeked = ptrace(
        libc::PTRACE_PEEKTEXT,
        tid,
        ip.wrapping_sub(1),
        (&raw mut word) as usize,
    );
    peeked.is_err() || word.to_le_bytes()[0] != INT1
}

/// Whether a SIGTRAP waits for a stopped thread.
pub(super) fn trap_is_pending(tid: u32) -> bool {
    // SAFETY: plain structures of integers; all zeros is a value.
    let (mut which, mut info): (libc::ptrace_peeksiginfo_args, [libc::siginfo_t; 8]) =
        unsafe { std::mem::zeroed() };
    which.nr = info.len() as i32;
    let got = ptrace(
        libc::PTRACE_PEEKSIGINFO,
        tid,
        (&raw mut which) as usize,
        info.as_mut_ptr() as usize,
    );
    let got = got.unwrap_or(0).clamp(0, info.len() as i64) as usize;
    info[..got]
        .iter()
        .any(|info| info.si_signo == libc::SIGTRAP && info.si_code == libc::TRAP_BRKPT)
}

/// The system call itself: PEEK requests write their word to `data`.
pub(super) fn ptrace(request: u32, tid: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the callers pass either plain numbers or the addresses of live structures of the size
    // that the request writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::c_long::from(request),
            libc::c_long::from(tid),
            address,
            data,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Makes this process itself live through traps that lost their reason, for the probes, which trap
/// in their own threads.
pub fn survive_lost_traps() {
    extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
        if unsafe { (*info).si_code } == libc::TRAP_BRKPT {
            return;
        }
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            libc::signal(libc::SIGTRAP, libc::SIG_DFL);
            libc::raise(libc::SIGTRAP);
        }
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the structure is filled in before use; the handler only calls what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        }
    });
}
