//! What concerns the whole process: signals and limits.

/// Blocks SIGINT and SIGTERM in the calling thread and those that it starts; to be called before any.
pub(crate) fn hold_signals() {
    // SAFETY: the set is plain numbers that the calls fill and read.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &ending_signals(), std::ptr::null_mut()) };
}

/// Waits for SIGINT or SIGTERM, which are held.
pub(crate) fn wait_for_signal() {
    let mut signal = 0;
    // SAFETY: as above.
    unsafe { libc::sigwait(&ending_signals(), &raw mut signal) };
}

/// From now on these signals end the process at once.
pub(crate) fn release_signals() {
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &ending_signals(), std::ptr::null_mut()) };
}

fn ending_signals() -> libc::sigset_t {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        set
    }
}

/// Lets the process have as many descriptors as it may.
pub(crate) fn raise_descriptor_limit() {
    // SAFETY: fills and reads a plain value.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
