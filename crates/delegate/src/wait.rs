//! Waiting: spin, then yield, then sleep until somebody wakes.
//!
//! A sleeper announces itself and looks once more; who publishes something looks whether somebody
//! sleeps. Each must see the other's store, which costs a full fence on both sides. A publication is
//! frequent and falling asleep is not, so the sleeper pays for both: `membarrier` makes every running
//! thread of the process pass a barrier, and the publisher needs none. Where the kernel has no
//! `membarrier`, both pay.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// A sleeper looks by itself after this long: next to no CPU, and no hang for good should a wake-up
/// ever be lost.
pub(crate) const LONGEST_NAP: Duration = Duration::from_millis(100);

/// Where one thread sleeps. On lines of its own: publishers read it often.
#[derive(Debug)]
#[repr(align(128))]
pub struct Parker {
    state: AtomicU32,
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Parker {
    /// A parker whose thread is awake.
    pub fn new() -> Self {
        barrier::prepare();
        Self {
            state: AtomicU32::new(AWAKE),
        }
    }

    /// Sleeps until [`Parker::wake_if_asleep`], unless `ready` says after the announcement that
    /// there is no reason to. May return early.
    pub fn sleep(&self, ready: impl FnOnce() -> bool) {
        self.sleep_at_most(LONGEST_NAP, ready);
    }

    /// The same, for not much longer than `nap`.
    pub(crate) fn sleep_at_most(&self, nap: Duration, ready: impl FnOnce() -> bool) {
        self.state.store(ASLEEP, Ordering::Relaxed);
        barrier::heavy();
        if ready() {
            self.state.store(AWAKE, Ordering::Relaxed);
            return;
        }
        self.wait(nap);
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Wakes the thread if it sleeps or is about to. To be called after the publication that it
    /// waits for.
    #[inline(always)]
    pub fn wake_if_asleep(&self) {
        barrier::light();
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cfg(not(loom))]
    fn wait(&self, nap: Duration) {
        let nap = libc::timespec {
            tv_sec: 0,
            tv_nsec: nap.min(LONGEST_NAP).subsec_nanos() as libc::c_long,
        };
        if self.state.load(Ordering::Acquire) == ASLEEP {
            self.futex(libc::FUTEX_WAIT, ASLEEP, &raw const nap);
        }
    }

    #[cold]
    #[cfg(not(loom))]
    fn wake(&self) {
        if self.state.swap(AWAKE, Ordering::Release) == ASLEEP {
            self.futex(libc::FUTEX_WAKE, 1, std::ptr::null());
        }
    }

    #[cfg(not(loom))]
    fn futex(&self, operation: libc::c_int, number: u32, time: *const libc::timespec) {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the state outlives the call, and so does the time, which is null where none is read. The
        // kernel compares, queues and wakes; it writes nothing. Whatever wakes a sleeper, it looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                operation,
                number,
                time,
            );
        }
    }

    /// A futex as loom can model it: a wake-up that is lost is a loop without end, which loom reports.
    #[cfg(loom)]
    fn wait(&self, _: Duration) {
        while self.state.load(Ordering::Acquire) == ASLEEP {
            loom::thread::yield_now();
        }
    }

    #[cfg(loom)]
    fn wake(&self) {
        self.state.swap(AWAKE, Ordering::Release);
    }
}

/// The two halves of an asymmetric fence.
mod barrier {
    use super::{Ordering, fence};

    #[cfg(not(any(loom, miri)))]
    mod kernel {
        use std::sync::atomic::{AtomicU8, Ordering};

        const UNKNOWN: u8 = 0;
        const THERE: u8 = 1;
        const MISSING: u8 = 2;
        const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
        const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
        static SUPPORT: AtomicU8 = AtomicU8::new(UNKNOWN);

        fn call(command: libc::c_int) -> bool {
            // SAFETY: membarrier takes plain numbers and touches no memory of ours.
            unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
        }

        pub(super) fn prepare() {
            if SUPPORT.load(Ordering::Acquire) == UNKNOWN {
                let support = if call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED) {
                    THERE
                } else {
                    MISSING
                };
                // The first answer stands: all threads must agree on who pays.
                let _ =
                    SUPPORT.compare_exchange(UNKNOWN, support, Ordering::AcqRel, Ordering::Acquire);
            }
        }

        #[inline(always)]
        pub(super) fn there() -> bool {
            SUPPORT.load(Ordering::Relaxed) == THERE
        }

        /// Whether the barrier was passed by all threads.
        pub(super) fn pass() -> bool {
            there() && call(PRIVATE_EXPEDITED)
        }
    }

    pub(super) fn prepare() {
        #[cfg(not(any(loom, miri)))]
        kernel::prepare();
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
        #[cfg(not(any(loom, miri)))]
        if kernel::there() {
            // A registered process is not refused; a child of fork registers anew here.
            while !kernel::pass() {
                std::thread::yield_now();
                if !kernel::there() {
                    break;
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn light() {
        #[cfg(not(any(loom, miri)))]
        if kernel::there() {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }
}

/// How long to spin before yielding, and to yield before sleeping.
///
/// A yield after which the kernel ran another thread says that one wanted the CPU: then spinning only
/// keeps the one that is waited for from running, and the ladder begins at its second step. The kernel's
/// count of switches tells, not the time that the yield took: between threads that all wait, a switch
/// takes little more than a yield to nobody.
#[derive(Debug)]
pub(crate) struct Ladder {
    step: u32,
    spins: u32,
    switches: i64,
}

/// Polls before the first yield, some tens of microseconds.
const MOST_SPINS: u32 = 2_000;
/// Yields before sleeping: a few hundred nanoseconds each where nobody else wants the CPU.
const YIELDS: u32 = 100;
/// By how much one switch divides the polls: three and there are none.
const FEWER: u32 = 16;

/// How often this thread gave its CPU to another without sleeping.
fn switches() -> i64 {
    #[cfg(not(miri))]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes the record, which outlives the call; zeros are valid too.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init().ru_nivcsw
        }
    }
    #[cfg(miri)]
    0
}

impl Ladder {
    pub(crate) fn new() -> Self {
        Self {
            step: 0,
            spins: MOST_SPINS,
            switches: switches(),
        }
    }

    /// Whether the thread that is waited for seems to need this CPU.
    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.spins == 0
    }

    /// Something was done: the next wait begins at the first step.
    #[inline(always)]
    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }

    /// Whether the last step was more than spinning.
    #[inline(always)]
    pub(crate) fn is_slow(&self) -> bool {
        self.step > self.spins
    }

    /// Waits a little, if it is not yet time to do more than that.
    #[inline(always)]
    pub(crate) fn spin(&mut self) -> bool {
        let spins = self.step < self.spins;
        if spins {
            self.step += 1;
            std::hint::spin_loop();
        }
        spins
    }

    /// Waits a little. True if it is time to sleep.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        self.step += 1;
        if self.step <= self.spins {
            std::hint::spin_loop();
            return false;
        }
        self.give_way()
    }

    #[cold]
    fn give_way(&mut self) -> bool {
        if self.step > self.spins + YIELDS {
            // Who sleeps in vain sleeps again at once.
            self.step -= 1;
            return true;
        }
        std::thread::yield_now();
        let switches = switches();
        let switched = std::mem::replace(&mut self.switches, switches) != switches;
        let done = self.step - self.spins;
        self.spins = if switched {
            self.spins / FEWER
        } else {
            (self.spins * 2).clamp(1, MOST_SPINS)
        };
        self.step = self.spins + done;
        false
    }
}
