//! Keeping a target alive where traps lose their reason.
//!
//! Some hypervisors on Intel processors now and then deliver a debug exception whose status register
//! (DR6) is empty. Linux takes that for an `int1` instruction of the program and ends it by SIGTRAP,
//! whoever set the breakpoint. Measured on one such machine: 0 to 1 of 10,000 traps, in bursts, with
//! nothing but a plain breakpoint of perf.
//!
//! The only one who can hold that signal back is a tracer, so a thread is seized
//! (`PTRACE_SEIZE`, which stops nothing) before anything is armed in it. From then on it stops
//! briefly at each of its signals until its tracer lets it go on. So the tracer must always answer:
//! it is a process of its own, which does nothing else and shares no terminal with anybody. A collector that stands still holds nobody up; a guard that stands still is killed by the
//! collector; and a tracer that dies lets its threads go by itself.

mod ptrace;
mod talk;
mod wards;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

pub use self::ptrace::survive_lost_traps;
use self::talk::{Answer, Kind, Message, Socket};
use crate::facts::{Facts, Hypervisor};
use crate::process::{self, Standing};

/// A guard that has not answered for so long stands in the target's way.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a thread cannot be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// It no longer exists.
    Gone,
    /// Yama forbids it, or the thread is not ours, or another tracer has it.
    Forbidden,
    /// It gets too many signals.
    Signals,
    /// More threads are guarded than the guard has room for.
    TooMany,
    /// The guard itself has ended, or did not answer and was ended.
    NoGuard,
}

/// What a guard has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A thread gets too many signals: take down what is armed in it, then [`Guard::let_go`].
    Busy(u32),
    /// The guard has ended: take down what is armed anywhere.
    Ended,
}

/// The process that guards threads, as the collector sees it. Use it from one thread only.
#[derive(Debug)]
pub struct Guard {
    pid: u32,
    socket: Option<Socket>,
    seized: HashSet<u32>,
    left: HashMap<u32, Unguarded>,
    news: Vec<News>,
    held_back: u64,
}

/// Whether traps may lose their reason on a machine: a virtual one on an Intel processor. On AMD
/// processors the hardware keeps the register for the guest.
#[must_use]
pub fn needed(facts: &Facts) -> bool {
    cfg!(target_arch = "x86_64")
        && facts.hypervisor != Hypervisor::None
        && facts
            .cpu_vendor
            .known()
            .is_some_and(|vendor| vendor == "GenuineIntel")
}

impl Guard {
    /// Starts a guard. Call it while this process has a single thread, before it opens what no other
    /// process may keep open.
    ///
    /// # Errors
    /// The kernel's: no process or no descriptors to be had, or a kernel before 5.3.
    pub fn start() -> io::Result<Self> {
        let (ours, its) = Socket::pair()?;
        let collector = process::pidfd(std::process::id())?;
        // SAFETY: this process has a single thread, so the child may do what it likes.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            drop(ours);
            // A panic must not unwind into the collector's code, of which this is a copy.
            let _ = std::panic::catch_unwind(|| wards::serve(&its, &collector));
            // SAFETY: ends this process; what the collector registered for its end is not run.
            unsafe { libc::_exit(0) }
        }
        Ok(Self {
            pid: pid as u32,
            socket: Some(ours),
            seized: HashSet::new(),
            left: HashMap::new(),
            news: Vec::new(),
            held_back: 0,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes sure that a thread is guarded; nothing is to be armed in it otherwise.
    ///
    /// # Errors
    /// See [`Unguarded`].
    pub fn protect(&mut self, tid: u32) -> Result<(), Unguarded> {
        self.listen();
        if self.socket.is_none() {
            return Err(Unguarded::NoGuard);
        }
        if let Some(&reason) = self.left.get(&tid) {
            return Err(reason);
        }
        if self.seized.contains(&tid) {
            return Ok(());
        }
        let refused = match self.ask(Kind::Protect, tid) {
            Some(Answer::Guarded) => {
                self.seized.insert(tid);
                return Ok(());
            }
            Some(Answer::Gone) => return Err(Unguarded::Gone),
            Some(Answer::Forbidden) => Unguarded::Forbidden,
            Some(Answer::TooMany) => Unguarded::TooMany,
            None => return Err(Unguarded::NoGuard),
        };
        self.left.insert(tid, refused);
        Err(refused)
    }

    /// Whether [`Guard::protect`] has found that a thread cannot be guarded.
    #[must_use]
    pub fn has_left(&self, tid: u32) -> bool {
        self.socket.is_none() || self.left.contains_key(&tid)
    }

    /// What happened since the last call.
    pub fn news(&mut self) -> Vec<News> {
        self.listen();
        std::mem::take(&mut self.news)
    }

    /// Guards a busy thread no longer, for good; nothing may be armed in it.
    pub fn let_go(&mut self, tid: u32) {
        self.seized.remove(&tid);
        self.left.insert(tid, Unguarded::Signals);
        self.say(Kind::LetGo, tid);
    }

    /// How many signals were held back; known after [`Guard::release`].
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Becomes readable when there is news.
    #[must_use]
    pub fn raw_fd(&self) -> Option<RawFd> {
        self.socket.as_ref().map(Socket::raw_fd)
    }

    /// Lets all threads go, once nothing is armed in them, and ends the guard.
    pub fn release(&mut self) {
        if self.socket.is_some() {
            // Without an answer it was ended.
            self.ask(Kind::Release, 0);
        }
        self.end();
    }

    /// Hears what the guard says, and looks whether it stands.
    fn listen(&mut self) {
        while let Some(message) = self.socket.as_ref().and_then(Socket::next) {
            self.hear(message);
        }
        if self.socket.is_some() && process::standing(self.pid) != Standing::Runs {
            self.lost();
        }
    }

    fn hear(&mut self, message: Message) {
        match message.kind {
            Kind::Busy => self.news.push(News::Busy(message.tid)),
            Kind::Ended => {
                self.seized.remove(&message.tid);
                self.left.remove(&message.tid);
            }
            // It could not say who ended: each is asked for again.
            Kind::Forget => self.seized.clear(),
            _ => {}
        }
    }

    fn say(&mut self, kind: Kind, tid: u32) {
        let message = Message {
            kind,
            tid,
            count: 0,
        };
        if self
            .socket
            .as_ref()
            .is_some_and(|socket| !socket.say(message))
        {
            self.lost();
        }
    }

    /// A question and its answer; `None` when there is none, and then no guard either.
    fn ask(&mut self, kind: Kind, tid: u32) -> Option<Answer> {
        self.say(kind, tid);
        let asked = process::monotonic_ns();
        loop {
            while let Some(message) = self.socket.as_ref()?.next() {
                match message.kind {
                    Kind::Answer(answer) => {
                        self.held_back = message.count;
                        return Some(answer);
                    }
                    _ => self.hear(message),
                }
            }
            let waited = Duration::from_nanos(process::monotonic_ns() - asked);
            if waited >= PATIENCE || process::standing(self.pid) != Standing::Runs {
                self.lost();
                return None;
            }
            // Short, since who is stopped does not say so.
            process::wait_readable(&[self.raw_fd()?], Duration::from_millis(20));
        }
    }

    /// A guard that does not answer holds all its threads at their next signal: its end lets them go.
    fn lost(&mut self) {
        self.seized.clear();
        self.news.push(News::Ended);
        self.end();
    }

    fn end(&mut self) {
        self.socket = None;
        if process::standing(self.pid) != Standing::Gone {
            let _ = process::signal(self.pid, libc::SIGKILL);
            process::reap(self.pid);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.socket.is_some() {
            self.release();
        }
    }
}
