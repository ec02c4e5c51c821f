//! Watching lines in threads, and seeing instructions run again: everything that uses a thread's
//! debug registers.

use std::collections::HashMap;
use std::io;

use linewise_cache::Chance;
use linewise_machine::guard::Unguarded;
use linewise_machine::perf::BreakOn;
use linewise_machine::records::{Record, SampleRecord};
use linewise_recording::{Address, Operation, Tid, Time, Watch, WatchOutcome};

use crate::kernel::{Denial, Kernel, PerfEvent, PerfEvents, PerfRing, Warden};
use crate::sources::timer::board::{Choice, chunk_mask};

/// Wall time after which a watch is given up: another thread that comes later than this is not in
/// this one's way, and armed watchpoints slow some programs down (see `budget::ARMED`).
pub(crate) const EXPIRY_NS: u64 = 5_000_000;
/// The same where each stay on a CPU makes the armed watchpoints dearer.
pub(crate) const SHORT_EXPIRY_NS: u64 = 1_000_000;
/// The same for an execution breakpoint.
const BREAKPOINT_EXPIRY_NS: u64 = 20_000_000;
/// Bytes that one watchpoint covers.
pub(crate) const CHUNK: u64 = 8;
/// Watches and breakpoints open at one time: each maps two pages.
const OPEN: usize = 48;

/// A chunk under watch.
struct Chunk<E> {
    index: u8,
    event: E,
    id: u64,
    trapped: bool,
}

/// The chunks of one line, a perf group. The first closes last: without it the others would be
/// armed each for itself.
struct Group<E>(Vec<Chunk<E>>);

impl<E> Drop for Group<E> {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// A line under watch in one thread.
struct LineWatch<E: PerfEvent> {
    row: Watch,
    expiry_ns: u64,
    ring: E::Ring,
    group: Group<E>,
}

/// A finished watch with what it saw.
pub(crate) struct Closed {
    pub row: Watch,
    /// Chunk, and the sample at its trap.
    pub traps: Vec<(u8, SampleRecord)>,
}

/// An instruction awaited in one thread.
struct Awaited<E: PerfEvent, T> {
    /// Held so that it stays armed.
    _event: E,
    ring: E::Ring,
    since: Time,
    ticket: T,
}

/// Bytes of what a watch chooses its chunks from: the line, or of a longer one the 64 bytes where the access was, since
/// the mask of a watch's row has eight bits.
pub(crate) fn watched_bytes(line_size: u64) -> u64 {
    line_size.min(8 * CHUNK)
}

/// A breakpoint and its ring.
type Armed<K> = (
    <K as PerfEvents>::Event,
    <<K as PerfEvents>::Event as PerfEvent>::Ring,
);

/// All open watches and breakpoints. `T` is what the caller wants back with a breakpoint.
pub(crate) struct Watcher<K: Kernel, T> {
    kernel: K,
    /// See [`watched_bytes`].
    watched_bytes: u64,
    registers: u32,
    next_id: u64,
    watches: HashMap<Tid, LineWatch<K::Event>>,
    awaited: HashMap<Tid, Awaited<K::Event, T>>,
    /// Dropped after what is armed.
    guard: Option<K::Guard>,
}

/// Why a thread was not watched.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The kernel's error.
    Kernel(io::Error),
    /// It would not be safe for the thread.
    Unguarded(Unguarded),
}

impl Refused {
    /// The thread has ended, and is not to be chosen again.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Kernel(error) => Denial::of(error) == Denial::NoSuchThread,
            Self::Unguarded(reason) => *reason == Unguarded::Gone,
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

/// What came of an awaited instruction: the sample before it ran, or nothing in time.
pub(crate) struct Answer<T> {
    pub ticket: T,
    pub sample: Option<SampleRecord>,
}

impl<K: Kernel, T> Watcher<K, T> {
    /// `guard` is there where a trap could harm the target without one.
    pub(crate) fn new(kernel: K, line_size: u64, registers: u32, guard: Option<K::Guard>) -> Self {
        Self {
            kernel,
            guard,
            watched_bytes: watched_bytes(line_size),
            registers,
            next_id: 1,
            watches: HashMap::new(),
            awaited: HashMap::new(),
        }
    }

    /// Whether a thread can be watched now.
    pub(crate) fn free(&self, tid: Tid) -> bool {
        self.registers > 0
            && !self.watches.contains_key(&tid)
            && !self.awaited.contains_key(&tid)
            && self.watches.len() + self.awaited.len() < OPEN
            && !(self.guard.as_ref()).is_some_and(|guard| guard.has_left(tid.0))
    }

    /// Makes a thread ready to be watched.
    ///
    /// # Errors
    /// When it cannot be guarded.
    pub(crate) fn protect(&mut self, tid: Tid) -> Result<(), Refused> {
        match &mut self.guard {
            Some(guard) => guard.protect(tid.0).map_err(Refused::Unguarded),
            None => Ok(()),
        }
    }

    /// The guard, where there is one.
    pub(crate) fn guard(&mut self) -> Option<&mut K::Guard> {
        self.guard.as_mut()
    }

    /// Takes down what is armed in a thread.
    pub(crate) fn disarm(&mut self, tid: Tid) {
        self.watches.remove(&tid);
        self.awaited.remove(&tid);
    }

    /// Lets all guarded threads go; nothing may be armed any more.
    pub(crate) fn release(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.release();
        }
    }

    /// How many traps would have ended the target.
    pub(crate) fn held_back(&self) -> u64 {
        self.guard.as_ref().map_or(0, Warden::held_back)
    }

    /// Watches a line in a thread: as many of its chunks as there are debug registers, chosen at
    /// random, half of them from those that the thread is known to touch; given up after
    /// `expiry_ns`. Returns how many breakpoints were armed.
    ///
    /// # Errors
    /// When not even one could be armed: ENOSPC when a debugger has them all; or when none should.
    pub(crate) fn watch(
        &mut self,
        choice: &Choice,
        expiry_ns: u64,
        now: Time,
        chance: &mut Chance,
    ) -> Result<u32, Refused> {
        self.protect(choice.watched)?;
        let published = &choice.published;
        let line = published.address.line(self.watched_bytes);
        let chunks = choose_chunks(choice, self.watched_bytes, self.registers, chance);
        let on = match published.operation {
            // Two loads do not disturb each other.
            Operation::Load => BreakOn::Write,
            Operation::Store | Operation::Update => BreakOn::ReadWrite,
        };
        let mut group = Group(Vec::new());
        let opened = &mut group.0;
        let mut refused = None;
        for index in in_order(chunks, choice, self.watched_bytes) {
            let address = line.0 + u64::from(index) * CHUNK;
            let first = opened.first().map(|chunk| &chunk.event);
            match (self.kernel).breakpoint(choice.watched.0, (address, CHUNK as u32), on, first) {
                Ok(event) => opened.push(Chunk {
                    index,
                    id: event.id()?,
                    event,
                    trapped: false,
                }),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let Some(first) = opened.first() else {
            let refused = refused.unwrap_or_else(|| Denial::NoRegister.error());
            return Err(refused.into());
        };
        let ring = first.event.map_ring(1)?;
        for chunk in &opened[1..] {
            chunk.event.redirect_to(&opened[0].event)?;
        }
        // The first comes last: it takes the others with it, in one interrupt of the thread.
        for chunk in opened.iter().rev() {
            chunk.event.arm_shots(1)?;
        }
        let armed = self.kernel.now();
        let row = Watch {
            id: self.next_id,
            armed,
            closed: now,
            pid: published.pid,
            tid: choice.watched,
            publisher: published.tid,
            address: published.address,
            size: published.size,
            operation: published.operation,
            chunks: opened
                .iter()
                .fold(0, |mask, chunk| mask | (1 << chunk.index)),
            publisher_cpu: published.cpu,
            outcome: WatchOutcome::Expired,
            exposure_ns: 0,
        };
        self.next_id += 1;
        let shots = opened.len() as u32;
        let watch = LineWatch {
            row,
            expiry_ns,
            ring,
            group,
        };
        self.watches.insert(choice.watched, watch);
        Ok(shots)
    }

    /// Waits for an instruction to run in a thread.
    ///
    /// # Errors
    /// The ticket, where it cannot be armed.
    pub(crate) fn await_instruction(
        &mut self,
        tid: Tid,
        ip: Address,
        now: Time,
        ticket: T,
    ) -> Result<(), T> {
        let Ok((event, ring)) = self.arm_breakpoint(tid, ip) else {
            return Err(ticket);
        };
        let awaited = Awaited {
            _event: event,
            ring,
            since: now,
            ticket,
        };
        self.awaited.insert(tid, awaited);
        Ok(())
    }

    fn arm_breakpoint(&mut self, tid: Tid, ip: Address) -> Result<Armed<K>, Refused> {
        self.protect(tid)?;
        let event = (self.kernel).breakpoint(tid.0, (ip.0, 8), BreakOn::Execute, None)?;
        let ring = event.map_ring(1)?;
        event.arm_shots(1)?;
        Ok((event, ring))
    }

    /// Whether anything is armed.
    pub(crate) fn is_open(&self) -> bool {
        !self.watches.is_empty() || !self.awaited.is_empty()
    }

    /// Whether a watch is open that is to be given up soon.
    pub(crate) fn is_hurried(&self) -> bool {
        self.watches
            .values()
            .any(|watch| watch.expiry_ns == SHORT_EXPIRY_NS)
    }

    /// Takes down what has trapped or expired; everything when `all` is set.
    pub(crate) fn collect(&mut self, now: Time, all: bool) -> (Vec<Closed>, Vec<Answer<T>>) {
        let done: Vec<Tid> = self
            .watches
            .iter()
            .filter(|(_, watch)| {
                all || !watch.ring.is_empty() || now.since(watch.row.armed) > watch.expiry_ns
            })
            .map(|(&tid, _)| tid)
            .collect();
        let closed = done
            .into_iter()
            .filter_map(|tid| self.watches.remove(&tid))
            .map(|watch| close(watch, now, all))
            .collect();
        let done: Vec<Tid> = self
            .awaited
            .iter()
            .filter(|(_, awaited)| {
                all || !awaited.ring.is_empty() || now.since(awaited.since) > BREAKPOINT_EXPIRY_NS
            })
            .map(|(&tid, _)| tid)
            .collect();
        let answers = done
            .into_iter()
            .filter_map(|tid| self.awaited.remove(&tid))
            .map(|mut awaited| {
                let mut sample = None;
                awaited.ring.drain(|record| {
                    if let Record::Sample(record) = record {
                        sample = Some(*record);
                    }
                });
                Answer {
                    ticket: awaited.ticket,
                    sample,
                }
            })
            .collect();
        (closed, answers)
    }
}

/// Half of the registers go to chunks that the thread is known to touch, the rest anywhere else:
/// each chunk keeps a chance, so that the rates estimated for it stay unbiased.
fn choose_chunks(choice: &Choice, watched_bytes: u64, registers: u32, chance: &mut Chance) -> u8 {
    let published = chunk_mask(
        choice.published.address,
        choice.published.size,
        watched_bytes,
    );
    let known = if choice.known_chunks == 0 {
        published
    } else {
        choice.known_chunks
    };
    let all = chunk_mask(Address(0), watched_bytes as u32, watched_bytes);
    let favourites = chance.chunks(known, registers / 2);
    let rest = registers - favourites.count_ones();
    favourites | chance.chunks(all & !favourites, rest)
}

/// The chunks under watch, the leader of their group first: its trap ends the watch of all, so it is the one after which
/// nothing more is to be learned, the published one, or else one that the thread is not expected at. Where that is led by
/// the thread's own word, whether it uses the other's would be looked at for microseconds.
fn in_order(chunks: u8, choice: &Choice, watched_bytes: u64) -> Vec<u8> {
    let published = chunk_mask(
        choice.published.address,
        choice.published.size,
        watched_bytes,
    );
    let is_in = |mask: u8, index: u8| mask & (1 << index) != 0;
    let mut order: Vec<u8> = (0..8).filter(|&index| is_in(chunks, index)).collect();
    order.sort_by_key(|&index| match is_in(published, index) {
        true => 0,
        false => 1 + u8::from(is_in(choice.known_chunks, index)),
    });
    order
}

fn close<E: PerfEvent>(mut watch: LineWatch<E>, now: Time, ended: bool) -> Closed {
    // Disarm before reading, so that nothing traps in between: the first takes the others with it.
    if let Some(first) = watch.group.0.first() {
        // A failure means that the thread is gone, and its debug registers with it.
        let _ = first.event.disable();
    }
    let mut traps = Vec::new();
    let chunks = &mut watch.group.0;
    watch.ring.drain(|record| {
        if let Record::Sample(sample) = record
            && let Some(chunk) = chunks.iter_mut().find(|chunk| chunk.id == sample.id)
            && !chunk.trapped
        {
            chunk.trapped = true;
            traps.push((chunk.index, *sample));
        }
    });
    watch.row.closed = now;
    watch.row.exposure_ns = watch
        .group
        .0
        .iter()
        .filter(|chunk| !chunk.trapped)
        .filter_map(|chunk| chunk.event.read().ok())
        .map(|read| read.running_ns)
        .max()
        .unwrap_or(0);
    watch.row.outcome = if !traps.is_empty() {
        WatchOutcome::Trapped
    } else if ended {
        WatchOutcome::Ended
    } else {
        WatchOutcome::Expired
    };
    Closed {
        row: watch.row,
        traps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Machine;
    use crate::sources::timer::board::Published;
    use linewise_recording::{CpuId, Pid};

    #[test]
    fn of_a_longer_line_the_64_bytes_are_watched_where_the_access_was() {
        let watcher = Watcher::<_, ()>::new(Machine, 128, 4, None);
        assert_eq!(watcher.watched_bytes, 64);
        assert_eq!(
            Watcher::<_, ()>::new(Machine, 32, 4, None).watched_bytes,
            32
        );
        let mut chance = Chance::seeded(11);
        let choice = choice(0x10c8, 0);
        for _ in 0..100 {
            let chosen = choose_chunks(&choice, 64, 4, &mut chance);
            assert!(chosen & 0b10 != 0, "the chunk of the access is known");
            assert_eq!(choose_chunks(&choice, 32, 4, &mut chance), 0b1111);
        }
    }

    fn choice(address: u64, known_chunks: u8) -> Choice {
        Choice {
            published: Published {
                time: Time(0),
                pid: Pid(1),
                tid: Tid(1),
                cpu: CpuId(0),
                address: Address(address),
                at: Address(address),
                size: 8,
                operation: Operation::Store,
            },
            watched: Tid(2),
            known_chunks,
            at: None,
        }
    }

    #[test]
    fn every_chunk_is_watched_now_and_then_and_known_ones_more_often() {
        let choice = choice(0x1000, 0b1000);
        let mut chance = Chance::seeded(11);
        let mut counts = [0; 8];
        for _ in 0..4000 {
            let chosen = choose_chunks(&choice, 64, 4, &mut chance);
            let order = in_order(chosen, &choice, 64);
            let (published, known) = (0, 3);
            assert_eq!(order.len(), 4);
            assert!(!order[1..].contains(&published) && !order[..3].contains(&known));
            assert_eq!(chosen.count_ones(), 4);
            for (i, count) in counts.iter_mut().enumerate() {
                *count += u32::from(chosen & (1 << i) != 0);
            }
        }
        assert_eq!(counts[3], 4000);
        assert!(counts.iter().all(|&count| count > 1400), "{counts:?}");
    }
}
