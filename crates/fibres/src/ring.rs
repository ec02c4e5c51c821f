//! Calls on files by io_uring: one ring for each worker, made at its first use.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, squeue};

use crate::reactor::Reactor;
use crate::stack::is_under_valgrind;

/// Entries of a ring.
const ENTRIES: u32 = 256;
/// How often the kernel is asked for more in one go.
const MOST_TURNS: usize = 64;

/// The ring of a worker.
#[derive(Default)]
pub(crate) enum Ring {
    #[default]
    Untried,
    /// The kernel has none, or refuses it (`kernel.io_uring_disabled`, seccomp).
    Refused,
    Here(Box<IoUring>, usize),
}

impl Ring {
    fn get(&mut self, reactor: &Reactor) -> Option<(&mut IoUring, &mut usize)> {
        if matches!(self, Self::Untried) {
            *self = Self::made(reactor).map_or(Self::Refused, |ring| Self::Here(Box::new(ring), 0));
        }
        match self {
            Self::Here(ring, under_way) => Some((ring, under_way)),
            _ => None,
        }
    }

    fn made(reactor: &Reactor) -> Option<IoUring> {
        // Valgrind does not see what the kernel writes by a ring, and takes it for uninitialised.
        if is_under_valgrind() {
            return None;
        }
        let ring = IoUring::new(ENTRIES).ok()?;
        reactor.watch_ring(ring.as_raw_fd()).ok()?;
        Some(ring)
    }

    /// Says of each call that has ended what `user_data` it had and what it returned. By the worker.
    pub(crate) fn complete(&mut self, mut ended: impl FnMut(u64, i32)) {
        let Self::Here(ring, under_way) = self else {
            return;
        };
        if *under_way == 0 {
            return;
        }
        for _ in 0..MOST_TURNS {
            for entry in ring.completion() {
                *under_way -= 1;
                ended(entry.user_data(), entry.result());
            }
            // What found no room among those that ended is with the kernel yet, and what it did not take
            // when it was put in is here.
            let submission = ring.submission();
            let rest = submission.cq_overflow() || !submission.is_empty();
            drop(submission);
            if !rest || ring.submit().is_err() {
                break;
            }
        }
    }

    /// Puts a call in, if there is a ring.
    ///
    /// # Safety
    /// What `entry` points to lives until the call is said to have ended.
    pub(crate) unsafe fn submit(
        &mut self,
        reactor: Option<&Reactor>,
        entry: &squeue::Entry,
    ) -> Option<io::Result<()>> {
        let (ring, under_way) = self.get(reactor?)?;
        loop {
            // SAFETY: the contract.
            if unsafe { ring.submission().push(entry) }.is_ok() {
                break;
            }
            if let Err(error) = ring.submit() {
                return Some(Err(error));
            }
        }
        *under_way += 1;
        // Interrupted, or short of memory: what was put in goes with the next one; the worker submits
        // again where it looks for events.
        let _ = ring.submit();
        Some(Ok(()))
    }
}
