//! Samplers of the target's threads, which new threads inherit.

use std::io;

use linewise_machine::perf::{SamplerOptions, Whom};
use linewise_machine::records::Record;

use super::doubles::{Doubles, Verdict};
use super::rings::{RING_PAGES, at_once, drain, map_ring};
use crate::error::{Error, sampler};
use crate::kernel::{Denial, PerfEvent, PerfEvents};

/// Open files that are kept free for watchpoints (see [`crate::sources::timer::watch`]), for the recording and for
/// what is read along the way.
pub(crate) const KEPT_FREE: u64 = 96;

/// How much shorter the period becomes for threads that live shortly, but no shorter than a few times
/// what a sample costs.
const FINER: u64 = 8;
const SHORTEST_PERIOD_NS: u64 = 100_000;

/// Open files that a reopening may take, at most.
const MOST_FILES: u64 = 1024;

struct CpuRing<E: PerfEvent> {
    cpu: u32,
    first: E,
    ring: E::Ring,
}

/// The samplers of all threads.
pub(crate) struct ThreadSamplers<K: PerfEvents> {
    kernel: K,
    options: SamplerOptions,
    rings: Vec<CpuRing<K::Event>>,
    /// Those of threads that were running already, with their ids.
    others: Vec<(u64, K::Event)>,
    /// What takes the place of `first` in a launched target whose threads live too shortly for its
    /// period. (The period of an open sampler cannot be changed for the threads to come: where two
    /// threads of one program follow each other on a CPU, the kernel swaps their samplers instead of
    /// stopping and starting them, and the opened one ends with whichever thread has it then.)
    fine: Vec<K::Event>,
    is_fine: bool,
    doubles: Doubles,
    /// On from the first moment to the last, whatever the samplers are.
    trackers: Vec<K::Event>,
}

impl<K: PerfEvents> ThreadSamplers<K> {
    /// Opens a sampler for a thread on each CPU; new threads and children follow by themselves.
    ///
    /// # Errors
    /// The kernel's, with what to try.
    pub(crate) fn open(
        kernel: K,
        tid: u32,
        cpus: &[u32],
        options: SamplerOptions,
    ) -> Result<Self, Error> {
        let mut rings = Vec::new();
        let (mut trackers, mut fine) = (Vec::new(), Vec::new());
        let mut pages = &RING_PAGES[1..];
        for &cpu in cpus {
            let first = match kernel.sampler(Whom::Thread(tid), cpu, options) {
                Ok(event) => event,
                Err(error) if Denial::of(&error) == Denial::OfflineCpu => continue,
                Err(error) => {
                    return Err(sampler("perf_event_open of a cpu-clock event failed")(
                        error,
                    ));
                }
            };
            let ring = map_ring(&first, &mut pages)?;
            trackers.push(
                track(&kernel, tid, cpu, options, &first)
                    .map_err(sampler("cannot follow the target's threads"))?,
            );
            if options.enable_on_exec {
                fine.push(
                    finer(&kernel, tid, cpu, options, &first)
                        .map_err(sampler("perf_event_open of a cpu-clock event failed"))?,
                );
            }
            rings.push(CpuRing { cpu, first, ring });
        }
        Ok(Self {
            kernel,
            options,
            rings,
            others: Vec::new(),
            fine,
            is_fine: false,
            doubles: Doubles::default(),
            trackers,
        })
    }

    /// Open files that [`ThreadSamplers::add`] takes for each thread.
    pub(crate) fn files_a_thread(&self) -> usize {
        2 * self.rings.len()
    }

    /// Samples another thread that is already running, on all CPUs or, if that fails, on none.
    ///
    /// # Errors
    /// The kernel's: ESRCH if it is gone, EMFILE if it takes too many open files.
    pub(crate) fn add(&mut self, tid: u32) -> io::Result<()> {
        let mut samplers = Vec::new();
        let mut trackers = Vec::new();
        for ring in &self.rings {
            let event = self
                .kernel
                .sampler(Whom::Thread(tid), ring.cpu, self.options)?;
            event.redirect_to(&ring.first)?;
            samplers.push((event.id()?, event));
            trackers.push(track(
                &self.kernel,
                tid,
                ring.cpu,
                self.options,
                &ring.first,
            )?);
        }
        for (_, event) in &samplers {
            event.enable()?;
        }
        self.others.append(&mut samplers);
        self.trackers.append(&mut trackers);
        Ok(())
    }

    /// Opens samplers anew for threads of the target, in place of those that went silent, and starts
    /// them; to how many threads it gave some. Should the old ones come back, no sample counts twice.
    pub(crate) fn reopen(&mut self, tids: impl Iterator<Item = u32>) -> usize {
        let options = SamplerOptions {
            period_ns: match self.is_fine {
                true => finer_period_ns(self.options.period_ns),
                false => self.options.period_ns,
            },
            ..at_once(self.options)
        };
        let taken = self.kernel.own_open_files() + KEPT_FREE;
        let room = self.kernel.raise_open_files().saturating_sub(taken);
        let room = room.min(MOST_FILES) as usize / self.rings.len().max(1);
        let mut reopened = 0;
        for tid in tids.take(room) {
            let open = |ring: &CpuRing<K::Event>| {
                let event = self.kernel.sampler(Whom::Thread(tid), ring.cpu, options)?;
                event.redirect_to(&ring.first)?;
                event.enable()?;
                Ok((event.id()?, event))
            };
            // A thread may have ended.
            let opened: io::Result<Vec<_>> = self.rings.iter().map(open).collect();
            if let Ok(mut opened) = opened {
                self.others.append(&mut opened);
                reopened += 1;
            }
        }
        reopened
    }

    /// The samplers that are on, or will be when they are enabled.
    fn chosen(&self) -> impl Iterator<Item = &K::Event> {
        let (first, fine) = match self.is_fine {
            false => (&self.rings[..], &[][..]),
            true => (&[][..], &self.fine[..]),
        };
        let others = self.others.iter().map(|(_, event)| event);
        first
            .iter()
            .map(|ring| &ring.first)
            .chain(fine)
            .chain(others)
    }

    /// Starts all samplers (those of a launched target start by themselves at exec).
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // All of them, whatever becomes of one.
        self.chosen()
            .map(PerfEvent::enable)
            .fold(Ok(()), io::Result::and)
    }

    /// Stops sampling.
    pub(crate) fn disable(&self) {
        // It can only fail for an event that no longer counts.
        self.chosen().for_each(|event| drop(event.disable()));
    }

    /// Samples with a shorter period from now on, if that can be done for this target; the period,
    /// ns. Starts the samplers.
    pub(crate) fn refine(&mut self) -> Option<u64> {
        if self.is_fine || self.fine.is_empty() {
            return None;
        }
        self.disable();
        self.is_fine = true;
        // It fails only where no thread is left.
        let _ = self.enable();
        Some(finer_period_ns(self.options.period_ns))
    }

    /// All new records, in the order of their times.
    pub(crate) fn drain(&mut self, into: &mut Vec<Record>) {
        drain(self.rings.iter_mut().map(|ring| &mut ring.ring), into);
        if !self.others.is_empty() {
            into.retain(|record| self.counts(record));
        }
    }

    /// Whether a record counts: not when it is the second sample of a thread that inherited a
    /// sampler and was given one, too.
    fn counts(&mut self, record: &Record) -> bool {
        match record {
            Record::Sample(sample) => match self.doubles.judge(sample.tid, sample.cpu, sample.id) {
                Verdict::Keep => true,
                Verdict::Drop => false,
                Verdict::KeepAndClose(id) => {
                    self.others.retain(|(other, _)| *other != id);
                    true
                }
            },
            Record::Fork { tid, .. } | Record::Exit { tid, .. } => {
                let cpus = self.rings.iter().map(|ring| ring.cpu);
                self.doubles.forget(*tid, cpus);
                true
            }
            _ => true,
        }
    }
}

/// A tracker that writes into the ring of `first`, started unless exec shall start it.
fn track<K: PerfEvents>(
    kernel: &K,
    tid: u32,
    cpu: u32,
    options: SamplerOptions,
    first: &K::Event,
) -> io::Result<K::Event> {
    let tracker = kernel.tracker(Whom::Thread(tid), cpu, options)?;
    tracker.redirect_to(first)?;
    if !options.enable_on_exec {
        tracker.enable()?;
    }
    Ok(tracker)
}

/// The shorter period that goes with `period_ns`.
pub(crate) fn finer_period_ns(period_ns: u64) -> u64 {
    (period_ns / FINER).max(SHORTEST_PERIOD_NS)
}

/// A sampler of a shorter period that writes into the ring of `first`. It waits to be enabled.
fn finer<K: PerfEvents>(
    kernel: &K,
    tid: u32,
    cpu: u32,
    options: SamplerOptions,
    first: &K::Event,
) -> io::Result<K::Event> {
    let options = SamplerOptions {
        period_ns: finer_period_ns(options.period_ns),
        ..at_once(options)
    };
    let fine = kernel.sampler(Whom::Thread(tid), cpu, options)?;
    fine.redirect_to(first)?;
    Ok(fine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;
    use linewise_machine::{affinity, process, procfs};

    const PERIOD_NS: u64 = 200_000;

    /// Computes until this thread has used that much CPU time.
    fn work(ns: u64) -> u64 {
        let (pid, tid) = (std::process::id(), process::current_tid());
        let used = || procfs::thread_cpu_time_ns(pid, tid).unwrap();
        let start = used();
        loop {
            std::hint::black_box((0..100_000u64).fold(0, |sum, i| sum ^ std::hint::black_box(i)));
            // The kernel brings the figure up to date at switches and ticks.
            std::thread::yield_now();
            let now = used();
            if now - start >= ns {
                return now - start;
            }
        }
    }

    #[test]
    fn a_thread_that_inherits_a_sampler_and_is_given_one_is_sampled_once() {
        let options = SamplerOptions {
            period_ns: PERIOD_NS,
            enable_on_exec: false,
            inherit: true,
        };
        let cpus = affinity::allowed_cpus();
        let mut samplers =
            match ThreadSamplers::open(Machine, process::current_tid(), &cpus, options) {
                Ok(samplers) => samplers,
                Err(error) => return eprintln!("skipped: {error}"),
            };
        samplers.enable().unwrap();
        let (tell, tid) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(process::current_tid()).unwrap();
            wait.recv().unwrap();
            (0..20).map(|_| work(10_000_000)).sum::<u64>()
        });
        let tid = tid.recv().unwrap();
        samplers.add(tid).unwrap();
        let opened = samplers.others.len();
        go.send(()).unwrap();
        let mut samples = 0;
        let mut records = Vec::new();
        while !thread.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(5));
            samplers.drain(&mut records);
            samples += records
                .iter()
                .filter(|record| matches!(record, Record::Sample(s) if s.tid == tid))
                .count();
        }
        let expected = thread.join().unwrap() as f64 / PERIOD_NS as f64;
        assert!(
            (0.5..1.4).contains(&(samples as f64 / expected)),
            "{samples} samples, {expected:.0} periods"
        );
        assert!(samplers.others.len() < opened, "both samplers stay open");
    }

    #[test]
    fn samplers_that_went_silent_are_opened_anew() {
        let options = SamplerOptions {
            period_ns: PERIOD_NS,
            enable_on_exec: false,
            inherit: true,
        };
        let cpus = affinity::allowed_cpus();
        let tid = process::current_tid();
        let mut samplers = match ThreadSamplers::open(Machine, tid, &cpus, options) {
            Ok(samplers) => samplers,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let samples = |samplers: &mut ThreadSamplers<Machine>| {
            work(20_000_000);
            let mut records = Vec::new();
            samplers.drain(&mut records);
            let is_own = |record: &&Record| matches!(record, Record::Sample(s) if s.tid == tid);
            records.iter().filter(is_own).count()
        };
        samplers.enable().unwrap();
        assert_ne!(samples(&mut samplers), 0);
        for ring in &samplers.rings {
            ring.first.disable().unwrap();
        }
        samples(&mut samplers);
        assert_eq!(samples(&mut samplers), 0);
        // One that is gone meanwhile gets none.
        assert_eq!(samplers.reopen([tid, u32::MAX >> 1].into_iter()), 1);
        assert_ne!(samples(&mut samplers), 0);
        // The old ones come back: no time counts twice.
        samplers.enable().unwrap();
        let both = (0..5).map(|_| samples(&mut samplers)).sum::<usize>();
        assert!(both <= 700, "{both} samples in 500 periods");
    }
}
