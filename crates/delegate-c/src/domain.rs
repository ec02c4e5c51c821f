//! Domains.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use linewise_delegate::{Domain, Policy};

use crate::error::{Failure, edge};

/// Servers that do nothing but serve, one for each shard.
pub const LINEWISE_DEDICATED: u32 = 0;
/// Flat: each client serves a shard; requests wait in queues. The fastest in most cases.
pub const LINEWISE_FLAT_QUEUE: u32 = 1;
/// Flat: a client writes requests directly, and serves when it is blocked.
pub const LINEWISE_FLAT_BLOCKED: u32 = 2;
/// The same, and calls on the own shard run inline.
pub const LINEWISE_FLAT_FAST_PATH: u32 = 3;
/// The same, and a client serves after `bound` calls on its own shard.
pub const LINEWISE_FLAT_BOUND: u32 = 4;
/// As fast path, and a blocked client rings for the one it waits for.
pub const LINEWISE_FLAT_DOORBELL: u32 = 5;
/// For `pending_lines`: no queue.
pub const LINEWISE_DIRECT: u32 = 0xffff_ffff;

/// Calls on the own shard unless `bound` says otherwise.
const BOUND: u32 = 256;

/// Options of a domain. Set `size` and `shards`; zero means the default for all others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_domain_options {
    /// `sizeof (struct linewise_domain_options)`.
    pub size: usize,
    /// Shards: servers of a dedicated domain, threads of a flat one. 1 to 1024.
    pub shards: u32,
    /// `LINEWISE_DEDICATED`, or one of `LINEWISE_FLAT_...`.
    pub policy: u32,
    /// For `LINEWISE_FLAT_BOUND`: calls; 256 by default.
    pub bound: u32,
    /// Request lines between a client and a shard, 1 to 32; 16 by default.
    pub request_lines: u32,
    /// Lines of requests that wait in a client for each shard; twice the request lines by default,
    /// `LINEWISE_DIRECT` for none.
    pub pending_lines: u32,
    /// Not 0: reads the clock for every line, for the statistics.
    pub timed: u32,
    /// CPUs that servers are pinned to in turn; NULL for none.
    pub server_cpus: *const u32,
    /// How many.
    pub server_cpu_count: usize,
    /// CPUs that the threads of linewise_client_start are pinned to in turn; NULL for none.
    pub client_cpus: *const u32,
    /// How many.
    pub client_cpu_count: usize,
    /// Address space to reserve for each shard, in bytes; 64 GiB by default.
    pub shard_bytes: usize,
}

/// A domain: shards, and who serves them.
pub struct linewise_domain {
    pub(crate) domain: Arc<Domain>,
    pub(crate) client_cpus: Arc<[u32]>,
    pub(crate) next_client: AtomicUsize,
}

/// What a shard's server did so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linewise_shard_stats {
    /// `sizeof (struct linewise_shard_stats)`, set by the caller.
    pub size: usize,
    /// Looks at all clients' lines.
    pub passes: u64,
    /// Looks that found requests; divided by `passes`, the server's saturation.
    pub busy_passes: u64,
    /// Request lines answered.
    pub lines: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time at it, in ticks of the processor's reference clock, if the domain is timed.
    pub busy_ticks: u64,
}

/// Copies a structure of C that begins with its size: a shorter one is of an older version, and what
/// it lacks is zero; a longer one is of a newer version, and what we do not know must be zero.
///
/// # Safety
/// `given` is null, or points to as many bytes as its first member says; `T` is plain C data for
/// which zeros are valid, and begins with its size.
pub(crate) unsafe fn versioned<T: Copy>(given: *const T, name: &str) -> Result<T, Failure> {
    if given.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: every version begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=1 << 16).contains(&size) {
        return Err(Failure::argument(format!(
            "{name}->size is {size}, not the structure's size"
        )));
    }
    // SAFETY: the caller vouches for that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        return Err(Failure::argument(format!(
            "{name} has members that this version of linewise does not know"
        )));
    }
    // SAFETY: zeros are valid for T, and the bytes that are copied are those of a T, or its begin.
    unsafe {
        let mut copy = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut copy).cast::<u8>(), known);
        Ok(copy)
    }
}

/// # Safety
/// `first` is null, or points to `count` numbers.
unsafe fn numbers(first: *const u32, count: usize, name: &str) -> Result<Vec<u32>, Failure> {
    if first.is_null() && count > 0 {
        return Err(Failure::null(name));
    }
    if first.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the contract.
    Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// Opens a domain, and starts its servers if it is dedicated.
///
/// # Safety
/// `options` points to options, and to `server_cpu_count` and `client_cpu_count` CPUs if those are
/// not 0; `domain` points to a place for a handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_open(
    options: *const linewise_domain_options,
    domain: *mut *mut linewise_domain,
) -> i32 {
    edge(|| {
        if domain.is_null() {
            return Err(Failure::null("domain"));
        }
        // SAFETY: the contract.
        let options = unsafe { versioned(options, "options")? };
        let shards = options.shards as usize;
        let bound = if options.bound == 0 {
            BOUND
        } else {
            options.bound
        };
        let mut builder = match options.policy {
            LINEWISE_DEDICATED => Domain::dedicated(shards),
            LINEWISE_FLAT_QUEUE => Domain::flat(shards).policy(Policy::Queue),
            LINEWISE_FLAT_BLOCKED => Domain::flat(shards).policy(Policy::ServeWhenBlocked),
            LINEWISE_FLAT_FAST_PATH => Domain::flat(shards).policy(Policy::FastPath),
            LINEWISE_FLAT_BOUND => Domain::flat(shards).policy(Policy::UpperBound(bound)),
            LINEWISE_FLAT_DOORBELL => Domain::flat(shards).policy(Policy::Doorbell),
            other => return Err(Failure::argument(format!("there is no policy {other}"))),
        };
        if options.request_lines > 0 {
            builder = builder.request_lines(options.request_lines as usize);
        }
        match options.pending_lines {
            0 => {}
            LINEWISE_DIRECT => builder = builder.direct_write(),
            lines => builder = builder.pending_queue(lines as usize),
        }
        if options.timed != 0 {
            builder = builder.timed();
        }
        if options.shard_bytes > 0 {
            builder = builder.shard_bytes(options.shard_bytes);
        }
        // SAFETY: the contract.
        let (servers, clients) = unsafe {
            (
                numbers(options.server_cpus, options.server_cpu_count, "server_cpus")?,
                numbers(options.client_cpus, options.client_cpu_count, "client_cpus")?,
            )
        };
        let opened = linewise_domain {
            domain: Arc::new(builder.server_cpus(servers).build()?),
            client_cpus: clients.into(),
            next_client: AtomicUsize::new(0),
        };
        // SAFETY: not null, and the contract.
        unsafe { domain.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// Shuts a domain down and closes it: calls are refused from now on, requests on their way are
/// answered. Clients and arrays stay valid, and can only be closed. Not inside a delegated function.
///
/// # Safety
/// `domain` is a handle that was not closed, or NULL, and no thread uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_close(domain: *mut linewise_domain) -> i32 {
    edge(|| {
        if domain.is_null() {
            return Ok(());
        }
        // SAFETY: the handle is valid until it is closed here.
        unsafe { &*domain }.domain.shutdown()?;
        // SAFETY: made by `linewise_domain_open`, and the caller gives it up.
        drop(unsafe { Box::from_raw(domain) });
        Ok(())
    })
}

/// How many shards a domain has; 0 for NULL.
///
/// # Safety
/// `domain` is a valid handle or NULL.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_shards(domain: *const linewise_domain) -> u32 {
    // SAFETY: the contract.
    unsafe { domain.as_ref() }.map_or(0, |domain| domain.domain.shards() as u32)
}

/// What a shard's server did so far.
///
/// # Safety
/// `domain` is a valid handle; `stats` points to a structure whose size is set.
#[no_mangle]
pub unsafe extern "C" fn linewise_shard_statistics(
    domain: *const linewise_domain,
    shard: u32,
    stats: *mut linewise_shard_stats,
) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        let domain = unsafe { domain.as_ref() }.ok_or_else(|| Failure::null("domain"))?;
        let all = domain.domain.shard_stats();
        let of = all
            .get(shard as usize)
            .ok_or_else(|| Failure::argument(format!("there is no shard {shard}")))?;
        let told = |size| linewise_shard_stats {
            size,
            passes: of.passes,
            busy_passes: of.busy_passes,
            lines: of.lines,
            requests: of.requests,
            busy_ticks: of.busy_ticks,
        };
        // SAFETY: the contract.
        unsafe { tell(stats, told, "stats") }
    })
}

/// Writes as much of a structure as the caller's version of it has.
///
/// # Safety
/// `place` is null, or points to as many bytes as its first member says; `T` begins with its size.
pub(crate) unsafe fn tell<T>(
    place: *mut T,
    value: impl FnOnce(usize) -> T,
    name: &str,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: every version begins with its size.
    let size = unsafe { place.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() {
        return Err(Failure::argument(format!("{name}->size is not set")));
    }
    let value = value(size);
    // SAFETY: no more bytes than either has.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>(),
            place.cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    Ok(())
}
