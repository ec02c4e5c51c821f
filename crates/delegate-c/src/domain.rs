//! Domains.

use linewise_delegate::{Builder, Domain, Ordered, Policy};
use linewise_edge::{passed, tell, versioned};

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
/// A client's requests to one shard run in the order they were made; to different shards in any order.
pub const LINEWISE_ORDER_SHARD: u32 = 0;
/// All requests of a client run in the order they were made. Slow where shards alternate. A callback that would
/// have to wait before it asks another shard is refused (LINEWISE_NESTED).
pub const LINEWISE_ORDER_CLIENT: u32 = 1;
/// Threads are pinned where `server_cpus` and `client_cpus` say, or nowhere.
pub const LINEWISE_PLACE_GIVEN: u32 = 0;
/// Servers, then the threads of linewise_client_start, are pinned to the CPUs where this process may
/// run, one of each socket in turn.
pub const LINEWISE_PLACE_ROUND_ROBIN: u32 = 1;

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
    /// `LINEWISE_ORDER_SHARD` or `LINEWISE_ORDER_CLIENT`.
    pub ordered: u32,
    /// `LINEWISE_PLACE_GIVEN` or `LINEWISE_PLACE_ROUND_ROBIN`.
    pub placement: u32,
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
pub struct linewise_domain(Domain);

impl linewise_domain {
    /// The domain behind a handle.
    ///
    /// # Safety
    /// `handle` is a valid handle or null.
    pub(crate) unsafe fn of<'a>(handle: *const Self) -> Result<&'a Domain, Failure> {
        // SAFETY: the contract.
        let domain = unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("domain"))?;
        Ok(&domain.0)
    }
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
    /// Visits to a client's lines that found some.
    pub visits: u64,
    /// Request lines answered.
    pub lines: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time at it, in ticks of the processor's reference clock, if the domain is timed.
    pub busy_ticks: u64,
}

/// What the options ask for.
///
/// # Safety
/// The options point to as many CPUs as they say.
unsafe fn builder(options: &linewise_domain_options) -> Result<Builder, Failure> {
    let shards = options.shards as usize;
    let bound = match options.bound {
        0 => BOUND,
        calls => calls,
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
    builder = match options.pending_lines {
        0 => builder,
        LINEWISE_DIRECT => builder.direct_write(),
        lines => builder.pending_queue(lines as usize),
    };
    builder = match options.ordered {
        LINEWISE_ORDER_SHARD => builder.ordered(Ordered::Shard),
        LINEWISE_ORDER_CLIENT => builder.ordered(Ordered::Client),
        other => return Err(Failure::argument(format!("there is no order {other}"))),
    };
    if options.timed != 0 {
        builder = builder.timed();
    }
    if options.shard_bytes > 0 {
        builder = builder.shard_bytes(options.shard_bytes);
    }
    // SAFETY: the contract.
    let (servers, clients) = unsafe {
        (
            passed(options.server_cpus, options.server_cpu_count, "server_cpus")?,
            passed(options.client_cpus, options.client_cpu_count, "client_cpus")?,
        )
    };
    match options.placement {
        LINEWISE_PLACE_GIVEN => Ok(builder.server_cpus(servers).client_cpus(clients)),
        LINEWISE_PLACE_ROUND_ROBIN if servers.is_empty() && clients.is_empty() => {
            Ok(builder.round_robin())
        }
        LINEWISE_PLACE_ROUND_ROBIN => Err(Failure::argument(
            "CPUs are given, and round robin is asked for",
        )),
        other => Err(Failure::argument(format!("there is no placement {other}"))),
    }
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
        // SAFETY: the options are as long as they say, and so are the lists that they point to.
        let opened = unsafe { builder(&versioned(options, "options")?)? }.build()?;
        // SAFETY: not null, and the contract.
        unsafe { domain.write(Box::into_raw(Box::new(linewise_domain(opened)))) };
        Ok(())
    })
}

/// Shuts a domain down: calls are refused from now on, requests on their way are answered, servers
/// end. Called again it does nothing. Not inside a delegated function.
///
/// # Safety
/// `domain` is a valid handle.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_shutdown(domain: *const linewise_domain) -> i32 {
    edge(|| {
        // SAFETY: the contract.
        Ok(unsafe { linewise_domain::of(domain)? }.shutdown()?)
    })
}

/// Shuts a domain down and closes it. Clients, their threads and arrays stay valid, and can only be
/// closed or joined; values that are left end with the last of them. Not inside a delegated function.
///
/// # Safety
/// `domain` is a handle that was not closed, or NULL, and no thread uses it from now on.
#[no_mangle]
pub unsafe extern "C" fn linewise_domain_close(domain: *mut linewise_domain) -> i32 {
    edge(|| {
        if domain.is_null() {
            return Ok(());
        }
        // SAFETY: not null, so made by `linewise_domain_open`; the caller gives it up where it is not refused.
        unsafe {
            (*domain).0.shutdown()?;
            drop(Box::from_raw(domain));
        }
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
    unsafe { domain.as_ref() }.map_or(0, |domain| domain.0.shards() as u32)
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
        // SAFETY: the handle is valid, and the structure as long as it says.
        unsafe {
            let all = linewise_domain::of(domain)?.shard_stats();
            let of = all
                .get(shard as usize)
                .ok_or_else(|| Failure::argument(format!("there is no shard {shard}")))?;
            let told = |size| linewise_shard_stats {
                size,
                passes: of.passes,
                busy_passes: of.busy_passes,
                visits: of.visits,
                lines: of.lines,
                requests: of.requests,
                busy_ticks: of.busy_ticks,
            };
            tell(stats, told, "stats")?;
        }
        Ok(())
    })
}
