//! Keeping a target alive where traps lose their reason.
//!
//! Some hypervisors on Intel processors now and then deliver a debug exception whose status register
//! (DR6) is empty. Linux takes that for an `int1` instruction of the program and ends it by SIGTRAP,
//! whoever set the breakpoint. Measured on one such machine: 0 to 1 of 10,000 traps, in bursts, with
//! nothing but a plain breakpoint of perf.
//!
//! The only one who can hold that signal back is a tracer, so a thread is seized
//! (`PTRACE_SEIZE`, which stops nothing) before anything is armed in it. From then on it stops
//! briefly at each of its signals until [`Guard::attend`] lets it go on. A tracer that dies lets its
//! threads go by itself.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::facts::{Facts, Hypervisor};
use crate::process::{Change, next_change_of};

/// A thread that gets more signals than this in a second is better left alone: each costs it a
/// switch to the collector and back.
const SIGNALS_PER_SECOND: u32 = 50;
/// How long threads are waited for that are let go.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the guard knows of a thread.
#[derive(Debug)]
enum Ward {
    /// Seized, with the signals in the second that began then.
    Seized { since: Instant, signals: u32 },
    /// It is not to be guarded, for this reason.
    Left(Unguarded),
}

/// Why a thread cannot be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// It no longer exists.
    Gone,
    /// Yama forbids it, or the thread is not ours, or another tracer has it.
    Forbidden,
    /// It gets too many signals.
    Signals,
}

/// All threads that are guarded. Use it from one thread only: the kernel knows a tracer by it.
#[derive(Debug, Default)]
pub struct Guard {
    wards: HashMap<u32, Ward>,
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

impl Ward {
    fn seized() -> Self {
        Self::Seized {
            since: Instant::now(),
            signals: 0,
        }
    }

    /// Counts a signal; whether it is one too many.
    fn is_too_busy(&mut self) -> bool {
        let Self::Seized { since, signals } = self else {
            return true;
        };
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *signals) = (Instant::now(), 0);
        }
        *signals += 1;
        *signals > SIGNALS_PER_SECOND
    }
}

impl Guard {
    /// Makes sure that a thread is guarded; nothing is to be armed in it otherwise.
    ///
    /// # Errors
    /// See [`Unguarded`].
    pub fn protect(&mut self, tid: u32) -> Result<(), Unguarded> {
        match self.wards.get(&tid) {
            Some(Ward::Seized { .. }) => return Ok(()),
            Some(&Ward::Left(reason)) => return Err(reason),
            None => {}
        }
        match ptrace(libc::PTRACE_SEIZE, tid, 0, 0) {
            Ok(_) => {
                self.wards.insert(tid, Ward::seized());
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(Unguarded::Gone),
            Err(_) => {
                self.wards.insert(tid, Ward::Left(Unguarded::Forbidden));
                Err(Unguarded::Forbidden)
            }
        }
    }

    /// Whether [`Guard::protect`] has found that a thread cannot be guarded.
    #[must_use]
    pub fn has_left(&self, tid: u32) -> bool {
        matches!(self.wards.get(&tid), Some(Ward::Left(_)))
    }

    /// Lets a thread that has stopped go on, with its signal, unless that is a trap that lost its
    /// reason. A thread with too many signals is let go for good, after `disarm` took down what is
    /// armed in it, and the reason returned.
    pub fn attend(&mut self, tid: u32, change: Change, disarm: impl FnOnce()) -> Option<Unguarded> {
        let Change::Stopped { signal, event } = change else {
            self.wards.remove(&tid);
            return None;
        };
        let mut left = None;
        // A thread that is not known became the first of its process by exec, and changed its id.
        let ward = self.wards.entry(tid).or_insert_with(Ward::seized);
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
        } else if ward.is_too_busy() {
            disarm();
            left = Some(Unguarded::Signals);
            *ward = Ward::Left(Unguarded::Signals);
            (libc::PTRACE_DETACH, signal)
        } else {
            (libc::PTRACE_CONT, signal)
        };
        // It can fail only because the thread was killed in its stop: there is nothing to let go.
        let _ = ptrace(request, tid, 0, signal as usize);
        left
    }

    /// How many signals were held back.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Lets all threads go, once nothing is armed in them.
    pub fn release(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        self.wards
            .retain(|_, ward| matches!(ward, Ward::Seized { .. }));
        // A thread can only be let go while it is stopped. One that fails here is gone.
        self.wards
            .retain(|&tid, _| ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).is_ok());
        while !self.wards.is_empty() && Instant::now() < deadline {
            let tids: Vec<u32> = self.wards.keys().copied().collect();
            for tid in tids {
                match next_change_of(tid) {
                    Ok(None) => {}
                    Ok(Some(change @ Change::Stopped { event, .. })) => {
                        // A signal may have come first; the stop that was asked for follows it.
                        if event == libc::PTRACE_EVENT_STOP && !trap_is_pending(tid) {
                            let _ = ptrace(libc::PTRACE_DETACH, tid, 0, 0);
                            self.wards.remove(&tid);
                        } else {
                            self.attend(tid, change, || {});
                            let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0);
                        }
                    }
                    // Ended: a target that is our child is waited for by who started it.
                    Ok(Some(Change::Ended(_))) | Err(_) => {
                        self.wards.remove(&tid);
                    }
                }
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
    }
}

/// Whether the SIGTRAP at which a thread is stopped came from a debug exception without a reason.
/// Breakpoints of debuggers (`int3`) and single steps have other codes; an `int1` of the program
/// itself is recognised by its byte.
fn lost_its_reason(tid: u32) -> bool {
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
fn trap_is_pending(tid: u32) -> bool {
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
fn ptrace(request: u32, tid: u32, address: usize, data: usize) -> io::Result<i64> {
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
