//! The guard's own process: it answers the collector and lets threads that have stopped go on.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::ptrace::{lost_its_reason, ptrace, trap_is_pending};
use super::talk::{Answer, Kind, Message, Socket};
use crate::process::{Change, next_change, next_change_of, wait_readable};
use crate::signals::ChangeSignal;

/// A thread that gets more signals than this in a second is better left alone: each costs it a
/// switch to the guard and back.
const SIGNALS_PER_SECOND: u32 = 50;
/// How long threads are waited for that are let go. Less than what the collector waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Threads guarded at a time.
const MOST: usize = 16_384;
/// A collector that closed its end is dying: what it armed goes with it.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// What the guard knows of a thread: the signals in the second that began then.
#[derive(Debug)]
struct Ward {
    since: Instant,
    signals: u32,
}

/// All threads that are guarded.
#[derive(Debug)]
struct Wards<'a> {
    wards: HashMap<u32, Ward>,
    collector: &'a Socket,
    held_back: u64,
    /// Something could not be told to a collector that does not read.
    untold: bool,
}

/// Guards until the collector releases its threads or ends.
pub(super) fn serve(collector: &Socket, process: &OwnedFd) {
    stand_alone(&[&collector.0, process]);
    let Ok(changes) = ChangeSignal::block() else {
        return;
    };
    let mut wards = Wards {
        wards: HashMap::new(),
        collector,
        held_back: 0,
        untold: false,
    };
    let fds = [collector.raw_fd(), changes.raw_fd()];
    loop {
        wait_readable(&fds, Duration::from_secs(3600));
        changes.clear();
        wards.attend_all();
        while let Some(message) = collector.next() {
            match message.kind {
                Kind::Protect => {
                    let answer = wards.protect(message.tid);
                    wards.say(Kind::Answer(answer), message.tid);
                }
                Kind::LetGo => wards.release(vec![message.tid]),
                Kind::Release => {
                    wards.release_all();
                    return wards.say(Kind::Answer(Answer::Guarded), 0);
                }
                _ => {}
            }
        }
        if collector.is_closed() {
            // Its breakpoints are closed when it is gone, and guarded until then.
            let end = Instant::now() + LAST_BREATH;
            while Instant::now() < end
                && !wait_readable(&[process.as_raw_fd()], Duration::from_millis(1))
            {
                wards.attend_all();
            }
            return wards.release_all();
        }
    }
}

impl Ward {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            signals: 0,
        }
    }

    /// Counts a signal; whether it is the first too many of this second.
    fn is_too_busy(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.since, self.signals) = (Instant::now(), 0);
        }
        self.signals = self.signals.saturating_add(1);
        self.signals == SIGNALS_PER_SECOND + 1
    }
}

impl Wards<'_> {
    fn say(&mut self, kind: Kind, tid: u32) {
        let message = |kind| Message {
            kind,
            tid,
            count: self.held_back,
        };
        self.untold = self.untold && !self.collector.say(message(Kind::Forget));
        // A thread that is busy says so again in the next second.
        self.untold |= !self.collector.say(message(kind));
    }

    fn protect(&mut self, tid: u32) -> Answer {
        if self.wards.contains_key(&tid) {
            return Answer::Guarded;
        }
        if self.wards.len() >= MOST {
            return Answer::TooMany;
        }
        match ptrace(libc::PTRACE_SEIZE, tid, 0, 0) {
            Ok(_) => {
                self.wards.insert(tid, Ward::new());
                Answer::Guarded
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Answer::Gone,
            Err(_) => Answer::Forbidden,
        }
    }

    /// Lets all go on that have stopped.
    fn attend_all(&mut self) {
        while let Ok(Some((tid, change))) = next_change() {
            self.attend(tid, change);
        }
    }

    /// Lets a thread that has stopped go on, with its signal, unless that is a trap that lost its
    /// reason.
    fn attend(&mut self, tid: u32, change: Change) {
        let Change::Stopped { signal, event } = change else {
            self.wards.remove(&tid);
            return self.say(Kind::Ended, tid);
        };
        // A thread that is not known became the first of its process by exec, and changed its id.
        let ward = self.wards.entry(tid).or_insert_with(Ward::new);
        let (request, signal) = if event == libc::PTRACE_EVENT_STOP {
            // Stopped as a whole process, by SIGSTOP or Ctrl-Z: it stays so until SIGCONT.
            let whole = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
            if whole.contains(&signal) {
                (libc::PTRACE_LISTEN, 0)
            } else {
                (libc::PTRACE_CONT, 0)
            }
        } else if signal == libc::SIGTRAP && lost_its_reason(tid) {
            self.held_back += 1;
            (libc::PTRACE_CONT, 0)
        } else {
            if ward.is_too_busy() {
                self.say(Kind::Busy, tid);
            }
            (libc::PTRACE_CONT, signal)
        };
        // It can fail only because the thread was killed in its stop: there is nothing to let go.
        let _ = ptrace(request, tid, 0, signal as usize);
    }

    /// Lets threads go, once nothing is armed in them.
    fn release(&mut self, mut leaving: Vec<u32>) {
        let deadline = Instant::now() + PATIENCE;
        // A thread can only be let go while it is stopped. One that fails here is gone.
        leaving.retain(|&tid| ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).is_ok());
        while !leaving.is_empty() && Instant::now() < deadline {
            leaving.retain(|&tid| self.is_there(tid));
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether a thread that was asked to stop has still to be let go.
    fn is_there(&mut self, tid: u32) -> bool {
        match next_change_of(tid) {
            Ok(None) => true,
            // A signal may have come first; the stop that was asked for follows it.
            Ok(Some(change @ Change::Stopped { event, .. }))
                if event != libc::PTRACE_EVENT_STOP || trap_is_pending(tid) =>
            {
                self.attend(tid, change);
                ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).is_ok()
            }
            Ok(Some(Change::Stopped { .. })) => {
                let _ = ptrace(libc::PTRACE_DETACH, tid, 0, 0);
                self.wards.remove(&tid);
                false
            }
            Ok(Some(change @ Change::Ended(_))) => {
                self.attend(tid, change);
                false
            }
            Err(_) => false,
        }
    }

    fn release_all(&mut self) {
        self.release(self.wards.keys().copied().collect());
    }
}

/// Leaves a process that holds nothing of the collector's but these descriptors, hears no signal but
/// SIGKILL and SIGSTOP, and belongs to no terminal.
fn stand_alone(kept: &[&OwnedFd]) {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > from {
            close_from_to(from, fd - 1);
        }
        from = fd.saturating_add(1);
    }
    // SAFETY: the set is initialised by sigfillset before use; the name ends in NUL.
    unsafe {
        libc::setsid();
        // Ignored by who started us, it would not be told.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_NAME, c"linewise-guard".as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

fn close_from_to(first: u32, last: u32) {
    // SAFETY: closes descriptors that nothing in this process uses any more.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) == 0 {
            return;
        }
        // A kernel before 5.9.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in first..=last.min(limit.rlim_cur.min(1 << 20) as u32) {
            libc::close(fd as i32);
        }
    }
}
