//! Clients: a thread's way into a domain.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use linewise_delegate::{Client, place};

use crate::domain::{linewise_domain, tell};
use crate::error::{Failure, LINEWISE_OK, edge, note};

/// A thread's way into a domain.
pub struct linewise_client {
    pub(crate) client: Client<'static>,
    thread: usize,
}

/// A thread that linewise_client_start started.
pub struct linewise_thread(JoinHandle<Result<(), Failure>>);

/// What a client's thread runs.
pub type linewise_body =
    Option<unsafe extern "C" fn(client: *mut linewise_client, argument: *mut c_void)>;

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
    /// Those that found the queue empty.
    pub failed_pops: u64,
    /// Time from the first request of a line to its callbacks, in ticks of the processor's
    /// reference clock, summed, if the domain is timed.
    pub latency_ticks: u64,
    /// Lines in that sum.
    pub latency_lines: u64,
}

thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number that no other running thread has.
#[inline(always)]
fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl linewise_client {
    fn open(domain: &linewise_domain, shard: Option<u32>) -> Result<Self, Failure> {
        let client = match shard {
            Some(shard) => domain.domain.client_at(shard as usize),
            None => domain.domain.client(),
        }?;
        Ok(Self {
            client,
            thread: this_thread(),
        })
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
}

/// Opens a client for the calling thread; in a flat domain in the first free seat.
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
    let domain = unsafe { domain.as_ref() }.ok_or_else(|| Failure::null("domain"))?;
    if place.is_null() {
        return Err(Failure::null("client"));
    }
    let client = Box::new(linewise_client::open(domain, shard)?);
    // SAFETY: not null, and the contract.
    unsafe { place.write(Box::into_raw(client)) };
    Ok(())
}

/// Waits until all requests of a client are answered, and closes it. Not inside a delegated function
/// or a callback.
///
/// # Safety
/// `client` is a handle that was not closed, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_close(client: *mut linewise_client) -> i32 {
    edge(|| {
        if client.is_null() {
            return Ok(());
        }
        // SAFETY: the contract. Where it must not wait it stays open.
        unsafe { linewise_client::of(client)? }.client.barrier()?;
        // SAFETY: made by `open`, and the caller gives it up.
        drop(unsafe { Box::from_raw(client) });
        Ok(())
    })
}

/// Starts a thread that runs `body` with a client of its own, and afterwards waits until all its
/// requests are answered.
///
/// # Safety
/// `domain` is a valid handle until the thread is joined; `body` may be called in another thread;
/// `thread` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_start(
    domain: *const linewise_domain,
    body: linewise_body,
    argument: *mut c_void,
    thread: *mut *mut linewise_thread,
) -> i32 {
    /// What goes to the thread.
    struct Parcel(*const linewise_domain, *mut c_void);
    // SAFETY: the domain may be used by several threads, and the caller vouches for the argument.
    unsafe impl Send for Parcel {}
    impl Parcel {
        fn open(self) -> (*const linewise_domain, *mut c_void) {
            (self.0, self.1)
        }
    }
    edge(|| {
        // SAFETY: the contract.
        let known = unsafe { domain.as_ref() }.ok_or_else(|| Failure::null("domain"))?;
        let body = body.ok_or_else(|| Failure::null("body"))?;
        if thread.is_null() {
            return Err(Failure::null("thread"));
        }
        let number = known.next_client.fetch_add(1, Ordering::Relaxed);
        let parcel = Parcel(domain, argument);
        let started = std::thread::Builder::new()
            .name(format!("linewise-client-{number}"))
            .spawn(move || {
                let (domain, argument) = parcel.open();
                // SAFETY: valid until this thread is joined.
                let domain = unsafe { &*domain };
                if !domain.client_cpus.is_empty() {
                    place::pin(domain.client_cpus[number % domain.client_cpus.len()])?;
                }
                let mut client = linewise_client::open(domain, None)?;
                // SAFETY: the contract; the client lives through the call.
                unsafe { body(&raw mut client, argument) };
                Ok(client.client.barrier()?)
            })
            .map_err(|error| Failure::system("starting a client's thread", error))?;
        // SAFETY: not null, and the contract.
        unsafe { thread.write(Box::into_raw(Box::new(linewise_thread(started)))) };
        Ok(())
    })
}

/// Waits for a thread's end and closes its handle. Returns what went wrong in the thread beside its
/// body: no client, or no CPU.
///
/// # Safety
/// `thread` is a handle that was not joined, or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_client_join(thread: *mut linewise_thread) -> i32 {
    if thread.is_null() {
        return LINEWISE_OK;
    }
    // SAFETY: made by `linewise_client_start`, and the caller gives it up.
    let thread = unsafe { Box::from_raw(thread) };
    match thread.0.join() {
        Ok(Ok(())) => LINEWISE_OK,
        Ok(Err(failure)) => note(&failure),
        Err(_) => note(&Failure::system("a client's thread", "it panicked")),
    }
}

/// Sends what a client holds, as far as request lines are free. Does not wait.
///
/// # Safety
/// `client` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_flush(client: *mut linewise_client) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        unsafe { linewise_client::of(client)? }.client.flush();
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
        unsafe { linewise_client::of(client)? }.client.poll()?;
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
        Ok(unsafe { linewise_client::of(client)? }.client.barrier()?)
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
        let of = unsafe { linewise_client::of(client)? }.client.stats();
        let told = |size| linewise_client_stats {
            size,
            lines: of.lines,
            requests: of.requests,
            local: of.local,
            polls: of.polls,
            ready: of.ready,
            pops: of.pops,
            failed_pops: of.failed_pops,
            latency_ticks: of.latency_ticks,
            latency_lines: of.latency_lines,
        };
        // SAFETY: the contract.
        unsafe { tell(stats, told, "stats") }
    })
}
