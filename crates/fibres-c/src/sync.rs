//! Locks, conditions, barriers.

use std::sync::atomic::{AtomicU64, Ordering};

use linewise_fibres::raw::{self, Lock};
use linewise_fibres::sync::{Barrier, Condvar};

use crate::error::{Failure, LINEWISE_FIBRES_BUSY, LINEWISE_FIBRES_OWNER, edge};
use crate::fibre::caller;
use crate::{close, deadline, give, of, place, tell};

/// A mutex that blocks the fibre and not its worker. Threads may use it too.
#[derive(Default)]
pub struct linewise_fibres_mutex {
    lock: Lock,
    /// Who has it; 0 for nobody.
    owner: AtomicU64,
}

/// A condition variable.
pub struct linewise_fibres_condition(Condvar);

/// Holds so many fibres or threads until all have come, again and again.
pub struct linewise_fibres_barrier(Barrier);

impl linewise_fibres_mutex {
    /// Whether the caller has it, who alone can make that true or false.
    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == caller()
    }

    fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    fn check_owner(&self, mine: bool) -> Result<(), Failure> {
        if self.is_mine() == mine {
            return Ok(());
        }
        let text = if mine {
            "the mutex is not locked by the caller"
        } else {
            "the mutex is locked by the caller already"
        };
        Err(Failure::new(LINEWISE_FIBRES_OWNER, text))
    }
}

/// Makes a mutex.
///
/// # Safety
/// `mutex` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_mutex_open(mutex: *mut *mut linewise_fibres_mutex) -> i32 {
    edge(|| {
        let mutex = place(mutex, "mutex")?;
        // SAFETY: the contract.
        unsafe { give(mutex, linewise_fibres_mutex::default()) };
        Ok(())
    })
}

/// Waits until nobody has a mutex, and takes it. Refused where the caller has it
/// (LINEWISE_FIBRES_OWNER); not taken where the caller is cancelled.
///
/// # Safety
/// `mutex` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_mutex_lock(mutex: *const linewise_fibres_mutex) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let mutex = unsafe { of(mutex, "mutex")? };
        mutex.check_owner(false)?;
        mutex.lock.lock()?;
        mutex.set_owner(caller());
        Ok(())
    })
}

/// Takes a mutex if nobody has it, else LINEWISE_FIBRES_BUSY.
///
/// # Safety
/// `mutex` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_mutex_try_lock(
    mutex: *const linewise_fibres_mutex,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let mutex = unsafe { of(mutex, "mutex")? };
        mutex.check_owner(false)?;
        if !mutex.lock.try_lock() {
            return Err(Failure::new(LINEWISE_FIBRES_BUSY, "the mutex is locked"));
        }
        mutex.set_owner(caller());
        Ok(())
    })
}

/// Frees a mutex that the caller has.
///
/// # Safety
/// `mutex` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_mutex_unlock(mutex: *const linewise_fibres_mutex) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let mutex = unsafe { of(mutex, "mutex")? };
        mutex.check_owner(true)?;
        mutex.set_owner(0);
        mutex.lock.unlock();
        Ok(())
    })
}

/// Closes a mutex; LINEWISE_FIBRES_BUSY where it is locked.
///
/// # Safety
/// `mutex` is a handle that was not closed, or NULL, and nobody uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_mutex_close(mutex: *mut linewise_fibres_mutex) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe {
            if mutex.as_ref().is_some_and(|mutex| !mutex.lock.try_lock()) {
                return Err(Failure::new(LINEWISE_FIBRES_BUSY, "the mutex is locked"));
            }
            close(mutex);
        }
        Ok(())
    })
}

/// Makes a condition that nobody waits for.
///
/// # Safety
/// `condition` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_condition_open(
    condition: *mut *mut linewise_fibres_condition,
) -> i32 {
    edge(|| {
        let condition = place(condition, "condition")?;
        // SAFETY: the contract.
        unsafe { give(condition, linewise_fibres_condition(Condvar::new())) };
        Ok(())
    })
}

/// Frees the mutex, waits to be notified, for so long at most (UINT64_MAX: without end), and takes the mutex
/// again: the caller has it afterwards whatever is returned, also where it is cancelled or the time was over.
/// May return early.
///
/// # Safety
/// Both are valid handles.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_condition_wait(
    condition: *const linewise_fibres_condition,
    mutex: *const linewise_fibres_mutex,
    nanoseconds: u64,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (condition, mutex) = unsafe { (of(condition, "condition")?, of(mutex, "mutex")?) };
        mutex.check_owner(true)?;
        mutex.set_owner(0);
        let notified = raw::wait_at(&condition.0, &mutex.lock, deadline(nanoseconds));
        mutex.set_owner(caller());
        if notified? {
            Ok(())
        } else {
            Err(Failure::timed_out())
        }
    })
}

/// Wakes one that waits.
///
/// # Safety
/// `condition` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_condition_notify_one(
    condition: *const linewise_fibres_condition,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { of(condition, "condition")? }.0.notify_one();
        Ok(())
    })
}

/// Wakes all that wait.
///
/// # Safety
/// `condition` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_condition_notify_all(
    condition: *const linewise_fibres_condition,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { of(condition, "condition")? }.0.notify_all();
        Ok(())
    })
}

/// Closes a condition.
///
/// # Safety
/// `condition` is a handle that was not closed, or NULL, and nobody uses it from now on or waits for it.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_condition_close(
    condition: *mut linewise_fibres_condition,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(condition) };
        Ok(())
    })
}

/// Makes a barrier for `count`, at least 1.
///
/// # Safety
/// `barrier` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_barrier_open(
    count: usize,
    barrier: *mut *mut linewise_fibres_barrier,
) -> i32 {
    edge(|| {
        let barrier = place(barrier, "barrier")?;
        if count == 0 {
            return Err(Failure::argument("a barrier for nobody"));
        }
        // SAFETY: the contract.
        unsafe { give(barrier, linewise_fibres_barrier(Barrier::new(count))) };
        Ok(())
    })
}

/// Waits until all have come; `leader`, which may be NULL, gets 1 for one of them and 0 for the others. One that
/// is cancelled has not come.
///
/// # Safety
/// `barrier` is a valid handle; `leader` is NULL or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_barrier_wait(
    barrier: *const linewise_fibres_barrier,
    leader: *mut i32,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let leads = raw::meet(&unsafe { of(barrier, "barrier")? }.0)?;
        // SAFETY: the contract.
        unsafe { tell(leader, leads.into()) };
        Ok(())
    })
}

/// Closes a barrier.
///
/// # Safety
/// `barrier` is a handle that was not closed, or NULL, and nobody waits there.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_barrier_close(
    barrier: *mut linewise_fibres_barrier,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(barrier) };
        Ok(())
    })
}
