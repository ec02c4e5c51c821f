//! Starting a target held before exec, waiting for it, and our own signals.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What [`next_change`] tells of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended.
    Ended(Ended),
    /// A guarded thread stopped, for this signal and event of ptrace (0: at the signal's delivery).
    Stopped {
        /// The signal.
        signal: i32,
        /// `PTRACE_EVENT_STOP`, or 0.
        event: i32,
    },
}

impl Change {
    fn from_status(status: i32) -> Self {
        if libc::WIFSTOPPED(status) {
            Self::Stopped {
                signal: libc::WSTOPSIG(status),
                event: status >> 16,
            }
        } else if libc::WIFSIGNALED(status) {
            Self::Ended(Ended::Signal(libc::WTERMSIG(status)))
        } else {
            Self::Ended(Ended::Code(libc::WEXITSTATUS(status)))
        }
    }
}

fn change(of: i32) -> io::Result<Option<(u32, Change)>> {
    let mut status = 0;
    loop {
        // SAFETY: writes one integer.
        let got = unsafe { libc::waitpid(of, &mut status, libc::WNOHANG | libc::__WALL) };
        if got >= 0 {
            return Ok((got > 0).then(|| (got as u32, Change::from_status(status))));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The next change of any child, adopted orphan or guarded thread, if there is one now.
///
/// # Errors
/// ECHILD: there are none of them.
pub fn next_change() -> io::Result<Option<(u32, Change)>> {
    change(-1)
}

/// The same for one child or guarded thread.
///
/// # Errors
/// ECHILD: it is neither.
pub(crate) fn next_change_of(tid: u32) -> io::Result<Option<Change>> {
    Ok(change(tid as i32)?.map(|(_, change)| change))
}

/// How a child of this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It runs, or waits by itself.
    Runs,
    /// Somebody stopped it.
    Stopped,
    /// It ended.
    Gone,
}

/// How a child is; it can still be waited for.
pub(crate) fn standing(pid: u32) -> Standing {
    // SAFETY: a plain structure of integers and pointers; all zeros is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: writes one siginfo_t, which lives through the call.
    if unsafe { libc::waitid(libc::P_PID, pid, &mut info, flags) } != 0 {
        return Standing::Gone;
    }
    // SAFETY: waitid succeeded, so it filled in the fields of a child, or left the zeros.
    match (unsafe { info.si_pid() }, info.si_code) {
        (0, _) => Standing::Runs,
        (_, libc::CLD_STOPPED) => Standing::Stopped,
        _ => Standing::Gone,
    }
}

/// Waits for a child that was told to end, and forgets how it did.
pub(crate) fn reap(pid: u32) {
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Which of the first three descriptors were closed when this process began, as bits: Rust's runtime opens them.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// What SIGXFSZ did when this process began.
static FILE_TOO_LARGE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// What SIGPIPE did then: Rust's runtime ignores it.
static BROKEN_PIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Called by the loader, before that runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: asks only.
        let is_closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
        let closed = (0..3).filter(is_closed).fold(0, |bits, fd| bits | 1 << fd);
        CLOSED.store(closed, Ordering::Relaxed);
        // SAFETY: SIG_IGN is a valid disposition, and so is what was there.
        unsafe {
            let before = libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, before);
            BROKEN_PIPE.store(before, Ordering::Relaxed);
        }
    }
    look
};

/// From now on a file that may not become larger (`ulimit -f`) is an error of who writes it, and no end of this process.
/// A target gets what it would have got.
pub fn survive_file_size_limits() {
    // SAFETY: SIG_IGN is a valid disposition.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    FILE_TOO_LARGE.store(before, Ordering::Relaxed);
}

/// personality(2): leaves it as it is and returns it.
const ASK_PERSONALITY: libc::c_ulong = 0xffff_ffff;

/// How a child is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Where Yama lets only ancestors trace, this process may trace it as well.
    pub tracer: Option<u32>,
    /// Its memory lies at the same addresses in every run (`setarch --addr-no-randomize`), where the kernel lets it.
    pub fixed_addresses: bool,
    /// What it writes to its standard output goes where its standard error goes.
    pub output_to_errors: bool,
}

/// Whether [`Manner::fixed_addresses`] would change anything: not where they are fixed already, or the kernel refuses.
#[must_use]
pub fn may_fix_addresses() -> bool {
    // SAFETY: asks only.
    let now = unsafe { libc::personality(ASK_PERSONALITY) };
    now >= 0 && now & libc::ADDR_NO_RANDOMIZE == 0
}

/// A child process that waits, before exec, until it is let go. A child that is dropped unreleased
/// ends without having run anything.
#[derive(Debug)]
pub struct HeldChild {
    pid: u32,
    go: OwnedFd,
    failure: OwnedFd,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors that pipe2 writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and ours.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn strings(words: impl Iterator<Item = OsString>) -> io::Result<Vec<CString>> {
    words
        .map(|word| CString::new(word.into_vec()))
        .collect::<Result<_, _>>()
        .map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a word of the command holds a NUL byte",
            )
        })
}

/// Our environment as it is, also what has no name, with variables replaced where they stand or added behind. Call it
/// while this process has a single thread.
#[must_use]
pub fn environment(variables: &[(OsString, OsString)]) -> Vec<OsString> {
    let mut settings = Vec::new();
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: a list of strings that ends in null; this process has a single thread.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let setting = std::ffi::CStr::from_ptr(*next).to_bytes();
            settings.push(OsString::from_vec(setting.to_vec()));
            next = next.add(1);
        }
    }
    for (name, value) in variables {
        let mut setting = name.clone();
        setting.push("=");
        let start = setting.len();
        setting.push(value);
        let prefix = setting.as_encoded_bytes().get(..start);
        let is_it = |it: &&mut OsString| it.as_encoded_bytes().get(..start) == prefix;
        match settings.iter_mut().find(is_it) {
            Some(place) => *place = setting,
            None => settings.push(setting),
        }
    }
    settings
}

/// What the heap recorder may do in a child of this process, for `linewise_heap::Region::allow_calls`: no system calls of
/// its own (0), those that it needs where no filter watches (1), also under the filter that watches us (2).
#[must_use]
pub fn allowed_calls() -> u32 {
    // SAFETY: only asks.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } == 0 {
        return 1;
    }
    // A filter may end who makes a call that it does not know.
    // SAFETY: the child makes two system calls and ends.
    let tried = unsafe { libc::fork() };
    if tried == 0 {
        let word = 7_u64;
        let mut copy = 0_u64;
        let piece = |place: *const u64| libc::iovec {
            iov_base: place.cast_mut().cast(),
            iov_len: 8,
        };
        let (to, from) = (piece(&raw const copy), piece(&raw const word));
        // SAFETY: reads one word of this process into another; then it ends.
        unsafe {
            let read =
                libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0);
            copy = core::ptr::read_volatile(&raw const copy);
            libc::_exit(i32::from(read != 8 || copy != word));
        }
    }
    let mut status = 1;
    // SAFETY: writes one integer.
    let waited = tried > 0 && unsafe { libc::waitpid(tried, &mut status, 0) } == tried;
    if waited && status == 0 { 2 } else { 0 }
}

impl HeldChild {
    /// Forks a child that will run `command` (searched on PATH) when it is released, with such an [`environment`].
    /// Call it while this process has a single thread.
    ///
    /// # Errors
    /// EAGAIN, ENOMEM: no process to be had. InvalidInput: a word with a NUL byte, or no word.
    pub fn fork(
        command: &[OsString],
        environment: Vec<OsString>,
        manner: Manner,
    ) -> io::Result<Self> {
        let words = strings(command.iter().cloned())?;
        let mut pointers: Vec<*const libc::c_char> =
            words.iter().map(|word| word.as_ptr()).collect();
        let settings = strings(environment.into_iter())?;
        let mut environment: Vec<*const libc::c_char> =
            settings.iter().map(|setting| setting.as_ptr()).collect();
        environment.push(std::ptr::null());
        if pointers.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no command given",
            ));
        }
        pointers.push(std::ptr::null());
        let (wait, go) = pipe()?;
        let (failure, fail) = pipe()?;
        // SAFETY: the child only calls async-signal-safe functions and uses memory prepared above;
        // it ends in exec or _exit.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            // SAFETY: see above: close, dup2, read, prctl, personality, sigprocmask, execvpe, write and _exit only, on valid
            // descriptors and on vectors that end in null.
            unsafe {
                if let Some(tracer) = manner.tracer {
                    // Fails where there is no Yama.
                    libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(tracer), 0, 0, 0);
                }
                if manner.fixed_addresses {
                    let before = libc::personality(ASK_PERSONALITY);
                    if before >= 0 {
                        let fixed = before | libc::ADDR_NO_RANDOMIZE;
                        libc::personality(fixed as libc::c_ulong);
                    }
                }
                libc::close(go.as_raw_fd());
                let mut byte = 0u8;
                if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(0);
                }
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                libc::signal(libc::SIGPIPE, BROKEN_PIPE.load(Ordering::Relaxed));
                libc::signal(libc::SIGXFSZ, FILE_TOO_LARGE.load(Ordering::Relaxed));
                // Before those that are closed are: in the place of one that was closed is one that leads nowhere.
                if manner.output_to_errors {
                    libc::dup2(2, 1);
                }
                for fd in (0..3).filter(|fd| CLOSED.load(Ordering::Relaxed) & 1 << fd != 0) {
                    libc::close(fd);
                }
                libc::execvpe(pointers[0], pointers.as_ptr(), environment.as_ptr());
                let error = *libc::__errno_location();
                libc::write(
                    fail.as_raw_fd(),
                    (&raw const error).cast(),
                    size_of_val(&error),
                );
                libc::_exit(127);
            }
        }
        // Ignored by who started us, the ends of children would not be told. The child ignores it as it would alone.
        // SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(Self {
            pid: pid as u32,
            go,
            failure,
        })
    }

    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child run; returns when exec has happened.
    ///
    /// # Errors
    /// The error of exec: NotFound, PermissionDenied, ENOEXEC. The child is gone then.
    pub fn release(self) -> io::Result<Child> {
        let Self { pid, go, failure } = self;
        // SAFETY: one byte from a valid place to a descriptor that we own.
        let wrote = unsafe { libc::write(go.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
        drop(go);
        let child = Child { pid, ended: None };
        if wrote != 1 {
            return Err(io::Error::last_os_error());
        }
        let mut error: i32 = 0;
        let got = loop {
            // SAFETY: at most four bytes into a valid i32; zero bytes come when exec closed the pipe.
            let got = unsafe {
                libc::read(
                    failure.as_raw_fd(),
                    (&raw mut error).cast(),
                    size_of_val(&error),
                )
            };
            if got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break got;
            }
        };
        if got == size_of_val(&error) as isize {
            let mut child = child;
            child.wait()?;
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(child)
    }
}

/// A child that was released.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    ended: Option<Ended>,
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn wait_with(&mut self, flags: i32) -> io::Result<Option<Ended>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let mut status = 0;
        // SAFETY: writes one integer; the pid is our child and not yet waited for.
        let got = unsafe { libc::waitpid(self.pid as i32, &mut status, flags) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        if got > 0
            && let Change::Ended(ended) = Change::from_status(status)
        {
            self.ended = Some(ended);
        }
        Ok(self.ended)
    }

    /// Takes in what [`next_change`] told; that it ended, if it is about this child.
    pub fn note(&mut self, pid: u32, change: Change) {
        if pid == self.pid
            && let Change::Ended(ended) = change
        {
            self.ended = Some(ended);
        }
    }

    /// How it ended, as far as is known without looking.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// How it ended, if it has. Not while it is guarded: a stop would be lost.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        match self.wait_with(libc::WNOHANG) {
            // Who asks now and then asks again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            told => told,
        }
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self) -> io::Result<Ended> {
        loop {
            match self.wait_with(0) {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends `signal` to a process.
///
/// # Errors
/// ESRCH: gone. EPERM: not ours.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointers; pid is positive, so no group is meant.
    if unsafe { libc::kill(pid as i32, signal) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes this process the parent of descendants whose own parent ends before them, in the place of
/// init, so that none of them is ever out of sight. Each must then be reaped: [`reap_orphans`].
///
/// # Errors
/// EINVAL: a kernel before 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes an integer by value, no pointer.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Reaps adopted children that have ended, up to the first that is one of `not_these`: somebody else
/// waits for those.
pub fn reap_orphans(not_these: impl Fn(u32) -> bool) {
    loop {
        // SAFETY: a plain structure of integers and pointers; all zeros is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: writes one siginfo_t, which lives through the call.
        let got = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, flags) };
        if got != 0 {
            return;
        }
        // SAFETY: waitid succeeded, so it filled in the fields of a child, or left the zeros.
        let pid = unsafe { info.si_pid() };
        if pid <= 0 || not_these(pid as u32) {
            return;
        }
        // SAFETY: no status is asked for; the pid is a child that has ended and was not reaped.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Takes the lock of an open file or directory for as long as it is open; false if another process
/// holds it. The kernel gives it back when the holder ends, however it ends.
///
/// # Errors
/// The kernel's: a file system without locks, for one.
pub fn try_lock(file: &std::fs::File) -> io::Result<bool> {
    // SAFETY: no pointers; the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(false),
        _ => Err(error),
    }
}

/// The user that this process acts as.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether there is a process of this id, ours or not, in this process's view of the machine.
#[must_use]
pub fn exists(pid: u32) -> bool {
    match i32::try_from(pid) {
        Ok(0) | Err(_) => false,
        Ok(_) => signal(pid, 0).map_or_else(|e| e.raw_os_error() != Some(libc::ESRCH), |()| true),
    }
}

/// A descriptor that becomes readable when the process ends.
///
/// # Errors
/// ESRCH: there is no such process. ENOSYS: a kernel before 5.3.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; returns a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as i32, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sleeps until one of the descriptors is readable or `timeout` has passed. Whether one is readable.
pub fn wait_readable(fds: &[RawFd], timeout: Duration) -> bool {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the entries and the timeout live through the call; no signal mask is passed. An
    // error or an early return only makes the caller look sooner.
    unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            &timeout,
            std::ptr::null(),
        ) > 0
    }
}

/// CLOCK_MONOTONIC, in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The time since boot in the kernel's ticks, in which `/proc` tells when threads began.
#[must_use]
pub fn ticks_since_boot() -> u64 {
    // SAFETY: no pointers.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100);
    clock_ns(libc::CLOCK_BOOTTIME) / (1_000_000_000 / per_second.clamp(1, 1_000_000))
}

/// CPU time of this process so far, in ns.
#[must_use]
pub fn own_cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread so far, in ns.
#[must_use]
pub fn thread_cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of a process so far, those that ended included, in ns. `None` when it is
/// gone.
#[must_use]
pub fn cpu_time_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: writes one clock id.
    let found = unsafe { libc::clock_getcpuclockid(i32::try_from(pid).ok()?, &mut clock) };
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec; a clock of a process that has gone meanwhile is refused.
    (found == 0 && unsafe { libc::clock_gettime(clock, &mut now) } == 0)
        .then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The thread id of the caller.
#[must_use]
pub fn current_tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Raises the limit of open files to what this user may have; returns it.
#[must_use]
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls use one valid structure.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        }
    }
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<OsString> {
        command.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_held_child_runs_nothing_before_its_release_and_its_code_comes_back() {
        let held = HeldChild::fork(
            &words(&["sh", "-c", "exit 7"]),
            environment(&[]),
            Manner::default(),
        )
        .unwrap();
        let name = crate::procfs::command_line(held.pid()).unwrap();
        assert!(!name.contains(&"exit 7".to_owned()), "{name:?}");
        let mut child = held.release().unwrap();
        assert_eq!(child.wait().unwrap(), Ended::Code(7));
    }

    #[test]
    fn a_program_that_does_not_exist_says_so_at_release() {
        let held = HeldChild::fork(
            &words(&["no-such-program-anywhere"]),
            environment(&[]),
            Manner::default(),
        )
        .unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_lock_is_held_until_its_file_is_closed() {
        let path = std::env::temp_dir().join(format!("lock-test-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // Two descriptions of one directory; the lock belongs to a description.
        let (first, second) = (
            std::fs::File::open(&path).unwrap(),
            std::fs::File::open(&path).unwrap(),
        );
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&second).unwrap());
        drop(first);
        // A child that another test forks meanwhile holds a copy until it begins its program.
        let start = std::time::Instant::now();
        while !try_lock(&second).unwrap() {
            assert!(start.elapsed() < Duration::from_secs(20), "still held");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn this_process_exists_and_one_that_was_waited_for_does_not() {
        assert!(exists(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!exists(pid));
        assert!(!exists(0));
        assert!(!exists(u32::MAX));
    }

    #[test]
    fn a_killed_child_tells_its_signal() {
        let held = HeldChild::fork(
            &words(&["sleep", "60"]),
            environment(&[]),
            Manner::default(),
        )
        .unwrap();
        let mut child = held.release().unwrap();
        signal(child.pid, libc::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap(), Ended::Signal(libc::SIGKILL));
    }
}
