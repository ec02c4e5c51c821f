//! Fibres: how they begin and end, what they do to themselves.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linewise_edge::{Passed, versioned};
use linewise_fibres::{Fibre, JoinHandle, blocking, current, is_fibre, migrate, raw};

use crate::error::{Failure, edge};
use crate::runtime::linewise_fibres_pool;
use crate::{
    call, call_caught, close, deadline, give, linewise_fibres_function, of, place, tell, text,
};

/// What a fibre begins with. Set `size`; zero means the default for all others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_fibres_spawn_options {
    /// `sizeof (struct linewise_fibres_spawn_options)`.
    pub size: usize,
    /// A name, for messages and for whoever records; NULL for none.
    pub name: *const c_char,
    /// Bytes of the stack, rounded up to a power of two, 1 GiB at most; 64 KiB by default. C and C++ may
    /// need more: what is not used takes no memory.
    pub stack_bytes: usize,
    /// Not 0: idle workers take the fibre wherever it waits. What linewise_fibres_migrate asks of its caller
    /// holds then at every call that waits.
    pub roaming: u64,
}

/// The one who may wait for a fibre and take its value.
pub struct linewise_fibres_handle(JoinHandle<Passed>);

/// A fibre, or a thread that is no worker, to be woken by others.
pub struct linewise_fibres_fibre {
    fibre: Fibre,
    name: CString,
}

/// Begins a fibre that runs `function`, in `pool`; NULL: in that of the calling fibre. `options` may be NULL.
/// If `handle` is not NULL it gets a handle, to be joined or detached; the fibre may run before that is
/// written.
///
/// # Safety
/// `pool` is a valid handle or NULL; `options` is NULL, or points to options; `function` may be called in
/// the pool's threads with `argument`, and keeps what linewise_fibres_start asks for; `handle` is NULL or a
/// place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_pool_spawn(
    pool: *const linewise_fibres_pool,
    options: *const linewise_fibres_spawn_options,
    function: linewise_fibres_function,
    argument: *mut c_void,
    handle: *mut *mut linewise_fibres_handle,
) -> i32 {
    edge(|| {
        let function = function.ok_or_else(|| Failure::null("function"))?;
        // SAFETY: the contract.
        let pool = match unsafe { pool.as_ref() } {
            Some(pool) => pool.pool.clone(),
            None => raw::here().ok_or_else(Failure::no_fibre)?,
        };
        let mut with = pool.builder();
        if !options.is_null() {
            // SAFETY: the options are as long as they say.
            let options = unsafe { versioned(options, "options")? };
            if !options.name.is_null() {
                // SAFETY: the contract.
                with = with.name(&unsafe { text(options.name, "name")? });
            }
            if options.stack_bytes != 0 {
                with = with.stack_size(options.stack_bytes);
            }
            if options.roaming != 0 {
                // SAFETY: whoever asks for it promises what it asks for.
                with = unsafe { with.roaming() };
            }
        }
        let argument = Passed(argument);
        let begun = with.spawn(move || call(function, argument))?;
        if !handle.is_null() {
            // SAFETY: not null, and the contract.
            unsafe { give(handle, linewise_fibres_handle(begun)) };
        }
        Ok(())
    })
}

/// Waits until a fibre has ended, gets what its function returned (`value` may be NULL), and closes the handle,
/// also where there is no value: LINEWISE_FIBRES_PANICKED, LINEWISE_FIBRES_NO_VALUE, LINEWISE_FIBRES_FORKED. The
/// handle stays where the caller is cancelled, or asks for itself.
///
/// # Safety
/// `handle` was neither joined nor detached, and nobody else uses it; `value` is NULL or a place for a value.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_join(
    handle: *mut linewise_fibres_handle,
    value: *mut *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let known = unsafe { handle.as_mut() }.ok_or_else(|| Failure::null("handle"))?;
        if raw::id() == Some(known.0.id()) {
            return Err(Failure::argument("a fibre waits for its own end"));
        }
        raw::wait_for(&mut known.0)?;
        // SAFETY: the contract: the caller gives it up.
        let ended = unsafe { Box::from_raw(handle) }.0.join()?;
        // SAFETY: the contract.
        unsafe { tell(value, ended.get()) };
        Ok(())
    })
}

/// Closes a handle, and lets the fibre run on alone.
///
/// # Safety
/// `handle` was neither joined nor detached, or is NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_detach(handle: *mut linewise_fibres_handle) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(handle) };
        Ok(())
    })
}

/// 1 if a fibre has ended, 0 if it has not or the handle is NULL.
///
/// # Safety
/// `handle` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_is_finished(handle: *const linewise_fibres_handle) -> i32 {
    // SAFETY: the contract.
    unsafe { handle.as_ref() }.map_or(0, |handle| handle.0.is_finished().into())
}

/// Lets the other fibres of this worker run; on a thread that is no worker, other threads.
#[no_mangle]
pub extern "C" fn linewise_fibres_yield() -> i32 {
    edge(|| Ok(raw::yield_now()?))
}

/// Waits for at least so long; other fibres run meanwhile.
#[no_mangle]
pub extern "C" fn linewise_fibres_sleep(nanoseconds: u64) -> i32 {
    edge(|| Ok(raw::sleep(Duration::from_nanos(nanoseconds))?))
}

/// Waits until linewise_fibres_unpark is called for the caller, or returns at once if it was since the last
/// time. May return early.
#[no_mangle]
pub extern "C" fn linewise_fibres_park() -> i32 {
    edge(|| Ok(raw::park(None)?))
}

/// The same, for so long at most.
#[no_mangle]
pub extern "C" fn linewise_fibres_park_for(nanoseconds: u64) -> i32 {
    edge(|| Ok(raw::park(deadline(nanoseconds))?))
}

/// 1 if the caller is a fibre, else 0.
#[no_mangle]
pub extern "C" fn linewise_fibres_is_fibre() -> i32 {
    is_fibre().into()
}

/// The calling fibre, or the calling thread if it is none; to be woken by linewise_fibres_unpark.
///
/// # Safety
/// `fibre` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_current(fibre: *mut *mut linewise_fibres_fibre) -> i32 {
    edge(|| {
        let to = place(fibre, "fibre")?;
        let fibre = current();
        let name = fibre.name().unwrap_or_default().replace('\0', "");
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the contract.
        unsafe { give(to, linewise_fibres_fibre { fibre, name }) };
        Ok(())
    })
}

/// Lets its linewise_fibres_park return. Nothing happens if it has ended.
///
/// # Safety
/// `fibre` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_unpark(fibre: *const linewise_fibres_fibre) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { of(fibre, "fibre")? }.fibre.unpark();
        Ok(())
    })
}

/// A fibre's number, unique in the process; 0 for a thread, and for NULL.
///
/// # Safety
/// `fibre` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_id(fibre: *const linewise_fibres_fibre) -> u64 {
    // SAFETY: the contract.
    unsafe { fibre.as_ref() }.map_or(0, |fibre| fibre.fibre.id().unwrap_or(0))
}

/// Its name, valid until the handle is closed; empty if it has none, and for NULL.
///
/// # Safety
/// `fibre` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_name(
    fibre: *const linewise_fibres_fibre,
) -> *const c_char {
    static EMPTY: c_char = 0;
    // SAFETY: the contract.
    unsafe { fibre.as_ref() }.map_or(&raw const EMPTY, |fibre| fibre.name.as_ptr())
}

/// Closes a handle of a fibre that may be woken.
///
/// # Safety
/// `fibre` is a handle that was not closed, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_fibre_close(fibre: *mut linewise_fibres_fibre) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { close(fibre) };
        Ok(())
    })
}

/// Runs `function` on a worker of `pool` and comes back, to the same thread, with what it returned (`value` may
/// be NULL): the fibre moves there and back, which takes no stack and no memory. In that pool it is a call. On
/// a thread that is none of the runtime's workers a fibre of its own runs it, and the caller waits.
///
/// The function runs on another thread of the kernel, on the caller's stack: no address of a thread's
/// variable goes there, nor the value that `errno` had.
///
/// # Safety
/// `pool` is a valid handle; `function` may be called in the pool's threads with `argument`, and keeps what
/// linewise_fibres_start asks for; `value` is NULL or a place for a value.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_visit(
    pool: *const linewise_fibres_pool,
    function: linewise_fibres_function,
    argument: *mut c_void,
    value: *mut *mut c_void,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let pool = unsafe { of(pool, "pool")? };
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let argument = Passed(argument);
        let visited = raw::visit(&pool.pool, || call_caught(function, argument))?;
        let visited = visited.map_err(|payload| Failure::panicked(&*payload))?;
        // SAFETY: the contract.
        unsafe { tell(value, visited.get()) };
        Ok(())
    })
}

/// Moves the calling fibre, with its stack, to a worker of `pool`, a pool of its own runtime, and goes on there;
/// stays where it is if it is in that pool.
///
/// # Safety
/// `pool` is a valid handle. The fibre goes on in another thread of the kernel. So nothing that it holds
/// belongs to its thread: no lock of a thread (pthread_mutex_t, std::mutex), no address of a _Thread_local
/// variable. `errno` is one: compilers keep its address within a function, so neither the function that calls
/// this, nor one that is inlined into it, uses `errno` or another thread's variable both before and after.
/// What the C library declares to be constant, as pthread_self(), is kept even by a caller that calls a function
/// which is not inlined: call it through a volatile pointer.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_migrate(pool: *const linewise_fibres_pool) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let pool = unsafe { of(pool, "pool")? };
        if !is_fibre() {
            return Err(Failure::no_fibre());
        }
        if !raw::is_mine(&pool.pool) {
            return Err(Failure::argument("the pool is one of another runtime"));
        }
        // SAFETY: the contract; this crate reaches thread's variables only in functions that are never inlined.
        unsafe { migrate(&pool.pool) };
        Ok(())
    })
}

/// Runs `function` on a thread where it may block, and waits for what it returns (`value` may be NULL), even
/// where the caller is cancelled. On a thread that is no worker it runs there.
///
/// # Safety
/// `function` may be called in another thread with `argument`; `value` is NULL or a place for a value.
#[no_mangle]
pub unsafe extern "C" fn linewise_fibres_blocking(
    function: linewise_fibres_function,
    argument: *mut c_void,
    value: *mut *mut c_void,
) -> i32 {
    edge(|| {
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let argument = Passed(argument);
        let called = blocking(|| call_caught(function, argument));
        let called = called.map_err(|payload| Failure::panicked(&*payload))?;
        // SAFETY: the contract.
        unsafe { tell(value, called.get()) };
        Ok(())
    })
}

/// A number of the caller, fibre or thread, that no other has or ever had. Never inlined, as a thread's is one of
/// its variables.
#[inline(never)]
pub(crate) fn caller() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if let Some(id) = raw::id() {
        return id;
    }
    if NUMBER.get() == 0 {
        // Fibres' are smaller.
        NUMBER.set(1 << 63 | NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
