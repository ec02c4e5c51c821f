//! A call of the kernel's that a fibre waits for.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::task::{Task, TaskRef};

/// No result is that one.
const UNDER_WAY: i64 = i64::MIN;

/// A call that is under way, on the stack of the fibre that waits for it.
pub(crate) struct Operation {
    result: AtomicI64,
    task: TaskRef,
}

impl Operation {
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            result: AtomicI64::new(UNDER_WAY),
            task: TaskRef::of(task),
        }
    }

    /// What the kernel gives back with the result.
    pub(crate) fn key(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// What the call returned, if it has.
    pub(crate) fn result(&self) -> Option<i32> {
        let result = self.result.load(Ordering::Acquire);
        (result != UNDER_WAY).then_some(result as i32)
    }

    /// The call has returned; who waits is to be woken.
    ///
    /// # Safety
    /// `key` is that of an operation whose fibre waits for the result, and this is its one end.
    pub(crate) unsafe fn end(key: u64, result: i32) -> TaskRef {
        let operation = std::ptr::with_exposed_provenance::<Self>(key as usize);
        // SAFETY: the fibre stays where it is until it sees a result.
        let operation = unsafe { &*operation };
        // It may go on, and its operation be gone, as soon as the result is there.
        let task = operation.task.clone();
        operation.result.store(result.into(), Ordering::Release);
        task
    }
}
