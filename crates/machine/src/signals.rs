//! Signals: those that come to us, for whom they are, and ending by one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use std::time::Duration;

use crate::process;

/// What somebody who sends a signal to the program that he started sends to us.
const HEARD: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Its number.
    pub signal: i32,
    /// The kernel sent it, for a terminal: to all processes of the group in front.
    pub by_terminal: bool,
}

impl Heard {
    /// Gives to a launched target what was meant for it: all that came but SIGTERM, which asks us to end it. What a
    /// terminal sends it has got by itself. Whether its recording is to end.
    #[must_use]
    pub fn pass_on(self, target: u32) -> bool {
        if self.signal == libc::SIGTERM {
            return true;
        }
        if !self.by_terminal {
            // It may have ended meanwhile.
            let _ = process::signal(target, self.signal);
        }
        false
    }
}

/// The signals that end a recording or are passed on, taken from a descriptor instead of a handler.
#[derive(Debug)]
pub struct StopSignals {
    fd: OwnedFd,
}

impl StopSignals {
    /// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGALRM in this process and delivers them
    /// through a descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block() -> io::Result<Self> {
        let fd = signal_descriptor(&HEARD)?;
        Ok(Self { fd })
    }

    /// The next signal that came, if one did.
    #[must_use]
    pub fn next(&self) -> Option<Heard> {
        next_signal(&self.fd)
    }

    /// From now on they do to the calling thread and those that it starts what they do by default.
    pub fn unblock(&self) {
        // SAFETY: the set is initialised before use; nothing keeps a pointer.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in HEARD {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        }
    }

    /// For [`process::wait_readable`].
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// SIGCHLD, delivered through a descriptor: there is something for [`process::next_change`].
#[derive(Debug)]
pub struct ChangeSignal {
    fd: OwnedFd,
}

impl ChangeSignal {
    /// Blocks SIGCHLD in this process and delivers it through a descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block() -> io::Result<Self> {
        let fd = signal_descriptor(&[libc::SIGCHLD])?;
        Ok(Self { fd })
    }

    /// Forgets the signals that came. Call it before [`process::next_change`], or one may be slept over.
    pub fn clear(&self) {
        while next_signal(&self.fd).is_some() {}
    }

    /// For [`process::wait_readable`].
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// SIGUSR1, delivered through a descriptor: somebody lets something start.
#[derive(Debug)]
pub struct StartSignal {
    fd: OwnedFd,
}

impl StartSignal {
    /// Blocks SIGUSR1 in this thread and those that it starts and delivers it through a descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block() -> io::Result<Self> {
        let fd = signal_descriptor(&[libc::SIGUSR1])?;
        Ok(Self { fd })
    }

    /// Waits until it comes.
    pub fn wait(&self) {
        while next_signal(&self.fd).is_none() {
            process::wait_readable(&[self.fd.as_raw_fd()], Duration::from_secs(3600));
        }
    }
}

fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use and lives through the calls.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Nobody sent it but the kernel; libc has no name for it.
const SI_KERNEL: i32 = 0x80;

fn next_signal(fd: &OwnedFd) -> Option<Heard> {
    // SAFETY: a plain structure of integers; all zeros is a value.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: reads at most the size of the structure into it.
    let got = unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info)) };
    (got == size_of_val(&info) as isize).then_some(Heard {
        signal: info.ssi_signo as i32,
        by_terminal: info.ssi_code == SI_KERNEL,
    })
}

/// Ends this process by `signal`, as if it had never been blocked or handled, so that who waits for
/// it sees the signal.
pub fn end_by_signal(signal: i32) -> ! {
    // SAFETY: the set is initialised before use; SIG_DFL is a valid disposition; neither call keeps
    // a pointer. The signal is pending for the calling thread before it is unblocked here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        // Only a signal that does not end a process comes here.
        libc::_exit(128 + signal)
    }
}
