//! Clients: a thread's way into a domain.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::thread::JoinHandle;

use linewise_delegate::{Client, Error};

use linewise_edge::{Passed, tell};

use crate::domain::linewise_domain;
use crate::error::{Failure, edge};
use crate::this_thread;

/// A thread's way into a domain.
pub struct linewise_client {
    client: NonNull<Client<'static>>,
    thread: u64,
    /// Whether linewise_client_close ends it; else the thread that linewise_client_start started.
    owned: bool,
    /// Whether fibres of it run.
    pub(crate) fibres: InUse,
}

/// A thread that linewise_client_start started.
pub struct linewise_thread(JoinHandle<Result<(), Error>>);

/// What a client's thread runs.
pub type linewise_body =
    Option<unsafe extern "C-unwind" fn(client: *mut linewise_client, argument: *mut c_void)>;

/// What a client did so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_client_stats {
    /// `sizeof (struct linewise_client_stats)`, set by the caller.
    pub size: usize,
    /// Request lines sent.
    pub lines: u64,
    /// Requests sent.
    pub requests: u64,
    /// Calls on the client's own shard that ran inline.
    pub local: u64,
    /// Looks at a line on its way.
    pub polls: u64,
    /// Looks that found it answered; divided by `polls`, the responses ready.
    pub ready: u64,
    /// Attempts to take a line from a queue for a free request line.
    pub pops: u64,
    /// Those that found the queue empty; divided by `pops`, the failed queue pops.
    pub failed_pops: u64,
    /// Times that neither a request line nor room in the queue was free.
    pub blocked: u64,
    /// Time from the first request of a line to its callbacks, in ticks of the processor's
    /// reference clock, summed, if the domain is timed; divided by `latency_lines`, the latency.
    pub latency_ticks: u64,
    /// Lines in that sum.
    pub latency_lines: u64,
}

/// Whether something that must not be closed meanwhile is going on.
#[derive(Default)]
pub(crate) struct InUse(Cell<bool>);

impl InUse {
    /// Marks it until the guard is dropped.
    ///
    /// # Errors
    /// It is marked.
    pub(crate) fn enter(&self) -> Result<Using<'_>, Failure> {
        self.check()?;
        self.0.set(true);
        Ok(Using(self))
    }

    fn check(&self) -> Result<(), Failure> {
        if self.0.get() {
            return Err(Failure::nested("fibres of this client are running"));
        }
        Ok(())
    }
}

/// See [`InUse::enter`].
pub(crate) struct Using<'a>(&'a InUse);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.0.set(false);
    }
}

impl linewise_client {
    fn new(client: NonNull<Client<'static>>, owned: bool) -> Self {
        Self {
            client,
            thread: this_thread(),
            owned,
            fibres: InUse::default(),
        }
    }

    /// The client behind a handle, if this thread may use it.
    ///
    /// # Safety
    /// `handle` is a valid handle or null.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(handle: *const Self) -> Result<&'a Self, Failure> {
        // SAFETY: the contract.
        let client = unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("client"))?;
        if client.thread == this_thread() {
            Ok(client)
        } else {
            Err(Failure::thread())
        }
    }

    /// The client itself.
    #[inline(always)]
    pub(crate) fn get(&self) -> &Client<'static> {
        // SAFETY: it lives as long as its handle is valid.
        unsafe { self.client.as_ref() }
    }
}

/// Opens a client for the calling thread; in a flat domain in the first free seat. The thread closes
/// it before it ends.
///
/// # Safety
/// `domain` is a valid handle; `client` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_open(
    domain: *const linewise_domain,
    client: *mut *mut linewise_client,
) -> i32 {
    // SAFETY: the contract.
    edge(|| unsafe { open(domain, None, client) })
}

/// Opens a client of a flat domain for the calling thread, in the seat of `shard`.
///
/// # Safety
/// As linewise_client_open.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_open_at(
    domain: *const linewise_domain,
    shard: u32,
    client: *mut *mut linewise_client,
) -> i32 {
    // SAFETY: the contract.
    edge(|| unsafe { open(domain, Some(shard), client) })
}

/// # Safety
/// As linewise_client_open.
unsafe fn open(
    domain: *const linewise_domain,
    shard: Option<u32>,
    place: *mut *mut linewise_client,
) -> Result<(), Failure> {
    // SAFETY: the contract.
    let domain = unsafe { linewise_domain::of(domain)? };
    if place.is_null() {
        return Err(Failure::null("client"));
    }
    let client = match shard {
        Some(shard) => domain.client_at(shard as usize),
        None => domain.client(),
    }?;
    let client = NonNull::from(Box::leak(Box::new(client)));
    let handle = Box::new(linewise_client::new(client, true));
    // SAFETY: not null, and the contract.
    unsafe { place.write(Box::into_raw(handle)) };
    Ok(())
}

/// Waits until all requests of a client are answered, and closes it. Not inside a delegated function,
/// a callback or a fibre of it, and not for the client that linewise_client_start lends.
///
/// # Safety
/// `client` is a handle that was not closed, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_close(client: *mut linewise_client) -> i32 {
    edge(|| {
        if client.is_null() {
            return Ok(());
        }
        {
            // SAFETY: the contract. Where it must not wait it stays open.
            let known = unsafe { linewise_client::of(client)? };
            if !known.owned {
                return Err(Failure::argument(
                    "the client of linewise_client_start is closed when its body returns",
                ));
            }
            known.fibres.check()?;
            match known.get().barrier() {
                // A child of fork only gives up the memory.
                Ok(()) | Err(Error::Forked) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // SAFETY: both were made by `open`, and the caller gives them up.
        unsafe {
            let handle = Box::from_raw(client);
            drop(Box::from_raw(handle.client.as_ptr()));
        }
        Ok(())
    })
}

/// Starts a thread that runs `body` with a client of its own, and afterwards waits until all its
/// requests are answered.
///
/// # Safety
/// `domain` is a valid handle; `body` may be called in another thread with `argument`; `thread`
/// points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_start(
    domain: *const linewise_domain,
    body: linewise_body,
    argument: *mut c_void,
    thread: *mut *mut linewise_thread,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let domain = unsafe { linewise_domain::of(domain)? };
        let body = body.ok_or_else(|| Failure::null("body"))?;
        if thread.is_null() {
            return Err(Failure::null("thread"));
        }
        let argument = Passed(argument);
        let started = domain.spawn_client(move |client| {
            // Callbacks of C borrow nothing that Rust knows of.
            let client = NonNull::from(client).cast::<Client<'static>>();
            let mut lent = linewise_client::new(client, false);
            // SAFETY: the contract; both live through the call.
            unsafe { body(&raw mut lent, argument.get()) };
        })?;
        // SAFETY: not null, and the contract.
        unsafe { thread.write(Box::into_raw(Box::new(linewise_thread(started)))) };
        Ok(())
    })
}

/// Waits for a thread's end and closes its handle. Returns what went wrong in the thread beside its
/// body: no client, or no CPU. Not inside a delegated function, which may be what the thread waits
/// for.
///
/// # Safety
/// `thread` is a handle that was not joined, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_join(thread: *mut linewise_thread) -> i32 {
    edge(|| {
        if thread.is_null() {
            return Ok(());
        }
        // SAFETY: made by `linewise_client_start`, and the caller gives it up.
        let thread = unsafe { Box::from_raw(thread) };
        match thread.0.join() {
            Ok(ended) => Ok(ended?),
            Err(payload) => std::panic::resume_unwind(payload),
        }
    })
}

/// Sends what a client holds, as far as request lines are free. Does not wait.
///
/// # Safety
/// `client` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_flush(client: *mut linewise_client) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { linewise_client::of(client)? }.get().flush();
        Ok(())
    })
}

/// Sends what a client holds, runs the callbacks of what has come back, and in a flat domain serves
/// once. Does not wait.
///
/// # Safety
/// `client` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_poll(client: *mut linewise_client) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { linewise_client::of(client)? }.get().poll()?;
        Ok(())
    })
}

/// Waits until all requests of a client are answered and their callbacks have run.
///
/// # Safety
/// `client` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_barrier(client: *mut linewise_client) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        Ok(unsafe { linewise_client::of(client)? }.get().barrier()?)
    })
}

/// What a client did so far.
///
/// # Safety
/// `client` is a valid handle; `stats` points to a structure whose size is set.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_statistics(
    client: *const linewise_client,
    stats: *mut linewise_client_stats,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let of = unsafe { linewise_client::of(client)? }.get().stats();
        let told = |size| linewise_client_stats {
            size,
            lines: of.lines,
            requests: of.requests,
            local: of.local,
            polls: of.polls,
            ready: of.ready,
            pops: of.pops,
            failed_pops: of.failed_pops,
            blocked: of.blocked,
            latency_ticks: of.latency_ticks,
            latency_lines: of.latency_lines,
        };
        // SAFETY: the contract.
        unsafe { tell(stats, told, "stats")? };
        Ok(())
    })
}
