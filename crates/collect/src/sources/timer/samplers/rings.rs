//! The rings of samplers, and how they are emptied.

use linewise_machine::perf::SamplerOptions;
use linewise_machine::records::Record;

use crate::error::{Error, sampler};
use crate::kernel::{PerfEvent, PerfRing};

/// Ring sizes to try, in pages: an ordinary user may lock 516 KiB a CPU and other tools take part
/// of it. The first is for those who may lock more.
pub(super) const RING_PAGES: [usize; 6] = [128, 64, 32, 16, 8, 4];

/// What a sampler is opened with when it shall run at once rather than at an exec.
pub(super) fn at_once(options: SamplerOptions) -> SamplerOptions {
    SamplerOptions {
        enable_on_exec: false,
        ..options
    }
}

/// What records are told by, in order: their times. One without a time goes first: it speaks of what came before.
pub(crate) fn order(record: &Record) -> u64 {
    record.time().unwrap_or(0)
}

/// All new records of some rings, in the order of their times.
pub(super) fn drain<'a, R: PerfRing + 'a>(
    rings: impl Iterator<Item = &'a mut R>,
    into: &mut Vec<Record>,
) {
    into.clear();
    for ring in rings {
        ring.drain(|record| into.push(record));
    }
    into.sort_by_key(order);
}

/// A ring for the events of a CPU, as large as this user may have; the next one is no larger.
pub(super) fn map_ring<E: PerfEvent>(event: &E, pages: &mut &[usize]) -> Result<E::Ring, Error> {
    loop {
        match event.map_ring(pages[0]) {
            Ok(ring) => return Ok(ring),
            Err(_) if pages.len() > 1 => *pages = &pages[1..],
            Err(error) => return Err(sampler("cannot map a ring buffer")(error)),
        }
    }
}
