//! Sleeping on a word of the shared memory.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `value`, at most `timeout`; may wake early, by a signal if this is `true`.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) -> bool {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word and the timeout live through the call. Not FUTEX_PRIVATE: two processes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        )
    };
    result == -1 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// Wakes who sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word is only used as an address.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
