//! Calls on files by io_uring: one ring for each worker, made at its first use.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, Ordering};

use io_uring::{IoUring, cqueue, squeue};

use crate::fibre::{current_task, step_aside, wait};
use crate::task::TaskRef;
use crate::worker::{Worker, wake};

/// Entries of a ring.
const ENTRIES: u32 = 256;
/// How often the kernel is asked for more in one go.
const MOST_TURNS: usize = 64;
/// No result is that one.
const UNDER_WAY: i64 = i64::MIN;

/// The ring of a worker.
#[derive(Default)]
pub(crate) enum Ring {
    #[default]
    Untried,
    /// The kernel has none, or refuses it (`kernel.io_uring_disabled`, seccomp).
    Refused,
    Here(Box<IoUring>, usize),
}

/// A call that is under way, on the stack of the fibre that waits for it.
struct Operation {
    result: AtomicI64,
    task: TaskRef,
}

impl Ring {
    fn get(&mut self, worker: &Worker) -> Option<(&mut IoUring, &mut usize)> {
        if matches!(self, Self::Untried) {
            *self = Self::made(worker).map_or(Self::Refused, |ring| Self::Here(Box::new(ring), 0));
        }
        match self {
            Self::Here(ring, under_way) => Some((ring, under_way)),
            _ => None,
        }
    }

    fn made(worker: &Worker) -> Option<IoUring> {
        let reactor = worker.reactor.as_ref()?;
        let ring = IoUring::new(ENTRIES).ok()?;
        reactor.watch_ring(ring.as_raw_fd()).ok()?;
        Some(ring)
    }

    /// Wakes those whose calls have ended. By the worker.
    pub(crate) fn complete(&mut self) {
        let Self::Here(ring, under_way) = self else {
            return;
        };
        if *under_way == 0 {
            return;
        }
        for _ in 0..MOST_TURNS {
            for entry in ring.completion() {
                *under_way -= 1;
                ended(&entry);
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
}

/// Wakes the one whose call has ended.
fn ended(entry: &cqueue::Entry) {
    let address = entry.user_data() as usize;
    let operation = std::ptr::with_exposed_provenance::<Operation>(address);
    // SAFETY: the fibre stays in `call` until it sees a result.
    let operation = unsafe { &*operation };
    // It may go on, and its operation be gone, as soon as the result is there.
    let task = operation.task.clone();
    let result = entry.result().into();
    operation.result.store(result, Ordering::Release);
    wake(&task);
}

/// Makes a call through the ring of this worker: none if there is no ring, or the caller is no fibre.
///
/// # Safety
/// What `entry` points to lives until this returns, which is not before the call has ended.
pub(crate) unsafe fn call(entry: squeue::Entry) -> Option<io::Result<i32>> {
    let task = current_task().filter(|_| !std::thread::panicking())?;
    let operation = Operation {
        result: AtomicI64::new(UNDER_WAY),
        task: TaskRef::of(task),
    };
    let entry = entry.user_data(std::ptr::from_ref(&operation).expose_provenance() as u64);
    let submitted = task.here().ring(|worker, ring| {
        let (ring, under_way) = ring.get(worker)?;
        loop {
            // SAFETY: the contract; the operation lives until its result is there.
            if unsafe { ring.submission().push(&entry) }.is_ok() {
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
    });
    if let Err(error) = submitted? {
        return Some(Err(error));
    }
    let mut stopped = false;
    loop {
        task.here().complete_files();
        let result = operation.result.load(Ordering::Acquire);
        if result != UNDER_WAY {
            let result = result as i32;
            return Some(if result < 0 {
                Err(io::Error::from_raw_os_error(-result))
            } else {
                Ok(result)
            });
        }
        // The kernel has the caller's memory: it is waited for, whatever happens.
        if stopped || wait(task).is_err() {
            stopped = true;
            step_aside();
        }
    }
}
