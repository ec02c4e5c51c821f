//! Some places of 8 bytes at one address, watched in all threads of a process.

use std::io;

use linewise_machine::perf::BreakOn;
use linewise_machine::records::{Record, SampleRecord};
use linewise_recording::{Tid, Time};

use super::cut::{Life, Limits, lives};
use super::sites::{Choice, HeapEvent, HeapEventKind};
use crate::kernel::{Denial, Kernel, PerfEvent, PerfRing};
use crate::sources::timer::watch::CHUNK;

/// Threads that an object is watched in.
pub(crate) const THREADS: usize = 16;
/// Pages of all rings together: an ordinary user may lock 129 for each CPU.
const PAGES: usize = 32;
/// The longest record of a trap, bytes: 24 callers and all registers.
const RECORD: usize = 512;
/// Lives after which another place is watched.
pub(crate) const LIVES: usize = 8;

/// A thread under watch.
struct Armed<E: PerfEvent> {
    tid: Tid,
    ring: E::Ring,
    events: Vec<Watchpoint<E>>,
    traps: Vec<Trapped>,
}

/// A watchpoint.
struct Watchpoint<E> {
    event: E,
    id: u64,
    offset: u64,
    seen: u32,
}

/// A trap, and the place that it came from.
#[derive(Debug)]
pub(crate) struct Trapped {
    pub(crate) offset: u64,
    pub(crate) record: SampleRecord,
}

/// What is under watch.
pub(crate) struct ObjectWatch<K: Kernel> {
    kernel: K,
    choice: Choice,
    threads: Vec<Armed<K::Event>>,
    shots: u32,
    armed: Time,
    thread_began: Option<Time>,
    /// A ring overflowed, or a thread had to be let go.
    broken: Option<Time>,
    events: Vec<HeapEvent>,
}

/// A watch that is taken down and waits for what the heap recorder tells of its last moments.
pub(crate) struct Closed {
    pub(crate) choice: Choice,
    limits: Limits,
    events: Vec<HeapEvent>,
    traps: Vec<Trapped>,
    /// Threads that it was armed in.
    pub(crate) threads: Vec<Tid>,
}

impl<K: Kernel> ObjectWatch<K> {
    /// Watches the chosen bytes in `threads`, each of which `protect` has to allow.
    ///
    /// # Errors
    /// When one of them cannot be watched; then none is.
    pub(crate) fn arm<E: From<io::Error>>(
        kernel: K,
        choice: Choice,
        threads: &[Tid],
        mut protect: impl FnMut(Tid) -> Result<(), E>,
    ) -> Result<Self, E> {
        let pages = prior_power_of_two((PAGES / threads.len().max(1)).clamp(1, 8));
        let places = choice.offsets.len().max(1);
        // What a ring cannot hold is not let in.
        let shots = (pages * 4096 / RECORD / places).max(2) as u32;
        let mut armed = Vec::new();
        for &tid in threads {
            protect(tid)?;
            match open(&kernel, tid, &choice, pages) {
                Ok(thread) => armed.push(thread),
                // It has ended meanwhile.
                Err(error) if Denial::of(&error) == Denial::NoSuchThread => {}
                Err(error) => return Err(error.into()),
            }
        }
        for place in armed.iter().flat_map(|thread| &thread.events) {
            match place.event.arm_shots(shots) {
                Err(error) if Denial::of(&error) != Denial::NoSuchThread => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(Self {
            choice,
            threads: armed,
            shots,
            armed: kernel.now(),
            thread_began: None,
            broken: None,
            events: Vec::new(),
            kernel,
        })
    }

    /// Breakpoints that are armed.
    pub(crate) fn breakpoints(&self) -> usize {
        self.threads.iter().map(|thread| thread.events.len()).sum()
    }

    /// The heap recorder told of its address.
    pub(crate) fn told(&mut self, event: &HeapEvent) {
        if (event.pid, event.address) == (self.choice.site.pid, self.choice.address) {
            self.events.push(*event);
        }
    }

    /// A thread began in a process.
    pub(crate) fn thread_began(&mut self, pid: linewise_recording::Pid, time: Time) {
        if pid == self.choice.site.pid && self.thread_began.is_none() {
            self.thread_began = Some(time);
        }
    }

    /// A thread must not be watched any more.
    pub(crate) fn forget(&mut self, tid: Tid, now: Time) {
        if let Some(thread) = self.threads.iter_mut().find(|thread| thread.tid == tid) {
            thread.drain(&mut self.broken);
            thread.events.clear();
            self.broken = self.broken.or(Some(now));
        }
    }

    /// Takes traps in; whether there is nothing more to see.
    pub(crate) fn look(&mut self, now: Time) -> bool {
        let mut spent = false;
        for thread in &mut self.threads {
            thread.drain(&mut self.broken);
            spent |= thread.events.iter().any(|place| place.seen >= self.shots);
        }
        spent
            || self.lives_seen() >= LIVES
            || self.thread_began.is_some()
            || self.broken.is_some()
            || now.since(self.armed) > self.choice.patience_ns
    }

    fn lives_seen(&self) -> usize {
        let began = self.events.iter().filter(|event| {
            event.time >= self.armed && event.kind == HeapEventKind::Allocated(self.choice.site)
        });
        began.count()
    }

    /// Takes it down.
    pub(crate) fn close(mut self) -> Closed {
        let closed = self.kernel.now();
        for thread in &mut self.threads {
            for place in &thread.events {
                // A failure means that the thread is gone, and its debug registers with it.
                let _ = place.event.disable();
            }
            thread.drain(&mut self.broken);
        }
        let spent = self
            .threads
            .iter()
            .filter_map(|thread| thread.spent(self.shots))
            .chain(self.broken)
            .min();
        let mut traps: Vec<Trapped> = Vec::new();
        for thread in &mut self.threads {
            traps.append(&mut thread.traps);
        }
        // Equal moments are of one instruction that touched both places.
        traps.sort_by_key(|trap| trap.record.time);
        Closed {
            choice: self.choice,
            limits: Limits {
                armed: self.armed,
                closed,
                spent,
                thread_began: self.thread_began,
            },
            events: self.events,
            traps,
            threads: self.threads.iter().map(|thread| thread.tid).collect(),
        }
    }
}

impl<E: PerfEvent> Armed<E> {
    fn drain(&mut self, broken: &mut Option<Time>) {
        let (traps, events) = (&mut self.traps, &mut self.events);
        self.ring.drain(|record| match record {
            Record::Sample(record) => {
                if let Some(place) = events.iter_mut().find(|place| place.id == record.id) {
                    place.seen += 1;
                    let offset = place.offset;
                    traps.push(Trapped {
                        offset,
                        record: *record,
                    });
                }
            }
            Record::Lost(_) => {
                let last = traps.last().map_or(0, |trap| trap.record.time);
                *broken = Some(broken.map_or(Time(last), |known| known.min(Time(last))));
            }
            _ => {}
        });
    }

    /// When its last shot was used up, if it was.
    fn spent(&self, shots: u32) -> Option<Time> {
        let spent = self.events.iter().filter(|place| place.seen >= shots);
        let last = spent.filter_map(|place| {
            let mut traps = self.traps.iter().rev();
            traps.find(|trap| trap.offset == place.offset)
        });
        last.map(|trap| Time(trap.record.time)).min()
    }
}

impl Closed {
    /// As [`ObjectWatch::told`].
    pub(crate) fn told(&mut self, event: &HeapEvent) {
        if (event.pid, event.address) == (self.choice.site.pid, self.choice.address) {
            self.events.push(*event);
        }
    }

    /// How long it was armed, ns.
    pub(crate) fn armed_ns(&self) -> u64 {
        self.limits.closed.since(self.limits.armed)
    }

    /// How often it trapped.
    pub(crate) fn traps(&self) -> usize {
        self.traps.len()
    }

    /// The lives that began while it was armed, each with its traps in the order of time.
    pub(crate) fn cut(mut self) -> Vec<(Life, Vec<Trapped>)> {
        self.events.sort_by_key(|event| event.time);
        let lives = lives(&self.events, &self.choice.site, self.limits);
        // Of what came later some threads could not tell.
        let end = self.limits.end();
        self.traps.retain(|trap| Time(trap.record.time) <= end);
        let mut traps = self.traps.into_iter().peekable();
        lives
            .into_iter()
            .map(|life| {
                let time = |trap: &Trapped| Time(trap.record.time);
                while traps.next_if(|trap| time(trap) < life.allocated).is_some() {}
                let mut own = Vec::new();
                while let Some(trap) = traps.next_if(|trap| life.holds(time(trap))) {
                    own.push(trap);
                }
                (life, own)
            })
            .collect()
    }
}

/// Opens the watchpoints of one thread, not armed yet.
fn open<K: Kernel>(
    kernel: &K,
    tid: Tid,
    choice: &Choice,
    pages: usize,
) -> io::Result<Armed<K::Event>> {
    let mut events: Vec<Watchpoint<K::Event>> = Vec::new();
    for &offset in &choice.offsets {
        let address = choice.address + offset;
        let event = kernel.breakpoint(tid.0, (address, CHUNK as u32), BreakOn::ReadWrite, None)?;
        events.push(Watchpoint {
            id: event.id()?,
            event,
            offset,
            seen: 0,
        });
    }
    let ring = events[0].event.map_ring(pages)?;
    for place in &events[1..] {
        place.event.redirect_to(&events[0].event)?;
    }
    Ok(Armed {
        tid,
        ring,
        events,
        traps: Vec::new(),
    })
}

fn prior_power_of_two(number: usize) -> usize {
    1 << number.ilog2()
}
