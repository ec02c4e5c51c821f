//! Sampled reuse: sampled addresses are watched until they are touched again, and again.
//!
//! After ReuseTracker (Sasongko, Chabbi, Marzijarani, Unat, 2021; algorithms 2 and 3 of the thesis
//! version): a few global slots, each a chunk that is watched in all threads of its process at once,
//! and a reservoir for each slot that decides whether a new sample takes the place of one that is
//! still waited for.
//!
//! One thing differs. There the sampled access is the use, and its watchpoint is armed within the
//! interrupt. Here it is armed from outside, up to a tick later: what comes back sooner would be
//! missed, and the access that traps first is the end of an interval that is likely to be long, since
//! a moment falls into long intervals more often than into short ones. So a watch takes several shots.
//! The first is a use whose moment is known to the nanosecond, each further one a reuse of the one
//! before:
//!
//! ```text
//! sample   armed      use      reuse = use    reuse = use                   (closed)
//! ───┬───────┬─────────┬────────────┬──────────────┬─── ...
//!    └ late ─┘         └── D ───────┴───── D' ─────┘
//! ```

use std::collections::BTreeMap;

use linewise_cache::Chance;
use linewise_machine::perf::BreakOn;
use linewise_machine::records::{Record, SampleRecord};
use linewise_recording::{Address, CpuId, Pid, ReuseOutcome, ReuseScope, ReuseWatch, Tid, Time};

use crate::kernel::{Kernel, PerfEvent, PerfRing};
use crate::sources::timer::watch::CHUNK;

/// Accesses of each thread that a watch sees: five intervals, and the last whose time does not count.
pub(crate) const SHOTS: u32 = 7;
/// Threads that one watch is armed in: each maps two pages and costs an interrupt.
const THREADS: usize = 16;
/// Samples of one tick that are offered; more would only replace each other.
const CANDIDATES: usize = 256;

/// Slots of a reservoir each.
///
/// Of what was offered to a slot since it was freed (all but what another free slot took), each is
/// equally likely to be in it (Vitter:
/// Random sampling with a reservoir, 1985, algorithm R with room for one). Where more than two slots
/// fill up at once their chances can add up to more than one; then all give way alike.
#[derive(Debug)]
pub(crate) struct Reservoir<T> {
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Offers since the slot was freed.
    offers: u64,
    content: Option<T>,
}

/// What became of an offer.
#[derive(Debug, PartialEq)]
pub(crate) enum Offered<T> {
    /// It is in this slot, where that other one was.
    Placed(usize, Option<T>),
    /// It is in none.
    Dropped(T),
}

impl<T> Reservoir<T> {
    pub(crate) fn new(slots: usize) -> Self {
        let empty = || Slot {
            offers: 0,
            content: None,
        };
        Self {
            slots: std::iter::repeat_with(empty).take(slots).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Offers a sample to a free slot, or else to all.
    pub(crate) fn offer(&mut self, sample: T, chance: &mut Chance) -> Offered<T> {
        let free = self.slots.iter().position(|slot| slot.content.is_none());
        if let Some(free) = free {
            self.slots[free] = Slot {
                offers: 1,
                content: Some(sample),
            };
            return Offered::Placed(free, None);
        }
        self.slots.iter_mut().for_each(|slot| slot.offers += 1);
        let odds = |slot: &Slot<T>| 1.0 / slot.offers as f64;
        let all: f64 = self.slots.iter().map(odds).sum();
        let mut drawn = chance.share() * all.max(1.0);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if drawn < odds(slot) {
                return Offered::Placed(index, slot.content.replace(sample));
            }
            drawn -= odds(slot);
        }
        Offered::Dropped(sample)
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, slot: usize) -> Option<T> {
        let slot = self.slots.get_mut(slot)?;
        slot.offers = 0;
        slot.content.take()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(index, slot)| Some((index, slot.content.as_mut()?)))
    }
}

/// A sampled access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub pid: Pid,
    pub tid: Tid,
    pub cpu: CpuId,
    pub address: Address,
    pub sample_ip: Address,
    pub weight_ns: u64,
}

/// One thread in which a chunk is watched.
struct Armed<E: PerfEvent> {
    tid: Tid,
    loads: bool,
    ring: E::Ring,
    event: E,
    traps: Vec<SampleRecord>,
}

impl<E: PerfEvent> Armed<E> {
    fn drain(&mut self) {
        let traps = &mut self.traps;
        self.ring.drain(|record| {
            if let Record::Sample(sample) = record {
                traps.push(*sample);
            }
        });
    }

    fn is_spent(&self) -> bool {
        self.traps.len() >= SHOTS as usize
    }
}

/// A chunk under watch, or about to be.
struct Watched<E: PerfEvent> {
    candidate: Candidate,
    /// Nothing while it is only chosen.
    row: Option<ReuseWatch>,
    threads: Vec<Armed<E>>,
}

/// A watch that has ended, with its traps: the thread's loads trap, and the sample.
pub(crate) struct Finished {
    pub row: ReuseWatch,
    pub traps: Vec<(bool, SampleRecord)>,
}

/// The threads that a watch may be armed in, as the caller knows them.
pub(crate) struct Crowd<'a> {
    /// Threads of a process that ran lately.
    pub active: &'a dyn Fn(Pid) -> Vec<Tid>,
    /// Whether a thread is on a CPU of another last-level cache than this CPU.
    pub is_far: &'a dyn Fn(Tid, CpuId) -> bool,
}

/// All slots.
pub(crate) struct ReuseWatches<K: Kernel> {
    kernel: K,
    slots: Reservoir<Watched<K::Event>>,
    candidates: Vec<Candidate>,
    finished: Vec<Finished>,
    next_id: u64,
    /// Samples that were offered.
    pub offered: u64,
}

impl<K: Kernel> ReuseWatches<K> {
    pub(crate) fn new(kernel: K, slots: usize) -> Self {
        Self {
            kernel,
            slots: Reservoir::new(slots),
            candidates: Vec::new(),
            finished: Vec::new(),
            next_id: 1,
            offered: 0,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Takes note of a sampled access.
    pub(crate) fn sampled(&mut self, candidate: Candidate, chance: &mut Chance) {
        let chunk = Address(candidate.address.0 & !(CHUNK - 1));
        let candidate = Candidate {
            address: chunk,
            ..candidate
        };
        if self.candidates.len() < CANDIDATES {
            self.candidates.push(candidate);
        } else {
            let index = chance.below(CANDIDATES);
            self.candidates[index] = candidate;
        }
    }

    /// Forgets the samples of a tick in which nothing can be paid for.
    pub(crate) fn pass(&mut self) {
        self.candidates.clear();
    }

    /// Offers the samples of this tick to the slots. What they replace is taken down; what they
    /// bring in is armed by [`ReuseWatches::arm`].
    pub(crate) fn choose(&mut self, now: Time, chance: &mut Chance) {
        for candidate in std::mem::take(&mut self.candidates) {
            self.offered += 1;
            let chosen = Watched {
                candidate,
                row: None,
                threads: Vec::new(),
            };
            if let Offered::Placed(_, Some(replaced)) = self.slots.offer(chosen, chance) {
                self.finished
                    .extend(close(replaced, now, ReuseOutcome::Replaced));
            }
        }
    }

    /// Arms what was chosen. Returns in how many threads, and why a slot was given up, if one was.
    /// `protect` makes a thread ready to be watched.
    pub(crate) fn arm<E: From<std::io::Error>>(
        &mut self,
        crowd: &Crowd<'_>,
        chance: &mut Chance,
        mut protect: impl FnMut(Tid) -> Result<(), E>,
    ) -> (u32, Vec<(Tid, E)>) {
        let (mut armed, mut refused) = (0, Vec::new());
        let mut given_up = Vec::new();
        for (slot, watched) in self.slots.iter_mut() {
            if watched.row.is_some() {
                continue;
            }
            match arm_one(
                &self.kernel,
                watched,
                self.next_id,
                crowd,
                chance,
                &mut protect,
            ) {
                Ok(threads) => {
                    self.next_id += 1;
                    armed += threads;
                }
                Err(error) => {
                    refused.push((watched.candidate.tid, error));
                    given_up.push(slot);
                }
            }
        }
        for slot in given_up {
            self.slots.free(slot);
        }
        (armed, refused)
    }

    /// Looks for watches that have seen all they can see; all of them when `ended`.
    pub(crate) fn collect(&mut self, now: Time, ended: bool) -> Vec<Finished> {
        let mut done = Vec::new();
        for (slot, watched) in self.slots.iter_mut() {
            for thread in &mut watched.threads {
                thread.drain();
            }
            let complete = watched.row.as_ref().is_some_and(|row| match row.scope {
                // Stores of others are seen for as long as the owner has not come.
                ReuseScope::Private => {
                    let owner = watched.threads.iter().find(|thread| thread.tid == row.tid);
                    owner.is_none_or(Armed::is_spent)
                }
                ReuseScope::Shared => watched.threads.iter().any(Armed::is_spent),
            });
            if complete {
                done.push((slot, ReuseOutcome::Complete));
            } else if ended {
                done.push((slot, ReuseOutcome::Ended));
            }
        }
        for (slot, outcome) in done {
            let watched = self.slots.free(slot);
            self.finished
                .extend(watched.and_then(|watched| close(watched, now, outcome)));
        }
        std::mem::take(&mut self.finished)
    }

    /// A thread has ended, or must not be watched any more: takes down what is armed in it.
    pub(crate) fn forget(&mut self, tid: Tid, now: Time) {
        let concerned: Vec<usize> = self
            .slots
            .iter_mut()
            .filter(|(_, watched)| {
                watched.candidate.tid == tid || watched.threads.iter().any(|of| of.tid == tid)
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in concerned {
            let watched = self.slots.free(slot);
            self.finished
                .extend(watched.and_then(|watched| close(watched, now, ReuseOutcome::Ended)));
        }
    }
}

/// Arms a chosen chunk in the other threads first and in the sampled one last, so that no store
/// after its first trap is missed. Returns in how many threads.
fn arm_one<K: Kernel, E: From<std::io::Error>>(
    kernel: &K,
    watched: &mut Watched<K::Event>,
    id: u64,
    crowd: &Crowd<'_>,
    chance: &mut Chance,
    protect: &mut impl FnMut(Tid) -> Result<(), E>,
) -> Result<u32, E> {
    let Candidate {
        pid,
        tid,
        cpu,
        address,
        sample_ip,
        weight_ns,
    } = watched.candidate;
    let mut others = (crowd.active)(pid);
    others.retain(|&other| other != tid);
    let scope = match !others.is_empty() && chance.happens(0.5) {
        true => ReuseScope::Shared,
        false => ReuseScope::Private,
    };
    let running = others.len();
    while others.len() >= THREADS {
        others.swap_remove(chance.below(others.len()));
    }
    let mut arm = |tid: Tid, loads: bool| -> Result<Armed<K::Event>, E> {
        protect(tid)?;
        let on = match loads {
            true => BreakOn::ReadWrite,
            false => BreakOn::Write,
        };
        let event = kernel.breakpoint(tid.0, (address.0, CHUNK as u32), on, None)?;
        let ring = event.map_ring(1)?;
        event.arm_shots(SHOTS)?;
        Ok(Armed {
            tid,
            loads,
            ring,
            event,
            traps: Vec::new(),
        })
    };
    for other in others {
        let loads = scope == ReuseScope::Shared && !(crowd.is_far)(other, cpu);
        // One that cannot be watched is counted, and the rest goes on.
        if let Ok(thread) = arm(other, loads) {
            watched.threads.push(thread);
        }
    }
    let armed_in = watched.threads.len();
    match arm(tid, true) {
        Ok(thread) => watched.threads.push(thread),
        Err(error) => {
            watched.threads.clear();
            return Err(error);
        }
    }
    let now = kernel.now();
    watched.row = Some(ReuseWatch {
        id,
        scope,
        pid,
        tid,
        address,
        sample_ip,
        weight_ns,
        armed: now,
        closed: now,
        outcome: ReuseOutcome::Ended,
        shots: SHOTS,
        others: armed_in as u32,
        unwatched: (running - armed_in) as u32,
    });
    Ok(armed_in as u32 + 1)
}

/// Takes a watch down; nothing comes of one that was never armed.
fn close<E: PerfEvent>(
    mut watched: Watched<E>,
    now: Time,
    outcome: ReuseOutcome,
) -> Option<Finished> {
    let mut row = watched.row?;
    let mut traps: BTreeMap<(u64, u32, usize), (bool, SampleRecord)> = BTreeMap::new();
    for mut thread in watched.threads.drain(..) {
        // Disarmed before it is read, so that nothing traps in between. A failure means that the
        // thread is gone, and its debug registers with it.
        let _ = thread.event.disable();
        thread.drain();
        for (index, trap) in thread.traps.drain(..).enumerate() {
            traps.insert((trap.time, trap.tid, index), (thread.loads, trap));
        }
    }
    row.outcome = outcome;
    row.closed = now;
    if outcome == ReuseOutcome::Complete {
        // Nothing was watched after the shot that was its last.
        row.closed = last_of(&traps, &row).unwrap_or(now);
    }
    Some(Finished {
        row,
        traps: traps.into_values().collect(),
    })
}

/// The moment of the shot that completed a watch.
fn last_of(
    traps: &BTreeMap<(u64, u32, usize), (bool, SampleRecord)>,
    row: &ReuseWatch,
) -> Option<Time> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let last = traps.keys().find(|&&(_, tid, _)| {
        let count = counts.entry(tid).or_default();
        *count += 1;
        *count == row.shots && (row.scope == ReuseScope::Shared || tid == row.tid.0)
    })?;
    Some(Time(last.0))
}

#[cfg(test)]
#[path = "reuse_tests.rs"]
mod tests;
