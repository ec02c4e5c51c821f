//! Runtimes and their pools.

use std::ffi::{CString, c_char};
use std::sync::{PoisonError, RwLock};

use linewise_edge::passed;
use linewise_fibres::{Builder, Error, Pool, Runtime, is_fibre, raw};

use crate::error::{Failure, LINEWISE_FIBRES_NESTED, LINEWISE_FIBRES_SHUTDOWN, edge};
use crate::{close, give, of, place, text};

/// Workers of a pool at most.
const WORKERS: usize = 1 << 14;

/// What a runtime is to be.
pub struct linewise_fibres_builder(Builder);

/// Pools of workers, which run fibres.
pub struct linewise_fibres_runtime(RwLock<Option<Runtime>>);

/// A pool of a runtime: one worker or more, among which fibres that have not begun are stolen.
pub struct linewise_fibres_pool {
    pub(crate) pool: Pool,
    name: CString,
}

/// Changes a builder.
///
/// # Safety
/// `builder` is a valid handle or null, and nobody else uses it.
unsafe fn change(
    builder: *mut linewise_fibres_builder,
    change: impl FnOnce(Builder) -> Builder,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let builder = unsafe { builder.as_mut() }.ok_or_else(|| Failure::null("builder"))?;
        builder.0 = change(std::mem::take(&mut builder.0));
        Ok(())
    })
}

/// A runtime that is to be, as yet without a pool.
///
/// # Safety
/// `builder` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_open(
    builder: *mut *mut linewise_fibres_builder,
) -> i32 {
    edge(|| {
        let builder = place(builder, "builder")?;
        // SAFETY: the contract.
        unsafe { give(builder, linewise_fibres_builder(Runtime::builder())) };
        Ok(())
    })
}

/// Adds a pool of so many workers, which the kernel places.
///
/// # Safety
/// `builder` is a valid handle that no other thread uses; `name` is a string.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_pool(
    builder: *mut linewise_fibres_builder,
    name: *const c_char,
    workers: usize,
) -> i32 {
    // SAFETY: the contract.
    let name = unsafe { text(name, "name") };
    // SAFETY: the contract.
    unsafe {
        change_checked(builder, name, workers, |builder, name| {
            builder.pool(name, workers)
        })
    }
}

/// Adds a pool with a worker pinned to each of these CPUs.
///
/// # Safety
/// As linewise_fibres_builder_pool; `cpus` points to `cpu_count` numbers.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_pinned_pool(
    builder: *mut linewise_fibres_builder,
    name: *const c_char,
    cpus: *const u32,
    cpu_count: usize,
) -> i32 {
    // SAFETY: the contract.
    let (name, cpus) = unsafe { (text(name, "name"), passed(cpus, cpu_count, "cpus")) };
    let name = match &cpus {
        Ok(_) => name,
        Err(refused) => Err(Failure::argument(refused.0.clone())),
    };
    let cpus = cpus.unwrap_or_default();
    // SAFETY: the contract.
    unsafe {
        change_checked(builder, name, cpu_count, |builder, name| {
            builder.pinned_pool(name, cpus)
        })
    }
}

/// Adds a pool, if its name and its size can be.
///
/// # Safety
/// As of [`change`].
unsafe fn change_checked(
    builder: *mut linewise_fibres_builder,
    name: Result<String, Failure>,
    workers: usize,
    add: impl FnOnce(Builder, &str) -> Builder,
) -> i32 {
    let checked = name.and_then(|name| {
        if workers > WORKERS {
            let text = format!("{workers} workers: the most are {WORKERS}");
            return Err(Failure::argument(text));
        }
        Ok(name)
    });
    match checked {
        // SAFETY: the contract.
        Ok(name) => unsafe { change(builder, |builder| add(builder, &name)) },
        Err(failure) => edge(|| Err(failure)),
    }
}

/// Lets idle workers take fibres of other pools too, before these begin.
///
/// # Safety
/// `builder` is a valid handle that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_steal_across_pools(
    builder: *mut linewise_fibres_builder,
) -> i32 {
    // SAFETY: the contract.
    unsafe { change(builder, Builder::steal_across_pools) }
}

/// Leaves out what sockets and files need: a socket then blocks its worker.
///
/// # Safety
/// As linewise_fibres_builder_steal_across_pools.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_without_events(
    builder: *mut linewise_fibres_builder,
) -> i32 {
    // SAFETY: the contract.
    unsafe { change(builder, Builder::without_events) }
}

/// How often an idle worker looks around before it sleeps.
///
/// # Safety
/// As linewise_fibres_builder_steal_across_pools.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_looks_before_sleep(
    builder: *mut linewise_fibres_builder,
    looks: u32,
) -> i32 {
    // SAFETY: the contract.
    unsafe { change(builder, |builder| builder.looks_before_sleep(looks)) }
}

/// Looks at each move whether the fibre takes along an address of its old thread's variables, and says so
/// on the standard error. For tests.
///
/// # Safety
/// As linewise_fibres_builder_steal_across_pools.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_check_moves(
    builder: *mut linewise_fibres_builder,
) -> i32 {
    // SAFETY: the contract.
    unsafe { change(builder, Builder::check_moves) }
}

/// Closes a builder that is not to be started.
///
/// # Safety
/// `builder` is a handle that was neither closed nor started, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_builder_close(
    builder: *mut linewise_fibres_builder,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(builder) };
        Ok(())
    })
}

/// Starts the workers. The builder is closed in every case.
///
/// Fibres of one worker run between each other's waiting calls, and end in any order. So no fibre holds over a
/// waiting call what is right only while the calls of a thread nest: it is not in a catch block of C++ nor
/// in a destructor that an exception runs, nor between setting a thread's variable for a while and setting it
/// back, and holds no lock that belongs to its thread (pthread_mutex_t, std::mutex).
///
/// # Safety
/// `builder` is a handle that was neither closed nor started; `runtime` points to a place for a handle; the
/// functions that its fibres run keep what is said above.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_start(
    builder: *mut linewise_fibres_builder,
    runtime: *mut *mut linewise_fibres_runtime,
) -> i32 {
    edge(|| {
        if builder.is_null() {
            return Err(Failure::null("builder"));
        }
        // SAFETY: not null, and the contract.
        let builder = unsafe { Box::from_raw(builder) };
        let runtime = place(runtime, "runtime")?;
        // SAFETY: the contract.
        unsafe {
            let started = builder.0.start()?;
            give(runtime, linewise_fibres_runtime(RwLock::new(Some(started))));
        }
        Ok(())
    })
}

impl linewise_fibres_runtime {
    /// Uses the runtime, if it was not shut down.
    fn with<T>(&self, what: impl FnOnce(&Runtime) -> Result<T, Failure>) -> Result<T, Failure> {
        let runtime = self.0.read().unwrap_or_else(PoisonError::into_inner);
        what(
            runtime.as_ref().ok_or_else(|| {
                Failure::new(LINEWISE_FIBRES_SHUTDOWN, "the runtime was shut down")
            })?,
        )
    }

    /// Refuses to wait for a whole runtime where that would wait for the caller.
    fn must_not_hold_caller(&self) -> Result<(), Failure> {
        let text = if is_fibre() {
            "a fibre does not wait for a whole runtime: its worker would"
        } else if self.waits_for_blocking() {
            "a fibre of the runtime waits for this call to return"
        } else {
            return Ok(());
        };
        Err(Failure::new(LINEWISE_FIBRES_NESTED, text))
    }

    fn waits_for_blocking(&self) -> bool {
        match self.0.try_read() {
            Ok(runtime) => runtime
                .as_ref()
                .is_some_and(|it| matches!(raw::may_wait(it), Err(Error::Nested))),
            // Another thread shuts it down, and may wait for the fibre that waits for this one.
            Err(_) => raw::is_blocking(),
        }
    }

    /// By a thread that is no worker.
    fn shut_down(&self) -> Result<(), Failure> {
        if raw::is_forked() {
            // Its workers are in the parent, and so may be whoever has the lock.
            return Ok(());
        }
        self.must_not_hold_caller()?;
        let mut runtime = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.take() {
            runtime.shut_down();
        }
        Ok(())
    }
}

/// Waits until every fibre of a runtime has ended. Not in a fibre, nor in linewise_fibres_blocking of one of its
/// own (LINEWISE_FIBRES_NESTED).
///
/// # Safety
/// `runtime` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_wait(runtime: *const linewise_fibres_runtime) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let runtime = unsafe { of(runtime, "runtime")? };
        runtime.must_not_hold_caller()?;
        runtime.with(|runtime| {
            raw::may_wait(runtime)?;
            runtime.wait();
            Ok(())
        })
    })
}

/// Shuts a runtime down: new fibres are refused, the waiting calls of those that run return
/// LINEWISE_FIBRES_CANCELLED, those that have not begun never do, and all are waited for: one that neither
/// waits nor returns is waited for without end. First it waits for the threads that are in
/// linewise_fibres_wait. Called again it does nothing. Not in a fibre, nor in linewise_fibres_blocking of one of its
/// own (LINEWISE_FIBRES_NESTED).
///
/// # Safety
/// `runtime` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_shut_down(runtime: *const linewise_fibres_runtime) -> i32 {
    // SAFETY: the contract.
    edge(|| unsafe { of(runtime, "runtime") }?.shut_down())
}

/// Shuts a runtime down, and closes it. Handles of its pools and fibres stay valid, and can be closed or
/// joined. Not in a fibre.
///
/// # Safety
/// `runtime` is a handle that was not closed, or NULL, and no thread uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_close(runtime: *mut linewise_fibres_runtime) -> i32 {
    edge(|| {
        if runtime.is_null() {
            return Ok(());
        }
        // SAFETY: the contract. Where it must not wait it stays open.
        unsafe {
            of(runtime, "runtime")?.shut_down()?;
            close(runtime);
        }
        Ok(())
    })
}

/// The pool of this name.
///
/// # Safety
/// `runtime` is a valid handle; `name` is a string; `pool` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_runtime_pool(
    runtime: *const linewise_fibres_runtime,
    name: *const c_char,
    pool: *mut *mut linewise_fibres_pool,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let (runtime, name) = unsafe { (of(runtime, "runtime")?, text(name, "name")?) };
        let to = place(pool, "pool")?;
        let pool = runtime.with(|runtime| {
            let pool = runtime.pool(&name);
            pool.ok_or_else(|| Failure::argument(format!("there is no pool `{name}`")))
        })?;
        // SAFETY: the contract.
        unsafe { give(to, linewise_fibres_pool::of(pool)) };
        Ok(())
    })
}

/// The pool where the calling fibre runs.
///
/// # Safety
/// `pool` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_pool_here(pool: *mut *mut linewise_fibres_pool) -> i32 {
    edge(|| {
        let to = place(pool, "pool")?;
        let here = raw::here().ok_or_else(Failure::no_fibre)?;
        // SAFETY: the contract.
        unsafe { give(to, linewise_fibres_pool::of(here)) };
        Ok(())
    })
}

impl linewise_fibres_pool {
    fn of(pool: Pool) -> Self {
        let name = CString::new(pool.name().replace('\0', "")).unwrap_or_default();
        Self { pool, name }
    }
}

/// A pool's name, valid until the handle is closed; empty for NULL.
///
/// # Safety
/// `pool` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_pool_name(
    pool: *const linewise_fibres_pool,
) -> *const c_char {
    static EMPTY: c_char = 0;
    // SAFETY: the contract.
    unsafe { pool.as_ref() }.map_or(&raw const EMPTY, |pool| pool.name.as_ptr())
}

/// How many workers a pool has; 0 for NULL.
///
/// # Safety
/// `pool` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_pool_workers(pool: *const linewise_fibres_pool) -> usize {
    // SAFETY: the contract.
    unsafe { pool.as_ref() }.map_or(0, |pool| pool.pool.workers())
}

/// Closes a handle of a pool. The pool goes on.
///
/// # Safety
/// `pool` is a handle that was not closed, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_pool_close(pool: *mut linewise_fibres_pool) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(pool) };
        Ok(())
    })
}
