//! The timer samplers of a target and the rings they write into: one ring for each CPU, shared by
//! all threads.

use std::io;

use linewise_machine::perf::{Event, SamplerOptions};
use linewise_machine::ring::{Record, Ring};

use crate::error::{Error, sampler};

/// Ring sizes to try, in pages: an ordinary user may lock 516 KiB a CPU and other tools take part
/// of it.
const RING_PAGES: [usize; 5] = [64, 32, 16, 8, 4];

struct CpuRing {
    cpu: u32,
    first: Event,
    ring: Ring,
}

/// All samplers of a target.
pub(crate) struct Samplers {
    options: SamplerOptions,
    rings: Vec<CpuRing>,
    others: Vec<Event>,
    /// On from the first moment to the last, whatever the samplers are.
    trackers: Vec<Event>,
}

impl Samplers {
    /// Opens a sampler for a thread on each CPU; new threads and children follow by themselves.
    ///
    /// # Errors
    /// The kernel's, with what to try.
    pub(crate) fn open(tid: u32, cpus: &[u32], options: SamplerOptions) -> Result<Self, Error> {
        let mut rings = Vec::new();
        let mut trackers = Vec::new();
        let mut pages = &RING_PAGES[..];
        for &cpu in cpus {
            let first = match Event::sampler(tid, cpu, options) {
                Ok(event) => event,
                // A CPU that went offline has no threads to sample.
                Err(error) if error.raw_os_error() == Some(19) => continue,
                Err(error) => {
                    return Err(sampler("perf_event_open of a cpu-clock event failed")(
                        error,
                    ));
                }
            };
            let ring = loop {
                match first.map_ring(pages[0]) {
                    Ok(ring) => break ring,
                    Err(_) if pages.len() > 1 => pages = &pages[1..],
                    Err(error) => return Err(sampler("cannot map a ring buffer")(error)),
                }
            };
            trackers.push(
                track(tid, cpu, options, &first)
                    .map_err(sampler("cannot follow the target's threads"))?,
            );
            rings.push(CpuRing { cpu, first, ring });
        }
        Ok(Self {
            options,
            rings,
            others: Vec::new(),
            trackers,
        })
    }

    /// Samples another thread that is already running.
    ///
    /// # Errors
    /// The kernel's: ESRCH if it is gone.
    pub(crate) fn add(&mut self, tid: u32) -> io::Result<()> {
        for ring in &self.rings {
            let event = Event::sampler(tid, ring.cpu, self.options)?;
            event.redirect_to(&ring.first)?;
            event.enable()?;
            self.others.push(event);
            self.trackers
                .push(track(tid, ring.cpu, self.options, &ring.first)?);
        }
        Ok(())
    }

    /// Starts all samplers (those of a launched target start by themselves at exec).
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.rings
            .iter()
            .map(|ring| &ring.first)
            .chain(&self.others)
            .try_for_each(Event::enable)
    }

    /// Stops sampling.
    pub(crate) fn disable(&self) {
        for event in self
            .rings
            .iter()
            .map(|ring| &ring.first)
            .chain(&self.others)
        {
            // It can only fail for an event that no longer counts.
            let _ = event.disable();
        }
    }

    /// All new records, in the order of their times.
    pub(crate) fn drain(&mut self, into: &mut Vec<Record>) {
        into.clear();
        for ring in &mut self.rings {
            ring.ring.drain(false, |record| into.push(record));
        }
        // A record without a time goes first: it speaks of what came before.
        into.sort_by_key(|record| record.time().unwrap_or(0));
    }
}

/// A tracker that writes into the ring of `first`, started unless exec shall start it.
fn track(tid: u32, cpu: u32, options: SamplerOptions, first: &Event) -> io::Result<Event> {
    let tracker = Event::tracker(tid, cpu, options)?;
    tracker.redirect_to(first)?;
    if !options.enable_on_exec {
        tracker.enable()?;
    }
    Ok(tracker)
}
