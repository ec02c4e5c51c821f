//! What a domain counts about itself: the four things that the paper plots.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::Served;

/// A clock of the processor: cycles of its reference clock on x86-64, else nanoseconds.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: reading the time stamp has no precondition.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// A number with one writer at a time: no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    #[inline(always)]
    pub(crate) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counted by who serves a shard.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ShardCounters {
    passes: Tally,
    busy_passes: Tally,
    visits: Tally,
    lines: Tally,
    requests: Tally,
    busy_ticks: Tally,
}

impl ShardCounters {
    #[inline(always)]
    pub(crate) fn passed(&self, worked: bool) {
        self.passes.add(1);
        self.busy_passes.add(u64::from(worked));
    }

    #[inline(always)]
    pub(crate) fn served(&self, served: Served) {
        self.visits.add(1);
        self.lines.add(served.lines);
        self.requests.add(served.requests);
    }

    pub(crate) fn busy(&self, ticks: u64) {
        self.busy_ticks.add(ticks);
    }

    pub(crate) fn read(&self) -> ShardStats {
        ShardStats {
            passes: self.passes.get(),
            busy_passes: self.busy_passes.get(),
            visits: self.visits.get(),
            lines: self.lines.get(),
            requests: self.requests.get(),
            busy_ticks: self.busy_ticks.get(),
        }
    }
}

/// Counted by a client.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClientCounters {
    pub(crate) lines: Tally,
    pub(crate) requests: Tally,
    pub(crate) local: Tally,
    pub(crate) polls: Tally,
    pub(crate) ready: Tally,
    pub(crate) pops: Tally,
    pub(crate) failed_pops: Tally,
    pub(crate) blocked: Tally,
    pub(crate) latency_ticks: Tally,
    pub(crate) latency_lines: Tally,
}

impl ClientCounters {
    /// Grows with everything that is answered.
    pub(crate) fn answered(&self) -> u64 {
        self.lines.get() + self.local.get()
    }

    pub(crate) fn read(&self) -> ClientStats {
        ClientStats {
            lines: self.lines.get(),
            requests: self.requests.get(),
            local: self.local.get(),
            polls: self.polls.get(),
            ready: self.ready.get(),
            pops: self.pops.get(),
            failed_pops: self.failed_pops.get(),
            blocked: self.blocked.get(),
            latency_ticks: self.latency_ticks.get(),
            latency_lines: self.latency_lines.get(),
        }
    }
}

/// What a shard's server did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStats {
    /// Looks at all channels.
    pub passes: u64,
    /// Looks that found something.
    pub busy_passes: u64,
    /// Visits to a channel that had lines.
    pub visits: u64,
    /// Request lines answered.
    pub lines: u64,
    /// Requests answered.
    pub requests: u64,
    /// Time in visits, in ticks of the processor's reference clock (`Builder::timed`; else 0).
    pub busy_ticks: u64,
}

impl ShardStats {
    /// Server saturation: the share of its passes that found work, 0 to 1.
    pub fn saturation(&self) -> f64 {
        ratio(self.busy_passes, self.passes)
    }

    /// Reference cycles for a request, from the visit's begin to its end (`Builder::timed`).
    pub fn ticks_per_request(&self) -> f64 {
        ratio(self.busy_ticks, self.requests)
    }
}

/// What a client did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Request lines sent.
    pub lines: u64,
    /// Requests sent.
    pub requests: u64,
    /// Calls on the client's own shard that ran inline.
    pub local: u64,
    /// Looks at a line in flight.
    pub polls: u64,
    /// Looks that found it answered.
    pub ready: u64,
    /// Attempts to take a line from a pending queue for a free request line.
    pub pops: u64,
    /// Attempts that found the pending queue empty.
    pub failed_pops: u64,
    /// Times the client had neither a free request line nor room in the pending queue.
    pub blocked: u64,
    /// Time from the first request of a line to its callbacks, summed (`Builder::timed`; else 0).
    pub latency_ticks: u64,
    /// Lines in that sum.
    pub latency_lines: u64,
}

impl ClientStats {
    /// Responses ready: the share of looks that found an answer, 0 to 1.
    pub fn responses_ready(&self) -> f64 {
        ratio(self.ready, self.polls)
    }

    /// Failed queue pops: the share of free request lines that found no pending request, 0 to 1.
    pub fn failed_pop_share(&self) -> f64 {
        ratio(self.failed_pops, self.pops)
    }

    /// Request latency, from generation to callback, in ticks of the processor's reference clock
    /// (`Builder::timed`).
    pub fn latency(&self) -> f64 {
        ratio(self.latency_ticks, self.latency_lines)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
