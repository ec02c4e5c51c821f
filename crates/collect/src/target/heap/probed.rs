//! Blocks of programs that no library can be loaded into: running ones and static ones. Probes on the functions of their
//! allocator tell of each call and each return.
//!
//! ```text
//! hits of all CPUs ─ by time ─► calls of each thread, one in another ─► events ─► Ledger
//!                                                  the outermost, when it returns
//! ```
//!
//! A hit costs the target half a microsecond to fifteen, so probes are in place only as long as their part of the budget
//! pays: all the time in a program that allocates seldom, in slices in one that allocates often. While they are away frees
//! are not seen, and an address may belong to somebody else when they come back. So what is known ends with each slice:
//! better no name than a wrong one.

use std::collections::HashMap;

use linewise_heap::{AllocatorCode, Cursor};
use linewise_machine::uprobe::{Hit, Point, ProbeCosts, Returns};
use linewise_recording::{HeapRun, Pid, ProbedHeap, StackId, Time, Writer};

use super::allocator::{Allocator, Function, Kind};
use super::cost::{HeapCost, HeapLoss};
use super::ledger::{Event, LINGER, Ledger, What};
use super::rate::{PROBED_PART, Rate};
use super::unwind::Unwinder;
use crate::error::Error;
use crate::kernel::{FunctionProber, FunctionProbes, Kernel, Machine};
use crate::target::follow::Stacks;

/// The number of the only process.
const IMAGE: u32 = 1;
/// Hits so young may still be joined by older ones of other CPUs, ns.
const MARGIN_NS: u64 = 1_000_000;
/// What has to be saved before a slice begins, ns.
const SLICE_NS: f64 = 4_000_000.0;
/// After so long a program has shown how often it allocates, ns.
const YOUNG_NS: u64 = 20_000_000;
/// Probes that were in place for more than this share of the time were never taken away.
const WHOLE: f64 = 0.95;
/// A program allocates often where hits take more than this share of a CPU.
const OFTEN: f64 = 0.05;
/// A tick of the collector at its usual pace, ns.
const TICK_NS: f64 = 8_000_000.0;
/// Time between two looks whether the process is gone, ns.
const SLOW_NS: u64 = 1_000_000_000;
/// Calls in one another, at most.
const DEEPEST: usize = 16;

/// The kernel's numbers of registers.
const AX: u32 = 0;
const DX: u32 = 3;
const SI: u32 = 4;
const DI: u32 = 5;
const BP: u32 = 6;

/// A call that has not returned.
#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    /// Where its return address lies.
    sp: u64,
    bp: u64,
    time: u64,
    arguments: [u64; 3],
    /// From `sp` on.
    stack: Vec<u64>,
}

/// Whether probes are in place.
enum Slice<P> {
    Off,
    /// Hits count from `since` on.
    On {
        since: u64,
        placed: Vec<P>,
    },
    /// They were, until a moment before which hits may still come.
    Ending {
        since: u64,
        until: u64,
    },
}

/// The probes on a process's allocator, and what they told.
pub(crate) struct Probed<K: Kernel = Machine> {
    pub(super) ledger: Ledger,
    kernel: K,
    prober: K::Prober,
    pid: u32,
    /// The process had run before.
    attached: bool,
    allocators: Vec<Allocator>,
    /// By cookie.
    functions: Vec<Function>,
    costs: ProbeCosts,
    rate: Rate,
    slice: Slice<<K::Prober as FunctionProber>::Placed>,
    hits: Vec<Hit>,
    calls: HashMap<u32, Vec<Call>>,
    unwinder: Unwinder,
    layout: u32,
    /// The ends of the last two rounds.
    rounds: [u64; 2],
    /// What hits cost lately, as a share of the time.
    burning: f64,
    began: u64,
    on_since: u64,
    slow_ns: u64,
    slices: u64,
    on_ns: u64,
    told: u64,
    lost: u64,
    /// Processes that it made.
    children: u64,
    /// When the last probes were taken away.
    stopped: Option<u64>,
    failed: Option<String>,
}

impl<K: Kernel> Probed<K> {
    /// Places probes on the allocators of process `pid`, which runs already or is to begin.
    ///
    /// # Errors
    /// A sentence: what failed, why, what to try.
    pub(crate) fn new(
        kernel: K,
        (pid, attached): (u32, bool),
        allocators: Vec<Allocator>,
        cpus: &[u32],
        overhead: Option<f64>,
    ) -> Result<Self, String> {
        let costs = kernel.probe_costs(cpus).map_err(unavailable)?;
        let prober = kernel.prober(cpus).map_err(unavailable)?;
        let functions = allocators
            .iter()
            .flat_map(|it| it.functions.iter().copied());
        let began = kernel.now().0;
        let mut probed = Self {
            ledger: Ledger::new(None),
            kernel,
            prober,
            pid,
            attached,
            functions: functions.collect(),
            allocators,
            costs,
            rate: Rate::new(overhead, PROBED_PART),
            slice: Slice::Off,
            hits: Vec::new(),
            calls: HashMap::new(),
            unwinder: Unwinder::default(),
            layout: 1,
            rounds: [began; 2],
            burning: 0.0,
            began,
            on_since: began,
            slow_ns: began,
            slices: 0,
            on_ns: 0,
            told: 0,
            lost: 0,
            children: 0,
            stopped: None,
            failed: None,
        };
        probed.ledger.found_image(IMAGE, IMAGE, pid, began);
        probed.begin_slice();
        probed.began = probed.on_since;
        match probed.failed.take() {
            Some(error) => Err(error),
            None => Ok(probed),
        }
    }

    /// Whether rounds should follow each other closely: a program that allocates often would overdraw the budget
    /// within one, or fill the rings.
    pub(super) fn is_hurried(&self) -> bool {
        match &self.slice {
            Slice::Off => false,
            Slice::On { since, .. } => {
                self.now().saturating_sub(*since) < YOUNG_NS
                    || self.burning > OFTEN
                    || self.burning * TICK_NS > self.rate.allowance_ns()
            }
            Slice::Ending { .. } => true,
        }
    }

    /// Takes the probes away for good. What is known then is alive at the end.
    pub(super) fn detach(&mut self) {
        let now = self.now();
        if let Slice::On { placed, .. } = &mut self.slice
            && self.stopped.is_none()
        {
            placed.clear();
            self.on_ns += now.saturating_sub(self.on_since);
        }
        self.stopped.get_or_insert(now);
    }

    /// The process went on as another program.
    pub(super) fn replaced(&mut self, pid: Pid, time: Time) {
        if pid.0 == self.pid {
            self.ledger.cut(IMAGE, time.0);
            self.calls.clear();
            self.mapped(pid);
        }
    }

    /// A process made another one. Probes are of the first alone: the kernel tells of no hit of a child.
    pub(super) fn forked(&mut self, parent: Pid) {
        self.children += u64::from(parent.0 == self.pid);
    }

    /// The process mapped code: what lies where is looked up again.
    pub(super) fn mapped(&mut self, pid: Pid) {
        if pid.0 == self.pid {
            self.unwinder.forget(self.layout);
        }
    }

    fn now(&self) -> u64 {
        self.kernel.now().0
    }

    fn lives(&self) -> bool {
        let standing = self.kernel.standing(self.pid);
        standing.is_some_and(|it| !it.ended)
    }

    fn begin_slice(&mut self) {
        let mut placed = Vec::new();
        let mut cookie = 0;
        for allocator in &self.allocators {
            let points: Vec<Point> = (allocator.functions.iter())
                .map(|function| {
                    let number = cookie;
                    cookie += 1;
                    Point {
                        offset: function.offset,
                        cookie: number,
                        stack: function.kind != Kind::Free,
                        returns: match function.kind {
                            Kind::Free => Returns::Not,
                            // Where the block is stands in the caller's memory.
                            Kind::PosixMemalign => Returns::WithStack,
                            _ => Returns::Bare,
                        },
                    }
                })
                .collect();
            match self.prober.place(self.pid, &allocator.path, &points) {
                Ok(it) => placed.push(it),
                // It has ended meanwhile, and allocates no more.
                Err(_) if !self.lives() => return,
                Err(error) => {
                    self.failed = Some(format!(
                        "the allocator in {} cannot be probed: {error}",
                        allocator.path.display()
                    ));
                    return;
                }
            }
        }
        let since = self.now();
        self.slices += 1;
        self.calls.clear();
        self.on_since = since;
        self.slice = Slice::On { since, placed };
    }

    fn end_slice(&mut self, until: u64) {
        if let Slice::On { since, .. } = self.slice {
            self.on_ns += until.saturating_sub(self.on_since);
            self.slice = Slice::Ending { since, until };
        }
    }

    /// Reads what was told until now; as [`super::HeapRecorder::round`].
    pub(super) fn round(
        &mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
        thread_ns: u64,
        in_the_way: f64,
    ) -> Result<HeapCost, Error> {
        let began = self.kernel.own_thread_time_ns();
        let now = self.now();
        let target_ns = self.take_in(now, stacks);
        self.ledger.look_up_touches();
        self.ledger.settle(writer, LINGER)?;
        if now.saturating_sub(self.slow_ns) >= SLOW_NS {
            self.slow_ns = now;
            let kernel = &self.kernel;
            (self.ledger).bury(writer, |pid| kernel.standing(pid).is_some())?;
        }
        let own_ns = self.kernel.own_thread_time_ns().saturating_sub(began);
        let own_ns = (own_ns as f64 * in_the_way).min(target_ns);
        let due_ns = self.rate.passed(thread_ns, target_ns + own_ns);
        let wall = now.saturating_sub(self.rounds[1]).max(1);
        self.burning = target_ns / wall as f64;
        self.rounds = [self.rounds[1], now];
        self.ledger.run.spent_ns += target_ns as u64;
        self.decide(now);
        Ok(HeapCost {
            target_ns,
            own_ns,
            due_ns,
        })
    }

    /// Begins or ends a slice, by what may be spent.
    fn decide(&mut self, now: u64) {
        match self.slice {
            _ if self.stopped.is_some() => {}
            Slice::On { .. } if self.rate.allowance_ns() <= 0.0 => self.end_slice(now),
            // A process that is gone gives no more.
            Slice::Off
                if self.rate.allowance_ns() >= SLICE_NS
                    && self.failed.is_none()
                    && self.ledger.images.contains_key(&IMAGE) =>
            {
                self.begin_slice();
            }
            _ => {}
        }
    }

    /// Takes in all hits, of which those up to shortly before `now` become events; what they cost the target, ns.
    fn take_in(&mut self, now: u64, stacks: &mut Stacks) -> f64 {
        let before = self.hits.len();
        let mut hits = std::mem::take(&mut self.hits);
        let lost = self.prober.drain(&mut hits);
        let costs = hits[before..].iter().map(|hit| self.cost_ns(hit));
        let cost_ns = costs.sum::<f64>() + lost as f64 * self.costs.emulated_ns;
        self.told += (hits.len() - before) as u64 + lost;
        hits.sort_by_key(|hit| hit.time);
        let stopped = self.stopped.unwrap_or(u64::MAX);
        let (since, until) = match self.slice {
            Slice::Off => (u64::MAX, 0),
            Slice::On { since, .. } => (since, stopped.min(now.saturating_sub(MARGIN_NS))),
            Slice::Ending { since, until } => (since, until.min(now.saturating_sub(MARGIN_NS))),
        };
        if lost > 0 {
            self.lost += lost;
            self.ledger.apply(until);
            // The kernel tells of a loss with the next record: it may have been in the round before. What is known by
            // now may be somebody else's.
            self.ledger.cut(IMAGE, self.rounds[0]);
            self.calls.clear();
            hits.clear();
            if let Slice::On { since, .. } = &mut self.slice {
                *since = now;
            }
        }
        let later = hits.partition_point(|hit| hit.time <= until);
        self.hits = hits.split_off(later);
        for hit in hits.into_iter().filter(|hit| hit.time >= since) {
            self.understand(hit, stacks);
        }
        self.ledger.apply(until);
        if let Slice::Ending { until, .. } = self.slice
            && now.saturating_sub(MARGIN_NS) >= until
        {
            self.ledger.cut(IMAGE, until);
            self.calls.clear();
            self.hits.clear();
            self.slice = Slice::Off;
        }
        cost_ns
    }

    fn cost_ns(&self, hit: &Hit) -> f64 {
        match self.functions.get(hit.cookie as usize) {
            _ if hit.returned => self.costs.return_ns,
            Some(function) if !function.emulated => self.costs.stepped_ns,
            _ => self.costs.emulated_ns,
        }
    }

    /// A hit begins a call or ends one; the end of the outermost is an event.
    fn understand(&mut self, hit: Hit, stacks: &mut Stacks) {
        let Some(kind) = self.functions.get(hit.cookie as usize).map(|it| it.kind) else {
            return;
        };
        // The kernel tells of no other.
        if hit.pid != self.pid {
            return;
        }
        let register = |number| hit.registers.get(number).unwrap_or(0);
        let sp = hit.registers.stack_pointer();
        let calls = self.calls.entry(hit.tid).or_default();
        if !hit.returned {
            // Who calls from further up has left what he called before, by longjmp say.
            if kind == Kind::Free {
                calls.retain(|call| call.sp > sp);
                if calls.is_empty() && register(DI) != 0 {
                    let what = What::Free {
                        address: register(DI),
                        named: false,
                    };
                    self.event(hit.tid, hit.time, what);
                }
                return;
            }
            // Who calls from the same place, where no return address lies but the kernel's, was jumped to by what he
            // called.
            let jumped = |call: &Call| call.sp == sp && call.stack.first() != hit.stack.first();
            calls.retain(|call| call.sp > sp || jumped(call));
            if calls.last().is_some_and(|call| call.sp == sp) {
                return;
            }
            if calls.len() < DEEPEST {
                calls.push(Call {
                    kind,
                    sp,
                    bp: register(BP),
                    time: hit.time,
                    arguments: [register(DI), register(SI), register(DX)],
                    stack: hit.stack,
                });
            }
            return;
        }
        let Some(place) = calls.iter().rposition(|call| call.sp.wrapping_add(8) == sp) else {
            return;
        };
        let call = calls.swap_remove(place);
        calls.truncate(place);
        if calls.is_empty() {
            self.returned(&call, &hit, stacks);
        }
    }

    /// The outermost call of an allocator's function returned.
    fn returned(&mut self, call: &Call, hit: &Hit, stacks: &mut Stacks) {
        let [first, second, third] = call.arguments;
        let result = hit.registers.get(AX).unwrap_or(0);
        let (code, size) = match call.kind {
            Kind::Malloc => (AllocatorCode::Malloc, first),
            Kind::Calloc => (AllocatorCode::Calloc, first.wrapping_mul(second)),
            Kind::Realloc => (AllocatorCode::Realloc, second),
            Kind::Reallocarray => (AllocatorCode::Realloc, second.wrapping_mul(third)),
            Kind::Aligned => (AllocatorCode::Aligned, second),
            Kind::PosixMemalign => (AllocatorCode::Aligned, third),
            Kind::Valloc => (AllocatorCode::Aligned, first),
            Kind::New => (AllocatorCode::New, first),
            Kind::Free => return,
        };
        let address = match call.kind {
            Kind::PosixMemalign if result != 0 => 0,
            Kind::PosixMemalign => {
                let place = first.checked_sub(hit.registers.stack_pointer());
                let word = place.and_then(|bytes| usize::try_from(bytes / 8).ok());
                word.and_then(|word| hit.stack.get(word))
                    .copied()
                    .unwrap_or(0)
            }
            _ => result,
        };
        let moves = matches!(call.kind, Kind::Realloc | Kind::Reallocarray);
        // A block that could not be changed stays; one of no bytes is freed.
        if moves && first != 0 && (address != 0 || size == 0) {
            let what = What::Free {
                address: first,
                named: false,
            };
            self.event(hit.tid, call.time, what);
        }
        if address == 0 {
            return;
        }
        let what = What::Alloc {
            address,
            size,
            stack: self.stack(call, stacks).0,
            allocator: code as u8,
            interval: 0,
            label: 0,
        };
        self.event(hit.tid, hit.time, what);
    }

    /// Who called.
    fn stack(&mut self, call: &Call, stacks: &mut Stacks) -> StackId {
        let Some((&ip, words)) = call.stack.split_first() else {
            return StackId(0);
        };
        let at = Cursor {
            ip,
            sp: call.sp.wrapping_add(8),
            bp: call.bp,
        };
        let key = (self.pid, self.layout);
        stacks.id(&self.unwinder.unwind(|_, _| {}, key, at, words, None))
    }

    fn event(&mut self, tid: u32, stamp: u64, what: What) {
        let thread = self.ledger.threads.number(u64::from(tid), || tid);
        self.ledger.events.push(Event {
            stamp,
            image: IMAGE,
            thread,
            what,
        });
    }

    /// The end; as [`super::HeapRecorder::finish`].
    pub(super) fn finish(
        mut self,
        writer: &mut Writer,
        stacks: &mut Stacks,
    ) -> Result<(HeapRun, Vec<HeapLoss>), Error> {
        let now = self.now();
        self.detach();
        // No thread is in the middle of writing a hit any more that counts.
        let spent = self.take_in(now.saturating_add(MARGIN_NS), stacks);
        self.ledger.run.spent_ns += spent as u64;
        self.ledger.close(writer)?;
        let end = self.stopped.unwrap_or(now);
        let time_ns = end.saturating_sub(self.began).max(1);
        let share = (self.on_ns as f64 / time_ns as f64).min(1.0);
        self.ledger.run.probed = Some(ProbedHeap {
            share,
            slices: self.slices,
            hits: self.told,
            entry_ns: self.costs.emulated_ns,
            stepped_ns: self.costs.stepped_ns,
            return_ns: self.costs.return_ns,
            frees: self.ledger.frees,
            frees_of_unknown: self.ledger.frees_of_unknown,
        });
        let mut losses: Vec<HeapLoss> = Vec::new();
        if share < WHOLE || self.attached {
            losses.push((
                "heap-blocks-unknown",
                self.ledger.frees_of_unknown,
                format!(
                    "blocks that were freed before their allocation could be seen, of {} frees: the allocator was probed for {:.1} % of the time{}, and blocks from before and between are not named{}",
                    self.ledger.frees,
                    share * 100.0,
                    if share < WHOLE { ", as the budget allows" } else { "" },
                    if share < WHOLE { "; `--heap on` probes it all the time" } else { "" },
                ),
            ));
        }
        if self.lost > 0 {
            losses.push((
                "heap-events-lost",
                self.lost,
                "allocations and frees that could not be told: the collector did not get a CPU in time; the blocks that were known then are known no more".to_owned(),
            ));
        }
        if self.children > 0 {
            losses.push((
                "heap-of-children-not-recorded",
                self.children,
                "processes that the program made: the probes on its allocator tell of the program itself alone; attach to a child with --pid to see its heap".to_owned(),
            ));
        }
        losses.extend(self.ledger.losses());
        if let Some(error) = self.failed {
            losses.push(("heap-not-recorded", 1, error));
        }
        Ok((self.ledger.run, losses))
    }
}

/// Whether probes can be placed here.
///
/// # Errors
/// A sentence: what is missing, what to try.
pub(super) fn possible(kernel: &impl FunctionProbes) -> Result<(), String> {
    // On no CPU: what it takes is checked all the same.
    kernel.prober(&[]).map(drop).map_err(unavailable)
}

/// Why probes cannot be placed, and what to try.
fn unavailable(error: std::io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(1 | 13) => "run linewise as root or with CAP_BPF and CAP_PERFMON",
        Some(22) => "they take Linux 6.6 or later",
        Some(38) => "this kernel has no BPF",
        _ => "see the kernel's log",
    };
    format!("probes on its allocator need BPF and uprobes: {error}; {why}")
}
