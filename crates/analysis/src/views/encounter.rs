//! How often the other threads come to a line, from what the watches saw.
//!
//! A watch that is armed at a random moment waits until the thread next touches a watched chunk.
//! From those waits comes a rate. They are a mixture: a thread that works on the line comes within
//! nanoseconds, one that is elsewhere, or off its CPU, comes milliseconds later or never. One rate
//! for both would be that of the absent thread, so they are kept apart:
//!
//! ```text
//! presence   of the moments at which the thread runs, the share at which it is at work on the chunk
//!            (waits that are shorter than a thread elsewhere would explain)
//! rate       accesses a second of a thread that is not: traps over the time watched in vain
//! ```
//!
//! Waits are in time of the watched thread, so neither says whether it runs while the publisher
//! does: [`Stays`] knows that, from the switches.
//!
//! Each chunk is estimated by itself from the watches that included it, which scales for the
//! bytes not watched (ComDetective, section 5.3.2, made exact for each chunk).

use std::cell::RefCell;
use std::collections::HashMap;

use linewise_recording::{
    Address, CpuId, Operation, Pid, Sample, SampleClass, SharedMemory, Switch, Tid, Time, Trap,
    Watch,
};

use crate::users::Goroutines;

/// A wait up to this long means that the thread was at work on the chunk, ns. What a trap takes a
/// virtual machine varies by some 15 µs, by how busy it is, and now and then by 30: a shorter limit
/// would take that for an absence.
const PRESENT_NS: f64 = 40_000.0;
/// The mean wait of the fastest thread that counts as elsewhere, ns. Of one that comes sooner the
/// waits do not tell more than that it is present; and a few waits that the machine stretched just
/// beyond the limit must not look like a thread that comes all the time and is never there.
const FASTEST_ABSENT_NS: f64 = 2.0 * PRESENT_NS;
/// The mean wait of the fastest thread whose waits bound how often it comes, ns: one that shares a lock with others waits
/// for their watches, too, which stop them while they hold it.
const FASTEST_BOUNDED_NS: f64 = 4.0 * PRESENT_NS;
/// What the kernel counts for a watch while its thread runs elsewhere is the time that arming takes:
/// not more than this, ns.
const LONGEST_ARMING_NS: f64 = 100_000.0;

/// What the watches of one thread say of one chunk.
#[derive(Clone, Debug, Default)]
struct ChunkWaits {
    /// Those that saw any access.
    any: Waits,
    /// Those that saw writes alone: of lines that were read where they were sampled.
    writes: Waits,
}

impl ChunkWaits {
    fn all(&self) -> Waits {
        self.any.and(self.writes)
    }
}

/// Watches of one chunk, and how long they waited.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// Watches that tell something: for long enough, or with a trap.
    watches: u32,
    /// Traps of a thread at work on it.
    present: u32,
    /// Of those, of a thread that was off its CPU when the watch was armed: it goes there when it wakes, which says
    /// nothing of how often it does so at work.
    woken: u32,
    /// Traps of a thread that came from elsewhere.
    late_traps: u32,
    /// Time watched beyond [`PRESENT_NS`], ns.
    late_ns: f64,
}

/// A place and a way in which a line is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Touch {
    /// The process of the instruction.
    pub pid: Pid,
    /// The instruction; 0 when it could not be named.
    pub ip: Address,
    /// First byte, at its home where processes share it.
    pub address: Address,
    /// Bytes.
    pub size: u32,
    /// What it does.
    pub operation: Operation,
    /// Whether it is locked.
    pub locked: bool,
    /// The goroutine that does it, where it is known.
    pub goroutine: Option<Address>,
}

impl Touch {
    /// What a sample touched; `None` if it is none of an access.
    pub(crate) fn sampled(
        sample: &Sample,
        shared: &SharedMemory,
        goroutines: &Goroutines,
    ) -> Option<Self> {
        let is_access = sample.class == SampleClass::Access;
        Some(Self {
            pid: sample.pid,
            ip: sample.access_ip,
            address: shared.home(sample.pid, sample.address).1,
            size: sample.size,
            operation: sample.operation.filter(|_| is_access)?,
            locked: sample.locked,
            goroutine: goroutines.at(sample.tid, sample.time),
        })
    }

    /// What a trap touched.
    pub(crate) fn trapped(trap: &Trap, shared: &SharedMemory, goroutines: &Goroutines) -> Self {
        Self {
            pid: trap.pid,
            ip: trap.access_ip,
            address: shared.home(trap.pid, trap.address).1,
            size: trap.size,
            operation: trap.operation,
            locked: trap.locked,
            goroutine: goroutines.at(trap.tid, trap.time),
        }
    }

    /// Whether the two have a byte in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let end = |touch: &Self| touch.address.0 + u64::from(touch.size);
        self.address.0 < end(other) && other.address.0 < end(self)
    }
}

/// One thread at one line, as its watches saw it.
#[derive(Clone, Debug, Default)]
pub struct Encounter {
    chunks: [ChunkWaits; 8],
    /// Watches of the line in the thread.
    pub watches: u64,
    /// Traps by a conflicting access.
    pub traps: u64,
    /// What the thread did, with how often.
    pub accesses: HashMap<Touch, u32>,
}

impl Encounter {
    /// Takes what was seen at another line as if it had been this one.
    pub(super) fn add(&mut self, other: &Self) {
        for (chunk, more) in self.chunks.iter_mut().zip(&other.chunks) {
            chunk.any = chunk.any.and(more.any);
            chunk.writes = chunk.writes.and(more.writes);
        }
        self.watches += other.watches;
        self.traps += other.traps;
        for (&touch, count) in &other.accesses {
            *self.accesses.entry(touch).or_default() += count;
        }
    }

    /// What its watches that saw nothing say: of which chunks there are how many.
    pub(super) fn in_vain(&self) -> Self {
        let of = |waits: Waits| Waits {
            watches: waits.watches - waits.present - waits.late_traps,
            ..Waits::default()
        };
        let chunks = self.chunks.each_ref().map(|chunk| ChunkWaits {
            any: of(chunk.any),
            writes: of(chunk.writes),
        });
        Self {
            chunks,
            ..Self::default()
        }
    }

    /// Of the moments at which the thread runs, the share at which it is at work on the line. How
    /// often it comes then is more than the waits can resolve.
    #[must_use]
    pub fn presence(&self) -> f64 {
        self.chunks
            .iter()
            .map(|chunk| chunk.all().excess())
            .sum::<f64>()
            .min(1.0)
    }

    /// Watches that tell something of the presence: of a chunk for long enough, or with a trap.
    #[must_use]
    pub fn telling(&self) -> u32 {
        let watches = self.chunks.iter().map(|chunk| chunk.all().watches);
        watches.max().unwrap_or(0)
    }

    /// Watches that tell of accesses to a chunk, 0 to 7, in conflict with this operation.
    #[must_use]
    pub fn chunk_watches(&self, chunk: usize, with: Operation) -> u32 {
        let waits = &self.chunks[chunk];
        match with {
            Operation::Load => waits.any.watches + waits.writes.watches,
            _ => waits.any.watches,
        }
    }

    /// At most so many such accesses a second; infinite where it is touched too soon to tell.
    #[must_use]
    pub fn most_at(&self, chunk: usize, with: Operation) -> f64 {
        let waits = &self.chunks[chunk];
        match with {
            Operation::Load => waits.any.most().min(waits.writes.most()),
            _ => waits.any.most(),
        }
    }

    /// At most so many stores and updates a second, of chunks that were watched; infinite where waits do not bound them.
    #[must_use]
    pub fn most_writes(&self) -> f64 {
        let chunks =
            (0..self.chunks.len()).filter(|&it| self.chunk_watches(it, Operation::Load) > 0);
        chunks.map(|it| self.most_at(it, Operation::Load)).sum()
    }

    /// Whether it comes to one chunk, 0 to 7, as soon as it is watched there.
    #[must_use]
    pub fn is_often_at(&self, chunk: usize) -> bool {
        let waits = &self.chunks[chunk];
        waits.any.is_often() || waits.writes.is_often()
    }

    /// Accesses a second of the running thread while it is not at work on the line.
    #[must_use]
    pub fn absent_rate(&self) -> f64 {
        let rates = self.chunks.iter().map(|chunk| chunk.all().late_rate());
        rates.sum()
    }
}

/// As many as there may have been where so many came into a sample (Poisson, 95 %).
pub(super) fn at_most(count: f64) -> f64 {
    count + 2.0 * count.sqrt() + 3.0
}

impl Waits {
    fn and(self, more: Self) -> Self {
        Self {
            watches: self.watches + more.watches,
            present: self.present + more.present,
            woken: self.woken + more.woken,
            late_traps: self.late_traps + more.late_traps,
            late_ns: self.late_ns + more.late_ns,
        }
    }

    fn late_rate(self) -> f64 {
        if self.late_ns > 0.0 {
            f64::from(self.late_traps) / self.late_ns * 1e9
        } else {
            0.0
        }
    }

    /// Watches that a thread at the late rate meets within [`PRESENT_NS`], of all.
    fn by_chance(self) -> f64 {
        let rate = self.late_rate().min(1e9 / FASTEST_ABSENT_NS);
        1.0 - (-rate * PRESENT_NS * 1e-9).exp()
    }

    /// Share of present waits beyond what a thread at the late rate would show by chance.
    fn excess(self) -> f64 {
        if self.watches == 0 {
            return 0.0;
        }
        // Of those that are not at work so many come by chance: seen = excess + (1 - excess) × by chance.
        let seen = f64::from(self.present) / f64::from(self.watches);
        let by_chance = self.by_chance();
        ((seen - by_chance) / (1.0 - by_chance)).max(0.0)
    }

    /// Whether the thread comes as soon as it is watched, mostly.
    fn is_often(self) -> bool {
        const FEW: u32 = 3;
        self.present >= FEW && 2 * self.present > self.watches
    }

    /// At most so many accesses a second: infinite of a thread that is at work there now and then, since how often it
    /// comes then the waits do not resolve.
    fn most(self) -> f64 {
        let expected = self.by_chance() * f64::from(self.watches);
        let by_chance = f64::from(self.present - self.woken) <= expected + 2.0 * expected.sqrt();
        match by_chance && self.late_rate() < 1e9 / FASTEST_BOUNDED_NS {
            true => at_most(f64::from(self.present + self.late_traps)) / self.late_ns * 1e9,
            false => f64::INFINITY,
        }
    }
}

/// The encounters of all lines: by process and line, then by watched thread.
pub type Encounters = HashMap<(Pid, Address), HashMap<Tid, Encounter>>;

/// Whether two operations on one line make it move.
pub(super) fn conflict(a: Operation, b: Operation) -> bool {
    a != Operation::Load || b != Operation::Load
}

/// Two threads that are on different CPUs at once for less than this share of the time of either take
/// turns: one wakes while the other, which woke it, is not off its CPU yet. And a CPU that the host takes
/// away for milliseconds still counts as its thread's.
const TAKE_TURNS: f64 = 0.02;

/// Who was on which CPU when.
#[derive(Debug)]
pub struct Stays<'a> {
    by_thread: HashMap<Tid, Vec<&'a Switch>>,
    by_cpu: HashMap<CpuId, Vec<&'a Switch>>,
    /// What [`Self::take_turns`] said of two threads, the lower number first.
    turns: RefCell<HashMap<(Tid, Tid), bool>>,
}

impl<'a> Stays<'a> {
    /// The stays of a recording.
    #[must_use]
    pub fn new(switches: &'a [Switch]) -> Self {
        let mut by_thread: HashMap<Tid, Vec<&Switch>> = HashMap::new();
        let mut by_cpu: HashMap<CpuId, Vec<&Switch>> = HashMap::new();
        for stay in switches {
            by_thread.entry(stay.tid).or_default().push(stay);
            by_cpu.entry(stay.cpu).or_default().push(stay);
        }
        for stays in by_thread.values_mut().chain(by_cpu.values_mut()) {
            stays.sort_by_key(|stay| stay.start);
        }
        Self {
            by_thread,
            by_cpu,
            turns: RefCell::default(),
        }
    }

    /// Whether two threads are hardly ever on different CPUs at the same time, by all of their stays: a
    /// few moments that are looked up may fall into the short time at which they are.
    #[must_use]
    pub fn take_turns(&self, a: Tid, b: Tid) -> bool {
        let (Some(first), Some(second)) = (self.by_thread.get(&a), self.by_thread.get(&b)) else {
            return false;
        };
        *self
            .turns
            .borrow_mut()
            .entry((a.min(b), a.max(b)))
            .or_insert_with(|| {
                let shorter = time_ns(first).min(time_ns(second));
                (at_once_ns(first, second) as f64) < TAKE_TURNS * shorter as f64
            })
    }

    /// For how long a thread was on a CPU from `from` until `to`, when it still was, ns: as far as its
    /// stays are recorded. `None` if the last of them is not.
    fn on_cpu_ns(&self, tid: Tid, from: Time, to: Time) -> Option<u64> {
        let stays = self.by_thread.get(&tid)?;
        let begun = &stays[..stays.partition_point(|stay| stay.start <= to)];
        begun.last().filter(|last| last.end >= to)?;
        let since = begun.iter().rev().take_while(|stay| stay.end > from);
        Some(
            since
                .map(|stay| stay.end.min(to).since(stay.start.max(from)))
                .sum(),
        )
    }

    /// The stay of a thread on a CPU at that moment, if it is recorded.
    fn at(&self, tid: Tid, time: Time) -> Option<&Switch> {
        stay_at(self.by_thread.get(&tid)?, time)
    }

    /// The threads that were at work on other CPUs than `cpu`, by the recorded stays.
    pub fn on_others(&self, cpu: CpuId, time: Time) -> impl Iterator<Item = Tid> {
        (self.by_cpu.iter())
            .filter(move |&(&other, _)| other != cpu)
            .filter_map(move |(_, stays)| Some(stay_at(stays, time)?.tid))
    }

    /// Whether stays of a thread are recorded.
    #[must_use]
    pub fn knows(&self, tid: Tid) -> bool {
        self.by_thread.contains_key(&tid)
    }

    /// Whether switches were recorded at a moment at which the thread was seen on a CPU.
    #[must_use]
    pub fn tells_of(&self, tid: Tid, time: Time) -> bool {
        self.at(tid, time).is_some()
    }

    /// Whether a thread was at work on another CPU than `cpu`. A thread without recorded stays is
    /// taken to be.
    #[must_use]
    pub fn elsewhere(&self, tid: Tid, cpu: CpuId, time: Time) -> bool {
        !self.knows(tid) || self.at(tid, time).is_some_and(|stay| stay.cpu != cpu)
    }
}

/// Of stays that follow each other, the one at that moment.
fn stay_at<'a>(stays: &[&'a Switch], time: Time) -> Option<&'a Switch> {
    let after = stays.partition_point(|stay| stay.start <= time);
    let last = stays[after.checked_sub(1)?];
    (last.end >= time).then_some(last)
}

/// How long all stays of a thread took, ns.
fn time_ns(stays: &[&Switch]) -> u64 {
    stays.iter().map(|stay| stay.end.since(stay.start)).sum()
}

/// For how long two threads were on different CPUs at once, ns, from the stays of each in their order.
fn at_once_ns(first: &[&Switch], second: &[&Switch]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(a), Some(b)) = (first.get(i), second.get(j)) {
        let (from, to) = (a.start.max(b.start), a.end.min(b.end));
        if a.cpu != b.cpu && from < to {
            sum += to.since(from);
        }
        if a.end < b.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    sum
}

/// How a trap looks that comes at once, as measured before the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce {
    /// What the kernel counts as the thread's running time under watch: arming included, ns.
    pub exposure_ns: f64,
    /// From the moment at which the watch had been armed to its record, ns.
    pub delay_ns: f64,
}

impl AtOnce {
    /// How long a thread ran before it came to a chunk under watch, ns.
    ///
    /// The kernel's count begins before the debug registers are written, and how long that takes varies
    /// by 15 µs either way. The time that the thread was on its CPU from the arming until the trap is known better, if
    /// no stay is missing: then it is all that the kernel counted but for the arming.
    fn wait_ns(self, trap: &Trap, on_cpu: Option<u64>) -> f64 {
        let counted = trap.exposure_ns as f64;
        let is_all = |&ns: &f64| ns <= counted && counted <= ns + LONGEST_ARMING_NS;
        match on_cpu.map(|ns| ns as f64).filter(is_all) {
            Some(on_cpu) => on_cpu - self.delay_ns,
            None => counted - self.exposure_ns,
        }
    }
}

/// The traps of each watch, by its number.
pub(super) fn by_watch(traps: &[Trap]) -> HashMap<u64, Vec<&Trap>> {
    let mut by_watch: HashMap<u64, Vec<&Trap>> = HashMap::new();
    for trap in traps {
        by_watch.entry(trap.watch).or_default().push(trap);
    }
    by_watch
}

/// Sorts all watches and traps by line and thread.
#[must_use]
pub(crate) fn encounters(
    watches: &[Watch],
    traps: &[Trap],
    line_size: u64,
    at_once: AtOnce,
    stays: &Stays<'_>,
    shared: &SharedMemory,
    goroutines: &Goroutines,
) -> Encounters {
    let by_watch = by_watch(traps);
    let mut found = Encounters::new();
    for watch in watches {
        let (pid, address) = shared.home(watch.pid, watch.address);
        let encounter = found
            .entry((pid, address.line(line_size)))
            .or_default()
            .entry(watch.tid)
            .or_default();
        encounter.watches += 1;
        let watched_ns = watch.exposure_ns as f64 - at_once.exposure_ns;
        let trapped = by_watch.get(&watch.id).map_or(&[][..], Vec::as_slice);
        for chunk in (0..8u8).filter(|chunk| watch.chunks & (1 << chunk) != 0) {
            let waits = &mut encounter.chunks[usize::from(chunk)];
            let waits = match watch.operation {
                Operation::Load => &mut waits.writes,
                _ => &mut waits.any,
            };
            let trap = trapped.iter().find(|trap| trap.chunk == chunk);
            let Some(trap) = trap.filter(|trap| conflict(watch.operation, trap.operation)) else {
                // A thread that did not run long enough says nothing.
                if watched_ns > PRESENT_NS {
                    waits.watches += 1;
                    waits.late_ns += watched_ns - PRESENT_NS;
                }
                continue;
            };
            waits.watches += 1;
            encounter.traps += 1;
            let touch = Touch::trapped(trap, shared, goroutines);
            *encounter.accesses.entry(touch).or_default() += 1;
            let on_cpu = stays.on_cpu_ns(trap.tid, watch.armed, trap.time);
            // Each trap before it stopped the thread for about as long.
            let before = trapped.iter().filter(|it| it.time < trap.time).count();
            let wait = at_once.wait_ns(trap, on_cpu) - before as f64 * at_once.delay_ns;
            if wait <= PRESENT_NS {
                waits.present += 1;
                let was_off = on_cpu.is_some() && stays.at(trap.tid, watch.armed).is_none();
                waits.woken += u32::from(was_off);
            } else {
                waits.late_traps += 1;
                waits.late_ns += wait - PRESENT_NS;
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "encounter_tests.rs"]
mod tests;
